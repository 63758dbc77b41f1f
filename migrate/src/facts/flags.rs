//! The flags whose values the facts contain. All other flags are left out, since a value may be a secret.

use std::collections::BTreeMap;

use outrigger_shared::command_line::{CommandLine, Flag};

/// Flags that say which cloud provider runs, who leads, and where; none of them names a credential.
pub const ALLOWED: [&str; 24] = [
    "allocate-node-cidrs",
    "cloud-config",
    "cloud-provider",
    "cluster-cidr",
    "cluster-name",
    "config",
    "configure-cloud-routes",
    "controllers",
    "enable-leader-migration",
    "external-cloud-volume-plugin",
    "feature-gates",
    "hostname-override",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-migration-config",
    "migration",
    "provider-id",
    "use-service-account-credentials",
];

/// Flags without a value are true.
const BOOLEANS: [&str; 5] = [
    "allocate-node-cidrs",
    "configure-cloud-routes",
    "enable-leader-migration",
    "leader-elect",
    "use-service-account-credentials",
];

/// Repeated flags add up.
const REPEATED: [&str; 2] = ["controllers", "feature-gates"];

/// The longest value that is kept, in characters.
const MAX_VALUE: usize = 512;

/// The values of the allowed flags of a command line. Of a repeated one the last counts, or all by commas. A value that is only known when
/// the process starts is left out.
pub fn allowed(line: &CommandLine) -> BTreeMap<String, String> {
    let script = line.script();
    let is_guess = script.is_some();
    let line = script.as_ref().unwrap_or(line);
    let value = |name: &'static str| {
        if BOOLEANS.contains(&name) {
            return line.boolean(Flag::boolean(name)).ok()?.map(|on| on.to_string());
        }
        if !REPEATED.contains(&name) {
            return line.value(Flag::text(name)).ok()?;
        }
        let values = line.values(Flag::text(name)).ok()?;
        (!values.is_empty()).then(|| values.join(","))
    };

    // The words of a script may be anything.
    let is_sure = |name: &str, value: &str| match is_guess {
        true => BOOLEANS.contains(&name) || name == "cloud-provider" && ["aws", "external"].contains(&value),
        // A flag without a value takes the next word, whatever it is.
        false => !value.contains("$(") && !value.contains(char::is_whitespace) && !value.starts_with('-'),
    };
    let known = ALLOWED.into_iter().filter_map(|name| Some((name, value(name)?)));
    known
        .filter(|(name, value)| is_sure(name, value))
        .map(|(name, value)| (name.to_owned(), value.chars().take(MAX_VALUE).collect()))
        .collect()
}

/// A reason, as short as a line. Of an argument that it quotes only the names of variables stay: the rest may be a secret.
pub fn reason(text: &str) -> String {
    // A quotation mark in a quoted text is escaped.
    let text = text.replace("\\\"", "'");
    let parts = text.split('"').enumerate().map(|(at, part)| {
        let is_quoted = at % 2 == 1;
        match is_quoted && part.contains("$(") {
            true => {
                let names = part.split("$(").skip(1).filter_map(|rest| rest.split(')').next());
                names.map(|name| format!("$({name})")).collect::<Vec<_>>().join(" ")
            }
            false => part.to_owned(),
        }
    });
    let text = parts.collect::<Vec<_>>().join("\"");
    text.chars().take(MAX_REASON).collect()
}

/// The longest reason, in characters.
const MAX_REASON: usize = 400;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_allowed_flags_are_kept() {
        let line = CommandLine::of_container(&json!({
            "command": ["kubelet", "--cloud-provider=external", "--cloud-provider", "aws", "--token=s3cret", "--leader-elect",
                "--feature-gates=A=true", "--feature-gates=B=false", "--node-labels=password=s3cret"],
            "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "s3cret"}],
        }))
        .unwrap();
        let kept = allowed(&line);
        let pairs: Vec<(&str, &str)> = kept
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("cloud-provider", "aws"),
                ("feature-gates", "A=true,B=false"),
                ("leader-elect", "true")
            ]
        );
    }

    #[test]
    fn a_reason_quotes_no_argument_with_a_variable() {
        let text = r#"container "kcm": "mysql://u:s3cret@$(HOST)/$(DB)" may be any flag"#;
        assert_eq!(reason(text), r#"container "kcm": "$(HOST) $(DB)" may be any flag"#);
        assert_eq!(reason(r#""a\"b s3cret $(C)" is none"#), r#""$(C)" is none"#);
        assert_eq!(reason(&"x".repeat(1000)).len(), MAX_REASON);
    }

    #[test]
    fn of_a_script_only_what_is_no_secret_is_kept() {
        let script = "exec kubelet --cloud-provider=aws --config=s3cret --leader-elect";
        let line = CommandLine::of_container(&json!({"command": ["sh", "-c", script]})).unwrap();
        let kept = allowed(&line);
        assert!(!kept.values().any(|value| value.contains("s3cret")), "{kept:?}");
        assert_eq!(kept.get("cloud-provider").map(String::as_str), Some("aws"));
    }

    #[test]
    fn the_lists_are_sorted_and_fit() {
        assert!(ALLOWED.is_sorted());
        assert!(BOOLEANS.iter().all(|name| ALLOWED.contains(name)));
    }
}

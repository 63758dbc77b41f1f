//! References to variables in commands, arguments and values, as the kubelet resolves them.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by the variable's value; an unknown name stays as it is written, `$$` becomes `$`.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(escaped) = after.strip_prefix('$') {
            expanded.push('$');
            rest = escaped;
            continue;
        }

        let reference = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match reference {
            Some((name, behind)) => {
                match variables.get(name) {
                    Some(value) => expanded.push_str(value),
                    None => {
                        expanded.push_str("$(");
                        expanded.push_str(name);
                        expanded.push(')');
                    }
                }
                behind
            }
            None => {
                expanded.push('$');
                after
            }
        };
    }

    expanded.push_str(rest);

    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_the_kubelet_does() {
        let variables = BTreeMap::from([("NAME".to_owned(), "web".to_owned())]);
        for (text, expected) in [
            ("--id=$(NAME)", "--id=web"),
            ("$(NAME)$(NAME)", "webweb"),
            ("$(OTHER)", "$(OTHER)"),
            ("$$(NAME)", "$(NAME)"),
            ("$$$(NAME)", "$web"),
            ("cost 5$ or $(NAME", "cost 5$ or $(NAME"),
            ("$NAME", "$NAME"),
            ("end$", "end$"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}

//! The help and `docs/flags.md`, both written from the table.

use std::fmt::Write as _;

use super::table::{self, Effect, Kind};

/// The text of `--help`, by group. Flags that were removed upstream are left out.
pub fn text() -> String {
    let mut out = String::from(
        "The cloud controller manager for Kubernetes clusters on AWS.\n\nUsage:\n  outrigger-manager [flags]\n",
    );
    let mut group = "";
    for flag in table::all().filter(|flag| flag.group != "removed") {
        if flag.group != group {
            group = flag.group;
            let _ = writeln!(out, "\n{} flags:\n", capital(group));
        }

        let short = flag
            .short
            .map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        let _ = writeln!(out, "  {short}--{} {}", flag.name, kind(flag.kind));
        let default = match flag.default {
            "" => String::new(),
            default => format!(" (default {default})"),
        };
        let effect = match flag.effect {
            Effect::Works => String::new(),
            shown => format!(" [{}]", effect(shown)),
        };
        let _ = writeln!(out, "          {}{default}{effect}", flag.help);
    }

    out
}

pub fn markdown() -> String {
    let mut out = String::from(
        "# Flags of outrigger-manager\n\nWritten from the table in `manager/src/args/table/`; after a change run \
         `UPDATE_DOCS=1 cargo test -p outrigger-manager --test flags`.\n\nNames, types and defaults are those of \
         aws-cloud-controller-manager v1.37; those of node IPAM are kube-controller-manager's. A flag without effect is accepted; \
         if it is set, a warning is logged at start.\n",
    );
    let mut group = "";
    for flag in table::all() {
        if flag.group != group {
            group = flag.group;
            let _ = write!(
                out,
                "\n## {}\n\n| flag | type | default | effect | meaning |\n|---|---|---|---|---|\n",
                capital(group)
            );
        }
        let default = match flag.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let _ = writeln!(
            out,
            "| {}`--{}` | {} | {} | {} | {} |",
            flag.short.map_or_else(String::new, |letter| format!("`-{letter}`, ")),
            flag.name,
            kind(flag.kind),
            default,
            effect(flag.effect),
            flag.help.replace('|', "\\|")
        );
    }

    out
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Bool => "bool".into(),
        Kind::Text => "string".into(),
        Kind::Int { min, max } if max == i64::from(i32::MAX) => format!("int ≥ {min}"),
        Kind::Int { min, max } => format!("int {min}–{max}"),
        Kind::Float => "float ≥ 0".into(),
        Kind::Duration => "duration".into(),
        Kind::List => "strings".into(),
        Kind::Repeated => "string, repeated".into(),
        Kind::Map => "key=value,…".into(),
        Kind::BoolMap => "Name=bool,…".into(),
        Kind::Version => "true, false or raw".into(),
    }
}

fn effect(effect: Effect) -> String {
    match effect {
        Effect::Works => "works".into(),
        Effect::NotYet { reason, .. } => format!("none yet: {reason}"),
        Effect::ByDesign { reason, .. } => format!("none by design: {reason}"),
        Effect::NoEffectUpstream(reason) => format!("none: {reason}"),
        Effect::Removed(reason) => format!("accepted and ignored: {reason}"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

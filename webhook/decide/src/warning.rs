//! Length limits of warnings.
//!
//! An API server may cut a warning after 256 characters
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>). Warnings
//! state the problem and then, after the last `; `, the remedy, so the remedy would be lost. If a warning is too long,
//! the remedy comes first and the problem is shortened.

use outrigger_shared::annotations;

const MAX: usize = 256;
const MAX_NAME: usize = 40;

/// A warning with the name of the migration, within the limit.
pub(super) fn of_migration(name: &str, text: &str) -> String {
    fitted(&format!("outrigger: migration {}: ", shortened(name, MAX_NAME)), text)
}

/// The warning of a change that `spec.mode` Audit prevents.
pub(super) fn of_audit(name: &str, reason: &str) -> String {
    let name = shortened(name, MAX_NAME);
    shortened(&format!("outrigger: migration {name} would change: {reason}"), MAX)
}

/// The original is not restored, because a component would not start any more.
pub(super) fn of_undoing(fatal: &str) -> String {
    format!("the original does not start any more; stay in Migrate or Complete ({fatal})")
}

/// The original cannot be restored.
pub(super) fn of_unreadable_undo(error: &serde_json::Error) -> String {
    let key = annotations::UNDO;
    format!("annotation {key} cannot be read ({error}), so nothing is changed; restore or remove it")
}

/// The first names, and how many more there are.
pub(super) fn listed(names: &[String], most: usize) -> String {
    let shown = names[..most.min(names.len())].join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn fitted(prefix: &str, text: &str) -> String {
    let room = MAX.saturating_sub(prefix.chars().count());
    if text.chars().count() <= room {
        return format!("{prefix}{text}");
    }

    match text.rsplit_once("; ") {
        Some((what, remedy)) if remedy.chars().count() + 3 < room => {
            shortened(&format!("{prefix}{remedy} ({what}"), MAX - 1) + ")"
        }
        _ => shortened(&format!("{prefix}{text}"), MAX),
    }
}

/// At most `most` characters; `…` marks a cut.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        assert_eq!(
            of_migration("prod", "a is wrong; do b"),
            "outrigger: migration prod: a is wrong; do b"
        );
    }

    #[test]
    fn what_does_not_fit_begins_with_the_remedy_and_is_never_cut_by_the_api_server() {
        let what = "wörd ".repeat(80);
        for name in ["prod", &"n".repeat(253)] {
            let warning = of_migration(name, &format!("first; {what}; do this"));
            assert!(warning.contains(": do this (first; wörd"), "{warning}");
            assert!(warning.ends_with("…)"), "{warning}");
            assert_eq!(warning.chars().count(), MAX);
            for text in [what.clone(), format!("a; {what}")] {
                let warning = of_migration(name, &text);
                assert_eq!(warning.chars().count(), MAX, "{warning}");
            }
            assert!(of_audit(name, &what).chars().count() <= MAX);
        }
    }
}

//! Warnings as a client sees them.
//!
//! An API server may cut a warning after 256 characters
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response>). Texts here say what
//! is wrong and then, after the last `; `, what to do, so it is the remedy that would be lost: where a text does not fit, the
//! remedy comes first, and the rest is shortened.

/// Most characters of a warning.
const MAX: usize = 256;
/// Most characters of a migration's name in a warning.
const MAX_NAME: usize = 40;

/// A warning about an object of a migration, as long as a warning may be.
pub(super) fn of_migration(name: &str, text: &str) -> String {
    fitted(&format!("outrigger: migration {}: ", shortened(name, MAX_NAME)), text)
}

/// The same about what would be changed if the migration did not only audit.
pub(super) fn of_audit(name: &str, reason: &str) -> String {
    let name = shortened(name, MAX_NAME);
    shortened(&format!("outrigger: migration {name} would change: {reason}"), MAX)
}

/// Why an original is not brought back: a component that starts now does not start with its flags.
pub(super) fn of_undoing(fatal: &str) -> String {
    format!("the original does not start any more; stay in Migrate or Complete ({fatal})")
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

/// At most so many characters, with a sign where some are left out.
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

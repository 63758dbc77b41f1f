//! Which instance types have a place in EC2's network.

use regex::Regex;

/// The types of instances of which an answer is expected.
#[derive(Debug, Clone, Default)]
pub enum Pattern {
    /// The incumbent's default: `hpc`, `trn` and `p` with a generation, such as `p5en.48xlarge` or
    /// `p6-b200.48xlarge`.
    #[default]
    BuiltIn,
    /// The cloud configuration's `SupportedTopologyInstanceTypePattern`, anchored only where it says so.
    Given(Regex),
}

impl From<Option<Regex>> for Pattern {
    fn from(given: Option<Regex>) -> Self {
        given.map_or(Self::BuiltIn, Self::Given)
    }
}

impl Pattern {
    /// Whether an answer is expected for this type.
    #[must_use]
    pub fn matches(&self, kind: &str) -> bool {
        match self {
            Self::Given(regex) => regex.is_match(kind),
            Self::BuiltIn => kind.split_once('.').is_some_and(|(family, size)| {
                let rest = ["hpc", "trn", "p"].iter().find_map(|start| family.strip_prefix(start));
                size.bytes().all(lower_or_digit) && rest.is_some_and(generation)
            }),
        }
    }
}

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// A number, then letters, then at most one further word behind a dash.
fn generation(text: &str) -> bool {
    let after = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let (letters, word) = match after.split_once('-') {
        Some((letters, word)) => (letters, Some(word)),
        None => (after, None),
    };
    after.len() < text.len()
        && letters.bytes().all(|byte| byte.is_ascii_lowercase())
        && word.is_none_or(|word| !word.is_empty() && word.bytes().all(lower_or_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_that_the_incumbent_expects_match_and_no_others() {
        for kind in [
            "hpc6a.48xlarge",
            "hpc6id.32xlarge",
            "hpc7a.12xlarge",
            "hpc7g.16xlarge",
            "p3dn.24xlarge",
            "p4d.24xlarge",
            "p4de.24xlarge",
            "p5.48xlarge",
            "p5e.48xlarge",
            "p5en.48xlarge",
            "p6-b200.48xlarge",
            "p6e-gb200.36xlarge",
            "trn1.2xlarge",
            "trn1n.32xlarge",
            "trn2.48xlarge",
            "trn2u.48xlarge",
        ] {
            assert!(Pattern::BuiltIn.matches(kind), "{kind}");
        }
        for kind in [
            "m6g.large",
            "t3.large",
            "c3.large",
            "m5.large",
            "inf2.48xlarge",
            "p.large",
            "p5",
            "p5-.large",
            "p6-b200-x.large",
            "xp5.large",
            "P5.large",
            "",
        ] {
            assert!(!Pattern::BuiltIn.matches(kind), "{kind}");
        }
    }

    #[test]
    fn a_given_pattern_replaces_the_built_in_one_and_is_not_anchored() {
        let given = Pattern::from(Some(Regex::new("g6").unwrap()));
        assert!(given.matches("xg6.large") && !given.matches("p5.48xlarge"));
    }
}

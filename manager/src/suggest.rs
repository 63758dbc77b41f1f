//! Suggestions for unknown names: "did you mean".

/// The known name nearest to `wanted`, if it is near enough to be a typing error: at most a third of the letters differ,
/// at least one. Case does not count, and `_` equals `-`.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(wanted);
    let limit = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&wanted, &fold(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The end of an error message: `; did you mean NAME?`, or an empty text.
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    nearest(wanted, known).map_or_else(String::new, |name| format!("; did you mean {prefix}{name}?"))
}

fn fold(name: &str) -> String {
    name.chars()
        .take(128)
        .map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_a_foreign_word_finds_none() {
        let known = ["cloud-config", "cluster-name", "kubeconfig"];
        assert_eq!(nearest("clod-config", known), Some("cloud-config"));
        assert_eq!(nearest("CLOUD_CONFIG", known), Some("cloud-config"));
        assert_eq!(nearest("clusetr-name", known), Some("cluster-name"));
        assert_eq!(nearest("pineapple", known), None);
        assert_eq!(nearest("", known), None);
    }
}

//! "Did you mean": the nearest known name to one that is not known.

/// The known name nearest to `wanted`, when it is near enough to be a slip of the pen.
///
/// Case and the choice between `_` and `-` do not count. At most a third of the letters may differ, at least one.
#[must_use]
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = fold(wanted);
    let limit = (wanted.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(&wanted, &fold(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The end of an error message: `; did you mean NAME?`, or nothing.
#[must_use]
pub fn hint<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>, prefix: &str) -> String {
    nearest(wanted, known).map_or_else(String::new, |name| format!("; did you mean {prefix}{name}?"))
}

fn fold(name: &str) -> String {
    name.chars()
        .take(128)
        .map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Edit distance that counts a swap of neighbours as one step.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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

//! Lines that stand in several places.

use std::collections::BTreeMap;

/// So many successive lines make a duplicate. Blank lines, comments and imports are not counted.
pub const LEAST: usize = 8;

/// How many lines of these texts are part of a sequence of at least [`LEAST`] lines that another place has too.
pub fn lines(texts: &[&str]) -> usize {
    let texts: Vec<Vec<&str>> = texts.iter().map(|text| code(text)).collect();
    let mut places: BTreeMap<&[&str], Vec<(usize, usize)>> = BTreeMap::new();
    for (text, lines) in texts.iter().enumerate() {
        for (start, window) in lines.windows(LEAST).enumerate() {
            places.entry(window).or_default().push((text, start));
        }
    }

    let mut covered: Vec<Vec<bool>> = texts.iter().map(|lines| vec![false; lines.len()]).collect();
    for (text, start) in places.into_values().filter(|places| places.len() > 1).flatten() {
        covered[text][start..start + LEAST].fill(true);
    }

    covered.iter().flatten().filter(|is_covered| **is_covered).count()
}

/// The lines of code, without their indentation.
fn code(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("use ");
    lines.filter(is_code).collect()
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn a_sequence_counts_in_each_place_and_a_shorter_one_in_none() {
        let eight = "a\nb\nc\nd\n\n  e // same\nf\ng\nh\n";
        let indented = "x\n a\n b\n // why\n c\n d\n e // same\n f\n g\n h\n y\n";
        let seven = "a\nb\nc\nd\ne // same\nf\ng\n";
        assert_eq!(lines(&[eight, indented]), 16);
        assert_eq!(lines(&[eight, seven]), 0);
        assert_eq!(lines(&[eight]), 0);
    }
}

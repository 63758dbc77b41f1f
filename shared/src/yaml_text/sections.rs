//! Parts of a text with one document each, which are parsed without the others.

use std::ops::Range;

/// The parts of a text, in order. Each begins with the line `---` of its document, but for the first.
///
/// `---` at the start of a line begins a document also inside of strings
/// (<https://yaml.org/spec/1.2.2/#rule-c-forbidden>). A text with directives or with ends of documents (`...`) is one part,
/// since these belong to a document whose `---` comes later or never.
pub(super) fn sections(text: &str) -> Vec<Range<usize>> {
    let mut starts = vec![0];
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let has_other_break = line
            .trim_end_matches(['\r', '\n'])
            .contains(['\r', '\u{85}', '\u{2028}', '\u{2029}']);
        if line.starts_with('%') || is_mark(line, "...") || has_other_break {
            return std::iter::once(0..text.len()).collect();
        }
        if start > 0 && is_mark(line, "---") {
            starts.push(start);
        }
        start += line.len();
    }

    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().copied().zip(ends).map(|(from, to)| from..to).collect()
}

fn is_mark(line: &str, mark: &str) -> bool {
    let rest = line.strip_prefix(mark);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::yaml_text::YamlText;

    fn parts(text: &str) -> Vec<&str> {
        sections(text).into_iter().map(|part| &text[part]).collect()
    }

    #[test]
    fn each_document_is_a_part() {
        assert_eq!(
            parts("a: 1\n---\nb: 2\n--- |\n c\n"),
            ["a: 1\n", "---\nb: 2\n", "--- |\n c\n"]
        );
        assert_eq!(parts("---\na: 1\r\n---\r\nb: 2"), ["---\na: 1\r\n", "---\r\nb: 2"]);
        assert_eq!(parts("a: 1\n---b: 2\n ---\n"), ["a: 1\n---b: 2\n ---\n"]);
        assert_eq!(parts(""), [""]);
    }

    #[test]
    fn parts_that_depend_on_each_other_stay_together() {
        for text in [
            "%TAG ! x\n---\na: 1\n",
            "a: 1\n...\nb: 2\n---\nc: 3\n",
            "a: 1\r---\nb: 2\n---\nc: 3",
        ] {
            assert_eq!(parts(text), [text]);
        }
    }

    fn line() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "---",
            "--- ",
            "--- |",
            "...",
            "a: 1",
            "b: >-",
            "  text",
            "  ---",
            "- x",
            "c: \"",
            "  d\"",
            "# word",
            "e: word",
            "",
            "f: [",
            "  g]",
            "&h i",
            "? j",
            "---\r",
            "%YAML 1.2",
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_documents_are_those_of_the_whole_text(lines in prop::collection::vec(line(), 0..12)) {
            let text = lines.join("\n");
            if let (Ok(whole), Ok(each)) = (YamlText::parse(&text), YamlText::parse_documents_with(&text, "")) {
                prop_assert_eq!(whole.documents(), each.documents());
            }
        }

        #[test]
        fn a_text_that_can_be_read_can_be_read_in_parts(lines in prop::collection::vec(line(), 0..12)) {
            let text = lines.join("\n");
            prop_assert!(YamlText::parse(&text).is_err() || YamlText::parse_documents_with(&text, "").is_ok());
        }
    }
}

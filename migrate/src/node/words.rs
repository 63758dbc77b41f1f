//! Words of systemd: how it splits settings and the values of variables.
//!
//! Source: `extract_first_word` in `src/basic/extract-word.c` of <https://github.com/systemd/systemd>. The rules are
//! described in
//! <https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines>.

/// The kind of a text, which decides what a backslash means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// `ExecStart=` or `Environment=` of a unit: escapes as in C, and a quote must end.
    Setting,
    /// The value of a variable that a command line names as `$NAME`: the next character stands for itself.
    Variable,
}

/// The words of a text, without their quotes.
///
/// # Errors
/// The reason, where systemd refuses the text, or where an escape is not one of the usual.
pub(super) fn split(text: &str, kind: Text) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_end = quote.is_none() && is_space(letter);
        if is_end {
            words.extend(word.take());
            continue;
        }

        let word = word.get_or_insert_default();
        match letter {
            '\\' => word.extend(escaped(letters.next(), kind)?),
            '"' | '\'' if quote.is_none() => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            _ => word.push(letter),
        }
    }

    if let (Some(quote), Text::Setting) = (quote, kind) {
        return Err(format!("a {quote} has no end"));
    }
    words.extend(word);

    Ok(words)
}

pub(super) fn is_space(letter: char) -> bool {
    [' ', '\t', '\n', '\r'].contains(&letter)
}

fn escaped(letter: Option<char>, kind: Text) -> Result<Option<char>, String> {
    match (letter, kind) {
        (Some(letter), Text::Variable) => Ok(Some(letter)),
        (None, Text::Variable) => Ok(None),
        (Some('s'), Text::Setting) => Ok(Some(' ')),
        (Some('t'), Text::Setting) => Ok(Some('\t')),
        (Some('n'), Text::Setting) => Ok(Some('\n')),
        (Some(letter @ ('\\' | '"' | '\'')), Text::Setting) => Ok(Some(letter)),
        (letter, Text::Setting) => Err(format!(
            "\\{} is not read here",
            letter.map(String::from).unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_systemd() {
        for (text, kind, expected) in [
            ("  --a=1\t--b  ", Text::Setting, &["--a=1", "--b"][..]),
            (
                "\"V1=a b\" 'V2=\"c\"' V3=\"d e\"f",
                Text::Setting,
                &["V1=a b", "V2=\"c\"", "V3=d ef"],
            ),
            (r#"a\sb "\"" '\\' \t"#, Text::Setting, &["a b", "\"", "\\", "\t"]),
            ("'' \"\"", Text::Setting, &["", ""]),
            ("--a='b c'\n--d\\ e \"f", Text::Variable, &["--a=b c", "--d e", "f"]),
            (r"\n \", Text::Variable, &["n", ""]),
            ("", Text::Variable, &[]),
        ] {
            assert_eq!(
                split(text, kind).as_deref(),
                Ok(&expected.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
        assert!(split("\"a", Text::Setting).is_err());
        assert!(split(r"\x41", Text::Setting).is_err());
    }
}

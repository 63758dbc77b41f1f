//! The syntax of the file: sections, quoted subsections, keys, values, comments. No meaning.
//!
//! It is the dialect of git's configuration that Go's gcfg v1.2.3 reads: names without regard to case, `;` and `#`
//! comments, values that may be quoted in parts. Inside quotes a backslash stands before `\\`, `\"`, `\n` or `\t`;
//! outside of them it continues the line or stands before a quote, nothing else. Carriage returns do not count.

/// A place in the file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    /// In characters.
    pub column: usize,
}

/// One `key = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub section: String,
    pub section_place: Place,
    pub subsection: Option<String>,
    /// Key as written; empty for a section that has no key yet.
    pub key: String,
    pub place: Place,
    /// The value; `None` for a key without `=`.
    pub value: Option<String>,
    pub value_place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub place: Place,
    pub message: String,
}

/// Splits a text into its entries. A section without keys gives one entry with an empty key, so that its name is
/// checked too.
///
/// # Errors
/// The first place where the text is not of this syntax.
pub fn entries(text: &str) -> Result<Vec<Entry>, SyntaxError> {
    let mut reader = Reader {
        rest: text.strip_prefix('\u{feff}').unwrap_or(text),
        place: Place { line: 1, column: 1 },
    };
    let mut entries: Vec<Entry> = Vec::new();
    let mut section: Option<Entry> = None;
    if let Some(at) = reader.rest.find('\0') {
        let after = reader.rest.len() - at;
        while reader.rest.len() > after {
            reader.next();
        }
        return reader.fail("the file holds a NUL character here");
    }

    loop {
        reader.skip_blank();
        match reader.peek() {
            None => return Ok(entries),
            Some('[') => {
                let header = reader.header()?;
                entries.push(header.clone());
                section = Some(header);
            }
            Some(c) if c.is_alphabetic() => {
                let place = reader.place;
                let Some(section) = &section else {
                    return reader.fail("a key needs a section before it, such as [Global]");
                };

                let key = reader.name();
                let (value, value_place) = reader.value()?;
                entries.push(Entry {
                    key,
                    place,
                    value,
                    value_place,
                    ..section.clone()
                });
            }
            Some(c) => return reader.fail(format!("expected a [section], a key or a comment, found {c:?}")),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    place: Place,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.place = Place {
                line: self.place.line + 1,
                column: 1,
            };
        } else {
            self.place.column += 1;
        }

        Some(c)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError {
            place: self.place,
            message: message.into(),
        })
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\r')) {
            self.next();
        }
    }

    /// Everything up to the next section or key: space, line ends, comments.
    fn skip_blank(&mut self) {
        loop {
            self.skip_space();
            match self.peek() {
                Some('\n') => _ = self.next(),
                Some(';' | '#') => self.skip_line(),
                _ => return,
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_alphanumeric() || *c == '-') {
            name.push(c);
            self.next();
        }
        name
    }

    fn header(&mut self) -> Result<Entry, SyntaxError> {
        self.next();
        self.skip_space();

        let section_place = self.place;
        if !self.peek().is_some_and(char::is_alphabetic) {
            return self.fail("expected the name of a section after [");
        }

        let section = self.name();
        self.skip_space();

        let subsection = if self.peek() == Some('"') {
            Some(self.quoted_name()?)
        } else {
            None
        };

        self.skip_space();
        if self.peek() != Some(']') {
            return self.fail(format!("the header of section {section} is not closed with ]"));
        }

        self.next();

        let place = section_place;
        self.line_end("the header of a section")?;

        Ok(Entry {
            section,
            section_place,
            subsection,
            key: String::new(),
            place,
            value: None,
            value_place: place,
        })
    }

    fn quoted_name(&mut self) -> Result<String, SyntaxError> {
        self.next();

        let mut name = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => return self.fail("the name of a subsection is not closed with \""),
                Some('"') if name.is_empty() => {
                    return self.fail("the name of a subsection is empty: write a name between the quotes");
                }
                Some('"') => {
                    self.next();
                    return Ok(name);
                }
                Some('\\') => {
                    self.next();
                    match self.peek() {
                        Some(c @ ('"' | '\\')) => name.push(c),
                        _ => {
                            return self.fail("in the name of a subsection a backslash may only stand before \" or \\");
                        }
                    }
                }
                Some(c) => name.push(c),
            }
            self.next();
        }
    }

    /// After a complete thing only a comment may follow on its line.
    fn line_end(&mut self, what: &str) -> Result<(), SyntaxError> {
        self.skip_space();
        match self.peek() {
            None | Some('\n') => Ok(()),
            Some(';' | '#') => {
                self.skip_line();
                Ok(())
            }
            Some(c) => self.fail(format!("expected the end of the line after {what}, found {c:?}")),
        }
    }

    fn value(&mut self) -> Result<(Option<String>, Place), SyntaxError> {
        self.skip_space();
        if self.peek() != Some('=') {
            let place = self.place;
            self.line_end("a key without = value")?;
            return Ok((None, place));
        }

        self.next();
        self.skip_space();

        let place = self.place;
        Ok((Some(self.value_text()?), place))
    }

    /// Quotes may open and close within a value; space at its end counts only inside them.
    fn value_text(&mut self) -> Result<String, SyntaxError> {
        let mut text = String::new();
        let mut kept = 0;
        let mut quoted = false;

        loop {
            match self.peek() {
                None | Some('\n') if quoted => return self.fail("a quoted value is not closed with \" on its line"),
                None | Some('\n') => break,
                Some(';' | '#') if !quoted => {
                    self.skip_line();
                    break;
                }
                Some('\r') => _ = self.next(),
                Some('"') => {
                    quoted = !quoted;
                    kept = text.len();
                    self.next();
                }
                Some('\\') => {
                    self.next();

                    let escaped = if quoted {
                        self.quoted_escape()?
                    } else {
                        self.bare_escape()?
                    };

                    text.extend(escaped);
                    kept = text.len();
                }
                Some(c) => {
                    text.push(c);
                    if quoted || !matches!(c, ' ' | '\t') {
                        kept = text.len();
                    }
                    self.next();
                }
            }
        }

        text.truncate(kept);

        Ok(text)
    }

    fn quoted_escape(&mut self) -> Result<Option<char>, SyntaxError> {
        let c = match self.peek() {
            Some(c @ ('\\' | '"')) => c,
            Some('n') => '\n',
            Some('t') => '\t',
            _ => {
                return self.fail(
                    r#"unknown escape: in quotes a backslash may only precede \ " n t; write \\ for a backslash"#,
                );
            }
        };

        self.next();
        Ok(Some(c))
    }

    /// `None`: the value goes on in the next line.
    fn bare_escape(&mut self) -> Result<Option<char>, SyntaxError> {
        if self.peek() == Some('\r') {
            self.next();
        }

        let c = match self.peek() {
            Some('"') => Some('"'),
            Some('\n') => None,
            _ => {
                return self.fail(
                    r#"a backslash outside of quotes may only stand before " or at the end of a line; put the value in quotes and write \\ for a backslash"#,
                );
            }
        };

        self.next();
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, Option<String>)> {
        entries(text)
            .unwrap()
            .into_iter()
            .filter(|e| !e.key.is_empty())
            .map(|e| (e.key, e.value))
            .collect()
    }

    fn value(line: &str) -> Option<String> {
        pairs(&format!("[Global]\n{line}\n")).remove(0).1
    }

    #[test]
    fn values_are_read_with_quotes_escapes_comments_and_continued_lines() {
        for (line, wanted) in [
            ("k = v", Some("v")),
            ("k=v", Some("v")),
            ("k", None),
            ("k =", Some("")),
            ("k = a b  ", Some("a b")),
            ("k = a ; c", Some("a")),
            ("k = a # c", Some("a")),
            (r#"k = "a ; # c""#, Some("a ; # c")),
            (r#"k = " a ""#, Some(" a ")),
            (r#"k = a" b "c"#, Some("a b c")),
            (r#"k = "^(p|hpc)\\d+""#, Some(r"^(p|hpc)\d+")),
            (r#"k = "a\tb\nc""#, Some("a\tb\nc")),
            (r#"k = a\"b"#, Some("a\"b")),
            ("k = a\\\nb", Some("ab")),
            ("k = a\\\r\nb\r", Some("ab")),
            ("k = a\rb \r", Some("ab")),
            ("k = \"a\rb\"", Some("ab")),
            ("k = v\r", Some("v")),
        ] {
            assert_eq!(value(line).as_deref(), wanted, "{line:?}");
        }
    }

    #[test]
    fn places_count_lines_and_columns_from_one() {
        let all = entries("\u{feff}; head\n[Global]\n  Zone = us-east-1a\n").unwrap();
        assert_eq!((all[0].section_place.line, all[0].section_place.column), (2, 2));
        assert_eq!((all[1].place.line, all[1].place.column), (3, 3));
        assert_eq!((all[1].value_place.line, all[1].value_place.column), (3, 10));
    }

    #[test]
    fn a_subsection_keeps_its_case_and_its_quotes() {
        let all = entries("[ServiceOverride \"Ab \\\"c\\\"\"] ; x\nURL=u\n").unwrap();
        assert_eq!(all[1].subsection.as_deref(), Some("Ab \"c\""));
    }

    #[test]
    fn each_fault_names_its_place() {
        for (text, line, column, words) in [
            ("Zone = a", 1, 1, "needs a section"),
            ("[Global\nZone=a", 1, 8, "not closed"),
            ("[Global] x", 1, 10, "end of the line"),
            ("[]", 1, 2, "name of a section"),
            ("[Global]\nZone = \"a\n", 2, 10, "not closed"),
            ("[Global]\nZone = \"a\\d\"", 2, 11, "unknown escape"),
            ("[Global]\nZone = a\\d", 2, 10, "outside of quotes"),
            ("[Global]\nZone = a\\\\d", 2, 10, "outside of quotes"),
            ("[Global]\nZone = a\\", 2, 10, "outside of quotes"),
            ("[Global]\nZone = \"a\\\nb\"", 2, 11, "unknown escape"),
            ("[Global] ; \u{e4}\0", 1, 13, "NUL"),
            ("[S \"\"]", 1, 5, "is empty"),
            ("[Global]\nZone a", 2, 6, "end of the line"),
            ("[Global]\n= a", 2, 1, "expected a [section]"),
            ("[S \"a\n\"]", 1, 6, "subsection"),
        ] {
            let error = entries(text).unwrap_err();
            assert!(error.message.contains(words), "{text:?}: {error:?}");
            assert_eq!(
                (error.place.line, error.place.column),
                (line, column),
                "{text:?}: {error:?}"
            );
        }
    }
}

//! What stands in a shell script: enough to say what to write there, never enough to rewrite it.

use super::{CommandLine, Style, locate::Walked};

/// Longest script that is looked at, in words.
const MAX_WORDS: usize = 4096;

impl CommandLine {
    /// The words of the shell script that the container runs, as a line of flags that can be read. It is a guess: a shell
    /// may make anything of them. None where no shell runs.
    #[must_use]
    pub fn script(&self) -> Option<Self> {
        let Walked::Shell(position) = self.walk() else {
            return None;
        };
        let tokens = self.tokens();
        let text = tokens.get(position..).unwrap_or_default().join(" ");
        let ends =
            |character: char| character.is_whitespace() || matches!(character, ';' | '"' | '\'' | '(' | ')' | '\\');
        let words = text.split(ends).filter(|word| !word.is_empty()).take(MAX_WORDS);
        Some(Self::new(Style::Dashed, None, Some(words.map(str::to_owned).collect())))
    }

    /// Whether the script starts this program: by `exec`, or as a subcommand of hyperkube.
    #[must_use]
    pub fn script_runs(&self, program: &str) -> bool {
        let words = self.script().and_then(|script| script.args).unwrap_or_default();
        let base = |word: &'_ String| word.rsplit('/').next().map(str::to_owned);
        words.windows(2).any(|pair| {
            let [before, word] = pair else { return false };
            let starts = matches!(base(before).as_deref(), Some("exec" | "hyperkube"));
            starts && base(word).as_deref() == Some(program)
        })
    }
}

//! Reads flags in a shell script, to tell its owner which to write. A script is never rewritten.

use super::error::Unreadable;
use super::line::{CommandLine, Flag, Style};
use super::locate::Walked;
use crate::phase_flags::flag;

/// Longest script that is read, in words.
const MAX_WORDS: usize = 4096;

/// Longest text of a script in a message, in characters.
const MAX_SHOWN: usize = 40;

/// Flags of a kube-controller-manager that name a file with more flags.
const CONFIG_FILES: [&str; 2] = [OPENSHIFT_CONFIG, "config"];
const OPENSHIFT_CONFIG: &str = "openshift-config";

impl CommandLine {
    /// The words of the shell script that the container runs, as a line of flags that can be read. It is a guess: a
    /// shell may make anything of them. None where no shell runs.
    #[must_use]
    pub fn script(&self) -> Option<Self> {
        let text = self.behind_shell()?.join(" ");
        let ends =
            |character: char| character.is_whitespace() || matches!(character, ';' | '"' | '\'' | '(' | ')' | '\\');
        let words = text.split(ends).filter(|word| !word.is_empty()).take(MAX_WORDS);

        Some(Self::new(Style::Dashed, None, Some(words.map(str::to_owned).collect())))
    }

    /// The reason why the script's flags cannot be read completely: variables, other files, a configuration file.
    /// `None` if the whole script is known, or if no shell runs.
    pub fn script_hides(&self) -> Option<String> {
        let rest = self.behind_shell()?;
        // `-c` and `-ec` of a shell, `-S` of env.
        let is_text = |token: &&str| {
            let letters = token.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            letters.is_some_and(|letters| letters.ends_with('c') || letters.starts_with('S'))
        };
        if !rest
            .iter()
            .any(|token| is_text(token) || token.starts_with("--split-string"))
        {
            let file = rest.iter().find(|token| !token.starts_with('-')).copied();
            let file = file.unwrap_or("that it reads");
            return Some(format!("the script {} is not in the object", shortened(file)));
        }

        // OpenShift's file names the provider, so no variable of the script matters.
        let names_file = |file: &str| format!("--{file} names a file with flags");
        let file = self.script().and_then(|script| script.config_file());
        if let Some(file) = file.filter(|file| *file == OPENSHIFT_CONFIG) {
            return Some(names_file(file));
        }

        let text = rest.join(" ");
        if let Some(from) = text.find(['$', '`']) {
            let rest = text.get(from..).unwrap_or_default();
            let ends = |character: char| character.is_whitespace() || matches!(character, ';' | '"' | '\'');
            let word = rest.split(ends).next().unwrap_or_default();
            return Some(format!("the script uses {}", shortened(word)));
        }

        let ends = |character: char| character.is_whitespace() || matches!(character, ';' | '"' | '\'' | '&' | '|');
        let mut words = text.split(ends).filter(|word| !word.is_empty()).take(MAX_WORDS);
        if let Some(word) = words.find(|word| matches!(*word, "source" | "." | "eval")) {
            return Some(format!("the script uses `{word}`"));
        }

        file.map(names_file)
    }

    /// The words behind a shell; none where no shell runs.
    fn behind_shell(&self) -> Option<Vec<&str>> {
        match self.walk() {
            Walked::Shell(position) => Some(self.tokens().into_iter().skip(position).collect()),
            _ => None,
        }
    }

    /// The flag that names a file with more of the component's flags, as OpenShift's do.
    fn config_file(&self) -> Option<&'static str> {
        let has = |name: &&&'static str| self.value(Flag::text(name)).ok().flatten().is_some();
        CONFIG_FILES.iter().find(has).copied()
    }

    /// An error where a file that is not seen here may name the cloud provider: it has flags, and the line names none.
    ///
    /// # Errors
    /// In that case, and when the line cannot be read.
    pub fn no_config_file(&self) -> Result<(), Unreadable> {
        if !self.style.has_program() || self.value(flag::CLOUD_PROVIDER)?.is_some() {
            return Ok(());
        }
        self.config_file()
            .map_or(Ok(()), |flag| Err(Unreadable::ConfigFile { flag }))
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

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

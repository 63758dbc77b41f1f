//! Finding the component's own executable behind the programs that only start it.

use super::error::Unreadable;
use super::line::CommandLine;
use crate::work;

/// Where a component's own words begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The last part of the executable's path; for hyperkube its subcommand. None where the image's own entry point
    /// runs, so that the list starts with a flag or is empty.
    pub program: Option<String>,
    /// Position of the first token after the program in `command` followed by `args`.
    pub(super) flags_from: usize,
}

const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "zsh"];

impl CommandLine {
    /// Unwraps `tini --`, `go-runner [flags]`, `env K=V`, `hyperkube` and [`WRAPPERS`], in any order and depth, until a
    /// word that is none of them; then the JSON of `http-prober`. A provisioner's list of flags has no program.
    ///
    /// # Errors
    /// For a shell script, and for JSON that is not as it should be.
    pub fn locate(&self) -> Result<Located, Unreadable> {
        self.wrapped()?
            .map_or_else(|| self.locate_outside(), |wrapped| wrapped.inner.locate_outside())
    }

    /// The same without parsing JSON.
    pub(super) fn locate_outside(&self) -> Result<Located, Unreadable> {
        work::take(self.lookup_steps())?;
        match self.walk() {
            Walked::Program(located) => Ok(located),
            Walked::Shell(_) => Err(Unreadable::ShellScript),
            Walked::Nothing(starter) => Err(Unreadable::NoProgram { starter }),
        }
    }

    /// The base names of the words behind the program that are no flags; none where no program is known.
    pub(crate) fn later_names(&self) -> Vec<String> {
        let inner = self.wrapped().ok().flatten().map(|wrapped| wrapped.inner);
        let line = inner.as_ref().unwrap_or(self);
        let Ok(located) = line.locate_outside() else {
            return Vec::new();
        };

        let tokens = line.tokens();
        let words = tokens.get(located.flags_from..).unwrap_or_default().iter();
        let names = words.filter(|word| !word.starts_with('-'));

        names.map(|word| base_name(word).to_owned()).collect()
    }

    pub(super) fn walk(&self) -> Walked {
        let program = |program: Option<&str>, flags_from| {
            Walked::Program(Located {
                program: program.map(str::to_owned),
                flags_from,
            })
        };
        if !self.style.has_program() {
            return program(None, 0);
        }

        let tokens = self.tokens();
        let mut position = 0;
        let mut starter = None;

        loop {
            let Some(word) = tokens.get(position).filter(|word| !word.starts_with('-')) else {
                return starter.map_or_else(|| program(None, position), Walked::Nothing);
            };

            let rest = tokens.get(position + 1..).unwrap_or_default();
            let skipped = match base_name(word) {
                shell if SHELLS.contains(&shell) => return Walked::Shell(position + 1),
                "env" if splits_a_text(rest) => return Walked::Shell(position + 1),
                "tini" | "tini-static" | "dumb-init" | "catatonit" => flags_of_init(rest),
                "hyperkube" => leading_flags(rest),
                "env" => settings_of_env(rest),
                other => match WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&other)) {
                    Some(wrapper) => wrapper.own_words(rest),
                    None => return program(Some(other), position + 1),
                },
            };

            starter = Some((*word).to_owned());
            position += 1 + skipped;
        }
    }
}

/// A program that starts the one behind its own words, with the same process or the same arguments.
struct Wrapper {
    names: &'static [&'static str],
    /// Its flags whose value is the next word.
    with_value: &'static [&'static str],
    /// How many words without a dash are its own.
    words: usize,
}

const fn wrapper(names: &'static [&'static str], with_value: &'static [&'static str], words: usize) -> Wrapper {
    Wrapper {
        names,
        with_value,
        words,
    }
}

/// The flags are those of util-linux, coreutils, `su-exec`, `gosu`, Kubernetes and Bank-Vaults.
/// <https://github.com/kubernetes/kubernetes/blob/v1.31.0/staging/src/k8s.io/component-base/logs/kube-log-runner/kube-log-runner.go>
const WRAPPERS: [Wrapper; 12] = [
    wrapper(
        &["go-runner", "kube-log-runner"],
        &[
            "-log-file",
            "--log-file",
            "-flush-interval",
            "-log-file-size",
            "-log-file-age",
        ],
        0,
    ),
    wrapper(&["nice"], &["-n", "--adjustment"], 0),
    wrapper(&["ionice"], &["-c", "--class", "-n", "--classdata"], 0),
    wrapper(&["timeout"], &["-k", "--kill-after", "-s", "--signal"], 1),
    wrapper(&["gosu", "su-exec"], &[], 1),
    wrapper(
        &["setpriv"],
        &[
            "--ambient-caps",
            "--inh-caps",
            "--bounding-set",
            "--ruid",
            "--euid",
            "--reuid",
            "--rgid",
            "--egid",
            "--regid",
            "--groups",
            "--securebits",
            "--pdeathsig",
            "--selinux-label",
            "--apparmor-profile",
        ],
        0,
    ),
    wrapper(&["chroot"], &["--userspec", "--groups"], 1),
    wrapper(&["vault-env"], &[], 0),
    wrapper(&["nohup", "setsid"], &[], 0),
    wrapper(&["stdbuf"], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    wrapper(&["taskset"], &[], 1),
    // The word behind it names one of its own programs, most often the shell.
    wrapper(&["busybox"], &[], 0),
];

impl Wrapper {
    /// How many of the words behind the wrapper are its own.
    fn own_words(&self, rest: &[&str]) -> usize {
        let (mut length, mut words) = (0, self.words);
        while let Some(word) = rest.get(length) {
            length += match *word {
                "--" => return (length + 1 + words).min(rest.len()),
                word if self.with_value.contains(&word) => 2,
                word if word.starts_with('-') => 1,
                _ if words > 0 => {
                    words -= 1;
                    1
                }
                _ => break,
            };
        }

        length.min(rest.len())
    }
}

/// The program at the start of a container's words.
pub(super) enum Walked {
    /// A program, or flags for the image's own.
    Program(Located),
    /// A shell; the position is that of the first word after it.
    Shell(usize),
    /// A program that only starts others, and none after it: a flag there would be its own.
    Nothing(String),
}

/// `env [-i] [-u NAME] [K=V]... PROGRAM`.
fn settings_of_env(rest: &[&str]) -> usize {
    let mut length = 0;
    while let Some(word) = rest.get(length) {
        length += match *word {
            "-u" | "--unset" | "-C" | "--chdir" => 2,
            "--" => return length + 1,
            word if word.contains('=') || word.starts_with('-') => 1,
            _ => break,
        };
    }

    length
}

/// `env -S TEXT` makes words of a text, as a shell does.
fn splits_a_text(rest: &[&str]) -> bool {
    let own = rest.iter().take(settings_of_env(rest));
    own.into_iter()
        .any(|word| word.starts_with("-S") || word.starts_with("--split-string"))
}

/// An init's own flags may have values of their own; `--` ends them.
fn flags_of_init(rest: &[&str]) -> usize {
    rest.iter()
        .position(|token| *token == "--")
        .map_or_else(|| leading_flags(rest), |end| end + 1)
}

/// Flags of a wrapper that writes them `--f=v` or without a value, so that a word without a dash is the program.
fn leading_flags(rest: &[&str]) -> usize {
    rest.iter().take_while(|token| token.starts_with('-')).count()
}

/// The last part of a program's path, without the ending that Windows gives programs.
fn base_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    name.strip_suffix(".exe").unwrap_or(name)
}

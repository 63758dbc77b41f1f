//! Finding the component's own executable behind the programs that only start it.

use super::{CommandLine, Unreadable};

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
    /// Unwraps `tini --`, `go-runner [flags]`, `env K=V` and `hyperkube`, in any order and depth, until a word that is
    /// none of them; then the JSON of `http-prober`. A provisioner's list of flags has no program.
    ///
    /// # Errors
    /// For a shell script, and for JSON that is not as it should be.
    pub fn locate(&self) -> Result<Located, Unreadable> {
        self.wrapped()?
            .map_or_else(|| self.locate_outside(), |wrapped| wrapped.inner.locate_outside())
    }

    /// The same without looking into JSON.
    pub(super) fn locate_outside(&self) -> Result<Located, Unreadable> {
        if !self.style.has_program() {
            return Ok(Located {
                program: None,
                flags_from: 0,
            });
        }
        let tokens = self.tokens();
        let mut position = 0;
        loop {
            let Some(word) = tokens.get(position).filter(|word| !word.starts_with('-')) else {
                return Ok(Located {
                    program: None,
                    flags_from: position,
                });
            };
            let rest = tokens.get(position + 1..).unwrap_or_default();
            let skipped = match base_name(word) {
                shell if SHELLS.contains(&shell) => return Err(Unreadable::ShellScript),
                "tini" | "tini-static" | "dumb-init" => flags_of_init(rest),
                "go-runner" | "hyperkube" => leading_flags(rest),
                "env" => rest
                    .iter()
                    .take_while(|token| token.contains('=') || token.starts_with('-'))
                    .count(),
                program => {
                    return Ok(Located {
                        program: Some(program.to_owned()),
                        flags_from: position + 1,
                    });
                }
            };
            position += 1 + skipped;
        }
    }
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

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

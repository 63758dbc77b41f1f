//! Why a command line is not read.

use crate::work::WorkExceeded;

/// Longest command line that is read, in tokens. Real ones have fewer than 200; the limit bounds the work per review.
pub const MAX_TOKENS: usize = 4096;

/// Why a command line is not read, and so not changed. Flags are without dashes, values as written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// `sh -c SCRIPT`: flags may come from anywhere in the script.
    #[error("its flags are inside a shell script, which is never rewritten; change the script by hand")]
    ShellScript,
    /// `tini --` and the like, with no program behind.
    #[error("{starter:?} only starts other programs, and none follows; write the component's program behind it")]
    NoProgram { starter: String },
    /// Kubermatic's prober starts the real command from a JSON text, and this one is not as it should be.
    #[error("its command is wrapped in JSON (http-prober -command) that {problem}")]
    WrappedJson { problem: String },
    /// The kubelet expands the value when it starts the container.
    #[error(
        "the value of --{flag} is {value:?}, which is only known when the container starts; write the value itself"
    )]
    Variable { flag: String, value: String },
    /// The kubelet expands a token that may be any flag.
    #[error("{token:?} may be any flag, which is only known when the container starts; write the flag itself")]
    Hidden { token: String },
    /// A file that is not part of the object may name any flag.
    #[error(
        "look at its running process (ps -ef on its node): --{flag} names a file with flags that cannot be read here; write --cloud-provider itself"
    )]
    ConfigFile { flag: &'static str },
    /// A flag without its value, or followed by what looks like another flag.
    #[error("--{flag} needs a value and is followed by none; correct the command line")]
    NoValue { flag: String },
    /// RKE2 and K3s put the value before their own, so which of them counts is not in the list.
    #[error("{item:?} is placed before the distribution's own value of --{flag}; write {flag}=VALUE without the \"-\"")]
    Prepended { flag: String, item: String },
    /// A name and value apart, with a name that no flag can have.
    #[error("{name:?} is not the name of a flag; correct the object")]
    NotAName { name: String },
    #[error("--{flag}={value} is not a boolean; write true or false")]
    NotABoolean { flag: String, value: String },
    #[error("it has {tokens} arguments, more than the {MAX_TOKENS} that are read; shorten it")]
    TooLong {
        /// In `command` and `args` together.
        tokens: usize,
    },
    #[error("{list} is not a list of strings; correct the object")]
    NotStrings {
        /// `command` or `args`.
        list: &'static str,
    },
    #[error("{0}; shorten the command line")]
    Work(#[from] WorkExceeded),
}

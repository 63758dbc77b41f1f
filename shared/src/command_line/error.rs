//! Why a command line is not read.

/// Longest command line that is read, in tokens. Real ones have fewer than 200; the limit bounds the work per review.
pub const MAX_TOKENS: usize = 4096;

/// Why a command line is not read, and so not changed.
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
    WrappedJson {
        /// The problem and its solution.
        problem: String,
    },
    /// The kubelet expands the value when it starts the container.
    #[error(
        "the value of --{flag} is {value:?}, which is only known when the container starts; write the value itself"
    )]
    Variable {
        /// The flag, without dashes.
        flag: String,
        /// The value as written.
        value: String,
    },
    /// The kubelet expands a token that may be any flag.
    #[error("{token:?} may be any flag, which is only known when the container starts; write the flag itself")]
    Hidden { token: String },
    /// A file that is not part of the object may name any flag.
    #[error(
        "look at its running process (ps -ef on its node): --{flag} names a file with flags that cannot be read here; write --cloud-provider itself"
    )]
    ConfigFile {
        /// The flag that names the file, without dashes.
        flag: &'static str,
    },
    /// A flag without its value, or followed by what looks like another flag.
    #[error("--{flag} needs a value and is followed by none; correct the command line")]
    NoValue {
        /// The flag, without dashes.
        flag: String,
    },
    /// RKE2 and K3s put the value before their own, so which of them counts is not in the list.
    #[error("{item:?} goes before the distribution's own value of --{flag}; write {flag}=VALUE without the \"-\"")]
    Prepended {
        /// The flag, without dashes.
        flag: String,
        /// The item as written.
        item: String,
    },
    /// A name and value apart, with a name that no flag can have.
    #[error("{name:?} is no name of a flag; correct the object")]
    NotAName { name: String },
    /// A boolean flag with a value that is no boolean.
    #[error("--{flag}={value} is no boolean; write true or false")]
    NotABoolean {
        /// The flag, without dashes.
        flag: String,
        /// The value as written.
        value: String,
    },
    /// Far beyond any real command line.
    #[error("it has {tokens} arguments, more than the {MAX_TOKENS} that are read; shorten it")]
    TooLong {
        /// In `command` and `args` together.
        tokens: usize,
    },
    /// Not a list of strings.
    #[error("{list} is not a list of strings; correct the object")]
    NotStrings {
        /// `command` or `args`.
        list: &'static str,
    },
}

//! The maximum log levels of other crates. `RUST_LOG`, `--v`, `--log` and changes at runtime cannot raise them.
//!
//! At trace, the AWS SDK logs signed requests (`aws_sigv4`) and responses with credentials, and the Kubernetes client
//! logs response bodies. So other crates log at debug at most, and the crates below, which handle the data of
//! connections, at info at most. `aws_config` logs whole answers with credentials, as soon as it cannot read them, so nothing
//! of it is logged: the error of the call that needed the credentials says what failed.

/// The prefix of the targets of this project's own crates: without a limit.
pub const OWN: &str = "outrigger";

/// Prefixes of targets that log at info at most.
pub const CONNECTIONS: [&str; 7] = [
    "aws_runtime",
    "aws_sigv4",
    "aws_smithy",
    "h2",
    "hyper",
    "rustls",
    "tower",
];

/// Prefixes of targets that log nothing.
pub const SILENT: [&str; 1] = ["aws_config"];

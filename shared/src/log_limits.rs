//! How much of other crates' events a log may show, whatever asks for more: `RUST_LOG`, `--v`, `--log`, a running
//! change.
//!
//! At trace, the AWS SDK logs signed requests (`aws_sigv4`) and the answers that carry credentials, and the Kubernetes
//! client logs bodies of answers. So other crates log at debug at most, and the crates below, which see what is sent on
//! a connection, at info.

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

//! Serving certificates: load, reload, issue, and the CA bundle with overlap.
//!
//! ```text
//! directory ──load──▶ Pair ──┐
//!     ▲                      ├──▶ Reloader ──▶ tls::server_config ──▶ each new handshake
//!     │ write (one swap)     │      │ polls, compares content, keeps the old on failure
//! Authority ──issue──▶ Issued┘      └──▶ failures(), current().days_left()
//!
//! bundle::merge(old CA, new CA) ──▶ trusted by clients while both are in use
//! ```
//!
//! A serving pair is a directory with the keys of a `kubernetes.io/tls` Secret: `tls.crt`, `tls.key` and, where the
//! issuer puts it, `ca.crt`. Nothing here reads the clock inside a rule: the present is an argument.

pub mod bundle;
mod clients;
mod crypto;
mod inspect;
mod issue;
mod load;
mod pair;
mod reload;
pub mod tls;
mod write;

pub use clients::{Clients, ClientsError};
pub use crypto::provider;
pub use inspect::{Subject, own_names, subject};
pub use issue::{Authority, IssueError, Issued, Validity};
pub use load::load;
pub use pair::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, LoadError, Pair, Source};
pub use reload::{Check, DEFAULT_INTERVAL, Reloader};
pub use write::{WriteError, write};

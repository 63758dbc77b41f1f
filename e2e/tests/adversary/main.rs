//! Principals that are not trusted attack with their real credentials, on an API server with the Node authorizer and
//! NodeRestriction, beside our manager and the simulated AWS. Each attack has the same bounds: nobody else loses anything, the
//! attacker gains nothing, and an Event about the attacker's object says why.
//!
//! Attacks on the leases are in `lease_attacks`.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod nodes;
mod services;

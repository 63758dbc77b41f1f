//! Calls within a share of what AWS allows the account.

mod lane;

pub use lane::Lane;

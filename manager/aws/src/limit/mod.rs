//! Calls within a share of what AWS allows the account.
//!
//! AWS counts the calls of each action in a bucket of its own, for the whole account and region. Here each action has
//! a bucket of the same shape, smaller by a [`Share`]: others in the account keep the rest. Whoever has to wait does so
//! in a [`Lane`]. Where AWS throttles nevertheless, since the others took more than their part, that action pauses and
//! no other does.

mod bucket;
mod gate;
mod lane;
mod limited;
mod shape;

pub use lane::Lane;
pub use limited::Limited;
pub use shape::Share;

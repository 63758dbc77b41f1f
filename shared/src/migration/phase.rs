//! The phases of a migration, in order.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a migration may go. A phase permits, it never triggers: objects change when they are next written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The in-tree provider owns everything; objects have their original form.
    #[default]
    InTree,
    /// kube-controller-managers get leader migration; the new manager waits.
    Prepare,
    /// kube-controller-managers become external; the new manager takes over.
    Migrate,
    /// The migration is over.
    Complete,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::InTree, Self::Prepare, Self::Migrate, Self::Complete];

    /// Whether a change from this phase to `to` is legal: to itself, or one step in either direction.
    #[must_use]
    pub const fn may_become(self, to: Self) -> bool {
        (self as u8).abs_diff(to as u8) <= 1
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InTree => "InTree",
            Self::Prepare => "Prepare",
            Self::Migrate => "Migrate",
            Self::Complete => "Complete",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_go_one_step_at_a_time_in_both_directions() {
        for (from_index, from) in Phase::ALL.into_iter().enumerate() {
            for (to_index, to) in Phase::ALL.into_iter().enumerate() {
                assert_eq!(
                    from.may_become(to),
                    from_index.abs_diff(to_index) <= 1,
                    "{from} to {to}"
                );
            }
            assert_eq!(serde_json::to_value(from).unwrap(), from.as_str());
        }
        assert!(Phase::InTree < Phase::Prepare && Phase::Migrate < Phase::Complete);
    }
}

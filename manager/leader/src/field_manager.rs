//! The manager's name in `metadata.managedFields`.

/// The field manager of all writes of the manager. It also shows which process set the provider ID of a Node.
pub const FIELD_MANAGER: &str = "outrigger-manager";

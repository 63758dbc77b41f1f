//! `spec.leaderMigration`: a leader migration configuration of the migration's own, which is a file.

use super::{Change, Refusal, flag};
use crate::{command_line::CommandLine, leader_migration, migration::CloudProviderMigrationSpec};

/// Whether the migration has one, and how the file gets to the component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnConfiguration {
    /// There is none: the component's built-in list is right from 1.22 to 1.27.
    #[default]
    None,
    /// The author of the change also adds the file at [`leader_migration::FILE`] as well.
    Brought,
    /// The object has no way to bring a file, so its owner does, and names it on the command line.
    ByHand,
}

impl OwnConfiguration {
    /// For an object that has no way to bring a file.
    #[must_use]
    pub const fn by_hand(spec: &CloudProviderMigrationSpec) -> Self {
        if spec.leader_migration.is_some() {
            Self::ByHand
        } else {
            Self::None
        }
    }

    /// For a Pod or Pod template, which brings it.
    #[must_use]
    pub const fn brought(spec: &CloudProviderMigrationSpec) -> Self {
        if spec.leader_migration.is_some() {
            Self::Brought
        } else {
            Self::None
        }
    }

    /// No file is brought where its flag cannot be written.
    pub(super) const fn where_nothing_is_changed(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Brought | Self::ByHand => Self::ByHand,
        }
    }

    /// The flag that names the file. The content of a file of the owner is unknown, and two managers with different
    /// configurations do not exclude each other; so the migration's file applies, unless the owner must bring it.
    pub(super) fn file(self, line: &CommandLine) -> Result<Option<Change>, Refusal> {
        const BROUGHT: &str = "the file has the content of spec.leaderMigration, and the Pod template mounts it";
        const REPLACED: &str = "the file has the content of spec.leaderMigration; it replaces the owner's file, whose content is not known";

        let owners = line.value(flag::LEADER_MIGRATION_CONFIG)?;
        let set = |why| {
            Some(Change::Set(
                flag::LEADER_MIGRATION_CONFIG,
                leader_migration::FILE.into(),
                why,
            ))
        };

        match (self, owners.filter(|path| !path.is_empty())) {
            (Self::None, _) | (Self::ByHand, Some(_)) => Ok(None),
            (Self::ByHand, None) => Err(Refusal::OwnConfiguration),
            (Self::Brought, None) => Ok(set(BROUGHT)),
            (Self::Brought, Some(_)) => Ok(set(REPLACED)),
        }
    }
}

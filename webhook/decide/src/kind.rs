//! A row of the table of kinds.

use outrigger_shared::migration::Profile;

use super::{Draft, Input, Migration};

#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions whose fields the rules know.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Whether updates can be changed; creations always can.
    pub on_update: bool,
    /// Profiles of targets that select this kind.
    pub profiles: &'static [Profile],
    /// A cheap check of the object alone; false for most reviews.
    pub(super) is_concerned: fn(&Input<'_>) -> bool,
    pub(super) draft: fn(&Input<'_>, &Migration<'_>) -> Draft,
}

impl Kind {
    /// The rule's name in audit annotations: `Kind.group`, as Kubernetes writes kinds.
    #[must_use]
    pub fn rule(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.kind, self.group)
    }

    /// Operations of the registration. ConfigMaps only on update: kubeadm creates its ConfigMaps before any webhook
    /// runs.
    #[must_use]
    pub fn operations(&self) -> &'static [&'static str] {
        match (self.kind, self.on_update) {
            ("ConfigMap", _) => &["UPDATE"],
            (_, true) => &["CREATE", "UPDATE"],
            (_, false) => &["CREATE"],
        }
    }
}

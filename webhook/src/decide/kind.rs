//! A row of the table of kinds.

use outrigger_shared::migration::Profile;

use super::{Draft, Input, Migration};

/// One kind of object and its rules.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions of the group in which the rules know the object's form.
    pub versions: &'static [&'static str],
    /// Such as `Deployment`.
    pub kind: &'static str,
    /// Such as `deployments`, as registrations and URLs name it.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether an update can be changed; all kinds are reviewed at their creation.
    pub on_update: bool,
    /// The profiles of targets that can be about this kind.
    pub profiles: &'static [Profile],
    /// Whether there is anything to decide, told by the object alone: most reviews end here.
    pub(super) is_concerned: fn(&Input<'_>) -> bool,
    /// What the rules want.
    pub(super) draft: fn(&Input<'_>, &Migration<'_>) -> Draft,
}

impl Kind {
    /// The rule's name in audit annotations: `Kind.group`, as Kubernetes writes kinds.
    #[must_use]
    pub fn rule(&self) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}", self.kind, self.group)
    }

    /// The operations that are sent to the webhook. Of ConfigMaps only updates: kubeadm makes its own before any webhook
    /// is there.
    #[must_use]
    pub fn operations(&self) -> &'static [&'static str] {
        match (self.kind, self.on_update) {
            ("ConfigMap", _) => &["UPDATE"],
            (_, true) => &["CREATE", "UPDATE"],
            (_, false) => &["CREATE"],
        }
    }
}

//! A row of the table of tags.

use outrigger_shared::migration::Profile;

use super::format::TagFormat;

#[derive(Clone, Copy, Debug)]
pub struct TagRow {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions of the group in which the paths are known.
    pub versions: &'static [&'static str],
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// Profiles of targets that select this kind.
    pub profiles: &'static [Profile],
    /// The field that distinguishes objects of AWS from those of other clouds; none where the kind is only for AWS.
    pub on_aws: Option<FieldIs>,
    /// Every field with tags. The cluster's tag is added to the first one with [`Role::Target`], or in
    /// [`TagRow::launch_template`].
    pub paths: &'static [TagPath],
    /// The list of a launch template with tags by resource type; the cluster's tag is added to `instance`.
    pub launch_template: Option<&'static str>,
    /// Whether the cluster's tag may be added.
    pub policy: Policy,
    /// The controller whose reserved keys are legitimate here.
    pub reserver: Reserver,
    /// Several clusters may share the resource (a network), so another cluster's key with the value `shared` is no
    /// violation.
    pub shareable: bool,
}

/// A field and the values that it may have.
#[derive(Clone, Copy, Debug)]
pub struct FieldIs {
    pub pointer: &'static str,
    pub values: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
pub struct TagPath {
    /// JSON Pointer; `*` stands for every element of a list.
    pub pointer: &'static str,
    pub shape: TagFormat,
    pub role: Role,
}

/// The resource of the tags in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The resource itself. The cluster's tag is added here, if at all.
    Target,
    /// The same resource, in another field: a cluster's key here counts like one in the target.
    Same,
    /// Other resources, such as volumes. Validated only.
    Other,
    /// Subnets, where the keys of subnet discovery are legitimate. Validated only.
    Subnets,
}

/// Whether the cluster's tag may be added.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// Added, where no cluster's key is present.
    Add(Add),
    /// Not added, for a reason; another cluster's key is a finding.
    Validate(&'static str),
    /// Not allowed: even the cluster's own key is a finding; the consequence.
    Illegal(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Add {
    pub when: When,
    /// JSON Pointers: an update is changed only when one of these parts changes. Such a change replaces machines
    /// anyway, or was made by the author of the resource.
    pub triggers: &'static [&'static str],
    /// Kinds of controlling owners that compare this object with their template: the tag must be in the template; here
    /// it would count as a difference forever.
    pub not_owned_by: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Only at the creation: an update of these fields is rejected, or has no effect in AWS.
    Create,
    /// At the creation, and on an update that changes a trigger or the annotation `outrigger.dev/apply`.
    CreateAndUpdate,
    /// Only where the annotation `outrigger.dev/apply` is set or changed: not every such resource may have the tag.
    Asked,
}

/// The controller whose reserved keys are legitimate in a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserver {
    Nobody,
    /// Kubermatic, which writes `system/cluster` itself.
    Kubermatic,
}

impl TagRow {
    /// The same for another kind.
    pub(super) const fn of(self, kind: &'static str, plural: &'static str) -> Self {
        Self { kind, plural, ..self }
    }

    /// The same with the cluster's tag added, whatever the owner of the object is.
    pub(super) const fn adds(self, when: When, triggers: &'static [&'static str]) -> Self {
        let policy = add(when, triggers, &[]);
        Self { policy, ..self }
    }

    /// Whether updates can get the cluster's tag. All updates are validated.
    pub const fn adds_on_update(&self) -> bool {
        match self.policy {
            Policy::Add(add) => !matches!(add.when, When::Create),
            Policy::Validate(_) | Policy::Illegal(_) => false,
        }
    }

    /// The field that gets the cluster's tag, outside of launch templates.
    pub fn target(&self) -> Option<&'static TagPath> {
        self.paths.iter().find(|path| path.role == Role::Target)
    }
}

/// Defaults of most rows: namespaced, no reserved keys.
pub(super) const BASE: TagRow = TagRow {
    group: "",
    versions: &[],
    kind: "",
    plural: "",
    namespaced: true,
    profiles: &[Profile::AwsResources],
    on_aws: None,
    paths: &[],
    launch_template: None,
    policy: Policy::Validate(""),
    reserver: Reserver::Nobody,
    shareable: false,
};

/// Reason for resources that need no tag.
pub(super) const NOT_LOOKED_FOR: &str = "no cloud-controller-manager looks for the cluster's tag on such a resource";

/// A field that tells objects of AWS from others.
pub(super) const fn field(pointer: &'static str, values: &'static [&'static str]) -> Option<FieldIs> {
    Some(FieldIs { pointer, values })
}

pub(super) const fn path(pointer: &'static str, shape: TagFormat, role: Role) -> TagPath {
    TagPath { pointer, shape, role }
}

pub(super) const fn target(pointer: &'static str, shape: TagFormat) -> TagPath {
    path(pointer, shape, Role::Target)
}

pub(super) const fn add(
    when: When,
    triggers: &'static [&'static str],
    not_owned_by: &'static [&'static str],
) -> Policy {
    Policy::Add(Add {
        when,
        triggers,
        not_owned_by,
    })
}

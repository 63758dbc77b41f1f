//! A row of the table of tags.

use outrigger_shared::migration::Profile;

use super::format::TagFormat;

/// One kind of object that holds AWS tags.
#[derive(Clone, Copy, Debug)]
pub struct TagRow {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions of the group in which the paths are known.
    pub versions: &'static [&'static str],
    /// Such as `MachineDeployment`.
    pub kind: &'static str,
    /// Such as `machinedeployments`.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The profiles of targets that can be about this kind.
    pub profiles: &'static [Profile],
    /// What tells an object of AWS from one of another cloud; none where the kind itself does.
    pub on_aws: Option<FieldIs>,
    /// Every place of tags. The cluster's tag is added at the first one with [`Role::Target`], or in
    /// [`TagRow::launch_template`].
    pub paths: &'static [TagPath],
    /// Where a launch template lists tags by the type of what it launches; the cluster's tag belongs to `instance`.
    pub launch_template: Option<&'static str>,
    /// Whether the cluster's tag may be added.
    pub policy: Policy,
    /// Whose own keys are at home here, so that they are not forged.
    pub home: Reserver,
    /// Several clusters may use what the object stands for (a network), so another cluster's key with the value `shared`
    /// is no theft there.
    pub shareable: bool,
}

/// A field and the values that it may have.
#[derive(Clone, Copy, Debug)]
pub struct FieldIs {
    /// JSON Pointer.
    pub pointer: &'static str,
    /// Any one of them.
    pub values: &'static [&'static str],
}

/// One place of tags.
#[derive(Clone, Copy, Debug)]
pub struct TagPath {
    /// JSON Pointer; `*` stands for every element of a list.
    pub pointer: &'static str,
    /// How tags are written there.
    pub shape: TagFormat,
    /// What they are on.
    pub role: Role,
}

/// What the tags of one place are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The resource itself. The cluster's tag goes here, if it may be added at all.
    Target,
    /// The same resource, by another field: a cluster's key here counts as one at the target.
    Same,
    /// Other resources that belong to it, such as volumes. Validated only.
    Other,
    /// Subnets: the keys by which load balancers find them are at home here. Validated only.
    Subnets,
}

/// Whether the cluster's tag may be added.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// It is, where no cluster's key is present.
    Add(Add),
    /// It is not, for a reason; another cluster's key is a finding.
    Validate(&'static str),
    /// It is not legal here at all, so even the cluster's own key is a finding; what happens to such an object.
    Illegal(&'static str),
}

/// How the cluster's tag is added.
#[derive(Clone, Copy, Debug)]
pub struct Add {
    /// When.
    pub when: When,
    /// Where an update must change the object for us to act, as JSON Pointers: a change there rolls machines anyway, or
    /// is made by whoever wrote the resource.
    pub triggers: &'static [&'static str],
    /// Kinds of controlling owners that compare this object with a template of theirs: the tag belongs into the
    /// template, and here it would be taken for a change, forever.
    pub not_below: &'static [&'static str],
}

/// When the cluster's tag is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the creation only: an update of these fields is refused, or changes nothing in AWS.
    Create,
    /// At the creation, and on an update that changes a trigger or the annotation `outrigger.dev/apply`.
    CreateAndUpdate,
    /// Only where the annotation `outrigger.dev/apply` is there or changes: not every such resource may have the tag.
    Asked,
}

/// Whose keys are at home in a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserver {
    /// Nobody's.
    Nobody,
    /// Kubermatic's, which writes `system/cluster` itself.
    Kubermatic,
}

impl TagRow {
    /// Whether an update of an object can get the cluster's tag. All are reviewed on updates, for forged tags.
    #[must_use]
    pub const fn adds_on_update(&self) -> bool {
        match self.policy {
            Policy::Add(add) => !matches!(add.when, When::Create),
            Policy::Validate(_) | Policy::Illegal(_) => false,
        }
    }

    /// The place where the cluster's tag is added, outside launch templates.
    #[must_use]
    pub fn target(&self) -> Option<&'static TagPath> {
        self.paths.iter().find(|path| path.role == Role::Target)
    }
}

/// What most rows have in common: names in a namespace, one list of tags, nobody's own keys.
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
    home: Reserver::Nobody,
    shareable: false,
};

/// Why a resource of AWS that stands for itself need not have the tag.
pub(super) const NOT_LOOKED_FOR: &str = "no cloud-controller-manager looks for the cluster's tag on such a resource";

pub(super) const fn path(pointer: &'static str, shape: TagFormat, role: Role) -> TagPath {
    TagPath { pointer, shape, role }
}

pub(super) const fn target(pointer: &'static str, shape: TagFormat) -> TagPath {
    path(pointer, shape, Role::Target)
}

pub(super) const fn add(when: When, triggers: &'static [&'static str], not_below: &'static [&'static str]) -> Policy {
    Policy::Add(Add {
        when,
        triggers,
        not_below,
    })
}

//! **The arguments that RKE2 passes to its components for `cloud-provider-name`**, by release.
//!
//! | RKE2 | kube-controller-manager, kubelet | kube-apiserver |
//! |---|---|---|
//! | up to 1.28 | `--cloud-provider=NAME` | `--cloud-provider=NAME`, not checked there |
//! | 1.29.0 to 1.29.10, 1.30.0 to 1.30.6, 1.31.0 to 1.31.2 | `--cloud-provider=NAME` | `--cloud-provider=NAME`; it does not start with `aws` |
//! | 1.29.11, 1.30.7, 1.31.3 and later | the same; `aws` only names Nodes | the same, but for `aws` |
//! | 1.31.12, 1.32.8, 1.33.0 and later | the same; `aws` only names Nodes | nothing |
//!
//! Source: `pkg/podexecutor/staticpod.go` (`APIServer`) and `pkg/rke2/rke2_linux.go` of
//! <https://github.com/rancher/rke2> at each tag from v1.26.0+rke2r1 to v1.36.3+rke2r1. Arguments of an operator come
//! after it, and the last value counts. kube-controller-manager and kubelet do not start with `aws` from 1.27 on, and
//! kube-apiserver checks the value from 1.29 on (`pkg/kubeapiserver/options/cloudprovider.go` of Kubernetes 1.29). Any
//! name disables RKE2's own cloud controller.

use outrigger_shared::{
    command_line::CommandLine,
    component::Component,
    migration::{Mode, Phase},
    phase_flags::{self, Change, Refusal, flag},
    version::KubernetesVersion,
};
use serde_json::Value;

use super::{
    Draft, Input, Migration,
    provisioner_object::{self, Rules, Situation},
    warning,
};

pub(super) const AWS: &str = "aws";
pub(super) const EXTERNAL: &str = "external";

/// The last minor with an in-tree provider `aws`.
pub(super) const LAST_IN_TREE: KubernetesVersion = KubernetesVersion::v1(26);

/// The first releases, by minor and patch, in which `aws` only names Nodes.
const ONLY_A_NAME: [(u32, u32); 4] = [(29, 11), (30, 7), (31, 3), (32, 0)];
/// The first releases, by minor and patch, in which kube-apiserver gets nothing from the name.
const NOT_TO_THE_API_SERVER: [(u32, u32); 3] = [(31, 12), (32, 8), (33, 0)];

/// A warning about upgrades while the name stays `aws`, once nothing else is left to do.
pub(super) const LATER_RELEASES: &str = "cloud-provider-name stays aws; kube-apiserver of RKE2 before 1.29.11, 1.30.7, \
    1.31.3 ends with it, unless its argument is cloud-provider=external: upgrade before you delete the migration, which adds \
    it";

/// The minors whose kube-apiserver checks the value. From 1.33 on it has no such flag.
const CHECKED: std::ops::RangeInclusive<u32> = 29..=32;

/// Whether the release is in the table, or later. A version without a patch counts as the first of its minor.
fn is_since(version: KubernetesVersion, table: &[(u32, u32)]) -> bool {
    let own = table.iter().find(|(minor, _)| *minor == version.minor);
    match own {
        Some((_, patch)) => version.patch.unwrap_or_default() >= *patch,
        None => table.iter().all(|(minor, _)| *minor < version.minor),
    }
}

/// Whether `cloud-provider-name: aws` is a provider, not only a way to name Nodes. An unknown version may be any.
pub(super) fn aws_is_passed(version: Option<KubernetesVersion>) -> bool {
    version.is_none_or(|version| !is_since(version, &ONLY_A_NAME))
}

/// The value that RKE2 passes to the component.
pub(super) fn passed(name: Option<&str>, component: Component, version: Option<KubernetesVersion>) -> Option<&str> {
    let reaches = match component {
        Component::KubeApiserver => version.is_none_or(|version| !is_since(version, &NOT_TO_THE_API_SERVER)),
        _ => true,
    };
    name.filter(|name| reaches && (*name != AWS || aws_is_passed(version)))
}

/// Whether the component fails to start with `aws`.
fn ends_with_aws(component: Component, version: KubernetesVersion) -> bool {
    match component {
        Component::KubeApiserver => CHECKED.contains(&version.minor),
        _ => version.minor > LAST_IN_TREE.minor,
    }
}

/// The changes of the list of kube-apiserver. Only an argument can override `aws` where the API server would not start
/// with it: there the argument is added and never removed. From 1.29 on the two components need not wait for each
/// other, because no kube-controller-manager of these versions is in-tree.
pub(super) fn api_server_changes(
    own: &CommandLine,
    passed: Option<&str>,
    situation: &Situation<'_>,
) -> Result<Vec<Change>, Refusal> {
    const OVERRIDE: &str = "RKE2 gives it aws from cloud-provider-name, with which it does not start in this version";

    let is_checked = situation
        .version
        .is_some_and(|version| version.minor >= *CHECKED.start());
    let circumstances = phase_flags::Circumstances {
        both_in_one_object: !is_checked,
        ..situation.circumstances()
    };
    let needs_override = passed == Some(AWS)
        && situation.effective_phase >= Phase::Migrate
        && situation
            .version
            .is_some_and(|version| ends_with_aws(Component::KubeApiserver, version));
    if !needs_override {
        return phase_flags::changes(Component::KubeApiserver, own, &circumstances);
    }

    let is_written = own.value(flag::CLOUD_PROVIDER)?.as_deref() == Some(EXTERNAL);
    let change = Change::Set(flag::CLOUD_PROVIDER, EXTERNAL.into(), OVERRIDE);
    Ok(if is_written { Vec::new() } else { vec![change] })
}

fn ends(component: Component, provider: Option<&str>, version: KubernetesVersion) -> bool {
    provider == Some(AWS) && ends_with_aws(component, version)
}

/// The providers of an object's components in a version.
#[derive(Debug, Default)]
pub(super) struct Providers {
    pub is_named_aws: bool,
    /// The provider of each component, by the name or its arguments; one entry per list.
    pub given: Vec<(Component, Option<String>)>,
}

impl Providers {
    /// The components that fail to start, without duplicates.
    fn ending(&self, version: KubernetesVersion) -> Vec<Component> {
        let given = self.given.iter();
        let ends = given.filter(|(component, provider)| ends(*component, provider.as_deref(), version));
        let mut components: Vec<Component> = ends.map(|(component, _)| *component).collect();
        components.sort();
        components.dedup();
        components
    }

    /// Whether the name only names Nodes, and the components that need a provider have none.
    fn is_only_a_name(&self, version: KubernetesVersion) -> bool {
        let is_without = |(component, provider): &(Component, Option<String>)| {
            *component == Component::KubeApiserver || provider.is_none()
        };
        self.is_named_aws && !aws_is_passed(Some(version)) && self.given.iter().all(is_without)
    }

    fn warnings(&self, version: KubernetesVersion, phase: Phase) -> Vec<String> {
        let mut warnings = Vec::new();
        let ending = self.ending(version);
        if !ending.is_empty() {
            warnings.push(format!(
                "in {version} these do not start with the provider aws, which cloud-provider-name or an argument gives them: {}; \
                 give each the argument cloud-provider=external, or stay on 1.26",
                names(&ending)
            ));
        }

        if phase < Phase::Migrate && self.is_only_a_name(version) {
            warnings.push(format!(
                "in {version} cloud-provider-name aws only names Nodes, and nothing runs the cloud controllers; stay on 1.26, or \
                 give kube-controller-manager and kubelet cloud-provider=external beside a cloud-controller-manager"
            ));
        }

        warnings
    }
}

/// Reads the providers of the components of an object in a version.
pub(super) type ReadProviders = fn(&Value, KubernetesVersion) -> Providers;

/// Like [`provisioner_object::draft`], but refuses a change after which a component fails to start that starts now.
/// Warns of a version whose components do not start, or have no provider.
pub(super) fn draft(input: &Input<'_>, migration: &Migration<'_>, rules: &Rules, reading: ReadProviders) -> Draft {
    let mut draft = provisioner_object::draft(input, migration, rules);
    if !input.may_act(rules.triggers, rules.besides) {
        return draft;
    }

    let mut stored = input.object.clone();
    if json_patch::patch(&mut stored, &draft.patch).is_err() {
        stored.clone_from(input.object);
    }

    let own = rules
        .version
        .iter()
        .find_map(|pointer| stored.pointer(pointer)?.as_str()?.parse().ok());
    let Some(version) = own.or_else(|| migration.spec.version()) else {
        return draft;
    };

    let (before, after) = (reading(input.object, version), reading(&stored, version));
    let ending = before.ending(version);
    let mut ended = after.ending(version);
    ended.retain(|component| !ending.contains(component));
    if !ended.is_empty() {
        draft = Draft::default();
        let fatal = format!("with the provider aws, {} cannot start in {version}", names(&ended));
        draft.refuse(format!("nothing is changed: {}", warning::of_undoing(&fatal)));
    }

    let is_stored = migration.spec.mode != Mode::Audit && ended.is_empty();
    let providers = if is_stored { after } else { before };
    draft.warnings.extend(providers.warnings(version, migration.spec.phase));

    draft
}

fn names(components: &[Component]) -> String {
    let names: Vec<&str> = components.iter().map(|component| component.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Option<KubernetesVersion> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn each_release_passes_the_name_as_its_source_does() {
        const MANAGER: Component = Component::KubeControllerManager;
        const SERVER: Component = Component::KubeApiserver;
        for (text, aws, aws_to_the_server, other_to_the_server) in [
            ("v1.26.15+rke2r1", true, true, true),
            ("v1.28.15+rke2r1", true, true, true),
            ("v1.29.0+rke2r1", true, true, true),
            ("v1.29.10+rke2r1", true, true, true),
            ("v1.29.11+rke2r1", false, false, true),
            ("v1.30.6+rke2r1", true, true, true),
            ("v1.30.7+rke2r1", false, false, true),
            ("v1.31.2+rke2r1", true, true, true),
            ("v1.31.3+rke2r1", false, false, true),
            ("v1.31.11+rke2r1", false, false, true),
            ("v1.31.12+rke2r1", false, false, false),
            ("v1.32.0+rke2r1", false, false, true),
            ("v1.32.7+rke2r1", false, false, true),
            ("v1.32.8+rke2r1", false, false, false),
            ("v1.33.0+rke2r1", false, false, false),
            ("v1.36.3+rke2r1", false, false, false),
            ("1.30", true, true, true),
            ("1.32", false, false, true),
        ] {
            let is_passed = |name, component| passed(Some(name), component, version(text)).is_some();
            assert_eq!(is_passed(AWS, MANAGER), aws, "{text}");
            assert_eq!(is_passed(AWS, SERVER), aws_to_the_server, "{text}");
            assert_eq!(is_passed(EXTERNAL, SERVER), other_to_the_server, "{text}");
            assert!(is_passed(EXTERNAL, MANAGER), "{text}");
        }
        assert_eq!(passed(Some(AWS), SERVER, None), Some(AWS));
        assert_eq!(passed(None, SERVER, None), None);
    }

    #[test]
    fn aws_ends_an_api_server_from_1_29_and_the_others_from_1_27() {
        for (text, server, manager) in [
            ("1.26.15", false, false),
            ("1.28.3", false, true),
            ("1.29.0", true, true),
            ("1.32.7", true, true),
            ("1.33.0", false, true),
        ] {
            let ends = |component| ends(component, Some(AWS), text.parse().unwrap());
            assert_eq!(ends(Component::KubeApiserver), server, "{text}");
            assert_eq!(ends(Component::Kubelet), manager, "{text}");
        }
        assert!(!ends(Component::Kubelet, Some(EXTERNAL), KubernetesVersion::v1(30)));
    }
}

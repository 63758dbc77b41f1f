//! Rancher's Cluster of RKE2 or K3s (`provisioning.cattle.io/v1`): `disable-cloud-controller`
//! and the lists `*-arg`, each written where it takes effect (see [`super::machine_config`]).
//!
//! | phase | kube-controller-manager-arg of control planes | the rest |
//! |---|---|---|
//! | Prepare | `enable-leader-migration` | untouched |
//! | Migrate | `cloud-provider=external`, no leader migration | `kubelet-arg` of every machine: `cloud-provider=external`; `disable-cloud-controller: true` on every server; from 1.29 on `kube-apiserver-arg` as below |
//! | Complete | same | same, and `cloud-provider` in an existing `kube-apiserver-arg` by the version's rule |
//!
//! `cloud-provider-name: aws` has two meanings: the provider of kubelet, kube-controller-manager and kube-apiserver, in
//! the releases that [`super::rke2_provider`] lists, and in all releases the name of each Node as AWS knows it.
//! Arguments take precedence over it, so the arguments alone switch the cluster, and the name stays
//! ([`super::node_names`]): without it a Node would get the host name. A machine of a pool has a host name that AWS does
//! not know, so no cloud-controller-manager would find its instance.
//!
//! kube-apiserver of 1.29 to 1.32 does not start with `aws`. Where RKE2 passes it, `kube-apiserver-arg` gets
//! `cloud-provider=external`; such an argument of the operator stays.
//!
//! The HelmChart of the cloud-controller-manager in `additionalManifest` gets its flags too ([`super::helm_chart`]).
//!
//! `disable-cloud-controller` is set on every server, not only on control planes: servers refuse to join where it
//! differs. Without the embedded cloud controller the kubelet has no default `external`, so its list gets it. K3s has
//! no `cloud-provider-name`.
//!
//! Rancher keeps its pod security argument in `kube-apiserver-arg` of `machineGlobalConfig`, so the list is changed
//! only where it takes effect, and an API server without a provider is not changed. Rancher itself manages the tags of
//! machines.

use std::{cell::RefCell, collections::BTreeSet};

use outrigger_shared::{
    command_line::{CommandLine, Unreadable},
    component::{Component, Form},
    migration::{Phase, Profile},
    phase_flags::{self, Refusal, flag},
    version::KubernetesVersion,
    work,
};
use serde_json::{Value, json};

use super::{
    Kind,
    arguments::ListFormat,
    document::Document,
    helm_chart,
    machine_config::{MachineConfig, Roles, Section},
    provisioner_object::{self, Obstacle, Rules, Situation},
    rancher_warnings,
    rke2_provider::{self, AWS, EXTERNAL, LAST_IN_TREE, Providers},
};
use crate::patch::Path;

pub(super) const KINDS: &[Kind] = &[Kind {
    group: "provisioning.cattle.io",
    versions: &["v1"],
    kind: "Cluster",
    plural: "clusters",
    namespaced: true,
    on_update: true,
    profiles: &[Profile::RancherRKE2],
    // Imported and cloud-managed clusters have no such field.
    is_concerned: |input| input.object.pointer("/spec/rkeConfig").is_some_and(Value::is_object),
    draft: |input, migration| rke2_provider::draft(input, migration, &RULES, providers),
}];

const RULES: Rules = Rules {
    // Not all of rkeConfig: scaling a pool must not restart a control plane. Manifests are included, because a
    // cloud-controller-manager without its flags would run beside the old controllers.
    triggers: &[
        "/spec/rkeConfig/machineGlobalConfig",
        "/spec/rkeConfig/machineSelectorConfig",
        "/spec/kubernetesVersion",
        "/spec/rkeConfig/additionalManifest",
    ],
    besides: &[],
    version: &["/spec/kubernetesVersion"],
    both_in_one_object: true,
    is_external,
    form,
    warnings: rancher_warnings::warnings,
};

/// Manifests, possibly with the HelmChart of the cloud-controller-manager.
pub(super) const ADDITIONAL_MANIFEST: [&str; 3] = ["spec", "rkeConfig", "additionalManifest"];
/// Steps to read and write a list of ordinary length.
const STEPS_PER_LIST: usize = 1300;
const NAME: &str = "cloud-provider-name";
const DISABLE: &str = "disable-cloud-controller";
/// A name from instance metadata, without a provider.
const METADATA: &str = "node-name-from-cloud-provider-metadata";

pub(super) fn control_plane(roles: Roles) -> bool {
    roles.control_plane
}

/// Settings of a cluster that the rules need.
pub(super) struct Cluster<'a> {
    pub config: MachineConfig<'a>,
    version: Option<KubernetesVersion>,
    pub is_k3s: bool,
    /// Asked for each list, and computed from all of them.
    providers: RefCell<Vec<(Component, Option<&'static str>)>>,
}

impl<'a> Cluster<'a> {
    pub fn of(object: &'a Value, version: Option<KubernetesVersion>) -> Self {
        let text = object.pointer("/spec/kubernetesVersion").and_then(Value::as_str);
        Self {
            config: MachineConfig::of(object),
            version,
            is_k3s: text.is_some_and(|text| text.contains("+k3s") || text.contains("-k3s")),
            providers: RefCell::default(),
        }
    }

    /// Every effective name; empty ones are none. K3s has no such key.
    fn names(&self, class: fn(Roles) -> bool) -> Vec<Option<&'a Value>> {
        if self.is_k3s {
            return vec![None];
        }
        let names = self.config.values(NAME, class).into_iter();
        names.map(|name| name.filter(|name| *name != "")).collect()
    }

    /// The effective name for these machines: `aws` where some have it, `external` where all have it.
    fn name(&self, class: fn(Roles) -> bool) -> Option<&'static str> {
        let names = self.names(class);
        if names.iter().flatten().any(|name| **name == AWS) {
            return Some(AWS);
        }
        let all = names.iter().all(|name| name.is_some_and(|name| name == EXTERNAL));
        all.then_some(EXTERNAL)
    }

    fn provider(&self, component: Component, class: fn(Roles) -> bool) -> Option<&'static str> {
        let mut known = self.providers.borrow_mut();
        let found = known.iter().find(|(other, _)| *other == component);
        if let Some((_, provider)) = found {
            return *provider;
        }

        let provider = rke2_provider::passed(self.name(class), component, self.version);
        known.push((component, provider));
        provider
    }

    /// Whether RKE2 names Nodes by instance metadata when their in-tree kubelets become external.
    pub fn is_named_by_metadata(&self) -> bool {
        self.has_in_tree_version() && self.name(Roles::any) == Some(AWS)
    }

    /// Whether some machine gets the in-tree provider by an argument of its kubelet alone, and so the host name when it
    /// becomes external.
    pub fn is_named_by_host(&self) -> bool {
        let is_set = |key| {
            self.config
                .values(key, Roles::any)
                .into_iter()
                .any(|value| value.is_some())
        };
        let is_in_tree = |place| {
            let given = self.given(place, &KUBELET);
            given.is_ok_and(|provider| provider.as_deref() == Some(AWS))
        };
        self.has_in_tree_version()
            && self.name(Roles::any) != Some(AWS)
            && !["node-name", METADATA].into_iter().any(is_set)
            && self.places(&KUBELET).into_iter().any(is_in_tree)
    }

    /// Whether an in-tree AWS provider exists in the version; an unknown one may have it.
    fn has_in_tree_version(&self) -> bool {
        self.version.is_none_or(|version| version.minor <= LAST_IN_TREE.minor)
    }

    /// Whether no server runs the embedded cloud controller. In RKE2 a provider's name disables it as well.
    pub fn is_disabled(&self) -> bool {
        let values = self.config.values(DISABLE, Roles::is_server);
        let is_named = self.names(Roles::is_server).iter().all(Option::is_some);
        is_named || values.into_iter().all(|value| value.is_some_and(is_true))
    }

    /// Whether kube-apiserver gets `aws` in later releases.
    pub fn passes_aws(&self) -> bool {
        self.name(control_plane) == Some(AWS)
    }

    /// The list of a section, preceded by the default of the component. RKE2 and K3s put their own values first.
    fn whole_line(&self, place: Option<Section>, target: &ComponentList) -> Result<CommandLine, Obstacle> {
        let path = place.unwrap_or(Section::Global).path().child(target.key);
        let found = place
            .and_then(|place| self.config.value(place, target.key))
            .filter(|value| !value.is_null());
        let own = ListFormat::Bare.read(found, &path)?;
        let provider = self.provider(target.component, target.class);
        let provider = provider.map(|name| format!("{}={name}", flag::CLOUD_PROVIDER.name));
        let items = provider
            .into_iter()
            .chain(own.items().unwrap_or_default().iter().cloned());

        CommandLine::bare(items.collect::<Vec<_>>()).map_err(|reason| target.because(reason.into()))
    }

    /// The sections whose list is effective for some machine of the component.
    fn places(&self, target: &ComponentList) -> BTreeSet<Option<Section>> {
        self.config.counting(target.key, target.class)
    }

    /// The provider of a component by the list of a section, or by its default.
    fn given(&self, place: Option<Section>, target: &ComponentList) -> Result<Option<String>, Obstacle> {
        let line = self.whole_line(place, target)?;
        let unreadable = |reason: Unreadable| target.because(reason.into());
        line.value(flag::CLOUD_PROVIDER).map_err(unreadable)
    }

    /// Whether every control plane runs an external kube-controller-manager.
    fn is_external(&self) -> bool {
        self.places(&KUBE_CONTROLLER_MANAGER).into_iter().all(|place| {
            let line = self.whole_line(place, &KUBE_CONTROLLER_MANAGER);
            line.is_ok_and(|line| matches!(Form::of_command_line(&line), Form::External { .. }))
        })
    }

    /// Whether any control plane runs a kube-controller-manager with the in-tree provider, or one that cannot be read.
    pub fn may_be_in_tree(&self) -> bool {
        let is_in_tree = |place| {
            let given = self.given(place, &KUBE_CONTROLLER_MANAGER);
            given.map_or(true, |provider| provider.as_deref() == Some(AWS))
        };
        self.has_in_tree_version() && self.places(&KUBE_CONTROLLER_MANAGER).into_iter().any(is_in_tree)
    }

    fn refuse_other_clouds(&self) -> Result<(), Obstacle> {
        let names = self.names(Roles::any);
        let is_other = |name: &&Value| **name != AWS && **name != EXTERNAL;
        names.into_iter().flatten().find(is_other).map_or(Ok(()), |name| {
            Err(Obstacle::Other(format!(
                "{NAME} is {name}, not \"aws\"; this migration is for AWS, correct spec.targets"
            )))
        })
    }

    /// Refuses clusters whose Nodes the embedded cloud controller has initialized: their provider IDs are immutable.
    fn refuse_embedded(&self) -> Result<(), Obstacle> {
        let target = &KUBE_CONTROLLER_MANAGER;
        let is_named = self.names(target.class).iter().any(Option::is_some);
        let says = |place| Ok(self.given(place, target)?.is_some());
        let lists: Result<Vec<bool>, Obstacle> = self.places(target).into_iter().map(says).collect();
        if is_named || self.is_disabled() || lists?.contains(&true) {
            return Ok(());
        }

        Err(Obstacle::Other(format!(
            "no cloud provider is named, so the Nodes have provider IDs of the embedded cloud controller, which never change; \
             set {DISABLE}: true and replace the Nodes"
        )))
    }
}

/// A component and the key of its argument list.
struct ComponentList {
    component: Component,
    key: &'static str,
    class: fn(Roles) -> bool,
}

const KUBE_CONTROLLER_MANAGER: ComponentList = ComponentList {
    component: Component::KubeControllerManager,
    key: "kube-controller-manager-arg",
    class: control_plane,
};
const KUBE_APISERVER: ComponentList = ComponentList {
    component: Component::KubeApiserver,
    key: "kube-apiserver-arg",
    class: control_plane,
};
const KUBELET: ComponentList = ComponentList {
    component: Component::Kubelet,
    key: "kubelet-arg",
    class: Roles::any,
};

impl ComponentList {
    fn because(&self, reason: Refusal) -> Obstacle {
        Obstacle::of_flags(self.component, reason)
    }

    /// Writes the flags of the phase into every effective list.
    fn write(&self, document: &mut Document, cluster: &Cluster<'_>, situation: &Situation<'_>) -> Result<(), Obstacle> {
        for place in cluster.places(self) {
            work::take(STEPS_PER_LIST)?;
            let whole = cluster.whole_line(place, self)?;
            provisioner_object::warn_of_flags(document, self.component, &whole, situation)?;

            let place = place.unwrap_or(Section::Global);
            let path = place.path().child(self.key);
            let mut own = document.arguments(&path, ListFormat::Bare)?;
            let changes = if self.component == Component::KubeApiserver {
                let passed = cluster.provider(self.component, self.class);
                rke2_provider::api_server_changes(&own, passed, situation)
            } else {
                phase_flags::changes(self.component, &whole, &situation.circumstances())
            };
            let changes = changes.map_err(|reason| self.because(reason))?;

            for change in &changes {
                let unreadable = |reason: Unreadable| self.because(reason.into());
                change.apply(&mut own).map_err(unreadable)?;
            }

            if own.edits().is_empty() {
                continue;
            }

            let reasons = changes
                .iter()
                .map(|change| format!("{} in {place}: {change}", self.component));
            document.set_arguments(&path, ListFormat::Bare, &own, reasons)?;
        }

        Ok(())
    }
}

/// Adds warnings about the effective lists before the change. [`providers`] covers what the name adds to a list; a list
/// that cannot be read is an obstacle only where the phase changes it.
fn note_warnings(document: &mut Document, cluster: &Cluster<'_>, situation: &Situation<'_>) {
    for target in [&KUBE_CONTROLLER_MANAGER, &KUBE_APISERVER, &KUBELET] {
        let provider = cluster.provider(target.component, target.class);
        for place in cluster.places(target) {
            if work::take(STEPS_PER_LIST).is_err() {
                return;
            }
            let path = place.unwrap_or(Section::Global).path().child(target.key);
            if let Ok(own) = document.arguments(&path, ListFormat::Bare) {
                provisioner_object::note_warnings(document, &own, target.component, situation, provider);
            }
        }
    }
}

fn is_true(value: &Value) -> bool {
    value == true || value == "true"
}

pub(super) fn is_external(object: &Value) -> bool {
    let version = object.pointer(RULES.version[0]).and_then(Value::as_str);
    Cluster::of(object, version.and_then(|text| text.parse().ok())).is_external()
}

/// The provider of each component, for each effective list; none where the list cannot be read.
fn providers(object: &Value, version: KubernetesVersion) -> Providers {
    let cluster = Cluster::of(object, Some(version));
    let targets = [&KUBE_CONTROLLER_MANAGER, &KUBE_APISERVER, &KUBELET].into_iter();
    let lists = targets.flat_map(|target| cluster.places(target).into_iter().map(move |place| (target, place)));
    let given = lists.map(|(target, place)| (target.component, cluster.given(place, target).ok().flatten()));

    Providers {
        is_named_aws: cluster.name(control_plane) == Some(AWS),
        given: given.collect(),
    }
}

pub(super) fn has_form(object: &Value, situation: &Situation<'_>) -> bool {
    form(&mut Document::restored(object, &[]), situation).is_ok()
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    if situation.effective_phase == Phase::InTree {
        return Ok(());
    }

    let original = document.value.clone();
    let cluster = Cluster::of(&original, situation.version);
    cluster.refuse_other_clouds()?;

    let situation = &Situation {
        named_elsewhere: cluster.names(control_plane).iter().any(Option::is_some),
        ..*situation
    };
    note_warnings(document, &cluster, situation);
    // Without an in-tree kube-controller-manager the new manager needs no guard.
    if cluster.may_be_in_tree() {
        helm_chart::in_manifest(document, &Path::new(&ADDITIONAL_MANIFEST), situation)?;
    }

    if situation.effective_phase == Phase::Prepare {
        return KUBE_CONTROLLER_MANAGER.write(document, &cluster, situation);
    }

    cluster.refuse_embedded()?;
    for target in [&KUBE_CONTROLLER_MANAGER, &KUBE_APISERVER, &KUBELET] {
        target.write(document, &cluster, situation)?;
    }

    // An external cluster is configured by its operator.
    if !cluster.is_external() {
        disable_cloud_controller(document, &cluster)?;
    }

    Ok(())
}

fn disable_cloud_controller(document: &mut Document, cluster: &Cluster<'_>) -> Result<(), Obstacle> {
    for place in cluster.config.counting(DISABLE, Roles::is_server) {
        let place = place.unwrap_or(Section::Global);
        if cluster.config.value(place, DISABLE).is_some_and(is_true) {
            continue;
        }
        let why = format!("{DISABLE} in {place}: it would give Nodes provider IDs of its own");
        let path = place.path().child(DISABLE);
        document.set(&path, json!(true), why)?;
    }
    Ok(())
}

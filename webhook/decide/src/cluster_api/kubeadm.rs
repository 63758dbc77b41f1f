//! KubeadmControlPlane, KubeadmConfig and their templates.
//!
//! | component | below the kubeadm configuration |
//! |---|---|
//! | kube-apiserver, kube-controller-manager | `clusterConfiguration.{apiServer,controllerManager}.extraArgs` |
//! | kubelet of the first control-plane machine | `initConfiguration.nodeRegistration.kubeletExtraArgs` |
//! | kubelet of every other machine | `joinConfiguration.nodeRegistration.kubeletExtraArgs` |
//!
//! v1beta1 has maps, v1beta2 has lists of 1 to 100 items `{name, value}` with unique names. `taints` of a
//! nodeRegistration are not changed: the kubelet adds the taint of uninitialized Nodes itself, and a new list would
//! remove the default taint of kubeadm.

use outrigger_shared::{component::Component, migration::Phase, phase_flags};
use serde_json::Value;

use super::common::{
    self, BOOTSTRAP, CONTROL_PLANE, RULES, config, fixed_template, join, refuse_other_clouds, row, template,
};
use crate::{
    Kind,
    arguments::ListFormat,
    document::Document,
    node_names,
    patch::Path,
    provisioner_object::{self, Obstacle, Rules, Situation},
};

pub(crate) const KINDS: &[Kind] = &[
    row(
        (CONTROL_PLANE, "KubeadmControlPlane", "kubeadmcontrolplanes"),
        |input, migration| provisioner_object::draft(input, migration, &CONTROL_PLANES),
    ),
    row(
        (
            CONTROL_PLANE,
            "KubeadmControlPlaneTemplate",
            "kubeadmcontrolplanetemplates",
        ),
        |input, migration| fixed_template(input, migration, "KubeadmControlPlane", &CONTROL_PLANE_TEMPLATES),
    ),
    row((BOOTSTRAP, "KubeadmConfig", "kubeadmconfigs"), |input, migration| {
        config(input, migration, "KubeadmControlPlane", &CONFIGS)
    }),
    row(
        (BOOTSTRAP, "KubeadmConfigTemplate", "kubeadmconfigtemplates"),
        |input, migration| template(input, migration, &CONFIG_TEMPLATES),
    ),
];

const CONTROL_PLANES: Rules = Rules {
    version: &["/spec/version"],
    is_external: |object| PLANE.is_external(object),
    form: |document, situation| PLANE.form(document, situation),
    ..RULES
};
const CONTROL_PLANE_TEMPLATES: Rules = Rules {
    is_external: |object| PLANE_TEMPLATE.is_external(object),
    form: |document, situation| PLANE_TEMPLATE.form(document, situation),
    ..RULES
};
const CONFIGS: Rules = Rules {
    version: &["/spec/clusterConfiguration/kubernetesVersion"],
    is_external: |object| CONFIG.is_external(object),
    form: |document, situation| CONFIG.form(document, situation),
    ..RULES
};
const CONFIG_TEMPLATES: Rules = Rules {
    is_external: |object| CONFIG_TEMPLATE.is_external(object),
    form: |document, situation| CONFIG_TEMPLATE.form(document, situation),
    ..RULES
};

/// The place of the kubeadm configuration in an object.
struct Kubeadm {
    prefix: &'static [&'static str],
    /// Always a control plane. Otherwise it is one if it has a `clusterConfiguration`.
    is_control_plane: bool,
}

const PLANE: Kubeadm = Kubeadm {
    prefix: &["spec", "kubeadmConfigSpec"],
    is_control_plane: true,
};
const PLANE_TEMPLATE: Kubeadm = Kubeadm {
    prefix: &["spec", "template", "spec", "kubeadmConfigSpec"],
    is_control_plane: true,
};
const CONFIG: Kubeadm = Kubeadm {
    prefix: &["spec"],
    is_control_plane: false,
};
const CONFIG_TEMPLATE: Kubeadm = Kubeadm {
    prefix: &["spec", "template", "spec"],
    is_control_plane: false,
};

/// Maximum number of items of a list in v1beta2.
const MAX_ITEMS: usize = 100;

impl Kubeadm {
    fn component(&self, field: &str) -> Path {
        join(self.prefix, &["clusterConfiguration", field, "extraArgs"])
    }

    fn kubelet(&self, configuration: &str) -> Path {
        join(self.prefix, &[configuration, "nodeRegistration", "kubeletExtraArgs"])
    }

    /// By the kube-controller-manager of a control plane, or the kubelet of a worker.
    fn is_external(&self, object: &Value) -> bool {
        let configuration = join(self.prefix, &["clusterConfiguration"]);
        let is_control_plane = object.pointer(configuration.pointer().as_str()).is_some();
        let path = if self.is_control_plane || is_control_plane {
            self.component("controllerManager")
        } else {
            self.kubelet("joinConfiguration")
        };

        provisioner_object::is_external(object, &path, ListFormat::Map)
    }

    fn form(&self, document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
        if situation.effective_phase == Phase::InTree {
            return Ok(());
        }

        let situation = &Situation {
            controllers: Some(provisioner_object::KUBEADM_CONTROLLERS),
            ..*situation
        };
        let lists = self.lists(document);
        let of = |kind: Component| lists.iter().filter(move |(component, _)| *component == kind);
        let kubelets: Vec<_> = of(Component::Kubelet).map(|(_, list)| list.clone()).collect();
        refuse_other_clouds(document, &kubelets)?;

        let all: Vec<_> = lists.iter().map(|(_, list)| list.clone()).collect();
        let cloud_configs = common::cloud_configs(document, &all);
        self.warn_of_names(document, &lists, situation)?;
        for (component, (path, shape)) in &lists {
            provisioner_object::arguments(document, path, *shape, *component, situation, None)?;

            let items = document.get(path).and_then(Value::as_array).map_or(0, Vec::len);
            if items > MAX_ITEMS {
                return Err(Obstacle::Other(format!(
                    "{} would have {items} items, and its API takes {MAX_ITEMS}; remove some",
                    path.pointer()
                )));
            }
        }

        if situation.effective_phase >= Phase::Migrate {
            let gates = self.with_scheduler(all.clone(), document);
            common::warn_of_gates(document, &gates, situation.version);
            common::warn_of_cloud_configs(document, self.prefix, &cloud_configs, &all);
        }

        Ok(())
    }

    /// The argument lists that the object has, or needs.
    fn lists(&self, document: &Document) -> Vec<(Component, (Path, ListFormat))> {
        let shape = ListFormat::Map.in_version_of(&document.value);
        let has = |field: &str| document.get(&join(self.prefix, &[field])).is_some();
        let mut lists = Vec::new();
        let mut add = |component, path| lists.push((component, (path, shape)));

        if self.is_control_plane || has("clusterConfiguration") {
            add(Component::KubeControllerManager, self.component("controllerManager"));
            add(Component::KubeApiserver, self.component("apiServer"));
        }

        // The first control-plane machine may have no joinConfiguration, and a worker has only that.
        let is_first = has("initConfiguration") || has("clusterConfiguration");
        if self.is_control_plane || is_first {
            add(Component::Kubelet, self.kubelet("initConfiguration"));
        }

        if self.is_control_plane || !is_first || has("joinConfiguration") {
            add(Component::Kubelet, self.kubelet("joinConfiguration"));
        }

        lists
    }

    /// An external kubelet is named by its host, unless kubeadm gives it a name.
    fn warn_of_names(
        &self,
        document: &mut Document,
        lists: &[(Component, (Path, ListFormat))],
        situation: &Situation<'_>,
    ) -> Result<(), Obstacle> {
        let mut unnamed = Vec::new();
        for configuration in ["initConfiguration", "joinConfiguration"] {
            let path = self.kubelet(configuration);
            let Some((component, (_, shape))) = lists.iter().find(|(_, (other, _))| *other == path) else {
                continue;
            };

            let line = document.arguments(&path, shape.of(document.get(&path)))?;
            let by_host = phase_flags::is_named_by_host(*component, &line, &situation.circumstances());
            let by_host = by_host.map_err(|reason| Obstacle::of_flags(*component, reason.into()))?;
            let name = document.get(&join(self.prefix, &[configuration, "nodeRegistration", "name"]));
            let is_named = name.and_then(Value::as_str).is_some_and(|name| !name.is_empty());

            if by_host && !is_named {
                unnamed.push(configuration);
            }
        }

        if !unnamed.is_empty() {
            document.warn(node_names::of_kubeadm(&unnamed));
        }

        Ok(())
    }

    fn with_scheduler(&self, mut lists: Vec<(Path, ListFormat)>, document: &Document) -> Vec<(Path, ListFormat)> {
        let shape = ListFormat::Map.in_version_of(&document.value);
        lists.push((self.component("scheduler"), shape));
        lists
    }
}

//! **The table of the entries**: which objects API servers send to the webhook, in which configuration, and from which
//! namespaces. Versions, operations and profiles are those of the table of kinds.

use outrigger_shared::component::{Component, POD_LABELS};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Configuration {
    /// Kubermatic's clusters: API servers call configurations in the order of their names.
    Early,
    Main,
    /// Objects of kube-system that a target names.
    KubeSystem,
    /// Optional: the webhook works without it.
    Validating,
}

impl Configuration {
    pub const ALL: [Self; 4] = [Self::Early, Self::Main, Self::KubeSystem, Self::Validating];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early.outrigger.dev",
            Self::Main | Self::Validating => "outrigger",
            Self::KubeSystem => "outrigger-kube-system",
        }
    }

    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Early | Self::Main | Self::KubeSystem => "MutatingWebhookConfiguration",
        }
    }

    /// The path of the webhook's server.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Validating => "/validate",
            Self::Early | Self::Main | Self::KubeSystem => "/mutate",
        }
    }
}

/// The namespaces of an entry's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// The objects have none.
    None,
    /// All but those that a cluster needs to recover.
    Ordinary,
    /// Those of them with the label of control planes.
    ControlPlanes,
    /// Those of them without it.
    OutsideControlPlanes,
    KubeSystem,
}

/// Pods whose label has one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLabel {
    pub key: &'static str,
    pub values: Vec<&'static str>,
}

/// The resources of one rule: each of `resources` in each of `groups`; all kinds of the groups that have rules, where
/// `resources` is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    pub groups: &'static [&'static str],
    pub resources: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub configuration: Configuration,
    pub name: String,
    pub rules: &'static [Resources],
    pub namespaces: Namespaces,
    pub pod_label: Option<PodLabel>,
    /// Whether the object waits for an unavailable webhook. All others pass.
    pub blocks: bool,
}

/// The group of the migration itself.
pub(super) const MIGRATIONS: &str = "outrigger.dev";

const fn of(groups: &'static [&'static str], resources: &'static [&'static str]) -> Resources {
    Resources { groups, resources }
}

const fn every(groups: &'static [&'static str]) -> Resources {
    of(groups, &[])
}

const NODES: &[Resources] = &[of(&[""], &["nodes"])];
const CONFIG_MAPS: &[Resources] = &[of(&[""], &["configmaps"])];
const KUBERMATIC: &[Resources] = &[of(&["kubermatic.k8c.io", "kubermatic.k8s.io"], &["clusters"])];
const WORKLOADS: &[Resources] = &[of(&["apps"], &["deployments", "statefulsets", "daemonsets"])];
const PODS: &[Resources] = &[of(&[""], &["pods"])];
const MACHINE_CONTROLLER: &[Resources] = &[every(&["cluster.k8s.io"])];
const CONTROL_PLANES: &[Resources] = &[
    of(
        &["controlplane.cluster.x-k8s.io"],
        &[
            "kubeadmcontrolplanes",
            "kubeadmcontrolplanetemplates",
            "rke2controlplanes",
            "rke2controlplanetemplates",
            "kthreescontrolplanes",
        ],
    ),
    of(&["controlplane.cluster.x-k8s.io"], &["kamajicontrolplanes"]),
];
const BOOTSTRAP: &[Resources] = &[every(&["bootstrap.cluster.x-k8s.io"])];
const HELM_CHARTS: &[Resources] = &[of(&["helm.cattle.io"], &["helmcharts", "helmchartconfigs"])];
const OPENSHIFT: &[Resources] = &[
    of(&["machine.openshift.io"], &["machines", "machinesets"]),
    of(&["machine.openshift.io"], &["controlplanemachinesets"]),
];
const CLUSTER_API_AWS: &[Resources] = &[
    every(&["infrastructure.cluster.x-k8s.io"]),
    of(
        &["controlplane.cluster.x-k8s.io"],
        &["awsmanagedcontrolplanes", "awsmanagedcontrolplanetemplates"],
    ),
];
const AWS_CONTROLLERS: &[Resources] = &[
    every(&["ec2.services.k8s.aws"]),
    every(&["elbv2.services.k8s.aws"]),
    every(&["eks.services.k8s.aws"]),
];
const CROSSPLANE: &[Resources] = &[
    every(&["ec2.aws.upbound.io"]),
    every(&["autoscaling.aws.upbound.io"]),
    every(&["elb.aws.upbound.io"]),
    every(&["elbv2.aws.upbound.io"]),
    every(&["eks.aws.upbound.io"]),
    every(&["ec2.aws.crossplane.io"]),
    every(&["elasticloadbalancing.aws.crossplane.io"]),
    every(&["elbv2.aws.crossplane.io"]),
    every(&["eks.aws.crossplane.io"]),
];
const TAGGED_OBJECTS: &[Resources] = &[
    of(&["machine.sapcloud.io"], &["machineclasses"]),
    of(&["rke-machine-config.cattle.io"], &["amazonec2configs"]),
    of(&["kops.k8s.io"], &["clusters", "instancegroups"]),
    of(&["hypershift.openshift.io"], &["hostedclusters", "nodepools"]),
    of(&[""], &["services"]),
];
const TAGGED_CLASSES: &[Resources] = &[
    of(&["karpenter.k8s.aws"], &["ec2nodeclasses"]),
    of(&["storage.k8s.io"], &["storageclasses", "volumeattributesclasses"]),
    of(&["snapshot.storage.k8s.io"], &["volumesnapshotclasses"]),
];

/// Entries whose objects wait for an unavailable webhook, besides the Pods of a kube-controller-manager, of which none is
/// safer than two owners. The owner of these (a topology, Git) applies its original again and again: one such write
/// without the webhook replaces all machines by machines with the in-tree provider, and without leader migration.
const BLOCKING: [&str; 2] = ["cluster-api-control-planes", "cluster-api-bootstrap"];

/// Entries of the main configuration after those of Pods.
const PROVISIONERS: [(&str, &[Resources], Namespaces); 13] = [
    ("machinedeployments", MACHINE_CONTROLLER, Namespaces::Ordinary),
    (
        "tenantcontrolplanes",
        &[of(&["kamaji.clastix.io"], &["tenantcontrolplanes"])],
        Namespaces::Ordinary,
    ),
    (
        "rancher-clusters",
        &[of(&["provisioning.cattle.io"], &["clusters"])],
        Namespaces::Ordinary,
    ),
    (
        "rancher-rke1-clusters",
        &[of(&["management.cattle.io"], &["clusters"])],
        Namespaces::None,
    ),
    ("cluster-api-control-planes", CONTROL_PLANES, Namespaces::Ordinary),
    ("cluster-api-bootstrap", BOOTSTRAP, Namespaces::Ordinary),
    (
        "cluster-api-classes",
        &[of(&["cluster.x-k8s.io"], &["clusterclasses"])],
        Namespaces::Ordinary,
    ),
    ("helmcharts", HELM_CHARTS, Namespaces::Ordinary),
    ("openshift-machines", OPENSHIFT, Namespaces::Ordinary),
    ("cluster-api-aws", CLUSTER_API_AWS, Namespaces::Ordinary),
    ("aws-controllers", AWS_CONTROLLERS, Namespaces::Ordinary),
    ("crossplane-aws", CROSSPLANE, Namespaces::None),
    ("tagged-objects", TAGGED_OBJECTS, Namespaces::Ordinary),
];

const VALIDATED: [(&str, &[Resources], Namespaces); 8] = [
    ("validate-machine-controller", MACHINE_CONTROLLER, Namespaces::Ordinary),
    ("validate-openshift-machines", OPENSHIFT, Namespaces::Ordinary),
    ("validate-cluster-api-aws", CLUSTER_API_AWS, Namespaces::Ordinary),
    ("validate-aws-controllers", AWS_CONTROLLERS, Namespaces::Ordinary),
    ("validate-crossplane-aws", CROSSPLANE, Namespaces::None),
    ("validate-tagged-objects", TAGGED_OBJECTS, Namespaces::Ordinary),
    ("validate-tagged-classes", TAGGED_CLASSES, Namespaces::None),
    (
        "validate-migrations",
        &[of(&[MIGRATIONS], &["cloudprovidermigrations"])],
        Namespaces::None,
    ),
];

/// Every entry of all profiles, in the order of the manifests.
#[must_use]
pub fn entries() -> Vec<Entry> {
    let main = Configuration::Main;
    let mut all = vec![
        entry(
            Configuration::Early,
            "kubermatic-clusters",
            KUBERMATIC,
            Namespaces::None,
        ),
        entry(main, "nodes", NODES, Namespaces::None),
        entry(main, "workloads", WORKLOADS, Namespaces::Ordinary),
    ];

    let old_manager = Component::KubeControllerManager.names();
    let both = [old_manager.clone(), Component::KubeApiserver.names()].concat();
    // A Pod with a label is in one of these groups of entries, and its conditions leave one entry of the group.
    all.extend(pods_by_label("pods-by", &both, Namespaces::OutsideControlPlanes, false));
    all.push(entry(main, "pods-in-control-planes", PODS, Namespaces::ControlPlanes));
    let prefix = "kube-controller-manager-pods-by";
    all.extend(pods_by_label(prefix, &old_manager, Namespaces::ControlPlanes, true));

    all.extend(PROVISIONERS.map(|(name, rules, namespaces)| entry(main, name, rules, namespaces)));
    all.push(entry(main, "tagged-classes", TAGGED_CLASSES, Namespaces::None));
    let kube_system = |name, rules| entry(Configuration::KubeSystem, name, rules, Namespaces::KubeSystem);
    all.push(kube_system("kube-system-helmcharts", HELM_CHARTS));
    all.push(kube_system("kubeadm-configmaps", CONFIG_MAPS));
    all.extend(VALIDATED.map(|(name, rules, namespaces)| entry(Configuration::Validating, name, rules, namespaces)));

    all
}

fn entry(configuration: Configuration, name: &str, rules: &'static [Resources], namespaces: Namespaces) -> Entry {
    Entry {
        configuration,
        name: format!("{name}.outrigger.dev"),
        rules,
        namespaces,
        pod_label: None,
        blocks: BLOCKING.contains(&name),
    }
}

/// A selector cannot express "one of these keys", so there is an entry for each label.
fn pods_by_label(
    prefix: &str,
    values: &[&'static str],
    namespaces: Namespaces,
    blocks: bool,
) -> impl Iterator<Item = Entry> {
    POD_LABELS.iter().map(move |key| {
        let name = format!("{prefix}-{}", key.replace(['.', '/'], "-"));
        Entry {
            pod_label: Some(PodLabel {
                key,
                values: values.to_vec(),
            }),
            blocks,
            ..entry(Configuration::Main, &name, PODS, namespaces)
        }
    })
}

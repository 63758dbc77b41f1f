//! Recognising the kube-controller-manager, the kube-apiserver, the kubelet and AWS's cloud-controller-manager in a
//! Pod, and reading what a kube-controller-manager runs as.
//!
//! Names alone deceive (an operator's container may well be called `controller-manager`), so a container is changed
//! only on two pieces of evidence, of which one has the full name, and never when its executable is another program.
//! Where that program has the component among its arguments, or the component's flags in a container that has its name
//! and image, nothing is changed, but it is not overlooked.

use serde_json::Value;

use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    phase_flags::flag,
    version::KubernetesVersion,
};

/// A component whose flags a migration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The old owner of the cloud controllers.
    KubeControllerManager,
    /// The API server; its cloud provider flag has no effect, but its presence becomes an error.
    KubeApiserver,
    /// With an in-tree provider it initializes its Node itself; with `external` it leaves that to the manager.
    Kubelet,
    /// AWS's: cloud-provider-aws or Outrigger's manager. Those of other clouds are ignored.
    CloudControllerManager,
}

impl Component {
    pub const ALL: [Self; 4] = [
        Self::KubeControllerManager,
        Self::KubeApiserver,
        Self::Kubelet,
        Self::CloudControllerManager,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kubelet => "kubelet",
            Self::CloudControllerManager => "aws-cloud-controller-manager",
        }
    }

    /// The names under which labels and containers know the component: the full one, then the short one.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let mut names = vec![self.as_str(), self.short_name()];
        names.dedup();
        names
    }

    /// The short name that hyperkube and some provisioners use.
    const fn short_name(self) -> &'static str {
        match self {
            Self::KubeControllerManager => "controller-manager",
            Self::KubeApiserver => "apiserver",
            Self::Kubelet => "kubelet",
            Self::CloudControllerManager => "cloud-controller-manager",
        }
    }

    fn strength(self, text: &str) -> Strength {
        match text {
            full if full == self.as_str() => Strength::Full,
            OUR_MANAGER if self == Self::CloudControllerManager => Strength::Full,
            short if short == self.short_name() => Strength::Short,
            _ => Strength::None,
        }
    }
}

const OUR_MANAGER: &str = "outrigger-manager";

impl std::fmt::Display for Component {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How well a text names a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    None,
    Short,
    Full,
}

/// How sure it is that a container runs a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certainty {
    /// Probable, by one piece of evidence: enough for a warning.
    Suspected,
    /// It names the component, but starts it by a program of which nothing is known, so its flags may not be those that
    /// are seen.
    Wrapped,
    /// Sure enough to read and change its flags.
    Recognized,
}

/// A container that runs, or seems to run, a component.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    pub component: Component,
    pub certainty: Certainty,
    /// Position in `spec.containers`.
    pub index: usize,
    pub name: &'a str,
    pub container: &'a Value,
}

impl Finding<'_> {
    #[must_use]
    pub fn version(&self) -> Option<KubernetesVersion> {
        KubernetesVersion::from_image(text(self.container, "image"))
    }
}

/// Labels of Pods whose value names a component, by the names of [`Component::names`]. The registration of the webhook
/// for Pods is rendered from this table, because a selector of Kubernetes cannot say "one of these keys".
pub const POD_LABELS: [&str; 7] = [
    "app",
    "component",
    "k8s-app",
    // Gardener.
    "role",
    // Cluster API Nested.
    "component-name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/name",
];

/// Each text that names a component contains one of these. So a Pod without them in its containers runs none.
pub const WORDS: [&str; 4] = ["controller-manager", "apiserver", "kubelet", OUR_MANAGER];

/// Every container of a Pod that runs or seems to run a component. `labels` are the Pod's, if they are known.
#[must_use]
pub fn find<'a>(pod_spec: &'a Value, labels: Option<&Value>) -> Vec<Finding<'a>> {
    let containers = pod_spec.get("containers").and_then(Value::as_array);
    let judge = |(index, container): (usize, &'a Value)| {
        let line = CommandLine::to_read(container).ok();
        let judged = |component| Some((component, judge(component, container, line.as_ref(), labels)?));
        let (component, certainty) = Component::ALL
            .into_iter()
            .filter_map(judged)
            .max_by_key(|(_, sure)| *sure)?;

        Some(Finding {
            component,
            certainty,
            index,
            name: text(container, "name"),
            container,
        })
    };

    let mut findings: Vec<Finding<'a>> = containers.into_iter().flatten().enumerate().filter_map(judge).collect();
    let recognized: Vec<Component> = findings
        .iter()
        .filter(|finding| finding.certainty == Certainty::Recognized)
        .map(|finding| finding.component)
        .collect();

    // Beside the component itself, a container that only has its name among the words is a sidecar.
    findings.retain(|finding| finding.certainty != Certainty::Wrapped || !recognized.contains(&finding.component));

    findings
}

/// Whether a Pod is only the picture of a static Pod: the process runs from a file on the node, so a change here would
/// never be carried out.
#[must_use]
pub fn is_mirror_pod(pod: &Value) -> bool {
    let annotation = pod
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(crate::annotations::MIRROR_POD));
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let owned_by_node = owners.is_some_and(|owners| owners.iter().any(|owner| text(owner, "kind") == "Node"));
    annotation.is_some() || owned_by_node
}

fn judge(
    component: Component,
    container: &Value,
    line: Option<&CommandLine>,
    labels: Option<&Value>,
) -> Option<Certainty> {
    let executable = line.and_then(|line| executable(component, line));
    let provider = line.map_or(Provider::Unknown, |line| provider(component, line));
    if provider == Provider::Foreign {
        return None;
    }

    let wrapped = line
        .filter(|_| executable == Some(Strength::None))
        .map(|line| later_strength(component, line));
    let name = component.strength(without_revision(text(container, "name")));
    let image = image_strength(component, text(container, "image"));
    let is_entry_point = || name.min(image) == Strength::Full && line.is_some_and(has_flag);
    if wrapped == Some(Strength::None) && !is_entry_point() {
        return None;
    }

    let own = [wrapped.or(executable).unwrap_or(Strength::None), name, image];
    let of_labels = |labels: &Value| POD_LABELS.map(|key| component.strength(text(labels, key)));
    let label = labels.into_iter().flat_map(of_labels).max().unwrap_or(Strength::None);
    let cloud = match provider {
        Provider::Aws => Strength::Full,
        _ => Strength::None,
    };
    let all = || own.iter().chain([&label, &cloud]);
    let seen = all().filter(|strength| **strength > Strength::None).count();
    let full = all().any(|strength| *strength == Strength::Full);
    let seen_on_itself = own.iter().any(|strength| *strength > Strength::None);

    match (full && seen_on_itself, seen, wrapped) {
        // Its name among the arguments of another program is no evidence by itself.
        (false, ..) | (true, 1, Some(_)) => None,
        (true, 1, None) => Some(Certainty::Suspected),
        (true, _, Some(_)) => Some(Certainty::Wrapped),
        (true, _, None) => Some(Certainty::Recognized),
    }
}

/// How well a word behind another program names the component.
fn later_strength(component: Component, line: &CommandLine) -> Strength {
    let names = line.later_names();
    let strengths = names.iter().map(|name| component.strength(name));
    strengths.max().unwrap_or(Strength::None)
}

/// Whether a program gets a flag that a migration changes, as the script of an image's own entry point does that passes
/// its arguments on. A line that may have any flag counts as well.
fn has_flag(line: &CommandLine) -> bool {
    flag::ALL
        .iter()
        .any(|flag| line.value(*flag).map_or(true, |value| value.is_some()))
}

/// The component by its executable; none if unknown. In a shell script only a program that it starts counts.
fn executable(component: Component, line: &CommandLine) -> Option<Strength> {
    match line.locate() {
        Ok(located) => located.program.map(|program| component.strength(&program)),
        Err(Unreadable::ShellScript) => line.script_runs(component.as_str()).then_some(Strength::Full),
        Err(_) => None,
    }
}

/// Which cloud a cloud-controller-manager is for; its name does not always say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    Aws,
    Foreign,
    Unknown,
}

fn provider(component: Component, line: &CommandLine) -> Provider {
    if component != Component::CloudControllerManager {
        return Provider::Unknown;
    }

    let value = match line.script() {
        Some(script) => script.value(flag::CLOUD_PROVIDER),
        None => line.value(flag::CLOUD_PROVIDER),
    };
    match value.ok().flatten().as_deref() {
        Some("aws") => Provider::Aws,
        Some(_) => Provider::Foreign,
        None => Provider::Unknown,
    }
}

/// The component by the image's name. The incumbent's is called like others', below `provider-aws`.
fn image_strength(component: Component, image: &str) -> Strength {
    let is_manager = component == Component::CloudControllerManager;
    let name = image_name(image);
    if is_manager
        && (image.contains("provider-aws/cloud-controller-manager") || name.ends_with("-aws-cloud-controller-manager"))
    {
        return Strength::Full;
    }

    component.strength(name)
}

/// OpenShift's static Pods had the revision in the container's name: `kube-apiserver-7`.
fn without_revision(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, revision)) if revision == "REVISION" || revision.parse::<u32>().is_ok() => name,
        _ => name,
    }
}

/// The last part of an image's name, without tag, digest and the architecture that some builds append.
fn image_name(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let name = last.split([':', '@']).next().unwrap_or_default();
    ["-amd64", "-arm64"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// How a kube-controller-manager runs, from its flags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// With a cloud provider of its own: it runs the cloud controllers, with leader migration under the migration
    /// lease.
    InTree {
        /// Leader migration is in effect: enabled, and leader election is not off.
        leader_migration: bool,
    },
    /// `--cloud-provider=external`: it runs none of them.
    External {
        /// It competes for the migration lease all the same, and holds it for nothing.
        leader_migration: bool,
    },
    /// No cloud provider: it runs none of them.
    NoProvider {
        /// As for `External`.
        leader_migration: bool,
    },
    Unreadable {
        /// The reason and the solution.
        reason: String,
    },
}

impl Form {
    #[must_use]
    pub fn of_command_line(line: &CommandLine) -> Self {
        Self::read(line).unwrap_or_else(|reason| Self::Unreadable {
            reason: reason.to_string(),
        })
    }

    fn read(line: &CommandLine) -> Result<Self, Unreadable> {
        let on = |flag: Flag, default: bool| line.boolean(flag).map(|value| value.unwrap_or(default));
        // With leader election off, leader migration is ignored and every controller starts at once.
        let leader_migration = on(flag::ENABLE_LEADER_MIGRATION, false)? && on(flag::LEADER_ELECT, true)?;
        Ok(match line.value(flag::CLOUD_PROVIDER)?.as_deref() {
            None | Some("") => {
                line.no_config_file()?;
                Self::NoProvider { leader_migration }
            }
            Some("external") => Self::External { leader_migration },
            Some(_) => Self::InTree { leader_migration },
        })
    }
}

/// How the kube-controller-manager in a Pod runs; none if the Pod has none.
#[must_use]
pub fn controller_manager_form(pod_spec: &Value) -> Option<Form> {
    Some(match controller_manager_command_line(pod_spec)? {
        Ok(line) => Form::of_command_line(&line),
        Err(reason) => Form::Unreadable { reason },
    })
}

/// The command line of the kube-controller-manager in a Pod; none if the Pod has none. Reading needs less certainty than
/// changing: a container that only seems to be one is unreadable, so that it is never overlooked.
#[must_use]
pub fn controller_manager_command_line(pod_spec: &Value) -> Option<Result<CommandLine, String>> {
    let findings = find(pod_spec, None);
    let found = findings
        .iter()
        .filter(|finding| finding.component == Component::KubeControllerManager);
    let finding = found.max_by_key(|finding| finding.certainty)?;
    if finding.certainty == Certainty::Wrapped {
        return Some(Err(format!(
            "container {:?} starts a kube-controller-manager with an unknown program; start kube-controller-manager directly",
            finding.name
        )));
    }

    let executable_is_known = CommandLine::to_read(finding.container)
        .and_then(|line| line.locate())
        .is_ok_and(|located| located.program.is_some());
    if finding.certainty == Certainty::Suspected && !executable_is_known {
        return Some(Err(format!(
            "container {:?} may be a kube-controller-manager, judging by its name or image only: name the program kube-controller-manager in its command, or exclude it by the objectSelector of spec.targets",
            finding.name
        )));
    }

    Some(CommandLine::of_container(finding.container).map_err(|reason| reason.to_string()))
}

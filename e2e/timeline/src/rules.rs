//! The programs of both sides, and the limits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::pods::ProcessSpan;
use serde::{Deserialize, Serialize};

/// The three controllers that change hands in a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Load balancers of Services.
    Service,
    /// Nodes whose instance is gone.
    NodeLifecycle,
    /// Routes between pod networks.
    Route,
}

impl Controller {
    /// All three, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Service, Self::NodeLifecycle, Self::Route];
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "service",
            Self::NodeLifecycle => "node lifecycle",
            Self::Route => "route",
        })
    }
}

/// Which side of the migration a process is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Side {
    /// The in-tree controllers.
    Old,
    /// The manager that takes over.
    New,
    /// Nobody knows: this alone fails the proof.
    Unknown,
}

/// A program that may own controllers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its name, as in [`ProcessSpan::component`].
    pub name: String,
    /// The program in its user agent, up to the version.
    pub program: String,
    pub side: Side,
    pub main_lease: Lease,
    /// Exceptions from [`Component::governing`]: the lease under which this program really runs a controller.
    pub exceptions: BTreeMap<Controller, Lease>,
}

impl Component {
    pub fn kube_controller_manager() -> Self {
        Self::new("kube-controller-manager", Side::Old, Lease::K)
    }

    pub fn outrigger_manager() -> Self {
        Self::new("outrigger-manager", Side::New, Lease::C)
    }

    pub fn aws_cloud_controller_manager() -> Self {
        Self::new("aws-cloud-controller-manager", Side::New, Lease::C)
    }

    /// The same program where it runs `controller` under another lease than its flags tell. So does the incumbent with
    /// leader migration and its default list: names in that list do not match, and the service and route controllers
    /// run under C.
    #[must_use]
    pub fn runs_under(mut self, controller: Controller, lease: Lease) -> Self {
        self.exceptions.insert(controller, lease);
        self
    }

    /// The same program on another side, such as the incumbent in the place of an old manager.
    #[must_use]
    pub fn on(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    fn new(name: &str, side: Side, main_lease: Lease) -> Self {
        Self {
            name: name.into(),
            program: name.into(),
            side,
            main_lease,
            exceptions: BTreeMap::new(),
        }
    }

    /// The lease that guards `controller` in a process with these arguments; `None` where it does not run at all.
    ///
    /// Leader migration moves the cloud controllers from the main lease to the migration lease; a
    /// kube-controller-manager whose provider is external (or none) has no cloud controllers.
    pub fn governing(&self, controller: Controller, argv: &[String]) -> Option<Lease> {
        if let Some(lease) = self.exceptions.get(&controller) {
            return Some(*lease);
        }

        let provider = flag(argv, "cloud-provider");
        if self.side == Side::Old && provider.is_none_or(|provider| provider.is_empty() || provider == "external") {
            return None;
        }

        let is_true = |value: String| ["1", "t", "T", "true", "TRUE", "True"].contains(&value.as_str());
        let migrates = flag(argv, "enable-leader-migration").is_some_and(is_true)
            || flag(argv, "migration").is_some_and(|value| !value.is_empty());
        Some(if migrates { Lease::M } else { self.main_lease })
    }

    /// Whether it runs the cloud controllers in a kube-controller-manager.
    fn is_in_tree(&self, argv: &[String]) -> bool {
        self.main_lease == Lease::K && self.governing(Controller::Service, argv).is_some()
    }

    /// In-tree, and it elects no leader, or elects it by another lock than K.
    fn is_unlocked(&self, argv: &[String]) -> bool {
        let differs = |name, default: &[&str]| flag(argv, name).is_some_and(|value| !default.contains(&value.as_str()));
        let is_off = flag(argv, "leader-elect").is_some_and(|value| FALSE.contains(&value.as_str()));
        let is_other = differs("leader-elect-resource-name", &["kube-controller-manager"])
            || differs("leader-elect-resource-namespace", &["kube-system"])
            || differs(
                "leader-elect-resource-lock",
                &["leases", "endpointsleases", "configmapsleases"],
            );
        self.is_in_tree(argv) && (is_off || is_other)
    }
}

/// As the flags of Go programs have it: <https://pkg.go.dev/strconv#ParseBool>.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// The last value of `--NAME=VALUE` or `--NAME VALUE`; a bare `--NAME` is `true`.
fn flag(argv: &[String], name: &str) -> Option<String> {
    let mut found = None;
    for (index, word) in argv.iter().enumerate() {
        let Some(rest) = word.strip_prefix("--").and_then(|word| word.strip_prefix(name)) else {
            continue;
        };
        if let Some(value) = rest.strip_prefix('=') {
            found = Some(value.to_owned());
        } else if rest.is_empty() {
            let next = argv.get(index + 1).filter(|next| !next.starts_with('-'));
            found = Some(next.cloned().unwrap_or_else(|| "true".into()));
        }
    }

    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the end of the old process to the `acquireTime` of M by ours. The old process does not release its lease.
    pub old_to_new: Duration,
    /// Ours to ours after a release.
    pub new_to_new_released: Duration,
    /// Ours to ours after a kill.
    pub new_to_new_killed: Duration,
    /// Ours to a Go manager after a release: it polls.
    pub new_to_old_released: Duration,
    /// An owner without a call for longer may have ended unseen.
    pub silence: Duration,
}

impl Limits {
    /// From the expiry of a lease to its acquisition.
    const REACTION: Duration = Duration::from_millis(500);
    /// How long a process may not run beside other work.
    const DELAY: Duration = Duration::from_secs(5);

    /// The limits of managers with leases of this duration.
    pub fn of_lease(duration: Duration) -> Self {
        Self {
            old_to_new: duration + Self::REACTION,
            new_to_new_released: Duration::from_secs(2),
            new_to_new_killed: duration + Self::REACTION,
            new_to_old_released: Duration::from_secs(5),
            silence: Duration::from_secs(15),
        }
    }

    /// The same limits for a test beside other work, where a process may not run for some seconds. A mistake costs more: a
    /// second wait for a lease takes a lease duration, and the next offer of the migration lease comes later.
    #[must_use]
    pub fn beside_other_work(self) -> Self {
        Self {
            old_to_new: self.old_to_new + Self::DELAY,
            new_to_new_released: self.new_to_new_released + Self::DELAY,
            new_to_new_killed: self.new_to_new_killed + Self::DELAY,
            new_to_old_released: self.new_to_old_released + Self::DELAY,
            silence: self.silence + Self::DELAY,
        }
    }
}

impl Default for Limits {
    /// The limits with Kubernetes' default lease duration:
    /// <https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/>.
    fn default() -> Self {
        Self::of_lease(Duration::from_secs(15))
    }
}

/// How the records are read.
#[derive(Debug, Clone)]
pub struct Rules {
    pub components: Vec<Component>,
    /// Callers in the AWS record that belong to the harness.
    pub ignored_callers: BTreeSet<String>,
    /// AWS identifiers (names of load balancers, IDs of their security groups) whose desired state never changes:
    /// our manager's writes that name one count, even after new work has begun.
    pub unchanged: BTreeSet<String>,
    /// AWS identifiers that are new work themselves, such as the instance of a new Node: a write after
    /// [`NEW_WORK_BEGINS`](super::NEW_WORK_BEGINS) that names one is called for, also on an unchanged load balancer.
    pub changed: BTreeSet<String>,
    /// Load balancers and targets that the run takes away on purpose.
    pub removed_on_purpose: BTreeSet<String>,
    pub limits: Limits,
    /// Said beside the route controller.
    pub route_note: String,
}

impl Rules {
    /// The rules for kube-controller-manager on the old side and `new` on the new.
    pub fn new(new: Component) -> Self {
        Self {
            components: vec![Component::kube_controller_manager(), new],
            ignored_callers: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            changed: BTreeSet::new(),
            removed_on_purpose: BTreeSet::new(),
            limits: Limits::default(),
            route_note: "by leases; the demo makes no routes".into(),
        }
    }

    pub(super) fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }

    pub(super) fn side_of(&self, component: &str) -> Side {
        self.component(component)
            .map_or(Side::Unknown, |component| component.side)
    }

    pub(super) fn by_program(&self, program: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.program == program)
    }

    /// The lease that guards `controller` in this process.
    pub(super) fn governing(&self, controller: Controller, process: &ProcessSpan) -> Option<Lease> {
        self.component(&process.component)?.governing(controller, &process.argv)
    }

    /// True for a kube-controller-manager that runs the cloud controllers.
    pub(super) fn is_in_tree(&self, process: &ProcessSpan) -> bool {
        let component = self.component(&process.component);
        component.is_some_and(|component| component.is_in_tree(&process.argv))
    }

    /// True for one that runs them without holding K.
    pub(super) fn is_unlocked(&self, process: &ProcessSpan) -> bool {
        let component = self.component(&process.component);
        component.is_some_and(|component| component.is_unlocked(&process.argv))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(flags: &[&str]) -> Vec<String> {
        std::iter::once("kube-controller-manager")
            .chain(flags.iter().copied())
            .map(Into::into)
            .collect()
    }

    #[test]
    fn leader_migration_moves_the_cloud_controllers_of_the_old_manager_from_k_to_m() {
        let old = Component::kube_controller_manager();
        let lease = |flags: &[&str]| old.governing(Controller::Service, &argv(flags));
        assert_eq!(lease(&["--cloud-provider=aws"]), Some(Lease::K));
        assert_eq!(
            lease(&["--cloud-provider", "aws", "--enable-leader-migration"]),
            Some(Lease::M)
        );
        assert_eq!(
            lease(&["--cloud-provider=aws", "--enable-leader-migration=false"]),
            Some(Lease::K)
        );
        assert_eq!(lease(&["--cloud-provider=external", "--enable-leader-migration"]), None);
        assert_eq!(lease(&[]), None);
    }

    #[test]
    fn our_manager_is_governed_by_m_with_a_migration_and_by_c_without() {
        let ours = Component::outrigger_manager();
        assert_eq!(
            ours.governing(Controller::Route, &argv(&["--migration=prod"])),
            Some(Lease::M)
        );
        assert_eq!(
            ours.governing(Controller::Route, &argv(&["--cloud-provider=aws"])),
            Some(Lease::C)
        );
    }

    #[test]
    fn an_exception_wins_over_the_flags() {
        let incumbent = Component::aws_cloud_controller_manager().runs_under(Controller::Service, Lease::C);
        let flags = argv(&["--enable-leader-migration"]);
        assert_eq!(incumbent.governing(Controller::Service, &flags), Some(Lease::C));
        assert_eq!(incumbent.governing(Controller::NodeLifecycle, &flags), Some(Lease::M));
    }

    #[test]
    fn the_last_value_of_a_flag_counts_and_a_bare_one_is_true() {
        let value = |flags: &[&str]| flag(&argv(flags), "migration");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(value(&[]), None);
        assert_eq!(value(&["--migration-kubeconfig=/k", "migration"]), None);
        assert_eq!(value(&["--migration=a", "--migration=b"]), some("b"));
        assert_eq!(value(&["--migration", "a", "--x"]), some("a"));
        assert_eq!(value(&["--migration", "--x"]), some("true"));
        assert_eq!(value(&["--x", "--migration"]), some("true"));
        assert_eq!(value(&["--migration="]), some(""));
    }

    #[test]
    fn a_provider_that_is_empty_or_external_runs_no_controller_and_an_empty_migration_is_none() {
        let (old, ours) = (Component::kube_controller_manager(), Component::outrigger_manager());
        let lease = |component: &Component, flags: &[&str]| component.governing(Controller::Service, &argv(flags));
        assert_eq!(lease(&old, &["--cloud-provider="]), None);
        assert_eq!(lease(&ours, &["--cloud-provider=external"]), Some(Lease::C));
        assert_eq!(lease(&ours, &["--migration="]), Some(Lease::C));
        assert_eq!(lease(&ours, &["--enable-leader-migration"]), Some(Lease::M));
        assert_eq!(lease(&ours.on(Side::Old), &[]), None);
    }

    #[test]
    fn an_in_tree_manager_without_election_or_with_another_lock_is_unlocked() {
        let (old, ours) = (Component::kube_controller_manager(), Component::outrigger_manager());
        let unlocked = |flag: &str| old.is_unlocked(&argv(&["--cloud-provider=aws", flag]));
        for flag in [
            "--leader-elect=false",
            "--leader-elect=F",
            "--leader-elect-resource-name=other",
            "--leader-elect-resource-namespace=other",
            "--leader-elect-resource-lock=endpoints",
        ] {
            assert!(unlocked(flag), "{flag}");
            assert!(!old.is_unlocked(&argv(&["--cloud-provider=external", flag])), "{flag}");
            assert!(!ours.is_unlocked(&argv(&["--migration=prod", flag])), "{flag}");
        }
        for flag in [
            "--leader-elect",
            "--leader-elect=true",
            "--leader-elect-resource-name=kube-controller-manager",
            "--leader-elect-resource-namespace=kube-system",
            "--leader-elect-resource-lock=endpointsleases",
        ] {
            assert!(!unlocked(flag), "{flag}");
        }
    }

    #[test]
    fn the_limits_follow_from_the_lease_duration() {
        let milliseconds = Duration::from_millis;
        let limits = |gap, released, to_old, silence| Limits {
            old_to_new: milliseconds(gap),
            new_to_new_released: milliseconds(released),
            new_to_new_killed: milliseconds(gap),
            new_to_old_released: milliseconds(to_old),
            silence: milliseconds(silence),
        };
        let of_default = Limits::default();
        assert_eq!(of_default, limits(15_500, 2_000, 5_000, 15_000));
        assert_eq!(Limits::of_lease(milliseconds(2_000)).old_to_new, milliseconds(2_500));
        assert_eq!(of_default.beside_other_work(), limits(20_500, 7_000, 10_000, 20_000));
    }

    #[test]
    fn a_component_is_found_by_its_name_and_by_its_program() {
        let mut rules = Rules::new(Component::outrigger_manager());
        rules.components[1].program = "program".into();
        assert_eq!(rules.component("outrigger-manager"), rules.by_program("program"));
        assert_eq!(rules.component("program"), None);
        assert_eq!(rules.by_program("outrigger-manager"), None);
        assert_eq!(
            Controller::ALL.map(|one| one.to_string()),
            ["service", "node lifecycle", "route"]
        );
    }
}

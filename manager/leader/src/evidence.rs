//! The evidence that a manager needs before it may own controllers that a kube-controller-manager owned. Pure.

use std::time::Duration;

use outrigger_shared::component::Form;
use outrigger_shared::controller::Controller;
use outrigger_shared::leader_migration::Placement;
use outrigger_shared::migration::Phase;

use crate::observation::WatchFailure;

/// A value read from an API server, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// The first read has not ended. Nothing is decided on it.
    Pending,
    /// Read, complete and current.
    Known(T),
    /// Deleted, forbidden, or the API server does not answer.
    Unreadable(String),
}

impl<T> Reading<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Pending | Self::Unreadable(_) => None,
        }
    }
}

/// The leader migration configuration of a kube-controller-manager.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Configuration {
    /// None on the command line: the built-in one, which is right up to 1.27.
    BuiltIn,
    /// The file that its Pod brings. It names the migration lease and lists every shared controller.
    OfMigration,
    /// Another file. Contains why it is not known to be right.
    Unproven(String),
}

/// In-tree and without leader migration.
pub(crate) const UNGUARDED: Form = Form::InTree {
    leader_migration: false,
};

/// One kube-controller-manager that can be read: a Pod, a mirror Pod, or the template of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerManager {
    /// `Pod namespace/name` or `Deployment namespace/name`.
    pub object: String,
    /// The host names that its process may have: its identity on a lease is `HOSTNAME_UUID`. Empty for a template.
    pub host_names: Vec<String>,
    pub form: Form,
    pub configuration: Configuration,
    pub routes: bool,
    /// Where it runs node IPAM; nowhere, too, where its leader migration configuration is not known.
    pub node_ipam: Placement,
    /// The shared controllers that `--controllers` turns off.
    pub disabled: Vec<Controller>,
    /// Whether its process runs, or may start without a further change.
    pub running: bool,
    /// Its form is unreadable until the cluster changes: a rollout is not complete, so Pods of an older template may still
    /// run, or its version does not start with these flags. No attestation stands in for that change.
    pub must_change: bool,
}

impl ControllerManager {
    /// In-tree and without leader migration: it owns its controllers under its main lease alone.
    pub fn is_unguarded(&self) -> bool {
        self.form == UNGUARDED
    }

    /// It runs none of the shared controllers, whatever leases it holds.
    pub fn is_external(&self) -> bool {
        matches!(self.form, Form::External { .. } | Form::NoProvider { .. })
    }

    /// Its command line cannot be read, for example because a shell starts it, so the operator can attest its form.
    pub fn needs_attestation(&self) -> bool {
        matches!(self.form, Form::Unreadable { .. }) && !self.must_change
    }

    /// It competes for the migration lease and runs nothing under it.
    pub fn holds_for_nothing(&self) -> bool {
        matches!(
            self.form,
            Form::External { leader_migration: true } | Form::NoProvider { leader_migration: true }
        )
    }

    /// In-tree with leader migration, and its process runs.
    pub fn is_guarded_and_running(&self) -> bool {
        self.running && matches!(self.form, Form::InTree { leader_migration: true })
    }

    /// Whether an in-tree provider runs the controller with these flags.
    pub fn runs(&self, controller: Controller) -> bool {
        !self.disabled.contains(&controller) && (controller != Controller::Route || self.routes)
    }

    /// Whether a lease's holder identity is this process's.
    pub fn is_holder(&self, identity: &str) -> bool {
        let host = identity.rsplit_once('_').map_or(identity, |(host, _)| host);
        self.host_names.iter().any(|name| same_host(name, host))
    }
}

/// A host name with and without its domain is one host.
fn same_host(left: &str, right: &str) -> bool {
    let first_label = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let one_is_short = !left.contains('.') || !right.contains('.');
    left.eq_ignore_ascii_case(right) || one_is_short && first_label(left) == first_label(right)
}

/// Every kube-controller-manager that can be read, and the places that cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ControllerManagers {
    /// The first pass over all places has ended.
    pub read: bool,
    /// In the places that cannot be listed now: those of the last list. An old bad fact outweighs a new failure to read.
    pub seen: Vec<ControllerManager>,
    /// The places that cannot be listed, each with the reason.
    pub unreadable: Vec<String>,
}

impl ControllerManagers {
    /// Every place was listed, and there is at least one kube-controller-manager.
    pub fn are_all_known(&self) -> bool {
        self.read && self.unreadable.is_empty() && !self.seen.is_empty()
    }

    /// All are known, and each command line can be read.
    pub fn are_all_readable(&self) -> bool {
        self.are_all_known() && !self.seen.iter().any(ControllerManager::needs_attestation)
    }

    /// Why nothing is known about all of them, in words; none if it is.
    pub fn unknown(&self) -> Option<String> {
        if !self.unreadable.is_empty() {
            return Some(format!(
                "not every kube-controller-manager can be read ({})",
                self.unreadable.join("; ")
            ));
        }
        self.seen
            .is_empty()
            .then(|| "no kube-controller-manager was found by a target of profile HostedControlPlane or, without one, in kube-system by the label component=kube-controller-manager or k8s-app=kube-controller-manager".to_owned())
    }

    pub fn are_all_external(&self) -> bool {
        self.are_all_known() && self.seen.iter().all(ControllerManager::is_external)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseFacts {
    pub read: bool,
    /// The holder, if this process saw it renew the lease in time.
    pub live_holder: Option<String>,
    /// The holder that the record names, alive or not.
    pub named_holder: Option<String>,
    pub duration: Option<Duration>,
    /// This process saw the lease free, or its record unchanged, for a full lease duration.
    pub idle: bool,
    pub failure: Option<WatchFailure>,
}

impl LeaseFacts {
    /// Why nothing is known about its holder: this process cannot watch the lease. With the remedy where that is forbidden.
    fn unwatched(&self, lease: &str, remedy: &str) -> Option<String> {
        let failure = self.failure.as_ref().filter(|_| self.live_holder.is_none())?;
        let remedy = match failure.is_forbidden {
            true => remedy,
            false => "wait; this manager tries again",
        };
        Some(format!("{lease} cannot be watched ({}): {remedy}", failure.message))
    }
}

/// This manager's settings that the other side's must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSettings {
    pub routes: bool,
    pub node_ipam: Placement,
    /// This manager's renew deadline: until then it may write after its last renewal.
    pub renew_deadline: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub controller_managers: ControllerManagers,
    /// The old manager's main lease.
    pub main: LeaseFacts,
    /// The migration lease.
    pub migration: LeaseFacts,
    /// The phase that the operator attests in `spec.attestedPhase`.
    pub attested_phase: Option<Phase>,
    pub own: OwnSettings,
}

/// Assesses whether leader migration is on in every kube-controller-manager: the missing evidence, each item with its
/// remedy. Empty when the evidence is complete.
///
/// One holder of both leases proves it for the leader: only a process with leader migration acquires the migration
/// lease after its main lease. The command lines prove it for the others.
#[must_use]
pub fn missing(facts: &Facts) -> Vec<String> {
    let mut missing = Vec::new();
    missing.extend(leases(facts));
    missing.extend(durations(facts));
    missing.extend(command_lines(facts));
    missing.extend(routes(facts));
    missing.extend(node_ipam_problem(facts));
    if facts.attested_phase != Some(Phase::Prepare) {
        missing.extend(unproven(facts));
    }

    missing
}

/// Why the holder of M is unknown, with the remedy.
pub fn unwatched_migration_lease(facts: &Facts) -> Option<String> {
    let remedy = "let this manager get, list, watch and update it (Role outrigger-manager:migration-lease)";
    facts.migration.unwatched("the migration lease", remedy)
}

pub(crate) fn leases(facts: &Facts) -> Option<String> {
    let lease = "the kube-controller-manager's main lease";
    let remedy = "let this manager list and watch the lease that spec.kubeControllerManagerLease names (Role outrigger-manager:old-manager-lease)";
    let unwatched = facts.main.unwatched(lease, remedy);
    let unwatched = unwatched.or_else(|| unwatched_migration_lease(facts));
    if unwatched.is_some() {
        return unwatched;
    }

    match (&facts.main.live_holder, &facts.migration.live_holder) {
        (Some(main), Some(migration)) if main == migration => None,
        (None, _) => Some(
            "the kube-controller-manager's main lease is not being renewed: check that a kube-controller-manager runs, and that spec.kubeControllerManagerLease names its lease"
                .into(),
        ),
        (Some(_), None) => Some(
            "no process renews the migration lease: start the leading kube-controller-manager with --enable-leader-migration, and grant user system:kube-controller-manager get, update and create on that lease (Role outrigger:kube-controller-manager:migration-lease)"
                .into(),
        ),
        (Some(main), Some(migration)) => Some(format!(
            "the kube-controller-manager's main lease is held by {main:?} and the migration lease by {migration:?}: one process does not hold both; wait if a rollout is in progress, else stop the process that holds the migration lease"
        )),
    }
}

/// client-go up to 0.26 judges the expiry of a lease by its own `--leader-elect-lease-duration`, which it writes into
/// its records. A shorter one would let it acquire the migration lease while this manager may still write.
fn durations(facts: &Facts) -> Option<String> {
    let deadline = facts.own.renew_deadline;
    let leases = [&facts.main, &facts.migration];
    let shortest = leases.into_iter().filter_map(|lease| lease.duration).min()?;
    (shortest <= deadline).then(|| {
        format!(
            "the kube-controller-manager's lease duration is {shortest:?}, not longer than this manager's renew deadline of {deadline:?}: raise its --leader-elect-lease-duration (default 15s), or lower this manager's --leader-elect-renew-deadline"
        )
    })
}

fn command_lines(facts: &Facts) -> Vec<String> {
    let all = &facts.controller_managers;
    let is_attested = facts.attested_phase == Some(Phase::Prepare);
    let judged = all
        .seen
        .iter()
        .filter(|seen| !(is_attested && seen.needs_attestation()));
    let mut problems: Vec<String> = judged.filter_map(problem).collect();
    if !is_attested && let Some(why) = all.unknown() {
        problems.push(format!(
            "{why}: correct the targets or the access, or set spec.attestedPhase: Prepare to attest that all have leader migration on"
        ));
    }

    problems
}

fn problem(seen: &ControllerManager) -> Option<String> {
    let object = &seen.object;
    if seen.holds_for_nothing() {
        return Some(format!(
            "{object} has --enable-leader-migration, but no in-tree provider: it would hold the migration lease and run no cloud controller; remove the flag"
        ));
    }
    match &seen.form {
        Form::InTree { leader_migration: true } | Form::External { .. } | Form::NoProvider { .. } => None,
        Form::InTree {
            leader_migration: false,
        } => Some(format!(
            "{object} runs in-tree without --enable-leader-migration: roll its workload in phase Prepare, or add the flag to the file of the static Pod"
        )),
        Form::Unreadable { reason } if seen.needs_attestation() => Some(format!(
            "the flags that {object} runs with are not known: {reason}; or set spec.attestedPhase: Prepare to attest that it has leader migration on"
        )),
        Form::Unreadable { reason } => Some(format!("the flags that {object} runs with are not known: {reason}")),
    }
}

/// The route controller changes its owner with the migration lease.
fn routes(facts: &Facts) -> Option<String> {
    let runs = |seen: &&ControllerManager| matches!(seen.form, Form::InTree { .. }) && seen.routes;
    let old = facts.controller_managers.seen.iter().find(runs)?;
    (!facts.own.routes).then(|| {
        format!(
            "{} runs the route controller, and this manager does not: remove --configure-cloud-routes=false here, or set it there first",
            old.object
        )
    })
}

/// Why both sides allocate Pod CIDRs, or none will after the migration, with the remedy: two allocators in one cluster
/// would give one Pod CIDR to two Nodes.
pub fn node_ipam_problem(facts: &Facts) -> Option<String> {
    let mut all = facts.controller_managers.seen.iter();
    all.find_map(|seen| node_ipam_conflict(seen, facts.own.node_ipam))
}

fn node_ipam_conflict(seen: &ControllerManager, own: Placement) -> Option<String> {
    use Placement::{Main, Migrated, NotHere};
    let object = &seen.object;
    match (seen.node_ipam, own) {
        (NotHere, _) | (Main, NotHere) | (Migrated, Migrated) => None,
        (Migrated, NotHere) => Some(format!(
            "{object} runs node IPAM under the migration lease, and this manager does not run it, so no process would allocate Pod CIDRs after the migration: add node-ipam-controller to --controllers and set --allocate-node-cidrs here, or remove node IPAM from the leader migration configuration of both"
        )),
        (Main | Migrated, Main | Migrated) => Some(format!(
            "{object} runs node IPAM (--allocate-node-cidrs=true, and --controllers does not contain -nodeipam), and so does this manager (--allocate-node-cidrs, and --controllers names node-ipam-controller): add -nodeipam to --controllers there, or remove node-ipam-controller here; only a leader migration configuration of both that names node IPAM lets one process run it at a time"
        )),
    }
}

/// The facts that the API does not show. `spec.attestedPhase: Prepare` stands in for it.
fn unproven(facts: &Facts) -> Vec<String> {
    let leader = unlisted_leader(facts).map(|problem| {
        format!("{problem}, or set spec.attestedPhase: Prepare to attest that all have leader migration on")
    });
    unproven_configurations(facts).into_iter().chain(leader).collect()
}

/// The leader migration configurations that are not known to be right, or differ.
pub fn unproven_configurations(facts: &Facts) -> Vec<String> {
    let in_tree = || {
        let all = facts.controller_managers.seen.iter();
        all.filter(|seen| matches!(seen.form, Form::InTree { .. }))
    };
    let mut unproven: Vec<String> = in_tree()
        .filter_map(|seen| match &seen.configuration {
            Configuration::Unproven(why) => Some(format!(
                "{}: {why}; remove --leader-migration-config, set spec.leaderMigration, or set spec.attestedPhase: Prepare to attest that it is right",
                seen.object
            )),
            Configuration::BuiltIn | Configuration::OfMigration => None,
        })
        .collect();

    if let Some(first) = in_tree().next()
        && let Some(other) = in_tree().find(|seen| seen.configuration != first.configuration)
    {
        unproven.push(format!(
            "{} and {} have different leader migration configurations: give all the same",
            first.object, other.object
        ));
    }

    unproven
}

/// The live holder of the main lease is none of the processes that can be read, so at least one is not read.
pub fn unlisted_leader(facts: &Facts) -> Option<String> {
    let all = facts.controller_managers.seen.iter();
    let mut processes = all.filter(|seen| !seen.host_names.is_empty()).peekable();
    let holder = facts.main.live_holder.as_ref()?;
    processes.peek()?;

    (!processes.any(|seen| seen.is_holder(holder))).then(|| {
        format!(
            "the holder {holder:?} of the kube-controller-manager's main lease is none of the kube-controller-managers that can be read: correct spec.targets or spec.kubeControllerManagerLease"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lease::tests::{broken, forbidden};

    pub(crate) fn kcm(form: Form) -> ControllerManager {
        ControllerManager {
            object: "Pod tenant/kcm-0".into(),
            host_names: vec!["kcm-0".into()],
            form,
            configuration: Configuration::BuiltIn,
            routes: false,
            node_ipam: Placement::NotHere,
            disabled: Vec::new(),
            running: true,
            must_change: false,
        }
    }

    pub(crate) fn seen(all: Vec<ControllerManager>) -> ControllerManagers {
        ControllerManagers {
            read: true,
            seen: all,
            unreadable: Vec::new(),
        }
    }

    pub(crate) fn unreadable() -> ControllerManagers {
        ControllerManagers {
            read: true,
            seen: Vec::new(),
            unreadable: vec!["Namespace tenant: forbidden".into()],
        }
    }

    pub(crate) fn held(holder: &str) -> LeaseFacts {
        LeaseFacts {
            read: true,
            live_holder: Some(holder.into()),
            named_holder: Some(holder.into()),
            duration: Some(Duration::from_secs(15)),
            idle: false,
            failure: None,
        }
    }

    /// A lease that this process may not watch.
    pub(crate) fn refused() -> LeaseFacts {
        LeaseFacts {
            read: true,
            failure: Some(forbidden()),
            ..LeaseFacts::default()
        }
    }

    pub(crate) const GUARDED: Form = Form::InTree { leader_migration: true };
    pub(crate) const UNGUARDED: Form = Form::InTree {
        leader_migration: false,
    };
    pub(crate) const EXTERNAL: Form = Form::External {
        leader_migration: false,
    };

    pub(crate) fn complete() -> Facts {
        Facts {
            controller_managers: seen(vec![kcm(GUARDED)]),
            main: held("kcm-0_a"),
            migration: held("kcm-0_a"),
            attested_phase: None,
            own: OwnSettings {
                routes: false,
                node_ipam: Placement::NotHere,
                renew_deadline: Duration::from_secs(10),
            },
        }
    }

    #[test]
    fn all_are_known_when_each_place_was_listed_and_one_has_some() {
        let known = seen(vec![kcm(GUARDED)]);
        assert!(known.are_all_known());
        let unread = ControllerManagers {
            read: false,
            ..known.clone()
        };
        let forbidden = ControllerManagers {
            seen: known.seen,
            ..unreadable()
        };
        for unknown in [unread, forbidden, seen(Vec::new())] {
            assert!(!unknown.are_all_known(), "{unknown:?}");
        }
    }

    #[test]
    fn one_holder_of_both_leases_and_a_guarded_command_line_are_complete() {
        assert_eq!(missing(&complete()), Vec::<String>::new());
    }

    type Change = fn(&mut Facts);

    #[test]
    fn each_missing_piece_is_named() {
        let cases: [(&str, Change); 9] = [
            ("main lease is not being renewed", |f| f.main.live_holder = None),
            ("no process renews the migration lease", |f| {
                f.migration.live_holder = None
            }),
            ("does not hold both", |f| f.migration = held("b")),
            ("without --enable-leader-migration", |f| {
                f.controller_managers = seen(vec![kcm(UNGUARDED)]);
            }),
            ("are not known", |f| {
                f.controller_managers = seen(vec![kcm(Form::Unreadable {
                    reason: "a shell script".into(),
                })]);
            }),
            ("remove the flag", |f| {
                let left_on = kcm(Form::External { leader_migration: true });
                f.controller_managers.seen.push(left_on);
            }),
            ("raise its --leader-elect-lease-duration", |f| {
                f.main.duration = Some(Duration::from_secs(10));
            }),
            ("runs the route controller", |f| {
                f.controller_managers.seen[0].routes = true
            }),
            ("Namespace other: forbidden", |f| {
                f.controller_managers
                    .unreadable
                    .push("Namespace other: forbidden".into());
            }),
        ];
        for (text, change) in cases {
            let mut facts = complete();
            change(&mut facts);
            let missing = missing(&facts);
            assert_eq!(missing.len(), 1, "{text}: {missing:?}");
            assert!(missing[0].contains(text), "{missing:?}");
        }
    }

    #[test]
    fn a_lease_that_this_manager_may_not_watch_is_no_fault_of_the_kube_controller_manager() {
        let unwatched: [(Change, &str); 2] = [
            (|f| f.main = refused(), "(Role outrigger-manager:old-manager-lease)"),
            (|f| f.migration = refused(), "(Role outrigger-manager:migration-lease)"),
        ];
        for (change, role) in unwatched {
            let mut facts = complete();
            change(&mut facts);
            let missing = missing(&facts);
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert!(
                missing[0].contains("cannot be watched (leases is forbidden)"),
                "{missing:?}"
            );
            assert!(missing[0].contains(role), "{missing:?}");
        }

        let mut facts = complete();
        facts.main.failure = Some(broken());
        assert_eq!(missing(&facts), Vec::<String>::new(), "its last renewal counts");
        facts.main.live_holder = None;
        assert!(missing(&facts)[0].ends_with("wait; this manager tries again"));
    }

    #[test]
    fn routes_that_both_sides_run_are_no_problem() {
        let mut facts = complete();
        facts.controller_managers.seen[0].routes = true;
        facts.own.routes = true;
        assert_eq!(missing(&facts), Vec::<String>::new());
    }

    #[test]
    fn what_kubernetes_does_not_show_needs_the_operators_word() {
        let cases: [(&str, Change); 3] = [
            ("names its own file", |f| {
                f.controller_managers.seen[0].configuration =
                    Configuration::Unproven("it names its own file /x".into());
            }),
            ("different leader migration configurations", |f| {
                let mut other = kcm(GUARDED);
                other.configuration = Configuration::OfMigration;
                f.controller_managers.seen.push(other);
            }),
            ("is none of the kube-controller-managers", |f| {
                (f.main, f.migration) = (held("other_a"), held("other_a"));
            }),
        ];
        for (text, change) in cases {
            let mut facts = complete();
            change(&mut facts);
            assert!(missing(&facts)[0].contains(text), "{:?}", missing(&facts));
            facts.attested_phase = Some(Phase::Migrate);
            assert!(!missing(&facts).is_empty(), "{text}: the word is for another phase");
            facts.attested_phase = Some(Phase::Prepare);
            assert_eq!(missing(&facts), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn the_operators_word_stands_in_for_a_shell_script_and_not_for_a_rollout() {
        let mut facts = complete();
        facts.controller_managers.seen.push(kcm(Form::Unreadable {
            reason: "a shell script".into(),
        }));
        let problems = missing(&facts);
        assert!(problems[0].contains("spec.attestedPhase: Prepare"), "{problems:?}");
        facts.attested_phase = Some(Phase::Prepare);
        assert_eq!(missing(&facts), Vec::<String>::new());

        facts.controller_managers.seen[1].must_change = true;
        let problems = missing(&facts);
        assert!(!problems[0].contains("attestedPhase"), "{problems:?}");
    }

    #[test]
    fn one_unguarded_among_many_is_enough_to_block_whatever_the_operator_says() {
        let mut facts = complete();
        facts.controller_managers.seen.push(kcm(UNGUARDED));
        facts.attested_phase = Some(Phase::Prepare);
        assert_eq!(missing(&facts).len(), 1);
    }

    #[test]
    fn where_none_can_be_read_the_operators_word_for_prepare_counts_and_no_other() {
        for unknown in [seen(vec![]), unreadable()] {
            let mut facts = complete();
            facts.controller_managers = unknown;
            assert!(!missing(&facts).is_empty());
            facts.attested_phase = Some(Phase::Migrate);
            assert!(!missing(&facts).is_empty());
            facts.attested_phase = Some(Phase::Prepare);
            assert!(missing(&facts).is_empty());
        }
    }

    #[test]
    fn a_holder_is_matched_by_its_host_name_with_or_without_domain() {
        let mut static_pod = kcm(GUARDED);
        static_pod.host_names = vec!["ip-10-0-0-1.ec2.internal".into()];
        for (identity, same) in [
            ("ip-10-0-0-1.ec2.internal_6f", true),
            ("ip-10-0-0-1_6f", true),
            ("ip-10-0-0-11_6f", false),
            ("ip-10-0-0-1.other_6f", false),
        ] {
            assert_eq!(static_pod.is_holder(identity), same, "{identity}");
        }
    }

    #[test]
    fn exactly_one_side_allocates() {
        use Placement::{Main, Migrated, NotHere};
        let cases = [
            (NotHere, NotHere, ""),
            (NotHere, Main, ""),
            (NotHere, Migrated, ""),
            (Main, NotHere, ""),
            (Migrated, Migrated, ""),
            (Main, Main, "and so does this manager"),
            (Main, Migrated, "and so does this manager"),
            (Migrated, Main, "and so does this manager"),
            (Migrated, NotHere, "no process would allocate"),
        ];
        for (theirs, own, text) in cases {
            let mut facts = complete();
            facts.controller_managers.seen[0].node_ipam = theirs;
            facts.own.node_ipam = own;
            let missing = missing(&facts);
            assert_eq!(missing.len(), usize::from(!text.is_empty()), "{theirs:?} {own:?}");
            for problem in missing {
                assert!(
                    problem.contains(text) && problem.contains("Pod tenant/kcm-0"),
                    "{problem}"
                );
            }
        }
    }

    #[test]
    fn one_of_several_is_found_in_each_form_and_the_operators_word_does_not_stand_in() {
        for form in [GUARDED, EXTERNAL] {
            let mut facts = complete();
            let mut second = kcm(form);
            second.node_ipam = Placement::Main;
            facts.controller_managers = seen(vec![kcm(GUARDED), second]);
            facts.own.node_ipam = Placement::Main;
            facts.attested_phase = Some(Phase::Prepare);
            assert_eq!(missing(&facts).len(), 1);
        }
    }
}

//! The owner of the controllers that both managers have.

use outrigger_shared::component::Form;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::Phase;

use crate::facts::Facts;
use crate::gate::{self, Inputs, LeaseAction};
use crate::why::Why;

/// The lease under which a process runs a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// Of this manager.
    Main,
    Migration,
    /// The main lease of the kube-controller-manager.
    OldManagers,
}

/// The process that runs a controller now, and its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// `None`: nobody, or it is not proven.
    pub owner: Option<Party>,
    pub lease: Lease,
    /// The identity in that lease, until it expires.
    pub holder: Option<String>,
}

/// The owner of one of the controllers that both managers have. Absent, too, if the flags of the kube-controller-manager
/// turn it off.
pub fn owner_of(inputs: &Inputs, controller: Controller) -> Ownership {
    let shared = owner_of_shared(inputs);
    let is_off = shared.owner == Some(Party::KubeControllerManager)
        && shared
            .holder
            .as_ref()
            .is_some_and(|holder| is_off(&inputs.facts, holder, controller));
    Ownership {
        owner: shared.owner.filter(|_| !is_off),
        ..shared
    }
}

/// Whether the holder's flags turn the controller off; where the holder cannot be read, those of all that can.
fn is_off(facts: &Facts, holder: &str, controller: Controller) -> bool {
    let in_tree = || {
        let running = facts.controller_managers.seen.iter().filter(|seen| seen.running);
        running.filter(|seen| matches!(seen.form, Form::InTree { .. }))
    };
    let mut holders = in_tree().filter(|seen| seen.is_holder(holder)).peekable();
    if holders.peek().is_some() {
        return !holders.any(|seen| seen.runs(controller));
    }

    in_tree().next().is_some() && !in_tree().any(|seen| seen.runs(controller))
}

/// The owner of the controllers that both managers have. Absent unless it is proven: a process that holds a lease may
/// run nothing under it.
pub fn owner_of_shared(inputs: &Inputs) -> Ownership {
    let facts = &inputs.facts;
    if inputs.holding {
        return Ownership {
            owner: acts(inputs).then_some(Party::CloudControllerManager),
            lease: Lease::Migration,
            holder: Some(inputs.identity.clone()),
        };
    }

    let all = &facts.controller_managers;
    if let Some(holder) = facts.migration.live_holder.clone() {
        // A kube-controller-manager acquires M only after K. Its host may run one of our managers, too.
        let leads = facts.main.live_holder.as_ref() == Some(&holder);
        return Ownership {
            owner: (leads && is_guarded(facts, &holder)).then_some(Party::KubeControllerManager),
            lease: Lease::Migration,
            holder: Some(holder),
        };
    }

    // An external process may hold the main lease, or one that has ended.
    let owns = |holder: &str| {
        let mut unguarded = all.seen.iter().filter(|seen| seen.is_unguarded() && seen.running);
        unguarded.any(|seen| seen.is_holder(holder))
    };
    match facts.main.live_holder.clone() {
        Some(holder) if owns(&holder) => Ownership {
            owner: Some(Party::KubeControllerManager),
            lease: Lease::OldManagers,
            holder: Some(holder),
        },
        _ => Ownership {
            owner: None,
            lease: Lease::Migration,
            holder: None,
        },
    }
}

/// This process holds M. While it may not write, it owns nothing. A list takes less time than a status is worth.
fn acts(inputs: &Inputs) -> bool {
    match gate::decide(inputs).action {
        LeaseAction::Compete | LeaseAction::Release(_) => true,
        LeaseAction::Pause(why) => matches!(why, Why::Listing(_) | Why::NewLeader(_) | Why::NotReadYet(_)),
        LeaseAction::Alarm(_) | LeaseAction::StandBy(_) | LeaseAction::Yield(_) => false,
    }
}

/// The holder of K and M runs in-tree with leader migration. An external one may hold M and run nothing under it.
fn is_guarded(facts: &Facts, holder: &str) -> bool {
    let all = &facts.controller_managers;
    let mut guarded = all.seen.iter().filter(|seen| seen.is_guarded_and_running());
    let is_listed = all.seen.iter().any(|seen| seen.is_holder(holder));
    // A template has no host name. Where no Pod can be read, it stands for its Pods.
    let is_template = || {
        all.seen
            .iter()
            .all(|seen| seen.host_names.is_empty() && seen.is_guarded_and_running())
    };

    let is_attested = facts
        .attestation
        .as_ref()
        .is_some_and(|attestation| attestation.phase == Phase::Prepare);

    guarded.any(|seen| seen.is_holder(holder)) || !is_listed && is_attested || !all.seen.is_empty() && is_template()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{ControllerManager, LeaseFacts};
    use crate::samples::{
        EXTERNAL, GUARDED, UNGUARDED, attest, beside_unguarded, held, holding, kcm, migrating, seen, standby,
    };

    #[test]
    fn this_manager_owns_the_controllers_only_while_it_may_write() {
        let owner = |inputs: &Inputs| owner_of_shared(inputs).owner;
        let ours = Some(Party::CloudControllerManager);
        assert_eq!(owner(&holding()), ours);

        let mut paused = holding();
        paused.facts.controller_managers.seen.push(standby());
        assert_eq!(owner(&paused), ours, "a standby does not lead");
        paused.facts.main = LeaseFacts {
            read: true,
            idle: true,
            ..LeaseFacts::default()
        };
        assert_eq!(owner(&paused), None);
        assert_eq!(owner_of_shared(&paused).holder.as_deref(), Some("us"));
        assert_eq!(owner(&beside_unguarded(holding())), None, "an alarm");

        let mut listing = holding();
        listing.facts.main = held("kcm-1_b");
        listing.facts.controller_managers.current = false;
        assert_eq!(owner(&listing), ours, "a list ends within seconds");
    }

    /// The owner beside an unguarded manager on host kcm-0 and an external one on kcm-1, with this holder of the main
    /// lease.
    fn owner(holder: &str) -> Option<Party> {
        let external = ControllerManager {
            host_names: vec!["kcm-1".into()],
            ..kcm(EXTERNAL)
        };
        let mut inputs = migrating();
        inputs.facts.controller_managers = seen(vec![kcm(UNGUARDED), external]);
        inputs.facts.main = held(holder);
        inputs.facts.migration = LeaseFacts::default();
        owner_of_shared(&inputs).owner
    }

    #[test]
    fn a_predecessor_on_the_host_of_a_guarded_manager_is_not_that_manager() {
        let mut inputs = migrating();
        inputs.facts.controller_managers = seen(vec![kcm(GUARDED)]);
        inputs.facts.main = held("kcm-0_a");
        inputs.facts.migration = held("kcm-0_a");
        assert_eq!(owner_of_shared(&inputs).owner, Some(Party::KubeControllerManager));
        inputs.facts.migration = held("kcm-0_ours");
        assert_eq!(owner_of_shared(&inputs).owner, None);
    }

    #[test]
    fn an_external_leader_owns_nothing_beside_guarded_managers() {
        let on_host = |host: &str, form| ControllerManager {
            host_names: vec![host.into()],
            ..kcm(form)
        };
        let left_on = Form::External { leader_migration: true };
        let owner = |holder: &str, attested| {
            let mut inputs = migrating();
            inputs.facts.controller_managers = seen(vec![on_host("kcm-0", GUARDED), on_host("kcm-1", left_on.clone())]);
            inputs.facts.main = held(holder);
            inputs.facts.migration = held(holder);
            inputs.facts.attestation = attested;
            owner_of_shared(&inputs).owner
        };
        let old = Some(Party::KubeControllerManager);
        assert_eq!(owner("kcm-1_a", None), None);
        assert_eq!(owner("kcm-1_a", attest(Phase::Prepare)), None);
        assert_eq!(owner("kcm-0_a", None), old);
        assert_eq!(owner("unread_a", None), None);
        assert_eq!(owner("unread_a", attest(Phase::Prepare)), old);
    }

    #[test]
    fn a_controller_that_the_holder_does_not_run_has_no_owner() {
        let off = |host: &str, disabled: Vec<Controller>, routes| ControllerManager {
            host_names: vec![host.into()],
            disabled,
            routes,
            ..kcm(GUARDED)
        };
        let owned = |holder: &str, attested| {
            let mut inputs = migrating();
            let all = vec![
                off("kcm-0", vec![Controller::Service], false),
                off("kcm-1", Vec::new(), true),
            ];
            inputs.facts.controller_managers = seen(all);
            inputs.facts.main = held(holder);
            inputs.facts.migration = held(holder);
            inputs.facts.attestation = attested;
            let all = Controller::SHARED.into_iter();
            all.filter(|controller| owner_of(&inputs, *controller).owner.is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(owned("kcm-0_a", None), [Controller::NodeLifecycle]);
        assert_eq!(owned("kcm-1_a", None), Controller::SHARED);
        assert_eq!(owned("unread_a", attest(Phase::Prepare)), Controller::SHARED);

        assert_eq!(
            owner_of(&holding(), Controller::Route).owner,
            Some(Party::CloudControllerManager)
        );
    }

    #[test]
    fn a_template_stands_for_pods_that_are_not_listed() {
        let template = |running| ControllerManager {
            host_names: Vec::new(),
            running,
            ..kcm(GUARDED)
        };
        let owner = |all| {
            let mut inputs = migrating();
            inputs.facts.controller_managers = seen(all);
            inputs.facts.main = held("kcm-0_a");
            inputs.facts.migration = held("kcm-0_a");
            owner_of_shared(&inputs).owner
        };
        assert_eq!(owner(vec![template(true)]), Some(Party::KubeControllerManager));
        assert_eq!(owner(vec![template(false)]), None);
        assert_eq!(owner(Vec::new()), None);
    }

    #[test]
    fn an_unguarded_manager_owns_the_controllers_while_it_holds_the_main_lease() {
        assert_eq!(owner("kcm-0_a"), Some(Party::KubeControllerManager));
        assert_eq!(owner("kcm-1_a"), None, "the external one leads");
        assert_eq!(owner("deleted_a"), None, "its lease has not expired yet");
    }
}

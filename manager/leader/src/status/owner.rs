//! The owner of the controllers that both managers have. Pure.

use outrigger_shared::controller::Party;
use outrigger_shared::migration::Phase;

use crate::evidence::Facts;
use crate::gate::Inputs;

/// The lease that guards a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lease {
    Main,
    Migration,
    /// The main lease of the kube-controller-manager.
    OldManagers,
}

pub(super) struct Ownership {
    pub owner: Option<Party>,
    pub lease: Lease,
    pub holder: Option<String>,
}

/// The owner of the controllers that both managers have. Absent unless it is proven: a process that holds a lease may
/// run nothing under it.
pub(super) fn owner_of_shared(inputs: &Inputs) -> Ownership {
    let facts = &inputs.facts;
    if inputs.holding {
        return Ownership {
            owner: Some(Party::CloudControllerManager),
            lease: Lease::Migration,
            holder: Some(inputs.identity.clone()),
        };
    }

    let all = &facts.controller_managers;
    if let Some(holder) = facts.migration.live_holder.clone() {
        let guarded = || all.seen.iter().filter(|seen| seen.is_guarded_and_running());
        let leads = facts.main.live_holder.as_ref() == Some(&holder);
        // A kube-controller-manager acquires M only after K. Its host may run one of our managers, too.
        let is_old_manager = leads && (guarded().next().is_some() || all.unknown().is_some() && attests(facts));
        return Ownership {
            owner: is_old_manager.then_some(Party::KubeControllerManager),
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

/// The operator says that every kube-controller-manager has leader migration on.
fn attests(facts: &Facts) -> bool {
    facts.attested_phase == Some(Phase::Prepare)
}

#[cfg(test)]
mod tests {
    use super::super::tests::migrating;
    use super::*;
    use crate::evidence::tests::{EXTERNAL, GUARDED, UNGUARDED, held, kcm, seen};
    use crate::evidence::{ControllerManager, LeaseFacts};

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
    fn an_unguarded_manager_owns_the_controllers_while_it_holds_the_main_lease() {
        assert_eq!(owner("kcm-0_a"), Some(Party::KubeControllerManager));
        assert_eq!(owner("kcm-1_a"), None, "the external one leads");
        assert_eq!(owner("deleted_a"), None, "its lease has not expired yet");
    }
}

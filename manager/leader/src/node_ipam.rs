//! Node IPAM on both sides: two allocators in one cluster would give one Pod CIDR to two Nodes. Pure.

use outrigger_shared::leader_migration::Placement;

use crate::evidence::{ControllerManager, Facts};

/// Why both sides allocate Pod CIDRs, or none will after the migration, with the remedy.
#[must_use]
pub fn problem(facts: &Facts) -> Option<String> {
    let mut all = facts.controller_managers.seen.iter();
    all.find_map(|seen| conflict(seen, facts.own.node_ipam))
}

fn conflict(seen: &ControllerManager, own: Placement) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence;
    use crate::evidence::tests::{EXTERNAL, GUARDED, complete, kcm, seen};

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
            let missing = evidence::missing(&facts);
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
            facts.attested_phase = Some(outrigger_shared::migration::Phase::Prepare);
            assert_eq!(evidence::missing(&facts).len(), 1);
        }
    }
}

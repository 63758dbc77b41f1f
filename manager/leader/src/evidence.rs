//! The evidence that a manager needs before it may own controllers that a kube-controller-manager owned. Pure.

use outrigger_shared::component::Form;
use outrigger_shared::migration::Phase;

/// A value read from an API server, or the reason why it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// Read, complete and current.
    Known(T),
    /// Deleted, forbidden, or the API server does not answer.
    Unreadable(String),
}

impl<T> Reading<T> {
    /// The value, if it was read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unreadable(_) => None,
        }
    }
}

/// One kube-controller-manager that can be read: a Pod, a mirror Pod, or the template of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerManager {
    /// `Pod namespace/name` or `Deployment namespace/name`.
    pub object: String,
    /// The form of its command line.
    pub form: Form,
    /// Whether its process runs, or may start without a further change.
    pub running: bool,
}

impl ControllerManager {
    /// In-tree and without leader migration: it owns its controllers under its main lease alone.
    #[must_use]
    pub fn is_unguarded(&self) -> bool {
        matches!(
            self.form,
            Form::InTree {
                leader_migration: false
            }
        )
    }
}

/// The outcome of a check that can block the migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    Good,
    /// Blocks the migration. Contains the problem and what to do.
    Bad(String),
    /// Not checked, or undecidable: a warning.
    Unknown(String),
}

/// The checks on cloud routes, cluster tags and AWS permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftChecks {
    /// Whether both sides would run routes for the same CIDR.
    pub routes: Check,
    /// Whether the cluster's tags are those that both sides read.
    pub tags: Check,
    /// Whether AWS lets the manager do what it will have to do.
    pub permissions: Check,
}

impl SoftChecks {
    /// All three unknown: this release does not check them.
    #[must_use]
    pub fn not_built() -> Self {
        let unknown = |what: &str| Check::Unknown(format!("{what} are not checked by this release"));
        Self {
            routes: unknown("cloud routes"),
            tags: unknown("cluster tags"),
            permissions: unknown("AWS permissions"),
        }
    }

    fn each(&self) -> [&Check; 3] {
        [&self.routes, &self.tags, &self.permissions]
    }
}

/// Everything that the evidence depends on.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Every kube-controller-manager that can be read; empty when there is none to read.
    pub controller_managers: Reading<Vec<ControllerManager>>,
    /// The holder of the old manager's main lease, if it was renewed in time.
    pub main_holder: Option<String>,
    /// The holder of the migration lease, if it was renewed in time.
    pub migration_holder: Option<String>,
    /// The phase that the operator attests in `spec.attestedPhase`.
    pub attested_phase: Option<Phase>,
    pub checks: SoftChecks,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// The missing evidence, each item with its remedy. Empty when the evidence is complete.
    pub missing: Vec<String>,
    /// The checks that were not possible.
    pub warnings: Vec<String>,
}

impl Assessment {
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Assesses whether leader migration is on in every kube-controller-manager.
///
/// One holder of both leases proves it for the leader: only a process with leader migration acquires the migration
/// lease after its main lease. The command lines prove it for the others.
#[must_use]
pub fn assess(facts: &Facts) -> Assessment {
    let mut missing = Vec::new();
    missing.extend(leases(facts));
    missing.extend(command_lines(facts));

    let mut warnings = Vec::new();
    for check in facts.checks.each() {
        match check {
            Check::Good => {}
            Check::Bad(why) => missing.push(why.clone()),
            Check::Unknown(why) => warnings.push(why.clone()),
        }
    }

    Assessment { missing, warnings }
}

fn leases(facts: &Facts) -> Option<String> {
    match (&facts.main_holder, &facts.migration_holder) {
        (Some(main), Some(migration)) if main == migration => None,
        (None, _) => Some(
            "the kube-controller-manager's main lease is not being renewed: check spec.kubeControllerManagerLease and that it runs"
                .into(),
        ),
        (Some(_), None) => Some(
            "nobody renews the migration lease: the leading kube-controller-manager has no leader migration, or may not get and update that lease (see the Role for user system:kube-controller-manager)"
                .into(),
        ),
        (Some(main), Some(migration)) => Some(format!(
            "the main lease is held by {main:?} and the migration lease by {migration:?}: the leading kube-controller-manager does not hold both"
        )),
    }
}

fn command_lines(facts: &Facts) -> Vec<String> {
    let seen = facts.controller_managers.known().map_or(&[][..], Vec::as_slice);
    if seen.is_empty() {
        if facts.attested_phase == Some(Phase::Prepare) {
            return Vec::new();
        }

        let why = match &facts.controller_managers {
            Reading::Known(_) => "no kube-controller-manager matches spec.targets".to_owned(),
            Reading::Unreadable(reason) => format!("no kube-controller-manager can be read ({reason})"),
        };
        return vec![format!(
            "{why}: correct the targets, or state in spec.attestedPhase: Prepare that all have leader migration on"
        )];
    }

    seen.iter().filter_map(problem).collect()
}

fn problem(seen: &ControllerManager) -> Option<String> {
    let object = &seen.object;
    match &seen.form {
        Form::InTree { leader_migration: true } | Form::External { .. } | Form::NoProvider => None,
        Form::InTree {
            leader_migration: false,
        } => Some(format!(
            "{object} runs in-tree without --enable-leader-migration: roll it in phase Prepare"
        )),
        Form::Unreadable { reason } => Some(format!("{object} cannot be judged: {reason}")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn kcm(form: Form) -> ControllerManager {
        ControllerManager {
            object: "Pod tenant/kcm-0".into(),
            form,
            running: true,
        }
    }

    pub(crate) fn complete() -> Facts {
        Facts {
            controller_managers: Reading::Known(vec![kcm(Form::InTree { leader_migration: true })]),
            main_holder: Some("a".into()),
            migration_holder: Some("a".into()),
            attested_phase: None,
            checks: SoftChecks::not_built(),
        }
    }

    #[test]
    fn one_holder_of_both_leases_and_a_guarded_command_line_are_complete() {
        let assessment = assess(&complete());
        assert!(assessment.is_complete(), "{:?}", assessment.missing);
        assert_eq!(assessment.warnings.len(), 3);
    }

    #[test]
    fn each_missing_piece_is_named() {
        type Change = fn(&mut Facts);
        let cases: [(&str, Change); 6] = [
            ("main lease is not being renewed", |f| f.main_holder = None),
            ("nobody renews the migration lease", |f| f.migration_holder = None),
            ("does not hold both", |f| f.migration_holder = Some("b".into())),
            ("without --enable-leader-migration", |f| {
                f.controller_managers = Reading::Known(vec![kcm(Form::InTree {
                    leader_migration: false,
                })]);
            }),
            ("cannot be judged", |f| {
                f.controller_managers = Reading::Known(vec![kcm(Form::Unreadable {
                    reason: "a shell script".into(),
                })]);
            }),
            ("two owners of one CIDR", |f| {
                f.checks.routes = Check::Bad("two owners of one CIDR".into())
            }),
        ];
        for (text, change) in cases {
            let mut facts = complete();
            change(&mut facts);
            let assessment = assess(&facts);
            assert_eq!(assessment.missing.len(), 1, "{text}");
            assert!(assessment.missing[0].contains(text), "{:?}", assessment.missing);
        }
    }

    #[test]
    fn one_unguarded_among_many_is_enough_to_block() {
        let mut facts = complete();
        let forms = [
            Form::InTree { leader_migration: true },
            Form::InTree {
                leader_migration: false,
            },
        ];
        facts.controller_managers = Reading::Known(forms.into_iter().map(kcm).collect());
        assert!(!assess(&facts).is_complete());
    }

    #[test]
    fn where_none_can_be_read_the_operators_word_for_prepare_counts_and_no_other() {
        for blind in [Reading::Known(vec![]), Reading::Unreadable("forbidden".to_owned())] {
            let mut facts = complete();
            facts.controller_managers = blind;
            assert!(!assess(&facts).is_complete());
            facts.attested_phase = Some(Phase::Migrate);
            assert!(!assess(&facts).is_complete());
            facts.attested_phase = Some(Phase::Prepare);
            assert!(assess(&facts).is_complete());
        }
    }
}

//! Whether a phase may begin: the checks of `outrigger check`, of this migration only. Pure.

use crate::check::report::Report;
use crate::check::rules;
use outrigger_shared::migration::Phase;

use crate::facts::{ClusterFacts, Migration, Names, NotRead, Read};
use crate::status::error::Error as StatusError;
use crate::status::position::named;

use super::error::Error;
use super::steps::Asked;

/// The check for a kube-controller-manager that cannot be read: an attestation stands in for it.
const UNREADABLE: &str = "OUT302";
/// The check for what the manager would change at AWS. It changes nothing before phase Migrate.
pub const NOT_CLEAN: &str = "OUT214";

/// The obstacles before a phase.
#[derive(Debug)]
pub struct Checks {
    errors: Vec<String>,
    /// Facts without which nothing is known to be right.
    unread: Vec<NotRead>,
    not_made: usize,
}

impl Checks {
    pub fn of(facts: &ClusterFacts, asked: &Asked, next: Option<Phase>, accepted: &[String]) -> Self {
        let facts = narrowed(facts, asked); // The attestation is set in Prepare.
        let may_attest = |one: &Migration| one.is_attested || one.phase == Phase::InTree;
        let is_attested = facts.migrations.known().into_iter().flatten().any(may_attest);
        let is_accepted = |code: &str| {
            let is_early = code == NOT_CLEAN && next < Some(Phase::Migrate);
            is_early
                || is_attested && code == UNREADABLE
                || accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(code))
        };
        let rules: Vec<_> = rules::ALL.iter().filter(|rule| !is_accepted(rule.code)).collect();
        let report = Report::of(&facts, &rules);
        let unread = [
            facts.migrations.get().err(),
            facts.components.get().err(),
            facts.nodes.get().err(),
            facts.leases.get().err(),
            facts.tenants.get().err(),
        ];
        let tenants = facts.tenants.known().into_iter().flatten();
        let of_tenants = tenants.filter_map(|tenant| tenant.components.get().err());

        Self {
            errors: report.error_lines(),
            unread: unread.into_iter().flatten().chain(of_tenants).collect(),
            not_made: report.not_looked_at(),
        }
    }

    pub fn pass(&self) -> bool {
        self.errors.is_empty() && self.unread.is_empty()
    }

    /// A line for each obstacle, and how many checks were not made.
    pub fn lines(&self) -> Vec<String> {
        let unread = self.unread.iter().map(|why| match &why.right {
            Some(right) => format!("not known: {}; add the right to {right}", why.reason),
            None => format!("not known: {}", why.reason),
        });
        let mut lines: Vec<String> = unread.chain(self.errors.iter().cloned()).collect();
        if !self.errors.is_empty() {
            lines.push(
                "outrigger check --explain CODE says why and how to correct it; --accept=CODE goes on".to_owned(),
            );
        }
        if self.not_made > 0 {
            lines.push(format!(
                "{} checks were not made; outrigger check names the missing rights",
                self.not_made
            ));
        }

        lines
    }
}

/// The facts about the cluster of this migration. Another one in the same cluster is not in its way.
fn narrowed(facts: &ClusterFacts, asked: &Asked) -> ClusterFacts {
    let Ok(migration) = named(facts, asked.name.as_deref()) else {
        return facts.clone();
    };
    let mut facts = ClusterFacts {
        migrations: Read::Known(vec![migration.clone()]),
        ..facts.clone()
    };
    if let Read::Known(tenants) = &mut facts.tenants {
        tenants.retain(|tenant| tenant.migration == migration.name);
    }
    // A worker's kubelet must not be able to keep a phase from beginning.
    if let Read::Known(components) = &mut facts.components {
        components.retain(|component| !component.is_ignored);
    }
    if migration.is_elsewhere() {
        // This cluster only has the objects.
        facts.components = Read::Known(Vec::new());
        facts.nodes = Read::Known(Vec::new());
        facts.leases = Read::Known(Vec::new());
        facts.services = Read::Known(Vec::new());
        facts.ebs_volumes = Read::Known(Names::default());
    }

    facts
}

/// Whether the commands know the steps of this cluster at all.
///
/// # Errors
/// With the page that has them.
pub fn can_be_planned(facts: &ClusterFacts, asked: &Asked) -> Result<(), Error> {
    let migration = match named(facts, asked.name.as_deref()) {
        Ok(migration) => migration,
        Err(StatusError::NotInstalled) => return not_external(facts),
        // The plan has the error.
        Err(_) => return Ok(()),
    };
    match migration {
        Migration { is_downtime: true, .. } => Err(Error::NotPlanned {
            what: "spec.downtime is set",
            page: "docs/guides/downtime.md",
        }),
        migration if !migration.needs_manager() => Err(Error::NotPlanned {
            what: "Kubermatic has a manager of its own",
            page: "docs/guides/kkp.md",
        }),
        _ => Ok(()),
    }
}

fn not_external(facts: &ClusterFacts) -> Result<(), Error> {
    let components = facts.components.known().into_iter().flatten();
    let mut judged = components
        .filter_map(|component| component.judgement.as_ref())
        .peekable();
    if judged.peek().is_some() && judged.all(|judged| !judged.is_in_tree) {
        return Err(Error::NotPlanned {
            what: "the cluster is external already",
            page: "docs/operations/replace.md",
        });
    }
    Ok(())
}

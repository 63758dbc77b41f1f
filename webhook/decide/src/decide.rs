//! The decision about one object.

use outrigger_shared::{annotations, work};

use super::matching::{self, Match};
use super::{Decision, Input, Kind, Operation, Outcome, Shortage, kinds};

/// Steps of one decision, with the reading of its objects: 5 ms of processor time in a release build is the aim.
/// `benches/worst_objects.rs` measures it.
pub const MAX_WORK: u64 = 350_000;

/// Decides within [`MAX_WORK`], or what is left of the active budget ([`work`]).
#[must_use]
pub fn decide(input: &Input<'_>) -> Decision {
    match work::within(MAX_WORK, || decide_now(input)) {
        (decision, false) => decision,
        (_, true) => Decision::lacking(
            Shortage::Work,
            "outrigger: nothing changed, because the object needs more work than one decision may take; make its texts \
             and lists shorter"
                .to_owned(),
        ),
    }
}

fn decide_now(input: &Input<'_>) -> Decision {
    if input.operation == Operation::Other || !input.subresource.is_empty() {
        return Decision::default();
    }
    // The rows of one kind have different profiles: use the first row with a matching migration.
    kinds::concerned(input)
        .map(|kind| decide_as(input, kind))
        .find(|decision| decision.outcome != Outcome::NotOurs)
        .unwrap_or_default()
}

fn decide_as(input: &Input<'_>, kind: &Kind) -> Decision {
    match matching::find(input, kind.profiles) {
        Match::None => Decision::default(),
        Match::NamespaceUnknown(namespace) => Decision::lacking(
            Shortage::NamespaceLabels,
            format!(
                "outrigger: nothing changed, as the labels of namespace {namespace} are not known; write the object again"
            ),
        ),
        Match::Several(names) => Decision::refusal(format!(
            "outrigger: nothing changed, as several migrations match: {}; correct their spec.targets",
            names.join(", ")
        )),
        Match::One(migration) => {
            let mut draft = (kind.draft)(input, migration);
            draft
                .warnings
                .extend(input.requests_another_phase(migration).map(|requested| {
                format!(
                    "annotation {} requests phase {requested}, but the migration is in phase {}; set the phase, then \
                     write the annotation again",
                    annotations::APPLY,
                    migration.spec.phase
                )
            }));
            Decision::of(draft, migration, kind.rule())
        }
    }
}

//! The body of an admission request → reading → decision → answer.
//!
//! An input is a line of JSON with the webhook's state ([`Situation`]: migrations, labels, readiness), then the body.
//! Checks, for every input:
//!
//! - no panic; a request with a UID is answered with that UID, in JSON, allowed, with warnings of at most 256
//!   characters;
//! - the patch applies to the object, and deciding the patched object again changes nothing;
//! - unknown fields are kept;
//! - an object without an undo annotation of its author that went through all phases and back is unchanged, except for
//!   changes that are never undone: a tag, a taint, Kubermatic's feature.
//!
//! Everyone who may write the object may write an undo annotation. A hostile one can change this object into anything
//! that its author could have written directly, and no more: the API server checks the patched object as if it had been
//! sent.

mod checks;
mod mutation;
mod seeds;
mod situation;

use outrigger_decide::MAX_WORK;
use outrigger_shared::work::WorkBudget;
use outrigger_webhook::memory_budget::MemoryBudget;
use outrigger_webhook::review::{self, Incoming, Operation, Review, Verdict};

pub use self::mutation::mutate;
pub(crate) use self::seeds::files_below;
pub use self::seeds::{WORDS, seeds};
use self::situation::{MEMORY, Situation, split};

pub fn run(data: &[u8]) {
    let (situation, body) = split(data);
    let situation = Situation::read(situation);
    match review::parse(body, &MemoryBudget::unshared(MEMORY)) {
        Err(malformed) => drop(malformed.to_string()),
        Ok(Incoming::Unreadable(reply, reason)) => {
            let answer = checks::answered(body, &reply.pass_unread(&reason));
            assert!(answer.get("patch").is_none(), "an unread object gets no patch");
        }
        Ok(Incoming::Review(review)) => reviewed(&situation, body, *review),
    }
}

/// Reads and decides the review as the server does, within the budget for work; the steps that it took.
#[must_use]
pub fn work(data: &[u8]) -> u64 {
    let (situation, body) = split(data);
    let situation = Situation::read(situation);
    let mut budget = WorkBudget::new(MAX_WORK);
    budget.run(|| {
        let Ok(Incoming::Review(review)) = review::parse(body, &MemoryBudget::unshared(MEMORY)) else {
            return;
        };
        let request = review.request;
        if let Some(object) = &request.object {
            drop(situation.decide(&request, object, request.old_object.as_ref()));
        }
    });

    budget.used()
}

fn reviewed(situation: &Situation, body: &[u8], review: Review) {
    let Review { request, reply } = review;
    let Some(object) = &request.object else {
        checks::answered(body, &reply.allow(Verdict::default()));
        return;
    };

    if object.is_object() && matches!(request.operation, Operation::Create | Operation::Update) {
        let decision = checks::decided(situation, &request, object);
        checks::unknown_fields_live_on(situation, &request, object);
        checks::there_and_back(situation, &request, object);

        let verdict = Verdict {
            patch: decision.patch.clone(),
            warnings: decision.warnings,
            audit: decision.audit_annotations,
        };
        let answer = checks::answered(body, &reply.allow(verdict));
        checks::carries(&answer, &decision.patch);
    } else {
        let decision = situation.decide(&request, object, request.old_object.as_ref());
        assert!(decision.patch.is_empty(), "only a created or updated object is changed");
    }
}

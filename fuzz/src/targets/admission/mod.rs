//! The body of an admission request → reading → decision → answer.
//!
//! An input is a line of JSON with what the webhook knows ([`situation::Situation`]: migrations, labels, readiness), then the
//! body. Promised, whatever stands in either:
//!
//! - no panic, and what has a UID is answered with it, in JSON, allowed, with warnings of at most 256 characters;
//! - the patch applies to the object; the patched object is as it should be: deciding it again changes nothing;
//! - unknown fields live on;
//! - without an undo annotation of its author's own, an object that went through all phases and back is as it was, but for what is for ever: a tag, a taint, Kubermatic's feature.
//!
//! An undo annotation is written by whoever may write the object. So a hostile one can change this one object into anything that
//! its author could have written there at once, and no more: the API server checks the patched object as if it had been sent.

mod mutation;
mod promises;
mod seeds;
mod situation;

use outrigger_webhook::memory_budget::MemoryBudget;
use outrigger_webhook::review::{self, Incoming, Operation, Review, Verdict};
use serde::Deserialize;
use serde_json::Value;

pub use self::mutation::mutate;
pub use self::seeds::seeds;
use self::situation::Situation;
use crate::features::note;

/// As the webhook's own default for one request.
const MEMORY: usize = 64 * 1024 * 1024;

/// One input.
///
/// # Panics
/// When a promise is broken.
pub fn target(data: &[u8]) {
    let (situation, body) = split(data);
    let situation = Situation::read(situation);
    match review::parse(body, &MemoryBudget::unshared(MEMORY)) {
        Err(malformed) => note(malformed.class()),
        Ok(Incoming::Unreadable(reply, reason)) => {
            note(&reason.to_string());
            let answer = promises::answered(body, &reply.pass_unread(&reason));
            assert!(answer.get("patch").is_none(), "an unread object gets no patch");
        }
        Ok(Incoming::Review(review)) => reviewed(&situation, body, *review),
    }
}

fn reviewed(situation: &Situation, body: &[u8], review: Review) {
    let Review { request, reply } = review;
    let Some(object) = &request.object else {
        promises::answered(body, &reply.allow(Verdict::default()));
        return;
    };
    if object.is_object() && matches!(request.operation, Operation::Create | Operation::Update) {
        let decision = promises::decided(situation, &request, object);
        promises::unknown_fields_live_on(situation, &request, object);
        promises::there_and_back(situation, &request, object);
        let verdict = Verdict {
            patch: decision.patch.clone(),
            warnings: decision.warnings,
            audit: decision.audit_annotations,
        };
        let answer = promises::answered(body, &reply.allow(verdict));
        promises::carries(&answer, &decision.patch);
    } else {
        let decision = situation.decide(&request, object, request.old_object.as_ref());
        assert!(decision.patch.is_empty(), "only a created or updated object is changed");
    }
}

/// The first line and the rest.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    (&data[..end], data.get(end + 1..).unwrap_or_default())
}

/// The UID, read in another way than the webhook reads it.
fn uid(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Outer {
        request: Inner,
    }
    #[derive(Deserialize)]
    struct Inner {
        uid: String,
    }
    serde_json::from_slice::<Outer>(body)
        .expect("what is answered has a UID")
        .request
        .uid
}

/// Whether the object brings an undo annotation, anywhere.
fn has_undo(value: &Value) -> bool {
    value.to_string().contains("outrigger.dev/undo")
}

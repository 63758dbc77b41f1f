//! Why a Service is looked at. It decides which Events are written, and whether what others were told just before serves;
//! what is done at AWS does not depend on it.

use super::service_state::Memory;
use super::spec_fingerprint::Shape;

/// Why a Service is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is new, or was changed in a way that its load balancer depends on.
    Asked,
    /// This process sees it for the first time, and another one has held it before.
    Start,
    /// The last look failed, or did not come to its end.
    Again,
    /// Other Nodes may be targets.
    Nodes,
    /// Nothing happened; drift at AWS is looked for.
    Resync,
}

impl Cause {
    /// Whether AWS is asked everything anew: who has just changed a Service may have changed something at AWS as well, and
    /// what has failed may have failed for something that was changed since.
    #[must_use]
    pub fn wants_the_present(self) -> bool {
        matches!(self, Self::Asked | Self::Again)
    }
}

/// Why a Service of this shape is looked at now. `held` says whether it has the finalizer, `same_targets` whether the
/// same Nodes may be targets as at the last look that ended well.
#[must_use]
pub fn cause(memory: &Memory, shape: &Shape, held: bool, same_targets: bool) -> Cause {
    match &memory.shape {
        None if held => Cause::Start,
        None => Cause::Asked,
        Some(before) if before != shape => Cause::Asked,
        Some(_) if memory.failures > 0 => Cause::Again,
        Some(_) if memory.settled.is_none() && memory.relies => Cause::Again,
        // What else a look leaves open are targets.
        Some(_) if memory.settled.is_none() && memory.open > 0 => Cause::Nodes,
        Some(_) if memory.settled.is_none() => Cause::Again,
        Some(_) if !same_targets => Cause::Nodes,
        Some(_) => Cause::Resync,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::time::Instant;

    use super::super::service_state::Settled;
    use super::*;

    #[test]
    fn memory_shape_and_targets_tell_the_cause() {
        let shape = Shape::default();
        let mut memory = Memory::default();
        assert_eq!(cause(&memory, &shape, true, true), Cause::Start);
        assert_eq!(cause(&memory, &shape, false, true), Cause::Asked, "new to everyone");
        memory.shape = Some(shape.clone());
        assert_eq!(
            cause(&memory, &shape, true, true),
            Cause::Again,
            "cut off before its end"
        );
        memory.leave_open(BTreeSet::new());
        assert_eq!(
            cause(&memory, &shape, true, true),
            Cause::Nodes,
            "a target is waited for"
        );
        memory.settled = Some(Settled {
            targets: BTreeSet::new(),
            at: Instant::now(),
            hostname: String::new(),
        });
        assert_eq!(cause(&memory, &shape, true, true), Cause::Resync);
        assert_eq!(cause(&memory, &shape, true, false), Cause::Nodes);
        memory.fail();
        assert_eq!(cause(&memory, &shape, true, false), Cause::Again);
        let service = serde_json::from_value(serde_json::json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(cause(&memory, &Shape::of(&service.unwrap()), true, true), Cause::Asked);
    }
}

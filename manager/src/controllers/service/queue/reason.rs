//! Why a Service is looked at. It decides which Events are written, and whether what others were told just before serves;
//! what is done at AWS does not depend on it.

use super::service_state::ServiceState;
use super::spec_fingerprint::SpecFingerprint;

/// Why a Service is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is new, or was changed in a way that its load balancer depends on.
    SpecChanged,
    /// This process sees it for the first time, and another one has held it before.
    Restart,
    /// The last look failed, or did not come to its end.
    Retry,
    /// Other Nodes may be targets.
    NodesChanged,
    /// Nothing happened; drift at AWS is looked for.
    Resync,
}

impl Reason {
    /// Whether AWS is asked everything anew: who has just changed a Service may have changed something at AWS as well, and
    /// what has failed may have failed for something that was changed since.
    #[must_use]
    pub fn needs_fresh_reads(self) -> bool {
        matches!(self, Self::SpecChanged | Self::Retry)
    }
}

/// Why a Service of this shape is looked at now. `held` says whether it has the finalizer, `same_targets` whether the
/// same Nodes may be targets as at the last look that ended well.
#[must_use]
pub fn reason(state: &ServiceState, fingerprint: &SpecFingerprint, held: bool, same_targets: bool) -> Reason {
    match &state.fingerprint {
        None if held => Reason::Restart,
        None => Reason::SpecChanged,
        Some(before) if before != fingerprint => Reason::SpecChanged,
        Some(_) if state.failures > 0 => Reason::Retry,
        Some(_) if state.settled.is_none() && state.relies_on_shared_rules => Reason::Retry,
        // What else a look leaves open are targets.
        Some(_) if state.settled.is_none() && state.open > 0 => Reason::NodesChanged,
        Some(_) if state.settled.is_none() => Reason::Retry,
        Some(_) if !same_targets => Reason::NodesChanged,
        Some(_) => Reason::Resync,
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
        let fingerprint = SpecFingerprint::default();
        let mut state = ServiceState::default();
        assert_eq!(reason(&state, &fingerprint, true, true), Reason::Restart);
        assert_eq!(
            reason(&state, &fingerprint, false, true),
            Reason::SpecChanged,
            "new to everyone"
        );
        state.fingerprint = Some(fingerprint.clone());
        assert_eq!(
            reason(&state, &fingerprint, true, true),
            Reason::Retry,
            "cut off before its end"
        );
        state.leave_open(BTreeSet::new());
        assert_eq!(
            reason(&state, &fingerprint, true, true),
            Reason::NodesChanged,
            "a target is waited for"
        );
        state.settled = Some(Settled {
            targets: BTreeSet::new(),
            at: Instant::now(),
            hostname: String::new(),
        });
        assert_eq!(reason(&state, &fingerprint, true, true), Reason::Resync);
        assert_eq!(reason(&state, &fingerprint, true, false), Reason::NodesChanged);
        state.fail();
        assert_eq!(reason(&state, &fingerprint, true, false), Reason::Retry);
        let service = serde_json::from_value(serde_json::json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(
            reason(&state, &SpecFingerprint::of(&service.unwrap()), true, true),
            Reason::SpecChanged
        );
    }
}

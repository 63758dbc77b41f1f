//! Why a Service is reconciled. The reason decides which Events are emitted and whether shared answers are accepted. It
//! does not change what is written to AWS.

use super::service_state::ServiceState;
use super::spec_fingerprint::SpecFingerprint;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The Service is new, or a field has changed that its load balancer depends on.
    SpecChanged,
    /// This process reconciles it for the first time, and an earlier one added the finalizer.
    Restart,
    /// The last reconciliation failed or was not completed.
    Retry,
    NodesChanged,
    /// Periodic search for drift.
    Resync,
}

impl Reason {
    /// Whether to read AWS again: someone who changes a Service may have changed AWS too, and the cause of a failure
    /// may be fixed since.
    pub fn needs_fresh_reads(self) -> bool {
        matches!(self, Self::SpecChanged | Self::Retry)
    }
}

/// `held`: the Service has the finalizer. `same_targets`: the same Nodes may be targets as at the last successful
/// reconciliation.
pub fn reason(state: &ServiceState, fingerprint: &SpecFingerprint, held: bool, same_targets: bool) -> Reason {
    match &state.fingerprint {
        None if held => Reason::Restart,
        None => Reason::SpecChanged,
        Some(before) if before != fingerprint => Reason::SpecChanged,
        Some(_) if state.failures > 0 => Reason::Retry,
        Some(_) if state.settled.is_none() && state.relies_on_shared_rules => Reason::Retry,
        // All other open points concern targets.
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
    fn state_fingerprint_and_targets_decide_the_reason() {
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

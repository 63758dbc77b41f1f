//! How long a crashed container waits, and whether it comes back at all. Pure.

use std::time::Duration;

use super::span::Exit;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);
/// A run that lasted this long was no crash loop; the next wait starts over.
const STABLE: Duration = Duration::from_secs(60);

/// `restartPolicy` of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// Reads the API's word; missing means Always.
    pub(super) fn parse(word: Option<&str>) -> Self {
        match word {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    pub(super) fn restarts(self, exit: Exit) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit != Exit::Code(0),
            Self::Never => false,
        }
    }
}

/// Waits between the runs of one container: none before the first restart, then 1 s, doubled up to 10 s. (A kubelet
/// starts at 10 s and goes up to 5 minutes; nobody waits that long for a test.)
#[derive(Debug, Default)]
pub(super) struct Backoff {
    crashes: u32,
}

impl Backoff {
    /// The wait after a run that lasted `ran`.
    pub(super) fn next(&mut self, ran: Duration) -> Duration {
        if ran >= STABLE {
            self.crashes = 0;
        }

        self.crashes += 1;
        match self.crashes {
            0 | 1 => Duration::ZERO,
            crashes => FIRST.saturating_mul(2_u32.saturating_pow(crashes - 2)).min(LONGEST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_seconds_and_start_over_after_a_stable_run() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..7).map(|_| backoff.next(Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.next(STABLE), Duration::ZERO);
    }

    #[test]
    fn the_restart_policy_decides_who_comes_back() {
        assert!(RestartPolicy::parse(None).restarts(Exit::Code(0)));
        assert!(RestartPolicy::parse(Some("OnFailure")).restarts(Exit::Signal(9)));
        assert!(!RestartPolicy::parse(Some("OnFailure")).restarts(Exit::Code(0)));
        assert!(!RestartPolicy::parse(Some("Never")).restarts(Exit::Code(1)));
    }
}

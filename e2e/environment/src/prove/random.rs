//! Random moments that a seed repeats.

use std::time::Duration;

/// `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Whole milliseconds below `limit`.
    pub(super) fn below(&mut self, limit: Duration) -> Duration {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.next() % limit)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_moments_and_another_has_others() {
        let moments = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.below(Duration::from_secs(1)))
        };
        assert_eq!(moments(1), moments(1));
        assert_ne!(moments(1), moments(2));
        assert!(moments(3).iter().all(|moment| *moment < Duration::from_secs(1)));
    }
}

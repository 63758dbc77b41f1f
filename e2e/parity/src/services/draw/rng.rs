//! Pseudorandom numbers, the same for the same seed (splitmix64, <https://prng.di.unimi.it/splitmix64.c>).

#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    /// Each case has its own generator, so that a case does not depend on the number of cases.
    pub(super) fn new(seed: u64, number: usize) -> Self {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let mut rng = Self(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(number));
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end - 1`; 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        let drawn = self.next().checked_rem(end).unwrap_or(0);
        usize::try_from(drawn).unwrap_or(0)
    }

    /// True `percent` times out of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One item; the default for an empty list.
    pub(super) fn pick<T: Copy + Default>(&mut self, of: &[T]) -> T {
        of.get(self.below(of.len())).copied().unwrap_or_default()
    }

    /// Up to `count` items, each once, in any order.
    pub(super) fn some<T: Clone>(&mut self, of: &[T], count: usize) -> Vec<T> {
        let mut rest = of.to_vec();
        let mut some = Vec::new();
        while some.len() < count && !rest.is_empty() {
            some.push(rest.swap_remove(self.below(rest.len())));
        }
        some
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn every_number_is_drawn_and_every_seed_and_case_has_its_own() {
        let drawn = |seed, number| -> Vec<usize> {
            let mut rng = Rng::new(seed, number);
            (0..50).map(|_| rng.below(6)).collect()
        };
        assert_eq!(drawn(1, 1), drawn(1, 1));
        assert_ne!(drawn(1, 1), drawn(1, 2));
        assert_ne!(drawn(1, 1), drawn(2, 1));
        for side in 0..6 {
            assert!(drawn(1, 1).contains(&side), "{side}");
        }
        assert_eq!(Rng::new(1, 1).some(&[1, 2, 3], 9).len(), 3);
    }
}

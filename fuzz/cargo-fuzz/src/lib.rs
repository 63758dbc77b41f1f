//! One libFuzzer program for each target of `outrigger-fuzz`.

pub use {fastrand, libfuzzer_sys, outrigger_fuzz};

/// The program of a target. Half of the changes are libFuzzer's own, half keep the form of the input.
#[macro_export]
macro_rules! program {
    ($name:ident) => {
        use $crate::outrigger_fuzz::{find, targets::$name};
        use $crate::{fastrand, libfuzzer_sys};

        libfuzzer_sys::fuzz_target!(|input: &[u8]| $name::run(input));

        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let mut rng = fastrand::Rng::with_seed(seed.into());
            if rng.bool() {
                return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
            }
            let target = find(stringify!($name)).unwrap();
            let mutated = target.change(&mut rng, &data[..size], &data[..size]);
            let size = mutated.len().min(max_size);
            data[..size].copy_from_slice(&mutated[..size]);
            size
        });
    };
}

//! Bytes without a meaning.

use crate::random::Random;

/// One change: a flip, an odd byte, a cut, a copy, a part of another input.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    const ODD: [u8; 14] = [0, 1, 9, 10, 13, 32, 34, 39, 92, 123, 127, 128, 192, 255];
    let mut data = data.to_vec();
    let at = random.below(data.len() + 1);
    let end = at + random.below((data.len() - at).min(64) + 1);
    match random.below(6) {
        0 if at < data.len() => data[at] ^= 1 << random.below(8),
        1 if at < data.len() => data[at] = *random.pick(&ODD),
        2 => drop(data.drain(at..end)),
        3 => {
            let copy = data[at..end].to_vec();
            drop(data.splice(at..at, copy));
        }
        4 if !other.is_empty() => {
            let from = random.below(other.len());
            let to = (from + random.below(64) + 1).min(other.len());
            drop(data.splice(at..end, other[from..to].iter().copied()));
        }
        _ => data.insert(at, *random.pick(&ODD)),
    }
    data
}

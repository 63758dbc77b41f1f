//! What a target saw in one input. An input with a feature that no input had before is worth keeping.

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

thread_local! {
    static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Notes a text such as a reason or an error. What stands in quotes, and numbers, count as the same everywhere: they are the
/// input's own words.
pub fn note(text: &str) {
    let mut hasher = DefaultHasher::new();
    let mut quoted = false;
    let mut last = ' ';
    for letter in text.chars() {
        quoted ^= letter == '"' && last != '\\';
        last = letter;
        if !quoted && !letter.is_numeric() {
            letter.hash(&mut hasher);
        }
    }
    let feature = hasher.finish();
    SEEN.with_borrow_mut(|seen| seen.push(feature));
}

/// The features since the last call.
pub fn take() -> Vec<u64> {
    SEEN.take()
}

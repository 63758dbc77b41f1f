//! The texts that one decision has parsed. Its rules ask for the same text several times: whether it is external, what to
//! warn of, what to change, and what it was before.

use std::cell::RefCell;

use super::YamlText;
use crate::work;

/// Longest text that is kept, in bytes. A longer one uses up the budget of a decision anyway.
const MAX_KEPT: usize = 64 * 1024;

/// Shortest text that is kept: short ones are parsed as fast, and must not take the places of long ones.
const MIN_KEPT: usize = 256;

/// Texts of one decision.
const TEXTS: usize = 16;

#[derive(Default)]
struct Parsed {
    run: u64,
    texts: Vec<YamlText>,
}

thread_local! {
    static PARSED: RefCell<Parsed> = RefCell::default();
}

/// The result of an earlier parse within the active budget.
pub(super) fn get(text: &str, word: Option<&str>) -> Option<YamlText> {
    let run = work::active_run()?;
    PARSED.with_borrow(|parsed| {
        let mut texts = parsed.texts.iter().filter(|_| parsed.run == run);
        texts
            .find(|known| known.word.as_deref() == word && known.text == text)
            .cloned()
    })
}

/// Keeps the result of a parse until the active budget ends.
pub(super) fn put(parsed: &YamlText) {
    let Some(run) = work::active_run().filter(|_| (MIN_KEPT..=MAX_KEPT).contains(&parsed.text.len())) else {
        return;
    };
    PARSED.with_borrow_mut(|kept| {
        if kept.run != run {
            *kept = Parsed { run, texts: Vec::new() };
        }
        if kept.texts.len() == TEXTS {
            kept.texts.remove(0);
        }
        kept.texts.push(parsed.clone());
    });
}

//! The parts of the output that `outrigger mutate` and `outrigger node` share.

use outrigger_decide::Decision;

/// Warnings, then the reasons that are not part of one.
pub(crate) fn explanations(decision: &Decision) -> Vec<String> {
    let Decision { warnings, reasons, .. } = decision;
    let is_in_warning = |reason: &&String| warnings.iter().any(|warning| warning.ends_with(reason.as_str()));
    let others = reasons.iter().filter(|reason| !is_in_warning(reason));
    let warnings = warnings.iter().map(|warning| format!("! {warning}"));

    warnings.chain(others.map(|reason| format!("- {reason}"))).collect()
}

/// Escapes control characters, so that a text from an object cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for character in text.chars() {
        // Characters that turn or hide text do not print either.
        let is_hidden =
            matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match character.is_control() || is_hidden {
            true => printed.extend(character.escape_default()),
            false => printed.push(character),
        }
    }

    printed
}

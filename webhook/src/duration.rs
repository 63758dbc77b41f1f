//! Lengths of time as Kubernetes writes them: Go's `1h2m3.5s`, `300ms`.

use std::time::Duration;

use outrigger_shared::duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration; write numbers with units h, m, s or ms, such as 30s, 1m30s or 500ms")]
pub struct NotADuration {
    pub text: String,
}

/// Reads a non-negative Go duration. `0` needs no unit; microseconds and nanoseconds are not taken, nothing here is
/// that fine.
///
/// # Errors
/// [`NotADuration`] when the text has another form, is negative, or does not fit.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    // The characters of numbers and of the units h, m, s and ms.
    let is_coarse = text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's'));
    let read = duration::parse(text).ok().filter(|_| is_coarse);
    read.ok_or_else(|| NotADuration { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_read() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1h", 3_600_000),
            ("2.5s", 2_500),
            ("0", 0),
            ("0s", 0),
            (".5s", 500),
            // Longer than a duration of Go can be.
            ("3000000h", 10_800_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "+1s",
            "1 s",
            "1d",
            "1.2.3s",
            "99999999999999999999h",
            "1µs",
            "1us",
            "1ns",
        ] {
            assert_eq!(parse(text), Err(NotADuration { text: text.to_owned() }));
        }
    }
}

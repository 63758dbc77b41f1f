//! Lengths of time as Kubernetes writes them: Go's `1h2m3.5s`, `300ms`.

use std::time::Duration;

/// Why a text is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no duration; write numbers with units h, m, s or ms, such as 30s, 1m30s or 500ms")]
pub struct NotADuration {
    /// The text as given.
    pub text: String,
}

/// Reads a non-negative Go duration. `0` needs no unit; microseconds and nanoseconds are not taken, nothing here is
/// that fine.
///
/// # Errors
/// [`NotADuration`] when the text has another form, is negative, or does not fit.
pub fn parse(text: &str) -> Result<Duration, NotADuration> {
    let refused = || NotADuration { text: text.to_owned() };
    if text == "0" {
        return Ok(Duration::ZERO);
    }

    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refused)?;
        let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
        let (unit, tail) = unit(&rest[digits..]).ok_or_else(refused)?;
        let part = Duration::try_from_secs_f64(number * unit).map_err(|_| refused())?;
        total = total.checked_add(part).ok_or_else(refused)?;
        rest = tail;
    }

    if text.is_empty() { Err(refused()) } else { Ok(total) }
}

fn unit(text: &str) -> Option<(f64, &str)> {
    [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)]
        .into_iter()
        .find_map(|(name, seconds)| text.strip_prefix(name).map(|tail| (seconds, tail)))
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
            "1 s",
            "1d",
            "1.2.3s",
            "99999999999999999999h",
            "1µs",
        ] {
            assert_eq!(parse(text), Err(NotADuration { text: text.to_owned() }));
        }
    }
}

//! Durations as Go writes them: `15s`, `5m0s`, `1h30m`, `1.5h`, `300ms`, `0`.
//!
//! `kube::core::Duration` reads them too, but it panics if a duration does not fit, and it accepts the empty text. A flag
//! and the query of a request are foreign input, so both have to be errors (`the_parser_of_kube_is_no_replacement`).

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Form,
    MissingUnit(String),
    UnknownUnit(String),
    TooLong,
}

/// Reads a duration without a sign, as Go's `time.ParseDuration` does. Fractions of a nanosecond are cut. Callers limit the
/// units and the length.
///
/// # Errors
/// [`Fault`], also for a sign.
pub fn parse(text: &str) -> Result<Duration, Fault> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(Fault::Form);
    }

    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = split_where(rest, |c| !is_of_number(c));
        let (unit, tail) = split_where(tail, is_of_number);
        if number.is_empty() {
            return Err(Fault::Form);
        }

        let Some(scale) = unit_nanos(unit) else {
            return Err(match unit {
                "" => Fault::MissingUnit(number.to_owned()),
                _ => Fault::UnknownUnit(number.to_owned()),
            });
        };
        let part = scaled(number, scale).ok_or(Fault::Form)?;
        nanos = nanos.saturating_add(part);
        rest = tail;
    }

    let seconds = u64::try_from(nanos / NANOS_OF_SECOND).map_err(|_| Fault::TooLong)?;
    let below = u32::try_from(nanos % NANOS_OF_SECOND).map_err(|_| Fault::TooLong)?;
    Ok(Duration::new(seconds, below))
}

const NANOS_OF_SECOND: u128 = 1_000_000_000;

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// The text before the first such character, and the rest.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_OF_SECOND,
        "m" => 60 * NANOS_OF_SECOND,
        "h" => 3_600 * NANOS_OF_SECOND,
        _ => return None,
    })
}

/// `number` × `scale`, the fraction cut as Go cuts it.
fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 20 {
        return None;
    }

    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let kept = &fraction[..fraction.len().min(18)];
    let part = if kept.is_empty() {
        0
    } else {
        kept.parse::<u128>().ok()? * scale / 10u128.pow(u32::try_from(kept.len()).ok()?)
    };

    whole.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("1ns", 1),
            ("1.5us", 1_500),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("300ms", 300_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1h2m3.5s", 3_723_500_000_000),
            ("0.9999999999s", 999_999_999),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        let longest = Duration::from_secs(u64::MAX);
        assert_eq!(parse("18446744073709551615s"), Ok(longest));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        let missing = |number: &str| Fault::MissingUnit(number.to_owned());
        let unknown = |number: &str| Fault::UnknownUnit(number.to_owned());
        for (text, fault) in [
            ("", Fault::Form),
            ("-1s", Fault::Form),
            ("+1s", Fault::Form),
            ("s", Fault::Form),
            (".s", Fault::Form),
            ("1.2.3s", Fault::Form),
            ("10", missing("10")),
            ("1s5", missing("5")),
            ("1d", unknown("1")),
            ("1 s", unknown("1")),
            ("1e3s", unknown("1")),
            ("18446744073709551616s", Fault::TooLong),
            ("99999999999999999999h", Fault::TooLong),
        ] {
            assert_eq!(parse(text), Err(fault), "{text}");
        }
    }

    /// If this test fails, kube's parser may replace this one.
    #[test]
    fn the_parser_of_kube_is_no_replacement() {
        assert!("".parse::<kube::core::Duration>().is_ok());
        let overlong = std::panic::catch_unwind(|| "99999999999999999999h".parse::<kube::core::Duration>());
        assert!(overlong.is_err(), "{overlong:?}");
    }
}

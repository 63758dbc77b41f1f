//! How a flag's text becomes a value: Go's own syntax, since the command lines were written for a Go program.

use std::collections::BTreeMap;
use std::time::Duration;

use outrigger_shared::duration::{self, Fault};

/// Why a text is not a value of its flag's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(String);

fn bad<T>(text: impl Into<String>) -> Result<T, BadValue> {
    Err(BadValue(text.into()))
}

/// A boolean as Go's `strconv.ParseBool` reads it.
///
/// # Errors
/// Any other spelling; `yes` and `on` are not booleans here.
pub fn boolean(text: &str) -> Result<bool, BadValue> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => bad("expected true or false"),
    }
}

/// A whole number with Go's prefixes (`0x`, `0o`, `0b`, a leading `0` for octal) and `_` between digits.
///
/// # Errors
/// No number, or one that needs more than 64 bits.
pub fn integer(text: &str) -> Result<i64, BadValue> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(prefix, radix)| lower.strip_prefix(prefix).map(|rest| (radix, rest)))
        .or_else(|| {
            lower
                .strip_prefix('0')
                .filter(|rest| !rest.is_empty())
                .map(|rest| (8, rest))
        })
        .unwrap_or((10, lower.as_str()));

    let prefixed = radix != 10;
    let underscores_fit =
        !body.contains("__") && !body.ends_with('_') && (prefixed && !body.is_empty() || !body.contains('_'));
    let body: String = body.chars().filter(|c| *c != '_').collect();
    if body.is_empty() || !underscores_fit || !body.chars().all(|c| c.is_digit(radix)) {
        return bad("expected a whole number");
    }

    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{body}"), radix)
        .map_err(|_| BadValue("the number does not fit in 64 bits".into()))
}

/// A decimal number.
///
/// # Errors
/// No number, or not a finite one.
pub fn float(text: &str) -> Result<f64, BadValue> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => bad("expected a number"),
    }
}

/// A duration as Go writes it: `15s`, `5m0s`, `1h30m`, `1.5h`, `0`.
///
/// # Errors
/// A number without a unit (but `0`), an unknown unit, a negative duration (no flag has a meaning for one),
/// or more than Go's 292 years.
pub fn duration(text: &str) -> Result<Duration, BadValue> {
    const WANTED: &str = "expected a duration such as 300ms, 15s, 5m0s or 1h30m";
    const TOO_LONG: &str = "the duration is longer than 292 years";

    let body = text.strip_prefix('+').unwrap_or(text);
    if body.starts_with('-') {
        return if body == "-0" {
            Ok(Duration::ZERO)
        } else {
            bad("a duration here cannot be negative")
        };
    }

    let read = duration::parse(body).map_err(|fault| match fault {
        Fault::Form => BadValue(WANTED.into()),
        Fault::MissingUnit(number) => BadValue(format!("{WANTED}; {number:?} is missing its unit")),
        Fault::UnknownUnit(number) => BadValue(format!("{WANTED}; {number:?} has an unknown unit")),
        Fault::TooLong => BadValue(TOO_LONG.into()),
    })?;
    match i64::try_from(read.as_nanos()) {
        Ok(_) => Ok(read),
        Err(_) => bad(TOO_LONG),
    }
}

/// A duration in Go's own notation, for help and documents.
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_nanos() != 0 {
        return format!("{}ms", duration.as_millis());
    }

    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// The elements of one comma-separated value, with CSV's double quotes.
///
/// # Errors
/// A quote that is not closed, or one inside an unquoted element.
pub fn list(text: &str) -> Result<Vec<String>, BadValue> {
    if text.is_empty() {
        return Ok(Vec::new());
    }

    let mut elements = Vec::new();
    let mut rest = text;
    loop {
        let (element, tail) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_element(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (element, tail) = rest.split_at(end);
                if element.contains('"') {
                    return bad("a double quote may only enclose a whole element");
                }
                (element.to_owned(), tail)
            }
        };

        elements.push(element);
        match tail.strip_prefix(',') {
            Some(more) => rest = more,
            None if tail.is_empty() => return Ok(elements),
            None => return bad("only a comma may follow a quoted element"),
        }
    }
}

fn quoted_element(text: &str) -> Result<(String, &str), BadValue> {
    let mut element = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        element.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                element.push('"');
                rest = more;
            }
            None => return Ok((element, rest)),
        }
    }

    bad("a double quote is not closed")
}

/// `key=value` pairs, comma separated.
pub fn pairs(text: &str) -> Result<BTreeMap<String, String>, BadValue> {
    list(text)?
        .into_iter()
        .map(|element| match element.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.to_owned())),
            None => bad(format!("{element:?} must be written key=value")),
        })
        .collect()
}

/// `Name=true|false` pairs, comma separated.
///
/// # Errors
/// An element without `=`, or whose value is not a boolean.
pub fn booleans(text: &str) -> Result<BTreeMap<String, String>, BadValue> {
    let pairs = pairs(text)?;
    for (name, value) in &pairs {
        boolean(value.trim()).map_err(|problem| BadValue(format!("{name}={value}: {problem}")))?;
    }
    Ok(pairs)
}

/// A number within its bounds.
pub fn bounded(number: i64, min: i64, max: i64) -> Result<i64, BadValue> {
    if number < min {
        return bad(format!("must be at least {min}"));
    }
    if number > max {
        return bad(format!("must be at most {max}"));
    }
    Ok(number)
}

/// A number that is not negative.
pub fn at_least_zero(number: f64) -> Result<f64, BadValue> {
    if number < 0.0 {
        bad("must be at least 0")
    } else {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("15s", 15_000),
            ("5m0s", 300_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("300ms", 300),
            ("+2s", 2_000),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "15", "s", ".s", "1.2.3s", "5 m", "-5s", "1d", "9999999999h", "1e3s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_says_so() {
        assert!(duration("15").unwrap_err().to_string().contains("missing its unit"));
        assert!(duration("1d").unwrap_err().to_string().contains("unknown unit"));
        for overlong in ["2562048h", "9999999999h", "99999999999999999999h"] {
            assert!(
                duration(overlong).unwrap_err().to_string().contains("292 years"),
                "{overlong}"
            );
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        assert_eq!(go_duration(Duration::from_secs(15)), "15s");
        assert_eq!(go_duration(Duration::from_secs(300)), "5m0s");
        assert_eq!(go_duration(Duration::from_secs(12 * 3600)), "12h0m0s");
        assert_eq!(go_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn integers_take_gos_prefixes() {
        for (text, value) in [
            ("10", 10),
            ("-3", -3),
            ("0x1F", 31),
            ("0b101", 5),
            ("017", 15),
            ("0o17", 15),
            ("0", 0),
        ] {
            assert_eq!(integer(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "-",
            "0x",
            "1.5",
            "ten",
            "1_",
            "1_000",
            "99999999999999999999",
            "--1",
            "+-1",
            "08",
        ] {
            assert!(integer(text).is_err(), "{text}");
        }
        assert_eq!(integer("-9223372036854775808"), Ok(i64::MIN));
    }

    #[test]
    fn lists_split_at_commas_outside_quotes() {
        assert_eq!(list("a,b,,c").unwrap(), ["a", "b", "", "c"]);
        assert_eq!(list(r#""a,b",c"#).unwrap(), ["a,b", "c"]);
        assert_eq!(list(r#""say ""hi""""#).unwrap(), [r#"say "hi""#]);
        assert_eq!(list("").unwrap(), Vec::<String>::new());
        assert!(list(r#""open"#).is_err());
        assert!(list(r#"a"b"#).is_err());
        assert!(list(r#""a"b"#).is_err());
    }

    #[test]
    fn a_map_element_needs_an_equals_sign() {
        assert_eq!(
            pairs("a=1,b=x=y").unwrap(),
            BTreeMap::from([("a".into(), "1".into()), ("b".into(), "x=y".into())])
        );
        assert!(pairs("a").unwrap_err().to_string().contains("key=value"));
    }
}

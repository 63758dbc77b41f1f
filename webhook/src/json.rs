//! JSON as an API server writes it, and nothing looser: no key twice, no bottomless nesting.
//!
//! Two readers that disagree on which of two equal keys counts can be played off against each other, and nesting costs
//! stack. Kubernetes' own objects have neither.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Levels of objects and arrays that are read. Kubernetes' deepest built-in types use less than half of it.
pub const MAX_DEPTH: usize = 64;

/// Reads one JSON text with at most `max_depth` levels and no key twice in one object.
///
/// # Errors
/// The message of [`serde_json::Error`] names what is wrong and where, never a value.
pub fn parse(text: &str, max_depth: usize) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict { left: max_depth }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict {
    left: usize,
}

impl Strict {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| E::custom("objects and arrays are nested too deeply"))?;
        Ok(Self { left })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(inner)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(inner)?;
            if values.insert(key, value).is_some() {
                return Err(A::Error::custom("a key occurs twice in one object"));
            }
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_equals_what_serde_json_reads() {
        let text = r#"{"a":[1,-2,3.5,true,null,"x\n"],"b":{"c":{}},"big":18446744073709551615}"#;
        assert_eq!(
            parse(text, MAX_DEPTH).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
    }

    #[test]
    fn a_key_twice_is_refused_at_any_level() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"x":{"a":1,"b":2,"a":3}}]"#] {
            assert!(
                parse(text, MAX_DEPTH).unwrap_err().to_string().contains("twice"),
                "{text}"
            );
        }
    }

    #[test]
    fn nesting_is_read_to_the_limit_and_refused_past_it() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&nested(MAX_DEPTH), MAX_DEPTH).is_ok());
        assert!(
            parse(&nested(MAX_DEPTH + 1), MAX_DEPTH)
                .unwrap_err()
                .to_string()
                .contains("too deeply")
        );
        assert!(parse(&"[".repeat(1_000_000), MAX_DEPTH).is_err());
    }

    #[test]
    fn text_after_the_value_is_refused() {
        assert!(parse("{} x", MAX_DEPTH).is_err());
    }
}

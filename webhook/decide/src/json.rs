//! Strict JSON, as an API server writes it: no duplicate keys, limited nesting, limited memory and work.
//!
//! Parsers disagree on which of two equal keys counts, which an attacker can exploit, and nesting costs stack.
//! Kubernetes objects have neither.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use outrigger_shared::work::{self, WorkExceeded};

/// Maximum nesting.
///
/// A workload of a real control plane has 13, its managed fields a few more; the deepest object that a provisioner's
/// `CustomResourceDefinition` describes has 14, the definition itself, which is never reviewed, 31. An API server passes on far
/// deeper ones, since free-form fields of custom resources may nest 10,000 times: such an object passes unchanged, with a
/// warning. A level costs a few hundred bytes of stack, so twice as many as anything real has are no danger.
pub const MAX_DEPTH: usize = 64;

/// Bytes of one value in an array; arrays grow by doubling, so half of the slots may be empty.
const ELEMENT: usize = 2 * size_of::<Value>();
/// Bytes of one entry in an object, without the letters of its key: key, value, and a share of a half-full tree node.
const ENTRY: usize = 2 * (size_of::<String>() + size_of::<Value>());
/// Bytes of the first entry in addition: a tree node has eleven slots.
const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>()) - ENTRY;
/// Steps of a value, with the passes over it that every rule makes: of an update with thousands of arguments, each takes
/// 0.3 µs, of most other objects 0.1 µs.
const STEPS_PER_VALUE: usize = 16;
/// Bytes of a string that cost one step.
const BYTES_PER_STEP: usize = 128;
/// Bytes of a string without its letters.
const STRING: usize = 16;

/// Memory for the values of texts.
pub trait Memory {
    /// Takes memory for good, before it is allocated.
    ///
    /// # Errors
    /// [`MemoryExceeded`] if there is less.
    fn take(&self, bytes: usize) -> Result<(), MemoryExceeded>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryExceeded;

/// For trusted texts.
struct Unbounded;

impl Memory for Unbounded {
    fn take(&self, _: usize) -> Result<(), MemoryExceeded> {
        Ok(())
    }
}

/// Reads one JSON text with at most `max_depth` levels and no key twice in one object.
///
/// # Errors
/// The message of [`serde_json::Error`] names what is wrong and where, never a value.
pub fn parse(text: &str, max_depth: usize) -> Result<Value, serde_json::Error> {
    parse_within(text, max_depth, &Unbounded)
}

/// Like [`parse`], but takes memory from `memory`: for untrusted texts.
///
/// # Errors
/// The message of [`serde_json::Error`] names what is wrong and where, never a value.
pub fn parse_within(text: &str, max_depth: usize, memory: &dyn Memory) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict {
        left: max_depth,
        memory,
    }
    .deserialize(&mut reader)?;

    reader.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict<'r> {
    left: usize,
    memory: &'r dyn Memory,
}

impl Strict<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        work::take(STEPS_PER_VALUE + bytes / BYTES_PER_STEP).map_err(|exceeded: WorkExceeded| E::custom(exceeded))?;
        self.memory
            .take(bytes)
            .map_err(|MemoryExceeded| E::custom("objects and arrays have more entries than there is memory for"))
    }

    fn deeper<E: Error>(self) -> Result<Self, E> {
        let left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| E::custom("objects and arrays are nested too deeply"))?;
        Ok(Self { left, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
        self.take(STRING + value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.take(STRING + value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(inner)? {
            self.take(ELEMENT)?;
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let node = if values.is_empty() { NODE } else { 0 };
            self.take(node + ENTRY + STRING + key.len())?;
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
    use std::cell::Cell;

    use super::*;

    struct Left(Cell<usize>);

    impl Memory for Left {
        fn take(&self, bytes: usize) -> Result<(), MemoryExceeded> {
            self.0.set(self.0.get().checked_sub(bytes).ok_or(MemoryExceeded)?);
            Ok(())
        }
    }

    #[test]
    fn what_would_grow_past_the_room_is_not_read() {
        let small = |text: &str| parse_within(text, MAX_DEPTH, &Left(Cell::new(100_000)));
        for piece in [r#"{"a":0}"#, "0", "\"\"", "[0]"] {
            let text = |times| format!("[{}]", vec![piece; times].join(","));
            assert!(small(&text(100)).is_ok(), "{piece}");
            let error = small(&text(5000)).unwrap_err().to_string();
            assert!(error.contains("memory"), "{piece}: {error}");
        }
        let keys = |times| {
            format!(
                "{{{}}}",
                (0..times).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",")
            )
        };
        assert!(small(&keys(100)).is_ok() && small(&keys(1000)).is_err());
        assert!(small(&format!("\"{}\"", "x".repeat(100_001))).is_err());
    }

    /// An object must be written as it was read.
    #[test]
    fn a_number_with_seventeen_digits_keeps_the_last_one() {
        for text in ["-2.4986347232196154e+240", "0.30000000000000004", "5e-324"] {
            let read = parse(text, MAX_DEPTH).unwrap();
            assert_eq!(read.as_f64(), text.parse().ok(), "{text}");
        }
    }

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

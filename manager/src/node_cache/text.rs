//! Text that many Nodes share.
//!
//! Thousands of Nodes say the same few hundred things: keys of labels, types, zones, reasons. Each is kept once.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// Text that never changes. Clones share it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Arc<str>);

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.into())
    }
}

/// The minimum number of texts for a sweep of unused ones.
const SWEEP_FROM: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Texts {
    known: HashSet<Text>,
    left: usize,
}

impl Texts {
    /// Makes `text` share with all equal ones.
    pub(super) fn share(&mut self, text: &mut Text) {
        if let Some(known) = self.known.get(&**text) {
            *text = known.clone();
            return;
        }

        if self.known.len() >= SWEEP_FROM.max(2 * self.left) {
            self.known.retain(|known| Arc::strong_count(&known.0) > 1);
            self.left = self.known.len();
        }

        self.known.insert(text.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_texts_that_nobody_uses_go() {
        let mut texts = Texts::default();
        let (mut one, mut two) = (Text::from("zone"), Text::from("zone"));
        texts.share(&mut one);
        texts.share(&mut two);
        assert!(Arc::ptr_eq(&one.0, &two.0));
        for number in 0..3 * SWEEP_FROM {
            texts.share(&mut Text::from(number.to_string()));
        }
        assert!(texts.known.len() <= SWEEP_FROM + 1, "{}", texts.known.len());
        assert!(texts.known.contains("zone"), "what is in use stays");
    }
}

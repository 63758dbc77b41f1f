//! Random numbers that repeat, and the texts, keys and values that Go and Rust write differently.

use serde_json::{Map, Value, json};

/// `SplitMix64`: <https://prng.di.unimi.it/splitmix64.c>.
pub struct Random(u64);

impl Random {
    pub fn of_case(number: usize) -> Self {
        Self(
            u64::try_from(number)
                .unwrap_or(u64::MAX)
                .wrapping_mul(0xd134_2543_de82_ef95),
        )
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(end).unwrap_or(0)).unwrap_or(0)
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A text of such characters.
    pub fn text(&mut self) -> String {
        const PARTS: [&str; 20] = [
            "<",
            ">",
            "&",
            "\u{2028}",
            "\u{2029}",
            "\u{0}",
            "\u{1}",
            "\u{8}",
            "\u{c}",
            "\u{1f}",
            "\u{7f}",
            "\"",
            "\\",
            "/",
            "~",
            "\u{e9}",
            "\u{1f600}",
            "\u{fffd}",
            "a",
            " ",
        ];
        let length = self.below(6);
        (0..length).map(|_| self.pick(&PARTS)).collect()
    }

    /// A text that is one line of a YAML comment.
    pub fn line(&mut self) -> String {
        const PARTS: [&str; 8] = [
            "<",
            ">",
            "&",
            "see <https://example.org/?a=1&b=2>",
            "\u{e9}",
            "a && b 2>&1",
            ">-",
            "#",
        ];
        let length = 1 + self.below(4);
        (0..length).map(|_| self.pick(&PARTS)).collect::<Vec<_>>().join(" ")
    }

    pub fn key(&mut self) -> String {
        const KEYS: [&str; 12] = ["", "~", "/", "~0", "~1", "a/b", "a~b", "0", "-", "a", "<&>", "\u{2028}"];
        match self.below(3) {
            0 => self.text(),
            _ => self.pick(&KEYS).to_owned(),
        }
    }

    fn number(&mut self) -> Value {
        // Not -0: an API server reads it as -0.0 in an object, and as 0 when it reads its own text again.
        const NUMBERS: [&str; 16] = [
            "0",
            "1.0",
            "0.1",
            "1e3",
            "1e21",
            "1e-7",
            "1.7976931348623157e308",
            "5e-324",
            "0.30000000000000004",
            "9007199254740993",
            "9223372036854775807",
            "-9223372036854775808",
            "9223372036854775808",
            "18446744073709551615",
            "123456789012345678901234567890",
            "3.141592653589793",
        ];
        let text = match self.below(4) {
            0 => f64::from_bits(self.next()).to_string(),
            _ => self.pick(&NUMBERS).to_owned(),
        };
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Any value, at most so deep.
    pub fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => self.number(),
            3 | 4 => json!(self.text()),
            5 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => Value::Object(self.object(depth - 1)),
        }
    }

    pub fn object(&mut self, depth: usize) -> Map<String, Value> {
        (0..self.below(4)).map(|_| (self.key(), self.value(depth))).collect()
    }
}

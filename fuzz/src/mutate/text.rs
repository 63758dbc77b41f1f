//! Text with words of its own language.

use super::bytes;
use crate::random::Random;

/// Strings that readers stumble over: empty, blank, signs of other languages, letters of two and four bytes, long ones.
pub const ODD: [&str; 20] = [
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "ü",
    "𝔘",
    "\u{2028}",
    "\"",
    "'",
    "\\",
    "~",
    "~1",
    "/",
    "*",
    "&a *a",
    "-1",
    "99999999999999999999",
];

/// One change: a word put in or in the place of another, a line twice, gone or elsewhere; at times, plain bytes.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let text = match std::str::from_utf8(data) {
        Ok(text) if !random.one_in(6) => text,
        _ => return bytes::mutate(random, data, other),
    };
    let word = if random.one_in(4) || words.is_empty() {
        *random.pick(&ODD)
    } else {
        *random.pick(words)
    };
    let at = boundary(text, random.below(text.len() + 1));
    let mut text = text.to_owned();
    match random.below(6) {
        0 | 1 => text.insert_str(at, word),
        2 => {
            let end = text[at..]
                .find([' ', '\n', '=', ':', ',', '/'])
                .map_or(text.len(), |length| at + length);
            text.replace_range(at..end, word);
        }
        3 => return lines(random, &text, other),
        4 => {
            let most = if random.one_in(20) { 2000 } else { 8 };
            text.insert_str(at, &word.repeat(1 + random.below(most)));
        }
        _ => {
            let end = boundary(&text, (at + 1 + random.below(12)).min(text.len())).max(at);
            text.replace_range(at..end, "");
        }
    }
    text.into_bytes()
}

fn lines(random: &mut Random, text: &str, other: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let others = String::from_utf8_lossy(other);
    let others: Vec<&str> = others.split('\n').collect();
    let (from, to) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(4) {
        0 => lines.swap(from, to),
        1 => lines.insert(to, lines[from]),
        2 => drop(lines.remove(from)),
        _ => lines.insert(to, *random.pick(&others)),
    }
    lines.join("\n").into_bytes()
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

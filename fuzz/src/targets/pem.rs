//! CA bundles and serving pairs as PEM.
//!
//! Promised: no panic; a merged bundle, merged once more, is the same, and can be trusted.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, CA_FILE, CERTIFICATE_FILE, KEY_FILE, Source, Validity, bundle, load, tls};
use tempfile::TempDir;

use super::text;
use crate::features::note;
use crate::mutate;
use crate::random::Random;

/// The time of all inputs: 2030-01-01.
fn now() -> Timestamp {
    Timestamp::from_second(1_893_456_000).unwrap()
}

/// One input: up to three texts, divided by a NUL: certificate or new bundle, key, authority or old bundle.
///
/// # Panics
/// When a promise is broken.
pub fn target(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (certificate, key, authority) = (part(), part(), part());
    if let (Some(new), Some(old)) = (text(certificate), text(authority)) {
        bundles(old, new);
    }
    thread_local! {
        static FOLDER: TempDir = TempDir::new().unwrap();
    }
    FOLDER.with(|folder| {
        for (name, content) in [(CERTIFICATE_FILE, certificate), (KEY_FILE, key), (CA_FILE, authority)] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let source = Source {
            directory: folder.path().to_owned(),
            names: vec!["webhook.outrigger-system.svc".to_owned()],
        };
        match load(&source, &tls::provider(), now()) {
            Ok(pair) => note(&format!("a pair with {} authorities", pair.authority().len().min(3))),
            Err(error) => note(&format!(
                "{} {}",
                error.class(),
                error.to_string().rsplit("tls.").next().unwrap_or_default()
            )),
        }
    });
}

fn bundles(old: &str, new: &str) {
    match bundle::merge(old, new, now()) {
        Err(error) => note(&error.to_string()),
        Ok(merged) => {
            note("merged");
            let again = bundle::merge(&merged, &merged, now()).expect("a merged bundle can be merged");
            assert_eq!(again, merged);
            assert!(
                bundle::merge(old, &merged, now()).is_ok_and(|again| again == merged),
                "merging once more changes the bundle"
            );
        }
    }
    match bundle::roots(new) {
        Err(error) => note(&error.to_string()),
        Ok(store) => note(&format!("{} roots", store.roots.len().min(3))),
    }
}

const WORDS: &[&str] = &[
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN ",
    "-----END",
    "-----",
    "\0",
    "AAAA",
    "====",
    "MIIB",
    "\r\n",
    "-----BEGIN X509 CRL-----\n",
];

/// One change of an input; in a part of them, of a certificate's own bytes below the base64.
#[must_use]
pub fn mutate(random: &mut Random, data: &[u8], other: &[u8]) -> Vec<u8> {
    if random.one_in(2) {
        return within(random, data).unwrap_or_else(|| mutate::bytes::mutate(random, data, other));
    }
    mutate::text::mutate(random, data, other, WORDS)
}

/// Another byte or two in the first block.
fn within(random: &mut Random, data: &[u8]) -> Option<Vec<u8>> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = text(data)?;
    let blocks: Vec<(usize, &str)> = text.match_indices("-----BEGIN ").collect();
    let (start, _) = *blocks.get(random.below(blocks.len()))?;
    let from = start + text[start..].find('\n')? + 1;
    let to = from + text[from..].find("-----END")?;
    let mut der = STANDARD.decode(text[from..to].replace(['\n', '\r'], "")).ok()?;
    for _ in 0..=random.below(2) {
        der = mutate::bytes::mutate(random, &der, &[]);
    }
    Some(format!("{}{}\n{}", &text[..from], STANDARD.encode(der), &text[to..]).into_bytes())
}

/// A pair with its authority, a bundle of two, an authority whose time is over. Keys are new in each run, so none is kept in the
/// tree.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(new_seeds).clone()
}

fn new_seeds() -> Vec<Vec<u8>> {
    let life = |start: Timestamp| Validity::starting(start, Duration::from_secs(86_400));
    let authority = |name: &str, start| Authority::new(name, life(start)).unwrap();
    let (first, second) = (authority("first", now()), authority("second", now()));
    let over = authority("over", Timestamp::from_second(1).unwrap());
    let pair = first
        .issue(&["webhook.outrigger-system.svc", "10.0.0.1", "::1"], life(now()))
        .unwrap();
    let joined = |parts: [&str; 3]| parts.join("\0").into_bytes();
    vec![
        joined([&pair.certificate_pem, &pair.key_pem, first.certificate_pem()]),
        joined([first.certificate_pem(), &pair.key_pem, second.certificate_pem()]),
        joined([second.certificate_pem(), "", over.certificate_pem()]),
        joined([
            &format!("{}{}", first.certificate_pem(), second.certificate_pem()),
            "",
            "",
        ]),
    ]
}

//! CA bundles and serving pairs as PEM.
//!
//! Checks: no panic; merging a merged bundle again changes nothing.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, CA_FILE, CERTIFICATE_FILE, KEY_FILE, Source, Validity, bundle, load};
use tempfile::TempDir;

/// The time of all inputs: 2030-01-01.
fn now() -> Timestamp {
    Timestamp::from_second(1_893_456_000).unwrap()
}

/// Runs one input: up to three texts with a NUL between them: certificate or new bundle, key, authority or old bundle.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (certificate, key, authority) = (part(), part(), part());

    if let (Ok(new), Ok(old)) = (std::str::from_utf8(certificate), std::str::from_utf8(authority)) {
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
        match load(&source, &outrigger_certs::provider(), now()) {
            Ok(pair) => drop(pair.authority()),
            Err(error) => drop((error.class(), error.to_string())),
        }
    });
}

fn bundles(old: &str, new: &str) {
    match bundle::merge(old, new, now()) {
        Err(error) => drop(error.to_string()),
        Ok(merged) => {
            let again = bundle::merge(&merged, &merged, now()).expect("a merged bundle can be merged");
            assert_eq!(again, merged);
            let again = bundle::merge(old, &merged, now());
            let same = again.is_ok_and(|again| again == merged);
            assert!(same, "merging once more changes the bundle");
        }
    }
    match bundle::roots(new) {
        Err(error) => drop(error.to_string()),
        Ok(store) => drop(store),
    }
}

pub const WORDS: &[&str] = &[
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

/// A pair with its authority, a bundle of two, an expired authority. Keys are generated in each run, so that none is in
/// the repository.
pub fn seeds() -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(new_seeds).clone()
}

fn new_seeds() -> Vec<Vec<u8>> {
    let life = |start: Timestamp| Validity::starting(start, Duration::from_secs(86_400));
    let authority = |name: &str, start| Authority::new(name, life(start)).unwrap();
    let (first, second) = (authority("first", now()), authority("second", now()));
    let over = authority("over", Timestamp::from_second(1).unwrap());
    let names = ["webhook.outrigger-system.svc", "10.0.0.1", "::1"];
    let pair = first.issue(&names, life(now())).unwrap();
    let both = [first.certificate_pem(), second.certificate_pem()].concat();
    let joined = |parts: [&str; 3]| parts.join("\0").into_bytes();

    vec![
        joined([&pair.certificate_pem, &pair.key_pem, first.certificate_pem()]),
        joined([first.certificate_pem(), &pair.key_pem, second.certificate_pem()]),
        joined([second.certificate_pem(), "", over.certificate_pem()]),
        joined([&both, "", ""]),
    ]
}

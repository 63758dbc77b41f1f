//! The content of the Secret.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::ByteString;
use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, CA_FILE, CERTIFICATE_FILE, Issued, KEY_FILE, LoadError, Pair, Source};

use super::settings::Settings;

const CA_KEY: &str = "ca.key";
const NEXT_CA: &str = "next-ca.crt";
const NEXT_CA_KEY: &str = "next-ca.key";

pub type Data = BTreeMap<String, ByteString>;

/// The CA, its successor while one is prepared, and the serving certificate.
#[derive(Debug)]
pub struct State {
    pub current: Authority,
    pub next: Option<Authority>,
    /// Absent if it must be issued again: it is missing, expired, broken, of another CA, or lacks a name.
    pub leaf: Option<Leaf>,
    /// The names of a certificate that lacks one of the wanted names: replicas of two releases may want different ones,
    /// and would otherwise issue certificates in turns.
    pub other_names: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Leaf {
    pub issued: Issued,
    pub validity: outrigger_certs::Validity,
}

impl State {
    /// `None` if the data have no CA with its key.
    pub fn read(data: &Data, settings: &Settings, now: Timestamp) -> Option<Self> {
        let current = authority(data, CA_FILE, CA_KEY)?;
        let next = authority(data, NEXT_CA, NEXT_CA_KEY);
        let (leaf, other_names) = leaf(data, &current, settings, now);
        Some(Self {
            current,
            next,
            leaf,
            other_names,
        })
    }

    pub fn data(&self) -> Data {
        let current = self.current.issued();
        let mut data = vec![(CA_FILE, &current.certificate_pem), (CA_KEY, &current.key_pem)];
        if let Some(next) = &self.next {
            data.push((NEXT_CA, &next.issued().certificate_pem));
            data.push((NEXT_CA_KEY, &next.issued().key_pem));
        }
        if let Some(leaf) = &self.leaf {
            data.push((CERTIFICATE_FILE, &leaf.issued.certificate_pem));
            data.push((KEY_FILE, &leaf.issued.key_pem));
        }

        let entry = |(key, text): (&str, &String)| (key.to_owned(), ByteString(text.clone().into_bytes()));
        data.into_iter().map(entry).collect()
    }

    /// The CAs that API servers must trust, as PEM.
    pub fn authorities(&self) -> Vec<&str> {
        let next = self.next.as_ref().map(Authority::certificate_pem);
        [self.current.certificate_pem()].into_iter().chain(next).collect()
    }
}

/// The origin of the certificate in logs and errors, and its names.
pub fn source(namespace: &str, secret: &str, settings: &Settings) -> Source {
    Source {
        directory: PathBuf::from(format!("Secret {namespace}/{secret}")),
        names: settings.names.clone(),
    }
}

fn text(data: &Data, key: &str) -> Option<String> {
    String::from_utf8(data.get(key)?.0.clone()).ok()
}

fn issued(data: &Data, certificate: &str, key: &str) -> Option<Issued> {
    Some(Issued {
        certificate_pem: text(data, certificate)?,
        key_pem: text(data, key)?,
    })
}

fn authority(data: &Data, certificate: &str, key: &str) -> Option<Authority> {
    Authority::from_issued(issued(data, certificate, key)?).ok()
}

fn leaf(data: &Data, current: &Authority, settings: &Settings, now: Timestamp) -> (Option<Leaf>, Vec<String>) {
    let Some(issued) = issued(data, CERTIFICATE_FILE, KEY_FILE) else {
        return (None, Vec::new());
    };

    let provider = outrigger_certs::provider();
    match Pair::from_issued(&source("", "", settings), &issued, &provider, now) {
        Ok(pair) if current.signed(&pair, &provider) => {
            let validity = pair.validity();
            (Some(Leaf { issued, validity }), Vec::new())
        }
        Err(LoadError::WrongName { present, .. }) => (None, present),
        _ => (None, Vec::new()),
    }
}

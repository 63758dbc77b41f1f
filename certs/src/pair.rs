//! A serving pair, and the checks that refuse a pair that no client would accept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use crate::bundle;
use crate::inspect;
use crate::issue::{Issued, Validity};

/// The serving certificate, followed by its intermediates, as PEM.
pub const CERTIFICATE_FILE: &str = "tls.crt";
/// The private key of the serving certificate, as PEM: PKCS#8, PKCS#1 or SEC1, not encrypted.
pub const KEY_FILE: &str = "tls.key";
/// The certificate of the authority, as PEM; may be absent.
pub const CA_FILE: &str = "ca.crt";

/// A Secret holds at most 1 MiB, so a longer file is not a mounted certificate.
pub(crate) const MAX_FILE: u64 = 1024 * 1024;

/// The directory of a serving pair, and the names that it must be valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The directory with [`CERTIFICATE_FILE`], [`KEY_FILE`] and perhaps [`CA_FILE`].
    pub directory: PathBuf,
    /// DNS names and IP addresses under which clients call; the certificate must cover each one. Empty: not checked.
    pub names: Vec<String>,
}

/// Why a serving pair was refused. Each message names the file, the problem and the solution.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}; mount the certificate's Secret there, or check the file's permissions", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is larger than {MAX_FILE} bytes, so it is not a certificate or key; check what is mounted there", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} holds no readable PEM block of type {wanted} ({reason}); it must be PEM, and a key must not be encrypted", path.display())]
    NotPem {
        path: PathBuf,
        wanted: &'static str,
        reason: String,
    },
    #[error("{} holds a CERTIFICATE block that is not an X.509 certificate ({reason}); issue it again", path.display())]
    NotACertificate { path: PathBuf, reason: String },
    #[error("the private key in {} cannot be used; use ECDSA P-256, P-384, Ed25519, or RSA with 2048 bits or more", path.display())]
    BadKey { path: PathBuf, source: rustls::Error },
    #[error("the private key in {} does not belong to the certificate in {}; issue both together", key.display(), certificate.display())]
    KeyMismatch { certificate: PathBuf, key: PathBuf },
    #[error("the certificate in {} is valid from {not_before}, and it is {now}; check this machine's clock", path.display())]
    NotYetValid {
        path: PathBuf,
        not_before: Timestamp,
        now: Timestamp,
    },
    #[error("the certificate in {} expired at {not_after}, and it is {now}; renew it", path.display())]
    Expired {
        path: PathBuf,
        not_after: Timestamp,
        now: Timestamp,
    },
    #[error("the certificate in {} is not valid for {wanted:?}, only for {present:?}; issue it with that subject alternative name", path.display())]
    WrongName {
        path: PathBuf,
        wanted: String,
        present: Vec<String>,
    },
}

impl LoadError {
    /// A short constant name of the error's kind, for a metric's label.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::TooLarge { .. } => "too_large",
            Self::NotPem { .. } => "not_pem",
            Self::NotACertificate { .. } => "not_a_certificate",
            Self::BadKey { .. } => "bad_key",
            Self::KeyMismatch { .. } => "key_mismatch",
            Self::NotYetValid { .. } => "not_yet_valid",
            Self::Expired { .. } => "expired",
            Self::WrongName { .. } => "wrong_name",
        }
    }
}

/// A serving certificate with its key, checked when it was loaded.
#[derive(Debug)]
pub struct Pair {
    certified: Arc<CertifiedKey>,
    authority: Vec<CertificateDer<'static>>,
    validity: Validity,
    names: Vec<String>,
}

impl Pair {
    /// Checks a pair that was read elsewhere, as [`load`](crate::load) does; `source` names its origin in errors.
    ///
    /// # Errors
    /// [`LoadError`] as [`load`](crate::load).
    pub fn from_issued(
        source: &Source,
        issued: &Issued,
        provider: &CryptoProvider,
        now: Timestamp,
    ) -> Result<Self, LoadError> {
        parse(source, &Content::of(issued), provider, now)
    }

    /// The chain and key in the form that rustls serves.
    #[must_use]
    pub const fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }

    /// The certificates of `ca.crt`; empty when the file is absent.
    #[must_use]
    pub fn authority(&self) -> &[CertificateDer<'static>] {
        &self.authority
    }

    /// The end of the certificate's life.
    #[must_use]
    pub const fn not_after(&self) -> Timestamp {
        self.validity.not_after
    }

    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether a client with the CA bundle accepts the certificate at `now`, apart from its names. Expired certificates of
    /// the bundle do not count. A bundle that is no PEM accepts nothing.
    #[must_use]
    pub fn is_trusted_by(&self, bundle: &str, provider: &CryptoProvider, now: Timestamp) -> bool {
        let Ok(trusted) = bundle::valid(bundle, now) else {
            return false;
        };
        let is_in_bundle = self.certified.cert.first().is_some_and(|leaf| trusted.contains(leaf));
        is_in_bundle || self.is_signed_by(trusted, provider, now)
    }

    /// Whether one of the authorities signed the certificate, and it is valid at `at`.
    pub(crate) fn is_signed_by(
        &self,
        authorities: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
        at: Timestamp,
    ) -> bool {
        let [leaf, intermediates @ ..] = self.certified.cert.as_slice() else {
            return false;
        };
        let Ok(parsed) = ParsedCertificate::try_from(leaf) else {
            return false;
        };

        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities);
        let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default()));
        let algorithms = provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, at, algorithms).is_ok()
    }

    /// The DNS names and IP addresses that the certificate is valid for.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Days from `now` until the certificate expires; negative afterwards.
    #[must_use]
    pub fn days_left(&self, now: Timestamp) -> f64 {
        self.validity.not_after.duration_since(now).as_secs_f64() / 86_400.0
    }

    /// Whether a client would accept the certificate at `now`, as far as its dates go.
    #[must_use]
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.validity.not_before <= now && now < self.validity.not_after
    }
}

/// The bytes of a directory as read at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) authority: Option<Vec<u8>>,
}

impl Content {
    pub(crate) fn of(issued: &Issued) -> Self {
        Self {
            certificate: issued.certificate_pem.clone().into_bytes(),
            key: issued.key_pem.clone().into_bytes(),
            authority: None,
        }
    }
}

pub(crate) fn parse(
    source: &Source,
    content: &Content,
    provider: &CryptoProvider,
    now: Timestamp,
) -> Result<Pair, LoadError> {
    let path = source.directory.join(CERTIFICATE_FILE);
    let chain = certificates(&path, &content.certificate)?;
    let authority = match &content.authority {
        Some(bytes) => certificates(&source.directory.join(CA_FILE), bytes)?,
        None => Vec::new(),
    };
    let certified = certify(source, &content.key, chain, provider)?;
    let leaf = &certified.cert[0];
    let facts = inspect::facts(leaf).map_err(|reason| LoadError::NotACertificate {
        path: path.clone(),
        reason,
    })?;
    let Validity { not_before, not_after } = facts.validity;
    if now < not_before {
        return Err(LoadError::NotYetValid { path, not_before, now });
    }
    if now >= not_after {
        return Err(LoadError::Expired { path, not_after, now });
    }
    if let Some(wanted) = uncovered(leaf, &source.names) {
        return Err(LoadError::WrongName {
            path,
            wanted: wanted.to_owned(),
            present: facts.names,
        });
    }

    Ok(Pair {
        certified: Arc::new(certified),
        authority,
        validity: facts.validity,
        names: facts.names,
    })
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let not_pem = |reason| LoadError::NotPem {
        path: path.to_owned(),
        wanted: "CERTIFICATE",
        reason,
    };
    let chain = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| not_pem(pem_reason(&e)))?;
    if chain.is_empty() {
        return Err(not_pem("no such block".to_owned()));
    }

    Ok(chain)
}

fn certify(
    source: &Source,
    key: &[u8],
    chain: Vec<CertificateDer<'static>>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, LoadError> {
    let path = source.directory.join(KEY_FILE);
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| LoadError::NotPem {
        path: path.clone(),
        wanted: "PRIVATE KEY",
        reason: pem_reason(&e),
    })?;

    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => LoadError::KeyMismatch {
            certificate: source.directory.join(CERTIFICATE_FILE),
            key: path,
        },
        rustls::Error::InvalidCertificate(reason) => LoadError::NotACertificate {
            path: source.directory.join(CERTIFICATE_FILE),
            reason: format!("{reason:?}"),
        },
        source => LoadError::BadKey { path, source },
    })
}

/// The reason without the bytes that were read: they may be those of a key.
fn pem_reason(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "no such block",
        pem::Error::MissingSectionEnd { .. } => "the END line is missing, so the file may be cut short",
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        pem::Error::Base64Decode(_) => "the block is not base64",
        _ => "the file cannot be read as PEM",
    }
    .to_owned()
}

fn uncovered<'n>(leaf: &CertificateDer<'_>, names: &'n [String]) -> Option<&'n str> {
    let parsed = ParsedCertificate::try_from(leaf).ok();
    names.iter().map(String::as_str).find(|name| {
        let covered = parsed.as_ref().zip(ServerName::try_from(*name).ok());
        covered.is_none_or(|(certificate, name)| verify_server_name(certificate, &name).is_err())
    })
}

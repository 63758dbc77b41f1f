//! The CA bundle that clients trust while an old and a new authority are both in use.
//!
//! A client that trusts only the new authority rejects replicas that still serve the old certificate, and the other way
//! round. So first the bundle gets both authorities; then, when every client has the bundle, the serving certificate
//! changes; the old authority is removed when none of its certificates is in use.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::inspect;

/// Why a bundle was refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("the {which} CA bundle is not PEM, or a block is cut short; give CERTIFICATE blocks only")]
    NotPem { which: &'static str },
    #[error("certificate {number} of the {which} CA bundle cannot be read ({reason}); remove it")]
    NotACertificate {
        which: &'static str,
        /// Its place, counted from 1.
        number: usize,
        reason: String,
    },
    #[error(
        "certificate {number} of the {which} CA bundle is not a CA certificate; replace it with the certificate of the CA"
    )]
    NotAnAuthority {
        which: &'static str,
        /// Its place, counted from 1.
        number: usize,
    },
    #[error(
        "the new CA bundle holds no certificate that is valid at {now}, so every call would fail; add a valid CA certificate"
    )]
    Empty { now: Timestamp },
}

/// The bundle to hand out while authorities change: the certificates of `new`, then those of `old` that are not among
/// them and have not expired at `now`. Merging the result once more changes nothing.
///
/// # Errors
/// [`BundleError`] when either text is no PEM or holds something else than authorities, or `new` has none that is
/// valid.
pub fn merge(old: &str, new: &str, now: Timestamp) -> Result<String, BundleError> {
    let new = authorities("new", new, now)?;
    if new.is_empty() {
        return Err(BundleError::Empty { now });
    }

    let mut merged: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in new.into_iter().chain(authorities("old", old, now)?) {
        if !merged.contains(&certificate) {
            merged.push(certificate);
        }
    }

    Ok(merged.iter().map(|certificate| encode(certificate)).collect())
}

/// The bundle with which a client that trusts `present` also trusts each authority of `wanted`; `None` if `present` is
/// that bundle, in any order. Expired authorities are removed. A `present` that holds something else than authorities
/// is replaced.
///
/// # Errors
/// [`BundleError`] when `wanted` is refused by [`merge`].
pub fn extend(present: &str, wanted: &str, now: Timestamp) -> Result<Option<String>, BundleError> {
    let merged = merge(present, wanted, now).or_else(|_| merge("", wanted, now))?;
    let before = parse("old", present).unwrap_or_default();
    let after = parse("new", &merged)?;

    let is_same = before.len() == after.len() && after.iter().all(|certificate| before.contains(certificate));
    Ok((!is_same).then_some(merged))
}

/// Whether `bundle` has each certificate of `wanted`. A bundle that cannot be read has none.
#[must_use]
pub fn contains(bundle: &str, wanted: &str) -> bool {
    match (parse("trusted", bundle), parse("wanted", wanted)) {
        (Ok(present), Ok(wanted)) => {
            !wanted.is_empty() && wanted.iter().all(|certificate| present.contains(certificate))
        }
        _ => false,
    }
}

/// The bundle as a store that rustls can verify with.
///
/// # Errors
/// [`BundleError`] when the text is no PEM or a certificate in it cannot anchor a chain.
pub fn roots(pem: &str) -> Result<RootCertStore, BundleError> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in parse("trusted", pem)?.into_iter().enumerate() {
        store.add(certificate).map_err(|error| BundleError::NotACertificate {
            which: "trusted",
            number: index + 1,
            reason: error.to_string(),
        })?;
    }

    Ok(store)
}

/// The certificates of a bundle that have not expired.
pub(crate) fn valid(pem: &str, now: Timestamp) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    let mut all = parse("trusted", pem)?;
    all.retain(|certificate| inspect::facts(certificate).is_ok_and(|facts| now < facts.validity.not_after));
    Ok(all)
}

fn parse(which: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let parsed = parsed.map_err(|_| BundleError::NotPem { which })?;
    if parsed.is_empty() && !pem.trim().is_empty() {
        return Err(BundleError::NotPem { which });
    }
    Ok(parsed)
}

fn authorities(which: &'static str, pem: &str, now: Timestamp) -> Result<Vec<CertificateDer<'static>>, BundleError> {
    let mut valid = Vec::new();
    for (index, certificate) in parse(which, pem)?.into_iter().enumerate() {
        let number = index + 1;
        let facts =
            inspect::facts(&certificate).map_err(|reason| BundleError::NotACertificate { which, number, reason })?;
        if !facts.is_ca {
            return Err(BundleError::NotAnAuthority { which, number });
        }

        if now < facts.validity.not_after {
            valid.push(certificate);
        }
    }

    Ok(valid)
}

/// RFC 7468: base64 in lines of 64 characters between the labels.
fn encode(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 64);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");

    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }

    pem.push_str("-----END CERTIFICATE-----\n");

    pem
}

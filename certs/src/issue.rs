//! Issues an authority, serving certificates and client certificates where no cert-manager does it. ECDSA P-256
//! throughout.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName};
use time::OffsetDateTime;

use crate::inspect;
use crate::pair::Pair;

/// Certificates begin this long before they are issued, because the clocks of a cluster differ a little.
const BACKDATE: Duration = Duration::from_secs(300);
/// X.520 gives a common name at most 64 characters.
const MAX_COMMON_NAME: usize = 64;

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("no name to issue a serving certificate for; give at least one DNS name or IP address")]
    NoNames,
    #[error("{name:?} is neither a DNS name nor an IP address; give a name such as webhook.namespace.svc")]
    BadName { name: String },
    #[error("the certificate is not a CA certificate, or the key belongs to another one; issue a new CA")]
    NotAnAuthority,
    #[error("the validity ends or begins at {at}, which a certificate cannot hold; choose a shorter lifetime")]
    BadDate { at: Timestamp },
    #[error("cannot {operation}")]
    Rcgen {
        operation: &'static str,
        source: rcgen::Error,
    },
}

/// The life of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment at which it is valid.
    pub not_before: Timestamp,
    /// The moment from which it no longer is.
    pub not_after: Timestamp,
}

impl Validity {
    /// A life of `length` from `now` on, begun five minutes earlier for clocks that are behind.
    #[must_use]
    pub fn starting(now: Timestamp, length: Duration) -> Self {
        Self {
            not_before: now.checked_sub(BACKDATE).unwrap_or(Timestamp::MIN),
            not_after: now.checked_add(length).unwrap_or(Timestamp::MAX),
        }
    }

    /// The moment from which a successor is due: two thirds of the life that [`Validity::starting`] was given.
    #[must_use]
    pub fn renewal(&self) -> Timestamp {
        let issued = self.not_before.checked_add(BACKDATE).unwrap_or(Timestamp::MAX);
        let life = Duration::try_from(self.not_after.duration_since(issued)).unwrap_or_default();
        self.not_after.checked_sub(life / 3).unwrap_or(Timestamp::MIN)
    }
}

/// A certificate and its private key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    pub certificate_pem: String,
    /// The private key, PKCS#8. Secret.
    pub key_pem: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// A certificate authority for serving certificates, with its key.
pub struct Authority {
    issued: Issued,
    certificate: CertificateDer<'static>,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// A new authority. Each one gets its own key, and its subject should differ from its predecessor's, so that a
    /// bundle with both stays readable.
    ///
    /// # Errors
    /// [`IssueError`] when the validity cannot be encoded or the key cannot be generated.
    pub fn new(common_name: &str, validity: Validity) -> Result<Self, IssueError> {
        let mut params = params(common_name, validity)?;
        // It signs serving certificates and no other authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];

        let key = new_key()?;
        let certificate = params
            .self_signed(&key)
            .map_err(rcgen("sign the authority's certificate"))?;
        let issued = Issued {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        };

        Ok(Self {
            issued,
            certificate: certificate.der().clone(),
            validity,
            issuer: Issuer::new(params, key),
        })
    }

    /// An existing authority, from its certificate and key.
    ///
    /// # Errors
    /// [`IssueError::Rcgen`] when one of them is invalid, [`IssueError::NotAnAuthority`] when they are not the
    /// certificate and the key of one authority.
    pub fn from_issued(issued: Issued) -> Result<Self, IssueError> {
        let key = KeyPair::from_pem(&issued.key_pem).map_err(rcgen("read the authority's key"))?;
        let certificate = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes())
            .map_err(|_| IssueError::NotAnAuthority)?;
        let facts = inspect::facts(&certificate).map_err(|_| IssueError::NotAnAuthority)?;
        if !facts.is_ca || facts.public_key != key.subject_public_key_info() {
            return Err(IssueError::NotAnAuthority);
        }

        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(rcgen("read the authority's certificate"))?;
        Ok(Self {
            issued,
            certificate,
            validity: facts.validity,
            issuer,
        })
    }

    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether this authority signed the serving certificate of `pair`.
    #[must_use]
    pub fn signed(&self, pair: &Pair, provider: &CryptoProvider) -> bool {
        // Dates are compared elsewhere, so the moment is one at which the certificate is valid.
        pair.is_signed_by(vec![self.certificate.clone()], provider, pair.validity().not_before)
    }

    /// The authority's certificate and key. Everyone with the key can impersonate the webhook to API servers.
    #[must_use]
    pub const fn issued(&self) -> &Issued {
        &self.issued
    }

    /// The authority's certificate, for a `caBundle`.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.issued.certificate_pem
    }

    /// Issues a serving certificate for `names`: DNS names (`NAME.NAMESPACE.svc` is what an API server asks a Service
    /// for) and IP addresses.
    ///
    /// # Errors
    /// [`IssueError`] when there is no name, one is malformed, or signing fails.
    pub fn issue(&self, names: &[&str], validity: Validity) -> Result<Issued, IssueError> {
        let first = names.first().ok_or(IssueError::NoNames)?;
        self.sign(first, names, ExtendedKeyUsagePurpose::ServerAuth, validity)
    }

    /// Issues a client certificate, such as the one that an API server shows to webhooks. `names` are alternative names
    /// beside the common name, and may be none.
    ///
    /// # Errors
    /// [`IssueError`] when a name is malformed, or signing fails.
    pub fn issue_client(&self, common_name: &str, names: &[&str], validity: Validity) -> Result<Issued, IssueError> {
        self.sign(common_name, names, ExtendedKeyUsagePurpose::ClientAuth, validity)
    }

    fn sign(
        &self,
        common_name: &str,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
        validity: Validity,
    ) -> Result<Issued, IssueError> {
        let mut params = params(common_name, validity)?;
        params.subject_alt_names = names
            .iter()
            .map(|name| subject_alt_name(name))
            .collect::<Result<_, _>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;

        let key = new_key()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(rcgen("sign the certificate"))?;
        Ok(Issued {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn params(common_name: &str, validity: Validity) -> Result<CertificateParams, IssueError> {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(
        DnType::CommonName,
        common_name.chars().take(MAX_COMMON_NAME).collect::<String>(),
    );
    params.distinguished_name = subject;
    params.not_before = date(validity.not_before)?;
    params.not_after = date(validity.not_after)?;

    Ok(params)
}

fn date(at: Timestamp) -> Result<OffsetDateTime, IssueError> {
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| IssueError::BadDate { at })
}

fn subject_alt_name(name: &str) -> Result<SanType, IssueError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let bad = || IssueError::BadName { name: name.to_owned() };
    DnsName::try_from(name).map_err(|_| bad())?;
    Ok(SanType::DnsName(name.try_into().map_err(|_| bad())?))
}

fn new_key() -> Result<KeyPair, IssueError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(rcgen("generate a key"))
}

const fn rcgen(operation: &'static str) -> impl FnOnce(rcgen::Error) -> IssueError {
    move |source| IssueError::Rcgen { operation, source }
}

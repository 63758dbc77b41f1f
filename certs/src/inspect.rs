//! Fields of a certificate.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::issue::Validity;

/// The fields of an X.509 certificate that this crate needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub validity: Validity,
    pub is_ca: bool,
    pub names: Vec<String>,
    /// The SubjectPublicKeyInfo, DER.
    pub public_key: Vec<u8>,
}

/// Parses one certificate; the error is the parser's.
pub(crate) fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| e.to_string())?;
    let validity = parsed.validity();
    let extension = parsed.subject_alternative_name().map_err(|e| e.to_string())?;
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);

    Ok(Facts {
        validity: Validity {
            not_before: timestamp(validity.not_before.timestamp())?,
            not_after: timestamp(validity.not_after.timestamp())?,
        },
        is_ca: parsed.is_ca(),
        names: names.filter_map(name).collect(),
        public_key: parsed.public_key().raw.to_vec(),
    })
}

/// The names in a certificate: common names, DNS names, IP addresses and URIs.
///
/// # Errors
/// The parser's error.
pub fn own_names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| e.to_string())?;
    let common = parsed
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();

    let extension = parsed.subject_alternative_name().map_err(|e| e.to_string())?;
    let general = extension.iter().flat_map(|extension| &extension.value.general_names);
    names.extend(general.filter_map(|general| match general {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        other => name(other),
    }));

    Ok(names)
}

/// The user and groups of a certificate, as Kubernetes reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The user: the common name; the last, where there are several, as Go has it.
    pub common_name: Option<String>,
    /// The user's groups: the organizations.
    pub organizations: Vec<String>,
}

/// Reads the subject of one certificate. The certificate must have been verified by the caller.
///
/// # Errors
/// The parser's error.
pub fn subject(certificate: &CertificateDer<'_>) -> Result<Subject, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| e.to_string())?;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    let subject = parsed.subject();
    Ok(Subject {
        common_name: subject.iter_common_name().filter_map(text).last(),
        organizations: subject.iter_organization().filter_map(text).collect(),
    })
}

fn timestamp(seconds: i64) -> Result<Timestamp, String> {
    Timestamp::from_second(seconds).map_err(|e| e.to_string())
}

fn name(general: &GeneralName<'_>) -> Option<String> {
    match general {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<std::net::IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(Into::into),
        16 => <[u8; 16]>::try_from(bytes).ok().map(Into::into),
        _ => None,
    }
}

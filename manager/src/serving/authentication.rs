//! Authentication by the certificate of the connection: of a user, or of a front proxy that names the user in headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use outrigger_serving::PeerCertificates;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::authorization::User;
use crate::args::RequestHeader;

/// Verifies certificates against one set of authorities.
pub(super) type Verifier = Arc<dyn ClientCertVerifier>;

/// The CA bundles for callers. Without a CA bundle, certificates are ignored.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    pub(super) clients: Option<Verifier>,
    pub(super) proxies: Option<Proxies>,
}

/// Front proxies, and where they write whom they speak for.
#[derive(Debug, Clone)]
pub(super) struct Proxies {
    pub(super) verifier: Verifier,
    /// The permitted common names of their certificates (any, if the list is empty), and the names of the headers. Of the
    /// headers for the user name, the first that is present counts; so does the first for the UID. The user is in the
    /// groups of all group headers.
    pub(super) settings: RequestHeader,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    User(User),
    Nothing,
    /// The certificate is not one of those that count here.
    Untrusted,
}

/// A verifier for these authorities in PEM.
pub(super) fn verifier(pem: &str) -> Result<Verifier, String> {
    let roots: RootCertStore = outrigger_certs::bundle::roots(pem).map_err(|error| error.to_string())?;
    let provider = outrigger_certs::provider();
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| error.to_string())
}

impl Trust {
    /// Judges a caller: a front proxy first, then a user.
    pub(super) fn judge(&self, peer: Option<&PeerCertificates>, headers: &HeaderMap, now: UnixTime) -> Said {
        let Some((own, intermediates)) = peer.and_then(|peer| peer.0.split_first()) else {
            return Said::Nothing;
        };

        let verified = |verifier: &Verifier| verifier.verify_client_cert(own, intermediates, now).is_ok();
        let subject = outrigger_certs::subject(own);
        let name = subject.as_ref().ok().and_then(|subject| subject.common_name.clone());
        if let Some(proxies) = &self.proxies
            && verified(&proxies.verifier)
            && proxies.allowed(name.as_deref())
            && let Some(user) = proxies.user(headers)
        {
            return Said::User(user);
        }
        let Some(clients) = &self.clients else {
            return Said::Nothing;
        };

        match (verified(clients), name, subject) {
            (true, Some(name), Ok(subject)) if !name.is_empty() => Said::User(User {
                name,
                uid: None,
                groups: authenticated(subject.organizations),
                extra: BTreeMap::new(),
            }),
            (true, ..) => Said::Nothing,
            (false, ..) => Said::Untrusted,
        }
    }
}

impl Proxies {
    fn allowed(&self, name: Option<&str>) -> bool {
        let names = &self.settings.allowed_names;
        names.is_empty() || name.is_some_and(|name| names.iter().any(|allowed| allowed == name))
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            let mut values = names.iter().flat_map(|name| values(headers, name));
            values.find(|value| !value.is_empty())
        };
        let settings = &self.settings;
        let groups = settings.group_headers.iter().flat_map(|name| values(headers, name));
        Some(User {
            name: first(&settings.username_headers)?,
            uid: first(&settings.uid_headers),
            groups: authenticated(groups.collect()),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::new();
        for name in headers.keys() {
            let mut prefixes = self.settings.extra_headers_prefix.iter();
            let key = prefixes.find_map(|prefix| name.as_str().strip_prefix(&prefix.to_ascii_lowercase()));
            if let Some(key) = key {
                extra.insert(unescaped(key), values(headers, name.as_str()).collect());
            }
        }

        extra
    }
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let values = headers.get_all(name.to_ascii_lowercase()).into_iter();
    values.filter_map(|value| value.to_str().ok().map(str::to_owned))
}

/// Everyone who is known is in this group.
fn authenticated(mut groups: Vec<String>) -> Vec<String> {
    const EVERYONE: &str = "system:authenticated";

    if !groups
        .iter()
        .any(|group| group == EVERYONE || group == "system:unauthenticated")
    {
        groups.push(EVERYONE.to_owned());
    }

    groups
}

/// Header names cannot hold every letter of an attribute's name, so proxies write `%2f` for `/`. Other
/// text is unchanged.
fn unescaped(key: &str) -> String {
    let (bytes, mut out, mut at) = (key.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = key.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(letter) => {
                out.push(letter);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }

    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

/// Certificates of callers in the TLS handshake are requested, never required, and not verified: any is taken whose key
/// the caller has. The authorities change while the process runs, and a caller whose certificate means nothing here may
/// still have a token. So [`Trust`] judges afterwards.
#[derive(Debug)]
pub(super) struct AnyCaller(pub(super) Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCaller {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_are_unescaped() {
        assert_eq!(unescaped("example.org%2fscopes"), "example.org/scopes");
        for odd in ["%", "%2", "100%zz", "%ff"] {
            assert_eq!(unescaped(odd), odd);
        }
    }
}

//! Authentication by the certificate of the connection: of a user, or of a front proxy that names the user in headers.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use outrigger_serving::PeerCertificates;
use rustls::RootCertStore;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::authorization::User;

/// Verifies certificates against one set of authorities.
pub(super) type Verifier = Arc<dyn ClientCertVerifier>;

/// The CA bundles for callers. Without a CA bundle, certificates are ignored.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    /// Authorities of users' certificates.
    pub(super) clients: Option<Verifier>,
    /// Front proxies.
    pub(super) proxies: Option<Proxies>,
}

/// Front proxies, and where they write whom they speak for.
#[derive(Debug, Clone)]
pub(super) struct Proxies {
    /// Authorities of their certificates.
    pub(super) verifier: Verifier,
    /// Common names that they may have; any, when empty.
    pub(super) names: Vec<String>,
    /// Headers of the user's name; the first that is there counts.
    pub(super) user: Vec<String>,
    /// Headers of the user's UID, likewise.
    pub(super) uid: Vec<String>,
    /// Headers of the user's groups, all of them.
    pub(super) groups: Vec<String>,
    /// Beginnings of headers of further attributes.
    pub(super) extra: Vec<String>,
}

/// The result of authentication by certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// This user calls.
    User(User),
    Nothing,
    /// The certificate is not one of those that count here.
    Untrusted,
}

/// A verifier for these authorities in PEM.
///
/// # Errors
/// What is wrong with them.
pub(super) fn verifier(pem: &str) -> Result<Verifier, String> {
    let roots: RootCertStore = outrigger_certs::bundle::roots(pem).map_err(|error| error.to_string())?;
    let provider = outrigger_certs::tls::provider();
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
        self.names.is_empty() || name.is_some_and(|name| self.names.iter().any(|allowed| allowed == name))
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            let mut values = names.iter().flat_map(|name| values(headers, name));
            values.find(|value| !value.is_empty())
        };
        Some(User {
            name: first(&self.user)?,
            uid: first(&self.uid),
            groups: authenticated(self.groups.iter().flat_map(|name| values(headers, name)).collect()),
            extra: self.extra(headers),
        })
    }

    fn extra(&self, headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
        let mut extra = BTreeMap::new();
        for name in headers.keys() {
            let key = self
                .extra
                .iter()
                .find_map(|prefix| name.as_str().strip_prefix(&prefix.to_ascii_lowercase()));
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

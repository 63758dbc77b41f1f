//! TLS settings by the names that Go has for them.

use std::path::PathBuf;

use rustls::{CipherSuite, NamedGroup};

use crate::suggest;

/// A certificate that `--tls-sni-cert-key` names: `CERTIFICATE,KEY` or `CERTIFICATE,KEY:NAME,*.NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Server names that it serves, the first label of which may be `*`; empty means those in the certificate.
    pub names: Vec<String>,
}

/// Go's names of the suites that this program has. Those of TLS 1.3 are always on, as in Go.
const SUITES: [(&str, CipherSuite); 11] = [
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    // Older names of Kubernetes.
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Suites that Go has and this program has not: no forward secrecy, or no authenticated encryption.
const LACKING: [&str; 13] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
];

/// A suite by its name in Go.
///
/// # Errors
/// A suite that this program has not, and a name that means none.
pub fn cipher_suite(name: &str) -> Result<CipherSuite, String> {
    if let Some((_, suite)) = SUITES.iter().find(|(known, _)| *known == name) {
        return Ok(*suite);
    }
    if LACKING.contains(&name) {
        let has: Vec<&str> = SUITES.iter().take(9).map(|(known, _)| *known).collect();
        return Err(format!(
            "this suite is weak, so it is not supported; supported are {}",
            has.join(", ")
        ));
    }

    let hint = suggest::hint(name, SUITES.iter().map(|(known, _)| *known), "");
    Err(format!("no cipher suite has this name{hint}"))
}

/// A key exchange group by its number in Go, which is that of the TLS registry.
///
/// # Errors
/// No number, or that of a group that this program has not.
pub fn curve(number: &str) -> Result<NamedGroup, String> {
    let group = number.parse::<u16>().ok().map(NamedGroup::from);
    let provider = rustls::crypto::aws_lc_rs::ALL_KX_GROUPS;
    match group.filter(|group| provider.iter().any(|known| known.name() == *group)) {
        Some(group) => Ok(group),
        None => {
            let known = provider.iter().map(|group| {
                let name = group.name();
                format!("{} ({name:?})", u16::from(name))
            });
            let known: Vec<String> = known.collect();
            Err(format!(
                "expected the number of a key exchange group: {}",
                known.join(", ")
            ))
        }
    }
}

/// A value of `--tls-sni-cert-key`.
///
/// # Errors
/// Anything but a certificate, a key, and names.
pub fn named_certificate(text: &str) -> Result<NamedCertificate, String> {
    let (files, names) = match text.split_once(':') {
        Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_lowercase()).collect()),
        None => (text, Vec::new()),
    };
    let paths: Vec<&str> = files.split(',').map(str::trim).collect();
    let [certificate, key] = paths[..] else {
        return Err("expected CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME".into());
    };
    if certificate.is_empty() || key.is_empty() {
        return Err("a file is missing: expected CERTIFICATE,KEY".into());
    }

    let is_name = |name: &str| !name.is_empty() && !name.trim_start_matches("*.").contains(['*', ' ', '/']);
    if let Some(name) = names.iter().find(|name: &&String| !is_name(name)) {
        return Err(format!(
            "{name:?} is not a server name such as example.com or *.example.com"
        ));
    }

    Ok(NamedCertificate {
        certificate: certificate.into(),
        key: key.into(),
        names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_go_and_weak_ones_say_what_there_is() {
        let suite = cipher_suite("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305");
        assert_eq!(suite, Ok(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256));
        let provider = outrigger_certs::provider();
        for (name, suite) in SUITES {
            let known = provider.cipher_suites.iter().any(|known| known.suite() == suite);
            assert!(known, "{name}");
        }
        let weak = cipher_suite("TLS_RSA_WITH_AES_128_CBC_SHA").unwrap_err();
        assert!(weak.contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), "{weak}");
        let slip = cipher_suite("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA265").unwrap_err();
        assert!(
            slip.contains("did you mean TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256?"),
            "{slip}"
        );
    }

    #[test]
    fn curves_are_numbers() {
        assert_eq!(curve("29"), Ok(NamedGroup::X25519));
        assert_eq!(curve("4588"), Ok(NamedGroup::X25519MLKEM768));
        for wrong in ["25", "X25519", "", "-1"] {
            assert!(
                curve(wrong).unwrap_err().contains("23 (secp256r1)"),
                "{:?}",
                curve(wrong)
            );
        }
    }

    #[test]
    fn further_certificates_are_two_files_and_names() {
        let read = named_certificate("a.crt, a.key:Example.com,*.example.org").unwrap();
        assert_eq!(read.key, PathBuf::from("a.key"));
        assert_eq!(read.names, ["example.com", "*.example.org"]);
        assert_eq!(named_certificate("a.crt,a.key").unwrap().names, Vec::<String>::new());
        for wrong in ["", "a.crt", "a,b,c", "a,", "a,b:", "a,b:x.*.y", "a,b:x y"] {
            assert!(named_certificate(wrong).is_err(), "{wrong}");
        }
    }
}

//! The CA bundle that `outrigger webhook register` prints as `caBundle`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;

/// Why a bundle is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("it is not PEM, or a block is cut short; give CERTIFICATE blocks only")]
    NotPem,
    #[error("block {number} is {label}; give CERTIFICATE blocks only")]
    OtherBlock {
        /// Its place, counted from 1.
        number: usize,
        label: String,
    },
    #[error("certificate {number} cannot be read ({reason}); remove it")]
    NotACertificate {
        /// Its place, counted from 1.
        number: usize,
        reason: String,
    },
}

/// The value of `caBundle`: the PEM in base64.
///
/// # Errors
/// [`BundleError`] if the text is no PEM, or has anything else than certificates. A private key must not get into a
/// registration, which many may read.
pub fn encode(text: &str) -> Result<String, BundleError> {
    let mut count = 0;
    for (index, block) in Pem::iter_from_buffer(text.as_bytes()).enumerate() {
        let block = block.map_err(|_| BundleError::NotPem)?;
        let number = index + 1;
        if block.label != "CERTIFICATE" {
            let label = block.label;
            return Err(BundleError::OtherBlock { number, label });
        }

        block.parse_x509().map_err(|error| BundleError::NotACertificate {
            number,
            reason: error.to_string(),
        })?;
        count = number;
    }

    match count {
        0 => Err(BundleError::NotPem),
        _ => Ok(STANDARD.encode(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "\
-----BEGIN CERTIFICATE-----
MIIBejCCAR+gAwIBAgIUGZPxcjiuC+kKQU5Hw7wM2qljNeYwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZXhhbXBsZTAeFw0yNjExMzAwNDQ5MDNaFw0zNjExMjcwNDQ5
MDNaMBIxEDAOBgNVBAMMB2V4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAQZHldhHMRK7NwfIubvGWpOXBCymJx9acCG4EsFy5WyekVqgbiBq4T4o250g2g8
5ECyvMdpLSYHkE7t5ujaAFJ8o1MwUTAdBgNVHQ4EFgQUMTgX8cCxnItNviMuOkSm
kfcErQowHwYDVR0jBBgwFoAUMTgX8cCxnItNviMuOkSmkfcErQowDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEA0AwwfuES14+Oz1R2ZsdI/RlkiYoy
NIHpcZkMHzLtkEkCIQCUnp96oplW0sAxYq7eoardJL3x5OQGkRzlKS6vS+ZOVA==
-----END CERTIFICATE-----
";

    #[test]
    fn certificates_are_encoded_as_they_are() {
        for text in [CA.to_owned(), format!("subject=CN = example\r\n{CA}\n{CA}")] {
            assert_eq!(encode(&text), Ok(STANDARD.encode(&text)));
        }
    }

    #[test]
    fn anything_but_certificates_is_refused() {
        for text in ["", "{}", &CA[..200], &CA.replace("MIIB", "?IIB")] {
            assert_eq!(encode(text), Err(BundleError::NotPem), "{text}");
        }

        let key = CA.replace("CERTIFICATE", "PRIVATE KEY");
        let label = "PRIVATE KEY".to_owned();
        let refused = Err(BundleError::OtherBlock { number: 2, label });
        assert_eq!(encode(&format!("{CA}{key}")), refused);

        let other = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n";
        let refused = encode(&format!("{CA}{other}"));
        assert!(
            matches!(refused, Err(BundleError::NotACertificate { number: 2, .. })),
            "{refused:?}"
        );
    }
}

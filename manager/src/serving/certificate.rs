//! The serving certificate: from files, taken up again when they change, or made in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, Validity};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

/// How often the files are compared with what is served: the kubelet swaps mounted Secrets without an event.
const LOOK: Duration = Duration::from_secs(30);
/// Life of a certificate made in memory. It ends with the process in any case.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// There is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {path} (--tls-cert-file, --tls-private-key-file, --cert-dir)")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds no certificate or no key.
    #[error("{path} holds no usable PEM {wanted}: {reason}")]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Certificate and key do not go together.
    #[error("the certificate and the key cannot be served")]
    Pair(#[source] rustls::Error),
    /// None could be made in memory.
    #[error("cannot make a certificate in memory")]
    Issue(#[from] outrigger_certs::IssueError),
}

/// What is served to new connections.
#[derive(Debug)]
pub(super) struct Certificates {
    files: Option<(PathBuf, PathBuf)>,
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificates {
    /// From the files, or for `localhost` and 127.0.0.1 in memory.
    pub(super) fn load(files: &Option<(PathBuf, PathBuf)>, now: Timestamp) -> Result<Self, CertificateError> {
        let current = match files {
            Some((certificate, key)) => from_files(certificate, key)?,
            None => self_signed(now)?,
        };
        Ok(Self {
            files: files.clone(),
            current: RwLock::new(current),
        })
    }

    /// Compares the files with what is served, until `stop`. A pair that cannot be served is reported, and the old
    /// one stays.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        let Some((certificate, key)) = self.files.clone() else {
            return;
        };
        while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            let (certificate, key) = (certificate.clone(), key.clone());
            match tokio::task::spawn_blocking(move || from_files(&certificate, &key)).await {
                Ok(Ok(fresh)) => self.take_up(fresh),
                Ok(Err(error)) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "keeping the old certificate");
                }
                Err(error) => tracing::error!(%error, "looking at the certificate failed; keeping the old one"),
            }
        }
    }

    fn take_up(&self, fresh: (Vec<u8>, Arc<CertifiedKey>)) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.0 != fresh.0 {
            tracing::info!("the serving certificate changed and is in use");
            *current = fresh;
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(
            &self.current.read().unwrap_or_else(PoisonError::into_inner).1,
        ))
    }
}

fn from_files(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Arc<CertifiedKey>), CertificateError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| CertificateError::Unreadable {
            path: path.to_owned(),
            source,
        })
    };
    let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
    let certified = certified(&chain_pem, certificate, &key_pem, key)?;
    Ok(([chain_pem, key_pem].concat(), certified))
}

fn self_signed(now: Timestamp) -> Result<(Vec<u8>, Arc<CertifiedKey>), CertificateError> {
    let validity = Validity::starting(now, LIFE);
    let authority = Authority::new("outrigger-manager", validity)?;
    let issued = authority.issue(&["localhost", "127.0.0.1"], validity)?;
    let memory = Path::new("(in memory)");
    let chain = issued.certificate_pem.into_bytes();
    let certified = certified(&chain, memory, issued.key_pem.as_bytes(), memory)?;
    Ok((chain, certified))
}

fn certified(
    chain_pem: &[u8],
    chain_path: &Path,
    key_pem: &[u8],
    key_path: &Path,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let not_pem = |path: &Path, wanted, reason: String| CertificateError::NotPem {
        path: path.to_owned(),
        wanted,
        reason,
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<_, _>>()
        .map_err(|error| not_pem(chain_path, "certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(not_pem(chain_path, "certificate", "no block CERTIFICATE".into()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| not_pem(key_path, "private key", error.to_string()))?;
    let certified = CertifiedKey::from_der(chain, key, &outrigger_certs::tls::provider());
    certified.map(Arc::new).map_err(CertificateError::Pair)
}

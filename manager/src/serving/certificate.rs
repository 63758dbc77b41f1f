//! The serving certificate: from files, taken up again when they change, or made in memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, Validity};
use outrigger_shared::limited_file;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use crate::args::NamedCertificate;

/// How often the files are compared with what is served: the kubelet swaps mounted Secrets without an event.
const LOOK: Duration = Duration::from_secs(30);
/// Life of a certificate made in memory. It ends with the process in any case.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read {path} (--tls-cert-file, --tls-private-key-file, --cert-dir, --tls-sni-cert-key)")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no usable PEM {wanted}: {reason}")]
    NotPem {
        path: PathBuf,
        wanted: &'static str,
        reason: String,
    },
    #[error("the certificate and the key cannot be served")]
    Pair(#[source] rustls::Error),
    #[error("cannot create a self-signed certificate")]
    Issue(#[from] outrigger_certs::IssueError),
}

#[derive(Debug)]
pub(super) struct Certificates {
    main: Slot,
    /// Further ones (`--tls-sni-cert-key`), each with the names that its flag gives.
    named: Vec<(Vec<String>, Slot)>,
}

/// One certificate and the files it came from.
#[derive(Debug)]
struct Slot {
    files: Option<(PathBuf, PathBuf)>,
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificates {
    /// From the files, or for `localhost` and 127.0.0.1 in memory; and the further ones.
    pub(super) fn load(
        files: Option<(PathBuf, PathBuf)>,
        further: &[NamedCertificate],
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let main = match files {
            Some(files) => Slot::from_files(files)?,
            None => Slot {
                files: None,
                current: RwLock::new(self_signed(now)?),
            },
        };
        let named = further.iter().map(|further| {
            let slot = Slot::from_files((further.certificate.clone(), further.key.clone()))?;
            Ok((further.names.clone(), slot))
        });
        Ok(Self {
            main,
            named: named.collect::<Result<_, CertificateError>>()?,
        })
    }

    /// Compares the files with what is served, until `stop`. A pair that cannot be served is reported, and the old
    /// one stays.
    pub(super) async fn watch(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            for slot in self.slots() {
                slot.look().await;
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.main).chain(self.named.iter().map(|(_, slot)| slot))
    }

    /// The certificate for a server name, by upstream's rules: names that a flag gives go before those in a certificate, whole
    /// names before `*`, earlier flags before later ones.
    fn of(&self, name: &str) -> Arc<CertifiedKey> {
        let name = name.to_lowercase();
        let any = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let wanted = std::iter::once(&name).chain(&any);

        for wanted in wanted.clone() {
            if let Some((_, slot)) = self.named.iter().find(|(names, _)| names.contains(wanted)) {
                return slot.key();
            }
        }

        let unnamed = self.named.iter().filter(|(names, _)| names.is_empty());
        let keys: Vec<Arc<CertifiedKey>> = unnamed.map(|(_, slot)| slot.key()).collect();
        for wanted in wanted {
            let held = |key: &&Arc<CertifiedKey>| {
                // It was parsed when it was loaded; what cannot be read has no names.
                let names = key.cert.first().and_then(|leaf| outrigger_certs::own_names(leaf).ok());
                names.is_some_and(|names| names.iter().any(|name| name.eq_ignore_ascii_case(wanted)))
            };
            if let Some(key) = keys.iter().find(held) {
                return Arc::clone(key);
            }
        }

        self.main.key()
    }
}

impl Slot {
    fn from_files(files: (PathBuf, PathBuf)) -> Result<Self, CertificateError> {
        Ok(Self {
            current: RwLock::new(from_files(&files.0, &files.1)?),
            files: Some(files),
        })
    }

    fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    async fn look(&self) {
        let Some((certificate, key)) = self.files.clone() else {
            return;
        };
        match tokio::task::spawn_blocking(move || from_files(&certificate, &key)).await {
            Ok(Ok(fresh)) => self.take_up(fresh),
            Ok(Err(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "keeping the old certificate");
            }
            Err(error) => tracing::error!(%error, "failed to reload the certificate; keeping the old one"),
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
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            hello
                .server_name()
                .map_or_else(|| self.main.key(), |name| self.of(name)),
        )
    }
}

fn from_files(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Arc<CertifiedKey>), CertificateError> {
    let read = |path: &Path| {
        limited_file::read(path).map_err(|source| CertificateError::Unreadable {
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
    let certified = CertifiedKey::from_der(chain, key, &outrigger_certs::provider());
    certified.map(Arc::new).map_err(CertificateError::Pair)
}

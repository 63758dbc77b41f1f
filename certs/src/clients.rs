//! Verification of client certificates: their authorities, and the names that are allowed.
//!
//! An authority alone is a wide fence where it is the cluster's own: every kubelet and every administrator has a
//! certificate of it. The names narrow it to the API server.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::bundle::{self, BundleError};
use crate::inspect;
use crate::load;
use crate::pair::LoadError;

/// A refused caller is logged at most this often, because anyone who reaches the port can cause refusals.
const LOG_EVERY: u64 = 10;

/// Why callers cannot be checked. Each message names the file.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    #[error("cannot read the CA bundle for client certificates")]
    Read(#[from] LoadError),
    #[error("{} holds no CA certificate to verify client certificates; add one", path.display())]
    Bundle { path: PathBuf, source: BundleError },
    #[error("{} has no usable CA certificate to verify client certificates ({reason}); add its CERTIFICATE block", path.display())]
    Unusable { path: PathBuf, reason: String },
}

type Verifier = Arc<dyn ClientCertVerifier>;

/// Checks the certificates of callers against a file of authorities, which it follows, and against a list of names.
pub struct Clients {
    file: PathBuf,
    names: Vec<String>,
    provider: Arc<CryptoProvider>,
    current: RwLock<Verifier>,
    seen: Mutex<Seen>,
    failures: AtomicU64,
    logged: AtomicU64,
}

struct Seen {
    content: Vec<u8>,
    failing: bool,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("file", &self.file)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Clients {
    /// Callers with a certificate of an authority in the PEM file `file`. With `names`, the certificate's common name
    /// or one of its alternative names must be among them, letter by letter. Blocks on the file system.
    ///
    /// # Errors
    /// [`ClientsError`] when the file cannot be read or holds no authority.
    pub fn load(file: PathBuf, names: Vec<String>, provider: Arc<CryptoProvider>) -> Result<Self, ClientsError> {
        let content = load::read_file(file.clone())?;
        let verifier = verifier(&file, &content, &provider)?;
        Ok(Self {
            file,
            names,
            provider,
            current: RwLock::new(verifier),
            seen: Mutex::new(Seen {
                content,
                failing: false,
            }),
            failures: AtomicU64::new(0),
            logged: AtomicU64::new(0),
        })
    }

    /// Failed reads of the file since the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Reads the file once and uses its authorities; keeps the previous ones if it holds none. Returns whether they
    /// were replaced. Blocks on the file system.
    ///
    /// # Errors
    /// [`ClientsError`] as [`Clients::load`]; it is counted, and logged when it begins.
    pub fn check(&self) -> Result<bool, ClientsError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let looked = self.look(&seen.content);
        match &looked {
            Ok(Some((content, verifier))) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(verifier);
                seen.content.clone_from(content);
                tracing::info!(file = %self.file.display(), "replaced client CA certificates");
            }
            Ok(None) => {}
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if !seen.failing {
                    let cause = std::error::Error::source(error).map(ToString::to_string);
                    tracing::error!(%error, cause, "cannot read client CA certificates; keeping the previous ones");
                }
            }
        }

        seen.failing = looked.is_err();

        looked.map(|found| found.is_some())
    }

    fn look(&self, known: &[u8]) -> Result<Option<(Vec<u8>, Verifier)>, ClientsError> {
        let content = load::read_file(self.file.clone())?;
        if content == known {
            return Ok(None);
        }
        let verifier = verifier(&self.file, &content, &self.provider)?;
        Ok(Some((content, verifier)))
    }

    /// Reads the file every `interval` until `stop`.
    pub async fn run(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let clients = Arc::clone(&self);
            // `check` counts and logs the result.
            let look = tokio::task::spawn_blocking(move || clients.check().is_ok());
            if let Err(error) = look.await {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "reading client CA certificates ended abnormally");
            }
        }
    }

    fn current(&self) -> Verifier {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn named(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.names.is_empty() {
            return Ok(());
        }

        let present =
            inspect::own_names(certificate).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if present.iter().any(|name| self.names.contains(name)) {
            return Ok(());
        }

        // This error sends the alert "access denied", which is more specific than "bad certificate".
        Err(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }

    fn report(&self, certificate: &CertificateDer<'_>, error: &Error, now: UnixTime) {
        let last = self.logged.load(Ordering::Relaxed);
        if last != 0 && now.as_secs() < last.saturating_add(LOG_EVERY) {
            return;
        }

        // Of several refusals at the same time one is logged.
        let swap = self
            .logged
            .compare_exchange(last, now.as_secs(), Ordering::Relaxed, Ordering::Relaxed);
        if swap.is_ok() {
            let names = inspect::own_names(certificate).unwrap_or_default();
            tracing::warn!(%error, ?names, wanted = ?self.names, "refused client certificate");
        }
    }
}

impl ClientCertVerifier for Clients {
    // No hints: they would have to outlive a change of the authorities, and an API server sends the one certificate it
    // has.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.current().verify_client_cert(end_entity, intermediates, now);
        let verified = verified.and_then(|verified| self.named(end_entity).map(|()| verified));
        if let Err(error) = &verified {
            self.report(end_entity, error, now);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

fn verifier(file: &Path, content: &[u8], provider: &Arc<CryptoProvider>) -> Result<Verifier, ClientsError> {
    let roots = bundle::roots(&String::from_utf8_lossy(content)).map_err(|source| ClientsError::Bundle {
        path: file.to_owned(),
        source,
    })?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| ClientsError::Unusable {
            path: file.to_owned(),
            reason: error.to_string(),
        })
}

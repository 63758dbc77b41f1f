//! Follows a serving pair on disk and swaps it under the running server.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::load::{self, Content, LoadError, Pair, Source};

/// How often the files are read when nothing else is said.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

/// What one look at the files found.
#[derive(Debug)]
pub enum Check {
    /// The files hold what is being served.
    Unchanged,
    /// The files held another good pair, which is served from now on.
    Replaced(Arc<Pair>),
    /// The files hold nothing that can be served; the pair loaded before stays.
    Failed(LoadError),
}

/// Serves the newest good pair of a directory to each new handshake.
///
/// The kubelet replaces a mounted Secret by renaming one symlink (`..data`), which gives no reliable file event, so the
/// content is polled and compared. Connections that are open keep what they negotiated.
pub struct Reloader {
    source: Source,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<Pair>>,
    seen: Mutex<Seen>,
    failures: AtomicU64,
    reloads: AtomicU64,
}

#[derive(Debug)]
struct Seen {
    good: Content,
    error: Option<String>,
}

impl fmt::Debug for Reloader {
    // The content seen includes the private key, so only the source is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Reloader {
    /// Loads the pair of `source` for the first time. Blocks on the file system.
    ///
    /// # Errors
    /// [`LoadError`] as [`crate::load`]: a server must not start with a pair that no client would accept.
    pub fn load(source: Source, provider: Arc<CryptoProvider>, now: Timestamp) -> Result<Self, LoadError> {
        let good = load::read(&source.directory)?;
        let pair = load::parse(&source, &good, &provider, now)?;
        Ok(Self {
            source,
            provider,
            current: RwLock::new(Arc::new(pair)),
            seen: Mutex::new(Seen { good, error: None }),
            failures: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
        })
    }

    /// The pair that new handshakes get.
    #[must_use]
    pub fn current(&self) -> Arc<Pair> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many looks at the files failed since the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// How often another pair was taken into use since the start.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Looks at the files once and serves what they hold if that is good at `now`. Blocks on the file system.
    ///
    /// Each failed look counts; a failure is logged when it begins or changes, its end once.
    pub fn check(&self, now: Timestamp) -> Check {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = load::read(&self.source.directory).and_then(|content| {
            if content == seen.good {
                return Ok(None);
            }
            load::parse(&self.source, &content, &self.provider, now).map(|pair| Some((content, Arc::new(pair))))
        });
        match loaded {
            Ok(None) => {
                recovered(&mut seen);
                Check::Unchanged
            }
            Ok(Some((content, pair))) => {
                recovered(&mut seen);
                seen.good = content;
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&pair);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(not_after = %pair.not_after(), names = ?pair.names(), "serving certificate replaced");
                Check::Replaced(pair)
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                log_failure(&mut seen, &error, &self.current());
                Check::Failed(error)
            }
        }
    }

    /// Looks at the files every `interval` until `stop`.
    pub async fn run(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let reloader = Arc::clone(&self);
            // The files lie on a volume that may hang, so a look at them does not occupy a worker.
            let look = tokio::task::spawn_blocking(move || reloader.check(Timestamp::now()));
            if let Err(error) = look.await {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "looking at the serving certificate ended abnormally");
            }
        }
    }
}

impl ResolvesServerCert for Reloader {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.current().certified()))
    }
}

fn recovered(seen: &mut Seen) {
    if seen.error.take().is_some() {
        tracing::info!("the serving certificate on disk is good again");
    }
}

fn log_failure(seen: &mut Seen, error: &LoadError, kept: &Pair) {
    // The message of an expired pair holds the time of the check, so the kind decides what is new.
    let kind = error.class().to_owned();
    if seen.error.as_ref() == Some(&kind) {
        return;
    }
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::error!(%error, cause, kept_until = %kept.not_after(), "keeping the old serving certificate");
    seen.error = Some(kind);
}

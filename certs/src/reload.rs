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

use crate::issue::Issued;
use crate::load;
use crate::pair::{self, Content, LoadError, Pair, Source};

/// Default interval between reads of the files.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

/// The result of one read of the files.
#[derive(Debug)]
pub enum Check {
    /// The files hold the served pair.
    Unchanged,
    /// The files held another valid pair, which is served from now on.
    Replaced(Arc<Pair>),
    /// The files hold no valid pair; the previous one is kept.
    Failed(LoadError),
}

/// Serves the newest valid pair of a directory to each new handshake.
///
/// The kubelet replaces a mounted Secret by renaming one symlink (`..data`), which gives no reliable file event, so the
/// content is polled and compared. Open connections keep their certificate.
pub struct Reloader {
    source: Source,
    provider: Arc<CryptoProvider>,
    current: RwLock<Option<Arc<Pair>>>,
    seen: Mutex<Seen>,
    failures: AtomicU64,
    reloads: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    good: Option<Content>,
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
        let pair = pair::parse(&source, &good, &provider, now)?;
        let mut reloader = Self::empty(source, provider);
        reloader.current = RwLock::new(Some(Arc::new(pair)));
        reloader.seen = Mutex::new(Seen {
            good: Some(good),
            error: None,
        });
        Ok(reloader)
    }

    /// Refuses handshakes until [`Reloader::replace`], for a pair that is not read from files; `source` names its origin
    /// in errors.
    #[must_use]
    pub fn empty(source: Source, provider: Arc<CryptoProvider>) -> Self {
        Self {
            source,
            provider,
            current: RwLock::default(),
            seen: Mutex::default(),
            failures: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
        }
    }

    /// The pair that new handshakes get; `None` before the first one.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Pair>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Failed reads of the files since the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Replacements of the pair since the start.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Reads the files once and serves their pair if it is valid at `now`. Blocks on the file system.
    ///
    /// Each failure is counted; it is logged when it begins, changes or ends.
    pub fn check(&self, now: Timestamp) -> Check {
        self.accept(|| load::read(&self.source.directory), now)
    }

    /// Serves `issued` from now on if it is valid at `now`. Failures are counted and logged as by [`Reloader::check`].
    pub fn replace(&self, issued: &Issued, now: Timestamp) -> Check {
        self.accept(|| Ok(Content::of(issued)), now)
    }

    fn accept(&self, read: impl FnOnce() -> Result<Content, LoadError>, now: Timestamp) -> Check {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = read().and_then(|content| {
            if seen.good.as_ref() == Some(&content) {
                return Ok(None);
            }
            pair::parse(&self.source, &content, &self.provider, now).map(|pair| Some((content, Arc::new(pair))))
        });

        match loaded {
            Ok(None) => {
                recovered(&mut seen);
                Check::Unchanged
            }
            Ok(Some((content, pair))) => {
                recovered(&mut seen);
                seen.good = Some(content);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&pair));
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(not_after = %pair.not_after(), names = ?pair.names(), "serving certificate replaced");
                Check::Replaced(pair)
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                log_failure(&mut seen, &error, self.current().as_deref());
                Check::Failed(error)
            }
        }
    }

    /// Reads the files every `interval` until `stop`.
    pub async fn run(self: Arc<Self>, interval: Duration, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let reloader = Arc::clone(&self);
            // The files lie on a volume that may hang, so reading them does not occupy a worker.
            let look = tokio::task::spawn_blocking(move || reloader.check(Timestamp::now()));
            if let Err(error) = look.await {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "reading the serving certificate ended abnormally");
            }
        }
    }
}

impl ResolvesServerCert for Reloader {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.current()?.certified()))
    }
}

fn recovered(seen: &mut Seen) {
    if seen.error.take().is_some() {
        tracing::info!("the serving certificate on disk is valid again");
    }
}

fn log_failure(seen: &mut Seen, error: &LoadError, kept: Option<&Pair>) {
    // The message of an expired pair holds the time of the check, so the kind decides what is new.
    let kind = error.class().to_owned();
    if seen.error.as_ref() == Some(&kind) {
        return;
    }

    let cause = std::error::Error::source(error).map(ToString::to_string);
    let kept_until = kept.map(|pair| pair.not_after().to_string());
    tracing::error!(%error, cause, kept_until, "keeping the old serving certificate");
    seen.error = Some(kind);
}

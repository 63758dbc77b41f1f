//! Watches one object.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use kube::runtime::watcher::DefaultBackoff;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A watch without an event for this time is restarted. A connection that broke without an error shows nothing, and
/// kube ends such a watch only after 300 s
/// (<https://docs.rs/kube-runtime/latest/kube_runtime/watcher/struct.Config.html#structfield.timeout>).
const SILENT: Duration = Duration::from_secs(30);

/// A first read without an answer for this time is an error. A server may accept a connection and never answer.
pub(crate) const FIRST_READ: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Watch(#[from] watcher::Error),
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
}

/// Passes on each state of an object until `stop`. After an error and after [`SILENT`] it restarts, which always
/// reads the object: a watch that only resumes shows nothing until the object changes, and the error would last as long.
pub async fn follow<K, S>(
    start: impl Fn() -> S,
    stop: CancellationToken,
    mut pass: impl FnMut(Result<Option<K>, Error>),
) where
    S: Stream<Item = Result<Option<K>, watcher::Error>> + Send,
{
    let mut backoff = DefaultBackoff::default();
    loop {
        let mut events = std::pin::pin!(start());
        let (mut silent, mut is_first) = (FIRST_READ, true);
        let failed = loop {
            let next = timeout(silent, events.next());
            match stop.run_until_cancelled(next).await {
                None => return,
                Some(Ok(Some(Ok(object)))) => pass(Ok(object)),
                Some(Ok(Some(Err(error)))) => {
                    pass(Err(error.into()));
                    break true;
                }
                Some(Ok(None)) => break true,
                Some(Err(_)) if is_first => {
                    pass(Err(Error::NoAnswer(FIRST_READ)));
                    break true;
                }
                Some(Err(_)) => break false,
            }
            backoff = DefaultBackoff::default();
            (silent, is_first) = (SILENT, false);
        };

        let pause = backoff.next().filter(|_| failed).unwrap_or_default();
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_shows_no_change_any_more_is_started_anew() {
        let starts = AtomicUsize::new(0);
        let start = || {
            let number = starts.fetch_add(1, Ordering::Relaxed);
            let first = stream::once(sleep(FIRST_READ / 2)).map(move |()| Ok(Some(number)));
            first.chain(stream::pending()).boxed()
        };
        let (stop, mut seen, began) = (CancellationToken::new(), Vec::new(), Instant::now());
        let following = follow(start, stop, |event| {
            seen.push((event.ok().flatten(), began.elapsed().as_secs()));
        });
        assert!(timeout(SILENT * 3, following).await.is_err());
        assert_eq!(seen, [(Some(0), 15), (Some(1), 60)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_read_without_an_answer_is_an_error_and_is_tried_again() {
        let starts = AtomicUsize::new(0);
        let start = || match starts.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => stream::pending().boxed(),
            _ => stream::once(async { Ok(Some("object")) })
                .chain(stream::pending())
                .boxed(),
        };
        let (stop, mut seen, began) = (CancellationToken::new(), Vec::new(), Instant::now());
        follow(start, stop.clone(), |event| {
            if event.is_ok() {
                stop.cancel();
            }
            seen.push(event.map_err(|error| error.to_string()));
        })
        .await;
        let none = || Err("no answer within 30s".to_owned());
        assert_eq!(seen, [none(), none(), Ok(Some("object"))]);
        assert!(began.elapsed() < FIRST_READ * 2 + Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_error_the_object_is_read_again_although_it_does_not_change() {
        let starts = AtomicUsize::new(0);
        // A watch that resumes after an error is silent.
        let start = || {
            let first = match starts.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => Err(watcher::Error::NoResourceVersion),
                _ => Ok(Some("object")),
            };
            stream::iter([first]).chain(stream::pending())
        };
        let (stop, mut seen) = (CancellationToken::new(), Vec::new());
        follow(start, stop.clone(), |event| {
            if event.is_ok() {
                stop.cancel();
            }
            seen.push(event.ok().flatten());
        })
        .await;
        assert_eq!(seen, [None, None, Some("object")]);
    }
}

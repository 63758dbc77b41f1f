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

/// Passes on each state of an object until `stop`. After an error and after [`SILENT`] it restarts, which always
/// reads the object: a watch that only resumes shows nothing until the object changes, and the error would last as long.
pub async fn follow<K, S>(
    start: impl Fn() -> S,
    stop: CancellationToken,
    mut pass: impl FnMut(Result<Option<K>, watcher::Error>),
) where
    S: Stream<Item = Result<Option<K>, watcher::Error>> + Send,
{
    let mut backoff = DefaultBackoff::default();
    loop {
        let mut events = std::pin::pin!(start());
        // The first read ends with a state or an error of its own.
        let mut silent = Duration::MAX;
        let failed = loop {
            let next = timeout(silent, events.next());
            match stop.run_until_cancelled(next).await {
                None => return,
                Some(Ok(Some(Ok(object)))) => pass(Ok(object)),
                Some(Ok(Some(Err(error)))) => {
                    pass(Err(error));
                    break true;
                }
                Some(Ok(None)) => break true,
                Some(Err(_)) => break false,
            }
            backoff = DefaultBackoff::default();
            silent = SILENT;
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
    async fn a_watch_that_shows_no_change_any_more_is_started_anew_and_a_slow_first_read_is_not() {
        let starts = AtomicUsize::new(0);
        let start = || {
            let number = starts.fetch_add(1, Ordering::Relaxed);
            let first = stream::once(sleep(SILENT * 2)).map(move |()| Ok(Some(number)));
            first.chain(stream::pending()).boxed()
        };
        let (stop, mut seen, began) = (CancellationToken::new(), Vec::new(), Instant::now());
        let following = follow(start, stop, |event| {
            seen.push((event.ok().flatten(), began.elapsed().as_secs()));
        });
        assert!(timeout(SILENT * 6, following).await.is_err());
        assert_eq!(seen, [(Some(0), 60), (Some(1), 150)]);
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

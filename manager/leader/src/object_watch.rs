//! Watches one object.

use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use kube::runtime::watcher::DefaultBackoff;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Passes on each state of an object until `stop`. After an error it starts anew, which always reads the object: a watch
/// that only resumes shows nothing until the object changes, and the error would last as long.
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
        loop {
            let Some(event) = stop.run_until_cancelled(events.next()).await else {
                return;
            };
            let failed = !matches!(event, Some(Ok(_)));
            if let Some(event) = event {
                pass(event);
            }
            if failed {
                break;
            }
            backoff = DefaultBackoff::default();
        }

        let pause = backoff.next().unwrap_or_default();
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;

    use super::*;

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

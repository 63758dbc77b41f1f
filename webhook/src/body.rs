//! Reads a request's body within limits of size, time and shared memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Why a body was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Longer than any object that etcd takes, with its review around it.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// All requests together hold as much as this server gives them.
    #[error("too many large requests at once")]
    NoMemory,
    /// The peer sent it too slowly.
    #[error("the body did not arrive within {} ms", limit.as_millis())]
    TooSlow {
        /// The time it had.
        limit: Duration,
    },
    /// The peer broke off.
    #[error("the body ended early: {reason}")]
    Broken {
        /// What the connection reported.
        reason: String,
    },
}

/// A body, with the share of the memory budget that it holds until it is dropped.
#[derive(Debug)]
pub struct Held {
    /// The bytes.
    pub bytes: Bytes,
    _budget: Vec<OwnedSemaphorePermit>,
}

/// Reads at most `limit` bytes within `time`, taking one permit of `budget` per byte. It stops reading at the first
/// byte too much, also when the sender announced no length.
///
/// # Errors
/// [`BodyError`]; nothing stays allocated.
pub async fn read(mut body: Body, limit: usize, time: Duration, budget: &Arc<Semaphore>) -> Result<Held, BodyError> {
    if exceeds(&body, limit) {
        return Err(BodyError::TooLarge { limit });
    }
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut permits = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| BodyError::Broken {
                reason: error.to_string(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            let share = u32::try_from(data.len()).map_err(|_| BodyError::TooLarge { limit })?;
            permits.push(
                Arc::clone(budget)
                    .try_acquire_many_owned(share)
                    .map_err(|_| BodyError::NoMemory)?,
            );
            bytes.extend_from_slice(&data);
        }
        Ok(Held {
            bytes: bytes.freeze(),
            _budget: permits,
        })
    };
    timeout(time, reading)
        .await
        .unwrap_or(Err(BodyError::TooSlow { limit: time }))
}

/// Whether the announced length is already too much.
fn exceeds(body: &Body, limit: usize) -> bool {
    use hyper::body::Body as _;
    body.size_hint().lower() > limit as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn budget(bytes: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(bytes))
    }

    fn chunks(sizes: &[usize]) -> Body {
        let chunks: Vec<Result<Bytes, std::io::Error>> =
            sizes.iter().map(|n| Ok(Bytes::from(vec![b'x'; *n]))).collect();
        Body::from_stream(futures::stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole_and_gives_its_memory_back() {
        let budget = budget(100);
        let held = read(chunks(&[40, 60]), 100, SECOND, &budget).await.unwrap();
        assert_eq!((held.bytes.len(), budget.available_permits()), (100, 0));
        drop(held);
        assert_eq!(budget.available_permits(), 100);
    }

    #[tokio::test]
    async fn one_byte_more_is_refused_with_and_without_an_announced_length() {
        let refused = BodyError::TooLarge { limit: 100 };
        assert_eq!(
            read(Body::from(vec![0; 101]), 100, SECOND, &budget(1000))
                .await
                .unwrap_err(),
            refused
        );
        assert_eq!(
            read(chunks(&[100, 1]), 100, SECOND, &budget(1000)).await.unwrap_err(),
            refused
        );
    }

    #[tokio::test]
    async fn a_body_beyond_the_shared_memory_is_refused_and_frees_what_it_took() {
        let budget = budget(50);
        assert_eq!(
            read(chunks(&[40, 40]), 100, SECOND, &budget).await.unwrap_err(),
            BodyError::NoMemory
        );
        assert_eq!(budget.available_permits(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let body = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(
            read(body, 100, SECOND, &budget(100)).await.unwrap_err(),
            BodyError::TooSlow { limit: SECOND }
        );
    }
}

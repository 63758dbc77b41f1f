//! Reads a request's body within limits of size, time and shared memory.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::{sleep_until, timeout};

use crate::bodies::BodyPlace;
use crate::shares::Share;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Larger than the limit for a review of the largest object that etcd stores.
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("no memory for the body: other requests use all of it")]
    NoMemory,
    #[error("the body did not arrive within {} ms", limit.as_millis())]
    TooSlow { limit: Duration },
    #[error("the body arrives too slowly")]
    BelowRate,
    #[error("too many bodies are being received; this one was the slowest of its source")]
    Displaced,
    #[error("the body ended early: {reason}")]
    Broken { reason: String },
}

/// A body and its share of the shared memory, which is released on drop.
#[derive(Debug)]
pub struct HeldBody {
    pub bytes: Bytes,
    memory: Share,
}

impl HeldBody {
    /// Drops the body. `answer` keeps its own length of the shared memory until it is sent, so that callers that do not
    /// read their answers cannot fill the memory.
    pub fn answer(mut self, answer: Vec<u8>) -> Bytes {
        self.memory.shrink_to(answer.len());
        Bytes::from_owner(AnswerBytes {
            text: answer,
            _memory: self.memory,
        })
    }
}

struct AnswerBytes {
    text: Vec<u8>,
    _memory: Share,
}

impl AsRef<[u8]> for AnswerBytes {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Reads and drops the body of a refused request, within the usual limits.
///
/// The answer does not wait for it. Without this, HTTP/2 would reset the stream, and later frames for it would count as
/// errors; after many of them the whole connection ends, with its other requests.
pub fn discard(mut body: Body, limit: usize, time: Duration) {
    tokio::spawn(timeout(time, async move {
        let mut left = limit;
        while let Some(Ok(frame)) = body.frame().await {
            let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else {
                return;
            };
            left = rest;
        }
    }));
}

/// Reads at most `limit` bytes within `time`, taking one unit of `memory` per byte, as fast as `place` requires. It stops at
/// the first byte above the limit, also without a Content-Length.
///
/// # Errors
/// [`BodyError`]; nothing stays allocated.
pub async fn read(
    mut body: Body,
    (limit, time): (usize, Duration),
    mut memory: Share,
    place: &BodyPlace,
) -> Result<HeldBody, BodyError> {
    if exceeds(&body, limit) {
        return Err(BodyError::TooLarge { limit });
    }

    let reading = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = next_frame(&mut body, place).await? {
            let frame = frame.map_err(|error| BodyError::Broken {
                reason: error.to_string(),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            if !memory.grow(data.len()) {
                return Err(BodyError::NoMemory);
            }

            place.received(data.len());
            bytes.extend_from_slice(&data);
        }

        Ok(HeldBody {
            bytes: bytes.freeze(),
            memory,
        })
    };

    let result = timeout(time, reading).await;
    if matches!(result, Ok(Err(BodyError::NoMemory | BodyError::Displaced))) {
        discard(body, limit, time);
    }

    result.unwrap_or(Err(BodyError::TooSlow { limit: time }))
}

/// The next part of the body, unless it comes too late.
async fn next_frame(
    body: &mut Body,
    place: &BodyPlace,
) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, BodyError> {
    let deadline = place.deadline().ok_or(BodyError::Displaced)?;
    tokio::select! {
        // A part that has arrived counts, whatever else happened.
        biased;
        frame = body.frame() => Ok(frame),
        () = place.displaced() => Err(BodyError::Displaced),
        () = sleep_until(deadline) => Err(BodyError::BelowRate),
    }
}

fn exceeds(body: &Body, limit: usize) -> bool {
    use hyper::body::Body as _;
    body.size_hint().lower() > limit as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bodies::Bodies;
    use crate::callers::{Caller, Rank};
    use crate::shares::Shares;

    const CALLER: Caller = Caller {
        rank: Rank::ApiServer,
        address: std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
    };

    async fn read(body: Body, limit: usize, time: Duration, memory: &Arc<Shares>) -> Result<HeldBody, BodyError> {
        let place = Bodies::new(1).add(CALLER, tokio::time::Instant::now());
        super::read(body, (limit, time), memory.empty(CALLER), &place).await
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn budget(bytes: usize) -> Arc<Shares> {
        Shares::new(bytes)
    }

    fn chunks(sizes: &[usize]) -> Body {
        let chunks: Vec<Result<Bytes, std::io::Error>> =
            sizes.iter().map(|n| Ok(Bytes::from(vec![b'x'; *n]))).collect();
        Body::from_stream(futures::stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole_and_gives_its_memory_back() {
        let budget = budget(200);
        let held = read(chunks(&[40, 60]), 100, SECOND, &budget).await.unwrap();
        assert_eq!((held.bytes.len(), budget.held()), (100, 100));
        drop(held);
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn an_answer_holds_its_own_length_until_it_is_sent() {
        let budget = budget(200);
        let held = read(chunks(&[1; 90]), 100, SECOND, &budget).await.unwrap();
        let answer = held.answer(vec![b'x'; 30]);
        assert_eq!((answer.len(), budget.held()), (30, 30));
        let part = answer.slice(10..20);
        drop(answer);
        assert_eq!(budget.held(), 30, "a part is still to be sent");
        drop(part);
        assert_eq!(budget.held(), 0);
        let held = read(chunks(&[10]), 100, SECOND, &budget).await.unwrap();
        assert_eq!(
            held.answer(vec![b'x'; 30]).len(),
            30,
            "one that is longer than its question"
        );
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
        assert_eq!(budget.held(), 0);
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

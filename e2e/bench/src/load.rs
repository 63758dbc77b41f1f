//! Load: as many requests as a server answers with so many in flight, or a steady number each second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::answer::{Depth, References};
use super::client::{self, Connections};
use super::percentile::Latencies;
use super::review::{Reviews, Stream, uid};

/// The requests, and the check of their answers.
#[derive(Debug)]
pub struct Workload {
    reviews: Reviews,
    stream: Stream,
    references: References,
    depth: Depth,
    number: AtomicU64,
}

impl Workload {
    pub const fn new(reviews: Reviews, stream: Stream, references: References, depth: Depth) -> Self {
        Self {
            reviews,
            stream,
            references,
            depth,
            number: AtomicU64::new(1),
        }
    }
}

/// The outcome of one request.
enum Outcome {
    Answered(Duration),
    Shed,
    Failed(String),
}

/// The outcomes of all requests.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub time: Duration,
    /// Right answers.
    pub answered: usize,
    /// Their latencies, from the moment of sending to the last byte of the answer.
    pub latencies: Latencies,
    /// Requests that the server refused: 429 and 503.
    pub shed: usize,
    /// Requests without an answer, or with a wrong one.
    pub failed: usize,
    /// The reason of the first.
    pub failure: Option<String>,
}

impl Tally {
    pub const fn sent(&self) -> usize {
        self.answered + self.shed + self.failed
    }

    fn of(time: Duration, outcomes: Vec<Outcome>) -> Self {
        let mut tally = Self {
            time,
            ..Self::default()
        };
        let mut latencies = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            match outcome {
                Outcome::Answered(latency) => latencies.push(latency),
                Outcome::Shed => tally.shed += 1,
                Outcome::Failed(reason) => {
                    tally.failed += 1;
                    tally.failure.get_or_insert(reason);
                }
            }
        }

        tally.answered = latencies.len();
        tally.latencies = latencies.into();

        tally
    }
}

/// Keeps `in_flight` requests open for `time`: each answer is followed by the next request at once.
///
/// # Errors
/// When there is no connection, or a task ends abnormally.
pub async fn saturate(
    connections: &Connections,
    workload: Workload,
    in_flight: usize,
    time: Duration,
) -> Result<Tally> {
    let workload = Arc::new(workload);
    let begin = Instant::now();
    let end = begin + time;
    let mut loops = JoinSet::new();

    for number in 0..in_flight {
        let mut sender = connections.sender(number)?;
        let workload = Arc::clone(&workload);
        loops.spawn(async move {
            let mut outcomes = Vec::new();
            while Instant::now() < end {
                let outcome = one(&mut sender, &workload).await;
                let lost = matches!(outcome, Outcome::Failed(_));
                outcomes.push(outcome);
                if lost {
                    break;
                }
            }

            outcomes
        });
    }

    let mut outcomes = Vec::new();
    while let Some(done) = loops.join_next().await {
        outcomes.extend(done?);
    }

    Ok(Tally::of(begin.elapsed(), outcomes))
}

/// Sends `rate` requests a second for `time`, whether or not the ones before are answered, over one connection.
///
/// # Errors
/// As [`saturate`].
pub async fn pace(connections: &Connections, workload: Workload, rate: u32, time: Duration) -> Result<Tally> {
    let workload = Arc::new(workload);
    let sender = connections.sender(0)?;
    let mut ticks = interval(Duration::from_secs(1) / rate);
    // Late ticks follow each other at once, so that a delay of this program does not reduce the load.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);

    let begin = Instant::now();
    let end = begin + time;
    let mut open = JoinSet::new();

    loop {
        tokio::select! {
            biased;
            () = sleep_until(end) => break,
            _ = ticks.tick() => {}
        }
        let (mut sender, workload) = (sender.clone(), Arc::clone(&workload));
        open.spawn(async move { one(&mut sender, &workload).await });
    }

    let time = begin.elapsed();
    let mut outcomes = Vec::new();
    while let Some(outcome) = open.join_next().await {
        outcomes.push(outcome?);
    }

    Ok(Tally::of(time, outcomes))
}

async fn one(sender: &mut SendRequest<Full<Bytes>>, workload: &Workload) -> Outcome {
    let number = workload.number.fetch_add(1, Ordering::Relaxed);
    let (object, uid) = (workload.stream.object(number), uid(number));
    let body = workload.reviews.of(object).body(&uid);
    let begin = Instant::now();
    let answer = client::post(sender, body).await;
    let latency = begin.elapsed();

    match answer {
        Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)) => Outcome::Shed,
        Ok((StatusCode::OK, body)) => {
            let (references, reviews) = (&workload.references, &workload.reviews);
            match references.check(workload.depth, reviews, object, &uid, &body) {
                Ok(()) => Outcome::Answered(latency),
                Err(error) => Outcome::Failed(format!("{error:#}")),
            }
        }
        Ok((status, body)) => Outcome::Failed(format!("{status}: {}", String::from_utf8_lossy(&body).trim())),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    }
}

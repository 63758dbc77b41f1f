//! The times of answers to an API server while every known attack runs at once, beside the times without attacks; and the
//! memory that is left after large bodies.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints and fails by panicking"
)]

#[path = "../tests/attacks/mod.rs"]
mod attacks;
#[path = "../tests/server_support/mod.rs"]
mod server_support;
#[path = "../decide/tests/worst_objects/mod.rs"]
mod worst_objects;

use std::sync::Arc;
use std::time::{Duration, Instant};

use attacks::percentile;
use server_support::process::{Api, Webhook, play};
use server_support::{H2, h2, read, request};

const REVIEWS: usize = 500;

/// The 99th percentile of reviews while the attacks run, and of probes.
const LIMITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];

/// Memory of the process within a minute after large bodies, in MiB.
const MEMORY_LIMIT: u64 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A review of 7 MiB with as many objects as fit.
fn large_review() -> String {
    let list = vec![r#"{"a":0}"#; 6 * 1024 * 1024 / 8].join(",");
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","kind":{{"group":"apps","version":"v1","kind":"Deployment"}},"namespace":"a","name":"n","object":{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"n"}},"x":[{list}]}}}}}}"#
    )
}

/// Memory before, the largest, and the smallest within a minute, after four large bodies at once, in MiB.
async fn memory_of_large_bodies() -> [u64; 3] {
    // As in the Deployment.
    let environment = [("MALLOC_ARENA_MAX", "2")];
    let webhook = Webhook::with_environment(play(Arc::new(Api::default())).await, &environment);
    webhook.shows("/readyz", "200 OK").await;
    let mib = |field| webhook.kib(field) / 1024;
    let before = mib("VmRSS");

    let body = bytes::Bytes::from(large_review());
    let clients = (0..4).map(|_| async {
        let mut client = h2(webhook.connect(H2).await.unwrap()).await;
        read(client.send_request(request("/mutate", body.clone())).await.unwrap())
            .await
            .0
    });
    let answers = futures::future::join_all(clients).await;
    assert!(answers.contains(&200), "{answers:?}");

    let (begin, mut after) = (Instant::now(), u64::MAX);
    while begin.elapsed() < MINUTE && after >= MEMORY_LIMIT {
        tokio::time::sleep(Duration::from_secs(1)).await;
        after = after.min(mib("VmRSS"));
    }

    [before, mib("VmHWM"), after]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let [before, most, after] = memory_of_large_bodies().await;
    println!("memory, MiB: {before}; with four bodies of 6 MiB at once {most}; within a minute {after}\n");

    let [before, during] = attacks::all_at_once(REVIEWS).await;

    println!("| | without attacks, ms | with all attacks, ms | limit, ms |\n|---|---|---|---|");
    let mut p99 = Vec::new();
    for (what, before, during, limit) in [
        ("reviews of an API server", &before.reviews, &during.reviews, LIMITS[0]),
        ("/healthz", &before.probes, &during.probes, LIMITS[1]),
    ] {
        for part in [50, 99] {
            let ms = |times: &[Duration]| percentile(times, part).as_secs_f64() * 1e3;
            let judged = if part == 99 {
                limit.as_millis().to_string()
            } else {
                String::new()
            };
            println!(
                "| {what}, {part} % | {:.1} | {:.1} | {judged} |",
                ms(before),
                ms(during)
            );
        }
        p99.push((what, percentile(during, 99), limit));
    }

    for (what, time, limit) in p99 {
        assert!(time < limit, "{what}: {time:?}, not below {limit:?}");
    }
    assert!(after < MEMORY_LIMIT, "{after} MiB are left after large bodies");
}

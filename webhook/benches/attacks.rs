//! The times of answers to an API server while every known attack runs at once, beside the times without attacks.

#![allow(clippy::print_stdout, reason = "a benchmark prints and fails by panicking")]

#[path = "../tests/attacks/mod.rs"]
mod attacks;
#[path = "../tests/server_support/mod.rs"]
mod server_support;
#[path = "../tests/worst_objects/mod.rs"]
mod worst_objects;

use std::time::Duration;

use attacks::percentile;

const REVIEWS: usize = 500;

/// The 99th percentile of reviews while the attacks run, and of probes.
const LIMITS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
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
}

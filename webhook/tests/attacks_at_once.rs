//! While every known attack runs at once, all answers to an API server are right, and probes are answered.
//!
//! The times are printed and not judged here, since the programs are not optimised: `make bench` judges them.

#![allow(clippy::print_stdout, reason = "the test says what it measured")]

mod attacks;
mod server_support;
#[path = "../decide/tests/worst_objects/mod.rs"]
mod worst_objects;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_attacks_at_once_change_no_answer_to_an_api_server() {
    for (when, answered) in ["before", "during"].iter().zip(attacks::all_at_once(60).await) {
        let (reviews, probes) = (&answered.reviews, &answered.probes);
        println!(
            "{when}: reviews p99 {:?}, probes p99 {:?}",
            attacks::percentile(reviews, 99),
            attacks::percentile(probes, 99)
        );
    }
}

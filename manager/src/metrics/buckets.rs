//! Bounds of histograms: every bound that the incumbent has, so that queries and alerts written for it work, and finer
//! ones between.

/// Bounds in order, each once.
fn merged(incumbent: impl IntoIterator<Item = f64>, finer: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = incumbent.into_iter().chain(finer.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// `count` bounds, each `factor` times the one before. Multiplied one by one as Go does it: the last digits count,
/// since a bound is a label.
fn exponential(start: f64, factor: f64, count: usize) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(start), move |bound| Some(bound * factor)).take(count)
}

/// From a Node's creation to something about it. There is one at 60 s, where an alert belongs.
pub fn node_delay() -> Vec<f64> {
    let finer = [
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 2.0, 8.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ];
    merged(exponential(1.0, 4.0, 6), &finer)
}

/// Time that a key waits for, or takes to be worked on.
pub(super) fn work_queue() -> Vec<f64> {
    let finer = [0.002, 0.005, 0.02, 0.05, 0.2, 0.5, 2.0, 5.0, 30.0, 60.0, 300.0];
    merged(exponential(10e-9, 10.0, 10), &finer)
}

pub(super) fn aws_call() -> Vec<f64> {
    let incumbent = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    merged(incumbent, &[])
}

/// One call of AWS, its repetitions included, finer and with the long tail of throttled ones.
pub(super) fn aws_call_fine() -> Vec<f64> {
    merged(
        aws_call(),
        &[
            0.001, 0.0025, 0.0075, 0.015, 0.035, 0.075, 0.15, 0.35, 0.75, 1.5, 20.0, 30.0,
        ],
    )
}

pub(super) fn api_request() -> Vec<f64> {
    let incumbent = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
    merged(incumbent, &[0.001, 0.0025, 0.01, 0.05])
}

pub(super) fn load_balancer() -> Vec<f64> {
    merged(exponential(1.0, 2.0, 15), &[0.05, 0.1, 0.25, 0.5])
}

pub(super) fn lifecycle_pass() -> Vec<f64> {
    exponential(0.001, 2.0, 15).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incumbents_bounds_are_all_there_and_in_order() {
        let delays = node_delay();
        for old in [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0] {
            assert!(delays.contains(&old), "{old}");
        }
        for old in [10e-9, 1e-7, 9.999_999_999_999_999e-6, 0.001, 10.0] {
            assert!(
                work_queue().iter().any(|bound| (bound - old).abs() <= old * 1e-12),
                "{old}"
            );
        }
        for bounds in [
            delays,
            work_queue(),
            aws_call_fine(),
            api_request(),
            load_balancer(),
            lifecycle_pass(),
        ] {
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
        }
    }
}

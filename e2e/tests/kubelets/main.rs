//! Outrigger on real kubelets. Without root, cgroup v1 or the packages these tests are left out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do"
)]

mod hand_over;
mod kubeadm_guide;
mod node_edit;
mod processes;
mod static_pod;
mod test_cluster;

//! Real kubelets on this host. Without root, cgroup v1 or the packages these tests are left out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod control_planes;
mod join;
mod leftovers;
mod support;

//! Outrigger's manager replaces a running aws-cloud-controller-manager and gives way to it again, with real kubectl, Helm
//! and controller managers, a real API server with RBAC, and the commands of the pages.
//!
//! | aspect | file |
//! |---|---|
//! | beside its manifests, by `docs/operations/replace.md` | `beside.rs` |
//! | in place, by the chart of the same name and its README | `in_place.rs` |
//! | the objects of the chart, and the values that it refuses | `chart.rs` |
//! | the incumbent's objects, as published and in our words | `incumbent.rs` |
//! | the cluster, and the observation of a switch | `cluster.rs`, `switch.rs`, `rights.rs` |
//! | commands of a page | `commands.rs` |

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

mod beside;
mod chart;
mod cluster;
mod commands;
mod in_place;
mod incumbent;
#[path = "../../../shared/tests/published/mod.rs"]
mod published_data;
mod rights;
mod switch;

/// Names and program of both managers in the environment's table of images.
const OURS: &str = "outrigger-manager";
const INCUMBENT: &str = "aws-cloud-controller-manager";

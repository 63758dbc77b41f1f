//! Machines with real kubelets, for tests: each has a network, a root filesystem, processes, containers and cgroups of
//! its own on this host.
//!
//! A run is in a network namespace of its own, with a bridge between the machines and the processes of the harness
//! (`network.rs`). A machine is one tree of processes in further namespaces (`machine.rs`, `machine.sh`). Its disk is a
//! folder of the run. Nothing is installed on the host, and no setting of the host changes.

mod cgroups;
mod claim;
mod command;
mod fleet;
pub mod kubeadm;
mod machine;
mod network;
mod remains;
mod run;

pub use cgroups::processes as processes_below_cgroup;
pub use claim::remove_leftovers;
pub use fleet::Fleet;
pub use machine::Machine;
pub use network::HOST;
pub use remains::{Host, is_gone};
pub use run::{LEFT_OUT, REQUIRE, left_out, real_kubelets, until_signal};

//! Outrigger's manager beside the incumbent: the same flags, kube-apiserver, etcd and simulated AWS, one after the
//! other, each on a fresh cluster.

mod arrivals;
pub mod candidate;
pub(crate) mod cloud;
pub(crate) mod cluster;
mod cold;
pub(crate) mod node;
pub mod report;
pub mod result;
pub mod scenarios;
pub mod steady;

//! Cluster API: control planes and machines of other clusters, by the objects that they are made from.
//!
//! | objects | file |
//! |---|---|
//! | kubeadm's control planes, machine configurations and their templates | `kubeadm.rs` |
//! | the same of the RKE2 provider | `rke2.rs` |
//! | ClusterClass | `class.rs` |
//! | the parts that these kinds share | `common.rs` |
//! | what to say about files and feature gates that stay behind | `obsolete_settings.rs` |

mod class;
mod common;
mod kubeadm;
mod obsolete_settings;
mod rke2;

pub(super) use self::{class::KINDS as CLASS, kubeadm::KINDS as KUBEADM, rke2::KINDS as RKE2};

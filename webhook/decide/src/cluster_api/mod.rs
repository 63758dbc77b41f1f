//! Cluster API: objects that describe the control planes and machines of other clusters.
//!
//! | objects | file |
//! |---|---|
//! | kubeadm's control planes, machine configurations and their templates | `kubeadm.rs` |
//! | the same of the RKE2 provider | `rke2.rs` |
//! | ClusterClass | `class.rs` |
//! | shared by these kinds, and warnings about obsolete files and feature gates | `common.rs` |

mod class;
mod common;
mod kubeadm;
mod rke2;

pub(super) use self::common::{CONTROL_PLANE, row};
pub(super) use self::{class::KINDS as CLASS, kubeadm::KINDS as KUBEADM, rke2::KINDS as RKE2};

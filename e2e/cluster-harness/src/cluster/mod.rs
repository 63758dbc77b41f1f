//! Real Kubernetes control planes on loopback: etcd, kube-apiserver, kube-controller-manager.
//!
//! Several API servers can run at once, each with a service range of its own in 127/8 (every such address is local on
//! Linux, so an API server reaches a webhook at its Service's cluster IP with no network set up), and may share one
//! etcd under different prefixes.

mod api_server;
mod authority;
mod controller_manager;
mod error;
mod etcd;
mod start;

pub use api_server::{AUDIT_POLICY, ApiServer, ApiServerOptions, Version, client};
pub use authority::{Authority, Credentials, User, service_account_keys};
pub use controller_manager::{ManagementControllerManager, TenantControllerManager};
pub use error::ClusterError;
pub use etcd::Etcd;

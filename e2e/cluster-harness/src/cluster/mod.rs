//! Real Kubernetes control planes on loopback: etcd, kube-apiserver, kube-controller-manager.
//!
//! Several API servers can run at once, each with a service range of its own in 127/8 (every such address is local on
//! Linux, so an API server reaches a webhook at its Service's cluster IP with no network set up), and may share one
//! etcd under different prefixes.

mod api_server;
mod audit_policy;
mod authority;
mod controller_manager;
mod error;
mod etcd;
mod files;
mod free_ports;
mod kubeconfig;

pub use api_server::{ApiServer, ApiServerOptions, Version, client};
pub use audit_policy::POLICY as AUDIT_POLICY;
pub use authority::{Authority, Credentials, User, service_account_keys};
pub use controller_manager::{ManagementControllerManager, TenantControllerManager};
pub use error::ClusterError;
pub use etcd::Etcd;
pub use kubeconfig::kubeconfig;

//! Decides how an object changes, and why. Pure: no input and output, no client, no clock.
//!
//! One function, [`decide()`], used by the webhook and by all tools that must agree with it. Objects that no
//! `CloudProviderMigration` selects are not changed.
//!
//! | subject | file |
//! |---|---|
//! | reading of JSON, and JSON patches | `json.rs`, `patch.rs` |
//! | objects with which API servers call the webhook, by the kinds with rules | `registration/` |
//! | the decision about an object | `decide.rs` |
//! | input of a decision | `input.rs` |
//! | result of a decision | `decision.rs` |
//! | kinds with rules: the type of a row, and the table | `kind.rs`, `kinds.rs` |
//! | which migration does the object belong to | `matching.rs` |
//! | the way between phases for the durable objects of provisioners | `provisioner_object.rs`, `document.rs`, `fields.rs` |
//! | Cluster API's control planes, machine configurations and templates | `cluster_api/` |
//! | flags in YAML texts inside of objects | `yaml_arguments.rs` |
//! | ConfigMaps of kubeadm | `kubeadm_config.rs` |
//! | HelmChart of the cloud-controller-manager, alone or in a manifest; the image of each published chart | `helm_chart.rs`, `manager_chart.rs` |
//! | Deployment, StatefulSet, DaemonSet, Pod, and static Pods for a command on their machine; HyperShift's workloads, which are left to their operator | `workload.rs` |
//! | the command lines in either | `pod_spec.rs` |
//! | the file of `spec.leaderMigration` in either | `leader_migration_file.rs` |
//! | the way back in either | `pod_undo.rs` |
//! | Node | `node.rs` |
//! | how a Node is called before and after its kubelet becomes external | `node_names.rs` |
//! | Rancher's Cluster of RKE2 and K3s, of RKE1 | `rancher_rke2.rs`, `rancher_rke1.rs` |
//! | `cloud-provider` in files, commands and user data beside the argument lists | `machine_scripts.rs` |
//! | how Rancher merges the configuration of a machine | `machine_config.rs` |
//! | what RKE2 passes to its components for `cloud-provider-name`, by release | `rke2_provider.rs` |
//! | Kubermatic's Cluster and the Machines of its user clusters | `kubermatic.rs` |
//! | tags of AWS resources, and where a cluster's key must not be | `tags/` |
//! | what is refused, where an operator asks for it | `validate.rs` |
//! | how long a warning may be | `warning.rs` |

use self::decision::Draft;
use self::fields::annotation;

mod arguments;
mod cluster_api;
mod decide;
mod decision;
mod document;
mod fields;
mod helm_chart;
mod input;
pub mod json;
mod kamaji;
mod kind;
mod kinds;
mod kubeadm_config;
mod kubermatic;
mod leader_migration_file;
mod machine_config;
mod machine_scripts;
mod manager_chart;
mod matching;
mod node;
mod node_names;
pub mod patch;
mod pod_spec;
mod pod_undo;
mod provisioner_object;
mod rancher_rke1;
mod rancher_rke2;
mod rancher_warnings;
pub mod registration;
mod rke2_provider;
pub mod tags;
mod validate;
mod warning;
mod workload;
mod yaml_arguments;

pub use self::decide::{MAX_WORK, decide};
pub use self::decision::{Decision, Outcome, Shortage};
pub use self::input::{Input, Migration, Operation, RequestedPhase};
pub use self::kind::Kind;
pub use self::kinds::{is_checked, kinds};
pub use self::manager_chart::CHARTS;
pub use self::node_names::{NODE_NAMES, NodeNames};
pub use self::validate::{Validation, ValidationOutcome, validate};
pub use self::workload::static_pods;

//! Types and pure rules that the webhook, the manager and the tools agree on.
//!
//! Nothing in here talks to Kubernetes or AWS, and nothing reads a clock: every function is a rule that can be
//! tested with values alone, but for those that read a file.
//!
//! | question | module |
//! |---|---|
//! | the migration's spec, phase and status | [`migration`] |
//! | **which flags does a component get in which phase and version** | [`phase_flags`] |
//! | recognising components and how they run | [`component`] |
//! | where is a container's argument list, and how is it edited and restored | [`command_line`] |
//! | which names did a controller ever have | [`controller`] |
//! | which lease guards a controller | [`leader_migration`] |
//! | how is a YAML text inside an object changed without touching the rest of it | [`yaml_text`] |
//! | how much work may one decision take | [`work`] |
//! | how is an Event written | [`event`] |
//! | how much of a file that an operator names is read | [`limited_file`] |
//! | how much of other crates' events a log may show | [`log_limits`] |
//! | how is a duration of a flag read, and how long is the backoff after failures | [`duration`], [`backoff`] |
//! | what do RKE2 and K3s write about their arguments | [`node_args`] |
//! | annotations, taints, AWS tags, provider IDs, versions | [`annotations`], [`taints`], [`tags`], [`provider_id`], [`version`] |

pub mod annotations;
pub mod backoff;
pub mod command_line;
pub mod component;
pub mod controller;
pub mod duration;
pub mod event;
pub mod kubeconfig;
pub mod leader_migration;
pub mod limited_file;
pub mod log_limits;
pub mod migration;
pub mod node_args;
pub mod phase_flags;
pub mod provider_id;
pub mod tags;
pub mod taints;
pub mod version;
pub mod work;
pub mod yaml_text;

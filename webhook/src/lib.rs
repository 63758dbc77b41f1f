//! The mutating admission webhook.
//!
//! ```text
//! TLS ── outrigger-serving ── routes ─▶ review ──▶ decide ──▶ patch ──▶ review ─▶ AdmissionReview
//!       bytes, limits, drain            parse      pure       pure      same UID, always
//!                                          view: migrations, namespaces, leases (fed by watches)
//! ```
//!
//! | subject | module |
//! |---|---|
//! | changes of an object, and their reasons | [`outrigger_decide`] |
//! | threads for decisions | [`decision_threads`] |
//! | parsing of reviews, and responses | [`review`] |
//! | state of the clusters | [`view`] |
//! | stored objects that are not in the form of their phase | [`stored_objects`] |
//! | objects with which API servers call the webhook | [`outrigger_decide::registration`] |
//! | what the registration in the cluster lacks | [`registration_check`] |
//! | certificates without cert-manager | [`self_signed`] |
//! | paths and errors | [`routes`], [`health`] |
//! | limits, shutdown | [`outrigger_serving`], [`bodies`], [`body`] |
//! | the part of each caller, and of API servers | [`callers`], [`shares`] |
//! | flags | [`args`] |

pub mod admit;
pub mod args;
pub mod bodies;
pub mod body;
pub mod callers;
mod conditions;
pub mod decision_threads;
pub mod duration;
pub mod health;
pub mod memory_budget;
pub mod metrics;
pub mod registration_check;
pub mod review;
pub mod routes;
pub mod run;
pub mod self_signed;
pub mod shares;
pub mod stored_objects;
pub mod view;

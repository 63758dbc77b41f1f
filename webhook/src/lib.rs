//! The mutating admission webhook.
//!
//! ```text
//! TLS ── outrigger-serving ── routes ─▶ review ──▶ decide ──▶ patch ──▶ review ─▶ AdmissionReview
//!       bytes, limits, drain            parse      pure       pure      same UID, always
//!                                          view: migrations, namespaces, leases (fed by watches)
//! ```
//!
//! | question | module |
//! |---|---|
//! | what does an object become, and why | [`decide`] |
//! | what is read from a review, and what can be answered | [`review`] |
//! | what is known of the clusters | [`view`] |
//! | which stored objects are not in the form of their phase | [`stored_objects`] |
//! | which paths are there, and what do errors look like | [`routes`], [`health`] |
//! | which limits hold, and how does the server end | [`outrigger_serving`], [`body`] |
//! | which flags are there | [`args`] |

pub mod admit;
pub mod args;
pub mod body;
pub mod decide;
pub mod duration;
pub mod health;
pub mod json;
pub mod memory_budget;
pub mod metrics;
pub mod patch;
pub mod review;
pub mod routes;
pub mod run;
pub mod stored_objects;
pub mod view;

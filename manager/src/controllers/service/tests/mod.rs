//! The controller against AWS in memory: what it writes, and that it goes on after a crash at any write.

mod copy;
mod crash;
mod deletion;
mod denied_deletion;
mod denied_settings;
mod ensure;
mod events;
mod fixture;
mod follow;
mod left_alone;
mod line;
mod network;
mod node_groups;
mod node_looks;
mod permissions;
mod properties;
mod reads;
mod refusals;
mod refused;
mod shutdown;
mod subnets;
mod sweep;
mod tags_denied;
mod takeover;
mod vanished;

//! The controller against AWS in memory: what it writes, and that it goes on after a crash at any write.

mod copy;
mod crash;
mod creation_queue;
mod deletion;
mod denied_deletion;
mod denied_settings;
mod ensure;
mod events;
mod fixture;
mod network;
mod node_changes;
mod node_groups;
mod orphaned_services;
mod permissions;
mod properties;
mod reads;
mod refusals;
mod shutdown;
mod subnets;
mod sweep;
mod tags_denied;
mod takeover;
mod target_batches;
mod traffic;
mod unmanaged;
mod update_targets;

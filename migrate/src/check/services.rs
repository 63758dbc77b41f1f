//! Checks of Services with load balancers.

use jiff::{SignedDuration, Timestamp};

use super::finding::{Detail, Found};
use crate::facts::{ClusterFacts, NotRead};

/// A load balancer takes up to three minutes.
const TIME_TO_CREATE: SignedDuration = SignedDuration::from_mins(5);
const TIME_TO_DELETE: SignedDuration = SignedDuration::from_mins(10);

fn since(facts: &ClusterFacts, at: Option<Timestamp>, most: SignedDuration) -> Option<String> {
    let age = facts.at.duration_since(at?);
    (age > most).then(|| format!("for {} min", age.as_mins()))
}

pub(super) fn without_address(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let waiting = facts
        .services
        .get()?
        .iter()
        .filter(|service| !service.has_address && service.deleted.is_none());
    let late = waiting.filter_map(|service| {
        let age = since(facts, service.created, TIME_TO_CREATE)?;
        Some(Detail::new(format!("{} {age}", service.name)))
    });
    Ok(late.collect())
}

pub(super) fn not_deleted(facts: &ClusterFacts) -> Result<Found, NotRead> {
    let held = facts.services.get()?.iter().filter(|service| service.has_finalizer);
    let late = held.filter_map(|service| {
        let age = since(facts, service.deleted, TIME_TO_DELETE)?;
        Some(Detail::new(format!("{} {age}", service.name)))
    });
    Ok(late.collect())
}

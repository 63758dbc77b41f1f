//! The leader election record in a Lease. Pure.
//!
//! The other holder uses client-go's elector, so the fields have the same meaning as in
//! <https://github.com/kubernetes/client-go/blob/v0.34.0/tools/leaderelection/leaderelection.go>: an empty holder is a
//! free lease, `leaseTransitions` counts changes of the holder, renewals keep `acquireTime`, and `renewTime` is never
//! compared with a local clock.

use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

const RELEASED: Duration = Duration::from_secs(1);

/// The five fields of `LeaseSpec` that leader election uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The holder's identity; empty when the lease is free.
    pub holder: String,
    /// How long other candidates wait after they last saw the record change; whole seconds on the wire.
    pub duration: Duration,
    pub acquire_time: Option<Timestamp>,
    /// When the holder last renewed it, by the holder's own clock.
    pub renew_time: Option<Timestamp>,
    pub transitions: i64,
}

impl Record {
    /// Reads the record from a Lease. Absent fields read as a free lease reads them.
    pub fn of(lease: &DynamicObject) -> Self {
        let spec = &lease.data["spec"];
        let time = |key: &str| spec[key].as_str().and_then(|text| text.parse().ok());
        let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or(0);

        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            duration: Duration::from_secs(seconds),
            acquire_time: time("acquireTime"),
            renew_time: time("renewTime"),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
        }
    }

    /// The record of a holder, with at least this duration.
    #[must_use]
    pub fn lasting(self, shortest: Duration) -> Self {
        let duration = if self.is_free() {
            self.duration
        } else {
            self.duration.max(shortest)
        };
        Self { duration, ..self }
    }

    pub fn is_free(&self) -> bool {
        self.holder.is_empty()
    }

    /// Whether its holder released the lease. client-go writes a duration of one second then:
    /// <https://github.com/kubernetes/client-go/blob/v0.34.0/tools/leaderelection/leaderelection.go>. A holder that was
    /// emptied in another way may be alive.
    pub fn is_released(&self) -> bool {
        self.is_free() && self.duration == RELEASED
    }

    /// By this text in an annotation, a manager of ours signs the record by which it releases the lease.
    pub fn signature(&self) -> Option<String> {
        self.renew_time.map(micro_time)
    }

    /// Whether an elector wrote it after `last`. Each acquisition, renewal and release sets a new `renewTime`
    /// (<https://github.com/kubernetes/client-go/blob/v0.26.13/tools/leaderelection/leaderelection.go>), so a record with
    /// the same one, or without one, was edited by hand.
    pub fn is_written_after(&self, last: &Self) -> bool {
        self.renew_time.is_some() && self.renew_time != last.renew_time
    }

    /// The record by which `identity` takes or renews the lease at `now`. A renewal keeps `acquireTime` and
    /// `leaseTransitions`; acquiring it sets a new `acquireTime` and increments `leaseTransitions`.
    #[must_use]
    pub fn held_by(&self, identity: &str, duration: Duration, now: Timestamp) -> Self {
        let renewal = self.holder == identity;
        Self {
            holder: identity.to_owned(),
            duration,
            acquire_time: if renewal { self.acquire_time } else { Some(now) },
            renew_time: Some(now),
            transitions: self.transitions + i64::from(!renewal),
        }
    }

    #[must_use]
    pub fn created_by(identity: &str, duration: Duration, now: Timestamp) -> Self {
        Self {
            holder: identity.to_owned(),
            duration,
            acquire_time: Some(now),
            renew_time: Some(now),
            transitions: 0,
        }
    }

    /// The record that releases the lease, as client-go writes it: no holder and a duration of one second, so that the
    /// next candidate acquires it at once.
    #[must_use]
    pub fn released(&self, now: Timestamp) -> Self {
        Self {
            holder: String::new(),
            duration: RELEASED,
            acquire_time: Some(now),
            renew_time: Some(now),
            transitions: self.transitions,
        }
    }

    /// Writes the record into the `spec` of a Lease. All other fields stay: fields of newer servers, and annotations.
    pub fn write_to(&self, lease: &mut DynamicObject) {
        if !lease.data.is_object() {
            lease.data = json!({});
        }

        if !lease.data["spec"].is_object() {
            lease.data["spec"] = json!({});
        }

        let spec = &mut lease.data["spec"];
        spec["holderIdentity"] = json!(self.holder);
        spec["leaseDurationSeconds"] = json!(self.duration.as_secs());
        spec["leaseTransitions"] = json!(self.transitions);
        for (key, time) in [("acquireTime", self.acquire_time), ("renewTime", self.renew_time)] {
            spec[key] = time.map_or(Value::Null, |at| json!(micro_time(at)));
        }
    }
}

/// The time as a Lease contains it, without digits below a microsecond.
pub fn micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// Kubernetes' `MicroTime`: six digits of a second, always, in UTC.
fn micro_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::ApiResource;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn empty() -> DynamicObject {
        DynamicObject::new(
            "x",
            &ApiResource::erase::<k8s_openapi::api::coordination::v1::Lease>(&()),
        )
    }

    #[test]
    fn a_record_survives_the_wire() {
        let record = Record::created_by("a", Duration::from_secs(15), at(0));
        let mut lease = empty();
        record.write_to(&mut lease);
        assert_eq!(lease.data["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
        assert_eq!(Record::of(&lease), record);
    }

    #[test]
    fn a_renewal_keeps_acquire_time_and_transitions() {
        let first = Record::created_by("a", Duration::from_secs(15), at(0));
        let next = first.held_by("a", Duration::from_secs(15), at(2));
        assert_eq!(
            (next.acquire_time, next.renew_time, next.transitions),
            (Some(at(0)), Some(at(2)), 0)
        );
    }

    #[test]
    fn taking_the_lease_counts_a_transition_even_when_it_was_free() {
        let free = Record::created_by("a", Duration::from_secs(15), at(0)).released(at(1));
        assert!(free.is_free());
        assert!(free.is_released());
        assert_eq!(free.duration, Duration::from_secs(1));
        let taken = free.held_by("b", Duration::from_secs(15), at(3));
        assert_eq!((taken.acquire_time, taken.transitions), (Some(at(3)), 1));
    }

    #[test]
    fn a_record_is_signed_by_its_renew_time_as_the_lease_contains_it() {
        let released = Record::created_by("a", Duration::from_secs(15), at(0)).released(at(1));
        assert_eq!(released.signature().as_deref(), Some("2023-11-14T22:13:21.000000Z"));
        let mut lease = empty();
        released.write_to(&mut lease);
        assert_eq!(Record::of(&lease).signature(), released.signature());
        assert_eq!(Record::default().signature(), None);
    }

    #[test]
    fn fields_and_annotations_that_are_not_ours_survive() {
        let mut lease = empty();
        lease.data = json!({"spec": {"strategy": "OldestEmulationVersion", "futureField": {"x": 1}}, "more": true});
        lease.metadata.annotations = Some([("a".into(), "b".into())].into());
        Record::created_by("a", Duration::from_secs(15), at(0)).write_to(&mut lease);
        assert_eq!(lease.data["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(lease.data["spec"]["futureField"]["x"], 1);
        assert_eq!(lease.data["more"], true);
        assert!(lease.metadata.annotations.is_some());
    }
}

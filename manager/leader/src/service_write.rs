//! A sign of a second owner that needs no right to read its command line: a kube-controller-manager wrote the status of a
//! Service. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// The field manager of a kube-controller-manager. It names none, so the API server takes the start of the user agent,
/// which is the name of the program
/// (<https://github.com/kubernetes/kubernetes/blob/v1.26.13/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/create.go>).
const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// A write of a Service's status by a kube-controller-manager. Only its in-tree service controller does that, also for
/// the finalizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceWrite {
    /// `namespace/name` of the Service.
    pub service: String,
    /// By the API server's clock, in whole seconds.
    pub time: Timestamp,
}

impl ServiceWrite {
    /// The last such write of a Service, as far as its `managedFields` show it. They keep the entry until another writer
    /// has changed every field of it.
    pub fn of(service: &ObjectMeta) -> Option<Self> {
        let entries = service.managed_fields.iter().flatten();
        let times = entries.filter(|entry| is_old_managers(entry)).filter_map(time);
        let namespace = service.namespace.as_deref().unwrap_or_default();
        let name = service.name.as_deref().unwrap_or_default();

        times.max().map(|time| Self {
            service: format!("{namespace}/{name}"),
            time,
        })
    }
}

fn is_old_managers(entry: &ManagedFieldsEntry) -> bool {
    let is_status = match &entry.subresource {
        Some(subresource) => subresource == "status",
        // API servers up to 1.21 do not record the subresource.
        None => {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.get("f:status").is_some())
        }
    };
    is_status && entry.manager.as_deref() == Some(KUBE_CONTROLLER_MANAGER)
}

fn time(entry: &ManagedFieldsEntry) -> Option<Timestamp> {
    entry.time.as_ref().map(|time| time.0)
}

/// When the API server stored the last write that changed a field of `object`, by its own clock.
pub fn stored_at(object: &ObjectMeta) -> Option<Timestamp> {
    object.managed_fields.iter().flatten().filter_map(time).max()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(entries: &[(&str, Value, &str)]) -> ObjectMeta {
        let entries: Vec<Value> = entries
            .iter()
            .map(|(manager, place, time)| {
                let mut entry = json!({"manager": manager, "operation": "Update", "time": time});
                for (key, value) in place.as_object().unwrap() {
                    entry[key] = value.clone();
                }
                entry
            })
            .collect();
        serde_json::from_value(json!({"namespace": "shop", "name": "web", "managedFields": entries})).unwrap()
    }

    fn seconds(service: &ObjectMeta) -> Option<i64> {
        ServiceWrite::of(service).map(|write| write.time.as_second() % 60)
    }

    const FIRST: &str = "2026-01-01T00:00:01Z";
    const SECOND: &str = "2026-01-01T00:00:02Z";

    #[test]
    fn the_newest_entry_of_the_status_by_the_old_manager_counts() {
        let status = || json!({"subresource": "status", "fieldsV1": {"f:metadata": {"f:finalizers": {}}}});
        let written = service(&[
            ("kube-controller-manager", status(), FIRST),
            ("kubectl", json!({}), SECOND),
        ]);
        assert_eq!(seconds(&written), Some(1));
        assert_eq!(ServiceWrite::of(&written).unwrap().service, "shop/web");
        let both = service(&[
            ("kube-controller-manager", status(), SECOND),
            ("kube-controller-manager", status(), FIRST),
        ]);
        assert_eq!(seconds(&both), Some(2));
        assert_eq!(stored_at(&written).unwrap().as_second() % 60, 2, "by any writer");
        assert_eq!(stored_at(&ObjectMeta::default()), None);
    }

    #[test]
    fn other_writers_and_other_fields_are_no_sign() {
        let (old, status) = ("kube-controller-manager", json!({"subresource": "status"}));
        for (manager, place) in [
            ("outrigger-manager", &status),
            ("aws-cloud-controller-manager", &status),
            (old, &json!({"fieldsV1": {"f:metadata": {}}})),
            (old, &json!({})),
        ] {
            assert_eq!(
                seconds(&service(&[(manager, place.clone(), FIRST)])),
                None,
                "{manager} {place}"
            );
        }
        assert_eq!(ServiceWrite::of(&ObjectMeta::default()), None);
    }

    #[test]
    fn an_old_api_server_shows_the_status_by_its_fields() {
        let place = json!({"fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}});
        assert_eq!(seconds(&service(&[("kube-controller-manager", place, FIRST)])), Some(1));
    }
}

//! The resources of Services at AWS. Names replace the IDs that AWS generates, so that two runs can be compared.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::{CLUSTER, SingleCluster};
use outrigger_parity::services::{Names, account};

impl SingleCluster {
    /// All load balancers, target groups and security groups of the account, not only those that someone asks about,
    /// and of the Services what a controller writes.
    ///
    /// # Errors
    /// When AWS refuses a call: something went between two of them.
    pub async fn read_account(&self, services: &[Service]) -> Result<Value> {
        let mut names = Names::default();
        for instance in &self.account.instances {
            names.learn(&instance.id, instance.private_dns_name.clone());
        }

        for subnet in &self.account.subnets {
            names.learn(&subnet.id, format!("subnet {}", subnet.zone));
        }

        for Service { metadata, .. } in services {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
            let which = format!(" of {name}");
            names.learn_service_as(&which, CLUSTER, &namespace, &name, &text(&metadata.uid));
        }

        let aws = account::read(&self.proxy, &mut names).await?;
        let services: Vec<Value> = services.iter().map(|service| names.name(&written(service))).collect();
        Ok(json!({"aws": aws, "services": services}))
    }
}

fn written(service: &Service) -> Value {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    json!({
        "finalizers": service.metadata.finalizers,
        "deleted": service.metadata.deletion_timestamp.is_some(),
        "ingress": status.and_then(|status| status.ingress.as_ref()),
    })
}

/// Where two values differ: one line for each place, with what stands there.
pub fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", Some(expected), Some(actual), &mut found);
    found
}

fn compare(path: &str, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<String>) {
    if let (Some(Value::Object(a)), Some(Value::Object(b))) = (expected, actual) {
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for key in keys {
            compare(&format!("{path}/{key}"), a.get(key), b.get(key), found);
        }
        return;
    }
    if expected != actual {
        let told = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        found.push(format!("{path}: expected {}, found {}", told(expected), told(actual)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::differences;

    #[test]
    fn a_difference_is_told_by_its_place() {
        let expected = json!({"a": {"b": 1, "c": [1, 2]}, "gone": true});
        let actual = json!({"a": {"b": 1, "c": [1, 3]}, "new": null});
        assert_eq!(
            differences(&expected, &actual),
            [
                "/a/c: expected [1,2], found [1,3]",
                "/gone: expected true, found nothing",
                "/new: expected nothing, found null",
            ]
        );
        assert!(differences(&actual, &actual).is_empty());
    }
}

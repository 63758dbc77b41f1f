//! One event of an API server's audit log.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// An `audit.k8s.io/v1` Event at level Metadata: who did what to which object, with which result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `ResponseComplete` for a finished request; `ResponseStarted` for a watch.
    pub stage: String,
    /// Lower-case verb: `create`, `update`, `patch`, `delete`, `deletecollection`, `get`, `list`, `watch`.
    pub verb: String,
    #[serde(rename = "requestURI", default)]
    pub request_uri: String,
    #[serde(default)]
    pub user: User,
    /// On whose behalf, when the caller impersonates.
    #[serde(default)]
    pub impersonated_user: Option<User>,
    /// The caller's program.
    #[serde(default)]
    pub user_agent: String,
    /// The requested object; missing for other paths.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// The answer; missing before it exists.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// When the request reached the API server.
    pub request_received_timestamp: Timestamp,
    /// When this stage was reached.
    pub stage_timestamp: Timestamp,
    /// Notes of authorization and admission, such as the webhook that changed the object.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A user as the API server saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub groups: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// Plural resource, such as `services`.
    pub resource: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name; empty for lists and for a create with a generated name.
    pub name: String,
    pub api_group: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// The HTTP status; 0 when it is not known.
    pub code: u16,
}

impl AuditEvent {
    /// True for a finished request that asks for a change, whether it was granted or not.
    pub fn is_write(&self) -> bool {
        self.stage == "ResponseComplete"
            && matches!(
                self.verb.as_str(),
                "create" | "update" | "patch" | "delete" | "deletecollection"
            )
    }

    /// True when this webhook changed the object of the request.
    pub fn was_mutated_by(&self, webhook: &str) -> bool {
        let by_webhook = |value: &String| {
            serde_json::from_str::<serde_json::Value>(value)
                .is_ok_and(|note| note["webhook"] == webhook && note["mutated"] == true)
        };
        self.annotations
            .iter()
            .any(|(key, value)| key.starts_with("mutation.webhook.admission.k8s.io/") && by_webhook(value))
    }

    /// The program's name: the user agent up to its version.
    pub fn program(&self) -> &str {
        self.user_agent.split(['/', ' ']).next().unwrap_or_default()
    }

    /// The part of the program that asked. client-go appends it to the user agent after a slash, or the service account
    /// whose credentials it uses, `system:serviceaccount:NAMESPACE:NAME`; kube clients append it after a blank.
    pub fn client(&self) -> &str {
        self.user_agent.rsplit(['/', ' ', ':']).next().unwrap_or_default()
    }

    /// True for `resource`, written `services` or with its subresource `services/status`.
    pub fn concerns(&self, resource: &str) -> bool {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        self.object_ref.resource == plural && self.object_ref.subresource == subresource
    }
}

/// Writes of programs and clients whose user agent starts with `program` and ends with `client` (either may be empty).
pub fn writes_by<'a>(
    events: &'a [AuditEvent],
    program: &'a str,
    client: &'a str,
) -> impl Iterator<Item = &'a AuditEvent> {
    events.iter().filter(move |event| {
        event.is_write()
            && (program.is_empty() || event.program() == program)
            && (client.is_empty() || event.client() == client)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",
        "auditID":"a1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/services/web/status",
        "verb":"patch","user":{"username":"system:kube-controller-manager","groups":["system:authenticated"]},
        "sourceIPs":["127.0.0.1"],
        "userAgent":"kube-controller-manager/v1.26.13 (linux/amd64) kubernetes/0000000/service-controller",
        "objectRef":{"resource":"services","namespace":"default","name":"web","apiVersion":"v1","subresource":"status"},
        "responseStatus":{"metadata":{},"code":200},
        "requestReceivedTimestamp":"2026-11-20T10:00:00.100000Z","stageTimestamp":"2026-11-20T10:00:00.104000Z",
        "annotations":{"authorization.k8s.io/decision":"allow"}}"#;

    #[test]
    fn an_event_tells_program_client_and_resource() -> Result<(), serde_json::Error> {
        let event: AuditEvent = serde_json::from_str(PATCH)?;
        assert!(event.is_write());
        assert_eq!(
            (event.program(), event.client()),
            ("kube-controller-manager", "service-controller")
        );
        assert!(event.concerns("services/status") && !event.concerns("services"));
        assert_eq!(event.response_status.code, 200);
        Ok(())
    }

    #[test]
    fn a_client_after_a_blank_is_found_too() -> Result<(), serde_json::Error> {
        let mut event: AuditEvent = serde_json::from_str(PATCH)?;
        event.user_agent = "outrigger-manager/0.1.0 service-controller".into();
        assert_eq!(
            (event.program(), event.client()),
            ("outrigger-manager", "service-controller")
        );
        assert_eq!(
            writes_by(&[event], "outrigger-manager", "service-controller").count(),
            1
        );
        Ok(())
    }

    #[test]
    fn a_service_account_in_the_user_agent_is_its_client() -> Result<(), serde_json::Error> {
        let mut event: AuditEvent = serde_json::from_str(PATCH)?;
        event.user_agent = "kube-controller-manager/v1.26.13 (linux/amd64) kubernetes/$Format/\
                            system:serviceaccount:kube-system:service-controller"
            .into();
        assert_eq!(
            (event.program(), event.client()),
            ("kube-controller-manager", "service-controller")
        );
        Ok(())
    }

    #[test]
    fn reads_and_unfinished_requests_are_no_writes() -> Result<(), serde_json::Error> {
        let mut event: AuditEvent = serde_json::from_str(PATCH)?;
        event.verb = "list".into();
        assert!(!event.is_write());
        event.verb = "patch".into();
        event.stage = "RequestReceived".into();
        assert!(!event.is_write());
        Ok(())
    }
}

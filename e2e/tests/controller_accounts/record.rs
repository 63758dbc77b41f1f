//! The manager's requests in the audit log, by its clients. Pure.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_cluster_harness::audit::AuditEvent;

/// The manager's own user.
pub const MANAGER: &str = "outrigger-manager";
/// The controllers' accounts, in kube-system.
pub const ACCOUNTS: [&str; 4] = [
    "node-controller",
    "route-controller",
    "service-controller",
    "tagging-controller",
];
const PREFIX: &str = "system:serviceaccount:kube-system:";

/// Verbs and resources of writes, by short name of the user.
pub type Writes = BTreeMap<String, BTreeSet<String>>;

/// The manager's requests.
pub struct Record(Vec<AuditEvent>);

impl Record {
    /// Those of all requests that are the manager's.
    pub fn of(mut events: Vec<AuditEvent>) -> Self {
        events.retain(|event| event.program() == MANAGER && event.stage == "ResponseComplete");
        Self(events)
    }

    /// Requests that came as somebody else than their client has to be. One that was not let in has no user.
    pub fn strangers(&self) -> Vec<String> {
        let is_strange = |event: &&AuditEvent| {
            event.impersonated_user.is_some()
                || (event.response_status.code != 401 && short(event) != account_of(event.client()))
        };
        self.0.iter().filter(is_strange).map(described).collect()
    }

    /// How often what was not allowed.
    pub fn refused(&self) -> BTreeMap<String, usize> {
        let mut refused = BTreeMap::new();
        for event in self.0.iter().filter(|event| event.response_status.code == 403) {
            *refused.entry(described(event)).or_default() += 1;
        }
        refused
    }

    /// Granted ones.
    pub fn writes(&self) -> Writes {
        let mut writes = Writes::new();
        let granted = |event: &&AuditEvent| event.is_write() && event.response_status.code < 300;
        for event in self.0.iter().filter(granted) {
            let what = format!("{} {}", event.verb, resource(event));
            writes.entry(short(event).to_owned()).or_default().insert(what);
        }
        writes
    }

    /// The accounts that were made, sorted.
    pub fn accounts_made(&self) -> Vec<String> {
        let made = |event: &&AuditEvent| {
            event.verb == "create" && event.concerns("serviceaccounts") && event.response_status.code < 300
        };
        let names = self.0.iter().filter(made).map(|event| event.object_ref.name.clone());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// All that the controllers had to do here, and nothing else.
pub fn expected() -> Writes {
    let of = |who: &str, what: &[&str]| (who.to_owned(), what.iter().map(|what| (*what).to_owned()).collect());
    Writes::from([
        of(
            MANAGER,
            &[
                "create events",
                "create leases",
                "create serviceaccounts",
                "create serviceaccounts/token",
                "update leases",
            ],
        ),
        // Also the lifecycle controller's taint, and the ranges of Pods.
        of(
            "node-controller",
            &["create events", "patch nodes", "patch nodes/status"],
        ),
        of("route-controller", &["patch nodes/status"]),
        of("service-controller", &["create events", "patch services/status"]),
        of("tagging-controller", &["patch nodes"]),
    ])
}

/// As whom a client has to ask.
fn account_of(client: &str) -> &str {
    match client {
        "node-controller" | "cloud-node-lifecycle-controller" => "node-controller",
        "route-controller" | "service-controller" | "tagging-controller" => client,
        _ => MANAGER,
    }
}

/// The user's name; of an account without what all of them begin with.
fn short(event: &AuditEvent) -> &str {
    let name = &event.user.username;
    name.strip_prefix(PREFIX).unwrap_or(name)
}

fn resource(event: &AuditEvent) -> String {
    let of = &event.object_ref;
    match of.subresource.as_str() {
        "" => of.resource.clone(),
        part => format!("{}/{part}", of.resource),
    }
}

fn described(event: &AuditEvent) -> String {
    let (code, verb, name) = (event.response_status.code, &event.verb, &event.object_ref.name);
    format!("{}: {code} {verb} {} {name}", short(event), resource(event))
}

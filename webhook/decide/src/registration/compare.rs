//! Differences that hide objects of the migrations in use from the webhook. A registration that sends more is no fault.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use outrigger_shared::annotations::NAMESPACE_NAME_LABEL;
use outrigger_shared::migration::{KUBE_SYSTEM, Labels, Profile, Selected, Target};
use serde_json::Value;

use super::client;
use super::conditions::conditions;
use super::entries::{Configuration, Entry, Namespaces};
use super::options::{FailurePolicy, Options};
use super::render::{TIMEOUT_SECONDS, of_configuration, webhook};
use super::rules::Need;
use crate::Migration;

/// The most namespaces that a message names.
const MAX_NAMED: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Object,
    Entry,
    CaBundle,
    ClientConfig,
    FailurePolicy,
    MatchConditions,
    MatchPolicy,
    NamespaceSelector,
    ObjectSelector,
    ReinvocationPolicy,
    Rules,
    TimeoutSeconds,
}

impl Field {
    pub const ALL: [Self; 12] = [
        Self::Object,
        Self::Entry,
        Self::CaBundle,
        Self::ClientConfig,
        Self::FailurePolicy,
        Self::MatchConditions,
        Self::MatchPolicy,
        Self::NamespaceSelector,
        Self::ObjectSelector,
        Self::ReinvocationPolicy,
        Self::Rules,
        Self::TimeoutSeconds,
    ];

    /// The name in Kubernetes, where it has one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Entry => "entry",
            Self::CaBundle => "caBundle",
            Self::ClientConfig => "clientConfig",
            Self::FailurePolicy => "failurePolicy",
            Self::MatchConditions => "matchConditions",
            Self::MatchPolicy => "matchPolicy",
            Self::NamespaceSelector => "namespaceSelector",
            Self::ObjectSelector => "objectSelector",
            Self::ReinvocationPolicy => "reinvocationPolicy",
            Self::Rules => "rules",
            Self::TimeoutSeconds => "timeoutSeconds",
        }
    }
}

/// One difference, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    pub configuration: Configuration,
    /// The entry's name; empty if the object is missing.
    pub entry: String,
    pub field: Field,
    /// The value in the cluster, or what it lacks.
    pub found: String,
    /// The value, or the part, that is needed.
    pub wanted: String,
}

impl Difference {
    /// The fix, where printing the registration again is none.
    pub const fn own_fix(&self) -> Option<&'static str> {
        match self.field {
            Field::CaBundle => Some(
                "set it: with cert-manager check the Certificate and cainjector, with --self-signed-secret the webhook's log",
            ),
            Field::ClientConfig => Some("correct the Service or URL, or the webhook's --server-name"),
            _ => None,
        }
    }
}

/// The command that repairs a registration.
pub fn fix(profiles: &[Profile], options: &Options) -> String {
    let profiles: Vec<&str> = profiles.iter().map(|profile| profile.as_str()).collect();
    let mut command = format!("outrigger webhook register --profiles={}", profiles.join(","));
    if options.control_plane_policy != FailurePolicy::default() {
        command += &format!(
            " --failure-policy={}",
            options.control_plane_policy.as_str().to_lowercase()
        );
    }
    format!("run: {command} | kubectl apply --server-side --force-conflicts -f -")
}

/// The facts that decide what is needed.
pub struct Needs<'a> {
    /// Profiles are those of the migrations; the other choices are the installation's.
    pub options: Options,
    pub migrations: &'a [Migration<'a>],
    pub namespaces: &'a BTreeMap<String, Labels>,
    /// The names for which the webhook's certificate is valid; empty: not known.
    pub server_names: &'a [String],
    /// Whether a client with this CA bundle, in PEM, accepts the served certificate.
    pub trusts: &'a dyn Fn(&str) -> bool,
}

impl Needs<'_> {
    /// The profiles that need anything, in the order of the API.
    pub fn profiles(&self) -> Vec<Profile> {
        let used: Vec<Profile> = self.targets().map(|(target, _)| target.profile).collect();
        Profile::ALL
            .into_iter()
            .filter(|profile| used.contains(profile))
            .collect()
    }

    /// The targets that select anything here, with their migration. The Nodes of a migration with a hosted control plane
    /// are in another API server.
    fn targets(&self) -> impl Iterator<Item = (&Target, &Migration<'_>)> {
        self.migrations.iter().flat_map(|migration| {
            let is_hosted = migration.spec.targets.iter().any(Target::hosts_a_control_plane);
            let targets = migration.spec.targets.iter();
            targets
                .filter(move |target| !(target.selects_nothing() || is_hosted && target.profile == Profile::Nodes))
                .map(move |target| (target, migration))
        })
    }

    /// The targets whose objects such an entry sends. Only configurations for kube-system have objects of kube-system.
    fn targets_of(&self, namespaces: Namespaces) -> impl Iterator<Item = (&Target, &Migration<'_>)> {
        self.targets().filter(move |(target, _)| match namespaces {
            Namespaces::KubeSystem => self.selects(target, KUBE_SYSTEM, &kube_system()),
            _ => !target.profile.in_management_cluster() || target.hosts_a_control_plane(),
        })
    }

    fn selects(&self, target: &Target, namespace: &str, labels: &Labels) -> bool {
        target.selects_namespace(namespace, Some(labels), Some(&self.options.namespace)) == Selected::Yes
    }

    fn profiles_of(&self, entry: &Entry) -> Vec<Profile> {
        self.targets_of(entry.namespaces)
            .map(|(target, _)| target.profile)
            .collect()
    }
}

fn kube_system() -> Labels {
    [(NAMESPACE_NAME_LABEL.to_owned(), KUBE_SYSTEM.to_owned())].into()
}

/// Compares one configuration; `found` is `None` if it does not exist.
pub fn differences(configuration: Configuration, found: Option<&Value>, needs: &Needs<'_>) -> Vec<Difference> {
    let table: Vec<(Entry, Vec<Need>)> = of_configuration(configuration)
        .map(|entry| {
            let profiles = needs.profiles_of(&entry);
            let rules = entry.rules.iter().filter(|_| !profiles.is_empty());
            let wanted = rules.flat_map(|rule| rule.needs(&profiles)).collect();
            (entry, wanted)
        })
        .collect();

    let Some(found) = found else {
        let needed = table.iter().filter(|(_, wanted)| !wanted.is_empty());
        let lacks: Vec<&str> = needed.map(|(entry, _)| entry.name.as_str()).collect();
        if configuration == Configuration::Validating || lacks.is_empty() {
            return Vec::new();
        }
        return vec![Difference {
            configuration,
            entry: String::new(),
            field: Field::Object,
            found: format!("{} {} does not exist", configuration.kind(), configuration.name()),
            wanted: format!("entries {}", lacks.join(", ")),
        }];
    };

    let present = |name: &str| {
        let webhooks = found["webhooks"].as_array().into_iter().flatten();
        webhooks.into_iter().find(|webhook| webhook["name"] == name)
    };
    table
        .iter()
        .flat_map(|(entry, wanted)| match present(&entry.name) {
            Some(webhook) => of_entry(entry, wanted, webhook, needs),
            None if wanted.is_empty() => Vec::new(),
            None => vec![difference(entry, Field::Entry, "missing", &all_of(wanted))],
        })
        .collect()
}

fn difference(entry: &Entry, field: Field, found: &str, wanted: &str) -> Difference {
    Difference {
        configuration: entry.configuration,
        entry: entry.name.clone(),
        field,
        found: found.to_owned(),
        wanted: wanted.to_owned(),
    }
}

fn of_entry(entry: &Entry, wanted: &[Need], found: &Value, needs: &Needs<'_>) -> Vec<Difference> {
    // With all profiles, as only the other fields are compared.
    let all = Options {
        profiles: Profile::ALL.to_vec(),
        ..needs.options.clone()
    };
    let Some(model) = webhook(entry, &all) else {
        return Vec::new();
    };

    let mut all = policies(entry, found, &model);
    all.extend(client_config(entry, found, needs));
    if wanted.is_empty() {
        return all;
    }

    all.extend(rules(entry, wanted, found));
    all.extend(match_conditions(entry, found));
    all.extend(object_selector(entry, found, &model));
    all.extend(namespace_selector(entry, found, &model, needs));
    all
}

/// Fields with one right value, and the timeout.
fn policies(entry: &Entry, found: &Value, model: &Value) -> Vec<Difference> {
    let fields = [
        (Field::FailurePolicy, "Fail"),
        (Field::MatchPolicy, "Equivalent"),
        (Field::ReinvocationPolicy, "Never"),
    ];
    let mut all = Vec::new();
    for (field, default) in fields {
        let Some(wanted) = model[field.as_str()].as_str() else {
            continue;
        };
        let found = found[field.as_str()].as_str().unwrap_or(default);
        if found != wanted {
            all.push(difference(entry, field, found, wanted));
        }
    }

    // The API server's default is 10.
    let seconds = found["timeoutSeconds"].as_u64().unwrap_or(10);
    if seconds > TIMEOUT_SECONDS {
        let wanted = format!("at most {TIMEOUT_SECONDS}: each write waits as long while the webhook is unavailable");
        all.push(difference(entry, Field::TimeoutSeconds, &seconds.to_string(), &wanted));
    }

    all
}

fn client_config(entry: &Entry, found: &Value, needs: &Needs<'_>) -> Vec<Difference> {
    let config = &found["clientConfig"];
    let (host, path) = (client::host(config), client::path(config));
    let wanted_path = entry.configuration.path();
    let is_ours = |host: &String| needs.server_names.is_empty() || needs.server_names.contains(host);
    if !host.as_ref().is_some_and(is_ours) || path != wanted_path {
        let found = format!("{}{path}", host.unwrap_or_default());
        let wanted = format!("{}{wanted_path}", needs.server_names.join(" or "));
        return vec![difference(entry, Field::ClientConfig, &found, &wanted)];
    }

    let bundle = client::bundle(config);
    let wanted = "the CA that signs the served certificate";
    match bundle {
        // With a URL, API servers may trust a public authority.
        None if config["url"].is_string() => Vec::new(),
        None => vec![difference(entry, Field::CaBundle, "empty", wanted)],
        Some(bundle) if (needs.trusts)(&bundle) => Vec::new(),
        Some(_) => vec![difference(entry, Field::CaBundle, "other CAs only", wanted)],
    }
}

fn rules(entry: &Entry, wanted: &[Need], found: &Value) -> Option<Difference> {
    let rules: Vec<&Value> = found["rules"].as_array().into_iter().flatten().collect();
    let missing: Vec<String> = wanted.iter().filter_map(|need| need.lacks(&rules)).collect();
    (!missing.is_empty()).then(|| difference(entry, Field::Rules, "incomplete", &missing.join("; ")))
}

fn all_of(wanted: &[Need]) -> String {
    let all: Vec<String> = wanted.iter().filter_map(|need| need.lacks(&[])).collect();
    all.join("; ")
}

impl Need {
    /// The operations that no rule sends, with the resource.
    fn lacks(&self, rules: &[&Value]) -> Option<String> {
        let lacks = |operation: &&&str| !rules.iter().any(|rule| self.is_sent(rule, operation));
        let missing: Vec<&str> = self.operations.iter().filter(lacks).copied().collect();
        let dot = if self.group.is_empty() { "" } else { "." };
        (!missing.is_empty()).then(|| format!("{} of {}{dot}{}", missing.join(" and "), self.plural, self.group))
    }

    /// API servers convert objects to the version of the rule (matchPolicy Equivalent), so one version is enough.
    fn is_sent(&self, rule: &Value, operation: &str) -> bool {
        let has = |field: &str, one: &str| {
            let mut items = rule[field].as_array().into_iter().flatten();
            items.any(|item| item == one || item == "*" || field == "resources" && item == "*/*")
        };
        has("apiGroups", self.group)
            && has("resources", self.plural)
            && has("operations", operation)
            && self.versions.iter().any(|version| has("apiVersions", version))
            && (matches!(rule["scope"].as_str(), None | Some("*")) || rule["scope"] == self.scope)
    }
}

/// Other conditions may keep objects away that the webhook changes.
fn match_conditions(entry: &Entry, found: &Value) -> Option<Difference> {
    let own = conditions(entry);
    let is_own = |one: &&Value| {
        let expression = one["expression"].as_str().unwrap_or_default();
        own.iter().any(|(_, own)| own == expression)
    };
    let all: Vec<&Value> = found["matchConditions"].as_array().into_iter().flatten().collect();
    let other = all.iter().find(|one| !is_own(one))?;
    let text = |key| other[key].as_str().unwrap_or_default();
    let found = format!("condition {:?}: {}", text("name"), text("expression"));
    let wanted = "only those of `outrigger webhook register`";
    Some(difference(entry, Field::MatchConditions, &found, wanted))
}

fn object_selector(entry: &Entry, found: &Value, model: &Value) -> Option<Difference> {
    let found = &found["objectSelector"];
    if is_empty(found) || *found == model["objectSelector"] {
        return None;
    }
    let wanted = match &model["objectSelector"] {
        Value::Null => "none".to_owned(),
        selector => selector.to_string(),
    };
    Some(difference(entry, Field::ObjectSelector, &found.to_string(), &wanted))
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(|fields| {
        fields
            .values()
            .all(|part| part.is_null() || part == &serde_json::json!([]) || part == &serde_json::json!({}))
    })
}

/// The namespaces that a target selects and the entry of the table covers, but that in the cluster does not.
fn namespace_selector(entry: &Entry, found: &Value, model: &Value, needs: &Needs<'_>) -> Option<Difference> {
    if entry.namespaces == Namespaces::None {
        return None;
    }

    let selector = &found["namespaceSelector"];
    let hidden: Vec<(&String, &Migration<'_>)> = needs
        .namespaces
        .iter()
        .filter(|(_, labels)| selects(&model["namespaceSelector"], labels) && !selects(selector, labels))
        .filter_map(|(name, labels)| {
            let mut targets = needs.targets_of(entry.namespaces);
            let (_, migration) =
                targets.find(|(target, _)| is_of(entry, target) && needs.selects(target, name, labels))?;
            Some((name, migration))
        })
        .collect();
    let (_, migration) = hidden.first()?;

    let names: Vec<&str> = hidden.iter().take(MAX_NAMED).map(|(name, _)| name.as_str()).collect();
    let more = if hidden.len() > MAX_NAMED { ", …" } else { "" };
    let found = format!("{selector} hides {}{more}", names.join(", "));
    let wanted = format!(
        "every namespace that a target of the migration {} selects",
        migration.name
    );
    Some(difference(entry, Field::NamespaceSelector, &found, &wanted))
}

fn is_of(entry: &Entry, target: &Target) -> bool {
    entry
        .rules
        .iter()
        .any(|rule| rule.pairs(&[target.profile]).next().is_some())
}

/// As API servers match; an invalid selector matches nothing.
fn selects(selector: &Value, labels: &Labels) -> bool {
    if selector.is_null() {
        return true;
    }
    let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

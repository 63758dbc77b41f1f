//! Lists stored objects page by page: only kinds of the profiles of a migration's targets, only in the namespaces that
//! the targets select.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use http::StatusCode;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::Selector;
use kube::{Api, Client};
use outrigger_api_client::pages;
use outrigger_decide::{Kind, is_checked, kinds};
use outrigger_shared::migration::{CloudProviderMigration, Selected, Target};
use serde_json::Value;

use crate::view::Labels;

/// Objects per page; bounds the memory.
const PAGE: u32 = 200;
/// With more namespaces than this, one list of the whole cluster is cheaper than one list per namespace.
const MAX_NAMESPACED_LISTS: usize = 20;

/// Which objects of one kind a target selects.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Scope {
    /// The namespaces; none for the whole cluster.
    namespaces: Option<Vec<String>>,
    labels: Option<String>,
}

impl Scope {
    /// Each kind of the migration's targets, with its scope. A kind is listed once per scope.
    pub fn of(
        migration: &CloudProviderMigration,
        namespaces: &BTreeMap<String, Labels>,
        own_namespace: &str,
    ) -> Vec<(&'static Kind, Self)> {
        let mut found: Vec<(&'static Kind, Self)> = Vec::new();
        for target in migration.spec.targets.iter().filter(|target| !target.selects_nothing()) {
            for kind in kinds().filter(|kind| is_checked(kind) && kind.profiles.contains(&target.profile)) {
                let scope = Self::for_target(target, kind, namespaces, own_namespace);
                let same = |(other, its): &(&Kind, Self)| {
                    (other.group, other.kind) == (kind.group, kind.kind) && *its == scope
                };
                if !found.iter().any(same) {
                    found.push((kind, scope));
                }
            }
        }

        found
    }

    fn for_target(target: &Target, kind: &Kind, namespaces: &BTreeMap<String, Labels>, own: &str) -> Self {
        let selects = |(name, labels): &(&String, &Labels)| {
            target.selects_namespace(name, Some(labels), Some(own)) == Selected::Yes
        };
        let chosen: Vec<String> = namespaces
            .iter()
            .filter(selects)
            .map(|(name, _)| name.clone())
            .collect();
        let by_namespace = kind.namespaced && chosen.len() <= MAX_NAMESPACED_LISTS;
        // A selector that cannot be read matches nothing, which the decision finds out.
        let selector = target
            .object_selector
            .clone()
            .and_then(|selector| Selector::try_from(selector).ok());

        Self {
            namespaces: by_namespace.then_some(chosen),
            labels: selector
                .map(|selector| selector.to_string())
                .filter(|text| !text.is_empty()),
        }
    }
}

/// Passes every object of a kind in the scope to `take`; none if the API server does not serve the kind.
///
/// # Errors
/// A text that names the kind and the reason.
pub(super) async fn each(
    client: &Client,
    kind: &Kind,
    scope: &Scope,
    mut take: impl FnMut(&Value),
) -> Result<(), String> {
    for version in kind.versions {
        match in_version(client, kind, version, scope, &mut take).await {
            Ok(()) => return Ok(()),
            // Another version of the group may be served.
            Err(error) if is_not_served(&error) => {}
            Err(error) => {
                let (group, plural) = (kind.group, kind.plural);
                let group = if group.is_empty() { "v1" } else { group };
                return Err(format!("{plural} of {group:?}: {error}"));
            }
        }
    }
    Ok(())
}

async fn in_version(
    client: &Client,
    kind: &Kind,
    version: &str,
    scope: &Scope,
    take: &mut impl FnMut(&Value),
) -> Result<(), kube::Error> {
    let api_version = if kind.group.is_empty() {
        version.to_owned()
    } else {
        format!("{}/{version}", kind.group)
    };
    let resource = ApiResource {
        group: kind.group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.clone(),
        kind: kind.kind.to_owned(),
        plural: kind.plural.to_owned(),
    };
    let apis: Vec<Api<DynamicObject>> = match &scope.namespaces {
        None => vec![Api::all_with(client.clone(), &resource)],
        Some(names) => names
            .iter()
            .map(|name| Api::namespaced_with(client.clone(), name, &resource))
            .collect(),
    };

    for api in apis {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector.clone_from(&scope.labels);
        let mut pages = std::pin::pin!(pages(api, parameters));
        while let Some(objects) = pages.try_next().await? {
            for object in objects {
                let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
                // Items of a list do not say what they are.
                object["apiVersion"] = Value::from(api_version.as_str());
                object["kind"] = Value::from(kind.kind);
                take(&object);
            }
        }
    }

    Ok(())
}

fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == StatusCode::NOT_FOUND.as_u16())
}

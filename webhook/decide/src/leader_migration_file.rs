//! The leader migration file in the Pod of a kube-controller-manager.
//!
//! The Pod template contains everything: an annotation holds the text, a downwardAPI volume makes a file of it, and the
//! container mounts the volume. No other object must exist first, none is orphaned, and a rollback of the template also
//! rolls back the file. The additions are recorded in the undo annotation, so that only these are removed.

use std::collections::BTreeMap;

use outrigger_shared::{
    annotations,
    leader_migration::{FILE, FILE_NAME, FOLDER},
    migration::CloudProviderMigrationSpec,
    version::KubernetesVersion,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::patch::{Builder, Path};

const VOLUME: &str = "outrigger-leader-migration";

/// An addition, as recorded in the undo annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "made", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Addition {
    Annotation {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<Value>,
    },
    Volume {
        #[serde(default, skip_serializing_if = "ListBefore::is_list")]
        before: ListBefore,
    },
    Mount {
        container: String,
        #[serde(default, skip_serializing_if = "ListBefore::is_list")]
        before: ListBefore,
    },
}

/// A list before an item was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ListBefore {
    #[default]
    List,
    Missing,
    Null,
}

impl ListBefore {
    fn is_list(&self) -> bool {
        *self == Self::List
    }
}

/// The file that a container needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileRequest {
    Nothing,
    /// Its flags are not changed, so a file that they name stays.
    AsItIs,
    Text(String),
}

#[derive(Debug, Default)]
pub(super) struct Change {
    pub made: Vec<Addition>,
    /// The new value of the annotation, if it changes; `Some(None)` removes it.
    pub annotation: Option<Option<Value>>,
    pub reasons: Vec<String>,
}

/// The text of the file, for owners who must provide it where no Pod template can; none without `spec.leaderMigration`.
pub(super) fn text_for_owner(spec: &CloudProviderMigrationSpec, version: Option<KubernetesVersion>) -> Option<String> {
    let config = spec.leader_migration.as_ref()?;
    if let Some(problem) = spec.leader_name_problem() {
        return Some(problem.to_string());
    }

    let version = version?;
    let file = config.for_kube_controller_manager(version).ok()?;
    Some(format!(
        "the leader migration file for a kube-controller-manager {version}: {}",
        file.one_line()
    ))
}

/// The file for a cloud-controller-manager from 1.28 on, which its owner must provide.
pub(super) fn for_manager(spec: &CloudProviderMigrationSpec) -> String {
    let config = spec.leader_migration.clone().unwrap_or_default();
    format!(
        "the leader migration file for a cloud-controller-manager from 1.28 on: {}",
        config.for_cloud_controller_manager().one_line()
    )
}

/// Why the file cannot be added; none if it can.
pub(super) fn obstacle(pod: &Value, container: &Value) -> Option<String> {
    let volumes = match list(pod.pointer("/spec/volumes")) {
        Ok(volumes) => volumes,
        Err(()) => return Some("spec.volumes is not a list; correct it".to_owned()),
    };
    if volumes.iter().any(|volume| is_named(volume) && !is_our_volume(volume)) {
        return Some(format!(
            "spec.leaderMigration needs a volume named {VOLUME:?}, and the one there is another; give that another name"
        ));
    }
    let Ok(mounts) = list(container.get("volumeMounts")) else {
        return Some("its volumeMounts is not a list; correct it".to_owned());
    };

    let mount = mounts
        .iter()
        .filter(|mount| !is_our_mount(mount))
        .find(|mount| is_named(mount) || is_in_the_way(mount_path(mount)))?;
    Some(format!(
        "spec.leaderMigration needs {FOLDER} for its file, and the mount of {:?} at {:?} is in the way; mount that elsewhere",
        mount.get("name").and_then(Value::as_str).unwrap_or_default(),
        mount_path(mount)
    ))
}

fn list(value: Option<&Value>) -> Result<&[Value], ()> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(()),
    }
}

fn mount_path(mount: &Value) -> &str {
    mount.get("mountPath").and_then(Value::as_str).unwrap_or_default()
}

/// A mount at the folder, above it or below it conflicts: both mounts are read-only, so neither can contain the other.
fn is_in_the_way(path: &str) -> bool {
    let parts = |path: &'_ str| -> Vec<String> {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        parts.map(str::to_owned).collect()
    };
    let (one, other) = (parts(path), parts(FOLDER));
    one.starts_with(&other) || other.starts_with(&one)
}

fn field_path() -> String {
    format!("metadata.annotations['{}']", annotations::LEADER_MIGRATION)
}

/// With the defaults of the API server, so that it adds nothing.
fn our_volume() -> Value {
    let item = json!({"path": FILE_NAME, "fieldRef": {"apiVersion": "v1", "fieldPath": field_path()}});
    json!({"name": VOLUME, "downwardAPI": {"items": [item], "defaultMode": 420}})
}

fn our_mount() -> Value {
    json!({"name": VOLUME, "mountPath": FOLDER, "readOnly": true})
}

fn is_named(element: &Value) -> bool {
    element.get("name").and_then(Value::as_str) == Some(VOLUME)
}

/// Compares only the defining fields; a later API server may add defaults.
fn is_our_volume(volume: &Value) -> bool {
    let items = volume.pointer("/downwardAPI/items").and_then(Value::as_array);
    let is_ours = |item: &Value| {
        item.get("path").and_then(Value::as_str) == Some(FILE_NAME)
            && item.pointer("/fieldRef/fieldPath").and_then(Value::as_str) == Some(&field_path())
    };
    is_named(volume) && items.is_some_and(|items| matches!(&items[..], [item] if is_ours(item)))
}

fn is_our_mount(mount: &Value) -> bool {
    is_named(mount)
        && mount_path(mount) == FOLDER
        && ["subPath", "subPathExpr"].iter().all(|key| mount.get(*key).is_none())
}

/// Adds, keeps or removes the file. `made` are the recorded additions, `requests` those of the containers by index; a
/// container without a request needs no file.
pub(super) fn change(
    builder: &mut Builder,
    root: &Path,
    pod: &Value,
    made: &[Addition],
    requests: &BTreeMap<usize, FileRequest>,
) -> Change {
    let mut change = Change::default();
    let spec = root.child("spec");
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);

    for (index, container) in containers.into_iter().flatten().enumerate() {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        let noted = made.iter().find_map(|made| match made {
            Addition::Mount { container, before } if container == name => Some(*before),
            _ => None,
        });
        let mounts = ListEdit {
            path: spec.child("containers").index(index).child("volumeMounts"),
            list: container.get("volumeMounts"),
            new: our_mount(),
            is_ours: is_our_mount,
        };
        let request = requests.get(&index).unwrap_or(&FileRequest::Nothing);
        let before = mounts.change(builder, request, noted);

        change.made.extend(before.map(|before| Addition::Mount {
            container: name.to_owned(),
            before,
        }));
    }

    let request = of_all(requests);
    let noted = made.iter().find_map(|made| match made {
        Addition::Volume { before } => Some(*before),
        _ => None,
    });
    let volumes = ListEdit {
        path: spec.child("volumes"),
        list: pod.pointer("/spec/volumes"),
        new: our_volume(),
        is_ours: is_our_volume,
    };
    let before = volumes.change(builder, request, noted);
    change.made.extend(before.map(|before| Addition::Volume { before }));

    let noted = made.iter().find(|made| matches!(made, Addition::Annotation { .. }));
    annotation(pod, noted, request, &mut change);

    change
}

/// Volume and annotation are shared by all containers.
fn of_all(requests: &BTreeMap<usize, FileRequest>) -> &FileRequest {
    let find = |is: fn(&&FileRequest) -> bool| requests.values().find(is);
    find(|request| matches!(request, FileRequest::Text(_)))
        .or_else(|| find(|request| matches!(request, FileRequest::AsItIs)))
        .unwrap_or(&FileRequest::Nothing)
}

fn annotation(pod: &Value, noted: Option<&Addition>, request: &FileRequest, change: &mut Change) {
    let key = annotations::LEADER_MIGRATION;
    let now = super::annotation(pod, key);
    match request {
        FileRequest::AsItIs => change.made.extend(noted.cloned()),
        FileRequest::Text(text) if now.and_then(Value::as_str) == Some(text) => change.made.extend(noted.cloned()),
        FileRequest::Text(text) => {
            let new = || Addition::Annotation { was: now.cloned() };
            change.made.push(noted.cloned().unwrap_or_else(new));
            change.annotation = Some(Some(json!(text)));
            let reason = format!("annotation {key} holds spec.leaderMigration, and a volume makes {FILE} of it");
            change.reasons.push(reason);
        }
        FileRequest::Nothing => {
            if let (Some(Addition::Annotation { was }), true) = (noted, now.is_some()) {
                change.annotation = Some(was.clone());
                change
                    .reasons
                    .push(format!("annotation {key} and its volume are removed"));
            }
        }
    }
}

/// A list with an item of ours, or without.
struct ListEdit<'a> {
    path: Path,
    list: Option<&'a Value>,
    new: Value,
    is_ours: fn(&Value) -> bool,
}

impl ListEdit<'_> {
    /// Adds or removes our item. `noted` is the list before our addition; the result is recorded.
    fn change(&self, builder: &mut Builder, request: &FileRequest, noted: Option<ListBefore>) -> Option<ListBefore> {
        let items = self.list.and_then(Value::as_array);
        let ours = items.and_then(|items| items.iter().position(self.is_ours));
        match (request, ours) {
            (FileRequest::AsItIs, _) | (FileRequest::Text(_), Some(_)) => noted,
            (FileRequest::Text(_), None) => Some(self.add(builder)),
            (FileRequest::Nothing, ours) => {
                if let (Some(before), Some(at), Some(items)) = (noted, ours, items) {
                    self.take(builder, before, at, items);
                }
                None
            }
        }
    }

    fn add(&self, builder: &mut Builder) -> ListBefore {
        match self.list {
            None => {
                builder.add(&self.path, json!([self.new]));
                ListBefore::Missing
            }
            Some(Value::Array(items)) => {
                builder.add(&self.path.index(items.len()), self.new.clone());
                ListBefore::List
            }
            Some(_) => {
                builder.replace(&self.path, json!([self.new]));
                ListBefore::Null
            }
        }
    }

    fn take(&self, builder: &mut Builder, before: ListBefore, at: usize, items: &[Value]) {
        match (before, items) {
            (ListBefore::Missing, [_]) => builder.remove(&self.path),
            (ListBefore::Null, [_]) => builder.replace(&self.path, Value::Null),
            _ => builder.remove(&self.path.index(at)),
        }
    }
}

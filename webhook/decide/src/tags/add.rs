//! Adds the cluster's tag, only where no cluster's key is present; existing values are never changed. An instance with
//! the keys of two clusters stops both managers.

use outrigger_shared::{annotations, migration::Phase, tags};
use serde_json::{Value, json};

use super::{
    Draft, Input, Migration, Operation, annotation,
    findings::{self, MAX_TAGS, TagField},
    format::{TagFormat, Tags},
    row::{Add, Policy, Role, TagPath, TagRow, When},
};
use crate::patch::{Builder, NotAnObject, Path};

/// The resource type in launch templates that gets the tag.
const INSTANCE: &str = "instance";
const RESOURCE_TYPE: &str = "resourceType";

enum NotAdded {
    /// Not needed, or not now.
    Needed(String),
    /// Not possible; the client gets a warning.
    Possible(String),
    /// Not possible because of a tag with this key; of the field as a whole if the key is empty.
    Because(String, String),
}

/// Adds the tag to the patch of the draft, or a reason. Returns the key that prevents it and that the draft already
/// reports.
pub(super) fn draft(
    input: &Input<'_>,
    migration: &Migration<'_>,
    row: &'static TagRow,
    draft: &mut Draft,
) -> Option<String> {
    match add(input, migration, row) {
        Ok((builder, reason)) => {
            draft.patch = builder.finish();
            draft.reasons.push(reason);
        }
        Err(NotAdded::Needed(reason)) => draft.reasons.push(reason),
        Err(NotAdded::Possible(warning)) => draft.refuse(warning),
        Err(NotAdded::Because(warning, key)) => {
            draft.refuse(warning);
            return Some(key);
        }
    }
    None
}

fn add(input: &Input<'_>, migration: &Migration<'_>, row: &'static TagRow) -> Result<(Builder, String), NotAdded> {
    may_act(input, migration, row)?;

    let target = target(row, input.object)?;
    let key = tags::cluster_key(&migration.spec.cluster_id);
    let value = migration.spec.ownership.as_str();
    check_clusters(&target, &key, migration, row)?;
    in_one_list(&target)?;
    check_limits(&target, &key, value)?;

    let mut builder = Builder::default();
    target
        .write(&mut builder, input.object, &key, value)
        .map_err(|error| NotAdded::Possible(format!("no cluster tag is added: {error}")))?;

    let what = resources(row);
    let reason =
        format!("tag {key}={value} added, by which a cloud-controller-manager identifies the cluster's {what}");
    Ok((builder, reason))
}

fn may_act(input: &Input<'_>, migration: &Migration<'_>, row: &'static TagRow) -> Result<(), NotAdded> {
    let not = |reason: String| Err(NotAdded::Needed(reason));
    let add = match row.policy {
        Policy::Add(add) => add,
        Policy::Validate(why) => return not(format!("no cluster tag is added: {why}")),
        Policy::Illegal(_) => return not("no cluster tag is added, as none is allowed here".to_owned()),
    };
    if migration.spec.phase == Phase::InTree {
        return not("tags are added from phase Prepare on".to_owned());
    }
    if !(is_occasion(input, add) || keeps(input, migration, row)) || input.is_being_deleted() {
        return not(match add.when {
            When::Asked => format!("the tag is added only with the annotation {}", annotations::APPLY),
            When::Create => "the tag is added only at the creation".to_owned(),
            When::CreateAndUpdate => format!("the update does not change {}", shown(add.triggers)),
        });
    }

    match owner(input.object, add.not_owned_by) {
        Some(owner) => not(format!(
            "its {owner} compares it with its own template, where the tag belongs"
        )),
        None => Ok(()),
    }
}

fn is_occasion(input: &Input<'_>, add: Add) -> bool {
    let create = input.operation == Operation::Create;
    let asked = annotation(input.object, annotations::APPLY).is_some();
    match add.when {
        When::Create => create,
        When::Asked => (create && asked) || input.asks_for_phase(),
        When::CreateAndUpdate => {
            create || input.asks_for_phase() || add.triggers.iter().any(|trigger| input.changes(trigger, &[]))
        }
    }
}

/// Whether the stored object has the tag: an owner that applies its original manifest again must not remove it.
fn keeps(input: &Input<'_>, migration: &Migration<'_>, row: &'static TagRow) -> bool {
    let own = tags::cluster_key(&migration.spec.cluster_id);
    let stored = input.old_object.and_then(|old| target(row, old).ok());
    stored.is_some_and(|stored| stored.tags.pairs.iter().any(|(key, _)| *key == own))
}

fn shown(triggers: &[&str]) -> String {
    let fields = triggers
        .iter()
        .map(|trigger| trigger.trim_start_matches('/').replace('/', "."));
    fields.collect::<Vec<_>>().join(", ")
}

/// The kind of the controlling owner, if it is in the list.
fn owner<'a>(object: &'a Value, kinds: &[&str]) -> Option<&'a str> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let controller = owners
        .into_iter()
        .flatten()
        .find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let kind = controller.get("kind").and_then(Value::as_str)?;
    kinds.contains(&kind).then_some(kind)
}

/// The field that gets the tag.
struct Target<'a> {
    shape: TagFormat,
    /// The path of the tags, or of the list that lacks an element for instances.
    at: Path,
    tags: Tags,
    /// The length of the list; none if the field is missing.
    length: Option<usize>,
    /// The launch template has no element for instances.
    is_new_element: bool,
    /// Other fields with tags of the same resource.
    same: Vec<TagField<'a>>,
}

fn target<'a>(row: &'static TagRow, object: &'a Value) -> Result<Target<'a>, NotAdded> {
    match row.launch_template {
        Some(list) => in_launch_template(row, list, object),
        None => {
            let path = row
                .target()
                .ok_or_else(|| NotAdded::Needed("the kind has no place for the tag".to_owned()))?;
            let at = Path::parse(path.pointer).unwrap_or_default();
            check_parent(object, &at)?;

            let found = object.pointer(path.pointer);
            let places = findings::places(row, object).into_iter();
            Ok(Target {
                shape: path.shape,
                tags: path.shape.read(found),
                length: found.and_then(Value::as_array).map(Vec::len),
                at,
                is_new_element: false,
                same: places.filter(|place| place.path.role == Role::Same).collect(),
            })
        }
    }
}

/// The parent object is not created: without it, the object has no AWS settings.
fn check_parent(object: &Value, at: &Path) -> Result<(), NotAdded> {
    let keys: Vec<&str> = at.keys().collect();
    let parent = keys.split_last().map(|(_, parent)| parent).unwrap_or_default();
    let found = object.pointer(Path::new(parent).pointer().as_str());
    if found.is_some_and(Value::is_object) {
        return Ok(());
    }

    let name = parent.last().copied().unwrap_or("object");
    Err(NotAdded::Needed(format!("there is no {name} to hold tags")))
}

fn in_launch_template<'a>(row: &'static TagRow, list: &'static str, object: &'a Value) -> Result<Target<'a>, NotAdded> {
    let at = Path::parse(list).unwrap_or_default();
    check_parent(object, &at)?;

    let nested = row.paths.iter().find(|path| path.pointer.strip_prefix(list).is_some());
    let Some(TagPath { shape, .. }) = nested else {
        return Err(NotAdded::Needed("the kind has no place for the tag".to_owned()));
    };

    let found = object.pointer(list).filter(|found| !found.is_null());
    let elements = match found {
        None => &[],
        Some(Value::Array(elements)) => elements.as_slice(),
        Some(_) => {
            return Err(NotAdded::Possible(format!(
                "{list} is not a list, so no cluster tag is added; correct it"
            )));
        }
    };

    let is_instance = |element: &Value| element.get(RESOURCE_TYPE).and_then(Value::as_str) == Some(INSTANCE);
    let place = elements.iter().position(is_instance);
    let tags = place.and_then(|index| elements.get(index)?.get("tags"));
    let length = match place {
        Some(_) => tags.and_then(Value::as_array).map(Vec::len),
        None => found.map(|_| elements.len()),
    };

    Ok(Target {
        shape: *shape,
        tags: shape.read(tags),
        length,
        at: place.map_or_else(|| at.clone(), |index| at.index(index).child("tags")),
        is_new_element: place.is_none(),
        same: Vec::new(),
    })
}

fn check_clusters(target: &Target<'_>, own: &str, migration: &Migration<'_>, row: &TagRow) -> Result<(), NotAdded> {
    if let Some(problem) = target.tags.problem {
        let at = target.at.pointer();
        let warning = format!("{at} {problem}, so no cluster tag is added; correct it");
        return Err(NotAdded::Because(warning, String::new()));
    }

    let same = target.same.iter().flat_map(|place| place.tags().pairs);
    let all: Vec<(String, String)> = target.tags.pairs.iter().cloned().chain(same).collect();
    let foreign = all.iter().find(|(key, value)| {
        let other_key = key.starts_with(tags::CLUSTER_PREFIX) && key != own;
        let other_legacy = key == tags::LEGACY_CLUSTER && *value != migration.spec.cluster_id;
        other_key || other_legacy
    });

    match foreign {
        Some((key, value)) if row.shareable && value == tags::SHARED => Err(NotAdded::Because(
            format!(
                "the tags hold {key:?}, so no cluster tag is added; if both clusters share the resource, add {own}=shared"
            ),
            key.clone(),
        )),
        Some((key, _)) => Err(NotAdded::Because(
            format!(
                "the tags hold {key:?}, which names another cluster, so no cluster tag is added; correct it or spec.targets"
            ),
            key.clone(),
        )),
        None if all.iter().any(|(key, _)| key == own) => Err(present(target, own)),
        None => Ok(()),
    }
}

/// The tag is present: instances of the group must get it too.
fn present(target: &Target<'_>, own: &str) -> NotAdded {
    let of_same = target.same.iter().flat_map(|place| place.tags().not_propagated);
    let mut stays = target.tags.not_propagated.iter().cloned().chain(of_same);
    if !stays.any(|key| key == own) {
        return NotAdded::Needed("the cluster tag is there".to_owned());
    }

    NotAdded::Because(
        format!(
            "the instances of the group do not get tag {own:?}, so they do not belong to the cluster; set its propagateAtLaunch: true"
        ),
        own.to_owned(),
    )
}

/// Refuses a second list for a group: Crossplane does not merge the lists, so a new one would replace the other.
fn in_one_list(target: &Target<'_>) -> Result<(), NotAdded> {
    let is_new = target.shape == TagFormat::GroupList && target.tags.pairs.is_empty();
    let other = target.same.iter().find(|place| !place.tags().pairs.is_empty());
    let Some(other) = other.filter(|_| is_new) else {
        return Ok(());
    };

    let (at, own) = (other.path.pointer, target.at.pointer());
    Err(NotAdded::Possible(format!(
        "a list at {own} would replace that at {at}, so no cluster tag is added; add it to {at} with propagation at launch"
    )))
}

/// Checks the limits of AWS for one more tag.
fn check_limits(target: &Target<'_>, key: &str, value: &str) -> Result<(), NotAdded> {
    if let Some(problem) = findings::unfit(key, value, target.shape) {
        return Err(NotAdded::Possible(format!(
            "no cluster tag is added, as its key {problem}"
        )));
    }
    if target.tags.pairs.len() >= MAX_TAGS {
        let count = target.tags.pairs.len();
        return Err(NotAdded::Possible(format!(
            "there are {count} tags and AWS takes {}, so no cluster tag is added; remove one",
            MAX_TAGS
        )));
    }

    Ok(())
}

impl Target<'_> {
    fn write(&self, builder: &mut Builder, object: &Value, key: &str, value: &str) -> Result<(), NotAnObject> {
        let only = self.shape.only(key, value).unwrap_or_default();
        let keys: Vec<&str> = self.at.keys().collect();
        let whole = Path::default();
        if self.is_new_element {
            let element = json!({RESOURCE_TYPE: INSTANCE, "tags": only});
            match self.length {
                Some(length) => builder.add(&self.at.index(length), element),
                None => builder.set(&whole, object, &keys, json!([element]))?,
            }
            return Ok(());
        }

        match (self.shape.element(key, value), self.length) {
            (Some(element), Some(length)) => builder.add(&self.at.index(length), element),
            (Some(_), None) => self.set(builder, object, &keys, only)?,
            (None, _) => {
                let keys: Vec<&str> = keys.into_iter().chain([key]).collect();
                self.set(builder, object, &keys, json!(value))?;
            }
        }

        Ok(())
    }

    /// Sets a field whose parent exists, possibly as an element of a list.
    fn set(&self, builder: &mut Builder, object: &Value, keys: &[&str], new: Value) -> Result<(), NotAnObject> {
        let depth = self.at.keys().count().saturating_sub(1);
        let (parent, rest) = keys.split_at(depth);
        let parent = Path::new(parent);
        let found = object.pointer(parent.pointer().as_str()).unwrap_or(&Value::Null);
        builder.set(&parent, found, rest, new)
    }
}

fn resources(row: &TagRow) -> &'static str {
    match row.kind {
        "Subnet" => "subnets",
        "RouteTable" => "route tables",
        "SecurityGroup" => "security groups",
        "EBSVolume" | "Volume" => "volumes",
        _ => "instances",
    }
}

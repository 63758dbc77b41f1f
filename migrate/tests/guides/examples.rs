//! Examples: an object, and its fields in a phase, as `outrigger mutate` prints them with the migration of the page.
//!
//! A comment above a block marks it: `<!-- mutate Prepare, Migrate: before -->` and `<!-- mutate Prepare: after -->`.

use serde_json::Value;

use crate::migrations;
use crate::page::Page;
use crate::support::outrigger;

pub struct Example {
    before: String,
    phase: String,
    after: String,
}

/// The phases of a mark, and whether the object is that before them.
fn mark(above: &str) -> Option<(Vec<String>, bool)> {
    let text = above.strip_prefix("<!-- mutate ")?.strip_suffix(" -->")?;
    let (phases, side) = text.split_once(": ")?;
    Some((phases.split(", ").map(str::to_owned).collect(), side == "before"))
}

pub fn of(page: &Page) -> Vec<Example> {
    let blocks: Vec<_> = page
        .blocks()
        .into_iter()
        .filter_map(|block| Some((mark(&block.above)?, block.text)))
        .collect();
    let mut examples = Vec::new();
    for ((phases, is_before), after) in &blocks {
        if *is_before {
            let has_phase = |phase: &String| {
                blocks
                    .iter()
                    .any(|((others, before), _)| !before && others.contains(phase))
            };
            assert!(
                phases.iter().all(has_phase),
                "{}: no result of {phases:?}",
                page.path.display()
            );
            continue;
        }
        let phase = &phases[0];
        let before = blocks
            .iter()
            .find(|((others, before), _)| *before && others.contains(phase));
        examples.push(Example {
            before: before.unwrap().1.clone(),
            phase: phase.clone(),
            after: after.clone(),
        });
    }
    examples
}

pub fn faults(page: &Page) -> Vec<String> {
    // The migration with the objects of the provisioner is the last one.
    let Some(migration) = migrations::documents(page).pop() else {
        return Vec::new();
    };
    let faults = of(page)
        .into_iter()
        .flat_map(|example| of_example(&example, &migration));
    faults.map(|fault| page.fault(fault)).collect()
}

fn of_example(example: &Example, migration: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let object: Value = serde_saphyr::from_str(&example.before).unwrap();
    let (new, migration) = (write("new.yaml", &example.before), write("migration.yaml", migration));
    let mut stored = object.clone();
    let metadata = stored["metadata"].as_object_mut().unwrap();
    let is_update = metadata.remove("annotations").is_some();
    let old = write("old.yaml", &stored.to_string());

    let mut arguments = vec![
        "mutate",
        "-f",
        &new,
        "--migration",
        &migration,
        "--phase",
        &example.phase,
    ];
    arguments.extend(["--prepared", "-o", "yaml"]);
    if is_update {
        arguments.extend(["--old", &old]);
    }
    let run = outrigger(&arguments);
    if run.code != Some(0) {
        return vec![run.seen()];
    }

    let result: Value = serde_saphyr::from_str(&run.stdout).unwrap();
    let expected: Value = serde_saphyr::from_str(&example.after).unwrap();
    let mut faults = Vec::new();
    differences(&expected, &result, &example.phase, &mut faults);
    faults
}

/// An object without objects in it is compared as a whole. Of another one, only the expected fields are compared.
fn differences(expected: &Value, result: &Value, path: &str, faults: &mut Vec<String>) {
    let Some(fields) = expected.as_object() else {
        if expected != result {
            faults.push(format!("{path}: {expected} is documented, {result} is printed"));
        }
        return;
    };

    let is_whole = fields.values().all(|value| !value.is_object());
    let others = result.as_object().into_iter().flatten();
    let more: Vec<&String> = others
        .map(|(key, _)| key)
        .filter(|key| !fields.contains_key(*key))
        .collect();
    if is_whole && !more.is_empty() {
        faults.push(format!("{path}: {more:?} are printed, too"));
    }
    for (key, value) in fields {
        differences(value, &result[key], &format!("{path}/{key}"), faults);
    }
}

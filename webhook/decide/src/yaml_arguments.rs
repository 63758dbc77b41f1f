//! Argument lists in YAML texts, written back as edits of single lines.

use outrigger_shared::{
    command_line::{CommandLine, Edit},
    component::Component,
    yaml_text::{Refusal, YamlText},
};
use serde_json::{Value, json};

use super::{
    arguments::ListFormat,
    provisioner_object::{self, Obstacle, Situation},
};
use crate::patch::Path;

/// The path of a list in a text: the document and the keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListPath<'a> {
    pub document: usize,
    pub path: &'a [&'a str],
}

pub(super) fn read(text: &YamlText, place: ListPath<'_>, shape: ListFormat) -> Result<CommandLine, Obstacle> {
    let found = text.get(place.document, place.path).filter(|value| !value.is_null());
    Ok(shape.of(found).read(found, &Path::new(place.path))?)
}

/// Applies the flags of the situation to the argument list of a component; returns the reasons.
pub(super) fn arguments(
    text: &mut YamlText,
    place: ListPath<'_>,
    shape: ListFormat,
    component: Component,
    situation: &Situation<'_>,
) -> Result<Vec<String>, Obstacle> {
    let mut line = read(text, place, shape)?;
    let reasons = provisioner_object::flags(&mut line, component, situation, None)?;
    let shape = shape.of(text.get(place.document, place.path));
    text.batch(|text| line.edits().iter().try_for_each(|edit| write(text, place, shape, edit)))?;

    Ok(reasons)
}

/// Applies one change of a command line to the text; each edit is checked by its value, so text and list stay equal.
fn write(text: &mut YamlText, place: ListPath<'_>, shape: ListFormat, edit: &Edit) -> Result<(), Refusal> {
    let ListPath { document, path } = place;
    let kept = edit.was.len().min(edit.now.len());
    let (replaced, added) = edit.now.split_at(kept);
    let dropped = edit.was.get(kept..).unwrap_or_default();

    for (offset, (was, now)) in edit.was.iter().zip(replaced).enumerate() {
        let index = (edit.index + offset).to_string();
        match shape {
            ListFormat::Map => text.set(document, &below(path, &[name(was)]), value(now))?,
            ListFormat::Named => text.set(document, &below(path, &[&index, "value"]), value(now))?,
            ListFormat::Bare | ListFormat::Dashed => text.set(document, &below(path, &[&index]), now)?,
        }
    }

    for was in dropped {
        let index = (edit.index + kept).to_string();
        let key = if shape == ListFormat::Map { name(was) } else { &index };
        text.remove(document, &below(path, &[key]))?;
    }

    for now in added {
        let item = match shape {
            ListFormat::Map => {
                text.set(document, &below(path, &[name(now)]), value(now))?;
                continue;
            }
            ListFormat::Named => json!({"name": name(now), "value": value(now)}),
            ListFormat::Bare | ListFormat::Dashed => json!(now),
        };
        match text.get(document, path) {
            Some(Value::Array(_)) => text.push(document, path, &item)?,
            _ => text.insert(document, path, &json!([item]))?,
        }
    }

    Ok(())
}

fn below<'a>(path: &[&'a str], keys: &[&'a str]) -> Vec<&'a str> {
    [path, keys].concat()
}

fn name(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

fn value(pair: &str) -> &str {
    pair.split_once('=').map_or("", |(_, value)| value)
}

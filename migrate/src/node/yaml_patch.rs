//! A JSON Patch applied to a YAML text, which keeps its comments and its form.

use json_patch::PatchOperation;
use outrigger_shared::yaml_text::{Refusal, YamlText};
use serde_json::Value;
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Why a patch is not applied.
#[derive(Debug)]
pub(super) enum Unfit {
    /// The text cannot be edited there.
    Text(Refusal),
    /// A defect of the patch.
    Patch(String),
}

/// Applies a patch to the first document of a text.
///
/// The patch gives the value, and the text is edited to it. A patch replaces the items of a list from the front, so by
/// its operations one flag would get the comment of another.
pub(super) fn apply(text: &mut YamlText, patch: &[PatchOperation]) -> Result<(), Unfit> {
    let before = text.documents().first().cloned().unwrap_or_default();
    let mut after = before.clone();
    json_patch::patch(&mut after, patch).map_err(|error| Unfit::Patch(error.to_string()))?;
    change(text, &[], &before, &after).map_err(Unfit::Text)?;

    if text.documents().first() == Some(&after) {
        Ok(())
    } else {
        Err(Unfit::Patch("the text has another value".to_owned()))
    }
}

fn change(text: &mut YamlText, path: &[&str], before: &Value, after: &Value) -> Result<(), Refusal> {
    match (before, after) {
        _ if before == after => Ok(()),
        (Value::Object(old), Value::Object(new)) => {
            for (key, old) in old {
                match new.get(key) {
                    Some(new) => change(text, &below(path, key), old, new)?,
                    None => text.remove(0, &below(path, key))?,
                }
            }
            let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
            for (key, new) in added {
                text.insert(0, &below(path, key), new)?;
            }
            Ok(())
        }
        (Value::Array(old), Value::Array(new)) => list(text, path, old, new),
        (Value::String(_), Value::String(new)) => text.set(0, path, new),
        _ => {
            text.remove(0, path)?;
            text.insert(0, path, after)
        }
    }
}

/// Items with the same name are the same item; a flag keeps its line.
fn list(text: &mut YamlText, path: &[&str], old: &[Value], new: &[Value]) -> Result<(), Refusal> {
    let names = |items: &[Value]| -> Vec<String> { items.iter().map(name).collect() };
    let operations = capture_diff_slices(Algorithm::Myers, &names(old), &names(new));

    // From the back, so that the indices before stay what they were.
    for operation in operations.iter().rev() {
        let (of_old, of_new) = (operation.old_range(), operation.new_range());
        if matches!(operation, DiffOp::Equal { .. }) {
            for (from, to) in of_old.zip(of_new).rev() {
                let (Some(from_item), Some(to_item)) = (old.get(from), new.get(to)) else {
                    continue;
                };
                change(text, &below(path, &from.to_string()), from_item, to_item)?;
            }
            continue;
        }

        // Added before the removal, so that a list does not become empty in between.
        for item in new.get(of_new).unwrap_or_default().iter().rev() {
            text.insert_item(0, path, of_old.end, item)?;
        }
        for index in of_old.rev() {
            text.remove(0, &below(path, &index.to_string()))?;
        }
    }

    Ok(())
}

/// A flag's name, or the `name` of an object.
fn name(item: &Value) -> String {
    let named = item.get("name").and_then(Value::as_str);
    match (item, named) {
        (Value::String(text), _) => text.split_once('=').map_or(text.as_str(), |(name, _)| name).to_owned(),
        (_, Some(name)) => name.to_owned(),
        (other, None) => other.to_string(),
    }
}

fn below<'a>(path: &[&'a str], key: &'a str) -> Vec<&'a str> {
    [path, &[key]].concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail")]

    use outrigger_decide::patch::{Builder, Path};
    use serde_json::json;

    use super::*;

    fn changed(before: &str, after: &Value) -> String {
        let mut text = YamlText::parse(before).unwrap();
        let mut builder = Builder::default();
        builder.value(&Path::default(), &text.documents()[0], after);
        apply(&mut text, &builder.finish()).unwrap();
        text.text().to_owned()
    }

    #[test]
    fn a_flag_keeps_its_line_and_its_comment() {
        let before = "args:\n- a\n- --one=1 # first\n- --two=2 # second\n- --three=3 # third\n";
        let after = json!({"args": ["a", "--two=zwei", "--three=3", "--four"]});
        let expected = "args:\n- a\n- --two=zwei # second\n- --three=3 # third\n- --four\n";
        assert_eq!(changed(before, &after), expected);
    }

    #[test]
    fn items_come_back_in_the_middle_at_the_front_and_in_flow_lists() {
        let middle = json!({"args": ["a", "--one=1", "--two=2"], "x": 1});
        assert_eq!(
            changed("args: # list\n- a\n- --two=2\nx: 1\n", &middle),
            "args: # list\n- a\n- --one=1\n- --two=2\nx: 1\n"
        );
        assert_eq!(
            changed("args: [a, --two=2]\nx: 1\n", &middle),
            "args: [a, --one=1, --two=2]\nx: 1\n"
        );
        assert_eq!(changed("args: [b]\n", &json!({"args": ["a", "b"]})), "args: [a, b]\n");
    }

    #[test]
    fn nulls_objects_and_lists_of_objects_are_changed() {
        let before = "metadata:\n  annotations:\nspec:\n  volumes:\n  - name: a # kept\n    x: 1\n  gone: {b: c}\n";
        let after = json!({"metadata": {"annotations": {"k": "v"}}, "spec": {"volumes": [{"name": "a", "x": 1}, {"name": "b"}]}});
        let found = changed(before, &after);
        assert!(found.contains("name: a # kept\n"), "{found}");
        assert!(found.contains("  - name: b\n") && found.contains("k: v"), "{found}");
    }
}

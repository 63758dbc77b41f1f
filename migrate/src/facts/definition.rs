//! The fields of the CustomResourceDefinition. Pure.

use serde_json::Value;

/// The definition of this version.
const OWN: &str = include_str!("../../../manifests/base/crd.yaml");
const VERSION: &str = "v1alpha1";

/// The fields that a definition has, such as `spec.targets[].profile`; sorted.
pub fn fields(definition: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        if version["name"] == VERSION {
            collect("", &version["schema"]["openAPIV3Schema"], &mut all);
        }
    }
    all.sort_unstable();

    all
}

/// Those of this version.
///
/// # Errors
/// When the definition in this program is no YAML.
pub fn own_fields() -> Result<Vec<String>, serde_saphyr::Error> {
    Ok(fields(&serde_saphyr::from_str(OWN)?))
}

/// Of every object, so that nothing depends on them.
const OF_ALL: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn collect(path: &str, schema: &Value, all: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && OF_ALL.contains(&name.as_str()) {
            continue;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        collect(&path, field, all);
        all.push(path);
    }
    if schema["items"].is_object() {
        collect(&format!("{path}[]"), &schema["items"], all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_fields_and_those_of_lists_are_found() {
        let own = own_fields().unwrap();
        for field in [
            "spec.phase",
            "spec.targets[].profile",
            "status.history[].time",
            "status.missing[].fix",
        ] {
            assert!(own.iter().any(|own| own == field), "{field} is not in {own:?}");
        }
        assert!(own.is_sorted());
        assert_eq!(fields(&Value::Null), Vec::<String>::new());
    }
}

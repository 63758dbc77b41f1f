//! The values of a HelmChart or HelmChartConfig: a YAML text, a map, or both.

use outrigger_shared::{component::Component, phase_flags, version::KubernetesVersion, yaml_text::YamlText};
use serde_json::Value;

use super::{
    arguments::ListFormat,
    provisioner_object::{Obstacle, Situation},
};
use crate::patch::Path;

/// Where the list of flags is, or is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagsLocation {
    /// In the text `valuesContent`.
    Content,
    /// In the map `values`.
    Values,
    /// No values: the chart's recent default version runs, which leader migration by flags alone does not guard.
    Missing,
    /// It sets other values of a chart whose flags are in another object.
    Elsewhere,
}

/// The values of an object.
pub(super) struct Values {
    pub content: Value,
    pub map: Value,
}

impl Values {
    pub fn of(object: &Value) -> Result<Self, Obstacle> {
        let content = match object.pointer("/spec/valuesContent") {
            Some(Value::String(text)) => {
                let mut documents = YamlText::parse(text)
                    .map_err(|refusal| Obstacle::Other(format!("spec.valuesContent: {refusal}")))?
                    .documents()
                    .to_vec();
                if documents.len() > 1 {
                    return Err(Obstacle::Other(
                        "spec.valuesContent has several documents; make it one".to_owned(),
                    ));
                }

                documents.pop().unwrap_or_default()
            }
            _ => Value::Null,
        };
        Ok(Self {
            content,
            map: object.pointer("/spec/values").cloned().unwrap_or_default(),
        })
    }

    pub fn get(&self, pointer: &str) -> Option<&Value> {
        let found = self.map.pointer(pointer).or_else(|| self.content.pointer(pointer));
        found.filter(|value| !value.is_null())
    }

    pub fn location(&self, object: &Value) -> Result<FlagsLocation, Obstacle> {
        let set = object.pointer("/spec/set").and_then(Value::as_object);
        let is_args = |key: &&String| key.as_str() == "args" || key.starts_with("args[") || key.starts_with("args.");
        if let Some(key) = set.and_then(|set| set.keys().find(is_args)) {
            return Err(Obstacle::Other(format!(
                "spec.set has {key:?}, which changes args after all other values; move it to args in spec.valuesContent"
            )));
        }

        let has_args = |values: &Value| values.get("args").is_some_and(|args| !args.is_null());
        match (has_args(&self.content), has_args(&self.map)) {
            (true, true) => Err(Obstacle::Other(
                "spec.valuesContent and spec.values both have args; keep one of them".to_owned(),
            )),
            (true, false) => Ok(FlagsLocation::Content),
            (false, true) => Ok(FlagsLocation::Values),
            (false, false) if object.get("kind").and_then(Value::as_str) == Some("HelmChartConfig") => {
                Ok(FlagsLocation::Elsewhere)
            }
            (false, false) if !self.content.is_null() => Ok(FlagsLocation::Content),
            (false, false) if !self.map.is_null() => Ok(FlagsLocation::Values),
            (false, false) => Ok(FlagsLocation::Missing),
        }
    }

    /// The version of the manager. The default image of the chart is a recent one.
    fn version(&self) -> KubernetesVersion {
        let tag = self.get("/image/tag").and_then(Value::as_str);
        tag.and_then(|tag| tag.parse().ok())
            .unwrap_or(KubernetesVersion::v1(28))
    }

    /// The controllers that leader migration would not guard with these flags.
    pub fn shortcoming(
        &self,
        location: FlagsLocation,
        situation: &Situation<'_>,
    ) -> Result<Option<&'static str>, Obstacle> {
        if location == FlagsLocation::Elsewhere {
            return Ok(None);
        }

        let manager = Component::CloudControllerManager;
        // The default flags of the chart are not about leader migration.
        let line = ListFormat::Dashed.read(self.get("/args"), &Path::new(&["args"]))?;
        phase_flags::shortcoming(manager, &line, &situation.circumstances())
            .map_err(|reason| Obstacle::of_flags(manager, reason.into()))
    }

    pub fn situation<'a>(&self, situation: &Situation<'a>) -> Situation<'a> {
        Situation {
            version: Some(self.version()),
            ..*situation
        }
    }
}

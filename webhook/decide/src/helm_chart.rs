//! HelmChart and HelmChartConfig of Rancher's distributions (`helm.cattle.io/v1`) that install AWS's
//! cloud-controller-manager: its flags are the list `args` in the values of the chart. The values are YAML text
//! (`valuesContent`), a map (`values`), or both. The `additionalManifest` of a Rancher cluster contains the same
//! objects as text ([`in_manifest`]).
//!
//! Only the flags of the table are written. Values that do not fit the nodes of the distribution cause a warning. Where
//! leader migration would not guard all controllers, because the manager has other names than its list, an object is
//! refused, and in a text of manifests the chart is not changed, so that the rest of the cluster can follow the phase.

use outrigger_shared::{
    command_line::{CommandLine, Flag},
    component::Component,
    migration::{Phase, Profile},
    phase_flags, taints,
    version::KubernetesVersion,
    yaml_text::YamlText,
};
use serde_json::{Value, json};

use super::{
    Input, Kind,
    arguments::ListFormat,
    document::Document,
    fields::text_at,
    manager_chart::{CHART, Chart},
    provisioner_object::{self, Obstacle, Rules, Situation},
    yaml_arguments::{self, ListPath},
};
use crate::patch::Path;

const fn row(kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: "helm.cattle.io",
        versions: &["v1"],
        kind,
        plural,
        namespaced: true,
        on_update: true,
        profiles: &[Profile::RancherRKE2],
        is_concerned: |input: &Input<'_>| is_managers(input.object),
        draft: |input, migration| provisioner_object::draft(input, migration, &RULES),
    }
}

pub(super) const KINDS: &[Kind] = &[
    row("HelmChart", "helmcharts"),
    row("HelmChartConfig", "helmchartconfigs"),
];

const RULES: Rules = Rules {
    triggers: &["/spec"],
    besides: &[],
    version: &[],
    both_in_one_object: false,
    // While the evidence is missing, Complete must not remove leader migration from the manager.
    is_external: |_| false,
    form,
    warnings,
};

const CONTENT: [&str; 2] = ["spec", "valuesContent"];
const CONTENT_POINTER: &str = "/spec/valuesContent";
const ARGS_OF_CONTENT: ListPath<'_> = ListPath {
    document: 0,
    path: &["args"],
};
const ARGS: [&str; 3] = ["spec", "values", "args"];

/// The default list of the chart, which a list in the values replaces.
const DEFAULT_ARGS: [&str; 2] = ["--v=2", "--cloud-provider=aws"];

/// Whether a HelmChart or HelmChartConfig installs AWS's cloud-controller-manager.
fn is_managers(object: &Value) -> bool {
    let text = |pointer| text_at(object, pointer).unwrap_or_default();
    match text("/kind") {
        "HelmChart" => {
            // chartContent overrides chart (https://docs.rke2.io/reference/helm); then only the name of the object
            // identifies the chart.
            if !text("/spec/chartContent").is_empty() && text("/metadata/name") == CHART {
                return true;
            }

            // A name in a repository, an oci:// reference, or an archive's URL.
            let chart = text("/spec/chart").trim_end_matches('/');
            let last = chart.rsplit('/').next().unwrap_or(chart);
            last.strip_prefix(CHART).is_some_and(|rest| {
                rest.is_empty() || (rest.starts_with('-') && (rest.ends_with(".tgz") || rest.ends_with(".tar.gz")))
            })
        }
        "HelmChartConfig" => text("/metadata/name") == CHART,
        _ => false,
    }
}

/// Whether the phase requires flags of the manager.
fn is_guarded(situation: &Situation<'_>) -> bool {
    matches!(situation.effective_phase, Phase::Prepare | Phase::Migrate) && !situation.migration.spec.downtime
}

fn form(document: &mut Document, situation: &Situation<'_>) -> Result<(), Obstacle> {
    if !is_guarded(situation) {
        return Ok(());
    }

    let object = document.value.clone();
    let values = Values::of(&object)?;
    let location = values.location(&object)?;
    let situation = values.situation(situation);
    let shortcoming = values.shortcoming(location, &situation)?;
    if let Some(Shortcoming::Version(cause)) = shortcoming {
        return Err(Obstacle::Other(cause));
    }

    match location {
        FlagsLocation::Elsewhere => {}
        FlagsLocation::Missing => {
            let (args, reasons) = defaults(&situation)?;
            document.set(&Path::new(&CONTENT), json!(content_of(&args)), reasons.join("; "))?;
        }
        FlagsLocation::Content => {
            let mut text = YamlText::parse(text_at(&object, CONTENT_POINTER).unwrap_or_default())?;
            let reasons = text.batch(|text| in_text(text, ARGS_OF_CONTENT, &situation))?;

            document.set_text(&Path::new(&CONTENT), &text, reasons)?;
        }
        FlagsLocation::Values if values.map.get("args").is_none_or(Value::is_null) => {
            let (args, reasons) = defaults(&situation)?;
            document.set(&Path::new(&ARGS), json!(args), reasons.join("; "))?;
        }
        FlagsLocation::Values => {
            let manager = Component::CloudControllerManager;
            let args = Path::new(&ARGS);
            provisioner_object::arguments(document, &args, ListFormat::Dashed, manager, &situation, None)?;
        }
    }

    match shortcoming {
        Some(Shortcoming::Names(names)) => Err(Obstacle::ManagerNames(names)),
        Some(Shortcoming::Version(_)) | None => Ok(()),
    }
}

/// The values of a chart that has none.
fn content_of(args: &[String]) -> String {
    args.iter()
        .fold("args:\n".to_owned(), |text, flag| text + "- " + flag + "\n")
}

/// Changes the flags in a text of values, or of a whole object.
fn in_text(text: &mut YamlText, place: ListPath<'_>, situation: &Situation<'_>) -> Result<Vec<String>, Obstacle> {
    let ListPath { document, path } = place;
    if text.get(document, path).is_some_and(|args| !args.is_null()) {
        let manager = Component::CloudControllerManager;
        return yaml_arguments::arguments(text, place, ListFormat::Dashed, manager, situation);
    }

    let (args, reasons) = defaults(situation)?;
    if text.get(document, path).is_some() {
        text.remove(document, path)?;
    }

    text.insert(document, path, &json!(args))?;

    Ok(reasons)
}

/// The default list of the chart with the flags of the situation.
fn defaults(situation: &Situation<'_>) -> Result<(Vec<String>, Vec<String>), Obstacle> {
    let manager = Component::CloudControllerManager;
    let args: Vec<String> = DEFAULT_ARGS.map(str::to_owned).to_vec();
    let mut line = CommandLine::dashed(args).map_err(|reason| Obstacle::of_flags(manager, reason.into()))?;
    let mut reasons = provisioner_object::flags(&mut line, manager, situation, None)?;
    reasons.push("the chart's own args are written out, since a list in the values replaces them".to_owned());

    Ok((line.items().unwrap_or_default().to_vec(), reasons))
}

/// Applies the flags of the situation to the HelmCharts of AWS's cloud-controller-manager in a text of manifests.
/// Nothing else in the text is changed: Rancher deletes the objects of a document that disappears.
pub(super) fn in_manifest(document: &mut Document, path: &Path, situation: &Situation<'_>) -> Result<(), Obstacle> {
    let text = document.get(path).and_then(Value::as_str);
    let Some(text) = text.filter(|text| is_guarded(situation) && text.contains(CHART)) else {
        return Ok(());
    };

    let named = |obstacle: Obstacle| Obstacle::Other(format!("{}: {obstacle}", path.pointer()));
    let mut text = YamlText::parse_documents_with(text, CHART).map_err(|refusal| named(refusal.into()))?;
    let reasons = text.batch(|text| {
        let numbers = 0..text.documents().len();
        let reasons: Result<Vec<_>, _> = numbers.map(|number| chart_in_text(text, number, situation)).collect();
        Ok(reasons?.concat())
    });

    document.set_text(path, &text, reasons.map_err(named)?)?;

    Ok(())
}

fn chart_in_text(text: &mut YamlText, number: usize, situation: &Situation<'_>) -> Result<Vec<String>, Obstacle> {
    let Some(object) = text.documents().get(number).filter(|object| is_chart(object)).cloned() else {
        return Ok(Vec::new());
    };

    let values = Values::of(&object)?;
    let location = values.location(&object)?;
    let situation = values.situation(situation);
    if values.shortcoming(location, &situation)?.is_some() {
        return Ok(Vec::new());
    }

    match location {
        FlagsLocation::Elsewhere => Ok(Vec::new()),
        FlagsLocation::Missing => {
            let (args, reasons) = defaults(&situation)?;
            if text.get(number, &CONTENT).is_some() {
                text.remove(number, &CONTENT)?;
            }
            text.insert(number, &CONTENT, &json!(content_of(&args)))?;
            Ok(reasons)
        }
        FlagsLocation::Content => text.nested(number, &CONTENT, |inner| in_text(inner, ARGS_OF_CONTENT, &situation)),
        FlagsLocation::Values => {
            let place = ListPath {
                document: number,
                path: &ARGS,
            };
            in_text(text, place, &situation)
        }
    }
}

/// The same for the warnings.
pub(super) fn manifest_warnings(text: &str, situation: &Situation<'_>) -> Vec<String> {
    if !text.contains(CHART) {
        return Vec::new();
    }
    // Invalid YAML is reported as an obstacle.
    let Ok(text) = YamlText::parse_documents_with(text, CHART) else {
        return Vec::new();
    };

    let charts = text.documents().iter().filter(|object| is_chart(object));
    charts
        .flat_map(|chart| {
            warnings(chart, situation)
                .into_iter()
                .chain(unguarded(chart, situation))
        })
        .collect()
}

/// Why a chart in a text of manifests is not changed. Unreadable parts are reported as obstacles.
fn unguarded(chart: &Value, situation: &Situation<'_>) -> Option<String> {
    let values = Values::of(chart).ok().filter(|_| is_guarded(situation))?;
    let location = values.location(chart).ok()?;
    let shortcoming = values.shortcoming(location, &values.situation(situation));
    let cause = match shortcoming.ok().flatten()? {
        Shortcoming::Names(names) => names.to_owned(),
        Shortcoming::Version(cause) => cause,
    };
    Some(format!("the chart in additionalManifest is not changed: {cause}"))
}

fn is_chart(object: &Value) -> bool {
    text_at(object, "/apiVersion").is_some_and(|group| group.starts_with("helm.cattle.io/")) && is_managers(object)
}

/// Where the list of flags is, or is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlagsLocation {
    Content,
    Values,
    /// There are no values.
    Missing,
    /// It sets other values of a chart whose flags are in another object.
    Elsewhere,
}

/// Why flags alone do not guard the controllers of a manager.
enum Shortcoming {
    /// The controllers are called otherwise than in the manager's own list.
    Names(&'static str),
    /// Its version, and so the names, are not known, or the chart ignores flags.
    Version(String),
}

struct Values {
    content: Value,
    map: Value,
    chart: Chart,
    /// `image.tag` of `spec.set`, which takes precedence.
    tag_of_set: Option<String>,
}

impl Values {
    fn of(object: &Value) -> Result<Self, Obstacle> {
        let content = match text_at(object, CONTENT_POINTER) {
            Some(text) => {
                let mut documents = YamlText::parse(text)
                    .map_err(|refusal| Obstacle::Other(format!("spec.valuesContent: {refusal}")))?
                    .documents()
                    .to_vec();
                if documents.len() > 1 {
                    return Err(Obstacle::Other(
                        "spec.valuesContent has several documents; merge them into one".to_owned(),
                    ));
                }

                documents.pop().unwrap_or_default()
            }
            None => Value::Null,
        };
        Ok(Self {
            content,
            map: object.pointer("/spec/values").cloned().unwrap_or_default(),
            chart: Chart::of(object),
            tag_of_set: text_at(object, "/spec/set/image.tag").map(str::to_owned),
        })
    }

    fn get(&self, pointer: &str) -> Option<&Value> {
        let found = self.map.pointer(pointer).or_else(|| self.content.pointer(pointer));
        found.filter(|value| !value.is_null())
    }

    fn location(&self, object: &Value) -> Result<FlagsLocation, Obstacle> {
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
            (false, false) if is_config(object) => Ok(FlagsLocation::Elsewhere),
            (false, false) if !self.content.is_null() => Ok(FlagsLocation::Content),
            (false, false) if !self.map.is_null() => Ok(FlagsLocation::Values),
            (false, false) => Ok(FlagsLocation::Missing),
        }
    }

    /// `image.tag`, where the object sets it.
    fn tag(&self) -> Option<&str> {
        let of_values = || self.get("/image/tag").and_then(Value::as_str);
        self.tag_of_set.as_deref().or_else(of_values)
    }

    /// The version of the manager; none if neither the values nor the chart name it.
    fn version(&self) -> Option<KubernetesVersion> {
        match self.tag() {
            Some(tag) => tag.parse().ok(),
            None => self.chart.default_image(),
        }
    }

    /// The controllers that leader migration would not guard with these flags.
    fn shortcoming(&self, location: FlagsLocation, situation: &Situation<'_>) -> Result<Option<Shortcoming>, Obstacle> {
        if location == FlagsLocation::Elsewhere {
            return Ok(None);
        }
        if self.chart.ignores_args() {
            let cause = "charts before 0.0.4 ignore args, so the manager would run beside the kube-controller-manager; use 0.0.4 \
                         or later";
            return Ok(Some(Shortcoming::Version(cause.to_owned())));
        }

        let manager = Component::CloudControllerManager;
        // The default flags of the chart are not about leader migration.
        let line = ListFormat::Dashed.read(self.get("/args"), &Path::new(&["args"]))?;
        let names = phase_flags::shortcoming(manager, &line, &situation.circumstances())
            .map_err(|reason| Obstacle::of_flags(manager, reason.into()))?;
        Ok(names.map(|names| match self.version() {
            Some(_) => Shortcoming::Names(names),
            None => Shortcoming::Version(self.chart.unknown(self.tag())),
        }))
    }

    /// An unknown version counts as one whose names differ, so only a file guards its controllers.
    fn situation<'a>(&self, situation: &Situation<'a>) -> Situation<'a> {
        Situation {
            version: Some(self.version().unwrap_or(KubernetesVersion::v1(28))),
            ..*situation
        }
    }
}

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn is_config(object: &Value) -> bool {
    text_at(object, "/kind") == Some("HelmChartConfig")
}

/// Values with which the Pods of the manager do not run on nodes of RKE2 and K3s, or behave unlike the old manager. They
/// are not changed: the right value depends on more than the object.
fn warnings(object: &Value, _: &Situation<'_>) -> Vec<String> {
    // Unreadable values are reported as an obstacle.
    let Ok(values) = Values::of(object) else {
        return Vec::new();
    };

    let is_config = is_config(object);
    let mut warnings = if is_config { Vec::new() } else { placement(&values) };
    warnings.extend(flags(&values, is_config));
    warnings
}

fn placement(values: &Values) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = values
        .get("/nodeSelector")
        .and_then(|selector| selector.get(CONTROL_PLANE));
    // A null removes the default key of the chart.
    if !matches!(selector, Some(Value::Null)) && selector.and_then(Value::as_str) != Some("true") {
        warnings.push(format!(
            "the chart's nodeSelector matches no node of RKE2; set nodeSelector: {{{CONTROL_PLANE}: \"true\"}} in the values"
        ));
    }

    let tolerations = values.get("/tolerations").and_then(Value::as_array);
    for taint in [taints::UNINITIALIZED, CONTROL_PLANE] {
        let tolerates = |toleration: &Value| match toleration.get("key").and_then(Value::as_str) {
            None | Some("") => toleration.get("operator").and_then(Value::as_str) == Some("Exists"),
            Some(key) => key == taint,
        };
        if tolerations.is_some_and(|list| !list.iter().any(tolerates)) {
            warnings.push(format!(
                "the chart's tolerations leave out {taint}, so its Pods do not start on new control-plane nodes; add {{key: {taint}, operator: Exists}}"
            ));
        }
    }

    if values.get("/hostNetworking") != Some(&Value::Bool(true)) {
        warnings.push(
            "the chart's Pods wait for a network that waits for them on new nodes; set hostNetworking: true in the values"
                .to_owned(),
        );
    }

    warnings
}

fn flags(values: &Values, is_config: bool) -> Option<String> {
    let args = values.get("/args");
    if is_config && args.is_none() {
        return None;
    }

    // An unreadable list is reported as an obstacle.
    let line = ListFormat::Dashed.read(args, &Path::new(&["args"])).ok()?;
    let routes = line.boolean(Flag::boolean("configure-cloud-routes"));
    (routes.ok().flatten() != Some(false)).then(|| {
        "the manager would write cloud routes, which RKE2's network does not use; add --configure-cloud-routes=false to args"
            .to_owned()
    })
}

//! HelmChart and HelmChartConfig of Rancher's distributions (`helm.cattle.io/v1`) that install AWS's
//! cloud-controller-manager: its flags are the list `args` in the values of the chart. The values are YAML text
//! (`valuesContent`), a map (`values`), or both. The `additionalManifest` of a Rancher cluster contains the same
//! objects as text ([`in_manifest`]).
//!
//! Only the flags of the table are written. Values that do not fit the nodes of the distribution cause a warning. Where
//! leader migration would not guard all controllers, because the manager has other names than its list, an object is
//! refused, and in a text of manifests the chart is not changed, so that the rest of the cluster can follow the phase.

use outrigger_shared::{
    command_line::CommandLine,
    component::Component,
    migration::{Phase, Profile},
    phase_flags,
    yaml_text::YamlText,
};
use serde_json::{Value, json};

use super::{
    Input, Kind,
    arguments::ListFormat,
    document::Document,
    helm_values::{FlagsLocation, Values},
    helm_warnings::warnings,
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

/// The chart, and the name of the HelmChart that a HelmChartConfig extends.
const CHART: &str = "aws-cloud-controller-manager";
const CONTENT: [&str; 2] = ["spec", "valuesContent"];
const ARGS: [&str; 3] = ["spec", "values", "args"];

/// The default list of the chart, which a list in the values replaces.
const DEFAULT_ARGS: [&str; 2] = ["--v=2", "--cloud-provider=aws"];

/// Whether a HelmChart or HelmChartConfig installs AWS's cloud-controller-manager.
fn is_managers(object: &Value) -> bool {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
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

    let object = document.whole().clone();
    let values = Values::of(&object)?;
    let location = values.location(&object)?;
    let situation = values.situation(situation);
    let content = Path::new(&CONTENT);

    match location {
        FlagsLocation::Elsewhere | FlagsLocation::Missing => {}
        FlagsLocation::Content => {
            let mut text = YamlText::parse(
                object
                    .pointer("/spec/valuesContent")
                    .and_then(Value::as_str)
                    .unwrap_or_default(),
            )?;
            let reasons = in_text(
                &mut text,
                ListPath {
                    document: 0,
                    path: &["args"],
                },
                &situation,
            )?;

            document.set_text(&content, &text, reasons)?;
        }
        FlagsLocation::Values if values.map.get("args").is_none_or(Value::is_null) => {
            let (args, reasons) = defaults(&situation)?;
            document.set(&Path::new(&ARGS), json!(args), reasons.join("; "))?;
        }
        FlagsLocation::Values => {
            let manager = Component::CloudControllerManager;
            provisioner_object::arguments(document, &Path::new(&ARGS), ListFormat::Dashed, manager, &situation)?;
        }
    }

    let shortcoming = values.shortcoming(location, &situation)?;
    shortcoming.map_or(Ok(()), |shortcoming| Err(Obstacle::ManagerNames(shortcoming)))
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
    let because = |reason: phase_flags::Refusal| Obstacle::Flags {
        component: manager,
        reason,
    };
    let args: Vec<String> = DEFAULT_ARGS.map(str::to_owned).to_vec();
    let mut line = CommandLine::dashed(args).map_err(|reason| because(reason.into()))?;
    let mut reasons = provisioner_object::flags(&mut line, manager, situation, None)?;
    reasons.push("the chart's own args are written out, since a list in the values replaces them".to_owned());

    Ok((line.items().unwrap_or_default().to_vec(), reasons))
}

/// Applies the flags of the situation to the HelmCharts of AWS's cloud-controller-manager in a text of manifests.
/// Nothing else in the text is changed: Rancher deletes the objects of a document that disappears.
pub(super) fn in_manifest(document: &mut Document, path: &Path, situation: &Situation<'_>) -> Result<(), Obstacle> {
    let Some(text) = document
        .get(path)
        .and_then(Value::as_str)
        .filter(|_| is_guarded(situation))
    else {
        return Ok(());
    };
    if !text.contains(CHART) {
        return Ok(());
    }

    let named = |obstacle: Obstacle| Obstacle::Other(format!("{}: {obstacle}", path.pointer()));
    let mut text = YamlText::parse(text).map_err(|refusal| named(refusal.into()))?;
    let mut reasons = Vec::new();

    for number in 0..text.documents().len() {
        reasons.extend(chart_in_text(&mut text, number, situation).map_err(named)?);
    }

    document.set_text(path, &text, reasons)?;

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
        FlagsLocation::Elsewhere | FlagsLocation::Missing => Ok(Vec::new()),
        FlagsLocation::Content => text.nested(number, &CONTENT, |inner| {
            in_text(
                inner,
                ListPath {
                    document: 0,
                    path: &["args"],
                },
                &situation,
            )
        }),
        FlagsLocation::Values => in_text(
            text,
            ListPath {
                document: number,
                path: &ARGS,
            },
            &situation,
        ),
    }
}

/// The same for the warnings.
pub(super) fn manifest_warnings(text: &str, situation: &Situation<'_>) -> Vec<String> {
    if !text.contains(CHART) {
        return Vec::new();
    }
    // Invalid YAML is reported as an obstacle.
    let Ok(text) = YamlText::parse(text) else {
        return Vec::new();
    };

    let charts = text.documents().iter().filter(|object| is_chart(object));
    let of_chart = |chart| {
        warnings(chart, situation)
            .into_iter()
            .chain(unguarded(chart, situation))
    };

    charts.flat_map(of_chart).collect()
}

/// Why a chart in a text of manifests is not changed. Unreadable parts are reported as obstacles.
fn unguarded(chart: &Value, situation: &Situation<'_>) -> Option<String> {
    let values = Values::of(chart).ok().filter(|_| is_guarded(situation))?;
    let location = values.location(chart).ok()?;
    let shortcoming = values.shortcoming(location, &values.situation(situation));
    let shortcoming = shortcoming.ok().flatten()?;
    Some(format!("the chart in additionalManifest is not changed: {shortcoming}"))
}

fn is_chart(object: &Value) -> bool {
    let group = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    group.starts_with("helm.cattle.io/") && is_managers(object)
}

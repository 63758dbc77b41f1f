//! Warns of chart values of the cloud-controller-manager with which its Pods do not run on nodes of RKE2 and K3s, or
//! behave unlike the old manager. They are not changed: the right value depends on more than the object.

use outrigger_shared::command_line::Flag;
use serde_json::Value;

use super::{arguments::ListFormat, helm_values::Values, provisioner_object::Situation};
use crate::patch::Path;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub(super) fn warnings(object: &Value, _: &Situation<'_>) -> Vec<String> {
    // Unreadable values are reported as an obstacle.
    let Ok(values) = Values::of(object) else {
        return Vec::new();
    };

    let is_config = object.get("kind").and_then(Value::as_str) == Some("HelmChartConfig");
    let mut warnings = Vec::new();
    if !is_config {
        warnings.extend(placement(&values));
    }

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
            "the chart's nodeSelector fits no node of RKE2; set nodeSelector: {{{CONTROL_PLANE}: \"true\"}} in the values"
        ));
    }

    let tolerations = values.get("/tolerations").and_then(Value::as_array);
    for taint in [UNINITIALIZED, CONTROL_PLANE] {
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

fn flags(values: &Values, is_config: bool) -> Vec<String> {
    let args = values.get("/args");
    if is_config && args.is_none() {
        return Vec::new();
    }

    let read = ListFormat::Dashed.read(args, &Path::new(&["args"]));
    // An unreadable list is reported as an obstacle.
    let Ok(line) = read else { return Vec::new() };
    let mut warnings = Vec::new();
    let routes = Flag::boolean("configure-cloud-routes");
    if line.boolean(routes).ok().flatten() != Some(false) {
        warnings.push(
            "the manager would write cloud routes, which RKE2's network does not use; add --configure-cloud-routes=false to args"
                .to_owned(),
        );
    }

    warnings
}

//! `outrigger webhook render-policies`: the simple part of the webhook's work as `MutatingAdmissionPolicy`, so that a
//! small cluster needs no webhook.
//!
//! A policy reads the migration in the cluster as its parameter, so changes of phase, mode, cluster ID and targets
//! apply at the next write of an object. Limits of policies are printed on stderr:
//!
//! - A policy cannot know whether a cloud-controller-manager is running, so `nodeTaint: WhenManagerReady` has none.
//! - It reads one migration at a time, so it cannot skip an object that two of them select.
//! - It can neither warn nor annotate the audit log, so `mode: Audit` has no effect.

use std::io::{Read, Write};

use outrigger_shared::migration::{Mode, NodeTaint, Target};
use outrigger_webhook::decide::Kind;
use serde_json::{Value, json};

use self::rules::{Expressions, Named, ROWS, Rule};
use crate::args::{PolicyVersion, RenderArgs};
use crate::documents::Inputs;
use crate::end::{End, Failure};
use crate::migrations::{self, Found};
use crate::yaml;

mod cel;
mod rules;

/// Why a migration gets no binding to a policy.
struct Obstacle {
    /// Whether the migration requires the policy.
    is_wanted: bool,
    what: &'static str,
}

/// Renders the policies of the migrations.
///
/// # Errors
/// [`Failure`] on wrong input; then nothing is printed to `out`.
pub fn run(args: &RenderArgs, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let found = migrations::find(&args.migration, &[], &mut Inputs::new(stdin))?;
    for note in found.iter().flat_map(notes) {
        writeln!(err, "{note}")?;
    }

    let (mut end, mut text) = (End::Success, String::new());
    for row in ROWS {
        let Some(kind) = row.known() else { continue };
        let mut bindings = Vec::new();
        for found in found.iter().filter(|found| has_target(found, kind)) {
            match obstacle(row.rule, found) {
                None => bindings.push(binding(args.api_version, kind, found)),
                Some(Obstacle { is_wanted, what }) => {
                    let severity = if is_wanted { "error" } else { "note" };
                    writeln!(
                        err,
                        "{severity}: migration {}: no policy for {}: {what}",
                        found.name, kind.plural
                    )?;
                    end = if is_wanted { End::Refused } else { end };
                }
            }
        }

        if bindings.len() > 1 {
            writeln!(
                err,
                "warning: {}: a policy evaluates one migration at a time; change spec.targets so that no two migrations select the same object",
                kind.plural
            )?;
        }

        if !bindings.is_empty() {
            for object in std::iter::once(policy(args, kind, row.rule)).chain(bindings) {
                text.push_str("---\n");
                text.push_str(&yaml::write(&object)?);
            }
        }
    }

    if text.is_empty() {
        writeln!(
            err,
            "nothing is rendered: see docs/policies.md for the kinds that policies can serve"
        )?;
    }

    out.write_all(text.as_bytes())?;
    out.flush()?;

    Ok(end)
}

fn notes(found: &Found) -> Vec<String> {
    let mut notes = migrations::problems(found);
    if found.migration.spec.mode == Mode::Audit {
        notes.push(format!(
            "warning: migration {}: spec.mode is Audit: until it is Enforce, the policies change nothing and report nothing",
            found.name
        ));
    }

    notes
}

fn has_target(found: &Found, kind: &Kind) -> bool {
    let targets = &found.migration.spec.targets;
    targets.iter().any(|target| kind.profiles.contains(&target.profile))
}

fn obstacle(rule: Rule, found: &Found) -> Option<Obstacle> {
    let spec = &found.migration.spec;
    let is_hosted = || spec.targets.iter().any(Target::hosts_a_control_plane);
    match (rule, spec.node_taint) {
        (Rule::Tag(_), _) => None,
        (Rule::Taint, _) if is_hosted() => Some(Obstacle {
            is_wanted: false,
            what: "its control plane is hosted, so its Nodes are in another API server than the migration; keep the webhook",
        }),
        (Rule::Taint, NodeTaint::Always) => None,
        (Rule::Taint, NodeTaint::Never) => Some(Obstacle {
            is_wanted: false,
            what: "spec.nodeTaint is Never",
        }),
        (Rule::Taint, NodeTaint::WhenManagerReady) => Some(Obstacle {
            is_wanted: true,
            what: "spec.nodeTaint is WhenManagerReady, and a policy cannot check whether a cloud-controller-manager runs; \
                   set it to Always, or keep the webhook",
        }),
    }
}

fn api_version(version: PolicyVersion) -> String {
    format!("admissionregistration.k8s.io/{}", version.as_str())
}

/// The name of a kind's policy.
fn policy_name(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { kind.group };
    format!("outrigger.{}.{group}", kind.plural)
}

fn policy(args: &RenderArgs, kind: &Kind, rule: Rule) -> Value {
    let Expressions {
        conditions,
        variables,
        mutation,
    } = rule.expressions(kind, &args.own_namespace);
    let named = |all: Vec<Named>| -> Value {
        let all = all.into_iter();
        all.map(|(name, expression)| json!({"name": name, "expression": expression}))
            .collect()
    };
    let operations = if kind.on_update {
        json!(["CREATE", "UPDATE"])
    } else {
        json!(["CREATE"])
    };
    let mut spec = json!({
        "paramKind": {"apiVersion": format!("{}/{}", migrations::GROUP, migrations::VERSION), "kind": migrations::KIND},
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "resourceRules": [{
                "apiGroups": [kind.group],
                "apiVersions": kind.versions,
                "resources": [kind.plural],
                "operations": operations,
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            }],
        },
        // As the webhook: what cannot be decided passes unchanged.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConditions": named(conditions),
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}}],
    });

    if !variables.is_empty() {
        spec["variables"] = named(variables);
    }

    json!({
        "apiVersion": api_version(args.api_version),
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": policy_name(kind)},
        "spec": spec,
    })
}

fn binding(version: PolicyVersion, kind: &Kind, found: &Found) -> Value {
    json!({
        "apiVersion": api_version(version),
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{}.{}", policy_name(kind), found.name)},
        "spec": {
            "policyName": policy_name(kind),
            "paramRef": {"name": found.name, "parameterNotFoundAction": "Allow"},
        },
    })
}

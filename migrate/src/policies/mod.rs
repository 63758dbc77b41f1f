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

use outrigger_decide::{Kind, kinds};
use outrigger_shared::migration::{Mode, NodeTaint, Target};
use outrigger_shared::{tags, taints};
use serde_json::{Value, json};

use crate::args::{PolicyVersion, RenderArgs};
use crate::documents::Inputs;
use crate::end::{End, Failure};
use crate::migrations::{self, Found};
use crate::yaml;

mod cel;

/// A rule of the webhook that an API server can apply as a policy.
#[derive(Clone, Copy)]
enum Rule {
    /// New Nodes get the uninitialized taint.
    Taint,
    /// A map of AWS tags gets the cluster's ownership tag.
    Tag,
}

/// Group and kind of rows in the webhook's table, each with its rule.
const ROWS: [(&str, &str, Rule); 2] = [
    ("", "Node", Rule::Taint),
    ("cluster.k8s.io", "MachineDeployment", Rule::Tag),
];

/// The kinds that have policies. For a kind that the webhook has no row of, there is nothing to render.
fn rows() -> impl Iterator<Item = (&'static Kind, Rule)> {
    ROWS.into_iter().filter_map(|(group, name, rule)| {
        let kind = kinds().find(|kind| kind.group == group && kind.kind == name)?;
        Some((kind, rule))
    })
}

/// One named expression.
type Named = (&'static str, String);

/// The expressions of one policy, in CEL.
struct Expressions {
    /// All must be true.
    conditions: Vec<Named>,
    variables: Vec<Named>,
    /// A list of JSON Patch operations.
    mutation: String,
}

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
    for (kind, rule) in rows() {
        let mut bindings = Vec::new();
        for found in found.iter().filter(|found| has_target(found, kind)) {
            match obstacle(rule, found) {
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
            bindings.insert(0, policy(args, kind, rule));
            text.push_str(&yaml::write_all(&bindings)?);
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
        (Rule::Tag, _) => None,
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

fn api_version(version: PolicyVersion) -> &'static str {
    match version {
        PolicyVersion::V1 => "admissionregistration.k8s.io/v1",
        PolicyVersion::V1beta1 => "admissionregistration.k8s.io/v1beta1",
    }
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

impl Rule {
    fn expressions(self, kind: &Kind, own_namespace: &str) -> Expressions {
        let mut expressions = match self {
            Self::Taint => taint(),
            Self::Tag => tag(),
        };
        // A variable, as conditions do not see the namespace.
        let selected = cel::selected(kind.profiles, kind.namespaced, own_namespace);
        expressions.variables.push(("selected", selected));
        expressions.mutation = format!("!variables.selected ? []\n  : {}", expressions.mutation);

        expressions
    }
}

fn taint() -> Expressions {
    let key = cel::text(taints::UNINITIALIZED);
    // A plain map: a list of `Object.spec.taints` makes the API server 1.36 panic, which fails the whole request.
    let taint = format!(
        r#"{{"key": {key}, "value": {}, "effect": {}}}"#,
        cel::text(taints::UNINITIALIZED_VALUE),
        cel::text(taints::UNINITIALIZED_EFFECT)
    );

    Expressions {
        conditions: vec![
            ("in-force", cel::in_force(&["Migrate", "Complete"])),
            (
                "always",
                r#"params.spec.?nodeTaint.orValue("WhenManagerReady") == "Always""#.to_owned(),
            ),
            ("own-nodes", cel::migrates_its_own_nodes()),
            (
                "not-initialized",
                r#"object.spec.?providerID.orValue("") == """#.to_owned(),
            ),
            (
                "no-taint-yet",
                format!("!object.spec.?taints.orValue([]).exists(taint, taint.key == {key})"),
            ),
        ],
        variables: Vec::new(),
        mutation: format!(
            "object.spec.?taints.orValue([]).size() > 0\n  ? [JSONPatch{{op: \"add\", path: \"/spec/taints/-\", value: {taint}}}]\n  : [JSONPatch{{op: \"add\", path: \"/spec/taints\", value: [{taint}]}}]"
        ),
    }
}

/// The field with the tags is a map of a MachineDeployment of machine-controller.
fn tag() -> Expressions {
    const PROVIDER: [&str; 5] = ["spec", "template", "spec", "providerSpec", "value"];

    let holder_path = [&PROVIDER[..], &["cloudProviderSpec"]].concat();
    let holder = cel::optional("object", &holder_path);
    let provider = cel::optional("object", &[&PROVIDER[..], &["cloudProvider"]].concat());
    let stored = format!("{holder}.?tags.orValue(null)");
    let path = format!("/{}/tags", holder_path.join("/"));
    let foreign = format!(
        "variables.tags.exists(key, key.startsWith({prefix}) && key != variables.key)\n  || {legacy} in variables.tags && variables.tags[{legacy}] != params.spec.clusterID",
        prefix = cel::text(tags::CLUSTER_PREFIX),
        legacy = cel::text(tags::LEGACY_CLUSTER),
    );

    Expressions {
        conditions: vec![
            ("in-force", cel::in_force(&["Prepare", "Migrate", "Complete"])),
            ("concerned", format!("{provider}.orValue(\"\") == {}", cel::text("aws"))),
            ("may-act", cel::may_act(&["spec", "template"])),
            (
                "has-a-place",
                format!("type({holder}.orValue(null)) == map && ({stored} == null || type({stored}) == map)"),
            ),
        ],
        variables: vec![
            (
                "key",
                format!("{} + params.spec.clusterID", cel::text(tags::CLUSTER_PREFIX)),
            ),
            ("value", r#"params.spec.?ownership.orValue("owned")"#.to_owned()),
            ("stored", stored),
            ("tags", "variables.stored == null ? {} : variables.stored".to_owned()),
            ("foreign", foreign),
        ],
        mutation: format!(
            "variables.key in variables.tags || variables.foreign ? []\n  : variables.stored == null\n  ? [JSONPatch{{op: \"add\", path: {path}, value: {{variables.key: variables.value}}}}]\n  : [JSONPatch{{op: \"add\", path: {path_of_key} + jsonpatch.escapeKey(variables.key), value: variables.value}}]",
            path = cel::text(&path),
            path_of_key = cel::text(&format!("{path}/")),
        ),
    }
}

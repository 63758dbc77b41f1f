//! The table of the webhook's rules that an API server can apply as policies. A row adds CEL to a row of the webhook's
//! table of kinds.

use outrigger_shared::{tags, taints};
use outrigger_webhook::decide::{Kind, kinds};

use super::cel;

#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// New Nodes get the uninitialized taint.
    Taint,
    /// A map of AWS tags gets the cluster's ownership tag.
    Tag(&'static Tags),
}

/// The field with the AWS tags of a kind's resource, as a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// The object that holds them.
    pub holder: &'static [&'static str],
    /// Its field with the tags.
    pub field: &'static str,
    /// A field, and the value without which nothing is tagged.
    pub only_if: (&'static [&'static str], &'static str),
    /// The part that an update must change.
    pub part: &'static [&'static str],
}

/// A kind, by its row in the webhook's table, and its rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub group: &'static str,
    pub kind: &'static str,
    pub rule: Rule,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        group: "",
        kind: "Node",
        rule: Rule::Taint,
    },
    Row {
        group: "cluster.k8s.io",
        kind: "MachineDeployment",
        rule: Rule::Tag(&Tags {
            holder: &["spec", "template", "spec", "providerSpec", "value", "cloudProviderSpec"],
            field: "tags",
            only_if: (
                &["spec", "template", "spec", "providerSpec", "value", "cloudProvider"],
                "aws",
            ),
            part: &["spec", "template"],
        }),
    },
];

impl Row {
    /// The webhook's own row; none when it has none, and then there is nothing to render.
    pub fn known(&self) -> Option<&'static Kind> {
        kinds().find(|kind| kind.group == self.group && kind.kind == self.kind)
    }
}

/// One named expression.
pub(super) type Named = (&'static str, String);

/// The expressions of one policy.
#[derive(Debug)]
pub(super) struct Expressions {
    /// All must be true.
    pub conditions: Vec<Named>,
    /// Variables of the mutation.
    pub variables: Vec<Named>,
    /// A list of JSON Patch operations.
    pub mutation: String,
}

impl Rule {
    /// The rule in CEL.
    pub fn expressions(self, kind: &Kind, own_namespace: &str) -> Expressions {
        let mut expressions = match self {
            Self::Taint => taint(),
            Self::Tag(tags) => tag(tags),
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

fn tag(row: &Tags) -> Expressions {
    let (field, value) = row.only_if;
    let holder = cel::optional("object", row.holder);
    let stored = format!("{holder}.?{}.orValue(null)", row.field);
    let path = format!("/{}/{}", row.holder.join("/"), row.field);
    let foreign = format!(
        "variables.tags.exists(key, key.startsWith({prefix}) && key != variables.key)\n  || {legacy} in variables.tags && variables.tags[{legacy}] != params.spec.clusterID",
        prefix = cel::text(tags::CLUSTER_PREFIX),
        legacy = cel::text(tags::LEGACY_CLUSTER),
    );

    Expressions {
        conditions: vec![
            ("in-force", cel::in_force(&["Prepare", "Migrate", "Complete"])),
            (
                "concerned",
                format!(
                    "{}.orValue(\"\") == {}",
                    cel::optional("object", field),
                    cel::text(value)
                ),
            ),
            ("may-act", cel::may_act(row.part)),
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

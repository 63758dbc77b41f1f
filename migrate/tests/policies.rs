//! `outrigger webhook render-policies`: what is rendered, and what is refused. That the API server does with it what
//! the webhook would do is shown on a real one, in `e2e/tests/policies`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use support::{Run, outrigger_with};

fn render(spec: &str, more: &[&str]) -> Run {
    let migration = format!(
        "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {{name: m}}\nspec: {{clusterID: m, {spec}}}\n"
    );
    let arguments = [&["webhook", "render-policies", "--migration=-"], more].concat();
    outrigger_with(&arguments, migration.as_bytes())
}

const NODES: &str = "targets: [{profile: Nodes}]";
const BOTH: &str = "targets: [{profile: Nodes}, {profile: Kubermatic, objectSelector: {matchLabels: {a: b}}}]";

#[test]
fn policies_and_bindings_of_nodes_are_rendered() {
    let run = render(&format!("nodeTaint: Always, {NODES}"), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    insta::assert_snapshot!(run.stdout);
    let beta = render(&format!("nodeTaint: Always, {NODES}"), &["--api-version=v1beta1"]);
    assert_eq!(beta.stdout, run.stdout.replace("k8s.io/v1\n", "k8s.io/v1beta1\n"));
}

#[test]
fn policies_of_machines_are_rendered_and_nodes_of_a_hosted_cluster_are_left_to_the_webhook() {
    let run = render(&format!("nodeTaint: Always, {BOTH}"), &["--own-namespace=mine"]);
    assert_eq!(run.code, Some(0));
    assert!(
        run.stderr
            .contains("note: migration m: no policy for nodes: its control plane is hosted"),
        "{}",
        run.stderr
    );
    assert!(run.stdout.contains(r#"["kube-system", "kube-node-lease", "mine"]"#));
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn a_target_that_names_kube_system_hosts_nothing() {
    let own = |selector: &str| {
        let hosted = format!("{{profile: HostedControlPlane, namespaceSelector: {selector}}}");
        let run = render(
            &format!("nodeTaint: Always, targets: [{{profile: Nodes}}, {hosted}]"),
            &[],
        );
        run.stdout.contains("name: outrigger.nodes.core") && run.stderr.is_empty()
    };
    assert!(own("{matchLabels: {kubernetes.io/metadata.name: kube-system}}"));
    assert!(own(
        "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-system]}]}"
    ));
    assert!(!own("{matchLabels: {kubernetes.io/metadata.name: tenant}}"));
    assert!(!own(
        "{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-system, tenant]}]}"
    ));
}

#[test]
fn what_policies_cannot_do_is_said() {
    for (spec, code, said) in [
        (
            NODES.to_owned(),
            2,
            "error: migration m: no policy for nodes: spec.nodeTaint is WhenManagerReady",
        ),
        (
            format!("nodeTaint: Never, {NODES}"),
            0,
            "note: migration m: no policy for nodes: spec.nodeTaint is Never",
        ),
        (
            format!("mode: Audit, nodeTaint: Always, {NODES}"),
            0,
            "warning: migration m: spec.mode is Audit",
        ),
        (
            "targets: [{profile: ClusterAPI, objectSelector: {matchLabels: {a: b}}}]".to_owned(),
            0,
            "nothing is rendered",
        ),
        (
            "targets: [{profile: Kubermatic}]".to_owned(),
            0,
            "spec.targets[0] has no selector",
        ),
    ] {
        let run = render(&spec, &[]);
        assert_eq!(run.code, Some(code), "{spec}: {}", run.seen());
        assert!(run.stderr.contains(said), "{spec}: {}", run.stderr);
    }
    let run = outrigger_with(&["webhook", "render-policies", "--migration=none.yaml"], b"");
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
}

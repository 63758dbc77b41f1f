//! `outrigger webhook register`: what is printed, and what is refused. `webhook/decide/tests/registration.rs` compares the
//! objects with the manifests.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use serde_json::Value;
use support::{Run, outrigger};

fn register(arguments: &[&str]) -> Run {
    outrigger(&[&["webhook", "register"], arguments].concat())
}

fn objects(run: &Run) -> Vec<Value> {
    assert_eq!(run.code, Some(0), "{}", run.seen());
    serde_saphyr::from_multiple(&run.stdout).unwrap()
}

fn names(run: &Run) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let objects = objects(run);
    let name = |object: &Value| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
    objects.iter().map(name).collect()
}

#[test]
fn a_kubeadm_cluster_needs_two_entries() {
    let run = register(&["--profiles=Nodes,KubeadmConfig", "--certificates=cert-manager"]);
    assert_eq!(
        names(&run),
        [
            "ServiceAccount outrigger-webhook",
            "ClusterRole outrigger-webhook",
            "ClusterRoleBinding outrigger-webhook",
            "Role outrigger-webhook:api-servers",
            "RoleBinding outrigger-webhook:api-servers",
            "Role outrigger-webhook:manager-lease",
            "RoleBinding outrigger-webhook:manager-lease",
            "NetworkPolicy outrigger-webhook",
            "MutatingWebhookConfiguration outrigger",
            "MutatingWebhookConfiguration outrigger-kube-system",
        ]
    );
    let entries: Vec<Value> = objects(&run)
        .iter()
        .flat_map(|object| object["webhooks"].as_array().cloned().unwrap_or_default())
        .map(|entry| entry["name"].clone())
        .collect();
    assert_eq!(entries, ["nodes.outrigger.dev", "kubeadm-configmaps.outrigger.dev"]);
    assert_eq!(
        run.stderr,
        "note: these are not needed; if an earlier installation has them: kubectl delete --ignore-not-found \
         mutatingwebhookconfiguration/early.outrigger.dev validatingwebhookconfiguration/outrigger\n"
    );
    // Order and case do not count.
    let other = register(&["--profiles", "kubeadmconfig,NODES,nodes", "--certificates=cert-manager"]);
    assert_eq!(other.stdout, run.stdout);
}

#[test]
fn match_conditions_are_printed_for_api_servers_that_have_them() {
    let conditions = |version: &[&str]| {
        let run = register(&[&["--profiles=Nodes"], version].concat());
        let all = objects(&run);
        all.last().unwrap()["webhooks"][0]["matchConditions"].clone()
    };
    for old in [
        &[][..],
        &["--kubernetes-version=1.27"],
        &["--kubernetes-version=v1.26.13"],
    ] {
        assert_eq!(conditions(old), Value::Null, "{old:?}");
    }
    for new in ["--kubernetes-version=1.28", "--kubernetes-version=v1.36.3"] {
        assert_eq!(conditions(&[new])[0]["name"], "not-initialized", "{new}");
    }
}

#[test]
fn the_nodes_of_hosted_control_planes_are_registered_in_their_tenants() {
    let run = register(&["--profiles=Nodes,HostedControlPlane", "--hosted"]);
    assert!(!run.stdout.contains("nodes.outrigger.dev"), "{}", run.stdout);
    assert!(run.stdout.contains("endPort: 65535"), "{}", run.stdout);
    assert!(
        run.stderr.contains("with --hosted, Nodes are not registered here"),
        "{}",
        run.stderr
    );

    let run = register(&["--tenant=prod", "--url=https://outrigger-webhook.outrigger-system.svc"]);
    assert_eq!(
        names(&run),
        [
            "Role outrigger-webhook:manager-lease",
            "RoleBinding outrigger-webhook:manager-lease",
            "MutatingWebhookConfiguration outrigger",
        ]
    );
    let url = &objects(&run)[2]["webhooks"][0]["clientConfig"]["url"];
    assert_eq!(url, "https://outrigger-webhook.outrigger-system.svc/mutate/prod");
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    for (arguments, said) in [
        (&["--profiles=Node"][..], "Nodes"),
        (
            &["--profiles=Kubeadm"],
            "[possible values: Nodes, HostedControlPlane, ClusterAPI, Kubermatic, RancherRKE2, RancherRKE1, KubeadmConfig, AwsResources]",
        ),
        (&[], "--profiles"),
        (&["--profiles=Nodes", "--hosted"], "print the objects of a tenant"),
        (&["--profiles=Nodes", "--kubernetes-version=new"], "write it as 1.26"),
        (&["--profiles=Nodes", "--api-server=10.0.0.1"], "10.0.1.10/32"),
        (&["--profiles=Nodes", "--ca-bundle=node.json"], "--ca-bundle=node.json"),
        (&["--profiles=Nodes", "--ca-bundle=absent"], "--ca-bundle=absent"),
        (&["--tenant=prod"], "--url"),
        (&["--tenant=prod", "--url=http://a"], "https://"),
        (&["--tenant=prod", "--url=https://a", "--profiles=Nodes"], "--profiles"),
    ] {
        let run = register(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(run.stderr.contains(said), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn the_choices_that_weaken_an_installation_are_noted() {
    for (profile, waits) in [("HostedControlPlane", 7), ("ClusterAPI", 2), ("Nodes", 0)] {
        let count = |policy: &str| {
            let run = register(&[&format!("--profiles={profile}"), &format!("--failure-policy={policy}")]);
            run.stdout.matches("failurePolicy: Fail").count()
        };
        assert_eq!((count("fail"), count("ignore")), (waits, 0), "{profile}");
    }
    let run = register(&["--profiles=HostedControlPlane", "--failure-policy=ignore"]);
    for note in ["--control-plane-failure-policy=Ignore", "no caBundle is printed"] {
        assert!(run.stderr.contains(note), "{}", run.stderr);
    }
}

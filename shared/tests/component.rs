//! Recognising components, and the forms of a kube-controller-manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::{
    component::{
        Certainty::{Recognized, Suspected, Wrapped},
        Component::{self, CloudControllerManager, KubeApiserver, KubeControllerManager, Kubelet},
        Form, controller_manager_form, find, is_mirror_pod,
    },
    version::KubernetesVersion,
};
use serde_json::{Value, json};

fn judged(container: Value, labels: Value) -> Option<(Component, outrigger_shared::component::Certainty)> {
    let spec = json!({ "containers": [container] });
    find(&spec, Some(&labels))
        .first()
        .map(|finding| (finding.component, finding.certainty))
}

fn form(tokens: &[&str]) -> Form {
    let spec = json!({ "containers": [{
        "name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.13", "command": tokens,
    }] });
    controller_manager_form(&spec).unwrap()
}

#[test]
fn two_pieces_of_evidence_are_needed() {
    let kcm = Some((KubeControllerManager, Recognized));
    let api = Some((KubeApiserver, Recognized));
    for (container, labels, expected) in [
        (
            json!({"name": "kube-controller-manager", "command": ["kube-controller-manager"]}),
            json!({}),
            kcm,
        ),
        (
            json!({"name": "x", "image": "r/kube-controller-manager:v1.26.0", "args": []}),
            json!({"app": "kube-controller-manager"}),
            kcm,
        ),
        (
            json!({"name": "controller-manager", "image": "r/kube-controller-manager-arm64:v1.26.0"}),
            json!({}),
            kcm,
        ),
        (
            json!({"name": "kube-apiserver", "command": ["/hyperkube", "apiserver"]}),
            json!({}),
            api,
        ),
        (
            json!({"name": "kube-apiserver", "image": "r/kube-apiserver:v1.26.0"}),
            json!({}),
            api,
        ),
        (
            json!({"name": "x", "command": ["kube-controller-manager"]}),
            json!({}),
            Some((KubeControllerManager, Suspected)),
        ),
        (
            json!({"name": "x", "image": "r/kube-controller-manager:v1.26.0"}),
            json!({}),
            Some((KubeControllerManager, Suspected)),
        ),
    ] {
        assert_eq!(judged(container.clone(), labels), expected, "{container}");
    }
}

#[test]
fn scripts_revisions_kubelets_and_managers_of_aws_are_recognized() {
    let ccm = Some((CloudControllerManager, Recognized));
    for (container, labels, expected) in [
        (
            json!({"name": "kube-apiserver-7", "command": ["bash", "-ec", "exec hyperkube kube-apiserver --x"]}),
            json!({}),
            Some((KubeApiserver, Recognized)),
        ),
        (
            json!({"name": "x", "command": ["sh", "-c", "exec /bin/kube-controller-manager"]}),
            json!({}),
            Some((KubeControllerManager, Suspected)),
        ),
        (
            json!({"name": "kubelet", "command": ["/hyperkube", "kubelet"]}),
            json!({}),
            Some((Kubelet, Recognized)),
        ),
        (
            json!({"name": "cloud-controller-manager", "args": ["--cloud-provider=aws"]}),
            json!({}),
            ccm,
        ),
        (
            json!({"name": "ccm", "image": "r/provider-aws/cloud-controller-manager:v1.26.0"}),
            json!({"k8s-app": "cloud-controller-manager"}),
            ccm,
        ),
        (
            json!({"name": "manager", "image": "r/outrigger-manager:v0.1.0"}),
            json!({"app.kubernetes.io/name": "outrigger-manager"}),
            ccm,
        ),
        (
            json!({"name": "cloud-controller-manager", "image": "r/origin-aws-cloud-controller-manager",
                "command": ["bash", "-c", "exec /bin/aws-cloud-controller-manager --cloud-provider=aws"]}),
            json!({}),
            ccm,
        ),
        (
            json!({"name": "x", "command": ["aws-cloud-controller-manager"]}),
            json!({}),
            Some((CloudControllerManager, Suspected)),
        ),
    ] {
        assert_eq!(judged(container.clone(), labels), expected, "{container}");
    }
}

#[test]
fn other_programs_are_never_taken_for_a_component() {
    for (container, labels) in [
        (
            json!({"name": "kube-controller-manager", "image": "r/kube-controller-manager:v1", "command": ["cluster-policy-controller"]}),
            json!({"app": "kube-controller-manager"}),
        ),
        // Only a program that gets the component's flags may pass them on.
        (
            json!({"name": "kube-controller-manager", "image": "r/kube-controller-manager:v1", "command": ["cluster-policy-controller", "start"], "args": ["--v=2"]}),
            json!({"app": "kube-controller-manager"}),
        ),
        (
            json!({"name": "kube-controller-manager", "image": "r/hyperkube:v1", "command": ["/entrypoint.sh"], "args": ["--cloud-provider=aws"]}),
            json!({"app": "kube-controller-manager"}),
        ),
        (
            json!({"name": "controller-manager", "image": "me/controller-manager:v0.1"}),
            json!({"app": "controller-manager"}),
        ),
        (
            json!({"name": "manager", "command": ["/manager"]}),
            json!({"component": "kube-controller-manager"}),
        ),
        (
            json!({"name": "konnectivity", "image": "r/konnectivity:v1"}),
            json!({"component": "kube-apiserver"}),
        ),
        (
            json!({"name": "cluster-autoscaler", "command": ["./cluster-autoscaler", "--cloud-provider=aws"]}),
            json!({"app": "cluster-autoscaler"}),
        ),
        (
            json!({"name": "machine-controller-manager", "args": ["--cloud-provider=aws"]}),
            json!({"role": "machine-controller-manager"}),
        ),
        (
            json!({"name": "cloud-controller-manager", "image": "r/cloud-controller-manager:v35", "args": []}),
            json!({"component": "cloud-controller-manager"}),
        ),
        (
            json!({"name": "aws-cloud-controller-manager", "args": ["--cloud-provider=azure"]}),
            json!({"k8s-app": "aws-cloud-controller-manager"}),
        ),
        (
            json!({"name": "audit", "command": ["bash", "-c", "tail -F /var/log/kube-apiserver"]}),
            json!({"app": "kube-apiserver"}),
        ),
        (
            json!({"name": "apiserver", "image": "calico/apiserver:v3"}),
            json!({"app": "apiserver"}),
        ),
    ] {
        assert_eq!(judged(container.clone(), labels), None, "{container}");
    }
}

fn container(command: &[&str]) -> Value {
    json!({
        "name": "kube-controller-manager",
        "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
        "command": command,
    })
}

#[test]
fn wrappers_are_looked_through_and_unknown_ones_are_not_overlooked() {
    let component = "/usr/local/bin/kube-controller-manager";
    let aws = "--cloud-provider=aws";
    for wrapper in [
        &["/usr/local/bin/kube-log-runner", "-log-file=/var/log/kcm.log"][..],
        &["kube-log-runner", "-log-file", "/var/log/kcm.log", "-also-stdout"],
        &["/vault/vault-env"],
        &["nice", "-n", "-5"],
        &["nice", "-10"],
        &["ionice", "-c2", "-n", "0"],
        &["timeout", "-s", "TERM", "--kill-after=5s", "1h"],
        &["gosu", "65534:65534"],
        &["su-exec", "nobody"],
        &["setpriv", "--reuid", "1000", "--clear-groups", "--"],
        &["chroot", "--userspec=0:0", "/host"],
        &["tini", "--", "nice", "-n5", "env", "A=b"],
    ] {
        let command = [wrapper, &[component, aws]].concat();
        assert_eq!(
            judged(container(&command), json!({})),
            Some((KubeControllerManager, Recognized)),
            "{command:?}"
        );
        let in_tree = Form::InTree {
            leader_migration: false,
        };
        assert_eq!(form(&command), in_tree, "{command:?}");
    }
    for command in [
        &["/entrypoint.sh", "kube-controller-manager", aws][..],
        &["/opt/my-init", "--flag", component, aws],
        &["supervise", "--", component],
    ] {
        assert_eq!(
            judged(container(command), json!({})),
            Some((KubeControllerManager, Wrapped)),
            "{command:?}"
        );
        assert!(matches!(form(command), Form::Unreadable { .. }), "{command:?}");
        // Its name among the words alone is nothing.
        assert_eq!(
            judged(json!({"name": "x", "image": "y", "command": command}), json!({})),
            None
        );
        let labels = json!({"app": "kube-controller-manager"});
        assert_eq!(
            judged(json!({"name": "x", "command": command}), labels),
            Some((KubeControllerManager, Wrapped))
        );
    }
    let sidecar = json!({"name": "logs", "command": ["tail", "-F", "/var/log/kube-controller-manager"]});
    let pod = json!({"containers": [container(&[component, aws]), sidecar]});
    let labels = json!({"component": "kube-controller-manager"});
    assert_eq!(
        find(&pod, Some(&labels)).len(),
        1,
        "beside the component it is a sidecar"
    );
}

#[test]
fn the_script_of_an_entry_point_is_not_overlooked() {
    let aws = "--cloud-provider=aws";
    // The script of an image's entry point may pass its arguments on.
    for command in [
        &["/entrypoint.sh", aws][..],
        &["/run.sh", "--controllers=*,-nodeipam"],
        &["/run.sh", "$(FLAGS)"],
    ] {
        assert_eq!(
            judged(container(command), json!({})),
            Some((KubeControllerManager, Wrapped)),
            "{command:?}"
        );
        assert!(matches!(form(command), Form::Unreadable { .. }), "{command:?}");
    }
    let script = &[
        "busybox",
        "sh",
        "-c",
        "exec kube-controller-manager --cloud-provider=aws",
    ];
    assert_eq!(
        judged(container(script), json!({})),
        Some((KubeControllerManager, Recognized))
    );
}

#[test]
fn a_finding_tells_its_version_and_place() {
    let spec = json!({ "containers": [
        {"name": "sidecar", "image": "x"},
        {"name": "kube-apiserver", "image": "registry.k8s.io/kube-apiserver:v1.29.3", "command": ["kube-apiserver"]},
    ] });
    let findings = find(&spec, None);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].index, findings[0].name), (1, "kube-apiserver"));
    assert_eq!(
        findings[0].version(),
        Some(KubernetesVersion {
            major: 1,
            minor: 29,
            patch: Some(3)
        })
    );
}

#[test]
fn mirror_pods_are_known_by_annotation_or_owner() {
    assert!(is_mirror_pod(
        &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "abc"}}})
    ));
    assert!(is_mirror_pod(
        &json!({"metadata": {"ownerReferences": [{"kind": "Node", "name": "n"}]}})
    ));
    assert!(!is_mirror_pod(
        &json!({"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "n"}]}})
    ));
    assert!(!is_mirror_pod(&json!({})));
}

#[test]
fn each_form_is_told_by_its_flags() {
    let in_tree = |leader_migration| Form::InTree { leader_migration };
    let external = |leader_migration| Form::External { leader_migration };
    for (flags, expected) in [
        (&["--cloud-provider=aws"][..], in_tree(false)),
        (&["--cloud-provider", "aws", "--enable-leader-migration"], in_tree(true)),
        (
            &["--cloud-provider=aws", "--enable-leader-migration=true"],
            in_tree(true),
        ),
        (
            &[
                "--cloud-provider=aws",
                "--enable-leader-migration",
                "--leader-elect=false",
            ],
            in_tree(false),
        ),
        (
            &[
                "--cloud-provider=aws",
                "--enable-leader-migration",
                "--leader-elect=true",
            ],
            in_tree(true),
        ),
        (&["--cloud-provider=external"], external(false)),
        (
            &["--cloud-provider=external", "--enable_leader_migration"],
            external(true),
        ),
        (
            &["--cloud-provider="],
            Form::NoProvider {
                leader_migration: false,
            },
        ),
        (
            &["--v=2"],
            Form::NoProvider {
                leader_migration: false,
            },
        ),
        (
            &["--enable-leader-migration"],
            Form::NoProvider { leader_migration: true },
        ),
    ] {
        let tokens: Vec<&str> = ["kube-controller-manager"].iter().chain(flags).copied().collect();
        assert_eq!(form(&tokens), expected, "{flags:?}");
    }
}

#[test]
fn what_cannot_be_told_is_unreadable_with_a_reason() {
    for tokens in [
        &["hyperkube", "kube-controller-manager", "--openshift-config=/c"][..],
        &["sh", "-c", "kube-controller-manager --cloud-provider=external"],
        &["/http-prober", "-command", "{}"],
        &["kube-controller-manager", "--cloud-provider=$(P)"],
        &[
            "kube-controller-manager",
            "--cloud-provider=aws",
            "--enable-leader-migration=maybe",
        ],
    ] {
        assert!(
            matches!(form(tokens), Form::Unreadable { reason } if !reason.is_empty()),
            "{tokens:?}"
        );
    }
}

#[test]
fn a_pod_that_only_seems_to_hold_one_is_unreadable_and_one_without_is_none() {
    let by_image = json!({ "containers": [{"name": "x", "image": "r/kube-controller-manager:v1.26.0"}] });
    assert!(matches!(
        controller_manager_form(&by_image),
        Some(Form::Unreadable { .. })
    ));
    let by_program =
        json!({ "containers": [{"name": "x", "command": ["kube-controller-manager", "--cloud-provider=aws"]}] });
    assert_eq!(
        controller_manager_form(&by_program),
        Some(Form::InTree {
            leader_migration: false
        })
    );
    for none in [
        json!({}),
        json!({"containers": []}),
        json!({"containers": [{"name": "kube-apiserver", "command": ["kube-apiserver"]}]}),
    ] {
        assert_eq!(controller_manager_form(&none), None);
    }
}

/// Conditions of the webhook's registration let only Pods with one of the words through.
#[test]
fn each_name_of_a_component_contains_one_of_the_words() {
    use outrigger_shared::component::WORDS;
    for component in Component::ALL {
        for name in component.names() {
            assert!(WORDS.iter().any(|word| name.contains(word)), "{name}");
        }
    }
    assert!(
        judged(
            json!({"name": "outrigger-manager", "image": "r/outrigger-manager:v1"}),
            json!({})
        )
        .is_some()
    );
    assert!(WORDS.contains(&"outrigger-manager"));
}

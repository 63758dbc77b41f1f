//! `outrigger mutate`, as the binary that a person runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use insta::assert_snapshot;
use serde_json::Value;
use support::{Run, files, outrigger, outrigger_with};

const MIGRATIONS: &str = "--migration=migrations.yaml";

fn mutate(arguments: &[&str]) -> Run {
    outrigger(&[&["mutate"], arguments].concat())
}

#[test]
fn the_report_for_people_shows_decision_reasons_patch_and_difference() {
    let run = mutate(&[
        "-f",
        "control-plane.yaml",
        "--migration",
        "migrations.yaml",
        "--migration",
        "prod",
    ]);
    assert_eq!(run.code, Some(0));
    assert_snapshot!(run.seen());
}

#[test]
fn the_next_phase_can_be_tried_with_and_without_the_evidence() {
    let hasty = mutate(&["-f", "control-plane.yaml", MIGRATIONS, "--phase=Migrate"]);
    assert!(hasty.stdout.contains("not Prepared yet"), "{}", hasty.seen());
    assert_eq!(hasty.code, Some(2), "the form of another phase");
    let prepared = mutate(&["-f", "control-plane.yaml", MIGRATIONS, "--phase=Migrate", "--prepared"]);
    assert_eq!(prepared.code, Some(0));
    assert_snapshot!(prepared.stdout);
    assert!(
        mutate(&["-f", "control-plane.yaml", MIGRATIONS, "--phase=complete"])
            .stderr
            .contains("one step at a time")
    );
}

#[test]
fn a_refusal_is_told_with_its_reason_and_ends_with_two() {
    let run = mutate(&["-f", "shell.yaml", MIGRATIONS, "--namespace-labels=cluster=prod"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stdout.contains("  refused: it stays unchanged, for the reasons below (migration prod, phase Prepare)\n  ! outrigger: migration prod: container"), "{}", run.seen());
    assert_eq!(run.stderr, "1 object: 1 refused\n");
}

const CONTROL_PLANE: &str = "apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {name: prod, namespace: default, labels: {cluster: prod, topology.cluster.x-k8s.io/owned: \"\"}}
spec:
  version: v1.26.15
  machineTemplate: {infrastructureRef: {kind: AWSMachineTemplate, name: prod}}
  kubeadmConfigSpec:
    clusterConfiguration:
      apiServer: {extraArgs: {cloud-provider: aws}}
      controllerManager: {extraArgs: {cloud-provider: aws}}
    initConfiguration: {nodeRegistration: {kubeletExtraArgs: {cloud-provider: aws}, name: a}}
    joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {cloud-provider: aws}, name: a}}
";

/// `outrigger mutate | kubectl replace` must write what is there already: the topology controller would answer another
/// write with the in-tree provider and without leader migration.
#[test]
fn objects_of_a_topology_are_refused_with_the_ways_that_last() {
    let migration = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: prod}\nspec: {clusterID: prod, \
        targets: [{profile: ClusterAPI, objectSelector: {matchLabels: {cluster: prod}}}]}\n---\n";
    let run = |object: &str, phase: &str, more: &[&str]| {
        let phase = format!("--phase={phase}");
        let arguments = [
            &["mutate", "-f", "-", "--namespace-labels=a=b", &phase, "--prepared"],
            more,
        ]
        .concat();
        outrigger_with(&arguments, format!("{migration}{object}").as_bytes())
    };
    let plain = CONTROL_PLANE.replace(", topology.cluster.x-k8s.io/owned: \"\"", "");
    let before = run(CONTROL_PLANE, "InTree", &["-o", "yaml"]);
    assert_eq!(before.code, Some(0), "nothing to change: {}", before.seen());

    for phase in ["Prepare", "Migrate", "Complete"] {
        let refused = run(CONTROL_PLANE, phase, &[]);
        assert_eq!(refused.code, Some(2), "{}", refused.seen());
        for part in [
            "1 refused",
            "topology.cluster.x-k8s.io/owned",
            "ClusterClass",
            "let the webhook change",
        ] {
            assert!(refused.seen().contains(part), "{part}: {}", refused.seen());
        }
        let written = run(CONTROL_PLANE, phase, &["-o", "yaml"]);
        assert_eq!(
            (written.code, written.stdout),
            (Some(2), before.stdout.clone()),
            "as it was, in {phase}"
        );
        let changed = run(&plain, phase, &[]);
        assert!(
            changed.code == Some(0) && changed.stderr.contains("1 changed"),
            "{}",
            changed.seen()
        );
    }
}

#[test]
fn unknown_labels_of_a_namespace_are_refused_as_by_the_webhook_and_the_hint_says_what_to_do() {
    let run = mutate(&["-f", "shell.yaml", MIGRATIONS]);
    assert_eq!(run.code, Some(2));
    assert_snapshot!(run.seen());
}

#[test]
fn json_holds_everything() {
    let run = mutate(&["-f", "control-plane.yaml", "-f", "node.json", MIGRATIONS, "-o", "json"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["apiVersion"], "cli.outrigger.dev/v1alpha1");
    let objects = report["objects"].as_array().unwrap();
    let decisions: Vec<&str> = objects
        .iter()
        .map(|object| object["decision"].as_str().unwrap())
        .collect();
    assert_eq!(decisions, ["not-ours", "changed", "not-ours", "changed"]);
    insta::assert_json_snapshot!(report);
}

#[test]
fn stdin_lists_and_yaml_go_through_a_pipe() {
    let node = std::fs::read_to_string(files().join("node.json")).unwrap();
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{node},{node}]}}"#);
    let run = outrigger_with(&["mutate", "-f", "-", MIGRATIONS, "-o", "yaml"], list.as_bytes());
    assert_eq!(run.code, Some(0));
    assert_snapshot!(run.seen());
    let again = outrigger_with(&["mutate", "-f", "-", MIGRATIONS, "-o", "yaml"], run.stdout.as_bytes());
    assert_eq!(again.stdout, run.stdout, "twice is once");
}

#[test]
fn migrations_among_the_documents_count_and_go_through() {
    let both = std::fs::read_to_string(files().join("migrations.yaml")).unwrap()
        + "---\n"
        + &std::fs::read_to_string(files().join("node.json")).unwrap();
    let run = outrigger_with(&["mutate", "-f", "-", "-o", "yaml"], both.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_eq!(run.stdout.matches("kind: CloudProviderMigration").count(), 2);
    assert!(
        run.stdout.contains("node.cloudprovider.kubernetes.io/uninitialized"),
        "{}",
        run.stdout
    );
}

#[test]
fn whether_a_manager_is_ready_is_not_known_unless_it_is_said() {
    let migration = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: m}\n\
        spec: {clusterID: m, phase: Migrate, targets: [{profile: Nodes}]}\n";
    for (flag, expected) in [
        ("", "is not known"),
        ("--manager-ready=false", "no cloud-controller-manager is ready"),
        ("--manager-ready", "  changed ("),
    ] {
        let flags = if flag.is_empty() { vec![] } else { vec![flag] };
        let run = outrigger_with(
            &[&["mutate", "-f", "node.json", "--migration=-"], &flags[..]].concat(),
            migration.as_bytes(),
        );
        assert!(run.stdout.contains(expected), "{flag}: {}", run.seen());
    }
}

#[test]
fn nodes_of_a_hosted_cluster_are_asked_for_at_its_path() {
    let migration = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: m}\n\
        spec: {clusterID: m, phase: Migrate, nodeTaint: Always, targets: [{profile: Nodes}, {profile: HostedControlPlane, objectSelector: {matchLabels: {a: b}}}]}\n";
    let run = |more: &[&str]| {
        outrigger_with(
            &[&["mutate", "-f", "node.json", "--migration=-"], more].concat(),
            migration.as_bytes(),
        )
    };
    assert!(
        run(&[]).stdout.contains("not managed: 1 object, "),
        "{}",
        run(&[]).seen()
    );
    assert!(
        run(&["--path=m"])
            .stdout
            .contains("  changed (migration m, phase Migrate)")
    );
    let wrong = run(&["--path=n"]);
    assert_eq!(
        (wrong.code, wrong.stderr.as_str()),
        (
            Some(1),
            "error: --path=n: no migration has that name (known: m), so nothing would be changed\n"
        )
    );
}

#[test]
fn an_update_acts_only_on_what_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new.yaml");
    let text = std::fs::read_to_string(files().join("control-plane.yaml")).unwrap();
    let decision = |content: &str| {
        std::fs::write(&new, content).unwrap();
        let run = mutate(&[
            "-f",
            new.to_str().unwrap(),
            "--old=control-plane.yaml",
            MIGRATIONS,
            "-o",
            "json",
        ]);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(report["operation"], "update");
        report["objects"][1]["decision"].clone()
    };
    assert_eq!(decision(&text), "unchanged");
    assert_eq!(decision(&text.replace("replicas: 1", "replicas: 2")), "unchanged");
    assert_eq!(
        decision(&text.replace("--leader-elect=true", "--leader-elect=true\n        - --v=2")),
        "changed"
    );
    std::fs::write(
        &new,
        text.replace("name: kube-controller-manager\n  namespace", "name: other\n  namespace"),
    )
    .unwrap();
    let run = mutate(&["-f", new.to_str().unwrap(), "--old=control-plane.yaml", MIGRATIONS]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .contains("Deployment cluster-prod/other is not in --old=control-plane.yaml"),
        "{}",
        run.stderr
    );
}

/// The text after the line `spec:`.
fn spec(yaml: &str) -> &str {
    yaml.split_once("\nspec:\n").map_or("", |(_, spec)| spec)
}

#[test]
fn forward_and_back_gives_the_bytes_of_the_spec() {
    let at = |phase: &str, input: &str| {
        let phase = format!("--phase={phase}");
        let run = outrigger_with(
            &["mutate", "-f", "-", MIGRATIONS, &phase, "--prepared", "-o", "yaml"],
            input.as_bytes(),
        );
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    let original = at(
        "InTree",
        &std::fs::read_to_string(files().join("control-plane.yaml")).unwrap(),
    );
    let mut now = original.clone();
    let mut seen = vec![spec(&now).to_owned()];
    for phase in ["Prepare", "Migrate", "Complete", "Migrate", "Prepare"] {
        now = at(phase, &now);
        seen.push(spec(&now).to_owned());
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2], "the phases differ");
    assert_eq!(seen[1], seen[5], "Prepare there and back");
    assert_eq!(at("InTree", &now), original);
}

#[test]
fn out_writes_the_objects_beside_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.yaml");
    let run = mutate(&[
        "-f",
        "control-plane.yaml",
        MIGRATIONS,
        "--out",
        file.to_str().unwrap(),
        "--patch",
    ]);
    assert!(run.stdout.contains("JSON patch:"));
    assert!(!run.stdout.contains("+        outrigger.dev/undo"), "{}", run.seen());
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        written,
        mutate(&["-f", "control-plane.yaml", MIGRATIONS, "-o", "yaml"]).stdout
    );
    let run = mutate(&["-f", "control-plane.yaml", MIGRATIONS, "--out=no/such/folder/file"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
}

#[test]
fn objects_that_the_registration_leaves_out_are_counted() {
    let object = |namespace: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: kcm, namespace: {namespace}}}\nspec:\n  \
             selector: {{matchLabels: {{a: b}}}}\n  template:\n    metadata: {{labels: {{a: b}}}}\n    spec:\n      containers:\n      - \
             {{name: kube-controller-manager, image: \"registry.k8s.io/kube-controller-manager:v1.26.9\", command: \
             [kube-controller-manager, --cloud-provider=aws]}}\n"
        )
    };
    let migration = "apiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\nmetadata: {name: m}\nspec: {clusterID: m, \
        phase: Prepare, targets: [{profile: HostedControlPlane, namespaceSelector: {matchExpressions: [{key: \
        kubernetes.io/metadata.name, operator: In, values: [kube-system, tenant]}]}}]}\n";
    let run = |namespace: &str| {
        let text = format!("{migration}{}", object(namespace));
        outrigger_with(&["mutate", "-f", "-", "--namespace-labels=a=b"], text.as_bytes())
    };
    let own = run("kube-system");
    assert!(
        own.stderr.contains("note: 1 of these objects are in kube-system"),
        "{}",
        own.seen()
    );
    let other = run("tenant");
    assert!(
        other.stdout.contains("changed") && !other.stderr.contains("kube-system"),
        "{}",
        other.seen()
    );
}

/// Kinds without a rule, among them those of another control-plane provider.
#[test]
fn an_object_without_a_rule_that_names_the_provider_gets_one_line() {
    let objects = "apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: K0sControlPlane
metadata: {name: prod, namespace: default}
spec: {k0sConfigSpec: {k0s: {spec: {controllerManager: {extraArgs: {cloud-provider: aws}}}}}}
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 01-master-kubelet}
spec: {config: {systemd: {units: [{name: kubelet.service, contents: \"ExecStart=/usr/bin/hyperkube kubelet --cloud-provider=aws\"}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: openshift-kube-controller-manager}
data: {config.yaml: '{\"extendedArguments\":{\"cloud-provider\":[\"aws\"]}}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: default}
data: {config.yaml: \"cloud-provider: external\"}
";
    let run = outrigger_with(&["mutate", "-f-", MIGRATIONS], objects.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.seen());
    for place in [
        "/spec/k0sConfigSpec/k0s/spec/controllerManager/extraArgs/cloud-provider",
        "/spec/config/systemd/units/0/contents",
        "/data/config.yaml",
    ] {
        let line =
            format!("): not managed, but it names the cloud provider aws at {place}, and nothing here changes it");
        assert!(run.stdout.contains(&line), "{line}: {}", run.seen());
    }
    assert_eq!(
        run.stdout.matches("it names the cloud provider").count(),
        3,
        "{}",
        run.seen()
    );
}

/// The files that operators have are of kinds that no API server sends to the webhook.
#[test]
fn an_object_of_another_way_names_that_way() {
    let manifest =
        std::fs::read_to_string(files().join("machine/etc/kubernetes/manifests/kube-controller-manager.yaml"));
    let configuration = "apiVersion: kubeadm.k8s.io/v1beta3
kind: JoinConfiguration
nodeRegistration: {kubeletExtraArgs: {cloud-provider: aws}}
";
    let kops = "apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata: {name: prod}
spec: {kubelet: {cloudProvider: aws}}
";
    for (object, way) in [
        (manifest.unwrap().as_str(), "`outrigger node edit` changes its file"),
        (configuration, "give that ConfigMap"),
        (kops, "see the guide for kOps"),
    ] {
        let run = outrigger_with(&["mutate", "-f-", MIGRATIONS], object.as_bytes());
        assert!(run.code == Some(0) && run.stdout.contains(way), "{way}: {}", run.seen());
        assert_eq!(run.stdout.lines().count(), 1, "{}", run.seen());
    }
}

/// The name of a namespace is one of its labels.
#[test]
fn a_namespace_that_is_selected_by_its_name_needs_no_labels() {
    let migration = std::fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    let target =
        "{profile: KubeadmConfig, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        migration.replace("targets: [", &format!("targets: [{target}, ")),
    )
    .unwrap();
    let object = "apiVersion: v1
kind: ConfigMap
metadata: {name: kubeadm-config, namespace: kube-system}
data:
  ClusterConfiguration: |
    apiVersion: kubeadm.k8s.io/v1beta3
    kind: ClusterConfiguration
    kubernetesVersion: v1.26.13
    controllerManager:
      extraArgs: {cloud-provider: aws}
";
    let migration = format!("--migration={}", file.path().display());
    let run = outrigger_with(&["mutate", "-f-", &migration], object.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert!(run.stdout.contains("enable-leader-migration"), "{}", run.seen());
}

//! `outrigger node` on a copy of a machine, as the binary that a person runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints what it has seen")]

#[path = "../../shared/tests/published/mod.rs"]
mod published;
mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};
use support::machine::{MIGRATION, Machine, copy};
use support::{files, outrigger, outrigger_with};

const MANAGER: &str = "etc/kubernetes/manifests/kube-controller-manager.yaml";
const API_SERVER: &str = "etc/kubernetes/manifests/kube-apiserver.yaml";
const KUBEADM_FLAGS: &str = "var/lib/kubelet/kubeadm-flags.env";
const EXTRA_FLAGS: &str = "etc/default/kubelet";
const CONFIG: &str = "var/lib/kubelet/config.yaml";
const DROP_IN: &str = "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";

fn original(path: &str) -> String {
    fs::read_to_string(files().join("machine").join(path)).unwrap()
}

/// The Pod that `outrigger mutate`, and so the webhook, makes of one in kube-system.
fn mutated(pod: &str, phase: &str, migration: &str) -> Value {
    let path = tempfile::NamedTempFile::new().unwrap();
    let migration = fs::read_to_string(files().join(migration)).unwrap();
    let target =
        "{profile: HostedControlPlane, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}";
    fs::write(
        path.path(),
        migration.replace("targets: [", &format!("targets: [{target}, ")),
    )
    .unwrap();
    let migration = format!("--migration={}", path.path().display());
    let phase = format!("--phase={phase}");
    let run = outrigger_with(
        &[
            "mutate",
            "-f-",
            "-ojson",
            "--prepared",
            &migration,
            &phase,
            "--namespace-labels=a=b",
        ],
        pod.as_bytes(),
    );
    assert_eq!(run.code, Some(0), "{}", run.seen());
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    report["objects"][0]["object"].clone()
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn each_phase_equals_the_webhooks_result_for_the_same_pod() {
    for migration in ["kubeadm-migration.yaml", "kubeadm-leader-migration.yaml"] {
        for phase in ["InTree", "Prepare", "Migrate", "Complete"] {
            let machine = Machine::new();
            let migration_flag = format!("--migration={migration}");
            let phase_flag = format!("--phase={phase}");
            let run = machine.run(&["edit", &migration_flag, &phase_flag, "--prepared"]);
            assert_eq!(run.code, Some(0), "{}", run.seen());

            let manager = parsed(&machine.text(MANAGER));
            assert_eq!(
                manager,
                mutated(&original(MANAGER), phase, migration),
                "{migration}: {phase}"
            );
            // Both change on one machine, so the API server's part waits as in kubeadm's ClusterConfiguration.
            let phase_of_api_server = if phase == "Migrate" { "Prepare" } else { phase };
            let api_server = parsed(&machine.text(API_SERVER));
            let expected = mutated(&original(API_SERVER), phase_of_api_server, migration);
            assert_eq!(api_server, expected, "{migration}: {phase}");
        }
    }
}

#[test]
fn an_api_server_that_does_not_start_with_the_flag_changes_in_migrate() {
    let machine = Machine::new();
    let newer = original(API_SERVER).replace("v1.26.13", "v1.29.1");
    machine.write(API_SERVER, &newer);
    let migration = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    machine.write(
        "migration.yaml",
        &migration.replace("  kubernetesVersion: \"1.26\"\n", ""),
    );
    let migration = format!("--migration={}", machine.path("migration.yaml").display());
    let run = machine.run(&["edit", &migration, "--phase=Migrate", "--prepared"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert!(
        !machine.text(API_SERVER).contains("    - --cloud-provider"),
        "{}",
        machine.text(API_SERVER)
    );
}

#[test]
fn comments_and_form_stay_and_each_flag_keeps_its_own() {
    let machine = Machine::new();
    let run = machine.edit(&["--phase=Migrate", "--prepared", "--dry-run"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_snapshot!(run.seen());
    assert_eq!(machine.text(MANAGER), original(MANAGER));
    assert!(
        !machine.path("etc/kubernetes/outrigger").exists(),
        "a dry run writes nothing"
    );
}

#[test]
fn the_report_names_files_reasons_and_next_steps() {
    let machine = Machine::new();
    assert_snapshot!(machine.edited("Prepare").seen());
}

#[test]
fn a_second_edit_changes_nothing_and_another_phase_starts_from_the_original() {
    let machine = Machine::new();
    machine.edited("Prepare");
    let (prepared, inode) = (
        machine.text(MANAGER),
        fs::metadata(machine.path(MANAGER)).unwrap().ino(),
    );
    let again = machine.edited("Prepare");
    assert!(
        !again.stdout.contains("\nchanged /") && !again.stdout.contains("next:"),
        "{}",
        again.seen()
    );
    assert_eq!(
        fs::metadata(machine.path(MANAGER)).unwrap().ino(),
        inode,
        "not even written"
    );

    machine.edited("Migrate");
    let edited = "--cloud-provider=external                        # ticket 4711";
    assert!(machine.text(MANAGER).contains(edited), "{}", machine.text(MANAGER));
    machine.edited_back("Prepare");
    assert_eq!(
        machine.text(MANAGER),
        prepared,
        "with the comment of the flag that was removed"
    );
    let run = machine.edited_back("InTree");
    assert!(
        run.stdout
            .contains("restored /etc/kubernetes/manifests/kube-controller-manager.yaml"),
        "{}",
        run.seen()
    );
    assert_eq!(machine.text(MANAGER), original(MANAGER));
    assert!(
        machine.undone().stdout.starts_with("nothing to undo"),
        "InTree is the original"
    );
}

#[test]
fn undo_restores_every_byte_the_mode_and_the_owner() {
    let machine = Machine::new();
    // Without a line feed at its end, and with the line ends of another system.
    let odd = original(MANAGER)
        .trim_end()
        .replace("status: {}", "status: {}\r\n# ende");
    machine.write(MANAGER, &odd);
    let mode = |path: &str| fs::metadata(machine.path(path)).unwrap().mode() & 0o7777;
    fs::set_permissions(machine.path(MANAGER), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(machine.path(API_SERVER), Permissions::from_mode(0o600)).unwrap();
    let is_root = std::os::unix::fs::chown(machine.path(MANAGER), Some(1234), Some(4321)).is_ok();
    let owner = fs::metadata(machine.path(MANAGER)).unwrap();

    machine.edited("Complete");
    assert_ne!(machine.text(MANAGER), odd);
    assert_eq!((mode(MANAGER), mode(API_SERVER)), (0o640, 0o600));
    let now = fs::metadata(machine.path(MANAGER)).unwrap();
    assert_eq!((now.uid(), now.gid()), (owner.uid(), owner.gid()), "root: {is_root}");

    let records = fs::read_dir(machine.path("etc/kubernetes/outrigger"))
        .unwrap()
        .map(Result::unwrap);
    for record in records {
        assert_eq!(record.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", record.path());
    }
    let run = machine.undone();
    assert_snapshot!(run.seen());
    assert_eq!(
        (machine.text(MANAGER), machine.text(API_SERVER)),
        (odd, original(API_SERVER))
    );
    assert_eq!((mode(MANAGER), mode(API_SERVER)), (0o640, 0o600));
    assert!(machine.undone().stdout.starts_with("nothing to undo"));
}

#[test]
fn a_file_that_has_changed_since_is_named_with_the_ways_to_go_on() {
    let machine = Machine::new();
    machine.edited("Complete");
    let upgraded = original(API_SERVER).replace("v1.26.13", "v1.26.15");
    machine.write(API_SERVER, &upgraded);
    let manager = machine.text(MANAGER);

    let run = machine.run(&["undo"]);
    assert_eq!(run.code, Some(2), "{}", run.seen());
    assert_snapshot!(run.stdout);
    assert_eq!(machine.text(MANAGER), manager, "all or nothing");
    assert_eq!(machine.edit(&["--phase=Migrate", "--prepared", "--back"]).code, Some(2));
    assert_eq!(machine.text(MANAGER), manager, "all or nothing");

    // The first way: the present text is the original of the next edit.
    let record = "etc/kubernetes/outrigger/etc-kubernetes-manifests-kube-apiserver.yaml.json";
    let kept = machine.text(record);
    fs::remove_file(machine.path(record)).unwrap();
    machine.edited("Complete");
    machine.undone();
    assert_eq!(
        (machine.text(MANAGER), machine.text(API_SERVER)),
        (original(MANAGER), upgraded)
    );

    // The second way: the recorded original.
    machine.write(record, &kept);
    let run = machine.run(&["undo", "--force"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_eq!(machine.text(API_SERVER), original(API_SERVER));
}

#[test]
fn a_file_that_is_gone_is_refused() {
    let machine = Machine::new();
    machine.edited("Prepare");
    fs::remove_file(machine.path(MANAGER)).unwrap();
    let run = machine.run(&["undo"]);
    assert_eq!(run.code, Some(2), "{}", run.seen());
    assert!(
        run.stderr.contains("is absent") && run.stderr.contains("kube-controller-manager.yaml.json"),
        "{}",
        run.seen()
    );
}

#[test]
fn without_the_condition_prepared_nothing_is_changed() {
    let machine = Machine::new();
    let run = machine.edit(&["--phase=Migrate"]);
    assert_eq!(run.code, Some(2), "{}", run.seen());
    assert!(run.stderr.contains("no condition Prepared=True"), "{}", run.seen());
    assert_eq!(machine.text(MANAGER), original(MANAGER));
}

/// The phase of a file that is no object of the cluster is InTree unless it says otherwise, and a copy may be old.
#[test]
fn a_file_that_is_not_the_clusters_object_and_a_step_back_are_refused() {
    let machine = Machine::new();
    machine.edited("Migrate");
    let migrated = machine.text(MANAGER);
    let text = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    let of_hand = text.replace("  phase: Prepare\n", "");
    let without_uid = of_hand.replace(", uid: 1f0e6a35-6b5c-4d0e-9a53-0c8f2d7d3b11", "");
    machine.write("migration.yaml", &without_uid);
    machine.write("current.yaml", &of_hand);
    let flag = |file: &str| format!("--migration={}", machine.path(file).display());

    let run = machine.run(&["edit", &flag("migration.yaml"), "--back"]);
    assert_eq!(run.code, Some(1), "{}", run.seen());
    let said = "metadata.uid is missing, so this is no object of a cluster";
    assert!(run.stderr.contains(said) && run.stdout.is_empty(), "{}", run.seen());
    for (words, from, to) in [
        (vec!["edit", MIGRATION], "Migrate", "Prepare"),
        (vec!["edit", &flag("current.yaml")], "Migrate", "InTree"),
    ] {
        let run = machine.run(&words);
        assert_eq!(run.code, Some(2), "{}", run.seen());
        let said = format!("this machine has the form of {from}, and ");
        let asked = format!(" asks for {to}, which is a step back; ");
        assert!(
            run.stderr.contains(&said) && run.stderr.contains(&asked),
            "{}",
            run.seen()
        );
    }
    assert_eq!(machine.text(MANAGER), migrated);

    let shown = machine.run(&["edit", &flag("migration.yaml"), "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{}", shown.seen());
    let notes = shown
        .stdout
        .lines()
        .filter(|line| line.starts_with("note: without --dry-run: "));
    assert_eq!(notes.count(), 2, "{}", shown.seen());
    let back = machine.run(&["edit", &flag("current.yaml"), "--back"]);
    assert_eq!(back.code, Some(0), "{}", back.seen());
    let heading = "migration cluster: from Migrate to InTree\n";
    assert!(back.stdout.starts_with(heading), "{}", back.seen());
    assert_eq!(machine.text(MANAGER), original(MANAGER));
}

/// For a program that changes many machines.
#[test]
fn the_report_is_json_for_programs() {
    let machine = Machine::new();
    let report = |words: &[&str]| -> Value {
        let run = machine.run(words);
        assert_eq!(run.code, Some(0), "{}", run.seen());
        serde_json::from_str(&run.stdout).unwrap()
    };
    let dry = report(&["edit", MIGRATION, "-ojson", "--dry-run"]);
    let difference = dry["files"][1]["difference"].as_str().unwrap();
    assert!(difference.contains("+    - --enable-leader-migration"), "{difference}");
    assert_eq!(dry["files"][1]["result"], "would change");

    let edit = report(&["edit", MIGRATION, "-ojson"]);
    let step = [&edit["kind"], &edit["migration"], &edit["from"], &edit["to"]];
    assert_eq!(step, ["NodeReport", "cluster", "InTree", "Prepare"]);
    assert_eq!(edit["files"][1]["result"], "changed");
    assert_eq!(edit["files"][1]["path"], json!(format!("/{MANAGER}")));
    assert_eq!((&edit["isRefused"], &edit["dryRun"]), (&json!(false), &json!(false)));
    assert_eq!(edit["next"].as_array().unwrap().len(), 2);
    let undo = report(&["undo", "-ojson"]);
    assert_eq!(
        (&undo["files"][0]["result"], &undo["from"]),
        (&json!("restored"), &Value::Null)
    );
    assert_eq!(report(&["undo", "-ojson"])["files"], json!([]));

    machine.write(
        MANAGER,
        &original(MANAGER).replace("leader-elect=true", "leader-elect=false"),
    );
    let run = machine.run(&["edit", MIGRATION, "-ojson"]);
    let refused: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &refused["isRefused"]), (Some(2), &json!(true)));
}

#[test]
fn a_migration_in_audit_changes_nothing_and_shows_everything() {
    let machine = Machine::new();
    let migration = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    machine.write("migration.yaml", &migration.replace("spec:", "spec:\n  mode: Audit"));
    let migration = format!("--migration={}", machine.path("migration.yaml").display());
    let run = machine.run(&["edit", &migration]);
    assert_eq!(run.code, Some(2), "{}", run.seen());
    assert!(
        run.stderr.contains("spec.mode of migration cluster is Audit"),
        "{}",
        run.seen()
    );
    let run = machine.run(&["edit", &migration, "--dry-run"]);
    assert!(
        run.stdout.contains("+    - --enable-leader-migration"),
        "{}",
        run.seen()
    );
    assert_eq!(machine.text(MANAGER), original(MANAGER));
}

#[test]
fn wrong_input_is_named_with_its_fix() {
    let refused = |machine: &Machine, words: &[&str], code: i32, said: &str| {
        let before = machine.text(API_SERVER);
        let run = machine.edit(words);
        assert_eq!(run.code, Some(code), "{}", run.seen());
        let seen = run.seen();
        assert!(seen.contains(said), "{said}: {seen}");
        assert_eq!(machine.text(API_SERVER), before);
    };
    let machine = Machine::new();
    refused(
        &machine,
        &["--state=/etc/kubernetes/manifests/undo"],
        1,
        "is inside --manifests=",
    );
    refused(&machine, &["--state=undo"], 1, "--state=undo is not an absolute path");
    refused(&machine, &["--manifests=/absent"], 1, "error: /absent: ");

    machine.write(
        "etc/kubernetes/manifests/kube-controller-manager.yaml.bak",
        &original(MANAGER),
    );
    refused(
        &machine,
        &[],
        1,
        "both run kube-controller-manager, and the kubelet starts both",
    );
    // The kubelet reads no file whose name begins with a dot.
    let copy = machine.path("etc/kubernetes/manifests/kube-controller-manager.yaml.bak");
    fs::rename(
        &copy,
        machine.path("etc/kubernetes/manifests/.kube-controller-manager.yaml.swp"),
    )
    .unwrap();
    machine.edited("Prepare");

    let machine = Machine::new();
    fs::rename(machine.path(MANAGER), machine.path("real.yaml")).unwrap();
    symlink("/real.yaml", machine.path(MANAGER)).unwrap();
    refused(&machine, &[], 1, "is a symbolic link to ");

    let machine = Machine::new();
    machine.write(MANAGER, &format!("{}---\n{}", original(MANAGER), original(MANAGER)));
    refused(&machine, &[], 1, "it holds 2 documents, and the kubelet reads one");
    machine.write(MANAGER, &format!("{}#{}", original(MANAGER), "x".repeat(300_000)));
    refused(&machine, &[], 1, "has more than 262144 bytes");
    machine.write(
        MANAGER,
        &original(MANAGER).replace("name: kube-controller-manager", "name: [kube-controller-manager"),
    );
    refused(&machine, &[], 1, "kube-controller-manager.yaml: the text is not YAML");
    machine.write(
        MANAGER,
        &original(MANAGER).replace("leader-elect=true", "leader-elect=false"),
    );
    refused(&machine, &[], 2, "--leader-elect=false turns leader migration off");
}

#[test]
fn one_migration_applies() {
    let machine = Machine::new();
    let run = machine.run(&["edit", "--migration=migrations.yaml"]);
    assert_eq!(run.code, Some(1), "{}", run.seen());
    assert!(
        run.stderr.contains("--migration gives 2: prod, itself; name one"),
        "{}",
        run.seen()
    );
    let run = machine.run(&["edit", "--migration=migrations.yaml", "--migration=prod"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
}

#[test]
fn one_component_can_be_changed_alone() {
    let machine = Machine::new();
    let run = machine.edit(&["--phase=Complete", "--prepared", "--component=kube-apiserver"]);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_eq!(machine.text(MANAGER), original(MANAGER));
    assert!(machine.text(API_SERVER).contains("--cloud-provider=external"));
}

#[test]
fn a_lost_record_is_named_and_in_tree_restores_the_flags() {
    let machine = Machine::new();
    machine.edited("Migrate");
    fs::remove_dir_all(machine.path("etc/kubernetes/outrigger")).unwrap();
    let run = machine.edited("InTree");
    assert!(
        run.stdout.contains("for which /etc/kubernetes/outrigger has no record"),
        "{}",
        run.seen()
    );
    assert_eq!(parsed(&machine.text(MANAGER)), parsed(&original(MANAGER)));
}

const KUBELET: [&str; 3] = ["--component=kubelet", "--phase=Migrate", "--prepared"];

#[test]
fn flags_of_the_kubelet_are_edited_where_they_are_and_restored() {
    let machine = Machine::new();
    let run = machine.edit(&KUBELET);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_snapshot!(run.seen());
    assert_eq!(machine.text(KUBEADM_FLAGS), original(KUBEADM_FLAGS));
    assert_eq!(
        machine.text(EXTRA_FLAGS),
        original(EXTRA_FLAGS).replace("aws --cloud-config=/etc/kubernetes/cloud.conf", "external")
    );
    assert_eq!(machine.text(MANAGER), original(MANAGER));
    assert!(!machine.path("etc/default/.outrigger-kubelet.tmp").exists());

    let edited = machine.text(EXTRA_FLAGS);
    machine.edit(&KUBELET);
    assert_eq!(machine.text(EXTRA_FLAGS), edited, "a second edit changes nothing");
    machine.undone();
    assert_eq!(machine.text(EXTRA_FLAGS), original(EXTRA_FLAGS));
}

#[test]
fn a_missing_flag_of_the_kubelet_is_added_to_kubeadms_file() {
    let machine = Machine::new();
    fs::remove_file(machine.path(EXTRA_FLAGS)).unwrap();
    fs::remove_dir_all(machine.path("etc/kubernetes/manifests")).unwrap();
    let run = machine.edit(&["--phase=Complete", "--prepared"]);
    assert_eq!(run.code, Some(0), "a worker: {}", run.seen());
    let with_it = original(KUBEADM_FLAGS).replace("pause:3.9\"", "pause:3.9 --cloud-provider=external\"");
    assert_eq!(machine.text(KUBEADM_FLAGS), with_it);
    assert!(
        run.stdout.contains("holds no manifest of these components"),
        "{}",
        run.seen()
    );
    assert!(
        run.stdout.contains("systemctl restart kubelet") && !run.stdout.contains("static Pods"),
        "{}",
        run.seen()
    );
    machine.undone();
    assert_eq!(machine.text(KUBEADM_FLAGS), original(KUBEADM_FLAGS));

    fs::remove_file(machine.path(KUBEADM_FLAGS)).unwrap();
    let run = machine.edit(&[]);
    assert_eq!(run.code, Some(1), "{}", run.seen());
    assert!(
        run.stderr
            .contains("no file of kube-controller-manager or kube-apiserver or kubelet"),
        "{}",
        run.seen()
    );
}

#[test]
fn a_file_that_no_unit_names_is_not_the_kubelets() {
    let machine = Machine::new();
    machine.write("etc/sysconfig/kubelet", &original(EXTRA_FLAGS));
    let run = machine.edit(&KUBELET);
    assert_eq!(run.code, Some(0), "{}", run.seen());
    assert_eq!(machine.text("etc/sysconfig/kubelet"), original(EXTRA_FLAGS));
    assert_ne!(machine.text(EXTRA_FLAGS), original(EXTRA_FLAGS));
}

#[test]
fn a_kubelet_that_cannot_be_changed_is_refused() {
    let refused = |change: &dyn Fn(&Machine), code: i32, said: &str| {
        let machine = Machine::new();
        change(&machine);
        let before = (machine.text(KUBEADM_FLAGS), machine.text(EXTRA_FLAGS));
        let run = machine.edit(&["--phase=Migrate", "--prepared"]);
        assert_eq!(run.code, Some(code), "{}", run.seen());
        let seen = run.seen();
        assert!(seen.contains(said), "{said}: {seen}");
        assert_eq!((machine.text(KUBEADM_FLAGS), machine.text(EXTRA_FLAGS)), before);
        assert_eq!(machine.text(MANAGER), original(MANAGER), "all or nothing");
    };
    let in_unit = |machine: &Machine| {
        let text = original(DROP_IN).replace("kubelet $", "kubelet --cloud-provider=aws $");
        machine.write(DROP_IN, &text);
        machine.write(EXTRA_FLAGS, "OTHER=1\n");
    };
    refused(
        &in_unit,
        2,
        "10-kubeadm.conf, line 8 has --cloud-provider in ExecStart=",
    );
    let only_in_unit = |machine: &Machine| {
        in_unit(machine);
        machine.write(KUBEADM_FLAGS, "OTHER=1\n");
    };
    refused(
        &only_in_unit,
        2,
        "10-kubeadm.conf, line 8 has --cloud-provider in ExecStart=",
    );
    let foreign = |machine: &Machine| machine.write(EXTRA_FLAGS, "KUBELET_EXTRA_ARGS=--cloud-provider=gce\n");
    refused(&foreign, 2, "--cloud-provider is \"gce\", not \"aws\"");
    let quoted = |machine: &Machine| {
        let flags = "KUBELET_EXTRA_ARGS=\"--cloud-provider=aws --node-labels='a=b'\"\n";
        machine.write(EXTRA_FLAGS, flags);
    };
    refused(&quoted, 2, "/etc/default/kubelet: KUBELET_EXTRA_ARGS has a quote");
}

#[test]
fn gates_of_the_configuration_file_count() {
    let machine = Machine::new();
    let migration = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    machine.write("migration.yaml", &migration.replace("1.26", "1.23"));
    let migration = format!("--migration={}", machine.path("migration.yaml").display());
    let edit = |machine: &Machine| machine.run(&[&["edit", &migration], &KUBELET[..]].concat());
    machine.write(
        CONFIG,
        &format!("{}featureGates:\n  CSIMigrationAWS: false\n", original(CONFIG)),
    );
    let run = edit(&machine);
    assert_eq!(run.code, Some(2), "{}", run.seen());
    assert!(
        run.stdout.contains("cannot mount in-tree EBS volumes") && run.stdout.contains("featureGates of"),
        "{}",
        run.seen()
    );
    machine.write(CONFIG, &original(CONFIG));
    assert_eq!(edit(&machine).code, Some(0));
}

#[test]
fn flags_with_which_a_newer_kubelet_does_not_start_are_not_restored() {
    let machine = Machine::new();
    machine.edit(&KUBELET);
    let edited = machine.text(EXTRA_FLAGS);
    let migration = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    machine.write("migration.yaml", &migration.replace("1.26", "1.27"));
    let migration = format!("--migration={}", machine.path("migration.yaml").display());
    for phase in ["--phase=Prepare", "--phase=InTree"] {
        let run = machine.run(&["edit", &migration, phase, "--component=kubelet", "--back"]);
        assert_eq!(run.code, Some(2), "{}", run.seen());
        let said = "the original flags are not restored: keep 1.26";
        assert!(run.stdout.contains(said), "{}", run.seen());
        assert_eq!(machine.text(EXTRA_FLAGS), edited);
    }
}

#[test]
fn a_folder_on_another_file_system_is_refused_and_nothing_is_left() {
    let (machine, Ok(other)) = (Machine::new(), tempfile::tempdir_in("/dev/shm")) else {
        return;
    };
    let manifests = machine.path("etc/kubernetes/manifests");
    if fs::metadata(other.path()).unwrap().dev() == fs::metadata(&manifests).unwrap().dev() {
        println!("skipped: /dev/shm is no file system of its own");
        return;
    }
    copy(&manifests, other.path());
    fs::remove_dir_all(&manifests).unwrap();
    symlink(other.path(), &manifests).unwrap();

    // Links lead out of no other root than that of this machine.
    let state = format!("--state={}", machine.path("state").display());
    let folder = format!("--manifests={}", manifests.display());
    let manager = "--component=kube-controller-manager";
    let run = outrigger(&["node", "edit", MIGRATION, manager, &folder, &state]);
    assert_eq!(run.code, Some(1), "{}", run.seen());
    assert!(run.stderr.contains("is on another file system"), "{}", run.seen());
    assert_eq!(machine.text(MANAGER), original(MANAGER));
    assert!(
        !machine
            .path("etc/kubernetes/.outrigger-kube-controller-manager.yaml.tmp")
            .exists()
    );
    let undone = outrigger(&["node", "undo", &state]);
    assert_eq!(undone.code, Some(0), "{}", undone.seen());
}

#[test]
fn a_record_that_is_not_this_commands_is_named() {
    let machine = Machine::new();
    machine.edited("Prepare");
    let record = "etc/kubernetes/outrigger/etc-kubernetes-manifests-kube-controller-manager.yaml.json";
    let kept = machine.text(record);
    let version = kept.replace("v1alpha1", "v9");
    for (text, said) in [
        ("{", "EOF while parsing"),
        (version.as_str(), "it is NodeUndo of cli.outrigger.dev/v9"),
        (
            &kept.replace("kube-controller-manager.yaml\"", "other.yaml\""),
            "it is about /etc/kubernetes/manifests/other.yaml",
        ),
    ] {
        machine.write(record, text);
        for words in [&["undo"][..], &["edit", MIGRATION]] {
            let run = machine.run(words);
            assert_eq!(run.code, Some(1), "{}", run.seen());
            let is_named = run.stderr.contains("the undo record cannot be read") && run.stderr.contains(said);
            assert!(is_named, "{said}: {}", run.seen());
        }
    }
}

/// The disk of another machine has the links and the records that somebody wrote.
#[test]
fn no_link_and_no_record_of_a_disk_leads_out_of_its_root() {
    let (machine, host) = (Machine::new(), tempfile::tempdir().unwrap());
    let manifest = original(MANAGER);
    let on_host = |name: &str| host.path().join(name);
    fs::create_dir(on_host("manifests")).unwrap();
    fs::write(on_host("manifests/kube-controller-manager.yaml"), &manifest).unwrap();

    // The machine has its manifests on another disk, whose place exists here, too.
    let below = host.path().strip_prefix("/").unwrap().to_string_lossy().into_owned();
    let moved = format!("{below}/manifests/kube-controller-manager.yaml");
    fs::create_dir_all(machine.path(&below)).unwrap();
    fs::rename(
        machine.path("etc/kubernetes/manifests"),
        machine.path(&format!("{below}/manifests")),
    )
    .unwrap();
    symlink(on_host("manifests"), machine.path("etc/kubernetes/manifests")).unwrap();
    machine.edited("Complete");
    assert_ne!(machine.text(&moved), manifest);
    let here = fs::read_to_string(on_host("manifests/kube-controller-manager.yaml"));
    assert_eq!(here.unwrap(), manifest);
    machine.undone();
    assert_eq!(machine.text(&moved), manifest);

    // A record about a file beside the root.
    fs::write(on_host("job"), "job").unwrap();
    let path = format!("/a{}{}", "/..".repeat(20), on_host("job").display());
    let name = path.trim_start_matches('/').replace('/', "-");
    let record = json!({
        "apiVersion": "cli.outrigger.dev/v1alpha1", "kind": "NodeUndo", "path": path,
        "temporaryFolder": format!("/a{}{}", "/..".repeat(20), host.path().display()),
        "migration": "cluster", "phase": "Complete", "original": "ours", "replaced": "job", "written": "job",
    });
    machine.write(&format!("etc/kubernetes/outrigger/{name}.json"), &record.to_string());
    let run = machine.run(&["undo"]);
    assert_ne!(run.code, Some(0), "{}", run.seen());
    assert_eq!(fs::read_to_string(on_host("job")).unwrap(), "job");
}

/// Starts the program, and kills it after a part of its usual time. Returns whether it was still running.
fn kill(machine: &Machine, words: &[&str], after: Duration) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_outrigger"))
        .arg("node")
        .args(words)
        .arg("--rootfs")
        .arg(machine.0.path())
        .current_dir(files())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().unwrap().code().is_none()
}

/// The system kills the program at moments that are spread over its run.
#[test]
fn a_killed_program_leaves_the_old_or_the_new_file() {
    const ROUNDS: u32 = 40;

    let machine = Machine::new();
    machine.edited("Prepare");
    let states = [original(MANAGER), machine.text(MANAGER)];
    let edit: &[&str] = &["edit", MIGRATION, "--phase=Prepare"];
    let start = Instant::now();
    machine.undone();
    let usual = start.elapsed();

    let mut killed = 0;
    for round in 0..ROUNDS {
        for words in [edit, &["undo"]] {
            killed += usize::from(kill(&machine, words, usual * round / ROUNDS));
            assert!(states.contains(&machine.text(MANAGER)), "{words:?}, round {round}");
            let manifests = fs::read_dir(machine.path("etc/kubernetes/manifests")).unwrap();
            assert_eq!(manifests.count(), 3, "{words:?}, round {round}");
            assert_eq!(machine.run(words).code, Some(0), "{words:?}, round {round}");
        }
    }
    println!("killed {killed} of {}", 2 * ROUNDS);
    assert!(killed > 0);
    assert_eq!(machine.text(MANAGER), states[0]);
}

/// Each command of the page works, in the order of the page.
#[test]
fn the_commands_of_the_page_are_real() {
    let root = PathBuf::from("..");
    let page = fs::read_to_string(root.join("docs/node.md")).unwrap();
    let machine = Machine::new();
    let migration = fs::read_to_string(files().join("kubeadm-migration.yaml")).unwrap();
    let status = "status:\n  conditions:\n  - {type: Prepared, status: \"True\", reason: R, message: m, lastTransitionTime: \"2026-01-02T03:04:05Z\"}\n";
    machine.write(
        "migration.yaml",
        &format!("{}{status}", migration.replace("phase: Prepare", "phase: Complete")),
    );
    let file = machine.path("migration.yaml");

    let mut commands = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("$ outrigger node ")) {
        let line = line
            .split('#')
            .next()
            .unwrap()
            .replace("migration.yaml", file.to_str().unwrap());
        let run = machine.run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(run.code, Some(0), "{line}: {}", run.seen());
        commands += 1;
    }
    assert_eq!(commands, 6);
    for path in [MANAGER, API_SERVER, EXTRA_FLAGS] {
        assert_eq!(machine.text(path), original(path));
    }
    for option in [
        "--manifests",
        "--state",
        "--rootfs",
        "--component",
        "--phase",
        "--prepared",
        "--dry-run",
        "--back",
        "--output",
        "--force",
    ] {
        let help = [
            machine.run(&["edit", "--help"]).stdout,
            machine.run(&["undo", "--help"]).stdout,
        ]
        .concat();
        assert!(page.contains(option) && help.contains(option), "{option}");
    }
}

/// Published manifests of kubeadm's shape, with the in-tree provider.
#[test]
fn published_manifests_are_edited_as_by_the_webhook_and_restored() {
    let Some(root) = published::find("corpus/kubeadm") else {
        return;
    };
    let mut edited = 0;
    for path in fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&path).unwrap();
        let text = text
            .replace("--leader-elect=false", "--cloud-provider=aws")
            .replace("--allow-privileged=true", "--cloud-provider=aws")
            .replace("<file>", "file");
        let is_pod = parsed(&text).get("kind") == Some(&json!("Pod"));
        if !is_pod || !(text.contains("- kube-controller-manager") || text.contains("- kube-apiserver")) {
            continue;
        }
        for phase in ["Prepare", "Migrate", "Complete"] {
            let machine = Machine::empty();
            machine.write(MANAGER, &text);
            let run = machine.edit(&[&format!("--phase={phase}"), "--prepared"]);
            if run.code == Some(0) {
                edited += usize::from(machine.text(MANAGER) != text);
                let without_status = |value: &Value| value["spec"].clone();
                // The webhook does not change a mirror Pod, of which this one is the manifest.
                let mut own = parsed(&text);
                own["metadata"] = json!({"name": "p", "namespace": "kube-system", "labels": own["metadata"]["labels"]});
                let expected = mutated(&own.to_string(), phase, "kubeadm-migration.yaml");
                let found = parsed(&machine.text(MANAGER));
                assert_eq!(
                    without_status(&found),
                    without_status(&expected),
                    "{}: {phase}",
                    path.display()
                );
            } else {
                assert_eq!(run.code, Some(2), "{}: {}", path.display(), run.seen());
                println!("{}: {}", path.display(), run.seen());
            }
            machine.undone();
            assert_eq!(machine.text(MANAGER), text, "{}: {phase}", path.display());
        }
    }
    println!("{edited} edits of published manifests");
    assert!(edited >= 3, "{edited}");
}

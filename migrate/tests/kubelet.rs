//! `outrigger node edit` on files of the kubelet as operators write them: the flag that takes effect is edited.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use support::Run;
use support::machine::Machine;

const KUBEADM: &str = "var/lib/kubelet/kubeadm-flags.env";
const EXTRA: &str = "etc/default/kubelet";
const RPM: &str = "etc/sysconfig/kubelet";
const UNIT: &str = "usr/lib/systemd/system/kubelet.service";
const DROP_IN: &str = "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf";
const LATER: &str = "etc/systemd/system/kubelet.service.d/20-aws.conf";

/// kubeadm's drop-in after the line `[Service]`.
const STANDARD: &str = "\
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
";

/// A worker with these files. The drop-in of kubeadm is the standard one unless it is among them.
fn worker(files: &[(&str, &str)]) -> Machine {
    let machine = Machine::empty();
    machine.write(
        UNIT,
        "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\n",
    );
    machine.write(DROP_IN, &format!("[Service]\n{STANDARD}"));
    for (path, text) in files {
        machine.write(path, text);
    }
    machine
}

fn migrated(machine: &Machine) -> Run {
    machine.edit(&["--component=kubelet", "--phase=Migrate", "--prepared"])
}

/// Edits the worker, compares the files, runs the command again, and goes back to the original.
fn assert_edit(before: &[(&str, &str)], after: &[(&str, &str)]) {
    let machine = worker(before);
    let run = migrated(&machine);
    assert_eq!(run.code, Some(0), "{before:?}: {}", run.seen());
    for (path, text) in after {
        assert_eq!(machine.text(path), *text, "{path} of {before:?}: {}", run.seen());
    }
    for (path, text) in before
        .iter()
        .filter(|(path, _)| after.iter().all(|(changed, _)| changed != path))
    {
        assert_eq!(machine.text(path), *text, "{path} is not edited: {}", run.seen());
    }

    let again = migrated(&machine);
    assert!(
        !again.stdout.contains("\nchanged ") && !again.stdout.starts_with("changed "),
        "{}",
        again.seen()
    );
    for words in [
        &[
            "edit",
            "--migration=kubeadm-migration.yaml",
            "--component=kubelet",
            "--back",
        ][..],
        &["undo"],
    ] {
        assert_eq!(migrated(&machine).code, Some(0));
        let back = machine.run(words);
        assert_eq!(back.code, Some(0), "{}", back.seen());
        for (path, text) in before {
            assert_eq!(machine.text(path), *text, "{path} after {words:?}");
        }
        for (path, _) in after
            .iter()
            .filter(|(path, _)| before.iter().all(|(existing, _)| existing != path))
        {
            assert!(!machine.path(path).exists(), "{path} after {words:?}");
        }
    }
}

/// Migrate is refused with these texts, Prepare names them, and no file changes.
fn assert_refusal(before: &[(&str, &str)], said: &[&str]) {
    let machine = worker(before);
    let run = migrated(&machine);
    assert_eq!(run.code, Some(2), "{before:?}: {}", run.seen());
    for text in said {
        assert!(run.seen().contains(text), "{text}: {}", run.seen());
    }
    for (path, text) in before {
        assert_eq!(machine.text(path), *text, "{path}");
    }
}

const PLAIN: (&str, &str) = (KUBEADM, "KUBELET_KUBEADM_ARGS=\"--hostname-override=a\"\n");

#[test]
fn every_variable_of_every_file_counts_and_the_last_one_that_takes_effect_is_edited() {
    // Public user data appends the second variable to kubeadm's file.
    assert_edit(
        &[(
            KUBEADM,
            "KUBELET_KUBEADM_ARGS=\"--hostname-override=a\"\nKUBELET_EXTRA_ARGS=\"--cloud-provider=aws\"\n",
        )],
        &[(
            KUBEADM,
            "KUBELET_KUBEADM_ARGS=\"--hostname-override=a\"\nKUBELET_EXTRA_ARGS=\"--cloud-provider=external\"\n",
        )],
    );
    // A later file sets the variable again.
    assert_edit(
        &[
            (
                KUBEADM,
                "KUBELET_KUBEADM_ARGS=\"--a=b\"\nKUBELET_EXTRA_ARGS=\"--cloud-provider=aws\"\n",
            ),
            (EXTRA, "KUBELET_EXTRA_ARGS=--v=2\n"),
        ],
        &[(
            KUBEADM,
            "KUBELET_KUBEADM_ARGS=\"--a=b --cloud-provider=external\"\nKUBELET_EXTRA_ARGS=\"--cloud-provider=aws\"\n",
        )],
    );
    // A variable with a name of the operator's own.
    assert_edit(
        &[
            PLAIN,
            (
                LATER,
                "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $AWS\n",
            ),
            (EXTRA, "AWS='--cloud-provider=aws --cloud-config=/etc/aws.conf'\n"),
        ],
        &[(EXTRA, "AWS='--cloud-provider=external'\n")],
    );
    // A variable that the command line does not name.
    assert_edit(
        &[PLAIN, (EXTRA, "KUBELET_ARGS=--cloud-provider=aws\n")],
        &[(
            KUBEADM,
            "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --cloud-provider=external\"\n",
        )],
    );
    // The last assignment in a file.
    assert_edit(
        &[
            PLAIN,
            (
                EXTRA,
                "KUBELET_EXTRA_ARGS=--v=2\nKUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
            ),
        ],
        &[(
            EXTRA,
            "KUBELET_EXTRA_ARGS=--v=2\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n",
        )],
    );
    // The flag and its value apart.
    assert_edit(
        &[PLAIN, (EXTRA, "KUBELET_EXTRA_ARGS=--cloud-provider aws --v=2\n")],
        &[(EXTRA, "KUBELET_EXTRA_ARGS=--cloud-provider external --v=2\n")],
    );
    // A value that is not edited may have any form.
    assert_edit(
        &[
            PLAIN,
            (EXTRA, "KUBELET_EXTRA_ARGS=\"--node-labels='a=b' \\\n --v=2\"\n"),
        ],
        &[(
            KUBEADM,
            "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --cloud-provider=external\"\n",
        )],
    );
}

/// Kubespray and hyperkube.
#[test]
fn units_of_other_installers_are_read_as_well() {
    let environment = "KUBELET_ADDRESS=\"--node-ip=10.0.0.1\"\nKUBELET_ARGS=\"--config=/etc/kubernetes/kubelet.yaml \\\n\\\n \
                       --node-labels='a=b' \"\nKUBELET_CLOUDPROVIDER=\"--cloud-provider=aws --cloud-config=/etc/kubernetes/cloud_config\"\n";
    let unit = "[Unit]\nAfter=containerd.service\n\n[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\nExecStart=/usr/local/bin/kubelet \\\n\t\t$KUBELET_ADDRESS \\\n\t\t$KUBELET_ARGS \\\n\t\t$KUBELET_NETWORK_PLUGIN \\\n\t\t$KUBELET_CLOUDPROVIDER\nRestart=always\n";
    let external = environment.replace("aws --cloud-config=/etc/kubernetes/cloud_config", "external");
    for unit in [unit.to_owned(), unit.replace("bin/kubelet", "bin/hyperkube kubelet")] {
        assert_edit(
            &[
                ("etc/systemd/system/kubelet.service", &unit),
                (DROP_IN, "[Service]\n"),
                ("etc/kubernetes/kubelet.env", environment),
            ],
            &[("etc/kubernetes/kubelet.env", &external)],
        );
    }
}

#[test]
fn an_environment_file_that_is_a_link_is_read_and_only_refused_if_it_has_the_flag() {
    let drop_in = "[Service]\nEnvironmentFile=-/etc/environment\n";
    let external = "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --cloud-provider=external\"\n";
    for (text, code) in [("HTTP_PROXY=a\n", 0), ("KUBELET_EXTRA_ARGS=--cloud-provider=aws\n", 2)] {
        let machine = worker(&[PLAIN, (LATER, drop_in), ("opt/environment", text)]);
        symlink("/opt/environment", machine.path("etc/environment")).unwrap();
        let run = migrated(&machine);
        assert_eq!(run.code, Some(code), "{}", run.seen());
        assert_eq!(machine.text(KUBEADM) == external, code == 0, "{}", run.seen());
        assert!(
            code == 0
                || run
                    .seen()
                    .contains("/etc/environment is a symbolic link to /opt/environment"),
            "{}",
            run.seen()
        );
    }
}

#[test]
fn drop_ins_apply_in_order_and_masks_count() {
    let external = (
        KUBEADM,
        "KUBELET_KUBEADM_ARGS=\"--hostname-override=a --cloud-provider=external\"\n",
    );
    // The name decides, not the folder, and an empty assignment resets.
    assert_edit(
        &[
            PLAIN,
            (
                "usr/lib/systemd/system/kubelet.service.d/05-old.conf",
                "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
            ),
            (LATER, "[Service]\nEnvironment=\n"),
        ],
        &[external],
    );
    // A file of the same name in /etc replaces the one of the package.
    assert_edit(
        &[
            PLAIN,
            (
                "usr/lib/systemd/system/kubelet.service.d/20-aws.conf",
                "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
            ),
            (LATER, "[Service]\n"),
        ],
        &[external],
    );
    // The list of files is reset, so the file is not the kubelet's.
    assert_edit(
        &[
            PLAIN,
            (
                LATER,
                "[Service]\nEnvironmentFile=\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n",
            ),
            (EXTRA, "KUBELET_EXTRA_ARGS=--cloud-provider=aws\n"),
        ],
        &[external],
    );
    // Another section, a comment and another unit say nothing.
    assert_edit(
        &[
            PLAIN,
            (
                LATER,
                "[Install]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=aws\n[Service]\n# ExecStart=/bin/sh \\\n; x\n",
            ),
            (
                "etc/systemd/system/other.service",
                "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=aws\n",
            ),
        ],
        &[external],
    );
}

#[test]
fn a_link_masks_or_names_a_file_of_the_machine() {
    let machine = worker(&[
        PLAIN,
        (
            "usr/lib/systemd/system/kubelet.service.d/20-aws.conf",
            "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=gce\n",
        ),
    ]);
    fs::create_dir_all(machine.path("etc/systemd/system/kubelet.service.d")).unwrap();
    symlink("/dev/null", machine.path(LATER)).unwrap();
    let run = migrated(&machine);
    assert_eq!(run.code, Some(0), "a link to /dev/null masks: {}", run.seen());
    // A link is one of the machine's file system.
    let machine = worker(&[
        PLAIN,
        (
            "opt/kubelet.conf",
            "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=gce\n",
        ),
    ]);
    fs::create_dir_all(machine.path("etc/systemd/system/kubelet.service.d")).unwrap();
    symlink("/opt/kubelet.conf", machine.path(LATER)).unwrap();
    let run = migrated(&machine);
    assert!(run.seen().contains("is \"gce\", not \"aws\""), "{}", run.seen());
}

/// Published as a drop-in of kubeadm with the in-tree provider.
#[test]
fn flags_of_a_drop_in_are_written_to_the_file_that_takes_precedence() {
    let drop_in = format!(
        "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=aws --node-labels=a=b\" OTHER=1\n{STANDARD}"
    );
    let external = "KUBELET_EXTRA_ARGS=\"--cloud-provider=external --node-labels=a=b\"\n";
    assert_edit(
        &[PLAIN, (DROP_IN, &drop_in), ("etc/default/other", "")],
        &[(EXTRA, external)],
    );
    assert_edit(
        &[PLAIN, (DROP_IN, &drop_in), (EXTRA, "# none yet")],
        &[(EXTRA, &format!("# none yet\n{external}"))],
    );
    let rpm = drop_in.replace("/etc/default", "/etc/sysconfig");
    assert_edit(&[PLAIN, (DROP_IN, &rpm), (RPM, "")], &[(RPM, external)]);

    let machine = worker(&[PLAIN, (DROP_IN, &drop_in), ("etc/default/other", "")]);
    migrated(&machine);
    assert_eq!(
        fs::metadata(machine.path(EXTRA)).unwrap().mode() & 0o7777,
        0o644,
        "as other files of the folder"
    );
    fs::write(machine.path(EXTRA), "KUBELET_EXTRA_ARGS=--v=9\n").unwrap();
    let run = machine.run(&["undo"]);
    assert_eq!(run.code, Some(2), "another program's text stays: {}", run.seen());

    assert_refusal(
        &[PLAIN, (DROP_IN, &drop_in)],
        &["/etc/default/kubelet cannot be created: /etc/default is absent"],
    );
    let without = drop_in.replace("EnvironmentFile=-/etc/default/kubelet\n", "");
    assert_refusal(
        &[PLAIN, (DROP_IN, &without)],
        &[
            "10-kubeadm.conf, line 2 sets flags in KUBELET_EXTRA_ARGS",
            "add EnvironmentFile=",
        ],
    );
    let quoted = drop_in.replace("a=b\"", "'a=b c'\"");
    assert_refusal(
        &[PLAIN, (DROP_IN, &quoted), (EXTRA, "")],
        &["line 2 sets flags with quotes or spaces in KUBELET_EXTRA_ARGS"],
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn what_is_not_certain_is_refused_with_file_variable_and_fix_and_prepare_says_so() {
    let with = |exec: &str| format!("[Service]\nExecStart=\nExecStart={exec}\n");
    for (drop_in, extra, said) in [
        (
            with("/usr/bin/kubelet --cloud-provider=aws $KUBELET_EXTRA_ARGS"),
            "KUBELET_EXTRA_ARGS=--v=2\n",
            &[
                "20-aws.conf, line 3 has --cloud-provider in ExecStart=",
                "move the flag to KUBELET_EXTRA_ARGS in /etc/default/kubelet",
                "systemctl daemon-reload",
            ][..],
        ),
        (
            with("/usr/bin/kubelet --cloud-provider=${CLOUD}"),
            "CLOUD=aws\n",
            &[
                "20-aws.conf, line 3 makes --cloud-provider of the variable CLOUD (/etc/default/kubelet)",
                "move the flag",
            ],
        ),
        (
            with("/usr/bin/kubelet $A $A"),
            "A=--cloud-provider=aws\n",
            &["has the variable A more than once", "keep it once"],
        ),
        (
            with("/bin/sh -c \"exec kubelet $KUBELET_EXTRA_ARGS\""),
            "KUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
            &["does not start the kubelet itself but /bin/sh"],
        ),
        (
            with("/usr/bin/kubelet\nExecStart=/usr/bin/kubelet --v=2"),
            "",
            &[
                "line 4 is not the first ExecStart=",
                "write an empty ExecStart= before it",
            ],
        ),
        (
            "[Service]\nEnvironmentFile=/etc/kubelet/aws.env\n".to_owned(),
            "",
            &["20-aws.conf, line 2 names /etc/kubelet/aws.env, which is absent"],
        ),
        (
            "[Service]\nEnvironmentFile=-/etc/kubelet/*.env\n".to_owned(),
            "",
            &["20-aws.conf, line 2 has a EnvironmentFile= that cannot be read (* in a path)"],
        ),
        (
            "[Service]\nUnsetEnvironment=KUBELET_EXTRA_ARGS\n".to_owned(),
            "",
            &["line 2 removes or passes the variable KUBELET_EXTRA_ARGS"],
        ),
        (
            "[Service]\n".to_owned(),
            "KUBELET_EXTRA_ARGS=\"--cloud-provider=aws --node-labels='a=b'\"\n",
            &["/etc/default/kubelet: KUBELET_EXTRA_ARGS has a quote"],
        ),
        (
            "[Service]\n".to_owned(),
            "# old: \\\nKUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
            &["the comment before KUBELET_EXTRA_ARGS ends in \\", "remove the \\"],
        ),
    ] {
        let files = [PLAIN, (LATER, drop_in.as_str()), (EXTRA, extra)];
        assert_refusal(&files, said);

        let machine = worker(&files);
        machine.write("etc/kubernetes/manifests/other.yaml", "");
        let prepare = machine.edit(&["--phase=Prepare", "--component=kubelet"]);
        let is_named = said.iter().all(|text| prepare.seen().contains(text));
        let is_noted = prepare
            .stdout
            .contains("note: Migrate will refuse the kubelet of this machine: ")
            || prepare.code == Some(1);
        assert!(is_noted && (is_named || prepare.code == Some(1)), "{}", prepare.seen());
    }
}

#[test]
fn a_flag_that_a_later_one_overrides_needs_no_edit() {
    assert_edit(
        &[
            (KUBEADM, "KUBELET_KUBEADM_ARGS=\"--cloud-provider=aws\"\n"),
            (
                LATER,
                "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --cloud-provider=aws $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
            ),
            (EXTRA, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
        ],
        &[],
    );
}

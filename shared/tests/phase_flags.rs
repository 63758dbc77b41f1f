//! The table of flags by phase and version, one test for each row.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::{
    command_line::{CommandLine, List},
    component::{
        Component::{self, CloudControllerManager, KubeApiserver, KubeControllerManager, Kubelet},
        Form,
    },
    migration::Phase::{self, Complete, InTree, Migrate, Prepare},
    phase_flags::{
        Circumstances, NodeIpam, OwnConfiguration, Refusal, changes, controller_manager_row, fatal, gates_warning,
        is_named_by_host, nothing_to_add, other_lease, shortcoming, volumes_warning,
    },
    version::KubernetesVersion,
};
use serde_json::json;

fn at(phase: Phase, minor: u32) -> Circumstances {
    Circumstances {
        phase,
        version: Some(KubernetesVersion::v1(minor)),
        both_in_one_object: false,
        downtime: false,
        own_configuration: OwnConfiguration::None,
        node_ipam: NodeIpam::Stays,
        named_elsewhere: false,
    }
}

/// The flags after the change, as one text.
fn after(component: Component, flags: &str, circumstances: &Circumstances) -> Result<String, Refusal> {
    let tokens: Vec<&str> = std::iter::once(component.as_str())
        .chain(flags.split_whitespace())
        .collect();
    let mut line = CommandLine::of_container(&json!({ "command": tokens })).unwrap();
    for change in changes(component, &line, circumstances)? {
        change.apply(&mut line)?;
    }
    Ok(line.list(List::Command).unwrap()[1..].join(" "))
}

#[test]
fn in_tree_changes_nothing() {
    for component in Component::ALL {
        for minor in [18, 20, 22, 26, 33] {
            let flags = "--cloud-provider=aws --cloud-config=/c --enable-leader-migration";
            assert_eq!(
                after(component, flags, &at(InTree, minor)),
                Ok(flags.to_owned()),
                "{component} 1.{minor}"
            );
        }
    }
}

#[test]
fn prepare_adds_leader_migration_from_1_22_to_1_26() {
    for minor in 22..=26 {
        let flags = after(
            KubeControllerManager,
            "--cloud-provider=aws --cloud-config=/c",
            &at(Prepare, minor),
        );
        assert_eq!(
            flags.unwrap(),
            "--cloud-provider=aws --cloud-config=/c --enable-leader-migration",
            "1.{minor}"
        );
    }
}

#[test]
fn prepare_leaves_a_line_alone_that_has_leader_migration_or_no_provider_of_its_own() {
    for flags in [
        "--cloud-provider=aws --enable-leader-migration=1",
        "--cloud-provider=external",
        "--cloud-provider=",
        "",
    ] {
        assert_eq!(
            after(KubeControllerManager, flags, &at(Prepare, 26)),
            Ok(flags.to_owned()),
            "{flags}"
        );
    }
    let flags = "--cloud-provider=external";
    assert_eq!(
        after(KubeControllerManager, flags, &at(Prepare, 30)),
        Ok(flags.to_owned())
    );
}

#[test]
fn prepare_refuses_versions_without_usable_leader_migration() {
    let prepare = |minor| after(KubeControllerManager, "--cloud-provider=aws", &at(Prepare, minor));
    assert_eq!(prepare(20), Err(Refusal::NoLeaderMigration(KubernetesVersion::v1(20))));
    assert_eq!(prepare(21), Err(Refusal::NeedsGateAndFile));
    assert_eq!(prepare(27), Err(Refusal::ProviderGone(KubernetesVersion::v1(27))));
    let downtime = Circumstances {
        downtime: true,
        ..at(Prepare, 20)
    };
    let flags = "--cloud-provider=aws".to_owned();
    assert_eq!(
        after(KubeControllerManager, &flags, &downtime),
        Ok(flags.clone()),
        "downtime needs none"
    );
}

#[test]
fn prepare_refuses_what_would_not_start_or_not_work() {
    let prepare = |flags: &str, minor| after(KubeControllerManager, flags, &at(Prepare, minor));
    let off = "--cloud-provider=aws --feature-gates=A=true,ControllerManagerLeaderMigration=false";
    assert_eq!(prepare(off, 23), Err(Refusal::GateOff));
    assert_eq!(
        prepare("--cloud-provider=aws --feature-gates=AllBeta=false", 22),
        Err(Refusal::GateOff)
    );
    assert!(
        prepare("--cloud-provider=aws --feature-gates=AllBeta=false", 24).is_ok(),
        "generally available from 1.24"
    );
    assert_eq!(
        prepare("--cloud-provider=aws --leader-elect=false", 26),
        Err(Refusal::LeaderElectionOff)
    );
    assert_eq!(
        prepare("--cloud-provider=gce", 26),
        Err(Refusal::ForeignProvider("gce".to_owned()))
    );
}

#[test]
fn prepare_names_the_file_of_a_configuration_of_the_migrations_own() {
    let prepare = |flags: &str, minor, own_configuration| {
        let circumstances = Circumstances {
            own_configuration,
            ..at(Prepare, minor)
        };
        after(KubeControllerManager, flags, &circumstances)
    };
    let file = "--leader-migration-config=/etc/outrigger/leader-migration.yaml";
    for minor in 22..=26 {
        assert_eq!(
            prepare("--cloud-provider=aws", minor, OwnConfiguration::Brought).unwrap(),
            format!("--cloud-provider=aws --enable-leader-migration {file}")
        );
    }
    let owners = "--cloud-provider=aws --leader-migration-config=/own.yaml --v=2";
    assert_eq!(
        prepare(owners, 26, OwnConfiguration::Brought).unwrap(),
        format!("--cloud-provider=aws {file} --v=2 --enable-leader-migration"),
        "the migration's counts"
    );
    for own in [OwnConfiguration::None, OwnConfiguration::ByHand] {
        assert_eq!(
            prepare(owners, 26, own).unwrap(),
            format!("{owners} --enable-leader-migration"),
            "the owner's counts"
        );
    }
    for without in [
        "--cloud-provider=aws",
        "--cloud-provider=aws --leader-migration-config=",
    ] {
        assert_eq!(
            prepare(without, 26, OwnConfiguration::ByHand),
            Err(Refusal::OwnConfiguration)
        );
    }
    // A refusal of leader migration, or no need of it, takes precedence.
    assert_eq!(
        prepare("--cloud-provider=aws", 21, OwnConfiguration::Brought),
        Err(Refusal::NeedsGateAndFile)
    );
    for own in [OwnConfiguration::Brought, OwnConfiguration::ByHand] {
        assert_eq!(
            prepare("--cloud-provider=external", 26, own).unwrap(),
            "--cloud-provider=external"
        );
    }
}

#[test]
fn no_file_is_brought_to_a_script() {
    let script = "exec kube-controller-manager --cloud-provider=aws";
    let line = CommandLine::of_container(&json!({"command": ["sh", "-c", script]})).unwrap();
    let circumstances = Circumstances {
        own_configuration: OwnConfiguration::Brought,
        ..at(Prepare, 26)
    };
    let Err(Refusal::Script { advice, .. }) = changes(KubeControllerManager, &line, &circumstances) else {
        panic!("a script is never rewritten")
    };
    assert_eq!(advice, Refusal::OwnConfiguration.to_string());
}

#[test]
fn migrate_makes_it_external_and_takes_leader_migration_away() {
    let flags = "--cloud-provider=aws --cloud-config=/c --enable-leader-migration --leader-migration-config=/l --v=2";
    for phase in [Migrate, Complete] {
        for minor in [23, 24, 25, 26, 27, 36] {
            let expected = Ok("--cloud-provider=external --v=2".to_owned());
            assert_eq!(
                after(KubeControllerManager, flags, &at(phase, minor)),
                expected,
                "{phase} 1.{minor}"
            );
        }
    }
}

#[test]
fn migrate_keeps_the_volume_plugin_and_its_configuration_where_ebs_needs_them() {
    let expected = "--cloud-provider=external --cloud-config=/c --external-cloud-volume-plugin=aws";
    for minor in 20..=22 {
        let flags = after(
            KubeControllerManager,
            "--cloud-provider=aws --cloud-config=/c",
            &at(Migrate, minor),
        );
        assert_eq!(flags.unwrap(), expected, "1.{minor}");
    }
    for (gates, minor, needed) in [
        ("CSIMigrationAWS=false", 23, true),
        ("A=true,CSIMigrationAWS=false", 24, true),
        ("AllBeta=false", 24, true),
        ("AllBeta=false,CSIMigrationAWS=true", 24, false),
        ("CSIMigrationAWS=true", 23, false),
        ("CSIMigrationAWS=true", 22, false),
        (
            "CSIMigration=true,CSIMigrationAWS=true,InTreePluginAWSUnregister=true",
            20,
            false,
        ),
        ("AllBeta=true", 21, false),
        ("CSIMigration=false,CSIMigrationAWS=true", 22, true),
        ("CSIMigrationAWS=false", 22, true),
        ("CSIMigration=false", 24, true),
        ("CSIMigrationAWS=false", 25, false),
    ] {
        let flags = format!("--cloud-provider=aws --cloud-config=/c --feature-gates={gates}");
        let result = after(KubeControllerManager, &flags, &at(Migrate, minor)).unwrap();
        assert_eq!(
            result.contains("--external-cloud-volume-plugin=aws"),
            needed,
            "{gates} 1.{minor}"
        );
        assert_eq!(result.contains("--cloud-config=/c"), needed, "{gates} 1.{minor}");
    }
}

#[test]
fn what_never_had_the_in_tree_provider_is_given_nothing() {
    for phase in [Migrate, Complete] {
        for minor in [18, 20, 22, 23, 26, 30] {
            for flags in [
                "--cloud-provider=external",
                "--cloud-provider=external --feature-gates=CSIMigrationAWS=false",
                "--cloud-provider=",
                "--v=2",
            ] {
                let run = after(KubeControllerManager, flags, &at(phase, minor));
                assert_eq!(run, Ok(flags.to_owned()), "{phase} 1.{minor}");
                let line = CommandLine::of_container(
                    &json!({"command": ["kube-controller-manager"], "args": flags.split(' ').collect::<Vec<_>>()}),
                );
                let why = nothing_to_add(&line.unwrap(), &at(phase, minor)).unwrap();
                assert!(why.is_some_and(|why| why.contains("nothing is added")), "{flags}");
            }
        }
    }
    // An external manager's leader migration flags are removed, too; the flags for its volumes stay.
    let run = |flags: &str, minor| after(KubeControllerManager, flags, &at(Migrate, minor)).unwrap();
    assert_eq!(
        run("--cloud-provider=external --enable-leader-migration", 22),
        "--cloud-provider=external"
    );
    let volumes = "--cloud-provider=external --external-cloud-volume-plugin=aws --cloud-config=/c";
    assert_eq!(run(volumes, 22), volumes);
    let foreign = "--cloud-provider=external --external-cloud-volume-plugin=openstack";
    for minor in [22, 26] {
        assert_eq!(
            after(KubeControllerManager, foreign, &at(Migrate, minor)),
            Err(Refusal::ForeignVolumePlugin("openstack".to_owned()))
        );
    }
    // Where another field may name the provider, none in the list is no proof.
    let elsewhere = Circumstances {
        named_elsewhere: true,
        ..at(Migrate, 27)
    };
    assert_eq!(
        after(KubeControllerManager, "--v=2", &elsewhere),
        Ok("--v=2 --cloud-provider=external".to_owned())
    );
}

#[test]
fn node_ipam_leaves_the_old_manager_where_the_list_gives_it_to_the_new_one() {
    let moves = |default_controllers| Circumstances {
        node_ipam: NodeIpam::Moves { default_controllers },
        ..at(Migrate, 26)
    };
    let all = moves(Some("*"));
    let aws = "--cloud-provider=aws";
    let external = "--cloud-provider=external";
    for (flags, expected) in [
        ("", "--controllers=*,-nodeipam"),
        ("--controllers=*,-csrsigning", "--controllers=*,-csrsigning,-nodeipam"),
        ("--controllers=*,nodeipam", "--controllers=*,-nodeipam"),
        ("--controllers=node-ipam-controller,*", "--controllers=*,-nodeipam"),
        (
            "--controllers=* --controllers=-csrsigning,x",
            "--controllers=* --controllers=-csrsigning,x,-nodeipam",
        ),
        ("--controllers=-nodeipam,*", "--controllers=-nodeipam,*"),
        (
            "--controllers=*,-node-ipam-controller",
            "--controllers=*,-node-ipam-controller",
        ),
        ("--controllers=service,route", "--controllers=service,route"),
    ] {
        let run = after(KubeControllerManager, &format!("{aws} {flags}"), &all);
        assert_eq!(run, Ok(format!("{external} {expected}")), "{flags}");
    }
    let kubeadm = moves(Some("*,bootstrapsigner,tokencleaner"));
    assert_eq!(
        after(KubeControllerManager, aws, &kubeadm),
        Ok(format!(
            "{external} --controllers=*,bootstrapsigner,tokencleaner,-nodeipam"
        ))
    );
    let refused = |flags: &str, circumstances: &Circumstances| {
        matches!(
            after(KubeControllerManager, flags, circumstances),
            Err(Refusal::NodeIpam(_))
        )
    };
    assert!(refused(aws, &moves(None)), "what it runs is not known");
    assert!(refused(
        "--cloud-provider=aws --controllers=*,nodeipam --controllers=x",
        &all
    ));
    // One that is external already runs node IPAM only with a range.
    assert_eq!(after(KubeControllerManager, external, &all), Ok(external.to_owned()));
    let allocates = "--cloud-provider=external --allocate-node-cidrs=true";
    assert_eq!(
        after(KubeControllerManager, allocates, &all),
        Ok(format!("{allocates} --controllers=*,-nodeipam"))
    );
    let prepare = Circumstances { phase: Prepare, ..all };
    assert_eq!(
        after(KubeControllerManager, aws, &prepare),
        Ok(format!("{aws} --enable-leader-migration"))
    );
}

#[test]
fn an_external_one_of_unknown_version_lacks_nothing() {
    let unknown = Circumstances {
        version: None,
        ..at(Migrate, 26)
    };
    let run = |flags: &str| after(KubeControllerManager, flags, &unknown);
    assert_eq!(
        run("--cloud-provider=external"),
        Ok("--cloud-provider=external".to_owned())
    );
    assert_eq!(
        run("--cloud-provider=external --enable-leader-migration"),
        Ok("--cloud-provider=external".to_owned())
    );
    for depends in ["--cloud-config=/c", "--external-cloud-volume-plugin=aws"] {
        assert_eq!(
            run(&format!("--cloud-provider=external {depends}")),
            Err(Refusal::VersionUnknown),
            "{depends}"
        );
    }
    let api_server = "--cloud-provider=external";
    assert_eq!(after(KubeApiserver, api_server, &unknown), Ok(api_server.to_owned()));
}

#[test]
fn what_is_older_than_the_table_is_refused_for_every_component() {
    for component in [KubeControllerManager, KubeApiserver, Kubelet] {
        let run = |flags: &str| after(component, flags, &at(Migrate, 18));
        assert_eq!(
            run("--cloud-provider=aws"),
            Err(Refusal::TooOld(KubernetesVersion::v1(18))),
            "{component}"
        );
        let external = "--cloud-provider=external".to_owned();
        assert_eq!(run(&external), Ok(external.clone()), "{component}");
    }
    let prepare = after(KubeControllerManager, "--cloud-provider=aws", &at(Prepare, 4));
    assert_eq!(prepare, Err(Refusal::TooOld(KubernetesVersion::v1(4))));
}

#[test]
fn flags_that_end_the_process_are_named() {
    for (component, minor, flags, expected) in [
        (KubeApiserver, 28, "--cloud-provider=aws", None),
        (
            KubeApiserver,
            29,
            "--cloud-provider=aws",
            Some("remove --cloud-provider=aws "),
        ),
        (KubeApiserver, 32, "--cloud-provider=external --cloud-config=/c", None),
        (
            KubeApiserver,
            33,
            "--cloud-provider=external --cloud-config=/c",
            Some("remove --cloud-provider and --cloud-config "),
        ),
        (KubeControllerManager, 26, "--cloud-provider=aws", None),
        (KubeControllerManager, 27, "--cloud-provider=aws", Some("keep 1.26")),
        (KubeControllerManager, 36, "--cloud-provider=external", None),
        (
            KubeControllerManager,
            27,
            "--cloud-provider=external --external-cloud-volume-plugin=aws",
            Some("remove --external-cloud-volume-plugin "),
        ),
        (Kubelet, 27, "--cloud-provider=aws", Some("keep 1.26")),
        (Kubelet, 34, "--cloud-config=/c", Some("remove --cloud-config ")),
        (Kubelet, 33, "--cloud-config=/c", None),
    ] {
        let line = CommandLine::of_container(&json!({"args": flags.split(' ').collect::<Vec<_>>()})).unwrap();
        let found = fatal(component, &line, Some(KubernetesVersion::v1(minor))).unwrap();
        assert_eq!(found.is_some(), expected.is_some(), "{component} 1.{minor} {flags}");
        assert!(
            found.unwrap_or_default().starts_with(expected.unwrap_or_default()),
            "{flags}"
        );
        assert_eq!(fatal(component, &line, None), Ok(None));
    }
}

#[test]
fn another_main_lease_than_the_migrations_is_named() {
    let told = |flags: &[&str], expected| {
        let line = CommandLine::of_container(&json!({ "args": flags })).unwrap();
        other_lease(KubeControllerManager, &line, expected)
            .unwrap()
            .unwrap_or_default()
    };
    let stock = "kube-controller-manager";
    assert_eq!(told(&[], stock), "");
    assert_eq!(told(&["--leader-elect-resource-name=mine"], "mine"), "");
    assert_eq!(told(&["--leader-elect-resource-namespace=kube-system"], stock), "");
    assert!(told(&["--leader-elect-resource-name", "mine"], stock).contains("kubeControllerManagerLease: mine"));
    assert!(told(&[], "mine").contains("kubeControllerManagerLease: kube-controller-manager"));
    assert!(told(&["--leader-elect-resource-namespace=foo"], stock).contains("--leader-elect-resource-namespace=foo"));
}

#[test]
fn a_script_that_hides_its_flags_is_never_said_to_lack_nothing() {
    for (script, hides) in [
        ("kube-controller-manager $KCM_ARGS", "$KCM_ARGS"),
        (
            "exec kube-controller-manager --cloud-provider=external ${MORE}",
            "${MORE}",
        ),
        ("kube-controller-manager `cat /flags`", "`cat"),
        (". /env; kube-controller-manager", "`.`"),
        ("source /env && kube-controller-manager", "`source`"),
        ("eval kube-controller-manager", "`eval`"),
        (
            "exec hyperkube kube-controller-manager --openshift-config=/c",
            "--openshift-config",
        ),
        (
            "exec kube-controller-manager --config=/c --cloud-provider=external",
            "--config",
        ),
    ] {
        for circumstances in [at(Prepare, 26), at(Migrate, 26)] {
            let line = CommandLine::of_container(&json!({ "command": ["/bin/bash", "-ec", script] })).unwrap();
            let Err(refusal @ Refusal::Hidden { .. }) = changes(KubeControllerManager, &line, &circumstances) else {
                panic!("{script}")
            };
            let message = refusal.to_string();
            assert!(message.starts_with("look at its running process"), "{message}");
            assert!(message.contains(hides), "{message}");
            assert!(!message.contains("nothing seems to be missing"), "{message}");
        }
    }
    let told = |command: &[&str], phase| {
        let line = CommandLine::of_container(&json!({ "command": command })).unwrap();
        changes(KubeControllerManager, &line, &at(phase, 26))
            .unwrap_err()
            .to_string()
    };
    let file = told(&["/bin/sh", "/start.sh", "kube-controller-manager"], Prepare);
    assert!(file.contains("the script /start.sh is not in the object"), "{file}");
    let assumed = told(&["sh", "-c", "kube-controller-manager $ARGS"], Prepare);
    assert!(
        assumed.contains("if that has --cloud-provider=aws, write --enable-leader-migration=true"),
        "{assumed}"
    );
    let of_openshift = told(
        &[
            "sh",
            "-c",
            "while ss $(cat /f); do :; done; exec hyperkube kube-controller-manager --openshift-config=/c",
        ],
        Migrate,
    );
    assert!(
        of_openshift.contains("--openshift-config names a file with flags"),
        "{of_openshift}"
    );
    let with_file = told(
        &["hyperkube", "kube-controller-manager", "--openshift-config=/c"],
        Migrate,
    );
    assert!(
        with_file.contains("--openshift-config names a file with flags"),
        "{with_file}"
    );
}

#[test]
fn migrate_removes_a_volume_plugin_that_is_not_needed() {
    let flags = "--cloud-provider=external --external-cloud-volume-plugin=aws --cloud-config=/c";
    for minor in [27, 32] {
        let result = after(KubeControllerManager, flags, &at(Migrate, minor));
        assert_eq!(result.unwrap(), "--cloud-provider=external", "1.{minor}");
    }
    let in_tree = flags.replace("provider=external", "provider=aws");
    for minor in [25, 26] {
        let result = after(KubeControllerManager, &in_tree, &at(Migrate, minor));
        assert_eq!(result.unwrap(), "--cloud-provider=external", "1.{minor}");
    }
}

#[test]
fn a_volume_plugin_of_an_external_manager_stays_up_to_1_26_and_is_named() {
    let flags = "--cloud-provider=external --external-cloud-volume-plugin=aws --cloud-config=/c";
    let command: Vec<&str> = ["kube-controller-manager"]
        .into_iter()
        .chain(flags.split(' '))
        .collect();
    let line = CommandLine::of_container(&json!({ "command": command })).unwrap();
    let warned = |phase, minor| volumes_warning(KubeControllerManager, &line, &at(phase, minor)).unwrap();
    for minor in [22, 25, 26] {
        let result = after(KubeControllerManager, flags, &at(Migrate, minor));
        assert_eq!(result.unwrap(), flags, "1.{minor}");
        for phase in [Prepare, Migrate, Complete] {
            assert!(
                warned(phase, minor).is_some_and(|text| text.contains("from 1.27 on it is an error")),
                "1.{minor}"
            );
        }
        assert_eq!(warned(InTree, minor), None, "1.{minor}");
    }
    assert_eq!(warned(Migrate, 27), None);
}

#[test]
fn volumes_of_another_cloud_are_refused_in_prepare_as_in_migrate() {
    let flags = "--cloud-provider=external --external-cloud-volume-plugin=openstack";
    for phase in [Prepare, Migrate, Complete] {
        let result = after(KubeControllerManager, flags, &at(phase, 24));
        assert_eq!(
            result,
            Err(Refusal::ForeignVolumePlugin("openstack".to_owned())),
            "{phase}"
        );
    }
}

#[test]
fn migrate_refuses_other_clouds_and_versions_outside_of_the_table() {
    let foreign = after(KubeControllerManager, "--cloud-provider=azure", &at(Migrate, 26));
    assert_eq!(foreign, Err(Refusal::ForeignProvider("azure".to_owned())));
    let old = after(KubeControllerManager, "--cloud-provider=aws", &at(Migrate, 19));
    assert_eq!(old, Err(Refusal::TooOld(KubernetesVersion::v1(19))));
}

#[test]
fn the_api_server_is_untouched_before_migrate() {
    for minor in [22, 26, 29, 33] {
        let flags = "--cloud-provider=aws --cloud-config=/c".to_owned();
        assert_eq!(
            after(KubeApiserver, &flags, &at(Prepare, minor)),
            Ok(flags.clone()),
            "1.{minor}"
        );
    }
}

#[test]
fn the_api_servers_flags_follow_its_version_and_are_never_added() {
    for (minor, flags, expected) in [
        (
            22,
            "--cloud-provider=aws --cloud-config=/c",
            "--cloud-provider=external --cloud-config=/c",
        ),
        (28, "--cloud-provider=aws", "--cloud-provider=external"),
        (28, "--cloud-provider=", "--cloud-provider="),
        (28, "--v=2", "--v=2"),
        (29, "--cloud-provider=aws --cloud-config=/c", "--cloud-config=/c"),
        (32, "--cloud-provider=external --v=2", "--v=2"),
        (33, "--cloud-provider=external --cloud-config=/c --v=2", "--v=2"),
        (36, "--v=2", "--v=2"),
    ] {
        for phase in [Migrate, Complete] {
            assert_eq!(
                after(KubeApiserver, flags, &at(phase, minor)),
                Ok(expected.to_owned()),
                "{phase} 1.{minor} {flags}"
            );
        }
    }
}

#[test]
fn beside_a_controller_manager_the_api_server_moves_in_complete() {
    let together = |phase| Circumstances {
        both_in_one_object: true,
        ..at(phase, 26)
    };
    for (minor, gone) in [(28, false), (29, true), (33, true)] {
        let now = Circumstances {
            version: Some(KubernetesVersion::v1(minor)),
            ..together(Migrate)
        };
        let after = after(KubeApiserver, "--cloud-provider=external", &now).unwrap();
        assert_eq!(
            after.is_empty(),
            gone,
            "1.{minor} ends with the flag, so it does not wait"
        );
    }
    let flags = "--cloud-provider=aws";
    assert_eq!(after(KubeApiserver, flags, &together(Migrate)), Ok(flags.to_owned()));
    assert_eq!(
        after(KubeApiserver, flags, &together(Complete)),
        Ok("--cloud-provider=external".to_owned())
    );
}

#[test]
fn an_in_tree_controller_manager_becomes_external_only_on_evidence_or_with_downtime() {
    let in_tree = Form::InTree { leader_migration: true };
    for phase in [Migrate, Complete] {
        assert_eq!(controller_manager_row(phase, &in_tree, false, false, false), Prepare);
        assert_eq!(controller_manager_row(phase, &in_tree, false, true, false), phase);
        assert_eq!(controller_manager_row(phase, &in_tree, false, false, true), phase);
        assert_eq!(
            controller_manager_row(phase, &in_tree, true, false, false),
            phase,
            "no way back for lack of evidence"
        );
        for other in [
            Form::External {
                leader_migration: false,
            },
            Form::NoProvider {
                leader_migration: false,
            },
        ] {
            assert_eq!(controller_manager_row(phase, &other, false, false, false), phase);
        }
    }
    for phase in [InTree, Prepare] {
        assert_eq!(controller_manager_row(phase, &in_tree, false, false, false), phase);
    }
}

#[test]
fn without_a_version_nothing_is_changed_that_depends_on_it() {
    let unknown = |phase| Circumstances {
        version: None,
        ..at(phase, 26)
    };
    for (component, phase) in [
        (KubeControllerManager, Prepare),
        (KubeControllerManager, Migrate),
        (KubeApiserver, Migrate),
    ] {
        assert_eq!(
            after(component, "--cloud-provider=aws", &unknown(phase)),
            Err(Refusal::VersionUnknown),
            "{component}"
        );
    }
    assert_eq!(after(KubeApiserver, "--v=2", &unknown(Migrate)), Ok("--v=2".to_owned()));
    assert_eq!(
        after(KubeControllerManager, "--v=2", &unknown(Prepare)),
        Ok("--v=2".to_owned())
    );
}

#[test]
fn a_kubelet_becomes_external_from_migrate_on_in_every_version() {
    let unknown = |phase| Circumstances {
        version: None,
        ..at(phase, 26)
    };
    for (before, external) in [
        (
            "--cloud-provider=aws --cloud-config=/c --v=2",
            "--cloud-provider=external --v=2",
        ),
        ("--v=2", "--v=2 --cloud-provider=external"),
        ("--cloud-provider=", "--cloud-provider=external"),
        ("--cloud-provider=external", "--cloud-provider=external"),
        (
            "--cloud-provider external --cloud-config /c",
            "--cloud-provider external",
        ),
    ] {
        for phase in [InTree, Prepare] {
            assert_eq!(
                after(Kubelet, before, &unknown(phase)),
                Ok(before.to_owned()),
                "{phase}"
            );
        }
        for phase in [Migrate, Complete] {
            assert_eq!(
                after(Kubelet, before, &unknown(phase)),
                Ok(external.to_owned()),
                "{phase}"
            );
        }
    }
    let error = after(Kubelet, "--cloud-provider=gce", &unknown(Migrate)).unwrap_err();
    assert_eq!(error, Refusal::ForeignProvider("gce".to_owned()));
}

/// The flags of a list that has no program, after the change to Migrate.
fn list_after(component: Component, mut line: CommandLine) -> Vec<String> {
    for change in changes(component, &line, &at(Migrate, 26)).unwrap() {
        change.apply(&mut line).unwrap();
    }
    line.items().unwrap().to_vec()
}

#[test]
fn the_rows_apply_to_provisioners_lists_of_flags() {
    let own = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let config = CommandLine::bare(own(&["cloud-provider=aws", "enable-leader-migration", "v=2"])).unwrap();
    assert_eq!(
        list_after(KubeControllerManager, config),
        ["cloud-provider=external", "v=2"]
    );
    let extra = CommandLine::dashed(own(&["--cloud-provider=aws", "--cloud-config=/c"])).unwrap();
    assert_eq!(list_after(KubeControllerManager, extra), ["--cloud-provider=external"]);
    let pair = ("cloud-provider".to_owned(), "aws".to_owned());
    let pairs = CommandLine::of_pairs(vec![pair]).unwrap();
    assert_eq!(list_after(KubeApiserver, pairs), ["cloud-provider=external"]);
}

/// The warnings or the refusal for the owner of a script.
fn script(component: Component, script: &str, circumstances: &Circumstances) -> Result<Vec<String>, String> {
    let line = CommandLine::of_container(&json!({ "command": ["sh", "-c", script] })).unwrap();
    let changes = changes(component, &line, circumstances).map_err(|refusal| refusal.to_string())?;
    Ok(changes.iter().map(ToString::to_string).collect())
}

#[test]
fn the_owner_of_a_shell_script_is_told_what_it_has_and_what_is_missing() {
    let told =
        |component, text: &str, circumstances: &Circumstances| script(component, text, circumstances).unwrap_err();
    let in_tree = "exec kube-controller-manager --cloud-provider=aws --cloud-config=/c";
    let message = told(KubeControllerManager, in_tree, &at(Prepare, 26));
    assert!(
        message.contains("it has --cloud-provider=aws, --cloud-config=/c; there, write --enable-leader-migration=true"),
        "{message}"
    );
    let message = told(KubeControllerManager, in_tree, &at(Migrate, 26));
    assert!(
        message.contains("write --cloud-provider=external, remove --cloud-config"),
        "{message}"
    );
    let message = told(KubeControllerManager, in_tree, &at(Prepare, 27));
    assert!(message.contains("1.26 is the last version"), "{message}");
    let message = told(
        KubeControllerManager,
        "kube-controller-manager --cloud-provider=external",
        &at(Migrate, 26),
    );
    assert!(message.contains("nothing seems to be missing"), "{message}");
    let message = told(Kubelet, "kubelet --v=2", &at(Migrate, 26));
    assert!(
        message.contains("it has none of the flags that a migration changes; there, write --cloud-provider=external"),
        "{message}"
    );
    let message = told(KubeApiserver, "kube-apiserver --cloud-provider=aws", &at(Complete, 30));
    assert!(message.contains("remove --cloud-provider"), "{message}");
    for (component, circumstances) in [
        (KubeControllerManager, at(InTree, 26)),
        (KubeApiserver, at(Prepare, 26)),
        (KubeApiserver, at(Complete, 26)),
        (Kubelet, at(Prepare, 26)),
    ] {
        assert_eq!(
            script(component, "exec x", &circumstances),
            Ok(Vec::new()),
            "{component}"
        );
    }
}

#[test]
fn the_owner_of_what_cannot_be_read_is_not_told_to_skip_the_evidence() {
    let unreadable = Form::Unreadable {
        reason: "a script".to_owned(),
    };
    let row = |prepared, downtime| controller_manager_row(Migrate, &unreadable, false, prepared, downtime);
    assert_eq!(row(false, false), Prepare);
    assert_eq!(row(true, false), Migrate);
    assert_eq!(row(false, true), Migrate);
}

#[test]
fn a_cloud_controller_manager_gets_leader_migration_while_the_old_one_may_run() {
    let aws = "--cloud-provider=aws";
    for phase in [Prepare, Migrate] {
        let run = |flags: &str, minor| after(CloudControllerManager, flags, &at(phase, minor));
        let guarded = format!("{aws} --enable-leader-migration");
        assert_eq!(run(aws, 22), Ok(guarded.clone()));
        assert_eq!(run(aws, 36), Ok(guarded));
        let off = "--cloud-provider=aws --enable-leader-migration=false";
        assert_eq!(
            run(off, 26),
            Ok("--cloud-provider=aws --enable-leader-migration=true".to_owned())
        );
        for untouched in [
            "--cloud-provider=aws --enable-leader-migration=1",
            "--migration=prod",
            "--cloud-provider=gce",
        ] {
            assert_eq!(run(untouched, 26), Ok(untouched.to_owned()));
        }
        assert!(matches!(run(aws, 21), Err(Refusal::ManagerVersion(_))));
        assert_eq!(run("--leader-elect=false", 26), Err(Refusal::LeaderElectionOff));
        let unknown = Circumstances {
            version: None,
            ..at(phase, 26)
        };
        assert!(matches!(
            after(CloudControllerManager, aws, &unknown),
            Err(Refusal::ManagerVersion(_))
        ));
        let downtime = Circumstances {
            downtime: true,
            ..at(phase, 26)
        };
        assert_eq!(after(CloudControllerManager, aws, &downtime), Ok(aws.to_owned()));
    }
    for phase in [InTree, Complete] {
        assert_eq!(
            after(CloudControllerManager, aws, &at(phase, 21)),
            Ok(aws.to_owned()),
            "{phase}"
        );
    }
}

#[test]
fn a_manager_whose_default_list_misses_its_names_is_warned_about() {
    let warned = |component, flags: &str, circumstances: &Circumstances| {
        let line = CommandLine::of_container(&json!({ "args": flags.split_whitespace().collect::<Vec<_>>() })).unwrap();
        shortcoming(component, &line, circumstances).unwrap().is_some()
    };
    let ccm = CloudControllerManager;
    assert!(warned(ccm, "--cloud-provider=aws", &at(Prepare, 28)));
    assert!(warned(ccm, "--enable-leader-migration", &at(Migrate, 36)));
    for (component, flags, circumstances) in [
        (ccm, "", at(Prepare, 27)),
        (ccm, "", at(Complete, 28)),
        (ccm, "", at(InTree, 28)),
        (ccm, "--leader-migration-config=/c", at(Prepare, 28)),
        (ccm, "--migration=prod", at(Prepare, 28)),
        (
            ccm,
            "",
            Circumstances {
                downtime: true,
                ..at(Prepare, 28)
            },
        ),
        (KubeControllerManager, "", at(Prepare, 28)),
    ] {
        assert!(!warned(component, flags, &circumstances), "{component} {flags}");
    }
}

#[test]
fn a_kubelet_that_mounts_in_tree_volumes_keeps_its_provider() {
    let aws = "--cloud-provider=aws";
    let with = |gates: &str| format!("{aws} --feature-gates={gates}");
    for (flags, minor, is_refused) in [
        (aws.to_owned(), 22, true),
        (with("CSIMigrationAWS=true"), 22, false),
        (with("AllBeta=true"), 21, false),
        (with("AllBeta=true,CSIMigrationAWS=false"), 21, true),
        (aws.to_owned(), 23, false),
        (with("CSIMigrationAWS=false"), 24, true),
        (with("AllBeta=false"), 23, true),
        (with("CSIMigrationAWS=false"), 25, false),
        ("--cloud-provider=external".to_owned(), 22, false),
        (String::new(), 22, false),
    ] {
        let result = after(Kubelet, &flags, &at(Migrate, minor));
        let refused = matches!(result, Err(Refusal::EbsNeedsProvider(_)));
        assert_eq!(refused, is_refused, "{flags} 1.{minor}");
        assert_eq!(after(Kubelet, &flags, &at(Prepare, minor)), Ok(flags.clone()));
    }
}

#[test]
fn what_a_component_comes_back_with_is_told() {
    let line = |flags: &str| {
        CommandLine::of_container(&json!({ "args": flags.split_whitespace().collect::<Vec<_>>() })).unwrap()
    };
    let by_host = |flags: &str, phase| is_named_by_host(Kubelet, &line(flags), &at(phase, 26)).unwrap();
    assert!(by_host("--cloud-provider=aws", Prepare));
    assert!(by_host("--hostname-override=", Migrate));
    for (flags, phase) in [
        ("--cloud-provider=aws", InTree),
        ("--cloud-provider=external", Migrate),
        ("--cloud-provider=aws --hostname-override=$(NODE)", Migrate),
        ("--cloud-provider=aws --hostname-override=a", Migrate),
    ] {
        assert!(!by_host(flags, phase), "{flags} {phase}");
    }
    assert!(!is_named_by_host(KubeApiserver, &line(""), &at(Migrate, 26)).unwrap());
    let gates = |flags: &str, minor| gates_warning(&line(flags), &at(Prepare, minor)).unwrap().is_some();
    assert!(gates("--feature-gates=A=true,CSIMigrationAWS=true", 27));
    assert!(gates("--feature-gates=ControllerManagerLeaderMigration=true", 31));
    assert!(gates("--feature-gates=CSIMigrationAWS=false", 25));
    assert!(!gates("--feature-gates=CSIMigrationAWS=true", 26));
    assert!(!gates("--feature-gates=Other=true", 31));
}

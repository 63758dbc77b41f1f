//! Reading leader migration configurations, and what they mean for each side.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::{
    controller::{
        Controller::{self, Node, NodeIpam, NodeLifecycle, Route, Service, Tagging},
        Party::{self, CloudControllerManager, KubeControllerManager},
    },
    leader_migration::{
        ConfigError, ControllerLeader, LeaderMigrationConfiguration,
        Placement::{self, Main, Migrated, NotHere},
        Problem, TooOld, Warning,
    },
    version::KubernetesVersion,
};

const GROUP: &str = "controllermanager.config.k8s.io";

fn problems(text: &str) -> Vec<Problem> {
    LeaderMigrationConfiguration::from_text("test.yaml", text)
        .unwrap_err()
        .problems()
        .to_vec()
}

fn valid(version: &str, body: &str) -> LeaderMigrationConfiguration {
    let text = format!("apiVersion: {GROUP}/{version}\nkind: LeaderMigrationConfiguration\n{body}");
    LeaderMigrationConfiguration::from_text("test.yaml", &text)
        .unwrap()
        .config
}

fn with(entries: &[(&str, &str)]) -> LeaderMigrationConfiguration {
    let entry = |(name, component): &(&str, &str)| ControllerLeader {
        name: (*name).to_owned(),
        component: (*component).to_owned(),
    };
    LeaderMigrationConfiguration {
        leader_name: "m".to_owned(),
        controller_leaders: entries.iter().map(entry).collect(),
    }
}

#[test]
fn each_api_version_reads_to_the_same_configuration() {
    let entries = "controllerLeaders:\n- {name: service, component: \"*\"}\n";
    let expected = with(&[("service", "*")]);
    assert_eq!(valid("v1", &format!("leaderName: m\n{entries}")), expected);
    for old in ["v1beta1", "v1alpha1"] {
        assert_eq!(
            valid(old, &format!("leaderName: m\nresourceLock: leases\n{entries}")),
            expected,
            "{old}"
        );
    }
    let json = r#"{"apiVersion":"controllermanager.config.k8s.io/v1","kind":"LeaderMigrationConfiguration",
        "leaderName":"m","controllerLeaders":[{"name":"service","component":"*"}]}"#;
    assert_eq!(
        LeaderMigrationConfiguration::from_text("test.json", json)
            .unwrap()
            .config,
        expected
    );
}

#[test]
fn an_empty_or_missing_list_is_valid() {
    assert_eq!(valid("v1", "leaderName: m\n"), with(&[]));
    assert_eq!(valid("v1", "leaderName: m\ncontrollerLeaders: []\n"), with(&[]));
}

#[test]
fn an_unreadable_file_is_an_error_that_names_it() {
    let error = outrigger_shared::leader_migration::file::read("does/not/exist.yaml".as_ref()).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }));
    assert!(error.to_string().contains("does/not/exist.yaml"), "{error}");
}

#[test]
fn an_empty_file_is_an_error() {
    for text in ["", "  \n", "# only a comment\n", "null"] {
        assert_eq!(problems(text), [Problem::Empty], "{text:?}");
    }
}

#[test]
fn a_missing_or_foreign_kind_is_an_error() {
    let missing = problems(&format!("apiVersion: {GROUP}/v1\nleaderName: m\n"));
    assert_eq!(missing, [Problem::Kind { kind: String::new() }]);
    let other = problems(&format!("apiVersion: {GROUP}/v1\nkind: Deployment\nleaderName: m\n"));
    assert_eq!(
        other,
        [Problem::Kind {
            kind: "Deployment".to_owned()
        }]
    );
}

#[test]
fn an_unknown_api_version_is_an_error() {
    for version in [
        "",
        "v1",
        "controllermanager.config.k8s.io/v2",
        "apps/v1",
        "controllermanager.config.k8s.iov1",
    ] {
        let text = format!("apiVersion: {version:?}\nkind: LeaderMigrationConfiguration\nleaderName: m\n");
        assert_eq!(
            problems(&text),
            [Problem::ApiVersion {
                version: version.to_owned()
            }]
        );
    }
}

#[test]
fn an_empty_leader_name_is_an_error() {
    for line in ["leaderName: \"\"\n", "leaderName:\n", ""] {
        let text = format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\n{line}");
        let found = problems(&text);
        assert!(
            matches!(&found[..], [Problem::Required { field, .. }] if field == "leaderName"),
            "{found:?}"
        );
    }
}

#[test]
fn a_lock_other_than_leases_is_an_error_in_the_versions_that_have_one() {
    for version in ["v1beta1", "v1alpha1"] {
        let head = format!("apiVersion: {GROUP}/{version}\nkind: LeaderMigrationConfiguration\nleaderName: m\n");
        for lock in ["endpoints", "configmaps", "Leases"] {
            let found = problems(&format!("{head}resourceLock: {lock}\n"));
            assert_eq!(found, [Problem::ResourceLock { value: lock.to_owned() }]);
        }
        for line in ["", "resourceLock: \"\"\n"] {
            let found = problems(&format!("{head}{line}"));
            assert!(
                matches!(&found[..], [Problem::Required { field, .. }] if field == "resourceLock"),
                "{found:?}"
            );
        }
    }
}

#[test]
fn v1_refuses_the_lock_field_whatever_its_value() {
    let head = format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n");
    for lock in ["leases", "endpoints"] {
        assert_eq!(
            problems(&format!("{head}resourceLock: {lock}\n")),
            [Problem::ResourceLockInV1]
        );
    }
}

#[test]
fn an_empty_name_or_component_is_an_error_that_names_the_entry() {
    let head =
        format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\ncontrollerLeaders:\n");
    let found = problems(&format!(
        "{head}- {{name: service, component: \"*\"}}\n- {{name: \"\", component: \"\"}}\n"
    ));
    let fields: Vec<&str> = found
        .iter()
        .map(|problem| match problem {
            Problem::Required { field, .. } => field.as_str(),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(fields, ["controllerLeaders[1].name", "controllerLeaders[1].component"]);
}

#[test]
fn unknown_fields_are_errors_at_every_level() {
    let head = format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n");
    let found = problems(&format!(
        "{head}leadername: x\ncontrollerLeaders:\n- {{name: a, component: b, lease: c}}\n"
    ));
    let unknown = |field: &str| Problem::UnknownField {
        field: field.to_owned(),
    };
    assert_eq!(found, [unknown("controllerLeaders[0].lease"), unknown("leadername")]);
}

#[test]
fn a_key_that_is_there_twice_is_an_error() {
    let text = format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\nleaderName: a\nleaderName: b\n");
    let found = problems(&text);
    assert!(
        matches!(&found[..], [Problem::Syntax { message, .. }] if message.contains("leaderName")),
        "{found:?}"
    );
}

#[test]
fn a_bare_wildcard_is_an_error_that_says_to_quote_it() {
    let text = format!(
        "apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\nleaderName: m\n\
         controllerLeaders:\n- name: service\n  component: *\n"
    );
    let error = LeaderMigrationConfiguration::from_text("test.yaml", &text)
        .unwrap_err()
        .to_string();
    assert!(error.contains("component: \"*\""), "{error}");
}

#[test]
fn values_of_the_wrong_type_are_errors_that_name_field_and_type() {
    let head = format!("apiVersion: {GROUP}/v1\nkind: LeaderMigrationConfiguration\n");
    let found = problems(&format!("{head}leaderName: [m]\ncontrollerLeaders: {{service: x}}\n"));
    let wrong = |field: &str, expected, found| Problem::Type {
        field: field.to_owned(),
        expected,
        found,
    };
    assert_eq!(
        found,
        [
            wrong("leaderName", "a string", "a list"),
            wrong("controllerLeaders", "a list", "a mapping")
        ]
    );
    assert_eq!(problems("- a\n"), [wrong("the document", "a mapping", "a list")]);
}

#[test]
fn all_faults_are_reported_together_with_the_source() {
    let text = format!(
        "apiVersion: {GROUP}/v1beta1\nkind: Deployment\nresourceLock: endpoints\nextra: 1\n\
         controllerLeaders:\n- {{name: service}}\n"
    );
    let error = LeaderMigrationConfiguration::from_text("migration.yaml", &text).unwrap_err();
    assert_eq!(error.problems().len(), 5, "{error}");
    let message = error.to_string();
    for part in [
        "migration.yaml",
        "Deployment",
        "endpoints",
        "leaderName",
        "controllerLeaders[0].component",
        "extra",
    ] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

#[test]
fn the_built_in_configuration_shares_exactly_the_three_controllers_that_both_sides_have() {
    let config = LeaderMigrationConfiguration::default();
    assert_eq!(config.leader_name, "cloud-provider-extraction-migration");
    assert_eq!(config.warnings(), []);
    for party in [KubeControllerManager, CloudControllerManager] {
        for controller in [Service, Route, NodeLifecycle] {
            assert_eq!(config.placement(controller, party), Migrated, "{controller} in {party}");
        }
    }
    assert_eq!(config.placement(Node, CloudControllerManager), Main);
    assert_eq!(config.placement(NodeIpam, KubeControllerManager), Main);
}

#[test]
fn placement_follows_the_component_of_the_entry() {
    let table: [(Party, &str, Placement); 6] = [
        (CloudControllerManager, "*", Migrated),
        (CloudControllerManager, "cloud-controller-manager", Migrated),
        (CloudControllerManager, "kube-controller-manager", NotHere),
        (KubeControllerManager, "*", Migrated),
        (KubeControllerManager, "kube-controller-manager", Migrated),
        (KubeControllerManager, "cloud-controller-manager", NotHere),
    ];
    for (party, component, expected) in table {
        let placement = with(&[("service", component)]).placement(Service, party);
        assert_eq!(placement, expected, "{component} in {party}");
    }
}

#[test]
fn every_spelling_of_a_controller_matches_its_entry() {
    for controller in Controller::ALL.into_iter().filter(|controller| *controller != Node) {
        for name in controller.aliases() {
            let config = with(&[(name, "kube-controller-manager")]);
            assert_eq!(config.placement(controller, CloudControllerManager), NotHere, "{name}");
        }
    }
}

#[test]
fn the_last_entry_counts_even_under_another_spelling() {
    let config = with(&[("service", "kube-controller-manager"), ("service-lb-controller", "*")]);
    assert_eq!(config.placement(Service, CloudControllerManager), Migrated);
    let config = with(&[
        ("service-lb-controller", "*"),
        ("service-controller", "kube-controller-manager"),
    ]);
    assert_eq!(config.placement(Service, CloudControllerManager), NotHere);
}

#[test]
fn a_shared_controller_that_is_left_out_is_guarded_anyway_with_a_warning() {
    let config = with(&[("service", "*"), ("no-such-controller", "*")]);
    for controller in [Route, NodeLifecycle] {
        assert_eq!(
            config.placement(controller, CloudControllerManager),
            Migrated,
            "{controller}"
        );
        assert_eq!(
            config.placement(controller, KubeControllerManager),
            Main,
            "the old manager follows upstream"
        );
    }
    assert_eq!(
        config.warnings(),
        [
            Warning::UnknownController {
                index: 1,
                name: "no-such-controller".to_owned()
            },
            Warning::Omitted { controller: Route },
            Warning::Omitted {
                controller: NodeLifecycle
            },
        ]
    );
}

#[test]
fn a_component_that_is_neither_manager_is_warned_about() {
    let config = with(&[
        ("service", "kube-controller-manger"),
        ("route", "*"),
        ("cloud-node-lifecycle", "*"),
    ]);
    let component = "kube-controller-manger".to_owned();
    assert_eq!(config.warnings(), [Warning::UnknownComponent { index: 0, component }]);
}

#[test]
fn node_ipam_runs_only_if_listed_and_the_node_controller_always() {
    assert_eq!(with(&[]).placement(NodeIpam, CloudControllerManager), NotHere);
    assert_eq!(
        with(&[("nodeipam", "*")]).placement(NodeIpam, CloudControllerManager),
        Migrated
    );
    for config in [with(&[]), with(&[("cloud-node", "kube-controller-manager")])] {
        assert_eq!(config.placement(Node, CloudControllerManager), Main);
        assert_eq!(config.placement(Node, KubeControllerManager), NotHere);
        assert_eq!(config.placement(Tagging, CloudControllerManager), Main);
    }
}

fn file(config: &LeaderMigrationConfiguration, minor: u32) -> outrigger_shared::leader_migration::File {
    config
        .for_kube_controller_manager(KubernetesVersion::v1(minor))
        .unwrap()
}

#[test]
fn a_file_is_read_back_as_what_it_was_made_of_in_every_version() {
    let config = with(&[
        ("service", "*"),
        ("route", "*"),
        ("cloud-node-lifecycle", "kube-controller-manager"),
    ]);
    for minor in 20..=27 {
        let file = file(&config, minor);
        for text in [file.yaml(), file.one_line()] {
            let loaded = LeaderMigrationConfiguration::from_text("file", &text).unwrap();
            assert_eq!(loaded.config, config, "1.{minor}\n{text}");
            assert_eq!(loaded.warnings, [], "1.{minor}\n{text}");
            let version = match minor {
                ..=21 => "/v1alpha1",
                22 | 23 => "/v1beta1",
                _ => "/v1",
            };
            let ends = [format!("{version}\n"), format!("{version}\"")];
            assert!(ends.iter().any(|end| text.contains(end)), "1.{minor}\n{text}");
            assert_eq!(text.contains("resourceLock"), minor < 24, "1.{minor}\n{text}");
        }
    }
    assert_eq!(
        config.for_kube_controller_manager(KubernetesVersion::v1(19)),
        Err(TooOld(KubernetesVersion::v1(19)))
    );
}

#[test]
fn a_file_has_the_names_of_its_version() {
    let names = |config: &LeaderMigrationConfiguration, minor| -> Vec<String> {
        let text = file(config, minor).yaml();
        let read = LeaderMigrationConfiguration::from_text("file", &text).unwrap().config;
        read.controller_leaders.into_iter().map(|entry| entry.name).collect()
    };
    // Every spelling of another release, and what this process never had.
    let config = with(&[
        ("node-route-controller", "*"),
        ("service-controller", "*"),
        ("cloud-node-controller", "*"),
        ("tagging", "*"),
        ("cloud-node-lifecycle-controller", "*"),
        ("node-ipam-controller", "*"),
        ("vendor-thing", "*"),
    ]);
    let short = ["route", "service", "cloud-node-lifecycle", "nodeipam", "vendor-thing"];
    for minor in 22..=27 {
        assert_eq!(names(&config, minor), short, "1.{minor}");
    }
    let long = [
        "node-route-controller",
        "service-lb-controller",
        "cloud-node-lifecycle-controller",
        "node-ipam-controller",
        "vendor-thing",
    ];
    assert_eq!(names(&config, 28), long);
}

#[test]
fn a_file_lists_every_shared_controller_once_and_the_last_entry_counts() {
    for minor in 22..=26 {
        let read = |config: &LeaderMigrationConfiguration| {
            let text = file(config, minor).yaml();
            LeaderMigrationConfiguration::from_text("file", &text).unwrap().config
        };
        assert_eq!(
            read(&with(&[])),
            with(&[("service", "*"), ("route", "*"), ("cloud-node-lifecycle", "*")]),
            "1.{minor}: one that is left out would run under the main lease"
        );
        let twice = with(&[
            ("service", "kube-controller-manager"),
            ("x", "a"),
            ("service-lb-controller", "*"),
            ("x", "b"),
        ]);
        let expected = [
            ("service", "*"),
            ("x", "b"),
            ("route", "*"),
            ("cloud-node-lifecycle", "*"),
        ];
        assert_eq!(read(&twice), with(&expected), "1.{minor}");
        // The process's own table gives each of them to the migration lease.
        for shared in Controller::SHARED {
            assert_eq!(read(&twice).placement(shared, KubeControllerManager), Migrated);
        }
    }
}

#[test]
fn no_text_breaks_out_of_its_quotes() {
    for text in [
        "*", "a\"b", "a\\b", "a\nb: c", "\u{2028}", "- {x: y}", "#", "\u{7}", "null", "1",
    ] {
        let mut config = with(&[
            (text, text),
            ("service", "*"),
            ("route", "*"),
            ("cloud-node-lifecycle", "*"),
        ]);
        config.leader_name = text.to_owned();
        let read = LeaderMigrationConfiguration::from_text("file", &file(&config, 26).yaml()).unwrap();
        assert_eq!(read.config, config, "{text:?}");
    }
}

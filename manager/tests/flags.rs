//! The command line: the incumbent's own, read as Go reads it.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::time::Duration;

use outrigger_aws::limit::Share;
use outrigger_manager::args::table::{self, Effect, Kind};
use outrigger_manager::args::{self, MigrationCluster, Options, Request};
use outrigger_shared::controller::Controller;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn run(line: &str) -> Options {
    match args::parse(&words(&format!("--cloud-provider=aws {line}"))) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn errors(line: &str) -> Vec<String> {
    match args::parse(&words(&format!("--cloud-provider=aws {line}"))) {
        Err(bad) => bad.0,
        other => panic!("{line}: {other:?}"),
    }
}

fn error(line: &str) -> String {
    let all = errors(line);
    assert_eq!(all.len(), 1, "{line}: {all:?}");
    all[0].clone()
}

#[test]
fn the_incumbents_usual_command_line_starts_us() {
    let options = run(
        "--cloud-config=/etc/aws.conf --kubeconfig /etc/kubeconfig --leader-elect=true --enable-leader-migration \
         --secure-port=10258 --configure-cloud-routes=false --cluster-name prod -v 2 --use-service-account-credentials=false \
         --allocate-node-cidrs=false --leader-elect-lease-duration 30s --leader-elect-renew-deadline=20s",
    );
    assert_eq!(options.general.cloud_config.as_deref(), Some("/etc/aws.conf".as_ref()));
    assert_eq!(options.general.kubeconfig.as_deref(), Some("/etc/kubeconfig".as_ref()));
    assert_eq!(options.general.cluster_name, "prod");
    assert!(options.leader_migration_effective());
    assert_eq!(options.leader_election.lease_duration, Duration::from_secs(30));
    assert_eq!(options.logs.verbosity, 2);
    assert_eq!(options.warnings, Vec::<String>::new());
}

#[test]
fn an_empty_command_line_has_the_incumbents_defaults() {
    let options = run("");
    assert_eq!(options.general.cluster_name, "kubernetes");
    assert_eq!(options.leader_election.lease_duration, Duration::from_secs(15));
    assert_eq!(options.leader_election.renew_deadline, Duration::from_secs(10));
    assert_eq!(options.leader_election.retry_period, Duration::from_secs(2));
    assert_eq!(options.leader_election.resource_name, "cloud-controller-manager");
    assert_eq!(options.leader_election.resource_namespace, "kube-system");
    assert_eq!(options.nodes.node_monitor_period, Duration::from_secs(5));
    assert_eq!(options.nodes.node_status_update_frequency, Duration::from_secs(300));
    assert_eq!(options.serving.secure_port, 10258);
    assert_eq!(
        options.authentication.always_allow_paths,
        ["/healthz", "/readyz", "/livez"]
    );
    assert!(!options.explicitly_set("leader-elect"));
}

/// Every flag parses in both of its spellings, with a value of its type.
#[test]
fn every_flag_of_the_table_parses() {
    for flag in table::all().filter(|flag| !matches!(flag.name, "help" | "version" | "cloud-provider")) {
        let value = match flag.kind {
            Kind::Bool => flag.default.to_owned(),
            Kind::Int { .. } | Kind::Float | Kind::Duration if !flag.default.is_empty() => flag.default.to_owned(),
            Kind::Map => "a=b".into(),
            Kind::BoolMap => "AllAlpha=false".into(),
            _ => match flag.name {
                "tls-cert-file" | "tls-private-key-file" | "migration-kubeconfig" => continue,
                "cluster-cidr" => "10.0.0.0/16".into(),
                "authorization-always-allow-paths" => "/x".into(),
                "tls-min-version" => "VersionTLS13".into(),
                "tls-cipher-suites" => "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into(),
                "tls-curve-preferences" => "29,23".into(),
                "tls-sni-cert-key" => "a.crt,a.key:example.com".into(),
                _ if flag.default.is_empty() => "x".to_owned(),
                _ => flag.default.to_owned(),
            },
        };
        let options = run(&format!("--{}={value}", flag.name));
        assert!(options.explicitly_set(flag.name), "{}", flag.name);
        if flag.kind != Kind::Bool {
            assert!(
                run(&format!("--{} {value}", flag.name)).explicitly_set(flag.name),
                "{}",
                flag.name
            );
        }
    }
}

#[test]
fn a_flag_without_effect_says_so_when_set_and_only_then() {
    for flag in table::all().filter(|flag| flag.effect != Effect::Works) {
        let value = match flag.kind {
            Kind::Bool => if flag.default == "true" { "true" } else { "false" }.to_owned(),
            Kind::Map => "a=b".into(),
            Kind::BoolMap => "AllAlpha=true".into(),
            Kind::Int { .. } | Kind::Duration | Kind::Float => flag.default.to_owned(),
            _ if flag.name == "cluster-cidr" => "10.0.0.0/16".into(),
            _ => "x".to_owned(),
        };
        let quiet = matches!(
            flag.effect,
            Effect::NotYet { silent, .. } | Effect::ByDesign { silent, .. } if silent == value
        );
        let about = |options: Options| {
            options
                .warnings
                .iter()
                .filter(|w| w.starts_with(&format!("--{} ", flag.name)))
                .count()
        };
        assert_eq!(
            about(run(&format!("--{}={value}", flag.name))),
            usize::from(!quiet),
            "{}",
            flag.name
        );
        assert_eq!(about(run("")), 0, "{}", flag.name);
    }
}

#[test]
fn a_boolean_never_eats_the_next_argument() {
    assert_eq!(
        error("--leader-elect false"),
        r#"unexpected argument "false": this program takes flags only"#
    );
    assert!(!run("--leader-elect=false").leader_election.leader_elect);
    assert!(!run("--leader-elect=F").leader_election.leader_elect);
    assert!(error("--leader-elect=no").contains("expected true or false"));
}

#[test]
fn lists_append_and_the_first_occurrence_replaces_the_default() {
    let options = run("--authorization-always-allow-paths=/a,/b --authorization-always-allow-paths /c");
    assert_eq!(options.authentication.always_allow_paths, ["/a", "/b", "/c"]);
    let options = run("--resources=instance,x --resources=y --tags=a=1,b=2 --tags c=3");
    assert_eq!(options.tagging.resources, ["instance,x", "y"]);
    assert_eq!(options.tagging.tags.len(), 3);
}

#[test]
fn the_last_of_a_repeated_single_value_wins() {
    assert_eq!(run("--cluster-name=a --cluster-name=b").general.cluster_name, "b");
    let ranges = run("--cluster-cidr=10.0.0.0/16,fd00::/56 --cluster-cidr=10.1.0.0/16").routes;
    assert_eq!(ranges.cluster_cidr, ["10.1.0.0/16"]);
}

#[test]
fn the_short_form_takes_its_value_in_three_ways() {
    for line in ["-v 4", "-v=4", "-v4", "--v=4", "--v 4"] {
        assert_eq!(run(line).logs.verbosity, 4, "{line}");
    }
}

#[test]
fn unknown_flags_are_errors_that_name_the_nearest() {
    assert_eq!(
        error("--clod-config=x"),
        "unknown flag: --clod-config; did you mean --cloud-config?"
    );
    assert_eq!(
        error("--leader_elect=true"),
        "unknown flag: --leader_elect; did you mean --leader-elect?"
    );
    assert_eq!(error("--pineapple"), "unknown flag: --pineapple");
    assert!(error("-x").contains("unknown shorthand flag"));
    assert!(error("-kubeconfig=/x").ends_with("did you mean --kubeconfig?"));
}

#[test]
fn positional_arguments_and_missing_values_are_errors() {
    assert!(error("start").contains("unexpected argument"));
    assert!(error("-- x").contains("unexpected argument"));
    assert_eq!(error("--cluster-name"), "flag needs an argument: --cluster-name");
}

#[test]
fn flags_that_upstream_removed_are_accepted_with_a_warning() {
    let options = run("--logtostderr=true --port=0 --alsologtostderr");
    let removed = options
        .warnings
        .iter()
        .filter(|warning| warning.contains("removed upstream"))
        .count();
    assert_eq!(removed, 3);
}

#[test]
fn everything_wrong_is_reported_together() {
    let all = errors(
        "--nope --secure-port=70000 --node-monitor-period=5 --leader-elect-lease-duration=5s --controllers=nonsense",
    );
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn the_times_of_leader_election_are_checked_as_client_go_does() {
    assert!(error("--leader-elect-lease-duration=10s").contains("must be greater than --leader-elect-renew-deadline"));
    assert!(error("--leader-elect-retry-period=9s").contains("1.2"));
    assert!(error("--leader-elect-lease-duration=15500ms").contains("whole seconds"));
    run("--leader-elect=false --leader-elect-lease-duration=1s");
}

#[test]
fn only_leases_and_only_aws() {
    assert!(error("--leader-elect-resource-lock=endpoints").contains("only leases"));
    let wrong = args::parse(&words("--cloud-provider=gce")).unwrap_err();
    assert!(wrong.to_string().contains("aws only"));
    let none = args::parse(&[]).unwrap_err();
    assert!(none.to_string().contains("cannot be empty"));
}

#[test]
fn worker_counts_of_zero_are_refused() {
    for flag in [
        "concurrent-node-syncs",
        "concurrent-service-syncs",
        "concurrent-node-lifecycle-syncs",
    ] {
        assert!(error(&format!("--{flag}=0")).contains("at least 1"), "{flag}");
    }
    run("--concurrent-node-status-updates=0");
}

#[test]
fn eight_services_are_worked_on_at_once_unless_the_flag_is_set() {
    assert_eq!(run("").service_sync_concurrency(), 8);
    assert_eq!(run("--concurrent-service-syncs=1").service_sync_concurrency(), 1);
}

#[test]
fn controllers_are_chosen_by_name_or_alias_and_the_first_match_decides() {
    let on = |line: &str, controller| run(line).general.controllers.enabled(controller);
    assert!(on("", Controller::Service));
    assert!(!on("", Controller::Tagging));
    assert!(!on("--controllers=-service,*", Controller::Service));
    assert!(on("--controllers=-service,*", Controller::Node));
    assert!(!on("--controllers=*,-service-lb-controller", Controller::Service));
    assert!(on(
        "--controllers=*,tagging --tags=a=b --resources=instance",
        Controller::Tagging
    ));
    assert!(!on("--controllers=service", Controller::Node));
    assert!(on("--controllers=service,-service", Controller::Service));
    assert!(error("--controllers=*,-servce").contains("did you mean service?"));
    assert!(error("--controllers=-*").contains("not in the list"));
}

#[test]
fn feature_gates_are_known_names_with_booleans() {
    assert!(run("--feature-gates=AllAlpha=true,AllBeta=false").general.feature_gates["AllAlpha"]);
    assert!(error("--feature-gates=Nonsense=true").contains("unrecognized feature gate"));
    assert!(error("--feature-gates=AllAlpha=maybe").contains("expected true or false"));
}

#[test]
fn a_migration_implies_leader_migration_and_refuses_its_denial() {
    assert!(run("--migration=prod").leader_migration_effective());
    assert!(
        error("--migration=prod --enable-leader-migration=false")
            .contains("--enable-leader-migration=false contradicts")
    );
    assert!(error("--migration=prod --leader-elect=false").contains("--leader-elect=false contradicts"));
    assert!(error("--migration-kubeconfig=/x").contains("needs --migration"));
}

#[test]
fn the_migration_is_in_another_cluster_by_a_file_or_by_the_pods_own_token() {
    let cluster = |line: &str| run(line).migration.cluster;
    assert_eq!(cluster("--migration=prod"), None);
    assert_eq!(
        cluster("--migration=prod --migration-kubeconfig=/m/kubeconfig"),
        Some(MigrationCluster::Kubeconfig("/m/kubeconfig".into()))
    );
    assert_eq!(
        cluster("--migration=prod --migration-kubeconfig=in-cluster --kubeconfig=/t/kubeconfig"),
        Some(MigrationCluster::InCluster)
    );
    let alone = error("--migration=prod --migration-kubeconfig=in-cluster");
    assert!(
        alone.contains("--migration-kubeconfig=in-cluster needs --kubeconfig"),
        "{alone}"
    );
}

#[test]
fn a_migration_file_without_leader_migration_is_ignored_with_a_warning() {
    let options = run("--leader-migration-config=/x");
    assert!(
        options
            .warnings
            .iter()
            .any(|warning| warning.contains("--leader-migration-config is ignored"))
    );
}

#[test]
fn an_empty_cluster_cidr_keeps_the_process_alive_and_warns() {
    assert!(
        run("")
            .warnings
            .iter()
            .any(|warning| warning.contains("route controller stays off"))
    );
    assert!(error("--cluster-cidr=10.0.0.0").contains("not a CIDR"));
    assert!(error("--cluster-cidr=10.0.0.0/16,10.1.0.0/16").contains("different families"));
}

#[test]
fn help_and_version_win_over_errors() {
    for line in ["--help --nope", "-h"] {
        assert!(matches!(args::parse(&words(line)), Ok(Request::Print(text)) if text.contains("Secure serving flags")));
    }
    assert!(
        matches!(args::parse(&words("--version")), Ok(Request::Print(text)) if text.starts_with("outrigger-manager v"))
    );
}

#[test]
fn names_in_the_table_are_unique() {
    let mut names: Vec<_> = table::all().map(|flag| flag.name).collect();
    names.sort_unstable();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn the_document_of_flags_equals_the_table() {
    let path = "../docs/flags.md";
    let wanted = args::help::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/flags.md is out of date: run UPDATE_DOCS=1 cargo test -p outrigger-manager --test flags"
    );
}

#[test]
fn the_limits_of_node_deletions_have_defaults_and_bounds() {
    let breaker = run("").nodes.deletion_breaker;
    assert_eq!((breaker.minimum, breaker.percent), (3, 10));
    assert_eq!(
        (breaker.window, breaker.hold),
        (Duration::from_secs(300), Duration::from_secs(900))
    );
    let limits: Vec<usize> = [0, 39, 40, 1000].map(|nodes| breaker.limit(nodes)).into();
    assert_eq!(limits, [3, 3, 4, 100]);

    let off = run("--node-deletion-breaker-percent=100 --node-deletion-breaker-hold=0s")
        .nodes
        .deletion_breaker;
    assert_eq!((off.limit(1000), off.hold), (1000, Duration::ZERO));
    assert_eq!(
        error("--node-deletion-breaker-window=59s"),
        "--node-deletion-breaker-window=59s must be at least 1m0s"
    );
    for wrong in ["percent=101", "percent=-1", "minimum=0", "hold=-1s"] {
        let flag = format!("--node-deletion-breaker-{wrong}");
        let name = flag.split('=').next().unwrap();
        assert!(error(&flag).contains(name), "{flag}: {}", error(&flag));
    }
}

#[test]
fn the_share_of_the_budget_is_a_part() {
    let share = |line: &str| run(line).general.aws_api_share;
    assert_eq!(Some(share("")), Share::between(0.25, 0.9));
    assert_eq!(share(""), Share::default());
    assert_eq!(Some(share("--aws-api-budget-share=1")), Share::fixed(1.0));
    let line = "--aws-api-budget-share=0.1 --aws-api-budget-share-limit=0.2";
    assert_eq!(Some(share(line)), Share::between(0.1, 0.2));
    for flag in ["--aws-api-budget-share", "--aws-api-budget-share-limit"] {
        for wrong in ["0", "0.0001", "1.01", "200"] {
            let said = error(&format!("{flag}={wrong}"));
            assert!(
                said.contains(&format!("{flag}={wrong}")) && said.contains("at most 1"),
                "{said}"
            );
        }
    }
}

const IPAM: &str = "--controllers=*,node-ipam-controller --allocate-node-cidrs --configure-cloud-routes=false";

#[test]
fn node_ipam_has_the_ranges_that_kube_controller_manager_would_have() {
    for (line, wanted) in [
        ("--cluster-cidr=10.244.3.0/16", "10.244.0.0/16 /24"),
        (
            "--cluster-cidr=10.244.0.0/16 --node-cidr-mask-size=26",
            "10.244.0.0/16 /26",
        ),
        (
            "--cluster-cidr=10.244.0.0/16 --node-cidr-mask-size-ipv4=25",
            "10.244.0.0/16 /25",
        ),
        ("--cluster-cidr=fd00:1::/48", "fd00:1::/48 /64"),
        (
            "--cluster-cidr=fd00:1::/56,10.244.0.0/16",
            "fd00:1::/56 /64, 10.244.0.0/16 /24",
        ),
        (
            "--cluster-cidr=10.0.0.0/8,fd00::/56 --node-cidr-mask-size-ipv4=20 --node-cidr-mask-size-ipv6=72",
            "10.0.0.0/8 /20, fd00::/56 /72",
        ),
    ] {
        let options = run(&format!("{IPAM} {line}"));
        assert!(options.allocates_node_cidrs());
        let ranges = options.node_ranges().unwrap().cluster;
        let texts: Vec<String> = ranges
            .iter()
            .map(|(cluster, prefix)| format!("{cluster} /{prefix}"))
            .collect();
        assert_eq!(texts.join(", "), wanted, "{line}");
    }
    let excluded = run(&format!(
        "{IPAM} --cluster-cidr=10.0.0.0/8 --service-cluster-ip-range=10.96.0.0/12,fd01::/108"
    ));
    assert_eq!(excluded.node_ranges().unwrap().excluded.len(), 2);
}

#[test]
fn flags_of_node_ipam_that_contradict_are_errors_that_name_them() {
    for (line, words) in [
        ("", "--cluster-cidr is empty"),
        (
            "--cluster-cidr=10.0.0.0/16,fd00::/56 --node-cidr-mask-size=24",
            "--node-cidr-mask-size cannot",
        ),
        (
            "--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24",
            "mutually exclusive",
        ),
        (
            "--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64",
            "has no IPv6 CIDR",
        ),
        (
            "--cluster-cidr=fd00::/56 --node-cidr-mask-size-ipv4=24",
            "has no IPv4 CIDR",
        ),
        (
            "--cluster-cidr=10.0.0.0/25",
            "larger than --cluster-cidr=10.0.0.0/25; use at least 25",
        ),
        ("--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=33", "32 bits"),
        (
            "--cluster-cidr=fd00::/40",
            "--node-cidr-mask-size-ipv6=64: too many ranges",
        ),
        (
            "--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.96.0.0",
            "\"10.96.0.0\" is not a CIDR",
        ),
        (
            "--cluster-cidr=10.0.0.0/16 --cidr-allocator-type=CloudAllocator",
            "only RangeAllocator",
        ),
    ] {
        let message = error(&format!("{IPAM} {line}"));
        assert!(message.contains(words), "{line}: {message}");
        run(&format!(
            "--allocate-node-cidrs {}",
            line.replace("--cluster-cidr=10.0.0.0/25", "")
        ));
    }
}

#[test]
fn node_ipam_runs_only_where_it_is_both_named_and_allowed() {
    for (line, warned) in [
        ("--allocate-node-cidrs", "--allocate-node-cidrs alone starts nothing"),
        ("--controllers=*,nodeipam", "stays off without --allocate-node-cidrs"),
        ("--node-cidr-mask-size=24", "--node-cidr-mask-size has no effect"),
    ] {
        let options = run(&format!("{line} --cluster-cidr=10.0.0.0/16"));
        assert!(!options.allocates_node_cidrs(), "{line}");
        assert!(
            options.warnings.iter().any(|warning| warning.contains(warned)),
            "{line}"
        );
    }
}

#[test]
fn the_tagging_controllers_flags_are_checked_where_it_runs() {
    let long = "x".repeat(300);
    for (line, words) in [
        ("--resources=instance".to_owned(), "--tags is empty"),
        ("--tags=a=b".to_owned(), "--resources is empty"),
        (
            "--tags=a=b --resources=volume".to_owned(),
            "--resources=volume: only instance",
        ),
        ("--tags=aws:a=b --resources=instance".to_owned(), "which AWS reserves"),
        (
            format!("--tags=a={long} --resources=instance"),
            "at most 256 characters",
        ),
        (format!("--tags={long}=a --resources=instance"), "1 to 128 characters"),
        (
            "--tags=a=b --resources=instance --tag-resync-period=10ms".to_owned(),
            "--tag-resync-period=10ms must be 0",
        ),
    ] {
        let message = error(&format!("--controllers=*,tagging-controller {line}"));
        assert!(message.contains(words), "{line}: {message}");
        let warnings = run(&line).warnings;
        assert!(
            warnings
                .iter()
                .any(|warning| warning.contains("the tagging controller does not run"))
        );
    }
    let many: Vec<String> = (0..51).map(|number| format!("k{number}=v")).collect();
    let message = error(&format!(
        "--controllers=tagging --resources=instance --tags={}",
        many.join(",")
    ));
    assert!(message.contains("at most 50 tags, got 51"), "{message}");
}

//! From a command line to [`Options`], with every rule that spans a flag's value.

use std::collections::BTreeMap;
use std::path::PathBuf;

use outrigger_aws::limit::Share;

use super::controllers::Selection;
use super::options::{
    ANY_ADDRESS, Authentication, DeletionBreaker, General, LeaderElection, Logs, Migration, MigrationCluster, Nodes,
    Options, RequestHeader, Routes, Services, Serving, Sweep, Tagging, TlsVersion,
};
use super::parse::CommandLine;
use super::{configz, node_ipam, tls, validate, value};
use crate::suggest;

/// Feature gates that a cloud controller manager of some supported release knows; most are those of its HTTPS server.
const FEATURE_GATES: [&str; 47] = [
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServerWebhookAuthenticationToken",
    "APIServingWithRoutine",
    "AllAlpha",
    "AllBeta",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "CloudDualStackNodeIPs",
    "ComponentFlagz",
    "ComponentSLIs",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConsistentListFromCacheSkipTimeoutFallback",
    "ConstrainedImpersonation",
    "ContextualLogging",
    "ControllerManagerLeaderMigration",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection",
    "DeclarativeValidationBeta",
    "DetectCacheInconsistency",
    "EtcdRangeStream",
    "ExcludeAdmissionWebhookVirtualResources",
    "IPv6DualStack",
    "ListFromCacheSnapshot",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "ManifestBasedAdmissionControlConfig",
    "NativeHistograms",
    "OpenAPIEnums",
    "RemoteRequestHeaderUID",
    "ShardedListAndWatch",
    "SizeBasedListCostEstimate",
    "StableLoadBalancerNodeSet",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "WatchList",
    "WatchListCompression",
    "WebhookRoundTripLoadBalancing",
];

/// Builds the options; what is wrong is left in the command line's errors.
pub(super) fn options(line: &mut CommandLine) -> Options {
    let mut options = Options {
        general: general(line),
        leader_election: leader_election(line),
        migration: migration(line),
        nodes: nodes(line),
        services: services(line),
        routes: routes(line),
        node_ipam: node_ipam::read(line),
        tagging: tagging(line),
        serving: serving(line),
        authentication: authentication(line),
        logs: logs(line),
        profiling: line.bool("profiling"),
        configz: configz::document(line),
        warnings: Vec::new(),
        set: line.set().clone(),
    };

    for problem in validate::problems(&options) {
        line.fail(problem);
    }

    if options.migration.name.is_some() {
        options.migration.enable_leader_migration = true;
    }

    options.warnings = validate::warnings(&options, line);

    options
}

fn path(line: &mut CommandLine, name: &'static str) -> Option<PathBuf> {
    line.some_text(name).map(PathBuf::from)
}

fn general(line: &mut CommandLine) -> General {
    match line.text("cloud-provider").as_str() {
        "aws" => {}
        "" => line.fail("--cloud-provider cannot be empty; set --cloud-provider=aws".into()),
        other => line.fail(format!("--cloud-provider={other}: this manager serves aws only")),
    }

    let names = line.list("controllers");
    let controllers = Selection::read(&names).unwrap_or_else(|problems| {
        problems.into_iter().for_each(|problem| line.fail(problem));
        Selection::none()
    });
    General {
        aws_keys_file: path(line, "aws-keys-file"),
        cloud_config: path(line, "cloud-config"),
        cloud_config_strict: line.bool("cloud-config-strict"),
        cluster_name: line.text("cluster-name"),
        cluster_id: line.some_text("cluster-id"),
        region: line.some_text("region"),
        vpc_id: line.some_text("vpc-id"),
        aws_api_share: aws_api_share(line),
        controllers,
        kubeconfig: path(line, "kubeconfig"),
        master: line.some_text("master"),
        feature_gates: feature_gates(line),
        kube_api_qps: line.float("kube-api-qps"),
        kube_api_burst: line.int("kube-api-burst"),
        min_resync_period: line.duration("min-resync-period"),
        controller_start_interval: line.duration("controller-start-interval"),
        use_service_account_credentials: line.bool("use-service-account-credentials"),
    }
}

fn aws_api_share(line: &mut CommandLine) -> Share {
    let mut part = |flag: &'static str, example: &str| {
        let part = line.float(flag);
        if Share::fixed(part).is_none() {
            line.fail(format!(
                "--{flag}={part}: expected a share of at least 0.001 and at most 1, such as {example}"
            ));
        }
        part
    };
    let (least, most) = (
        part("aws-api-budget-share", "0.25"),
        part("aws-api-budget-share-limit", "0.9"),
    );

    Share::between(least, most).unwrap_or_default()
}

fn feature_gates(line: &mut CommandLine) -> BTreeMap<String, bool> {
    let mut gates = BTreeMap::new();
    for (name, text) in line.map("feature-gates") {
        if !FEATURE_GATES.contains(&name.as_str()) {
            let hint = suggest::hint(&name, FEATURE_GATES, "");
            line.fail(format!("--feature-gates: unrecognized feature gate {name:?}{hint}"));
        }
        gates.insert(name, value::boolean(text.trim()).unwrap_or_default());
    }

    gates
}

fn leader_election(line: &mut CommandLine) -> LeaderElection {
    let lock = line.text("leader-elect-resource-lock");
    if lock != "leases" {
        line.fail(format!("--leader-elect-resource-lock={lock}: only leases is supported"));
    }

    LeaderElection {
        leader_elect: line.bool("leader-elect"),
        lease_duration: line.duration("leader-elect-lease-duration"),
        renew_deadline: line.duration("leader-elect-renew-deadline"),
        retry_period: line.duration("leader-elect-retry-period"),
        resource_name: line.text("leader-elect-resource-name"),
        resource_namespace: line.text("leader-elect-resource-namespace"),
    }
}

fn migration(line: &mut CommandLine) -> Migration {
    Migration {
        enable_leader_migration: line.bool("enable-leader-migration"),
        leader_migration_config: path(line, "leader-migration-config"),
        name: line.some_text("migration"),
        cluster: line.some_text("migration-kubeconfig").map(|text| match text.as_str() {
            "in-cluster" => MigrationCluster::InCluster,
            path => MigrationCluster::Kubeconfig(path.into()),
        }),
    }
}

fn nodes(line: &mut CommandLine) -> Nodes {
    Nodes {
        concurrent_node_syncs: line.int("concurrent-node-syncs"),
        concurrent_node_status_updates: line.int("concurrent-node-status-updates"),
        node_status_update_frequency: line.duration("node-status-update-frequency"),
        node_monitor_period: line.duration("node-monitor-period"),
        deletion_breaker: DeletionBreaker {
            minimum: line.int("node-deletion-breaker-minimum"),
            percent: line.int("node-deletion-breaker-percent"),
            window: line.duration("node-deletion-breaker-window"),
            hold: line.duration("node-deletion-breaker-hold"),
        },
    }
}

fn services(line: &mut CommandLine) -> Services {
    let sweep = match line.text("load-balancer-sweep").as_str() {
        "off" => Sweep::Off,
        "report" => Sweep::Report,
        "delete" => Sweep::Delete,
        other => {
            line.fail(format!("--load-balancer-sweep={other}: expected off, report or delete"));
            Sweep::Off
        }
    };
    Services {
        concurrent_service_syncs: line.int("concurrent-service-syncs"),
        resync_period: Some(line.duration("load-balancer-resync-period")).filter(|period| !period.is_zero()),
        sweep,
        sweep_period: line.duration("load-balancer-sweep-period"),
        security_group_rules: line.int("security-group-rules-quota"),
        security_group_rules_set: line.set().contains("security-group-rules-quota"),
    }
}

fn routes(line: &mut CommandLine) -> Routes {
    Routes {
        configure_cloud_routes: line.bool("configure-cloud-routes"),
        allocate_node_cidrs: line.bool("allocate-node-cidrs"),
        cluster_cidr: cluster_cidrs(&line.text("cluster-cidr")),
        reconciliation_period: line.duration("route-reconciliation-period"),
    }
}

/// The incumbent's flag is a text, so that the last of several wins as a whole.
fn cluster_cidrs(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(str::to_owned).collect()
}

fn tagging(line: &mut CommandLine) -> Tagging {
    Tagging {
        tags: line.map("tags"),
        resources: line.list("resources"),
        rate_limit: line.float("tagging-controller-rate-limit"),
        burst_limit: line.int("tagging-controller-burst-limit"),
        concurrent_node_syncs: line.int("tagging-controller-concurrent-node-syncs"),
        batching: line.bool("tagging-controller-enable-batching"),
        resync_period: Some(line.duration("tag-resync-period")).filter(|period| !period.is_zero()),
    }
}

fn serving(line: &mut CommandLine) -> Serving {
    let address = line.text("bind-address");
    let bind_address = address.parse().unwrap_or_else(|_| {
        line.fail(format!(
            "--bind-address={address}: expected an IP address such as 0.0.0.0 or ::"
        ));
        ANY_ADDRESS
    });
    let tls_min_version = match line.text("tls-min-version").as_str() {
        "" | "VersionTLS12" => TlsVersion::Tls12,
        "VersionTLS13" => TlsVersion::Tls13,
        other => {
            line.fail(format!(
                "--tls-min-version={other}: expected VersionTLS12 or VersionTLS13"
            ));
            TlsVersion::Tls12
        }
    };

    Serving {
        bind_address,
        secure_port: line.int("secure-port"),
        tls_cert_file: path(line, "tls-cert-file"),
        tls_private_key_file: path(line, "tls-private-key-file"),
        cert_dir: path(line, "cert-dir"),
        tls_min_version,
        http2: !line.bool("disable-http2-serving"),
        http2_max_streams: Some(line.int("http2-max-streams-per-connection")).filter(|streams| *streams != 0),
        share_port: line.bool("permit-port-sharing"),
        tls_cipher_suites: each(line, "tls-cipher-suites", tls::cipher_suite),
        tls_curves: each(line, "tls-curve-preferences", tls::curve),
        tls_sni_certificates: each(line, "tls-sni-cert-key", tls::named_certificate),
    }
}

/// The values of a list flag, read one by one; what is wrong is named with its flag.
fn each<T>(line: &mut CommandLine, name: &'static str, read: fn(&str) -> Result<T, String>) -> Vec<T> {
    let texts = line.list(name);
    let read = texts.iter().filter_map(|text| match read(text.trim()) {
        Ok(value) => Some(value),
        Err(problem) => {
            line.fail(format!("--{name}={text}: {problem}"));
            None
        }
    });

    read.collect()
}

fn authentication(line: &mut CommandLine) -> Authentication {
    Authentication {
        always_allow_paths: line.list("authorization-always-allow-paths"),
        token_kubeconfig: path(line, "authentication-kubeconfig"),
        access_kubeconfig: path(line, "authorization-kubeconfig"),
        token_cache_ttl: line.duration("authentication-token-webhook-cache-ttl"),
        authorized_cache_ttl: line.duration("authorization-webhook-cache-authorized-ttl"),
        unauthorized_cache_ttl: line.duration("authorization-webhook-cache-unauthorized-ttl"),
        client_ca_file: path(line, "client-ca-file"),
        request_header: RequestHeader {
            client_ca_file: path(line, "requestheader-client-ca-file"),
            allowed_names: line.list("requestheader-allowed-names"),
            extra_headers_prefix: line.list("requestheader-extra-headers-prefix"),
            group_headers: line.list("requestheader-group-headers"),
            uid_headers: line.list("requestheader-uid-headers"),
            username_headers: line.list("requestheader-username-headers"),
        },
        skip_lookup: line.bool("authentication-skip-lookup"),
    }
}

fn logs(line: &mut CommandLine) -> Logs {
    let format = line.text("logging-format");
    if !matches!(format.as_str(), "text" | "json") {
        line.fail(format!("--logging-format={format}: expected text or json"));
    }

    Logs {
        verbosity: line.int("v"),
        json: format == "json",
    }
}

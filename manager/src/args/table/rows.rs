//! The rows of the table, one line a flag: name, type, default, effect, meaning.

use super::Effect::{ByDesign, NoEffectUpstream, NotYet, Removed, Works};
use super::Kind::{Bool, BoolMap, Duration, Float, Int, List, Map, Repeated, Text, Version};
use super::{Effect, Flag, Kind};

const fn flag(name: &'static str, kind: Kind, default: &'static str, effect: Effect, help: &'static str) -> Flag {
    Flag {
        name,
        short: None,
        group: "",
        kind,
        default,
        effect,
        help,
    }
}

const COUNT: Kind = Int {
    min: 1,
    max: i32::MAX as i64,
};
const COUNT_OR_ZERO: Kind = Int {
    min: 0,
    max: i32::MAX as i64,
};
const MASK: Kind = Int { min: 0, max: 128 };
const PERCENT: Kind = Int { min: 0, max: 100 };
const PORT: Kind = Int { min: 0, max: 65_535 };

const NO_WEBHOOKS: &str =
    "the manager serves no webhooks; the admission webhook is a separate program";
const LOGS_TO_STDERR: &str = "logs always go to stderr";

pub(super) const GENERIC: &[Flag] = &[
    flag("allocate-node-cidrs", Bool, "false", Works, "Allow node IPAM to assign Pod CIDRs to Nodes. The controller must also be enabled in --controllers."),
    flag("allow-untagged-cloud", Bool, "false", NoEffectUpstream("a cluster ID is always required"), "Deprecated. Run without a cluster ID."),
    flag("cidr-allocator-type", Text, "RangeAllocator", Works, "CIDR allocator of node IPAM. Only RangeAllocator is supported."),
    flag("cloud-config", Text, "", Works, "Path to the cloud configuration file. If empty, the configuration is empty."),
    flag("cloud-provider", Text, "", Works, "Cloud provider. Required; must be aws."),
    flag("cluster-cidr", Text, "", Works, "CIDRs of the cluster's Pods, at most one per IP family. Routes are created for IPv4 only; without an IPv4 CIDR the route controller does not run."),
    flag("cluster-name", Text, "kubernetes", Works, "Name prefix of the cluster. This is not the cluster ID."),
    flag("configure-cloud-routes", Bool, "true", Works, "Create routes in the VPC's route tables for the Pod CIDRs of Nodes."),
    flag("controller-start-interval", Duration, "0s", Works, "Interval between the starts of two controllers."),
    flag("controllers", List, "*", Works, "Controllers to run. A name or alias enables a controller, -name disables it, and * enables all controllers that are on by default. The first match applies."),
    flag("external-cloud-volume-plugin", Text, "", NoEffectUpstream("read by kube-controller-manager only"), "No effect here."),
    flag("feature-gates", BoolMap, "", NoEffectUpstream("no feature gate of aws-cloud-controller-manager affects this manager"), "Feature gates, as pairs Name=true|false. An unknown gate is an error."),
    flag("kube-api-burst", COUNT_OR_ZERO, "30", Works, "Burst of requests to the API server, per client; 0 means 10. Without this flag and --kube-api-qps, requests are not limited."),
    flag("kube-api-content-type", Text, "application/vnd.kubernetes.protobuf", ByDesign { reason: "requests and responses are JSON", silent: "application/json" }, "Content type of requests to the API server."),
    flag("kube-api-qps", Float, "20", Works, "Requests per second to the API server, per client; 0 means 5. Without this flag and --kube-api-burst, requests are not limited."),
    flag("leader-elect", Bool, "true", Works, "Acquire a Lease before starting controllers."),
    flag("leader-elect-lease-duration", Duration, "15s", Works, "Time after the last observed renewal before another candidate acquires the Lease."),
    flag("leader-elect-renew-deadline", Duration, "10s", Works, "Time for which the holder retries a failed renewal before it stops leading."),
    flag("leader-elect-resource-lock", Text, "leases", Works, "Resource type of the lock. Only leases is supported."),
    flag("leader-elect-resource-name", Text, "cloud-controller-manager", Works, "Name of the main Lease."),
    flag("leader-elect-resource-namespace", Text, "kube-system", Works, "Namespace of the main Lease and of the migration Lease."),
    flag("leader-elect-retry-period", Duration, "2s", Works, "Interval between attempts to acquire or renew a Lease."),
    flag("min-resync-period", Duration, "12h0m0s", ByDesign { reason: "a broken watch restarts with a list, and each controller has its own resync period", silent: "" }, "Minimum interval between full resyncs."),
    flag("node-sync-period", Duration, "0s", NoEffectUpstream("deprecated"), "Deprecated. No effect."),
    flag("route-reconciliation-period", Duration, "10s", Works, "Interval between two reconciliations of all routes, at least 1s. A change of a Node starts one immediately."),
    flag("use-service-account-credentials", Bool, "false", Works, "Run each controller with its own service account in kube-system. The manager needs permission to create serviceaccounts and serviceaccounts/token."),
];

pub(super) const MISC: &[Flag] = &[
    flag("kubeconfig", Text, "", Works, "Path to a kubeconfig. If this and --master are empty, the in-cluster configuration is used. If --migration-kubeconfig is set, the same fields are rejected as in that file."),
    flag("master", Text, "", Works, "Address of the API server. Overrides the address in the kubeconfig."),
    flag("node-status-update-frequency", Duration, "5m0s", Works, "Interval between two updates of the addresses of all Nodes."),
];

pub(super) const NODE: &[Flag] = &[
    flag("concurrent-node-status-updates", COUNT_OR_ZERO, "0", Works, "Nodes whose addresses are updated concurrently; 0 means the value of --concurrent-node-syncs."),
    flag("concurrent-node-syncs", COUNT, "1", Works, "Nodes initialized concurrently. Without this flag, 32."),
];

pub(super) const LIFECYCLE: &[Flag] = &[
    flag("concurrent-node-lifecycle-syncs", COUNT, "1", ByDesign { reason: "one pass describes the instances of all Nodes together", silent: "1" }, "Nodes checked concurrently."),
    flag("node-monitor-period", Duration, "5s", Works, "Interval between two checks of the Nodes that are not Ready."),
];

pub(super) const SERVICE: &[Flag] = &[
    flag("concurrent-service-syncs", COUNT, "1", Works, "Services reconciled concurrently. Without this flag, 8. One of the workers is reserved for Services that a user creates, changes or deletes."),
];

pub(super) const LEADER_MIGRATION: &[Flag] = &[
    flag("enable-leader-migration", Bool, "false", Works, "Run the migrated controllers under the migration Lease."),
    flag("leader-migration-config", Text, "", Works, "Path to a LeaderMigrationConfiguration. If empty, the built-in configuration applies."),
];

pub(super) const DEBUGGING: &[Flag] = &[
    flag("contention-profiling", Bool, "false", ByDesign { reason: "there are no profiles", silent: "false" }, "Profile lock contention."),
    flag("profiling", Bool, "true", Works, "Serve the log verbosity at /debug/flags/v. There are no profiles."),
];

pub(super) const SERVING: &[Flag] = &[
    flag("bind-address", Text, "0.0.0.0", Works, "IP address to listen on."),
    flag("cert-dir", Text, "", Works, "Directory of cloud-controller-manager.crt and cloud-controller-manager.key, used if --tls-cert-file is empty."),
    flag("disable-http2-serving", Bool, "false", Works, "Serve HTTP/1.1 only."),
    flag("http2-max-streams-per-connection", COUNT_OR_ZERO, "0", Works, "Maximum number of streams per HTTP/2 connection; 0 means the default of the HTTP library."),
    flag("permit-address-sharing", Bool, "false", Works, "Set SO_REUSEADDR on the port. It is always set, as Go sets it for every listener."),
    flag("permit-port-sharing", Bool, "false", Works, "Set SO_REUSEPORT on the port, so that several processes can listen on it."),
    flag("secure-port", PORT, "10258", Works, "HTTPS port; 0 disables serving."),
    flag("tls-cert-file", Text, "", Works, "Serving certificate and its chain, in PEM. Without a certificate, a self-signed one is created in memory."),
    flag("tls-cipher-suites", List, "", Works, "Cipher suites for TLS 1.2, by their names in Go. All cipher suites of TLS 1.3 are always enabled."),
    flag("tls-curve-preferences", List, "", Works, "Key exchange groups by number, in order of preference, such as 4588,29,23."),
    flag("tls-min-version", Text, "", Works, "Minimum TLS version: VersionTLS12 or VersionTLS13. If empty, TLS 1.2."),
    flag("tls-private-key-file", Text, "", Works, "Private key of --tls-cert-file, in PEM."),
    flag("tls-sni-cert-key", Repeated, "", Works, "Further certificate and key, selected by server name: CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,*.NAME. Without names, the names in the certificate apply."),
];

pub(super) const AUTHENTICATION: &[Flag] = &[
    flag("authentication-kubeconfig", Text, "", Works, "Kubeconfig for token reviews. If empty, --kubeconfig applies."),
    flag("authentication-skip-lookup", Bool, "false", Works, "Do not read missing authentication configuration from the cluster."),
    flag("authentication-token-webhook-cache-ttl", Duration, "10s", Works, "Time for which the result of a token review is cached."),
    flag("authentication-tolerate-lookup-failure", Bool, "false", NotYet { reason: "a failed lookup is retried and never ends the process", silent: "true" }, "Serve even if reading the authentication configuration from the cluster fails."),
    flag("client-ca-file", Text, "", Works, "CA bundle for client certificates, in PEM. If empty, the CA bundle in the ConfigMap kube-system/extension-apiserver-authentication applies."),
    flag("requestheader-allowed-names", List, "", Works, "Allowed common names of front proxies. If empty, all are allowed."),
    flag("requestheader-client-ca-file", Text, "", Works, "CA bundle for front proxies, in PEM. If empty, all --requestheader settings are read from the ConfigMap kube-system/extension-apiserver-authentication."),
    flag("requestheader-extra-headers-prefix", List, "x-remote-extra-", Works, "Prefixes of the headers with extra attributes of the user."),
    flag("requestheader-group-headers", List, "x-remote-group", Works, "Headers with the groups of the user."),
    flag("requestheader-uid-headers", List, "", Works, "Headers with the UID of the user."),
    flag("requestheader-username-headers", List, "x-remote-user", Works, "Headers with the name of the user."),
];

pub(super) const AUTHORIZATION: &[Flag] = &[
    flag("authorization-always-allow-paths", List, "/healthz,/readyz,/livez", Works, "Paths served without authorization. A trailing * matches any suffix."),
    flag("authorization-kubeconfig", Text, "", Works, "Kubeconfig for access reviews. If empty, --kubeconfig applies."),
    flag("authorization-webhook-cache-authorized-ttl", Duration, "10s", Works, "Time for which an allowed access review is cached."),
    flag("authorization-webhook-cache-unauthorized-ttl", Duration, "10s", Works, "Time for which a denied access review is cached."),
];

pub(super) const WEBHOOK: &[Flag] = &[
    flag("webhook-bind-address", Text, "0.0.0.0", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-cert-dir", Text, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-disable-http2-serving", Bool, "false", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-secure-port", PORT, "10260", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-cert-file", Text, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-cipher-suites", List, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-curve-preferences", List, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-min-version", Text, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-private-key-file", Text, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhook-tls-sni-cert-key", Repeated, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
    flag("webhooks", List, "", NoEffectUpstream(NO_WEBHOOKS), "No effect here."),
];

pub(super) const TAGGING: &[Flag] = &[
    flag("resources", Repeated, "", Works, "Resource types that the tagging controller tags. Only instance is supported. Required by the tagging controller."),
    flag("tagging-controller-burst-limit", COUNT_OR_ZERO, "0", Works, "Burst of the rate limit, in Nodes."),
    flag("tagging-controller-concurrent-node-syncs", COUNT, "1", Works, "Concurrent AWS calls of the tagging controller."),
    flag("tagging-controller-enable-batching", Bool, "false", Works, "Tag up to 50 instances per AWS call."),
    flag("tagging-controller-rate-limit", Float, "0", Works, "Nodes processed per second. Applies only if --tagging-controller-burst-limit is set, too."),
    flag("tags", Map, "", Works, "Tags to add to the resources. Required by the tagging controller."),
];

pub(super) const NODE_IPAM: &[Flag] = &[
    flag("node-cidr-mask-size", MASK, "0", Works, "Prefix length of the Nodes' Pod CIDRs if --cluster-cidr has one CIDR; 0 means 24 for IPv4 and 64 for IPv6."),
    flag("node-cidr-mask-size-ipv4", MASK, "0", Works, "Prefix length of the Nodes' IPv4 Pod CIDRs; 0 means 24."),
    flag("node-cidr-mask-size-ipv6", MASK, "0", Works, "Prefix length of the Nodes' IPv6 Pod CIDRs; 0 means 64."),
    flag("service-cluster-ip-range", List, "", Works, "Service CIDRs, at most two. Node IPAM does not assign them to Nodes."),
];

pub(super) const LOGS: &[Flag] = &[
    flag("log-flush-frequency", Duration, "5s", NoEffectUpstream("each line is written immediately"), "No effect here."),
    flag("log-text-info-buffer-size", Text, "0", NoEffectUpstream("lines are not buffered"), "No effect here."),
    flag("log-text-split-stream", Bool, "false", NoEffectUpstream(LOGS_TO_STDERR), "No effect here."),
    flag("logging-format", Text, "text", Works, "Log format: text, or json with the field names of Kubernetes' JSON logs."),
    Flag { short: Some('v'), ..flag("v", COUNT_OR_ZERO, "0", Works, "Log verbosity: 0 to 3 logs info, 4 and 5 also debug messages of the manager, 6 and more also those of its libraries.") },
    flag("vmodule", Text, "", ByDesign { reason: "it refers to Go source files; --v applies to the whole process", silent: "" }, "Log verbosity per source file."),
];

pub(super) const GLOBAL: &[Flag] = &[
    Flag { short: Some('h'), ..flag("help", Bool, "false", Works, "Print this help.") },
    flag("version", Version, "false", Works, "Print the version. raw prints all version fields."),
];

pub(super) const OURS: &[Flag] = &[
    flag("aws-api-budget-share", Float, "0.25", Works, "Share of the account's request rate limits for reads of EC2 and of load balancers that this manager uses: 0.001 to 1. While calls wait, it grows by 0.05 each 10 s; when AWS throttles, it is halved, down to this value. Writes use the full limits."),
    flag("aws-api-budget-share-limit", Float, "0.9", Works, "Largest value to which --aws-api-budget-share grows: 0.001 to 1. A lower value than that one has no effect."),
    flag("aws-keys-file", Text, "", Works, "AWS's shared credentials file of another principal, such as the tenant of a hosted control plane. Only keys are read from its profile AWS_PROFILE, or default; with anything else in it, such as a role or an endpoint, the manager does not start. AWS_ACCESS_KEY_ID comes first; with AWS_WEB_IDENTITY_TOKEN_FILE or AWS_CONTAINER_CREDENTIALS_* the manager does not start."),
    flag("cloud-config-strict", Bool, "true", Works, "Reject unknown sections and keys in the cloud configuration. If false, they are ignored without a message."),
    flag("cluster-id", Text, "", Works, "Cluster ID. Must equal the cluster ID in the cloud configuration, if that has one. Without both, it is read from the tags of the instance that the manager runs on."),
    flag("load-balancer-resync-period", Duration, "30m0s", Works, "Approximate interval at which an unchanged Service is reconciled to repair drift in AWS; 0 disables it."),
    flag("load-balancer-sweep", Text, "report", Works, "Handling of orphaned load balancers, target groups, security groups and rules of this cluster, whose Service no longer exists: off, report or delete."),
    flag("load-balancer-sweep-period", Duration, "1h0m0s", Works, "Interval between two searches for orphaned resources, at least 1m. A resource is deleted after two searches found it."),
    flag("migration", Text, "", Works, "Name of the CloudProviderMigration that this manager participates in. Enables leader migration."),
    flag("migration-kubeconfig", Text, "", Works, "Kubeconfig of the cluster that holds the CloudProviderMigration. in-cluster: the cluster that the Pod runs in, with the token of its service account. Then region, cluster ID and VPC are not read from instance metadata, because the instance belongs to that cluster. If empty, the cluster of --kubeconfig. The file must not use exec or auth-provider, which start programs, or files outside its directory."),
    flag("node-deletion-breaker-hold", Duration, "15m0s", Works, "Time for which no Node is deleted after the number of Nodes without an instance exceeds the limit. Afterwards, at most the limit is deleted per window."),
    flag("node-deletion-breaker-minimum", COUNT, "3", Works, "Number of Nodes that may always be deleted per window because EC2 does not list their instances. Nodes of terminated instances do not count."),
    flag("node-deletion-breaker-percent", PERCENT, "10", Works, "Percentage of all Nodes that may be deleted per window because EC2 does not list their instances, if that is more than the minimum; 100 disables the breaker."),
    flag("node-deletion-breaker-window", Duration, "5m0s", Works, "Window in which the breaker counts deletions, at least 1m."),
    flag("region", Text, "", Works, "AWS region. Takes precedence over Zone and Region in the cloud configuration, AWS_REGION, and the instance metadata service."),
    flag("security-group-rules-quota", COUNT, "60", Works, "AWS quota of rules per security group. A warning is emitted from 80 % of it. If the flag is set, the manager never exceeds it."),
    flag("tag-resync-period", Duration, "30m0s", Works, "Interval at which the tagging controller repairs missing tags, at least 1s; 0 disables it."),
    flag("vpc-id", Text, "", Works, "VPC of the cluster. Takes precedence over VPC in the cloud configuration and the VPC of the instance that the manager runs on."),
];

pub(super) const REMOVED: &[Flag] = &[
    flag("add-dir-header", Bool, "false", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("address", Text, "0.0.0.0", Removed("there is no insecure port; use --bind-address"), "Removed in 1.24."),
    flag("alsologtostderr", Bool, "false", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("experimental-logging-sanitization", Bool, "false", Removed("logs never hold secrets"), "Removed in 1.24."),
    flag("log-backtrace-at", Text, "", Removed("there are no backtraces in logs"), "Removed in 1.26."),
    flag("log-dir", Text, "", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("log-file", Text, "", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("log-file-max-size", Text, "1800", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("logtostderr", Bool, "true", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("one-output", Bool, "false", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("port", PORT, "0", Removed("there is no insecure port; use --secure-port"), "Removed in 1.24."),
    flag("skip-headers", Bool, "false", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("skip-log-headers", Bool, "false", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
    flag("stderrthreshold", Text, "2", Removed(LOGS_TO_STDERR), "Removed in 1.26."),
];

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
    "this provider registers no webhook in the manager; the admission webhook is a binary of its own";
const LOGS_TO_STDERR: &str = "logs always go to stderr";

pub(super) const GENERIC: &[Flag] = &[
    flag("allocate-node-cidrs", Bool, "false", Works, "Allows node IPAM to give Nodes ranges for their Pods; it must be named in --controllers, too."),
    flag("allow-untagged-cloud", Bool, "false", NoEffectUpstream("a cluster ID is always needed"), "Deprecated. Run without a cluster ID."),
    flag("cidr-allocator-type", Text, "RangeAllocator", Works, "Allocator of node IPAM; only RangeAllocator."),
    flag("cloud-config", Text, "", Works, "Path to the cloud configuration file; empty means an empty configuration."),
    flag("cloud-provider", Text, "", Works, "The cloud provider; required, and must be aws."),
    flag("cluster-cidr", Text, "", Works, "At most two CIDRs, one of each family, of the cluster's Pods. Routes are made for IPv4; without an IPv4 range the route controller stays off."),
    flag("cluster-name", Text, "kubernetes", Works, "Name prefix of the cluster; not the cluster ID."),
    flag("configure-cloud-routes", Bool, "true", Works, "Whether routes of the VPC are configured for the nodes' Pod CIDRs."),
    flag("controller-start-interval", Duration, "0s", Works, "Pause between starting two controllers."),
    flag("controllers", List, "*", Works, "Controllers to run: a name or alias enables, -name disables, * stands for all that are on by default. The first match decides."),
    flag("external-cloud-volume-plugin", Text, "", NoEffectUpstream("read by kube-controller-manager only"), "No effect here."),
    flag("feature-gates", BoolMap, "", NoEffectUpstream("none of the incumbent's gates changes what runs on AWS here"), "Pairs Name=true|false; unknown gates are an error."),
    flag("kube-api-burst", COUNT_OR_ZERO, "30", Works, "Burst of requests of each client to the API server; 0 means 10. No limit while neither this nor --kube-api-qps is set."),
    flag("kube-api-content-type", Text, "application/vnd.kubernetes.protobuf", ByDesign { reason: "requests and answers are JSON", silent: "application/json" }, "Content type of requests to the API server."),
    flag("kube-api-qps", Float, "20", Works, "Requests per second of each client to the API server; 0 means 5. No limit while neither this nor --kube-api-burst is set."),
    flag("leader-elect", Bool, "true", Works, "Hold a Lease before controllers start."),
    flag("leader-elect-lease-duration", Duration, "15s", Works, "How long others wait after the last renewal before they take the Lease."),
    flag("leader-elect-renew-deadline", Duration, "10s", Works, "How long the holder may fail to renew before it stops writing."),
    flag("leader-elect-resource-lock", Text, "leases", Works, "Kind of the lock; only leases."),
    flag("leader-elect-resource-name", Text, "cloud-controller-manager", Works, "Name of the main Lease."),
    flag("leader-elect-resource-namespace", Text, "kube-system", Works, "Namespace of the main and of the migration Lease."),
    flag("leader-elect-retry-period", Duration, "2s", Works, "Pause between attempts."),
    flag("min-resync-period", Duration, "12h0m0s", ByDesign { reason: "a watch that breaks lists anew, and every controller looks at everything in a period of its own", silent: "" }, "Least time between full resyncs."),
    flag("node-sync-period", Duration, "0s", NoEffectUpstream("deprecated"), "Deprecated. No effect."),
    flag("route-reconciliation-period", Duration, "10s", Works, "Time from one pass over the routes to the next, at least 1s. Changes of Nodes start one at once."),
    flag("use-service-account-credentials", Bool, "false", Works, "Each controller acts as a service account of its own in kube-system; the manager needs create on serviceaccounts and serviceaccounts/token."),
];

pub(super) const MISC: &[Flag] = &[
    flag("kubeconfig", Text, "", Works, "Path to a kubeconfig; with --master empty too, the in-cluster configuration is used. With --migration-kubeconfig the same is refused in it as there."),
    flag("master", Text, "", Works, "Address of the API server; overrides the one in the kubeconfig."),
    flag("node-status-update-frequency", Duration, "5m0s", Works, "Pause between two refreshes of all nodes' addresses."),
];

pub(super) const NODE: &[Flag] = &[
    flag("concurrent-node-status-updates", COUNT_OR_ZERO, "0", Works, "Addresses written at the same time; 0 means as --concurrent-node-syncs."),
    flag("concurrent-node-syncs", COUNT, "1", Works, "Nodes initialized at the same time. Left at its default, 32 are."),
];

pub(super) const LIFECYCLE: &[Flag] = &[
    flag("concurrent-node-lifecycle-syncs", COUNT, "1", ByDesign { reason: "one pass asks AWS about all nodes at once", silent: "1" }, "Nodes checked at the same time."),
    flag("node-monitor-period", Duration, "5s", Works, "Pause between two passes over the nodes that are not Ready."),
];

pub(super) const SERVICE: &[Flag] = &[
    flag("concurrent-service-syncs", COUNT, "1", Works, "Services reconciled at the same time. Left at its default, 8 are. One is left to Services that somebody makes, changes or deletes."),
];

pub(super) const LEADER_MIGRATION: &[Flag] = &[
    flag("enable-leader-migration", Bool, "false", Works, "Run the migrated controllers under the migration Lease."),
    flag("leader-migration-config", Text, "", Works, "Path to a LeaderMigrationConfiguration; empty means the built-in list."),
];

pub(super) const DEBUGGING: &[Flag] = &[
    flag("contention-profiling", Bool, "false", ByDesign { reason: "nothing here is profiled", silent: "false" }, "Profile lock contention."),
    flag("profiling", Bool, "true", Works, "Serve /debug: the log's verbosity at /debug/flags/v. There are no profiles."),
];

pub(super) const SERVING: &[Flag] = &[
    flag("bind-address", Text, "0.0.0.0", Works, "IP address to listen on."),
    flag("cert-dir", Text, "", Works, "Folder of cloud-controller-manager.crt and .key, used when no certificate file is named."),
    flag("disable-http2-serving", Bool, "false", Works, "Serve HTTP/1.1 only."),
    flag("http2-max-streams-per-connection", COUNT_OR_ZERO, "0", Works, "Limit of streams of one HTTP/2 connection; 0 means the library's."),
    flag("permit-address-sharing", Bool, "false", Works, "Set SO_REUSEADDR. It is set in any case, as Go does for every listener."),
    flag("permit-port-sharing", Bool, "false", Works, "Set SO_REUSEPORT, so that two processes can share the port."),
    flag("secure-port", PORT, "10258", Works, "Port of HTTPS; 0 serves nothing."),
    flag("tls-cert-file", Text, "", Works, "Certificate and chain in PEM. Without one, a self-signed certificate is made in memory."),
    flag("tls-cipher-suites", List, "", Works, "Cipher suites for TLS 1.2, by their names in Go. Those of TLS 1.3 are always on."),
    flag("tls-curve-preferences", List, "", Works, "Numbers of the key exchange groups, in order, such as 4588,29,23."),
    flag("tls-min-version", Text, "", Works, "VersionTLS12 or VersionTLS13; empty means TLS 1.2."),
    flag("tls-private-key-file", Text, "", Works, "Private key of --tls-cert-file, in PEM."),
    flag("tls-sni-cert-key", Repeated, "", Works, "Further certificates, chosen by server name: CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,*.NAME; without names, those in the certificate."),
];

pub(super) const AUTHENTICATION: &[Flag] = &[
    flag("authentication-kubeconfig", Text, "", Works, "Kubeconfig for token reviews; empty means that of --kubeconfig."),
    flag("authentication-skip-lookup", Bool, "false", Works, "Do not look up the missing authentication configuration in the cluster."),
    flag("authentication-token-webhook-cache-ttl", Duration, "10s", Works, "How long an answer of a token review is kept."),
    flag("authentication-tolerate-lookup-failure", Bool, "false", NotYet { reason: "a look-up that fails never ends the process, it is tried again", silent: "true" }, "Serve even when that look-up fails."),
    flag("client-ca-file", Text, "", Works, "CA of client certificates, in PEM; empty means the one in the ConfigMap kube-system/extension-apiserver-authentication."),
    flag("requestheader-allowed-names", List, "", Works, "Common names of front proxies; empty means any."),
    flag("requestheader-client-ca-file", Text, "", Works, "CA of front proxies, in PEM; empty means that all about them is in the same ConfigMap."),
    flag("requestheader-extra-headers-prefix", List, "x-remote-extra-", Works, "Beginnings of headers of the user's further attributes."),
    flag("requestheader-group-headers", List, "x-remote-group", Works, "Headers of the user's groups."),
    flag("requestheader-uid-headers", List, "", Works, "Headers of the user's UID."),
    flag("requestheader-username-headers", List, "x-remote-user", Works, "Headers of the user's name."),
];

pub(super) const AUTHORIZATION: &[Flag] = &[
    flag("authorization-always-allow-paths", List, "/healthz,/readyz,/livez", Works, "Paths served without asking who calls; a trailing * matches the rest."),
    flag("authorization-kubeconfig", Text, "", Works, "Kubeconfig for access reviews; empty means that of --kubeconfig."),
    flag("authorization-webhook-cache-authorized-ttl", Duration, "10s", Works, "How long a permission is kept."),
    flag("authorization-webhook-cache-unauthorized-ttl", Duration, "10s", Works, "How long a refusal is kept."),
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
    flag("resources", Repeated, "", Works, "Kinds of resources to tag; only instance. Needed by the tagging controller."),
    flag("tagging-controller-burst-limit", COUNT_OR_ZERO, "0", Works, "How many nodes may be taken up at once before the rate limit counts."),
    flag("tagging-controller-concurrent-node-syncs", COUNT, "1", Works, "Calls of the tagging controller under way at the same time."),
    flag("tagging-controller-enable-batching", Bool, "false", Works, "Tag up to 50 instances with one call."),
    flag("tagging-controller-rate-limit", Float, "0", Works, "Nodes taken up per second; counts only where the burst limit is set, too."),
    flag("tags", Map, "", Works, "Tags for the resources. Needed by the tagging controller."),
];

pub(super) const NODE_IPAM: &[Flag] = &[
    flag("node-cidr-mask-size", MASK, "0", Works, "Prefix length of the Nodes' ranges where --cluster-cidr has one CIDR; 0 means 24 for IPv4 and 64 for IPv6."),
    flag("node-cidr-mask-size-ipv4", MASK, "0", Works, "Prefix length of the Nodes' IPv4 ranges; 0 means 24."),
    flag("node-cidr-mask-size-ipv6", MASK, "0", Works, "Prefix length of the Nodes' IPv6 ranges; 0 means 64."),
    flag("service-cluster-ip-range", List, "", Works, "At most two CIDRs of Services, which no Node gets."),
];

pub(super) const LOGS: &[Flag] = &[
    flag("log-flush-frequency", Duration, "5s", NoEffectUpstream("every line is written at once"), "No effect here."),
    flag("log-text-info-buffer-size", Text, "0", NoEffectUpstream("lines are not buffered"), "No effect here."),
    flag("log-text-split-stream", Bool, "false", NoEffectUpstream(LOGS_TO_STDERR), "No effect here."),
    flag("logging-format", Text, "text", Works, "text, or json with the field names of Kubernetes' JSON logs."),
    Flag { short: Some('v'), ..flag("v", COUNT_OR_ZERO, "0", Works, "Verbosity: 0 to 3 informational, 4 and 5 debugging, 6 and more everything.") },
    flag("vmodule", Text, "", ByDesign { reason: "it names files of Go; --v holds for the whole process", silent: "" }, "Verbosity by source file."),
];

pub(super) const GLOBAL: &[Flag] = &[
    Flag { short: Some('h'), ..flag("help", Bool, "false", Works, "Print this help.") },
    flag("version", Version, "false", Works, "Print the version; raw prints its parts."),
];

pub(super) const OURS: &[Flag] = &[
    flag("aws-api-budget-share", Float, "0.25", Works, "Part of the account's budget of reads of EC2 and about load balancers that this manager may take: greater than 0, at most 1. Writes may take the whole budget."),
    flag("cloud-config-strict", Bool, "true", Works, "Unknown sections and keys of the cloud configuration are an error; false passes over them in silence."),
    flag("cluster-id", Text, "", Works, "Cluster ID; must agree with the cloud configuration's. Without both, the tags of the own instance name it."),
    flag("load-balancer-resync-period", Duration, "30m0s", Works, "After about this time a Service that nobody changed is looked at for changes at AWS, which are undone; 0 turns it off."),
    flag("load-balancer-sweep", Text, "report", Works, "What is done with load balancers, target groups, security groups and rules of this cluster whose Service is gone: off, report or delete."),
    flag("load-balancer-sweep-period", Duration, "1h0m0s", Works, "Time between two searches for them, at least 1m. Deleted is what two searches have found."),
    flag("migration", Text, "", Works, "Name of the CloudProviderMigration that this manager takes part in; implies leader migration."),
    flag("migration-kubeconfig", Text, "", Works, "Kubeconfig of the cluster where that object lives; empty means this cluster. exec and auth-provider are refused in it, as they start programs, and files outside its folder."),
    flag("node-deletion-breaker-hold", Duration, "15m0s", Works, "After more Nodes than a window allows turn out to have no instance, no such Node is deleted for this time; then the window's number is deleted in each window."),
    flag("node-deletion-breaker-minimum", COUNT, "3", Works, "This many Nodes whose instances EC2 does not list may be deleted within a window, however small the cluster. Nodes of terminated instances do not count."),
    flag("node-deletion-breaker-percent", PERCENT, "10", Works, "This percentage of all Nodes may be deleted within a window because EC2 does not list their instances, if it is more than the minimum; 100 turns the breaker off."),
    flag("node-deletion-breaker-window", Duration, "5m0s", Works, "Time in which these deletions are counted, at least 1m."),
    flag("region", Text, "", Works, "AWS region; goes before Zone and Region of the cloud configuration, AWS_REGION, and the instance metadata service."),
    flag("security-group-rules-quota", COUNT, "60", Works, "How many rules AWS allows in a security group. From four fifths on there is a warning; a number that is set is never gone beyond."),
    flag("tag-resync-period", Duration, "30m0s", Works, "Time between two searches of the tagging controller for tags that were lost, which are set again; at least 1s, 0 turns it off."),
    flag("vpc-id", Text, "", Works, "VPC of the cluster; goes before VPC of the cloud configuration and the own instance's."),
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

//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, ArgGroup, Parser};
use ipnet::IpNet;
use outrigger_certs::Source;
use outrigger_decide::registration::FailurePolicy;
use outrigger_serving::{ConnectionLimits, WhenFull};

use crate::duration;
use crate::routes::RequestLimits;
use crate::self_signed::Settings;

const MIB: usize = 1024 * 1024;
/// Certificates state whole seconds, and a renewal needs some.
const MIN_LIFETIME: Duration = Duration::from_secs(10);

/// The mutating admission webhook of Outrigger.
///
/// It changes only objects that a CloudProviderMigration selects. Without a CloudProviderMigration it changes nothing.
#[derive(Debug, Clone, Parser)]
#[command(name = "outrigger-webhook", version)]
#[command(group(ArgGroup::new("certificate").required(true).args(["cert_dir", "self_signed_secret"])))]
pub struct Args {
    /// Address and port of the admission server (HTTPS)
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8443")]
    pub bind_address: SocketAddr,
    /// Address and port of /healthz, /readyz and /metrics (HTTP)
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8081")]
    pub health_bind_address: SocketAddr,
    /// Directory with tls.crt and tls.key, such as a mounted Secret of type kubernetes.io/tls
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// Interval at which the certificate files are read again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub cert_reload_interval: Duration,
    /// DNS name or IP address at which API servers call this server; the certificate must cover it. May be repeated
    #[arg(long = "server-name", value_name = "NAME")]
    pub server_names: Vec<String>,
    /// CA bundle for client certificates, in PEM, read again like the certificate; without it, clients need no
    /// certificate
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Common name or alternative name (DNS, IP, URI) that a client certificate must have; without it, every
    /// certificate signed by the CA is accepted. May be repeated
    #[arg(long = "client-name", value_name = "NAME", requires = "client_ca_file", value_parser = NonEmptyStringValueParser::new())]
    pub client_names: Vec<String>,
    /// Kubeconfig of the cluster that holds the CloudProviderMigrations; without it, the Pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for reading the cloud-controller-manager's lease in the cluster whose Nodes are reviewed at
    /// /mutate/NAME. It must not use exec or auth-provider, which start programs, or files outside its directory. May
    /// be repeated
    #[arg(long = "cluster-kubeconfig", value_name = "NAME=FILE", value_parser = named_file)]
    pub cluster_kubeconfigs: Vec<(String, PathBuf)>,
    /// Namespace of the cloud-controller-manager's lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Name of the cloud-controller-manager's lease
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,
    /// Interval at which stored objects are compared with their form in the migration's phase; 0 disables the check
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub check_interval: Duration,
    /// Whether the registration in the cluster is compared with the one that the migrations need
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub check_registration: bool,
    /// The failurePolicy that the registration must have for Pods of a kube-controller-manager, and for control planes
    /// and machine configurations of Cluster API
    #[arg(long, value_name = "POLICY", default_value = "Fail", value_parser = failure_policy)]
    pub control_plane_failure_policy: FailurePolicy,
    /// The webhook's own namespace, in which it changes nothing
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "POD_NAMESPACE",
        default_value = "outrigger-system"
    )]
    pub own_namespace: String,
    /// Log filter, as tracing directives (`info`, `outrigger_webhook=debug`)
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info,kube_runtime=error,kube_client=error"
    )]
    pub log: String,
    #[command(flatten)]
    pub self_signed: SelfSigned,
    #[command(flatten)]
    pub limits: Limits,
}

/// Certificates without cert-manager.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Self-signed certificates")]
pub struct SelfSigned {
    /// Name of the Secret in the webhook's own namespace in which the replicas share a CA and a serving certificate.
    /// They create and renew both, and set caBundle of the registrations. Replaces --cert-dir
    #[arg(long, value_name = "NAME", requires = "server_names", value_parser = NonEmptyStringValueParser::new())]
    pub self_signed_secret: Option<String>,
    /// Lifetime of the serving certificate; it is renewed after two thirds
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse)]
    pub self_signed_lifetime: Duration,
    /// Lifetime of the CA, at least three times that of the serving certificate; it is renewed after two thirds
    #[arg(long, value_name = "DURATION", default_value = "43800h", value_parser = duration::parse)]
    pub self_signed_ca_lifetime: Duration,
    /// MutatingWebhookConfigurations whose caBundle is set, in entries for one of the server names; also in the clusters
    /// of --cluster-kubeconfig
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "early.outrigger.dev,outrigger,outrigger-kube-system"
    )]
    pub mutating_webhook_configurations: Vec<String>,
    /// ValidatingWebhookConfigurations whose caBundle is set, likewise
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_value = "outrigger")]
    pub validating_webhook_configurations: Vec<String>,
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Maximum number of open connections, at most half of them from one address; an eighth is reserved for clients on
    /// this machine. Further connections are closed immediately
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = positive)]
    pub max_connections: usize,
    /// Maximum number of concurrent requests per HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_streams_per_connection: u32,
    /// Network from which API servers call, besides the addresses in EndpointSlice default/kubernetes: half of the
    /// requests, bodies and memory below is kept for them, and their reviews are decided first. For API servers of
    /// tenants, and behind a proxy or a network that replaces addresses. May be repeated
    #[arg(long = "api-server-source", value_name = "CIDR", value_parser = network)]
    pub api_server_sources: Vec<IpNet>,
    /// Maximum number of concurrent requests with a complete body, at most half of them from callers that are no API
    /// servers; one address gets at most four times the number that stays free. Further requests get status 503. A
    /// quarter as many bodies are received at the same time; the slowest one of the source with the most ends for a
    /// further one
    #[arg(long, value_name = "N", default_value_t = 1280, value_parser = positive)]
    pub max_concurrent_requests: usize,
    /// Maximum size of a request body; a larger one gets status 413
    #[arg(long, value_name = "BYTES", default_value_t = 7 * MIB, value_parser = bytes)]
    pub max_body_bytes: usize,
    /// Maximum size of all request bodies in memory, divided like the requests; further requests get status 503
    #[arg(long, value_name = "BYTES", default_value_t = 32 * MIB, value_parser = positive)]
    pub max_total_body_bytes: usize,
    /// Maximum size of all decoded objects in memory, half of it for API servers and half for other callers. Further
    /// requests get status 503; an object that needs more than half is admitted unchanged, with a warning
    #[arg(long, value_name = "BYTES", default_value_t = 128 * MIB, value_parser = bytes)]
    pub max_total_object_bytes: usize,
    /// Timeout of a TLS handshake
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub handshake_timeout: Duration,
    /// Timeout for the headers of a connection's first request
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub header_timeout: Duration,
    /// Timeout of a request; a shorter timeout parameter of the API server takes precedence. A tenth of it, at most
    /// 200ms, is reserved for sending the response
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub request_timeout: Duration,
    /// Time after which a connection without requests is closed. API servers close theirs after 90s and do not retry a
    /// request that meets a closed connection, so it is longer
    // https://pkg.go.dev/net/http#DefaultTransport, which apimachinery takes the time of (pkg/util/net/http.go)
    #[arg(long, value_name = "DURATION", default_value = "100s", value_parser = duration::parse)]
    pub idle_timeout: Duration,
    /// Age at which a connection is closed after its requests are answered, so that new replicas get connections; up to
    /// a fifth earlier, so that connections of the same age are not closed together
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    pub max_connection_age: Duration,
    /// Time after SIGTERM in which connections are still accepted while /readyz fails, so that endpoints are updated
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    pub shutdown_delay: Duration,
    /// Timeout for open requests after the shutdown delay
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    pub drain_timeout: Duration,
}

impl Args {
    /// The directory `directory` of the certificate and key, and the names that the certificate must cover.
    pub fn source(&self, directory: &Path) -> Source {
        Source {
            directory: directory.to_owned(),
            names: self.server_names.clone(),
        }
    }

    /// The names and lifetimes of certificates with `--self-signed-secret`.
    ///
    /// # Errors
    /// The relation of the two lifetimes.
    pub fn settings(&self) -> Result<Settings, &'static str> {
        let flags = &self.self_signed;
        let (leaf, ca) = (flags.self_signed_lifetime, flags.self_signed_ca_lifetime);
        // Between the CA's renewal and its end there must be time for a whole certificate.
        if leaf < MIN_LIFETIME || ca / 3 < leaf {
            return Err(
                "--self-signed-lifetime must be 10s or more, and --self-signed-ca-lifetime three times as long",
            );
        }

        Ok(Settings {
            names: self.server_names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            certificate_lifetime: leaf,
            ca_lifetime: ca,
        })
    }
}

impl Limits {
    pub const fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.max_connections,
            reserved: self.max_connections / 8,
            per_source: self.max_connections.div_ceil(2),
            when_full: WhenFull::FairShare,
            streams: self.max_streams_per_connection,
            handshake: self.handshake_timeout,
            header: self.header_timeout,
            idle: self.idle_timeout,
            age: self.max_connection_age,
            drain: self.drain_timeout,
        }
    }

    pub const fn requests(&self) -> RequestLimits {
        RequestLimits {
            body: self.max_body_bytes,
            memory: self.max_total_body_bytes,
            objects: self.max_total_object_bytes,
            requests: self.max_concurrent_requests,
            bodies: self.max_concurrent_requests.div_ceil(4),
            time: self.request_timeout,
        }
    }
}

fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err(format!(
            "{text:?} is not NAME=FILE; NAME is the CloudProviderMigration, FILE a kubeconfig"
        )),
    }
}

fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().or_else(|_| address());
    network.map_err(|_| format!("{text:?} is neither a network such as 10.0.0.0/16 nor an address"))
}

fn failure_policy(text: &str) -> Result<FailurePolicy, String> {
    let known = [FailurePolicy::Fail, FailurePolicy::Ignore];
    known
        .into_iter()
        .find(|policy| policy.as_str().eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("{text:?} is neither Fail nor Ignore"))
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        // The limit is the number of a semaphore's permits.
        Ok(number) if (1..=tokio::sync::Semaphore::MAX_PERMITS).contains(&number) => Ok(number),
        _ => Err(format!("{text:?} is not a whole number of 1 or more")),
    }
}

/// A number of bytes. The size of one request is counted in 32 bits.
fn bytes(text: &str) -> Result<usize, String> {
    let most = u32::MAX as usize;
    match positive(text)? {
        number if number > most => Err(format!("{number} is more than {most} bytes")),
        number => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["outrigger-webhook", "--cert-dir=/certs"].iter().chain(more))
    }

    #[test]
    fn the_definition_is_consistent_and_the_defaults_are_the_documented_ones() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        let args = parse(&[]).unwrap();
        assert_eq!(args.bind_address.to_string(), "0.0.0.0:8443");
        assert_eq!(args.limits.requests().body, 7 * 1024 * 1024);
        assert_eq!(args.limits.connections().header, Duration::from_secs(5));
        assert_eq!(args.leader_elect_resource_name, "cloud-controller-manager");
    }

    #[test]
    fn sources_of_api_servers_are_networks_or_addresses() {
        let args = parse(&["--api-server-source=10.0.0.0/16", "--api-server-source=2001:db8::1"]).unwrap();
        let shown: Vec<String> = args.limits.api_server_sources.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/16", "2001:db8::1/128"]);
    }

    #[test]
    fn clusters_are_named_and_may_be_many() {
        let args = parse(&["--cluster-kubeconfig=a=/a=b", "--cluster-kubeconfig", "c=/c"]).unwrap();
        assert_eq!(
            args.cluster_kubeconfigs,
            [("a".to_owned(), "/a=b".into()), ("c".to_owned(), "/c".into())]
        );
    }

    #[test]
    fn the_certificate_comes_from_one_place_and_its_lifetimes_leave_time_to_renew() {
        let parse = |flags: &[&str]| Args::try_parse_from(["outrigger-webhook"].iter().chain(flags));
        let (secret, name) = ("--self-signed-secret=s", "--server-name=Webhook.test");
        assert!(parse(&[name]).is_err() && parse(&[secret]).is_err());
        let args = parse(&[secret, name]).unwrap();
        assert_eq!(args.settings().unwrap().names, ["webhook.test"]);
        assert_eq!(args.settings().unwrap().settle(), Duration::from_secs(600));
        for (lifetime, ca_lifetime, is_allowed) in [("9s", "1h", false), ("10s", "29s", false), ("10s", "30s", true)] {
            let lifetime = format!("--self-signed-lifetime={lifetime}");
            let ca_lifetime = format!("--self-signed-ca-lifetime={ca_lifetime}");
            let args = parse(&[secret, name, &lifetime, &ca_lifetime]).unwrap();
            assert_eq!(args.settings().is_ok(), is_allowed, "{lifetime} {ca_lifetime}");
        }
    }

    #[test]
    fn bad_values_are_refused_with_what_would_be_right() {
        for (flag, hint) in [
            ("--cluster-kubeconfig=x", "NAME=FILE"),
            ("--control-plane-failure-policy=Open", "neither Fail nor Ignore"),
            ("--max-body-bytes=0", "1 or more"),
            ("--max-total-object-bytes=4294967296", "more than 4294967295 bytes"),
            ("--idle-timeout=1 hour", "such as 30s"),
            ("--bind-address=8443", "invalid socket address"),
            ("--max-streams-per-connection=0", "0 is not in"),
            ("--api-server-source=10.0.0.0/33", "neither a network"),
            ("--client-name=kube-apiserver", "--client-ca-file"),
            ("--client-name=", "a value is required"),
            ("--self-signed-secret=s", "cannot be used with"),
        ] {
            let message = parse(&[flag]).unwrap_err().to_string();
            assert!(message.contains(hint), "{flag}: {message}");
        }
    }
}

//! kube-apiserver on loopback, of the last minor with the in-tree AWS provider or of the newest.

use std::net::{AddrParseError, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::process::{Exit, Launch, Process, free_port};
use crate::tools::{Tool, Tools};

use super::authority::{Authority, User, service_account_keys};
use super::error::ClusterError;
use super::etcd::Etcd;
use super::start::{create_folder, with_free_ports, with_processor_limit, write};

/// Memory up to which no garbage is collected (<https://go.dev/doc/gc-guide#Memory_limit>). A start uses 440 MB and takes
/// 1.3 s of processor time; with GOGC=400, 370 MB and 1.5 s.
const MEMORY_LIMIT: &str = "1GiB";

/// Every change of anything, and all requests for the kinds that a migration is about: metadata only, so that the log
/// says who did what when and stays small. One line for each request, when its response is complete; watches also
/// when they begin.
pub const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  resources:
  - group: coordination.k8s.io
    resources: [leases]
  - group: ''
    resources: [services, services/status, nodes, nodes/status]
- level: None
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 1.26, the last minor whose controller manager contains the in-tree AWS provider.
    V1_26,
    /// 1.36, the newest.
    V1_36,
}

impl Version {
    pub fn api_server(self) -> Tool {
        match self {
            Self::V1_26 => Tool::ApiServer126,
            Self::V1_36 => Tool::ApiServer136,
        }
    }

    pub fn controller_manager(self) -> Tool {
        match self {
            Self::V1_26 => Tool::ControllerManager126,
            Self::V1_36 => Tool::ControllerManager136,
        }
    }
}

/// The differences between the API servers of a run.
#[derive(Debug, Clone)]
pub struct ApiServerOptions {
    /// Names its folder in the run, its etcd prefix and its cluster in kubeconfigs: letters, digits and dashes.
    pub name: String,
    pub version: Version,
    /// The range of Service cluster IPs, in 127/8, different for each API server of a run.
    pub service_range: String,
    /// More addresses at which clients reach it: its certificate contains them.
    pub addresses: Vec<Ipv4Addr>,
    /// More flags, after ours, so that they win.
    pub extra_arguments: Vec<String>,
}

impl ApiServerOptions {
    pub fn new(name: impl Into<String>, version: Version, service_range: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version,
            service_range: service_range.into(),
            addresses: Vec::new(),
            extra_arguments: Vec::new(),
        }
    }

    /// With the admission plugin that limits a kubelet to its own Node and Pods, as kubeadm and others configure it. The
    /// Node authorizer always runs.
    #[must_use]
    pub fn node_restriction(mut self) -> Self {
        let flag = "--enable-admission-plugins=NodeRestriction";
        self.extra_arguments.push(flag.to_owned());
        self
    }
}

/// A running API server with RBAC, an audit log, and users known by client certificate.
pub struct ApiServer {
    name: String,
    version: Version,
    home: PathBuf,
    url: String,
    authority: Authority,
    launch: Launch,
    process: Process,
}

impl ApiServer {
    /// Starts an API server whose files lie in `run`/NAME. Ready after 2 to 3 s on an idle machine.
    ///
    /// # Errors
    /// When a file cannot be written, the range is not in 127/8, or the server is not ready within 180 s.
    pub async fn start(
        tools: &Tools,
        run: &Path,
        etcd: &Etcd,
        options: &ApiServerOptions,
    ) -> Result<Self, ClusterError> {
        let home = run.join(&options.name);
        create_folder(&home)?;

        let authority = Authority::new(&format!("{}-ca", options.name))?;
        let mut addresses = vec![first_address(&options.service_range)?];
        addresses.extend(&options.addresses);
        write_secrets(&home, &authority, &addresses)?;

        let program = tools.path(options.version.api_server())?.to_owned();
        let (launch, process, url) = with_free_ports(|| async {
            let port = free_port()?;
            let url = format!("https://127.0.0.1:{port}");
            let launch = Launch::new("kube-apiserver", &program)
                .arguments(arguments(&home, etcd.url(), port, options))
                .environment("GOGC", "off")
                .environment("GOMEMLIMIT", MEMORY_LIMIT);
            let launch = with_processor_limit(launch);
            let process = Process::start(&launch, &home)?;
            wait_ready(&process, &options.name, &url, &authority).await?;
            Ok((launch, process, url))
        })
        .await?;

        Ok(Self {
            name: options.name.clone(),
            version: options.version,
            home,
            url,
            authority,
            launch,
            process,
        })
    }

    /// Stops it, within `grace`; its port and files stay reserved for [`ApiServer::start_again`].
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub async fn stop(&self, grace: Duration) -> Result<Exit, ClusterError> {
        Ok(self.process.stop(grace).await?)
    }

    /// Starts it again at the same address with the same data, after a stop or a kill.
    ///
    /// # Errors
    /// When it is not ready within 180 s.
    pub async fn start_again(&mut self) -> Result<(), ClusterError> {
        self.process = Process::start(&self.launch, &self.home)?;
        wait_ready(&self.process, &self.name, &self.url, &self.authority).await
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The folder with its keys, logs and kubeconfigs.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The audit log: one JSON event (`audit.k8s.io/v1`) a line, written before the client gets its response.
    pub fn audit_log(&self) -> PathBuf {
        self.home.join("audit.log")
    }

    /// The private key of service account tokens, for `--service-account-private-key-file`.
    pub fn service_account_key(&self) -> PathBuf {
        self.home.join("service-account.key")
    }

    /// The authority of its users.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Writes a kubeconfig for `user` with a new client certificate, and returns its path.
    ///
    /// # Errors
    /// When the certificate cannot be made or the file not written.
    pub fn kubeconfig(&self, user: &User) -> Result<PathBuf, ClusterError> {
        let content = self.authority.kubeconfig(&self.name, &self.url, user)?;
        let file = user
            .name()
            .replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
        let path = self.home.join(format!("{file}.kubeconfig"));
        write(&path, content.to_string())?;
        Ok(path)
    }

    /// A client for `user` that calls itself `user_agent`: the audit log tells callers apart by it.
    ///
    /// # Errors
    /// When the certificate or the client cannot be made.
    pub async fn client(&self, user: &User, user_agent: &str) -> Result<Client, ClusterError> {
        let content = self.authority.kubeconfig(&self.name, &self.url, user)?;
        client(&content, user, user_agent).await
    }

    /// A client that shows a bearer token, such as one of TokenRequest, and no certificate.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub async fn client_with_token(&self, token: &str, user_agent: &str) -> Result<Client, ClusterError> {
        let user = User::new("token");
        let mut content = self.authority.kubeconfig(&self.name, &self.url, &user)?;
        content["users"][0]["user"] = serde_json::json!({"token": token});
        client(&content, &user, user_agent).await
    }
}

async fn wait_ready(process: &Process, name: &str, url: &str, authority: &Authority) -> Result<(), ClusterError> {
    let admin = User::admin();
    let content = authority.kubeconfig(name, url, &admin)?;
    let client = client(&content, &admin, "outrigger-e2e").await?;
    // A server that is ready makes its namespaces a moment later.
    let paths = [
        "/readyz",
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/kube-system",
    ];
    let probe = || async {
        for path in paths {
            let request = http::Request::get(path).body(Vec::new());
            let request = request.map_err(|error| error.to_string())?;
            client
                .request_text(request)
                .await
                .map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    };

    Ok(process
        .ready("be ready, with its namespaces", Duration::from_secs(180), probe)
        .await?)
}

/// A client for the user of a kubeconfig.
///
/// # Errors
/// When the kubeconfig or the user agent cannot be used.
pub async fn client(content: &serde_json::Value, user: &User, user_agent: &str) -> Result<Client, ClusterError> {
    let failed = |reason: String| ClusterError::Client {
        user: user.name().to_owned(),
        reason,
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // Err: installed already, which is as good
    let file = Kubeconfig::from_yaml(&content.to_string()).map_err(|error| failed(error.to_string()))?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(error.to_string()))?;

    config.headers.push((
        http::header::USER_AGENT,
        http::HeaderValue::from_str(user_agent).map_err(|error| failed(error.to_string()))?,
    ));

    Client::try_from(config).map_err(|error| failed(error.to_string()))
}

fn write_secrets(home: &Path, authority: &Authority, addresses: &[Ipv4Addr]) -> Result<(), ClusterError> {
    let serving = authority.serving(addresses)?;
    let (private, public) = service_account_keys()?;
    // Only with an authority for front proxies does the server publish how it authenticates clients, which the
    // controller managers read to check those who ask for their metrics.
    let front_proxy = Authority::new("front-proxy-ca")?;
    write(&home.join("ca.crt"), authority.certificate())?;
    write(&home.join("front-proxy-ca.crt"), front_proxy.certificate())?;
    write(&home.join("serving.crt"), serving.certificate)?;
    write(&home.join("serving.key"), serving.key)?;
    write(&home.join("service-account.key"), private)?;
    write(&home.join("service-account.pub"), public)?;

    write(&home.join("audit-policy.yaml"), AUDIT_POLICY)
}

/// The flags of both minors. 10.0.0.1 is nobody's: the server must advertise an address that is not loopback, else it
/// refuses to start on a machine without a default route, or fails for ever to write its own Endpoints.
fn arguments(home: &Path, etcd: &str, port: u16, options: &ApiServerOptions) -> Vec<String> {
    let file = |name: &str| home.join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers={etcd}"),
        format!("--etcd-prefix=/{}", options.name),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--advertise-address=10.0.0.1".to_owned(),
        format!("--service-cluster-ip-range={}", options.service_range),
        format!("--tls-cert-file={}", file("serving.crt")),
        format!("--tls-private-key-file={}", file("serving.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--service-account-key-file={}", file("service-account.pub")),
        format!("--service-account-signing-key-file={}", file("service-account.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.yaml")),
        format!("--audit-log-path={}", file("audit.log")),
        "--audit-log-format=json".to_owned(),
        "--audit-log-mode=blocking".to_owned(),
    ];

    arguments.extend(options.extra_arguments.iter().cloned());
    arguments
}

/// The first address of the service range, which the `kubernetes` Service gets.
fn first_address(range: &str) -> Result<Ipv4Addr, ClusterError> {
    let failed = |reason: String| ClusterError::ServiceRange {
        range: range.to_owned(),
        reason,
    };
    let network = range.split_once('/').map_or(range, |(network, _)| network);
    let network: Ipv4Addr = network
        .parse()
        .map_err(|error: AddrParseError| failed(error.to_string()))?;
    if !network.is_loopback() || !range.contains('/') {
        return Err(failed("not a range of loopback addresses".to_owned()));
    }

    Ok(Ipv4Addr::from(u32::from(network) | 1))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::first_address;

    #[test]
    fn the_kubernetes_service_gets_the_first_address_of_the_range() {
        assert_eq!(first_address("127.96.0.0/16").ok(), Some(Ipv4Addr::new(127, 96, 0, 1)));
    }

    #[test]
    fn a_range_that_the_webhook_could_not_listen_in_is_refused() {
        for range in ["10.96.0.0/16", "127.96.0.0", "fd00::/108", ""] {
            assert!(first_address(range).is_err(), "{range}");
        }
    }
}

//! The clients of this process: Kubernetes clusters and the AWS account.

mod api_client;
mod client_layer;
mod own_instance;
mod service_account;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::client::ClientBuilder;
use kube::config::AuthInfo;
use kube::{Client, Config};
use outrigger_aws::imds::Metadata;
use outrigger_aws::{CallObserver, Clients, EndpointOverride, KeysFile, Proxies, Settings};
use outrigger_shared::kubeconfig::{self, Author};
use outrigger_shared::limited_file;

use crate::args::{MigrationCluster, Options};
use crate::cloud_config::overrides::{self, AwsService};
use crate::cloud_config::{self, CloudConfig, ClusterId};
use crate::metrics::RestClient;
use client_layer::{ClientLayer, Rate};
use own_instance::Own;
use service_account::Account;

/// The cloud as configuration names it.
pub struct Cloud {
    pub config: CloudConfig,
    pub region: String,
    pub cluster: ClusterId,
    pub vpc_id: String,
    /// A subnet for load balancers where tags name none: the file's, or the own instance's where that gave the VPC.
    pub subnet_id: Option<String>,
    pub clients: Clients,
}

impl Cloud {
    /// Reads the cloud configuration, creates the clients, and finds region, cluster and VPC: from flag, file and
    /// environment, then from the instance metadata service and the own instance's description. The last two are read
    /// only if a value is still missing, and never if the Pod runs in another cluster than that of the Services.
    /// `observer` is called at the end of each AWS call.
    ///
    /// # Errors
    /// Every problem names the flag, key or variable that solves it.
    pub async fn connect(options: &Options, observer: Arc<dyn CallObserver>) -> Result<Self> {
        let config = match &options.general.cloud_config {
            Some(path) => cloud_config::file::read(path, options.general.cloud_config_strict)?,
            None => CloudConfig::default(),
        };
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }

        for passed_over in &config.ignored {
            tracing::debug!("{passed_over}; ignored");
        }

        let environment = |name: &str| std::env::var(name).ok();
        let imds = overrides::find(&config.service_overrides, AwsService::Imds, "");
        let metadata = Metadata::new(imds.map(|section| section.url.as_str()), environment);
        let own = match options.migration.cluster {
            Some(MigrationCluster::InCluster) => Own::of_another_cluster(metadata),
            _ => Own::new(metadata),
        };
        let region = match config.given_region(options.general.region.as_deref(), environment)? {
            Some(given) => given,
            None => own.region().await?,
        };
        let given_cluster = config.given_cluster(options.general.cluster_id.as_deref())?;
        let settings = Settings {
            region: region.value.clone(),
            session_of: given_cluster
                .as_ref()
                .map(|cluster| cluster.id.clone())
                .unwrap_or_default(),
            endpoints: config.service_overrides.iter().map(endpoint).collect(),
            keys_file: keys_file(options.general.aws_keys_file.as_deref(), environment)?,
            role_arn: config.role_arn.clone(),
            source_arn: config.source_arn.clone(),
            app_name: String::new(),
            proxies: Proxies::from_environment(environment)?,
            ca_bundle: ca_bundle(environment)?,
            tcp_user_timeout: options.leader_election.tcp_user_timeout(),
        };

        let clients = outrigger_aws::connect(&settings, observer).await?;
        let cluster = match given_cluster {
            Some(cluster) => cluster,
            None => own.cluster(clients.ec2.as_ref()).await?,
        };
        let (vpc, subnet) = match config.given_vpc(options.general.vpc_id.as_deref()) {
            Some(given) => (given, None),
            None => own.vpc(clients.ec2.as_ref()).await?,
        };

        tracing::info!(
            region = region.value,
            region_from = region.source,
            vpc = vpc.value,
            vpc_from = vpc.source,
            cluster = cluster.id,
            "serving this cluster"
        );

        Ok(Self {
            region: region.value,
            cluster,
            vpc_id: vpc.value,
            subnet_id: config.subnet_id.clone().or(subnet),
            clients,
            config,
        })
    }
}

fn endpoint(section: &crate::cloud_config::ServiceOverride) -> EndpointOverride {
    EndpointOverride {
        service: section.service.clone(),
        region: section.region.clone(),
        url: section.url.clone(),
        signing_region: section.signing_region.clone(),
        signing_name: section.signing_name.clone().unwrap_or_default(),
    }
}

/// Variables that name credentials in another way. They may be injected into the Pod, for another account.
const OTHER_CREDENTIALS: [&str; 3] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// The file of `--aws-keys-file`, unless the environment has keys, which come first in the SDK, too.
///
/// # Errors
/// When the environment names credentials in another way.
fn keys_file(flag: Option<&Path>, environment: impl Fn(&str) -> Option<String>) -> Result<Option<KeysFile>> {
    let value = |name: &str| environment(name).filter(|value| !value.is_empty());
    let Some(path) = flag.filter(|_| value("AWS_ACCESS_KEY_ID").is_none()) else {
        return Ok(None);
    };
    if let Some(name) = OTHER_CREDENTIALS.iter().find(|name| value(name).is_some()) {
        bail!(
            "--aws-keys-file={} and {name} name different credentials; remove one of them",
            path.display()
        );
    }

    Ok(Some(KeysFile {
        path: path.to_owned(),
        profile: value("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()),
    }))
}

/// The configuration of a client, from the file that `flag` names.
async fn from_file(path: &Path, flag: &str, author: Author) -> Result<Config> {
    let config = kubeconfig::config(path, author).await;
    config.with_context(|| format!("{flag}={}", path.display()))
}

#[derive(Clone)]
pub struct Cluster {
    config: Config,
    counted: RestClient,
    /// A limit of requests for each client, only where a flag asks for one.
    rate: Option<Rate>,
    /// Whether each controller has a service account of its own.
    accounts: bool,
    /// See [`crate::args::LeaderElection::tcp_user_timeout`].
    tcp_user_timeout: Option<Duration>,
}

impl Cluster {
    /// The cluster that the flags name: `--kubeconfig`, `--master`, or the Pod's own. Requests of its clients are
    /// counted in `counted`.
    ///
    /// # Errors
    /// When the file cannot be used, or there is none and this is no Pod.
    pub async fn of(options: &Options, counted: RestClient) -> Result<Self> {
        // With `--migration-kubeconfig` the manager runs beside a hosted control plane, so that `--kubeconfig` is the
        // tenant's and must start no program in the management cluster.
        let author = match options.migration.cluster {
            Some(_) => Author::Tenant,
            None => Author::Operator,
        };
        let mut config = match &options.general.kubeconfig {
            Some(path) => from_file(path, "--kubeconfig", author).await?,
            None => match (Config::incluster(), &options.general.master) {
                (Ok(config), _) => config,
                (Err(_), Some(master)) => Config::new(
                    master
                        .parse()
                        .with_context(|| format!("--master={master} is not a URL"))?,
                ),
                (Err(error), None) => bail!("no API server: set --kubeconfig or --master, or run in a Pod ({error})"),
            },
        };

        if let Some(master) = &options.general.master {
            config.cluster_url = master
                .parse()
                .with_context(|| format!("--master={master} is not a URL"))?;
        }

        let general = &options.general;
        let limited = options.explicitly_set("kube-api-qps") || options.explicitly_set("kube-api-burst");
        Ok(Self {
            config,
            counted,
            rate: limited.then(|| Rate::of(general.kube_api_qps, general.kube_api_burst)),
            accounts: general.use_service_account_credentials,
            tcp_user_timeout: options.leader_election.tcp_user_timeout(),
        })
    }

    /// The cluster that holds the migration object: `--migration-kubeconfig`, else the same cluster.
    ///
    /// # Errors
    /// When the file cannot be used, or this is no Pod.
    pub async fn of_migration(options: &Options, own: &Self) -> Result<Self> {
        const FLAG: &str = "--migration-kubeconfig";
        match &options.migration.cluster {
            None => Ok(own.clone()),
            Some(MigrationCluster::Kubeconfig(path)) => own.or_of_file(Some(path), FLAG, Author::Tenant).await,
            Some(MigrationCluster::InCluster) => {
                let config = Config::incluster();
                let config = config.with_context(|| {
                    format!("{FLAG}=in-cluster: run in a Pod with a token of its service account, or name a kubeconfig")
                })?;
                Ok(Self { config, ..own.clone() })
            }
        }
    }

    /// The cluster of the kubeconfig that `flag` names, else this one. Requests are counted and limited as here.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub async fn or_of_file(&self, path: Option<&Path>, flag: &str, author: Author) -> Result<Self> {
        let config = match path {
            Some(path) => from_file(path, flag, author).await?,
            None => self.config.clone(),
        };
        Ok(Self { config, ..self.clone() })
    }

    /// A client with connections of its own, which audit logs show as `outrigger-manager/VERSION (OS/ARCH) PURPOSE`. With
    /// `--use-service-account-credentials` a controller's client acts as that controller's service account.
    ///
    /// # Errors
    /// When TLS refuses the certificates of the kubeconfig.
    pub fn client(&self, purpose: &str) -> Result<Client> {
        let mut config = self.config.clone();
        let account = service_account::of_purpose(purpose).filter(|_| self.accounts);
        let account = match account {
            Some(name) => {
                let root = Self {
                    accounts: false,
                    ..self.clone()
                };
                config.auth_info = AuthInfo::default();
                Some(Account::new(name, root.client("service-account-tokens")?))
            }
            None => None,
        };

        // The client would repeat a request, also a write, up to 15 times and as late as the server asks: after its
        // caller's right to write may have ended. Every caller here repeats by itself.
        config.default_retry = false;

        let (os, arch) = (std::env::consts::OS, crate::go_architecture());
        let agent = format!(
            "outrigger-manager/{} ({os}/{arch}) {purpose}",
            env!("CARGO_PKG_VERSION")
        );
        config
            .headers
            .push((http::header::USER_AGENT, agent.parse().context("user agent")?));

        let layer = self.counted.layer(&config.cluster_url);
        let client = api_client::client(&config, self.tcp_user_timeout, &layer);
        let client = client.context("creating a client for the API server")?;

        Ok(match ClientLayer::of(self.rate, account) {
            Some(layer) => {
                let namespace = client.default_namespace().to_owned();
                let service = tower::service_fn(move |request| {
                    let (client, layer) = (client.clone(), layer.clone());
                    async move { layer.send(request, |request| client.send(request)).await }
                });
                ClientBuilder::new(service, namespace).build()
            }
            None => client,
        })
    }
}

const CA_BUNDLE: &str = "AWS_CA_BUNDLE";

/// The authorities that the AWS clients trust: the content of the file that the variable names. `environment` gives
/// variables by name; an empty one counts as absent.
///
/// # Errors
/// When the file cannot be read, or holds anything but certificates.
fn ca_bundle(environment: impl Fn(&str) -> Option<String>) -> Result<Option<Vec<u8>>> {
    let Some(path) = environment(CA_BUNDLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };

    let pem = limited_file::read_text(Path::new(&path))
        .with_context(|| format!("{CA_BUNDLE}={path} cannot be read: mount the file there, or unset the variable"))?;
    let fix = || format!("{CA_BUNDLE}={path} is not a CA bundle: give PEM certificates only, or unset the variable");
    let roots = outrigger_certs::bundle::roots(&pem).with_context(fix)?;
    ensure!(!roots.is_empty(), fix());

    Ok(Some(pem.into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::metrics::Metrics;

    /// An API server that is overloaded, and counts how often it is asked.
    async fn overloaded(asked: Arc<AtomicU32>) -> std::io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                asked.fetch_add(1, Ordering::Relaxed);
                let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Ok(port)
    }

    #[tokio::test]
    async fn a_client_does_not_repeat_a_request_behind_its_callers_back() {
        let asked = Arc::default();
        let port = overloaded(Arc::clone(&asked)).await.unwrap();
        let cluster = Cluster {
            config: Config::new(format!("http://127.0.0.1:{port}").parse().unwrap()),
            counted: Metrics::new().rest_client(),
            rate: None,
            accounts: false,
            tcp_user_timeout: None,
        };
        let nodes = Api::<Node>::all(cluster.client("test").unwrap());
        assert!(nodes.delete("n", &Default::default()).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    /// Keeps the lines of request heads that matter, and answers every request with a token.
    async fn listening(heard: Arc<std::sync::Mutex<Vec<String>>>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = vec![0; 8192];
                let length = stream.read(&mut buffer).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let of = |start: &str| {
                    head.lines()
                        .find(|line| line.to_lowercase().starts_with(start))
                        .map(str::to_owned)
                };
                let line = head.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
                heard
                    .lock()
                    .unwrap()
                    .push(format!("{line} {}", of("authorization").unwrap_or_default()));
                let body = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                    "spec": {"audiences": [], "expirationSeconds": 3600},
                    "status": {"token": "own", "expirationTimestamp": "2026-01-01T00:00:00Z"}}"#;
                let answer = format!(
                    "HTTP/1.1 201 Created\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn a_controllers_client_acts_as_its_service_account_and_the_others_as_the_manager() {
        let heard: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let port = listening(Arc::clone(&heard)).await;
        let mut config = Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
        config.auth_info.token = Some("root".to_owned().into());
        let cluster = Cluster {
            config,
            counted: Metrics::new().rest_client(),
            rate: Some(Rate::of(100.0, 10)),
            accounts: true,
            tcp_user_timeout: None,
        };
        for purpose in ["service-controller", "shared-informers"] {
            let nodes = Api::<Node>::all(cluster.client(purpose).unwrap());
            let _ = nodes.get_opt("n").await;
        }
        let heard = heard.lock().unwrap().clone();
        let token =
            "POST /api/v1/namespaces/kube-system/serviceaccounts/service-controller/token? authorization: Bearer root";
        let node = |token: &str| format!("GET /api/v1/nodes/n authorization: Bearer {token}");
        assert_eq!(heard, [token.to_owned(), node("own"), node("root")]);
    }

    #[tokio::test]
    async fn only_the_operators_own_kubeconfig_starts_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
            clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
            contexts: [{name: c, context: {cluster: c, user: u}}]\n\
            users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /nonexistent}}}]\n";
        std::fs::write(&path, text).unwrap();
        let flag = |name: &str| format!("--{name}={}", path.display());
        let parsed = |more: &[String]| {
            let line = [&["--cloud-provider=aws".to_owned(), flag("kubeconfig")], more].concat();
            let crate::args::Request::Run(options) = crate::args::parse(&line).unwrap() else {
                panic!("{line:?}");
            };
            options
        };
        let assert_refused = |refused: Result<Cluster>, name: &str| {
            let told = format!("{:#}", refused.err().unwrap());
            let expected = format!("{}: user \"u\" has the field exec", flag(name));
            assert!(told.starts_with(&expected), "{told}");
        };

        let own = Cluster::of(&parsed(&[]), Metrics::new().rest_client()).await.unwrap();

        // A hosted control plane: the first file is the tenant's.
        let hosted = parsed(&["--migration=prod".to_owned(), flag("migration-kubeconfig")]);
        let tenant = Cluster::of(&hosted, Metrics::new().rest_client()).await;
        assert_refused(tenant, "kubeconfig");
        let management = Cluster::of_migration(&hosted, &own).await;
        assert_refused(management, "migration-kubeconfig");

        let in_cluster = parsed(&["--migration=prod".into(), "--migration-kubeconfig=in-cluster".into()]);
        let tenant = Cluster::of(&in_cluster, Metrics::new().rest_client()).await;
        assert_refused(tenant, "kubeconfig");
        let no_pod = Cluster::of_migration(&in_cluster, &own).await.err().unwrap();
        let told = no_pod.to_string();
        assert!(
            told.starts_with("--migration-kubeconfig=in-cluster: run in a Pod"),
            "{told}"
        );
    }
}

#[cfg(test)]
mod tests_of_ca_bundles {
    use super::*;

    fn read(path: &str) -> Result<Option<Vec<u8>>> {
        ca_bundle(|name| (name == CA_BUNDLE).then(|| path.to_owned()))
    }

    #[test]
    fn a_broken_bundle_is_an_error_that_names_variable_path_and_fix() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.display().to_string()
        };
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (path, text) in [
            (file("empty.pem", ""), "give PEM certificates only"),
            (file("text.pem", "no certificate"), "give PEM certificates only"),
            (file("broken.pem", broken), "give PEM certificates only"),
            (folder.path().join("absent.pem").display().to_string(), "mount the file"),
            (folder.path().display().to_string(), "mount the file"),
        ] {
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.starts_with(&format!("AWS_CA_BUNDLE={path} ")), "{error}");
            assert!(error.contains(text) && error.contains("unset the variable"), "{error}");
        }
    }

    #[test]
    fn certificates_are_taken_as_they_are_and_no_variable_is_no_bundle() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &certificate).unwrap();
        let taken = read(&file.path().display().to_string()).unwrap();
        assert_eq!(taken, Some(certificate.into_bytes()));
        assert_eq!(read("").unwrap(), None);
        assert_eq!(ca_bundle(|_| None).unwrap(), None);
    }
}

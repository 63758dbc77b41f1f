//! Reads a cluster: only `get` and `list`.

use std::time::Duration;

use futures::StreamExt as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DynamicObject;
use kube::{Client, Config};
use outrigger_api_client::AnswerLimit;
use outrigger_evidence::controller_manager::{CONTROL_PLANE, Locks};
use outrigger_evidence::record::Record;
use outrigger_shared::leader_migration::DEFAULT_LEADER_NAME;
use outrigger_shared::migration::{CloudProviderMigration, DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE, KUBE_SYSTEM};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use super::components::NodeLabels;
use super::nodes::{self, Metadata, SlimCsiNode, SlimNode};
use super::{
    API_VERSION, ClusterFacts, Component, KIND, Lease, MAX_NAMES, Migration, Names, Node, NotRead, Read, Registration,
    Service, Tenant, Webhook, components, definition, flags, tenants,
};

/// Objects of a page of a list.
const PAGE: u32 = 500;
/// Most objects of a list: a larger one is an error, so that nothing is taken for complete.
const MAX_OBJECTS: usize = 100_000;
/// Kubelets that are asked at the same time.
pub(super) const CONCURRENT: usize = 64;
/// One kubelet may take so long; the others do not wait for it.
const KUBELET_TIMEOUT: Duration = Duration::from_secs(5);

/// The finalizer of every service controller.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The driver of the EBS CSI driver.
const EBS_DRIVER: &str = "ebs.csi.aws.com";
/// Webhooks of Outrigger have this suffix.
const WEBHOOK_SUFFIX: &str = ".outrigger.dev";

/// Which kubelets are asked for their command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kubelets {
    /// Every kubelet
    #[default]
    All,
    /// No kubelet
    None,
}

/// How a cluster is reached, as kubectl says it.
#[derive(Clone, Debug)]
pub struct Access {
    pub kubeconfig: Option<std::path::PathBuf>,
    pub context: Option<String>,
    /// Of each request.
    pub timeout: Duration,
    pub kubelets: Kubelets,
}

/// Why a cluster cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("kubeconfig: {0}")]
    Config(#[from] kube::config::InferConfigError),
    #[error(
        "the kubeconfig or HTTPS_PROXY names a proxy, which this command cannot use yet; run kubectl proxy and name that address, or unset it"
    )]
    Proxy,
    #[error("{server} cannot be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("{server} does not accept your credentials; kubectl auth whoami shows who you are")]
    Unauthorized { server: String },
    #[error("nothing of {server} can be read: {reason}")]
    NothingRead { server: String, reason: String },
}

/// Which parts of a cluster are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sections {
    All,
    /// Those of the position of a migration.
    Position,
    /// The same without Nodes: they are many, and the read is repeated.
    PositionAgain,
    /// Those of its steps: of Nodes, those of the control plane count, as every kubelet can make a mirror Pod.
    Steps,
    /// Without Nodes, the parts that show which versions are installed.
    Versions,
}

/// The names of the contexts that a pattern names; `*` stands for any text.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub fn contexts(access: &Access, pattern: &str) -> Result<Vec<String>, Error> {
    let names = kubeconfig(access)?.contexts.into_iter().map(|context| context.name);
    Ok(names.filter(|name| matches(pattern, name)).collect())
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(behind) = name.strip_prefix(first) else {
        return false;
    };
    let mut starts = (0..=behind.len()).filter_map(|at| behind.get(at..));
    starts.any(|end| matches(rest, end))
}

fn kubeconfig(access: &Access) -> Result<Kubeconfig, Error> {
    Ok(match &access.kubeconfig {
        Some(file) => Kubeconfig::read_from(file)?,
        None => Kubeconfig::read()?,
    })
}

async fn config(access: &Access) -> Result<Config, Error> {
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = match (&access.kubeconfig, &access.context) {
        // In a Pod there is no kubeconfig.
        (None, None) => Config::infer().await?,
        _ => Config::from_custom_kubeconfig(kubeconfig(access)?, &options).await?,
    };
    config.connect_timeout = Some(access.timeout);
    config.read_timeout = Some(access.timeout);

    Ok(config)
}

/// Connects to a cluster, and reads nothing yet.
///
/// # Errors
/// When the kubeconfig is wrong, or its exec plugin gives no credentials in time.
pub async fn connect(access: &Access) -> Result<Reader, Error> {
    let config = config(access).await?;
    let (host, scheme) = (config.cluster_url.authority(), config.cluster_url.scheme_str());
    let host = host.map(|host| host.as_str().rsplit('@').next().unwrap_or_default());
    let server = format!("{}://{}", scheme.unwrap_or("https"), host.unwrap_or_default());
    if config.proxy_url.is_some() {
        return Err(Error::Proxy);
    }

    // An exec plugin of the kubeconfig runs here.
    let built = tokio::task::spawn_blocking(move || ClientBuilder::try_from(config));
    let unreachable = |reason: String| Error::Unreachable {
        server: server.clone(),
        reason,
    };
    let built = timeout(access.timeout * PARTS_OF_A_LIST, built).await;
    let built = built.map_err(|_| unreachable("the exec plugin of the kubeconfig does not end".to_owned()))?;
    let builder = built.map_err(|error| unreachable(error.to_string()))?;
    let builder = builder.map_err(|error| unreachable(reason(&error)))?;
    let context = match &access.context {
        Some(context) => Some(context.clone()),
        None => kubeconfig(access).ok().and_then(|config| config.current_context),
    };

    Ok(Reader {
        client: builder.with_layer(&AnswerLimit::of_users()).build(),
        timeout: access.timeout,
        kubelets: access.kubelets,
        server,
        context,
    })
}

/// A list may take so many times the time of a request.
const PARTS_OF_A_LIST: u32 = 6;

/// The leases that the first migration of this cluster names.
fn locks(migrations: &[Migration]) -> Locks {
    let first = migrations.iter().find(|migration| !migration.is_elsewhere());
    first.map_or_else(
        || Locks {
            namespace: KUBE_SYSTEM.to_owned(),
            main: DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned(),
            migration: DEFAULT_LEADER_NAME.to_owned(),
        },
        locks_of,
    )
}

pub(super) fn locks_of(migration: &Migration) -> Locks {
    Locks {
        namespace: KUBE_SYSTEM.to_owned(),
        main: migration.main_lease.clone(),
        migration: migration.migration_lease.clone(),
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// A connection to a cluster.
pub struct Reader {
    client: Client,
    timeout: Duration,
    kubelets: Kubelets,
    server: String,
    context: Option<String>,
}

/// Why a request has no answer.
pub(super) enum Failed {
    /// The API server has no such resource or object.
    NotFound,
    NotRead(NotRead),
}

impl Failed {
    pub(super) fn of(self, what: &str) -> NotRead {
        match self {
            Self::NotFound => NotRead::because(format!("{what}: not found")),
            Self::NotRead(why) => why,
        }
    }
}

/// The answer to the first request.
struct Hello {
    version: Read<String>,
    /// By the API server's clock.
    at: Timestamp,
    clock_ahead_seconds: i64,
}

/// The parts that only some commands need.
struct Rest {
    registrations: Result<Vec<Registration>, NotRead>,
    volumes: Result<Names, NotRead>,
    has_driver: Result<bool, NotRead>,
    services: Result<Vec<Service>, NotRead>,
    tenants: Result<Vec<Tenant>, NotRead>,
    definition: Result<Vec<String>, NotRead>,
    webhooks: Result<Vec<Webhook>, NotRead>,
}

impl Rest {
    fn unneeded() -> Self {
        let why = || NotRead::because("not needed");
        Self {
            registrations: Err(why()),
            volumes: Err(why()),
            has_driver: Err(why()),
            services: Err(why()),
            tenants: Err(why()),
            definition: Err(why()),
            webhooks: Err(why()),
        }
    }
}

impl Reader {
    /// For the commands that also write.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The address of the API server.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Reads the cluster.
    ///
    /// # Errors
    /// When the API server does not answer in time, does not accept the credentials, or lets nothing be read. All other
    /// failures are in the facts.
    pub async fn read(&self, sections: Sections) -> Result<ClusterFacts, Error> {
        let hello = self.hello().await?;
        let (migrations, nodes, components) = Box::pin(self.of_migration(sections)).await;
        let leases = self.leases(&locks(migrations.as_deref().unwrap_or_default())).await;
        let reads = (components.as_ref().err(), nodes.as_ref().err(), leases.as_ref().err());
        if let (Some(why), Some(_), Some(_)) = reads
            && migrations.is_err()
            && why.right.is_none()
        {
            return Err(Error::NothingRead {
                server: self.server.clone(),
                reason: why.reason.clone(),
            });
        }

        let rest = match sections {
            Sections::All => Box::pin(self.rest(migrations.as_deref())).await,
            Sections::Versions => Rest {
                tenants: Box::pin(tenants::read(self, migrations.as_deref())).await,
                definition: self.definition().await,
                webhooks: self.webhooks().await,
                ..Rest::unneeded()
            },
            Sections::Steps => Rest {
                tenants: Box::pin(tenants::read(self, migrations.as_deref())).await,
                ..Rest::unneeded()
            },
            Sections::Position | Sections::PositionAgain => Rest::unneeded(),
        };

        Ok(ClusterFacts {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            context: self.context.clone(),
            by: env!("CARGO_PKG_VERSION").to_owned(),
            at: hello.at,
            clock_ahead_seconds: hello.clock_ahead_seconds,
            version: hello.version,
            components: components.into(),
            nodes: nodes.into(),
            leases: leases.into(),
            migrations: migrations.into(),
            registrations: rest.registrations.into(),
            ebs_volumes: rest.volumes.into(),
            has_ebs_csi_driver: rest.has_driver.into(),
            services: rest.services.into(),
            tenants: rest.tenants.into(),
            definition: rest.definition.into(),
            webhooks: rest.webhooks.into(),
        })
    }

    /// The migrations, the Nodes, and the components of the control plane.
    async fn of_migration(
        &self,
        sections: Sections,
    ) -> (
        Result<Vec<Migration>, NotRead>,
        Result<Vec<Node>, NotRead>,
        Result<Vec<Component>, NotRead>,
    ) {
        let read_nodes = async {
            match sections {
                Sections::All | Sections::Position => self.nodes().await,
                Sections::Steps => self.control_plane_nodes().await,
                Sections::PositionAgain | Sections::Versions => Err(NotRead::because("not needed")),
            }
        };
        let (migrations, labels) = tokio::join!(self.migrations(), read_nodes);
        let locks = locks(migrations.as_deref().unwrap_or_default());
        let by_name = labels.as_ref().ok().map(|nodes| {
            let pairs = nodes
                .iter()
                .map(|node| (node.metadata.name.clone(), node.metadata.labels.clone()));
            pairs.collect::<NodeLabels>()
        });
        let components = self.components(by_name.as_ref(), &locks).await;

        let nodes = match (labels, sections) {
            (Err(why), _) => Err(why),
            (Ok(nodes), Sections::All) => Ok(self.with_details(&nodes).await),
            (Ok(nodes), _) => {
                let not_read = || Read::NotRead(NotRead::because("not needed"));
                Ok(nodes.iter().map(|node| nodes::of_node(node, not_read())).collect())
            }
        };

        (migrations, nodes, components)
    }

    async fn rest(&self, migrations: Result<&[Migration], &NotRead>) -> Rest {
        let (registrations, volumes, has_driver, services, tenants, definition, webhooks) = tokio::join!(
            self.registrations(),
            self.ebs_volumes(),
            self.has_driver(),
            self.services(),
            tenants::read(self, migrations),
            self.definition(),
            self.webhooks(),
        );
        Rest {
            registrations,
            volumes,
            has_driver,
            services,
            tenants,
            definition,
            webhooks,
        }
    }

    /// The version. The answer has the API server's clock.
    async fn hello(&self) -> Result<Hello, Error> {
        let unreachable = |reason: String| Error::Unreachable {
            server: self.server.clone(),
            reason,
        };
        let now = Timestamp::now();
        let request = Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| unreachable(error.to_string()))?;
        let answer = timeout(self.timeout, self.client.send(request)).await;
        let answer = answer.map_err(|_| unreachable(format!("no answer in {} s", self.timeout.as_secs())))?;
        let answer = answer.map_err(|error| unreachable(reason(&error)))?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(Error::Unauthorized {
                server: self.server.clone(),
            });
        }

        let date = answer
            .headers()
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        let at = date.map_or(now, |date| date.timestamp());
        let body = timeout(self.timeout, Limited::new(answer.into_body(), MAX_TEXT).collect()).await;
        let version = match body {
            Ok(Ok(body)) if status.is_success() => {
                let info: Result<Version, _> = serde_json::from_slice(&body.to_bytes());
                info.map(|info| info.git_version)
                    .map_err(|_| NotRead::because("its version is no JSON"))
            }
            _ => Err(NotRead::because(format!("the version: HTTP {}", status.as_u16()))),
        };

        Ok(Hello {
            version: version.into(),
            at,
            clock_ahead_seconds: now.duration_since(at).as_secs(),
        })
    }

    /// `what`: the resource, as a rule of RBAC names it. `verb`: the right that the request needs.
    async fn get<T: DeserializeOwned>(&self, (verb, what): (&str, &str), path: &str) -> Result<T, Failed> {
        let not_read = |reason: String| Failed::NotRead(NotRead::because(format!("{what}: {reason}")));
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| not_read(error.to_string()))?;
        match timeout(self.timeout, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(Failed::NotRead(NotRead {
                reason: format!("{what}: forbidden"),
                right: Some(format!("{verb} {what}")),
            })),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Failed::NotFound),
            Ok(Err(error)) => Err(not_read(reason(&error))),
            Err(_) => Err(not_read(format!("no answer in {} s", self.timeout.as_secs()))),
        }
    }

    /// All objects of a list, each reduced as it comes.
    pub(super) async fn list<T: DeserializeOwned, U>(
        &self,
        what: &str,
        path: &str,
        mut reduce: impl FnMut(T) -> Option<U>,
    ) -> Result<Vec<U>, Failed> {
        let not_read = |reason: String| Failed::NotRead(NotRead::because(format!("{what}: {reason}")));
        let read = async {
            let (mut kept, mut count, mut next) = (Vec::new(), 0, Some(String::new()));
            while let Some(token) = next {
                let page: Page<T> = self.get(("list", what), &page_path(path, &token)).await?;
                next = page.metadata.next.filter(|next| !next.is_empty());
                count += page.items.len();
                if count > MAX_OBJECTS || page.items.is_empty() && next.is_some() {
                    return Err(not_read(format!(
                        "more than {MAX_OBJECTS} objects, or a list without an end"
                    )));
                }
                kept.extend(page.items.into_iter().filter_map(&mut reduce));
            }
            Ok(kept)
        };

        let most = self.timeout * PARTS_OF_A_LIST;
        timeout(most, read)
            .await
            .unwrap_or_else(|_| Err(not_read(format!("not complete in {} s", most.as_secs()))))
    }

    async fn nodes(&self) -> Result<Vec<SlimNode>, NotRead> {
        let all = self.list("nodes", "/api/v1/nodes", Some::<SlimNode>);
        all.await.map_err(|failed| failed.of("nodes"))
    }

    async fn control_plane_nodes(&self) -> Result<Vec<SlimNode>, NotRead> {
        let mut nodes = Vec::new();
        for label in CONTROL_PLANE {
            let path = format!("/api/v1/nodes?labelSelector={}", encoded(label));
            let labelled = self.list("nodes", &path, Some::<SlimNode>).await;
            nodes.extend(labelled.map_err(|failed| failed.of("nodes"))?);
        }
        Ok(nodes)
    }

    async fn components(&self, nodes: Option<&NodeLabels>, locks: &Locks) -> Result<Vec<Component>, NotRead> {
        let what = "pods in kube-system";
        let of_pod = |pod: DynamicObject| Some(components::of_pod(&pod, nodes, locks)).filter(|all| !all.is_empty());
        let all = self.list(what, "/api/v1/namespaces/kube-system/pods", of_pod).await;
        Ok(all.map_err(|failed| failed.of(what))?.into_iter().flatten().collect())
    }

    /// Nodes with the facts of their CSINodes and kubelets.
    async fn with_details(&self, nodes: &[SlimNode]) -> Vec<Node> {
        let what = "csinodes";
        let csi = self
            .list(what, "/apis/storage.k8s.io/v1/csinodes", Some::<SlimCsiNode>)
            .await;
        let csi = csi.map_err(|failed| failed.of(what));
        let migrates = csi.as_deref().map(nodes::migrations_of_ebs);
        let of_node = |node: &SlimNode| {
            let name = node.metadata.name.as_str();
            let migrates = migrates.as_ref().map(|all| all.get(name).copied().unwrap_or_default());
            nodes::of_node(node, migrates.map_err(|why| (*why).clone()).into())
        };
        let nodes = nodes.iter().map(of_node).collect();

        match self.kubelets {
            Kubelets::All => self.with_kubelets(nodes).await,
            Kubelets::None => nodes,
        }
    }

    /// None, too, if there is no such resource. Before the installation nobody may have the right to list them.
    async fn migrations(&self) -> Result<Vec<Migration>, NotRead> {
        let what = "cloudprovidermigrations.outrigger.dev";
        let path = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
        match self.list(what, path, Some::<Value>).await {
            Ok(all) => all
                .into_iter()
                .map(|object| migration(object).map_err(NotRead::because))
                .collect(),
            Err(Failed::NotFound) => Ok(Vec::new()),
            Err(Failed::NotRead(why)) if why.right.is_some() => {
                match self.get::<Value>(("get", "/apis"), "/apis/outrigger.dev").await {
                    Err(Failed::NotFound) => Ok(Vec::new()),
                    _ => Err(why),
                }
            }
            Err(failed) => Err(failed.of(what)),
        }
    }

    async fn leases(&self, locks: &Locks) -> Result<Vec<Lease>, NotRead> {
        let mut leases = Vec::new();
        for name in [locks.main.as_str(), &locks.migration, OWN_LEASE] {
            let path = format!(
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}",
                encoded(name)
            );
            match self.get::<DynamicObject>(("get", "leases in kube-system"), &path).await {
                Ok(object) => leases.push(lease(&object)),
                Err(Failed::NotFound) => {}
                Err(Failed::NotRead(why)) => return Err(why),
            }
        }

        Ok(leases)
    }

    async fn registrations(&self) -> Result<Vec<Registration>, NotRead> {
        let what = "mutatingwebhookconfigurations";
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let all = self
            .list(what, path, |object: DynamicObject| registration(&object))
            .await;
        all.map_err(|failed| failed.of(what))
    }

    async fn ebs_volumes(&self) -> Result<Names, NotRead> {
        let what = "persistentvolumes";
        let of_ebs = |volume: SlimVolume| volume.spec.is_of_ebs().then_some(volume.metadata.name);
        let names = self.list(what, "/api/v1/persistentvolumes", of_ebs).await;
        let names = names.map_err(|failed| failed.of(what))?;
        Ok(Names {
            count: names.len(),
            names: names.into_iter().take(MAX_NAMES).collect(),
        })
    }

    async fn has_driver(&self) -> Result<bool, NotRead> {
        let what = "csidrivers";
        let of_ebs = |driver: SlimCsiNode| (driver.metadata.name == EBS_DRIVER).then_some(());
        let found = self.list(what, "/apis/storage.k8s.io/v1/csidrivers", of_ebs).await;
        Ok(!found.map_err(|failed| failed.of(what))?.is_empty())
    }

    async fn services(&self) -> Result<Vec<Service>, NotRead> {
        let all = self
            .list("services", "/api/v1/services", |object: DynamicObject| service(&object))
            .await;
        all.map_err(|failed| failed.of("services"))
    }

    async fn definition(&self) -> Result<Vec<String>, NotRead> {
        let what = "customresourcedefinitions";
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cloudprovidermigrations.outrigger.dev";
        match self.get::<Value>(("get", what), path).await {
            Ok(object) => Ok(definition::fields(&object)),
            Err(Failed::NotFound) => Ok(Vec::new()),
            Err(Failed::NotRead(why)) => Err(why),
        }
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, NotRead> {
        let path = "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Doutrigger-webhook";
        let all = self
            .list("pods", path, |pod: DynamicObject| components::webhook(&pod))
            .await;
        all.map_err(|failed| failed.of("pods"))
    }

    /// Asks the kubelets. The annotation of RKE2 or K3s counts where the process does not tell.
    async fn with_kubelets(&self, nodes: Vec<Node>) -> Vec<Node> {
        let asked = nodes.into_iter().map(|node| async {
            let of_process = self.kubelet(&node).await;
            let kubelet = match (&of_process, &node.kubelet) {
                (Read::NotRead(_), Read::Known(of_annotation)) => Read::Known(of_annotation.clone()),
                _ => of_process,
            };
            Node { kubelet, ..node }
        });
        let mut all: Vec<Node> = futures::stream::iter(asked)
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        all.sort_by(|left, right| left.name.cmp(&right.name));

        all
    }

    /// <https://github.com/kubernetes/kubernetes/blob/v1.26.13/pkg/kubelet/server/server.go> (`InstallDebuggingHandlers`)
    async fn kubelet(&self, node: &Node) -> Read<super::Kubelet> {
        let path = format!("/api/v1/nodes/{}/proxy/debug/pprof/cmdline", encoded(&node.name));
        let not_read = |reason: String| Read::NotRead(NotRead::because(reason));
        let Ok(request) = Request::get(path).body(Body::empty()) else {
            return not_read("the name of the Node is no part of a URL".to_owned());
        };

        let most = KUBELET_TIMEOUT.min(self.timeout);
        let read = async {
            let answer = self.client.send(request).await.map_err(|error| reason(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_TEXT).collect().await;
            let body = body.map_err(|_| "its answer is too long".to_owned())?;
            Ok::<_, String>((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        match timeout(most, read).await {
            Ok(Ok((status, text))) if status.is_success() => nodes::of_process(&text, &node.kubelet_version),
            Ok(Ok((StatusCode::FORBIDDEN, text))) if text.contains(r#""kind":"Status""#) => Read::NotRead(NotRead {
                reason: "nodes/proxy: forbidden".to_owned(),
                right: Some("get nodes/proxy".to_owned()),
            }),
            // The text is the kubelet's, or that of anything in between.
            Ok(Ok((status, _))) => not_read(format!(
                "its kubelet does not tell its command line: HTTP {}",
                status.as_u16()
            )),
            Ok(Err(reason)) => not_read(format!("its kubelet does not tell its command line: {reason}")),
            Err(_) => not_read(format!("its kubelet does not answer in {} s", most.as_secs())),
        }
    }
}

/// Most bytes of a command line, and of a version.
const MAX_TEXT: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

/// The lease of the cloud-controller-managers.
const OWN_LEASE: &str = "cloud-controller-manager";

fn page_path(path: &str, token: &str) -> String {
    let sign = if path.contains('?') { '&' } else { '?' };
    match token.is_empty() {
        true => format!("{path}{sign}limit={PAGE}"),
        false => format!("{path}{sign}limit={PAGE}&continue={}", encoded(token)),
    }
}

/// A text as a part of a URL.
pub(super) fn encoded(text: &str) -> String {
    let encode = |byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Why a request failed, on one line. The text of an answer is left out: anything may be in it.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("HTTP {} {}", status.code, flags::reason(&status.reason)),
        kube::Error::SerdeError(error) => {
            let (line, column) = (error.line(), error.column());
            format!("an unexpected answer at line {line}, column {column}")
        }
        kube::Error::Auth(_) => "the kubeconfig's exec plugin or token gives no credentials".to_owned(),
        other => flags::reason(&chain(other)),
    }
}

/// An error with its sources, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }

    text.replace('\n', " ")
}

/// # Errors
/// Names the object that this version does not know completely.
fn migration(object: Value) -> Result<Migration, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let object: CloudProviderMigration = serde_json::from_value(object).map_err(|error| {
        format!(
            "{name}: this version of outrigger does not know all of it: {}",
            flags::reason(&error.to_string())
        )
    })?;
    let spec = &object.spec;
    let leader = spec.leader_migration.as_ref().map(|own| own.leader_name.clone());
    Ok(Migration {
        name,
        phase: spec.phase,
        generation: object.metadata.generation,
        main_lease: spec.kube_controller_manager_lease.clone(),
        migration_lease: leader.unwrap_or_else(|| DEFAULT_LEADER_NAME.to_owned()),
        profiles: spec.targets.iter().map(|target| target.profile).collect(),
        targets: spec.targets.clone(),
        is_attested: spec.attestation.is_some(),
        is_downtime: spec.downtime,
        status: object.status,
    })
}

fn lease(object: &DynamicObject) -> Lease {
    let record = Record::of(object);
    Lease {
        name: object.metadata.name.clone().unwrap_or_default(),
        holder: record.holder,
        duration_seconds: record.duration.as_secs(),
        renewed: record.renew_time,
        acquired: record.acquire_time,
    }
}

fn registration(object: &DynamicObject) -> Option<Registration> {
    let webhooks = object.data["webhooks"].as_array()?;
    let name = |webhook: &Value| webhook["name"].as_str().unwrap_or_default().to_owned();
    let ours: Vec<&Value> = webhooks
        .iter()
        .filter(|webhook| name(webhook).ends_with(WEBHOOK_SUFFIX))
        .collect();
    let has_ca = |webhook: &&&Value| {
        let bundle = webhook["clientConfig"]["caBundle"].as_str();
        bundle.is_some_and(|bundle| !bundle.is_empty())
    };
    (!ours.is_empty()).then(|| Registration {
        name: object.metadata.name.clone().unwrap_or_default(),
        webhooks: ours.len(),
        without_ca: ours
            .iter()
            .filter(|webhook| !has_ca(webhook))
            .map(|webhook| name(webhook))
            .collect(),
        calls_service: ours
            .iter()
            .any(|webhook| webhook["clientConfig"]["service"].is_object()),
    })
}

fn service(object: &DynamicObject) -> Option<Service> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let is_balanced = spec["type"] == *"LoadBalancer" && spec["loadBalancerClass"].is_null();
    let metadata = &object.metadata;
    let name = |part: &Option<String>| part.clone().unwrap_or_default();
    let finalizers = metadata.finalizers.iter().flatten();
    is_balanced.then(|| Service {
        name: format!("{}/{}", name(&metadata.namespace), name(&metadata.name)),
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleted: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        has_address: status["loadBalancer"]["ingress"]
            .as_array()
            .is_some_and(|all| !all.is_empty()),
        addressed: addressed(object),
        has_finalizer: finalizers.into_iter().any(|finalizer| finalizer == FINALIZER),
    })
}

/// The newest entry of `managedFields` with the address.
fn addressed(object: &DynamicObject) -> Option<Timestamp> {
    let entries = object.metadata.managed_fields.iter().flatten();
    let of_address = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields.is_some_and(|fields| !fields["f:status"]["f:loadBalancer"]["f:ingress"].is_null())
    });
    of_address
        .filter_map(|entry| entry.time.as_ref().map(|time| time.0))
        .max()
}

#[derive(Deserialize)]
struct SlimVolume {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: SlimVolumeSpec,
}

#[derive(Default, Deserialize)]
struct SlimVolumeSpec {
    #[serde(default, rename = "awsElasticBlockStore")]
    in_tree: Option<Value>,
    #[serde(default)]
    csi: Option<SlimCsi>,
}

#[derive(Deserialize)]
struct SlimCsi {
    #[serde(default)]
    driver: String,
}

impl SlimVolumeSpec {
    fn is_of_ebs(&self) -> bool {
        self.in_tree.is_some() || self.csi.as_ref().is_some_and(|csi| csi.driver == EBS_DRIVER)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, fits) in [
            ("prod", "prod", true),
            ("prod", "prod-1", false),
            ("prod-*", "prod-1", true),
            ("*", "x", true),
            ("*-eu-*", "prod-eu-1", true),
            ("*-eu-*", "prod-us-1", false),
            ("a*b*c", "abbc", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn the_token_of_a_page_is_encoded() {
        assert_eq!(page_path("/api/v1/nodes", ""), "/api/v1/nodes?limit=500");
        assert_eq!(page_path("/x", "a+b=&"), "/x?limit=500&continue=a%2Bb%3D%26");
        assert_eq!(page_path("/x?a=b", "c"), "/x?a=b&limit=500&continue=c");
    }

    #[test]
    fn services_of_other_controllers_are_left_out() {
        let object = |spec: Value| {
            serde_json::from_value::<DynamicObject>(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {
                    "namespace": "a", "name": "b", "finalizers": [FINALIZER],
                    "managedFields": [
                        {"manager": "kubectl", "operation": "Update", "time": "2026-11-30T12:00:00Z", "fieldsV1": {"f:spec": {}}},
                        {
                            "manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
                            "time": "2026-11-30T11:00:00Z",
                            "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
                        },
                    ],
                },
                "spec": spec, "status": {"loadBalancer": {"ingress": [{"hostname": "x"}]}},
            }))
            .unwrap()
        };
        let found = service(&object(json!({"type": "LoadBalancer"}))).unwrap();
        assert_eq!(
            (found.name.as_str(), found.has_address, found.has_finalizer),
            ("a/b", true, true)
        );
        assert_eq!(found.addressed, Some("2026-11-30T11:00:00Z".parse().unwrap()));
        assert!(service(&object(json!({"type": "ClusterIP"}))).is_none());
        assert!(service(&object(json!({"type": "LoadBalancer", "loadBalancerClass": "x/y"}))).is_none());
    }

    #[test]
    fn only_webhooks_of_outrigger_count() {
        let object = |webhooks: Value| {
            serde_json::from_value::<DynamicObject>(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "w"}, "webhooks": webhooks,
            }))
            .unwrap()
        };
        let found = registration(&object(json!([
            {"name": "nodes.outrigger.dev", "clientConfig": {"caBundle": "eA==", "service": {"name": "s"}}},
            {"name": "pods.outrigger.dev", "clientConfig": {}},
            {"name": "other.example.com", "clientConfig": {}},
        ])));
        let expected = Registration {
            name: "w".into(),
            webhooks: 2,
            without_ca: vec!["pods.outrigger.dev".into()],
            calls_service: true,
        };
        assert_eq!(found, Some(expected));
        assert_eq!(registration(&object(json!([{"name": "other.example.com"}]))), None);
    }

    #[test]
    fn volumes_of_ebs_are_in_tree_or_of_the_driver() {
        let spec = |value: Value| serde_json::from_value::<SlimVolumeSpec>(value).unwrap();
        assert!(spec(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}})).is_of_ebs());
        assert!(spec(json!({"csi": {"driver": EBS_DRIVER}})).is_of_ebs());
        assert!(!spec(json!({"csi": {"driver": "efs.csi.aws.com"}})).is_of_ebs());
        assert!(!spec(json!({"nfs": {}})).is_of_ebs());
    }
}

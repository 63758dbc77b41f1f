//! A control plane with the authorizer and the admission plugin of Nodes, our manager, and principals with credentials of
//! their own.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::leases::{Lease, LeaseChange, LeaseName, Recorder};
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::manager::Manager;
use super::request::{self, K, MIGRATIONS, NODES, Pod, ROLE};
use super::stand_in::{Acting, Form, StandIn};

/// Much longer than anything takes.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Longer than our manager needs to report what it reads.
const SAID: Duration = Duration::from_secs(30);
pub const TEAM: &str = "team-a";
pub const SYSTEM: &str = "kube-system";
pub const MIGRATION: &str = "cluster";
pub const CLUSTER: &str = "prod";
/// The holder of a forged record.
pub const THIEF: &str = "thief_1";
const AGENT: &str = "lease-attacks";

/// The Nodes of the control plane, and a worker.
pub const FIRST: Host = Host::new("ip-10-0-0-11.ec2.internal", "10.0.0.11");
pub const SECOND: Host = Host::new("ip-10-0-0-12.ec2.internal", "10.0.0.12");
pub const WORKER: Host = Host::new("ip-10-0-0-21.ec2.internal", "10.0.0.21");

#[derive(Debug, Clone, Copy)]
pub struct Host {
    pub name: &'static str,
    pub address: &'static str,
}

impl Host {
    pub const fn new(name: &'static str, address: &'static str) -> Self {
        Self { name, address }
    }

    /// Without the domain: a Pod may have no other host name.
    pub fn label(self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }
}

/// Each has the credentials that it has in a real cluster, and nothing is impersonated.
pub struct Principals {
    /// ClusterRole `edit` in one namespace.
    pub team_editor: Client,
    /// ClusterRole `edit` in kube-system.
    pub system_editor: Client,
    pub worker_kubelet: Client,
    pub first_kubelet: Client,
    pub second_kubelet: Client,
    /// ClusterRole `outrigger-operator`.
    pub operator: Client,
}

impl Principals {
    async fn of(api: &ApiServer, admin: &Client) -> Self {
        let kubelet = async |host: Host| {
            let user = User::new(format!("system:node:{}", host.name)).in_group("system:nodes");
            api.client(&user, AGENT).await.expect("a client")
        };
        Self {
            team_editor: editor(api, admin, TEAM).await,
            system_editor: editor(api, admin, SYSTEM).await,
            worker_kubelet: kubelet(WORKER).await,
            first_kubelet: kubelet(FIRST).await,
            second_kubelet: kubelet(SECOND).await,
            operator: operator(api, admin).await,
        }
    }
}

/// A user with ClusterRole `outrigger-operator`.
pub async fn operator(api: &ApiServer, admin: &Client) -> Client {
    let name = "olivia";
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "outrigger-operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    manifests::apply(admin, &[binding]).await.expect("bound");
    api.client(&User::new(name), AGENT).await.expect("a client")
}

/// A ServiceAccount with the rules of ClusterRole `edit` in a namespace, by a token of TokenRequest. Without a
/// kube-controller-manager no controller fills `edit`, so the roles are bound that it is made of.
pub async fn editor(api: &ApiServer, admin: &Client, namespace: &str) -> Client {
    let binding = |role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": format!("editor:{role}"), "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": namespace}],
        })
    };
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        // Pods need it, and a kube-controller-manager would create it.
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "editor", "namespace": namespace}}),
        binding("system:aggregate-to-edit"),
        binding("system:aggregate-to-view"),
    ];
    manifests::apply(admin, &objects).await.expect("applied");

    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/editor/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let token = request::post(admin, &path, &request)
        .await
        .granted()
        .expect("a token")
        .body;
    let token = token["status"]["token"].as_str().expect("a token");
    api.client_with_token(token, AGENT).await.expect("a client")
}

/// Everything that stands. Fields drop in order: callers before those they call.
pub struct Cluster {
    pub manager: Option<Manager>,
    stand_ins: Vec<StandIn>,
    pub principals: Principals,
    pub leases: Recorder,
    pub admin: Client,
    /// An administrator of the API server that has the migration.
    pub management: Client,
    pub migration: &'static str,
    unsaid: Mutex<Vec<String>>,
    old_manager: Client,
    pub api: ApiServer,
    pub etcd: Etcd,
    pub tools: Tools,
    pub run: RunFolder,
}

impl Cluster {
    pub async fn start(version: Version, range: &str) -> Self {
        let wanted = [Tool::Etcd, Tool::Kustomize, version.api_server()];
        let tools = Tools::load(&wanted).await.expect("tools");
        let run = RunFolder::new("outrigger-lease-attacks-").expect("a folder");
        let etcd = Etcd::start(&tools, run.path()).await.expect("etcd");
        let options = ApiServerOptions::new("cluster", version, range).node_restriction();
        let api = ApiServer::start(&tools, run.path(), &etcd, &options)
            .await
            .expect("an API server");
        let admin = api.client(&User::admin(), AGENT).await.expect("a client");
        let base = base(&tools, run.path()).await;
        manifests::apply(&admin, &base).await.expect("applied");

        let cluster = Self {
            manager: None,
            stand_ins: Vec::new(),
            principals: Principals::of(&api, &admin).await,
            leases: Recorder::start(&admin, LeaseName::defaults()),
            old_manager: api
                .client(&User::kube_controller_manager(), AGENT)
                .await
                .expect("a client"),
            management: admin.clone(),
            migration: MIGRATION,
            unsaid: Mutex::default(),
            admin,
            api,
            etcd,
            tools,
            run,
        };
        cluster.join().await;
        cluster
    }

    /// Each kubelet registers its Node, and an administrator labels those of the control plane.
    async fn join(&self) {
        let all = [
            (FIRST, &self.principals.first_kubelet),
            (SECOND, &self.principals.second_kubelet),
            (WORKER, &self.principals.worker_kubelet),
        ];
        for (host, kubelet) in all {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": host.name}});
            request::post(kubelet, NODES, &node)
                .await
                .granted()
                .expect("registered");
        }
        for host in [FIRST, SECOND] {
            let label = json!({"metadata": {"labels": {ROLE: ""}}});
            let path = format!("{NODES}/{}", host.name);
            request::patch(&self.admin, &path, &label)
                .await
                .granted()
                .expect("labelled");
        }
    }

    /// Our manager with the rights of the manifests.
    pub fn start_manager(&mut self) {
        self.start_manager_with(&[format!("--migration={MIGRATION}")]);
    }

    pub fn start_manager_with(&mut self, flags: &[String]) {
        let account = "system:serviceaccount:kube-system:outrigger-manager";
        let user = User::new(account).in_group("system:serviceaccounts");
        let kubeconfig = self.api.kubeconfig(&user).expect("a kubeconfig");
        self.manager = Some(Manager::start(self.run.path(), &kubeconfig, flags));
    }

    pub fn manager(&self) -> &Manager {
        self.manager.as_ref().expect("it was started")
    }

    /// A kube-controller-manager on a host.
    pub fn start_old_manager(&mut self, host: Host, form: Form) -> usize {
        self.stand_ins.push(StandIn::start(&self.old_manager, host.name, form));
        self.stand_ins.len() - 1
    }

    pub fn kill_old_manager(&self, index: usize) {
        self.stand_ins[index].kill();
    }

    /// The mirror Pod of the kube-controller-manager of a Node, created by its kubelet.
    pub async fn show_old_manager(&self, host: Host, form: Form) {
        let kubelet = match host.name {
            name if name == FIRST.name => &self.principals.first_kubelet,
            _ => &self.principals.second_kubelet,
        };
        let name = format!("kube-controller-manager-{}", host.name);
        let pod = Pod {
            name: &name,
            namespace: SYSTEM,
            node: Some(host.name),
            host_name: None,
            is_mirror: true,
            command: form.command(),
        };
        // Of a former command line.
        request::delete(kubelet, &pod.path()).await;
        self.mirror(kubelet, &pod, host.address)
            .await
            .granted()
            .expect("created");
    }

    /// Creates a mirror Pod as a kubelet does, with its status.
    pub async fn mirror(
        &self,
        kubelet: &Client,
        pod: &Pod<'_>,
        address: &str,
    ) -> outrigger_environment::review::Answer {
        let node = request::get(&self.admin, &format!("{NODES}/{}", pod.node.expect("a Node"))).await;
        let object = pod.object(node.body["metadata"]["uid"].as_str());
        let answer = request::post(kubelet, &request::pods(pod.namespace), &object).await;
        if answer.is_granted() {
            run(kubelet, pod, address).await;
        }
        answer
    }

    /// Lets our manager list the Pods now: what it does not watch, it would list some seconds later.
    pub async fn wake(&self, path: &str) {
        let now = request::micro_time(Timestamp::now());
        let annotation = json!({"metadata": {"annotations": {"example.com/changed": now}}});
        request::patch(&self.management, path, &annotation)
            .await
            .granted()
            .expect("written");
    }

    /// The path of the mirror Pod of [`Self::show_old_manager`].
    pub fn shown(host: Host) -> String {
        format!("{}/kube-controller-manager-{}", request::pods(SYSTEM), host.name)
    }

    pub async fn create_migration(&self, phase: &str) {
        let object = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": MIGRATION}, "spec": {"clusterID": CLUSTER, "phase": phase},
        });
        let created = request::post(&self.principals.operator, MIGRATIONS, &object).await;
        created.granted().expect("created");
    }

    pub async fn change_migration(&self, spec: Value) -> outrigger_environment::review::Answer {
        let path = format!("{MIGRATIONS}/{MIGRATION}");
        request::patch(&self.principals.operator, &path, &json!({"spec": spec})).await
    }

    pub async fn migration(&self) -> Value {
        request::get(&self.management, &format!("{MIGRATIONS}/{}", self.migration))
            .await
            .body
    }

    /// Waits until the status or the log of our manager contains a text, in this attack. Without it the attack fails.
    pub async fn says(&self, text: &str, mark: &Mark) {
        let said = async || {
            let status = self.migration().await["status"].to_string();
            let log = self.manager().log_since(mark.log);
            status.contains(text) || log.contains(text)
        };
        if wait::until(text, SAID, said).await.is_err() {
            let mut unsaid = self.unsaid.lock().unwrap_or_else(PoisonError::into_inner);
            unsaid.push(text.to_owned());
        }
    }

    pub fn take_unsaid(&self) -> Vec<String> {
        std::mem::take(&mut self.unsaid.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn holder(&self, lease: Lease) -> Option<String> {
        self.leases.latest(lease).and_then(|change| change.holder)
    }

    /// Every other process has the host name of a Node or a Pod, or [`THIEF`]'s identity.
    pub fn is_ours(holder: &str) -> bool {
        !holder.starts_with("ip-") && !holder.starts_with(K) && holder != THIEF
    }

    /// Waits until the holder of a lease satisfies `wanted`.
    pub async fn held(&self, what: &str, lease: Lease, wanted: impl Fn(Option<&str>) -> bool) -> String {
        let change = self
            .leases
            .wait_until(lease, LIMIT, |change| wanted(change.holder.as_deref()))
            .await;
        let Some(change) = change else {
            let log = self.manager.as_ref().map(Manager::log_tail).unwrap_or_default();
            panic!("{lease} never: {what}; now {:?}\n{log}", self.leases.latest(lease));
        };
        change.holder.unwrap_or_default()
    }

    /// Waits until our manager holds M.
    pub async fn owned(&self, what: &str) -> String {
        self.held(what, Lease::M, |holder| holder.is_some_and(Self::is_ours))
            .await
    }

    pub fn mark(&self) -> Mark {
        Mark {
            at: Timestamp::now(),
            log: self.manager.as_ref().map_or(0, Manager::log_length),
            restarts: self.manager.as_ref().map_or(0, Manager::restarts),
            owner: self.holder(Lease::M),
        }
    }

    pub fn changes_since(&self, lease: Lease, mark: &Mark) -> Vec<LeaseChange> {
        let changes = self.leases.changes().into_iter();
        changes
            .filter(|change| change.lease == lease && change.at >= mark.at)
            .collect()
    }

    /// The longest time since a mark during which our manager held M while a kube-controller-manager acted.
    pub fn overlap(&self, mark: &Mark) -> Option<(Duration, String)> {
        let acting = self.stand_ins.iter().flat_map(StandIn::acting);
        let ours = self.ours();
        let common = |old: &Acting, (from, until, holder): &(Timestamp, Timestamp, String)| {
            let from = old.from.max(*from).max(mark.at);
            let until = old.until.unwrap_or_else(Timestamp::now).min(*until);
            let time = until.duration_since(from);
            (!time.is_negative() && !time.is_zero()).then(|| {
                (
                    time.unsigned_abs(),
                    format!("{holder} held M from {from} while {} acted", old.identity),
                )
            })
        };
        acting
            .flat_map(|old| ours.iter().filter_map(|own| common(&old, own)).collect::<Vec<_>>())
            .max()
    }

    /// The times during which the record of M named our manager.
    fn ours(&self) -> Vec<(Timestamp, Timestamp, String)> {
        let changes = self.leases.changes().into_iter();
        let changes: Vec<LeaseChange> = changes.filter(|change| change.lease == Lease::M).collect();
        let ends = changes.iter().skip(1).map(|change| change.at).chain([Timestamp::now()]);
        let spans = changes.iter().zip(ends);
        let mut ours: Vec<(Timestamp, Timestamp, String)> = Vec::new();
        for (change, end) in spans {
            let Some(holder) = change.holder.clone().filter(|holder| Self::is_ours(holder)) else {
                continue;
            };
            match ours.last_mut().filter(|last| last.1 == change.at && last.2 == holder) {
                // A renewal.
                Some(last) => last.1 = end,
                None => ours.push((change.at, end, holder)),
            }
        }
        ours
    }
}

/// The state before an attack.
#[derive(Debug, Clone)]
pub struct Mark {
    pub at: Timestamp,
    pub log: u64,
    pub restarts: usize,
    pub owner: Option<String>,
}

/// The status of a Pod as the kubelet of its Node writes it.
pub async fn run(kubelet: &Client, pod: &Pod<'_>, address: &str) {
    let status = json!({"status": {"phase": "Running", "hostIP": address, "podIP": address}});
    let path = format!("{}/status", pod.path());
    request::patch(kubelet, &path, &status)
        .await
        .granted()
        .expect("written");
}

/// The definition, roles and rights of the manifests: everything that runs nothing.
async fn base(tools: &Tools, run: &Path) -> Vec<Value> {
    let rendered = manifests::render(tools, run, "attacks", "base", "").await;
    let mut objects = rendered.expect("kustomize accepts it");
    retain_rights(&mut objects);
    objects
}

/// Without anything that runs, and without the webhook.
pub fn retain_rights(objects: &mut Vec<Value>) {
    let kept = [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ];
    objects.retain(|object| object["kind"].as_str().is_some_and(|kind| kept.contains(&kind)));
}

//! Routes of a few Nodes under a role.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use outrigger_aws_sim::iam::roles::Role;
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::{Moto, Proxy, SeededAccount, Service};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::process::Process;
use outrigger_cluster_harness::run_folder::RunFolder;
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_e2e::pod_routes::{self, create, name, range};

use super::Differing;

/// Cases, in the order in which they run.
pub const CASES: [&str; 4] = ["created", "deleted-by-hand", "blackhole", "removed"];
const CLUSTER: &str = "parity";
const NODES: usize = 6;
const PERIOD: Duration = Duration::from_secs(2);
/// After this a case differs.
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster in which managers of several roles run one after the other. Fields drop in order: callers before those they
/// call.
pub struct Fixture {
    nodes: Api<Node>,
    legacy_tags: bool,
    proxy: Proxy,
    account: SeededAccount,
    moto: Moto,
    api: ApiServer,
    _etcd: Etcd,
    run: RunFolder,
}

impl Fixture {
    pub async fn start() -> Self {
        let run = RunFolder::new("outrigger-iam-").expect("folder");
        Self::build(run).await
    }

    /// Runs all cases and says which differ.
    pub async fn run(&mut self, role: &Role) -> Differing {
        let manager = self.begin(role).await;
        let mut differing = Differing::new();
        for case in CASES {
            let wanted = self.act(case).await;
            if let Some(there) = self.differs_from(&wanted, &manager).await {
                let line = format!("wanted {wanted:?}\n    there  {there:?}\n{}", manager.log_tail());
                differing.insert(case.to_owned(), vec![line]);
            }
        }

        // It releases its lease.
        manager.stop(LIMIT).await.expect("stopped");
        self.clear().await;
        differing
    }

    async fn build(folder: RunFolder) -> Self {
        let run = folder.path();
        let wanted = [Tool::Etcd, Tool::ApiServer136, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, NODES).await.expect("an account");
        let proxy = Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await;
        let proxy = proxy.expect("the proxy");
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("iam-routes", Version::V1_36, "127.93.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options).await;
        let api = api.expect("the API server");
        let client = api.client(&User::admin(), "iam-routes").await.expect("a client");
        Self {
            nodes: Api::all(client),
            legacy_tags: false,
            proxy,
            account,
            moto,
            api,
            _etcd: etcd,
            run: folder,
        }
    }

    /// Creates the Nodes and starts a manager with this role. Roles that need other tags come last.
    async fn begin(&mut self, role: &Role) -> Process {
        assert!(
            role.legacy_tags || !self.legacy_tags,
            "{} would see other tags",
            role.name
        );
        self.legacy_tags = role.legacy_tags;
        tag(&self.account, &self.moto, role.legacy_tags).await;
        for (number, machine) in self.account.instances.iter().enumerate() {
            create(&self.nodes, number, machine).await.expect("created");
        }

        self.proxy.set_policy(Some(role.policy.clone()));
        let manager = pod_routes::start_manager(self.run.path(), &self.api, &self.account, &self.proxy, PERIOD);
        manager.expect("the manager starts")
    }

    /// Deletes Nodes and routes, and turns the source/destination checks on again, which a manager turns off.
    async fn clear(&self) {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.nodes.delete_collection(&delete, &all).await.expect("no Nodes");
        for range in self.routes().await.keys() {
            let deleted = pod_routes::delete(&self.moto, &self.account.route_table_id, range).await;
            deleted.expect("deleted");
        }
        for instance in &self.account.instances {
            let check = [("InstanceId", instance.id.as_str()), ("SourceDestCheck.Value", "true")];
            let call = Parameters::from_iter(check);
            let changed = self.moto.call(&Service::Ec2, "ModifyInstanceAttribute", call).await;
            changed.expect("changed");
        }
    }

    /// Does what a case is about, and returns the routes that are to be there.
    async fn act(&mut self, case: &str) -> BTreeMap<String, String> {
        match case {
            "deleted-by-hand" => {
                let table = &self.account.route_table_id;
                // A route that the role has not let arise cannot be deleted.
                let _ = pod_routes::delete(&self.moto, table, &range(2)).await;
            }
            "blackhole" => {
                let new = self.account.add_instances(&self.moto, 1).await.expect("one more");
                let new = new.first().expect("one more").clone();
                tag(&self.account, &self.moto, self.legacy_tags).await;
                let old = self.account.instances.first().expect("there").id.clone();
                self.account.terminate(&self.moto, &[&old]).await.expect("terminated");
                self.proxy.instances_terminated(&[&old]);
                self.delete(0).await;
                create(&self.nodes, 0, &new).await.expect("created");
                self.account.instances.swap_remove(0); // the new one takes the place
            }
            "removed" => {
                self.delete(3).await;
                let mut wanted = self.wanted();
                wanted.remove(&range(3));
                return wanted;
            }
            _ => {}
        }
        self.wanted()
    }

    fn wanted(&self) -> BTreeMap<String, String> {
        let machines = self.account.instances.iter().enumerate();
        machines
            .map(|(number, machine)| (range(number), machine.id.clone()))
            .collect()
    }

    /// `None` as soon as the routes are as wanted.
    async fn differs_from(
        &self,
        wanted: &BTreeMap<String, String>,
        manager: &Process,
    ) -> Option<BTreeMap<String, String>> {
        let started = Instant::now();
        loop {
            let there = self.routes().await;
            if there == *wanted {
                return None;
            }
            assert!(manager.exit().is_none(), "{}", manager.log_tail());
            if started.elapsed() > LIMIT {
                return Some(there);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    async fn routes(&self) -> BTreeMap<String, String> {
        let routes = pod_routes::to_instances(&self.moto, &self.account.route_table_id).await;
        routes.expect("moto answers")
    }

    async fn delete(&self, number: usize) {
        let deleted = self.nodes.delete(&name(number), &DeleteParams::default()).await;
        deleted.expect("the Node is deleted");
    }
}

/// Gives all resources of the cluster the tag on which kOps' role depends.
async fn tag(account: &SeededAccount, moto: &Moto, legacy_tags: bool) {
    if legacy_tags {
        let tagged = account.tag_all(moto, ("KubernetesCluster", CLUSTER)).await;
        tagged.expect("moto tags");
    }
}

//! Routes of a few Nodes under a role.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use outrigger_aws_sim::iam::roles::Role;
use outrigger_aws_sim::{Moto, Proxy, SeededAccount};
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
const LIMIT: Duration = Duration::from_secs(40);

/// Fields drop in order: callers before those they call.
struct Fixture {
    manager: Process,
    nodes: Api<Node>,
    legacy_tags: bool,
    proxy: Proxy,
    account: SeededAccount,
    moto: Moto,
    _api: ApiServer,
    _etcd: Etcd,
}

/// Runs all cases and says which differ.
pub async fn run(role: &Role) -> Differing {
    let folder = RunFolder::new("outrigger-iam-").expect("folder");
    let mut fixture = Fixture::build(folder.path(), role).await;
    let mut differing = Differing::new();
    for case in CASES {
        let wanted = fixture.act(case).await;
        if let Some(there) = fixture.differs_from(&wanted).await {
            let line = format!(
                "wanted {wanted:?}\n    there  {there:?}\n{}",
                fixture.manager.log_tail()
            );
            differing.insert(case.to_owned(), vec![line]);
        }
    }
    differing
}

impl Fixture {
    async fn build(run: &Path, role: &Role) -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer136, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let account = SeededAccount::seed(&moto, CLUSTER, NODES).await.expect("an account");
        tag(&account, &moto, role.legacy_tags).await;
        let proxy = Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await;
        let proxy = proxy.expect("the proxy");
        proxy.set_policy(Some(role.policy.clone()));
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("iam-routes", Version::V1_36, "127.93.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options).await;
        let api = api.expect("the API server");
        let client = api.client(&User::admin(), "iam-routes").await.expect("a client");
        let nodes: Api<Node> = Api::all(client);
        for (number, machine) in account.instances.iter().enumerate() {
            create(&nodes, number, machine).await.expect("created");
        }
        Self {
            manager: pod_routes::start_manager(run, &api, &account, &proxy, PERIOD).expect("the manager starts"),
            nodes,
            legacy_tags: role.legacy_tags,
            proxy,
            account,
            moto,
            _api: api,
            _etcd: etcd,
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
    async fn differs_from(&self, wanted: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        let started = Instant::now();
        loop {
            let there = self.routes().await;
            if there == *wanted {
                return None;
            }
            assert!(self.manager.exit().is_none(), "{}", self.manager.log_tail());
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

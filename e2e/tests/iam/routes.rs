//! Routes of a few Nodes under a role.

use std::collections::BTreeMap;
use std::path::Path;
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
/// For the end of a manager.
const GRACE: Duration = Duration::from_secs(10);
/// After this a case differs.
const LIMIT: Duration = Duration::from_secs(40);

/// A cluster without a manager. Fields drop in order: callers before those they call.
struct Stage {
    nodes: Api<Node>,
    legacy_tags: bool,
    proxy: Proxy,
    world: SeededAccount,
    moto: Moto,
    api: ApiServer,
    _etcd: Etcd,
}

/// Runs all cases under each role and returns the differences. Roles that need the same tags share a cluster.
pub async fn run(roles: Vec<Role>) -> Vec<(Role, Differing)> {
    let (with, without): (Vec<Role>, Vec<Role>) = roles.into_iter().partition(|role| role.legacy_tags);
    let (with, without) = tokio::join!(run_in_one_cluster(with), run_in_one_cluster(without));
    with.into_iter().chain(without).collect()
}

async fn run_in_one_cluster(roles: Vec<Role>) -> Vec<(Role, Differing)> {
    let Some(first) = roles.first() else {
        return Vec::new();
    };
    let folder = RunFolder::new("outrigger-iam-").expect("folder");
    let mut stage = Stage::build(folder.path(), first.legacy_tags).await;
    let mut by_role = Vec::new();
    for (number, role) in roles.into_iter().enumerate() {
        let run = folder.path().join(format!("role-{number}"));
        std::fs::create_dir(&run).expect("folder");
        by_role.push((role.clone(), stage.run(&role, &run).await));
        stage.clear().await;
    }
    by_role
}

impl Stage {
    async fn run(&mut self, role: &Role, run: &Path) -> Differing {
        self.proxy.set_policy(Some(role.policy.clone()));
        for (number, machine) in self.world.instances.iter().enumerate() {
            create(&self.nodes, number, machine).await.expect("created");
        }
        let manager = pod_routes::start_manager(run, &self.api, &self.world, &self.proxy, PERIOD);
        let manager = manager.expect("the manager starts");

        let mut differing = Differing::new();
        for case in CASES {
            let wanted = self.act(case).await;
            if let Some(there) = self.differs_from(&wanted, &manager).await {
                let line = format!("wanted {wanted:?}\n    there  {there:?}\n{}", manager.log_tail());
                differing.insert(case.to_owned(), vec![line]);
            }
        }

        // It releases its lease, so that the next manager leads at once.
        manager.stop(GRACE).await.expect("ends");
        differing
    }

    /// Removes what a manager did, and what it worked on.
    async fn clear(&self) {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.nodes.delete_collection(&delete, &all).await.expect("no Nodes");
        for range in self.routes().await.keys() {
            let deleted = pod_routes::delete(&self.moto, &self.world.route_table_id, range).await;
            deleted.expect("deleted");
        }

        for machine in &self.world.instances {
            let check = [("InstanceId", machine.id.as_str()), ("SourceDestCheck.Value", "true")];
            let call = self
                .moto
                .call(&Service::Ec2, "ModifyInstanceAttribute", Parameters::from_iter(check));
            call.await.expect("modified");
        }
    }

    async fn build(run: &Path, legacy_tags: bool) -> Self {
        let wanted = [Tool::Etcd, Tool::ApiServer136, Tool::MotoPython];
        let tools = Tools::load(&wanted).await.expect("tools");
        let moto = Moto::start(&tools, run).await.expect("moto");
        let world = SeededAccount::seed(&moto, CLUSTER, NODES).await.expect("an account");
        tag(&world, &moto, legacy_tags).await;
        let proxy = Proxy::start(&moto, &[], Some(&run.join("aws-calls.jsonl"))).await;
        let proxy = proxy.expect("the proxy");
        let etcd = Etcd::start(&tools, run).await.expect("etcd");
        let options = ApiServerOptions::new("iam-routes", Version::V1_36, "127.93.0.0/16");
        let api = ApiServer::start(&tools, run, &etcd, &options).await;
        let api = api.expect("the API server");
        let client = api.client(&User::admin(), "iam-routes").await.expect("a client");
        Self {
            nodes: Api::all(client),
            legacy_tags,
            proxy,
            world,
            moto,
            api,
            _etcd: etcd,
        }
    }

    /// Does what a case is about, and returns the routes that are to be there.
    async fn act(&mut self, case: &str) -> BTreeMap<String, String> {
        match case {
            "deleted-by-hand" => {
                let table = &self.world.route_table_id;
                // A route that the role has not let arise cannot be deleted.
                let _ = pod_routes::delete(&self.moto, table, &range(2)).await;
            }
            "blackhole" => {
                let new = self.world.add_instances(&self.moto, 1).await.expect("one more");
                let new = new.first().expect("one more").clone();
                tag(&self.world, &self.moto, self.legacy_tags).await;
                let old = self.world.instances.first().expect("there").id.clone();
                self.world.terminate(&self.moto, &[&old]).await.expect("terminated");
                self.proxy.instances_terminated(&[&old]);
                self.delete(0).await;
                create(&self.nodes, 0, &new).await.expect("created");
                self.world.instances.swap_remove(0); // the new one takes the place
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
        let machines = self.world.instances.iter().enumerate();
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
        let routes = pod_routes::to_instances(&self.moto, &self.world.route_table_id).await;
        routes.expect("moto answers")
    }

    async fn delete(&self, number: usize) {
        let deleted = self.nodes.delete(&name(number), &DeleteParams::default()).await;
        deleted.expect("the Node is deleted");
    }
}

/// Gives all resources of the cluster the tag on which kOps' role depends.
async fn tag(world: &SeededAccount, moto: &Moto, legacy_tags: bool) {
    if legacy_tags {
        let tagged = world.tag_all(moto, ("KubernetesCluster", CLUSTER)).await;
        tagged.expect("moto tags");
    }
}

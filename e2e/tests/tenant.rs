//! Kubelets, lease recorder, load and audit log against a real API server 1.26.

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as LeaseObject;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use outrigger_cluster_harness::audit::{AuditEvent, AuditLog, writes_by};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::kubelets::{self, Instance, Kubelet, NodeSpec};
use outrigger_cluster_harness::leases::{Lease, LeaseName, Recorder};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::load::{self, Load, LoadTarget};
use serde_json::{Value, json};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const IN_TREE: &str = "ip-10-0-0-7.ec2.internal";
const EXTERNAL: &str = "ip-10-0-0-8.ec2.internal";
const WITHIN: Duration = Duration::from_secs(30);

struct Tenant {
    cluster: kube::Config,
    client: Client,
    audit: AuditLog,
    _server: ApiServer,
    _etcd: Etcd,
    _folder: tempfile::TempDir,
}

impl Tenant {
    async fn start() -> Result<Self> {
        let tools = Tools::load(&[Tool::ApiServer126, Tool::Etcd]).await?;
        let folder = tempfile::tempdir()?;
        let etcd = Etcd::start(&tools, folder.path()).await?;
        let options = ApiServerOptions::new("tenant", Version::V1_26, "127.98.0.0/16");
        let server = ApiServer::start(&tools, folder.path(), &etcd, &options).await?;
        let cluster = kubelets::config(&server.kubeconfig(&User::admin())?).await?;
        kubelets::let_nodes_in(&cluster).await?;
        let client = Client::try_from(cluster.clone())?;
        let audit = AuditLog::new(server.audit_log());
        Ok(Self {
            cluster,
            client,
            audit,
            _server: server,
            _etcd: etcd,
            _folder: folder,
        })
    }
}

fn instance(name: &str, id: &str) -> Instance {
    Instance {
        id: id.into(),
        zone: "us-east-1a".into(),
        region: "us-east-1".into(),
        instance_type: "t3.medium".into(),
        private_ip: "10.0.0.7".into(),
        private_dns_name: name.into(),
        public: None,
    }
}

async fn until<T>(what: &str, look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    Ok(wait::until(what, Duration::from_secs(30), look).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tenants_side_of_a_run_works_against_a_real_api_server() -> Result {
    let tenant = Tenant::start().await?;
    kubelets_register_renew_and_leave_addresses_to_the_cloud(&tenant).await?;
    a_load_changes_a_service_and_a_node_under_its_own_user_agent(&tenant).await?;
    every_change_of_a_lease_is_recorded(&tenant).await
}

async fn kubelets_register_renew_and_leave_addresses_to_the_cloud(tenant: &Tenant) -> Result {
    let every = Duration::from_millis(300);
    let (in_tree, external) = (instance(IN_TREE, "i-07"), instance(EXTERNAL, "i-08"));
    let old = Kubelet::start(&tenant.cluster, NodeSpec::in_tree(&in_tree).every(every)).await?;
    let _new = Kubelet::start(
        &tenant.cluster,
        NodeSpec::external(&external).uninitialized().every(every),
    )
    .await?;
    let nodes = Api::<Node>::all(tenant.client.clone());
    let node = nodes.get(IN_TREE).await?;
    assert_eq!(
        node.spec.and_then(|spec| spec.provider_id).as_deref(),
        Some("aws:///us-east-1a/i-07")
    );
    let node = serde_json::to_value(nodes.get(EXTERNAL).await?)?;
    assert_eq!(
        node["spec"]["taints"][0]["key"],
        "node.cloudprovider.kubernetes.io/uninitialized"
    );
    assert_eq!(node["spec"]["providerID"], Value::Null);
    only_the_in_tree_kubelet_insists_on_its_addresses(&nodes).await?;
    a_stopped_kubelet_renews_nothing(tenant, &old, every).await?;
    nodes_act_as_themselves(tenant).await
}

async fn only_the_in_tree_kubelet_insists_on_its_addresses(nodes: &Api<Node>) -> Result {
    for name in [IN_TREE, EXTERNAL] {
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}, {"$patch": "replace"}],
            "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
        }});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
            .await?;
    }
    let addresses = async |name: &str| -> Result<(usize, Value)> {
        let status = serde_json::to_value(nodes.get(name).await?.status)?;
        Ok((
            status["addresses"].as_array().map_or(0, Vec::len),
            status["addresses"][0]["address"].clone(),
        ))
    };
    until("the in-tree kubelet writes its addresses again", async || {
        Ok((addresses(IN_TREE).await? == (3, "10.0.0.7".into())).then_some(()))
    })
    .await?;
    assert_eq!(
        addresses(EXTERNAL).await?,
        (1, "10.9.9.9".into()),
        "the external one does not"
    );
    let status = serde_json::to_value(nodes.get(IN_TREE).await?.status)?;
    let conditions = status["conditions"].as_array().ok_or("no conditions")?;
    assert!(
        conditions
            .iter()
            .any(|condition| condition["type"] == "NetworkUnavailable"),
        "not its to remove"
    );
    Ok(())
}

async fn a_stopped_kubelet_renews_nothing(tenant: &Tenant, kubelet: &Kubelet, every: Duration) -> Result {
    let leases = Api::<LeaseObject>::namespaced(tenant.client.clone(), "kube-node-lease");
    let renewed = async || {
        Ok::<_, kube::Error>(
            leases
                .get_opt(kubelet.name())
                .await?
                .and_then(|lease| lease.spec?.renew_time),
        )
    };
    let first = until("the Node's lease is there", async || Ok(renewed().await?)).await?;
    until("the lease is renewed", async || {
        Ok(renewed().await?.filter(|time| time.0 > first.0))
    })
    .await?;
    kubelet.stop();
    // A renewal that was on its way may still arrive.
    until("no renewal in four periods", async || {
        let last = renewed().await?;
        tokio::time::sleep(every * 4).await;
        Ok((renewed().await? == last).then_some(()))
    })
    .await
}

async fn nodes_act_as_themselves(tenant: &Tenant) -> Result {
    let events = tenant.audit.events().await?;
    let created = |event: &&AuditEvent| event.verb == "create" && event.concerns("nodes");
    let registered: Vec<_> = writes_by(&events, "kubelet", "").filter(created).collect();
    assert_eq!(registered.len(), 2);
    let user = registered[0].impersonated_user.as_ref().ok_or("no user")?;
    assert_eq!(user.username, format!("system:node:{IN_TREE}"));
    assert!(user.groups.iter().any(|group| group == "system:nodes"));
    assert_eq!(registered[0].response_status.code, 201);
    Ok(())
}

async fn a_load_changes_a_service_and_a_node_under_its_own_user_agent(tenant: &Tenant) -> Result {
    let services = Api::<Service>::default_namespaced(tenant.client.clone());
    let service = serde_json::from_value(json!({
        "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}
    }))?;
    services.create(&PostParams::default(), &service).await?;
    let target = LoadTarget {
        namespace: "default".into(),
        service: "web".into(),
        node: IN_TREE.into(),
    };
    let running = Load::start(&tenant.cluster, target, Duration::from_millis(200))?;
    until("three changes", async || Ok((running.changes() >= 3).then_some(()))).await?;
    running.stop();
    let annotations = services.get("web").await?.metadata.annotations.unwrap_or_default();
    let count: u64 = annotations.get(load::ANNOTATION).ok_or("no annotation")?.parse()?;
    assert!(count >= 3);
    let events = tenant.audit.events().await?;
    let by_load = |resource: &str| {
        writes_by(&events, load::USER_AGENT, "")
            .filter(|e| e.concerns(resource))
            .count()
    };
    assert!(by_load("services") >= 3 && by_load("nodes") >= 3);
    Ok(())
}

async fn every_change_of_a_lease_is_recorded(tenant: &Tenant) -> Result {
    let recorder = Recorder::start(&tenant.client, LeaseName::defaults());
    let leases = Api::<LeaseObject>::namespaced(tenant.client.clone(), "kube-system");
    let name = "cloud-provider-extraction-migration";
    let object = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"holderIdentity": "host_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                 "acquireTime": "2026-11-20T10:00:00.000000Z", "renewTime": "2026-11-20T10:00:00.000000Z"},
    }))?;
    leases.create(&PostParams::default(), &object).await?;
    let holder = |change: &outrigger_cluster_harness::leases::LeaseChange| change.holder.clone();
    recorder
        .wait_until(Lease::M, WITHIN, |c| holder(c).as_deref() == Some("host_1"))
        .await
        .ok_or("not seen")?;
    for (holder, transitions) in [("host_2", 1), ("", 2)] {
        let spec = json!({"metadata": {"annotations": {"outrigger.dev/prepared": "x"}},
                          "spec": {"holderIdentity": holder, "leaseTransitions": transitions}});
        leases.patch(name, &PatchParams::default(), &Patch::Merge(spec)).await?;
    }
    recorder
        .wait_until(Lease::M, WITHIN, |c| c.transitions == 2)
        .await
        .ok_or("not seen")?;
    leases.delete(name, &DeleteParams::default()).await?;
    recorder
        .wait_until(Lease::M, WITHIN, |c| c.deleted)
        .await
        .ok_or("not seen")?;

    let changes: Vec<_> = recorder
        .changes()
        .into_iter()
        .filter(|change| change.lease == Lease::M)
        .collect();
    let seen: Vec<_> = changes
        .iter()
        .map(|c| (c.holder.as_deref(), c.transitions, c.deleted))
        .collect();
    let expected = [
        (Some("host_1"), 0, false),
        (Some("host_2"), 1, false),
        (None, 2, false),
        (None, 0, true),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        changes[1].annotations.get("outrigger.dev/prepared").map(String::as_str),
        Some("x")
    );
    assert!(changes.is_sorted_by_key(|change| change.since_start));
    assert!(
        recorder
            .wait_until(Lease::M, Duration::from_millis(100), |c| c.transitions == 9)
            .await
            .is_none()
    );
    Ok(())
}

//! The control plane of a tenant, hosted by another cluster. Its administrator may do everything in the tenant.

use std::time::Duration;

use kube::Client;
use outrigger_cluster_harness::cluster::{self, ApiServer, ApiServerOptions, User, Version};
use outrigger_cluster_harness::leases::Lease;
use outrigger_environment::manifests;
use serde_json::json;
use tokio::time::sleep;

use super::cluster::{CLUSTER, Cluster, SYSTEM, THIEF, WORKER, editor};
use super::report::Report;
use super::request::{self, K, M, MIGRATIONS, NODES, Pod, ROLE};
use super::stand_in::{DURATION, Form};

const READ: Duration = Duration::from_secs(2);
const NAMESPACE: &str = "tenant-prod";
const KEPT: &str = "keeps M and its permit";
/// The name of the Pod is its host name.
const OLD: super::cluster::Host = super::cluster::Host::new("kube-controller-manager-0", "10.1.0.5");

pub async fn attack(report: &mut Report) {
    let mut tenant = Cluster::start(Version::V1_26, "127.115.0.0/16").await;
    let management = management(&mut tenant).await;
    tenant.start_old_manager(OLD, Form::External);
    tenant.owned("an external manager leads").await;

    calls_management(&tenant, &management, report).await;
    creates_pods(&tenant, report).await;
    of_its_namespace(&tenant, &management, report).await;
    selects_nothing(&tenant, &management, report).await;
    writes_leases(&tenant, report).await;
}

/// The management cluster with the migration and the Pod of the tenant's kube-controller-manager; our manager runs there.
async fn management(tenant: &mut Cluster) -> ApiServer {
    let options = ApiServerOptions::new("management", Version::V1_36, "127.116.0.0/16").node_restriction();
    let run = tenant.run.path();
    let management = ApiServer::start(&tenant.tools, run, &tenant.etcd, &options).await;
    let management = management.expect("an API server");
    let admin = management
        .client(&User::admin(), "lease-attacks")
        .await
        .expect("a client");
    let rendered = manifests::render(&tenant.tools, run, "management", "overlays/hosted/management", "").await;
    let mut objects = rendered.expect("kustomize accepts it");
    super::cluster::retain_rights(&mut objects);
    objects.insert(
        0,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    );
    objects.push(
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}),
    );
    manifests::apply(&admin, &objects).await.expect("applied");

    let pod = pod(OLD.name, NAMESPACE, Form::External.command());
    request::post(&admin, &request::pods(NAMESPACE), &pod.object(None))
        .await
        .granted()
        .expect("created");
    let object = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": CLUSTER},
        "spec": {"clusterID": CLUSTER, "phase": "Migrate", "targets": [{"profile": "HostedControlPlane",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}]},
    });
    request::post(&admin, MIGRATIONS, &object)
        .await
        .granted()
        .expect("created");

    let account = format!("system:serviceaccount:{NAMESPACE}:outrigger-manager");
    let user = User::new(account).in_group("system:serviceaccounts");
    let kubeconfig = management.kubeconfig(&user).expect("a kubeconfig");
    (tenant.management, tenant.migration) = (admin, CLUSTER);
    tenant.start_manager_with(&[
        format!("--migration={CLUSTER}"),
        format!("--migration-kubeconfig={}", kubeconfig.display()),
    ]);
    management
}

fn pod<'a>(name: &'a str, namespace: &'a str, command: Vec<&'a str>) -> Pod<'a> {
    Pod {
        name,
        namespace,
        node: None,
        host_name: Some(name),
        is_mirror: false,
        command,
    }
}

/// The certificate of the tenant's administrator, and one of its own authority with the name of our manager.
async fn calls_management(tenant: &Cluster, management: &ApiServer, report: &mut Report) {
    let account = format!("system:serviceaccount:{NAMESPACE}:outrigger-manager");
    for user in [User::admin(), User::new(account)] {
        let client = with_credentials(tenant, management, &user).await;
        for path in [request::pods(NAMESPACE), MIGRATIONS.to_owned()] {
            let answer = request::get(&client, &path).await;
            report.refused("tenant-calls-management", &answer, 401);
        }
    }
}

async fn with_credentials(tenant: &Cluster, management: &ApiServer, user: &User) -> Client {
    let of = |api: &ApiServer| {
        api.authority()
            .kubeconfig(api.name(), management.url(), user)
            .expect("a kubeconfig")
    };
    let mut content = of(management);
    content["users"][0]["user"] = of(&tenant.api)["users"][0]["user"].clone();
    cluster::client(&content, user, "lease-attacks")
        .await
        .expect("a client")
}

async fn creates_pods(tenant: &Cluster, report: &mut Report) {
    let mark = tenant.mark();
    let mut command = Form::InTree.command();
    command.push("--leader-elect=false");
    let forged = pod(OLD.name, SYSTEM, command);
    request::post(&tenant.admin, &request::pods(SYSTEM), &forged.object(None))
        .await
        .granted()
        .expect("created");
    let label = json!({"metadata": {"labels": {ROLE: ""}}});
    let path = format!("{NODES}/{}", WORKER.name);
    request::patch(&tenant.admin, &path, &label)
        .await
        .granted()
        .expect("labelled");
    let mirror = Pod {
        name: "kube-controller-manager-1",
        node: Some(WORKER.name),
        host_name: None,
        is_mirror: true,
        ..forged
    };
    let created = tenant
        .mirror(&tenant.principals.worker_kubelet, &mirror, WORKER.address)
        .await;
    created.granted().expect("created");
    tenant.create_migration("InTree").await;
    tenant.wake(&format!("{}/{}", request::pods(NAMESPACE), OLD.name)).await;
    sleep(READ).await;
    report.unchanged(tenant, "tenant-creates-pods", &mark, KEPT);
}

async fn of_its_namespace(tenant: &Cluster, management: &ApiServer, report: &mut Report) {
    let editor = editor(management, &tenant.management, NAMESPACE).await;
    let mark = tenant.mark();
    let in_tree = pod("kube-controller-manager-2", NAMESPACE, Form::InTree.command());
    request::post(&editor, &request::pods(NAMESPACE), &in_tree.object(None))
        .await
        .granted()
        .expect("created");
    tenant.says(&in_tree.named(), &mark).await;
    report.unchanged(
        tenant,
        "hosted-in-tree",
        &mark,
        "keeps M and its permit; a warning names it",
    );
    request::delete(&editor, &in_tree.path())
        .await
        .granted()
        .expect("deleted");
}

/// The operator of the migration.
async fn selects_nothing(tenant: &Cluster, management: &ApiServer, report: &mut Report) {
    let operator = super::cluster::operator(management, &tenant.management).await;
    let path = format!("{MIGRATIONS}/{CLUSTER}");
    let targets = |namespace: &str| {
        json!({"spec": {"targets": [{"profile": "HostedControlPlane",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]}})
    };
    let mark = tenant.mark();
    request::patch(&operator, &path, &targets("nowhere"))
        .await
        .granted()
        .expect("granted");
    sleep(READ).await;
    report.unchanged(
        tenant,
        "targets",
        &mark,
        "keeps M and its permit: its leader was proven before",
    );
    request::patch(&operator, &path, &targets(NAMESPACE))
        .await
        .granted()
        .expect("granted");
    sleep(READ).await;
}

async fn writes_leases(tenant: &Cluster, report: &mut Report) {
    let lease = request::lease(M);
    let mark = tenant.mark();
    request::delete(&tenant.admin, &lease).await.granted().expect("deleted");
    sleep(READ / 2).await;
    request::patch(&tenant.admin, &lease, &request::release(true))
        .await
        .granted()
        .expect("written");
    sleep(READ).await;
    report.unchanged(tenant, "tenant-empties-m", &mark, KEPT);

    let mark = tenant.mark();
    let stolen = request::record(THIEF, DURATION.as_secs());
    request::patch(&tenant.admin, &request::lease(K), &stolen)
        .await
        .granted()
        .expect("written");
    tenant.says("ALARM", &mark).await;
    tenant.says(THIEF, &mark).await;
    tenant.held("M is released", Lease::M, |holder| holder.is_none()).await;
    tenant.owned("the old manager leads again").await;
    report.answered(
        tenant,
        "tenant-steals-k",
        &mark,
        "an alarm that names the holder, until the forged record expires",
    );
}

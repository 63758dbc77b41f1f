//! The rights of each user, by the API server's own authorizer (`SubjectAccessReview`).
//!
//! **K** is the old kube-controller-manager's main lease, **C** our manager's, **M** the migration lease.

use anyhow::{Context, Result, ensure};
use kube::Client;
use outrigger_cluster_harness::cluster::Version;
use outrigger_cluster_harness::tools::Tools;
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use super::rendered;

const K: &str = "kube-controller-manager";
const C: &str = "cloud-controller-manager";
const M: &str = "cloud-provider-extraction-migration";

/// Someone who asks.
#[derive(Clone, Copy)]
struct Subject {
    user: &'static str,
    group: &'static str,
}

const OLD_MANAGER: Subject = Subject {
    user: "system:kube-controller-manager",
    group: "system:authenticated",
};
/// In a tenant, and in a cluster whose managers are static Pods.
const TENANT_MANAGER: Subject = Subject {
    user: "outrigger-manager",
    group: "system:authenticated",
};
const TENANT_WEBHOOK: Subject = Subject {
    user: "outrigger-webhook",
    group: "system:authenticated",
};
const OWN_MANAGER: Subject = Subject {
    user: "system:serviceaccount:kube-system:outrigger-manager",
    group: "system:serviceaccounts",
};
const HOSTED_MANAGER: Subject = Subject {
    user: "system:serviceaccount:tenant-prod:outrigger-manager",
    group: "system:serviceaccounts",
};
const WEBHOOK: Subject = Subject {
    user: "system:serviceaccount:outrigger-system:outrigger-webhook",
    group: "system:serviceaccounts",
};

/// Questions and what the answers have to be; counted.
struct Authorizer<'a> {
    admin: &'a Client,
    version: Version,
    asked: usize,
}

impl Authorizer<'_> {
    /// Asks about each verb. `resource` is `group/plural` with its subresource after another slash; `name` empty is
    /// any.
    async fn expect(
        &mut self,
        allowed: bool,
        who: Subject,
        verbs: &[&str],
        resource: &str,
        place: (&str, &str),
    ) -> Result<()> {
        let mut parts = resource.split('/');
        let (group, plural, part) = (parts.next(), parts.next(), parts.next());
        let (namespace, name) = place;
        for verb in verbs {
            let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
                "user": who.user, "groups": [who.group],
                "resourceAttributes": {
                    "group": group, "resource": plural, "subresource": part.unwrap_or_default(),
                    "verb": verb, "namespace": namespace, "name": name,
                },
            }});
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = review::create(self.admin, path, "", &question).await?.granted()?.body;
            let status = &answer["status"];
            ensure!(
                status["allowed"] == allowed,
                "{}: {verb} {resource} {name:?} in {namespace:?} should be allowed: {allowed}; {status}",
                who.user
            );
            self.asked += 1;
        }
        Ok(())
    }

    async fn lease(&mut self, allowed: bool, who: Subject, verbs: &[&str], name: &str) -> Result<()> {
        self.expect(allowed, who, verbs, "coordination.k8s.io/leases", ("kube-system", name))
            .await
    }
}

/// Applies the rights of each kustomization for real, and asks. Returns how many questions were asked.
pub async fn check(tools: &Tools, admin: &Client, version: Version) -> Result<usize> {
    let mut ask = Authorizer {
        admin,
        version,
        asked: 0,
    };
    before_anything_is_installed(&mut ask).await.context("before")?;
    install(tools, admin, "overlays/hosted/tenant").await?;
    in_the_tenant(&mut ask).await.context("tenant")?;
    install_component(tools, admin, "overlays/hosted/tenant", "self-signed-tenant").await?;
    registrations_of_the_webhook(&mut ask, TENANT_WEBHOOK).await?;
    install(tools, admin, "overlays/hosted/management").await?;
    in_the_management_cluster(&mut ask).await.context("management")?;
    // Last, as its roles have the tenant's names: the same rights for another subject.
    install(tools, admin, "base").await?;
    in_a_cluster_that_migrates_itself(&mut ask, OWN_MANAGER, TENANT_MANAGER)
        .await
        .context("base")?;
    install_component(tools, admin, "base", "self-signed").await?;
    registrations_of_the_webhook(&mut ask, WEBHOOK).await?;
    secrets_of_the_webhook(&mut ask).await?;
    install(tools, admin, "overlays/static-pod/cluster").await?;
    in_a_cluster_that_migrates_itself(&mut ask, TENANT_MANAGER, OWN_MANAGER)
        .await
        .context("static Pod")?;
    Ok(ask.asked)
}

async fn install(tools: &Tools, admin: &Client, path: &str) -> Result<()> {
    grant(admin, path, &rendered(tools, path).await).await
}

async fn install_component(tools: &Tools, admin: &Client, path: &str, component: &str) -> Result<()> {
    let run = tempfile::tempdir()?;
    let objects = manifests::with_component(tools, run.path(), path, component).await?;
    grant(admin, component, &objects).await
}

async fn grant(admin: &Client, path: &str, objects: &[Value]) -> Result<()> {
    let is_access =
        |object: &&Value| object["apiVersion"] == "rbac.authorization.k8s.io/v1" || object["kind"] == "ServiceAccount";
    let rights: Vec<Value> = objects.iter().filter(is_access).cloned().collect();
    ensure!(!rights.is_empty(), "{path} grants nothing");
    manifests::apply(admin, &rights).await
}

/// The rights that Kubernetes itself grants, so that all others come from our manifests. In 1.26 the old manager may
/// make the migration lease and never renew it, without our Role; newer API servers let it write every lease here.
async fn before_anything_is_installed(ask: &mut Authorizer<'_>) -> Result<()> {
    ask.lease(true, OLD_MANAGER, &["create"], M).await?;
    ask.lease(true, OLD_MANAGER, &["get", "update"], K).await?;
    let by_default = ask.version == Version::V1_36;
    ask.lease(by_default, OLD_MANAGER, &["get", "update"], M).await?;
    ask.lease(by_default, OLD_MANAGER, &["get", "update"], C).await?;
    ask.lease(false, TENANT_MANAGER, &["get", "update", "create"], C).await
}

async fn in_the_tenant(ask: &mut Authorizer<'_>) -> Result<()> {
    ask.lease(true, OLD_MANAGER, &["get", "update", "create"], M).await?;
    ask.lease(false, OLD_MANAGER, &["delete", "patch"], M).await?;
    let by_default = ask.version == Version::V1_36;
    ask.lease(by_default, OLD_MANAGER, &["get", "update"], C).await?;
    leases_of_the_manager(ask, TENANT_MANAGER).await?;
    work_of_the_manager(ask, TENANT_MANAGER).await?;
    // The migration and the control plane's Pods are not here.
    ask.expect(
        false,
        TENANT_MANAGER,
        &["get", "list", "watch"],
        "outrigger.dev/cloudprovidermigrations",
        ("", ""),
    )
    .await?;
    ask.expect(false, TENANT_MANAGER, &["list"], "/pods", ("kube-system", ""))
        .await?;
    ask.lease(true, TENANT_WEBHOOK, &["list", "watch"], C).await?;
    ask.lease(
        false,
        TENANT_WEBHOOK,
        &["get", "update", "patch", "create", "delete"],
        C,
    )
    .await?;
    ask.lease(false, TENANT_WEBHOOK, &["get", "update"], M).await?;
    ask.expect(
        false,
        TENANT_WEBHOOK,
        &["get", "list", "update", "patch"],
        "/nodes",
        ("", "n"),
    )
    .await
}

/// The same in a tenant and in a cluster that migrates itself.
async fn leases_of_the_manager(ask: &mut Authorizer<'_>, manager: Subject) -> Result<()> {
    for own in [C, M] {
        ask.lease(true, manager, &["get", "list", "watch", "update", "create"], own)
            .await?;
        ask.lease(false, manager, &["delete", "deletecollection"], own).await?;
    }
    ask.lease(true, manager, &["list", "watch"], K).await?;
    ask.lease(false, manager, &["get", "update", "patch", "delete"], K)
        .await?;
    for other in ["kube-scheduler", "kube-apiserver-x", ""] {
        ask.lease(
            false,
            manager,
            &["get", "list", "watch", "update", "patch", "delete"],
            other,
        )
        .await?;
    }
    // A node's heartbeat, and leases of the same names elsewhere.
    for place in [("kube-node-lease", "ip-10-0-0-1"), ("default", C), ("default", M)] {
        ask.expect(
            false,
            manager,
            &["get", "update", "create"],
            "coordination.k8s.io/leases",
            place,
        )
        .await?;
    }
    Ok(())
}

async fn work_of_the_manager(ask: &mut Authorizer<'_>, manager: Subject) -> Result<()> {
    ask.expect(true, manager, &["list", "watch", "patch", "delete"], "/nodes", ("", ""))
        .await?;
    ask.expect(false, manager, &["get", "create", "update"], "/nodes", ("", ""))
        .await?;
    ask.expect(true, manager, &["patch"], "/nodes/status", ("", "n"))
        .await?;
    ask.expect(true, manager, &["list", "watch"], "/services", ("default", ""))
        .await?;
    ask.expect(true, manager, &["patch"], "/services/status", ("default", "web"))
        .await?;
    ask.expect(true, manager, &["create"], "/events", ("default", ""))
        .await?;
    // The namespace whose UID stands for the cluster, and no other.
    let own = ("kube-system", "kube-system");
    ask.expect(true, manager, &["get"], "/namespaces", own).await?;
    ask.expect(
        false,
        manager,
        &["list", "watch", "update", "patch", "delete"],
        "/namespaces",
        own,
    )
    .await?;
    ask.expect(false, manager, &["get"], "/namespaces", ("default", "default"))
        .await?;
    ask.expect(false, manager, &["get", "patch", "delete"], "/events", ("default", ""))
        .await?;
    // The finalizer goes with the status, so no other part of a Service is the manager's to write.
    ask.expect(
        false,
        manager,
        &["get", "create", "update", "patch", "delete"],
        "/services",
        ("default", "web"),
    )
    .await?;
    ask.expect(
        false,
        manager,
        &["get", "list", "watch"],
        "/secrets",
        ("kube-system", ""),
    )
    .await?;
    ask.expect(
        false,
        manager,
        &["create"],
        "/serviceaccounts/token",
        ("kube-system", "default"),
    )
    .await?;
    ask.expect(
        false,
        manager,
        &["create", "update", "delete"],
        "/pods",
        ("kube-system", ""),
    )
    .await?;
    ask.expect(
        false,
        manager,
        &["escalate", "bind", "update"],
        "rbac.authorization.k8s.io/clusterroles",
        ("", ""),
    )
    .await
}

async fn in_the_management_cluster(ask: &mut Authorizer<'_>) -> Result<()> {
    let (migrations, status) = (
        "outrigger.dev/cloudprovidermigrations",
        "outrigger.dev/cloudprovidermigrations/status",
    );
    ask.expect(
        true,
        HOSTED_MANAGER,
        &["get", "list", "watch"],
        migrations,
        ("", "prod"),
    )
    .await?;
    ask.expect(true, HOSTED_MANAGER, &["patch"], status, ("", "prod"))
        .await?;
    ask.expect(
        false,
        HOSTED_MANAGER,
        &["patch", "update", "delete", "create"],
        migrations,
        ("", "prod"),
    )
    .await?;
    // Another tenant's migration is not its business.
    ask.expect(
        false,
        HOSTED_MANAGER,
        &["get", "list", "watch"],
        migrations,
        ("", "other"),
    )
    .await?;
    ask.expect(false, HOSTED_MANAGER, &["patch", "update"], status, ("", "other"))
        .await?;
    ask.expect(true, HOSTED_MANAGER, &["list", "watch"], "/pods", ("tenant-prod", ""))
        .await?;
    ask.expect(true, HOSTED_MANAGER, &["list"], "apps/deployments", ("tenant-prod", ""))
        .await?;
    ask.expect(false, HOSTED_MANAGER, &["list"], "/pods", ("default", ""))
        .await?;
    ask.expect(
        false,
        HOSTED_MANAGER,
        &["get", "watch", "update", "patch", "delete"],
        "apps/deployments",
        ("tenant-prod", K),
    )
    .await?;
    // Events about the migration, which has no namespace.
    ask.expect(true, HOSTED_MANAGER, &["create"], "/events", ("default", ""))
        .await?;
    ask.expect(false, HOSTED_MANAGER, &["get", "patch"], "/events", ("default", ""))
        .await?;
    ask.expect(false, HOSTED_MANAGER, &["create"], "/events", ("tenant-prod", ""))
        .await?;
    // It works on the tenant, not on this cluster.
    ask.expect(false, HOSTED_MANAGER, &["list", "update", "delete"], "/nodes", ("", ""))
        .await?;
    ask.lease(false, HOSTED_MANAGER, &["get", "update", "create"], C)
        .await?;
    ask.lease(false, HOSTED_MANAGER, &["get", "update", "create"], M)
        .await?;
    what_the_webhook_may(ask).await
}

async fn what_the_webhook_may(ask: &mut Authorizer<'_>) -> Result<()> {
    let migrations = "outrigger.dev/cloudprovidermigrations";
    ask.expect(true, WEBHOOK, &["list", "watch"], migrations, ("", ""))
        .await?;
    ask.expect(true, WEBHOOK, &["get", "list", "watch"], "/namespaces", ("", ""))
        .await?;
    ask.lease(true, WEBHOOK, &["list", "watch"], C).await?;
    ask.expect(
        false,
        WEBHOOK,
        &["get", "create", "update", "patch", "delete"],
        migrations,
        ("", "prod"),
    )
    .await?;
    let status = "outrigger.dev/cloudprovidermigrations/status";
    ask.expect(true, WEBHOOK, &["patch"], status, ("", "prod")).await?;
    ask.expect(false, WEBHOOK, &["update", "delete"], status, ("", "prod"))
        .await?;
    ask.expect(true, WEBHOOK, &["create"], "/events", ("tenant-prod", ""))
        .await?;
    ask.expect(true, WEBHOOK, &["list"], "apps/deployments", ("tenant-prod", ""))
        .await?;
    ask.expect(false, WEBHOOK, &["get", "list"], "/secrets", ("outrigger-system", ""))
        .await?;
    ask.expect(
        false,
        WEBHOOK,
        &["update", "patch"],
        "apps/deployments",
        ("tenant-prod", K),
    )
    .await?;
    ask.lease(false, WEBHOOK, &["get", "update", "patch"], C).await
}

async fn in_a_cluster_that_migrates_itself(ask: &mut Authorizer<'_>, manager: Subject, before: Subject) -> Result<()> {
    ask.lease(true, OLD_MANAGER, &["get", "update", "create"], M).await?;
    leases_of_the_manager(ask, manager).await?;
    work_of_the_manager_here(ask, manager).await?;
    // The bindings name one subject, so the subject before it has lost what it had.
    ask.lease(false, before, &["get", "update", "create"], M).await?;
    what_the_webhook_may(ask).await
}

async fn work_of_the_manager_here(ask: &mut Authorizer<'_>, manager: Subject) -> Result<()> {
    let (migrations, status) = (
        "outrigger.dev/cloudprovidermigrations",
        "outrigger.dev/cloudprovidermigrations/status",
    );
    work_of_the_manager(ask, manager).await?;
    ask.expect(true, manager, &["get", "list", "watch"], migrations, ("", ""))
        .await?;
    ask.expect(true, manager, &["patch"], status, ("", "prod")).await?;
    ask.expect(false, manager, &["update", "patch", "delete"], migrations, ("", "prod"))
        .await?;
    ask.expect(true, manager, &["list", "watch"], "/pods", ("kube-system", ""))
        .await?;
    ask.expect(false, manager, &["list"], "/pods", ("default", "")).await?;
    let authentication = ("kube-system", "extension-apiserver-authentication");
    ask.expect(true, manager, &["get"], "/configmaps", authentication)
        .await?;
    ask.expect(
        true,
        manager,
        &["create"],
        "authentication.k8s.io/tokenreviews",
        ("", ""),
    )
    .await
}

/// With a certificate of its own: the registrations by name, and no other part of them than a patch can reach.
async fn registrations_of_the_webhook(ask: &mut Authorizer<'_>, webhook: Subject) -> Result<()> {
    let (mutating, validating) = (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
    );
    for (kind, own) in [
        (
            mutating,
            &["outrigger", "early.outrigger.dev", "outrigger-kube-system"][..],
        ),
        (validating, &["outrigger"]),
    ] {
        for name in own {
            ask.expect(true, webhook, &["list", "watch", "patch"], kind, ("", name))
                .await?;
            ask.expect(false, webhook, &["get", "create", "update", "delete"], kind, ("", name))
                .await?;
        }
        for other in ["", "kubermatic-clusters"] {
            ask.expect(false, webhook, &["list", "watch", "patch"], kind, ("", other))
                .await?;
        }
    }
    Ok(())
}

async fn secrets_of_the_webhook(ask: &mut Authorizer<'_>) -> Result<()> {
    let namespace = "outrigger-system";
    let own = (namespace, "outrigger-webhook-self-signed");
    ask.expect(true, WEBHOOK, &["list", "watch", "update"], "/secrets", own)
        .await?;
    ask.expect(false, WEBHOOK, &["get", "patch", "delete"], "/secrets", own)
        .await?;
    ask.expect(false, WEBHOOK, &["create"], "/secrets", (namespace, ""))
        .await?;
    for other in ["", "outrigger-webhook-tls"] {
        ask.expect(
            false,
            WEBHOOK,
            &["get", "list", "watch", "update"],
            "/secrets",
            (namespace, other),
        )
        .await?;
    }
    let elsewhere = ("kube-system", "outrigger-webhook-self-signed");
    ask.expect(
        false,
        WEBHOOK,
        &["get", "list", "update", "create"],
        "/secrets",
        elsewhere,
    )
    .await
}

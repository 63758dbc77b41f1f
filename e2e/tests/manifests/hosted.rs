//! Hosted control planes: the manager of a tenant runs in the management cluster and works for another one.

use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_environment::manifests;
use serde_json::{Value, json};

use super::rendered;

fn of_kind<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

async fn hosted() -> Vec<Value> {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    rendered(&tools, "overlays/hosted/management").await
}

/// Instance metadata there is that of the management cluster's node.
#[tokio::test]
async fn a_tenants_manager_takes_no_aws_identity_from_the_management_clusters_node() {
    let objects = hosted().await;
    let manager = of_kind(&objects, "Deployment", "outrigger-manager");
    let pod = &manager["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let environment = |name: &str| {
        let variables = container["env"].as_array().map_or(&[][..], Vec::as_slice);
        variables
            .iter()
            .find(|variable| variable["name"] == name)
            .map(|variable| variable["value"].clone())
    };
    assert_eq!(environment("AWS_EC2_METADATA_DISABLED"), Some(json!("true")));

    // So the credentials come from a Secret of the tenant's.
    let arguments = container["args"].as_array().expect("arguments").iter();
    let mut files = arguments.filter_map(|argument| argument.as_str()?.strip_prefix("--aws-keys-file="));
    let file = files.next().expect("a file with keys");
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let mount = mounts
        .iter()
        .find(|mount| mount["mountPath"].as_str().is_some_and(|path| file.starts_with(path)))
        .expect("the file's folder is mounted");
    let volumes = pod["volumes"].as_array().expect("volumes");
    let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
    let secret = &volume.expect("the volume")["secret"]["secretName"];
    assert_eq!(*secret, json!("outrigger-aws-credentials"));
}

/// The kubelet renews the token of the Pod; a token in a Secret never ends.
#[tokio::test]
async fn a_tenants_manager_reads_its_migration_with_the_token_of_its_pod() {
    let objects = hosted().await;
    let manager = of_kind(&objects, "Deployment", "outrigger-manager");
    let pod = &manager["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], true);
    assert_eq!(pod["serviceAccountName"], "outrigger-manager");

    let arguments = pod["containers"][0]["args"].as_array().expect("arguments");
    assert!(arguments.contains(&json!("--migration-kubeconfig=in-cluster")));
    let account = of_kind(&objects, "ServiceAccount", "outrigger-manager");
    assert_eq!(account["metadata"]["namespace"], manager["metadata"]["namespace"]);
    let tokens = objects
        .iter()
        .filter(|object| object["type"] == "kubernetes.io/service-account-token");
    assert_eq!(tokens.count(), 0);
}

/// After the death of its node, a Pod is replaced only after minutes.
#[tokio::test]
async fn a_tenants_manager_has_a_standby_on_another_node() {
    let objects = hosted().await;
    let deployment = of_kind(&objects, "Deployment", "outrigger-manager");
    let manager = &deployment["spec"];
    assert_eq!(manager["replicas"], 2);
    assert_eq!(manager["strategy"]["type"], "RollingUpdate");

    // A drain of both nodes leaves one, and no other Pod displaces it.
    let budget = of_kind(&objects, "PodDisruptionBudget", "outrigger-manager");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(budget["spec"]["selector"], manager["selector"]);
    assert_eq!(budget["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    assert_eq!(
        manager["template"]["spec"]["priorityClassName"],
        "system-cluster-critical"
    );

    let pod = &manager["template"];
    let apart = &pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    let apart = &apart["podAffinityTerm"];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    let name = &apart["labelSelector"]["matchLabels"]["app.kubernetes.io/name"];
    assert_eq!(*name, pod["metadata"]["labels"]["app.kubernetes.io/name"]);
}

#[tokio::test]
async fn the_webhook_reaches_a_tenants_api_server_on_a_node_port() {
    let objects = hosted().await;
    let policy = of_kind(&objects, "NetworkPolicy", "outrigger-webhook");
    let reaches = |port: u64| {
        let egress = policy["spec"]["egress"].as_array().expect("egress");
        egress
            .iter()
            .flat_map(|rule| rule["ports"].as_array().expect("ports"))
            .filter(|ports| ports["protocol"] == "TCP")
            .any(|ports| {
                let first = ports["port"].as_u64().expect("a number");
                let last = ports["endPort"].as_u64().unwrap_or(first);
                (first..=last).contains(&port)
            })
    };
    for port in [443, 6443, 30_000, 32_767, 8443] {
        assert!(reaches(port), "port {port}");
    }
    assert!(!reaches(22), "no port below 1024 but 443 and DNS");
}

#[tokio::test]
async fn the_component_lets_only_the_named_addresses_call_the_webhook() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let without = manifests::with_component(&tools, run.path(), "base", "network-policy").await;
    assert!(without.is_err(), "without addresses it is not built");

    let from = json!([{"ipBlock": {"cidr": "192.0.2.10/32"}}, {"ipBlock": {"cidr": "192.0.2.11/32"}}]);
    let peers = json!({
        "apiVersion": "outrigger.dev/v1alpha1", "kind": "NetworkPolicyPeers",
        "metadata": {"name": "api-servers", "annotations": {"config.kubernetes.io/local-config": "true"}},
        "from": from,
    });
    let overlay = run.path().join("kustomize/network-policy");
    std::fs::write(overlay.join("api-servers.yaml"), peers.to_string()).expect("written");
    let text = std::fs::read_to_string(overlay.join("kustomization.yaml")).expect("the overlay");
    std::fs::write(
        overlay.join("kustomization.yaml"),
        text.replace("resources:\n", "resources:\n- api-servers.yaml\n"),
    )
    .expect("written");
    let objects = manifests::build(&tools, &overlay).await.expect("kustomize accepts it");
    let policy = of_kind(&objects, "NetworkPolicy", "outrigger-webhook");
    let admission = &policy["spec"]["ingress"][0];
    assert_eq!(admission["ports"][0]["port"], 8443);
    assert_eq!(admission["from"], from);
    let is_sent = objects.iter().any(|object| object["kind"] == "NetworkPolicyPeers");
    assert!(!is_sent, "kustomize alone reads the addresses");
}

/// An authority that is renewed keeps its key, so that certificates and bundles from before and after go together.
#[tokio::test]
async fn the_authority_of_cert_manager_keeps_its_key() {
    let tools = Tools::load(&[Tool::Kustomize]).await.expect("tools");
    let run = tempfile::tempdir().expect("folder");
    let objects = manifests::with_component(&tools, run.path(), "base", "cert-manager")
        .await
        .expect("kustomize accepts it");
    let authority = of_kind(&objects, "Certificate", "outrigger-ca");
    assert_eq!(authority["spec"]["isCA"], true);
    assert_eq!(authority["spec"]["privateKey"]["rotationPolicy"], "Never");
}

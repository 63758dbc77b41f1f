//! The manifests of the control plane, as kubeadm 1.26 writes them.

use std::fmt::Write;

use anyhow::Result;
use outrigger_cluster_harness::cluster;

use super::{AUDIT_LOG, InTree, SERVICES};
use crate::Machine;

pub(super) const ETCD: &str = "registry.k8s.io/etcd:3.6.0";
pub(super) const API_SERVER: &str = "registry.k8s.io/kube-apiserver:v1.26.13";
pub(super) const CONTROLLER_MANAGER: &str = "registry.k8s.io/kube-controller-manager:v1.26.13";

const PKI: &str = "/etc/kubernetes/pki";
const AUDIT_POLICY: &str = "/etc/kubernetes/audit-policy.yaml";
const AUDIT_FOLDER: &str = "/var/log/kubernetes";
const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud.conf";

/// One static Pod.
struct Component {
    name: &'static str,
    image: &'static str,
    flags: Vec<String>,
    /// Scheme, host, port and path of the liveness probe.
    probe: (&'static str, String, u16, &'static str),
    /// Paths of the host, and whether they are folders.
    volumes: Vec<(&'static str, &'static str, bool)>,
    environment: Vec<(String, String)>,
}

pub(super) fn write(machine: &Machine, machines: &[Machine], cloud: Option<&InTree>) -> Result<()> {
    let mut controller_manager = controller_manager();
    let mut api_server = api_server(machine);
    if let Some(cloud) = cloud {
        machine.write(CLOUD_CONFIG, &cloud.configuration)?;
        controller_manager.flags.extend([
            format!("--cloud-config={CLOUD_CONFIG}"),
            "--cloud-provider=aws".to_owned(),
            "--configure-cloud-routes=false".to_owned(),
        ]);
        controller_manager.flags.sort();
        controller_manager.volumes.push(("cloud-config", CLOUD_CONFIG, false));
        controller_manager.environment = cloud.environment_of(controller_manager.name);

        machine.write(AUDIT_POLICY, cluster::AUDIT_POLICY)?;
        api_server.flags.extend([
            format!("--audit-log-path={AUDIT_LOG}"),
            format!("--audit-policy-file={AUDIT_POLICY}"),
            "--cloud-provider=aws".to_owned(),
        ]);
        api_server.flags.sort();
        api_server.volumes.push(("audit-policy", AUDIT_POLICY, false));
        api_server.volumes.push(("audit-log", AUDIT_FOLDER, true));
    }

    for component in [etcd(machine, machines), api_server, controller_manager] {
        let path = format!("/etc/kubernetes/manifests/{}.yaml", component.name);
        machine.write(&path, component.manifest())?;
    }
    Ok(())
}

/// A power cut of a machine ends processes only, so etcd's data are safe without waiting for the disk. The times are
/// those of etcd's guide for slow machines: <https://etcd.io/docs/v3.6/tuning/#time-parameters>
fn etcd(machine: &Machine, machines: &[Machine]) -> Component {
    let address = machine.address();
    let peers: Vec<String> = machines
        .iter()
        .map(|machine| format!("{}=http://{}:2380", machine.name(), machine.address()))
        .collect();
    Component {
        name: "etcd",
        image: ETCD,
        flags: vec![
            format!("--advertise-client-urls=http://{address}:2379"),
            "--data-dir=/var/lib/etcd".to_owned(),
            format!("--initial-advertise-peer-urls=http://{address}:2380"),
            format!("--initial-cluster={}", peers.join(",")),
            format!("--listen-client-urls=http://127.0.0.1:2379,http://{address}:2379"),
            "--listen-metrics-urls=http://127.0.0.1:2381".to_owned(),
            format!("--listen-peer-urls=http://{address}:2380"),
            format!("--name={}", machine.name()),
            "--unsafe-no-fsync=true".to_owned(),
            "--heartbeat-interval=500".to_owned(),
            "--election-timeout=5000".to_owned(),
        ],
        probe: ("HTTP", "127.0.0.1".to_owned(), 2381, "/health?serializable=true"),
        volumes: vec![("etcd-data", "/var/lib/etcd", true)],
        environment: Vec::new(),
    }
}

fn api_server(machine: &Machine) -> Component {
    let address = machine.address().to_string();
    Component {
        name: "kube-apiserver",
        image: API_SERVER,
        flags: vec![
            format!("--advertise-address={address}"),
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            format!("--client-ca-file={PKI}/ca.crt"),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            // There is no kube-proxy that leads the API server to the endpoints of a webhook.
            "--enable-aggregator-routing=true".to_owned(),
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--kubelet-client-certificate={PKI}/apiserver-kubelet-client.crt"),
            format!("--kubelet-client-key={PKI}/apiserver-kubelet-client.key"),
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".to_owned(),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            format!("--requestheader-client-ca-file={PKI}/front-proxy-ca.crt"),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--secure-port=6443".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            format!("--service-account-key-file={PKI}/sa.pub"),
            format!("--service-account-signing-key-file={PKI}/sa.key"),
            format!("--service-cluster-ip-range={SERVICES}"),
            format!("--tls-cert-file={PKI}/apiserver.crt"),
            format!("--tls-private-key-file={PKI}/apiserver.key"),
        ],
        probe: ("HTTPS", address, 6443, "/livez"),
        volumes: vec![("k8s-certs", PKI, true)],
        environment: Vec::new(),
    }
}

fn controller_manager() -> Component {
    const CONFIG: &str = "/etc/kubernetes/controller-manager.conf";
    Component {
        name: "kube-controller-manager",
        image: CONTROLLER_MANAGER,
        flags: vec![
            format!("--authentication-kubeconfig={CONFIG}"),
            format!("--authorization-kubeconfig={CONFIG}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={PKI}/ca.crt"),
            "--cluster-name=kubernetes".to_owned(),
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
            format!("--kubeconfig={CONFIG}"),
            "--leader-elect=true".to_owned(),
            format!("--requestheader-client-ca-file={PKI}/front-proxy-ca.crt"),
            format!("--root-ca-file={PKI}/ca.crt"),
            format!("--service-account-private-key-file={PKI}/sa.key"),
            "--use-service-account-credentials=true".to_owned(),
        ],
        probe: ("HTTPS", "127.0.0.1".to_owned(), 10257, "/healthz"),
        volumes: vec![("k8s-certs", PKI, true), ("kubeconfig", CONFIG, false)],
        environment: Vec::new(),
    }
}

impl Component {
    /// kubeadm's text.
    fn manifest(&self) -> String {
        let Self { name, image, .. } = self;
        let mut text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: null\n  labels:\n    component: {name}\n    \
             tier: control-plane\n  name: {name}\n  namespace: kube-system\nspec:\n  containers:\n  - command:\n    - {name}\n"
        );
        for flag in &self.flags {
            let _ = writeln!(text, "    - {flag}");
        }
        if !self.environment.is_empty() {
            text.push_str("    env:\n    - name: NODE_NAME\n      valueFrom:\n        fieldRef:\n          fieldPath: spec.nodeName\n");
        }
        for (variable, value) in &self.environment {
            let _ = write!(text, "    - name: {variable}\n      value: {value:?}\n");
        }
        let _ = write!(
            text,
            "    image: {image}\n    imagePullPolicy: IfNotPresent\n    name: {name}\n"
        );
        text.push_str(&self.probe("livenessProbe", 8));
        text.push_str(&self.probe("startupProbe", 24));
        text.push_str("    volumeMounts:\n");
        for (volume, path, _) in &self.volumes {
            let _ = write!(text, "    - mountPath: {path}\n      name: {volume}\n");
        }
        text.push_str("  hostNetwork: true\n  priority: 2000001000\n  priorityClassName: system-node-critical\n");
        text.push_str("  securityContext:\n    seccompProfile:\n      type: RuntimeDefault\n  volumes:\n");
        for (volume, path, is_folder) in &self.volumes {
            let kind = if *is_folder {
                "DirectoryOrCreate"
            } else {
                "FileOrCreate"
            };
            let _ = write!(
                text,
                "  - hostPath:\n      path: {path}\n      type: {kind}\n    name: {volume}\n"
            );
        }
        text.push_str("status: {}\n");
        text
    }

    fn probe(&self, kind: &str, failures: u8) -> String {
        let (scheme, host, port, path) = &self.probe;
        format!(
            "    {kind}:\n      failureThreshold: {failures}\n      httpGet:\n        host: {host}\n        path: {path}\n        \
             port: {port}\n        scheme: {scheme}\n      initialDelaySeconds: 10\n      periodSeconds: 10\n      \
             timeoutSeconds: 15\n"
        )
    }
}

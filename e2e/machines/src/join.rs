//! How a kubelet becomes a Node of a cluster: the files that `kubeadm join` writes.

use std::net::Ipv4Addr;

use anyhow::Result;
use outrigger_cluster_harness::cluster::{ApiServer, Authority, User, kubeconfig};
use serde_json::json;

use crate::fleet::PAUSE;
use crate::kubeadm::SERVICE;
use crate::{Fleet, HOST, Machine};

impl Fleet {
    /// Starts the kubelets as Nodes of an API server of the harness, whose certificate has to contain [`HOST`].
    ///
    /// # Errors
    /// When a file cannot be written, or a machine is off.
    pub async fn join(&mut self, server: &ApiServer) -> Result<()> {
        let port = server.url().rsplit_once(':').map_or("", |(_, port)| port);
        let address = format!("{HOST}:{port}");
        for machine in self.machines_mut() {
            machine.use_api_server(address.clone());
            for chain in ["PREROUTING", "OUTPUT"] {
                let rule =
                    format!("-t nat -R {chain} 1 -d {SERVICE} -p tcp --dport 443 -j DNAT --to-destination {address}");
                let rule: Vec<&str> = rule.split(' ').collect();
                machine.run("iptables", &rule).await?;
            }
            machine.join(&format!("https://{address}"), server.authority(), "")?;
        }
        Ok(())
    }
}

impl Machine {
    /// Writes the files of the kubelet, which then starts. `flags` follow those of kubeadm.
    ///
    /// # Errors
    /// When a certificate cannot be issued, or a file cannot be written.
    pub(crate) fn join(&self, server: &str, authority: &Authority, flags: &str) -> Result<()> {
        let user = User::new(format!("system:node:{}", self.name())).in_group("system:nodes");
        self.write_kubeconfig("/etc/kubernetes/kubelet.conf", server, authority, &user)?;
        self.write("/etc/kubernetes/pki/ca.crt", authority.certificate())?;

        let flags = format!(
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock \
             --pod-infra-container-image={PAUSE}{flags}\"\n"
        );
        self.write("/var/lib/kubelet/kubeadm-flags.env", flags)?;
        // The last file: with it the kubelet starts.
        self.write("/var/lib/kubelet/config.yaml", self.configuration())
    }

    pub(crate) fn write_kubeconfig(&self, path: &str, server: &str, authority: &Authority, user: &User) -> Result<()> {
        let credentials = authority.client(user)?;
        let content = kubeconfig("kubernetes", server, authority.certificate(), user.name(), &credentials);
        self.write(path, content.to_string())
    }

    /// kubeadm's configuration, and what a machine needs that is no virtual machine: its own cgroup, which has no limits.
    fn configuration(&self) -> String {
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [Ipv4Addr::new(10, 96, 0, 10)],
            "clusterDomain": "cluster.local",
            "staticPodPath": "/etc/kubernetes/manifests",
            "fileCheckFrequency": "2s",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup()),
            "enforceNodeAllocatable": [],
            "failSwapOn": false,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        });
        configuration.to_string()
    }
}

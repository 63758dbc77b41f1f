//! Command lines of kube-controller-manager: the management cluster's, without a cloud, and the tenant's old one, with
//! the in-tree AWS provider.

use std::path::{Path, PathBuf};

/// The controllers that make Pods out of workloads and clean up behind them, and those that let Pods be admitted.
const WORKLOAD_CONTROLLERS: &str = "deployment,replicaset,statefulset,daemonset,garbagecollector,namespace,\
                                    serviceaccount,serviceaccount-token,root-ca-cert-publisher,podgc";

/// The management cluster's controller manager 1.26: no cloud provider, only what turns workloads into Pods.
#[derive(Debug, Clone)]
pub struct ManagementControllerManager {
    pub kubeconfig: PathBuf,
    pub service_account_key: PathBuf,
    /// Where it may write its self-signed serving certificate.
    pub certificate_folder: PathBuf,
    /// HTTPS, on loopback.
    pub port: u16,
}

impl ManagementControllerManager {
    /// The command line, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let (key, certificates) = (&self.service_account_key, &self.certificate_folder);
        let mut arguments = common(&self.kubeconfig, key, certificates, self.port);

        arguments.extend([
            format!("--controllers={WORKLOAD_CONTROLLERS}"),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
        ]);
        arguments
    }
}

/// The tenant's old controller manager 1.26 with the in-tree AWS provider, real leader election, and every default
/// controller. Routes are left to nobody, as in clusters whose CNI brings its own network.
#[derive(Debug, Clone)]
pub struct TenantControllerManager {
    /// The kubeconfig of user `system:kube-controller-manager`.
    pub kubeconfig: PathBuf,
    /// The cloud config file (see `cloud_config` of the simulated account).
    pub cloud_config: PathBuf,
    pub cluster_name: String,
    pub service_account_key: PathBuf,
    pub certificate_folder: PathBuf,
    pub port: u16,
    /// Whether it starts with `--enable-leader-migration`. In a migration the webhook adds it, so this is false there.
    pub leader_migration: bool,
}

impl TenantControllerManager {
    /// The command line, without the program.
    pub fn arguments(&self) -> Vec<String> {
        let (key, certificates) = (&self.service_account_key, &self.certificate_folder);
        let mut arguments = common(&self.kubeconfig, key, certificates, self.port);

        arguments.extend([
            "--cloud-provider=aws".to_owned(),
            format!("--cloud-config={}", self.cloud_config.display()),
            format!("--cluster-name={}", self.cluster_name),
            "--configure-cloud-routes=false".to_owned(),
            "--leader-elect=true".to_owned(),
            // Its own user may do little: each controller acts as a service account with a bootstrap role of its own,
            // as everywhere where the manager is no admin.
            "--use-service-account-credentials=true".to_owned(),
        ]);

        if self.leader_migration {
            arguments.push("--enable-leader-migration".to_owned());
        }

        arguments
    }
}

fn common(kubeconfig: &Path, key: &Path, certificates: &Path, port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--service-account-private-key-file={}", key.display()),
        format!("--cert-dir={}", certificates.display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
    ]
}

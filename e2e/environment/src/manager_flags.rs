//! The command line of a cloud controller manager that runs beside no other.

use std::path::Path;

/// The flags of ours and of the incumbent for one cluster and one cloud config, without routes and without an HTTPS port.
#[must_use]
pub fn manager_flags(cloud_config: &Path, kubeconfig: &Path) -> [String; 7] {
    let kubeconfig = kubeconfig.display();
    [
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", cloud_config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--configure-cloud-routes=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}

//! The kube-controller-manager's main lease, whose holder is the evidence for Prepared.

use crate::{
    command_line::{CommandLine, Flag, Unreadable},
    component::Component,
    migration::DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE,
};

/// Where every stock component has its leases.
const NAMESPACE: &str = "kube-system";

/// An instruction about a kube-controller-manager whose lease is not the one that the migration reads; none if it is.
///
/// # Errors
/// When the command line cannot be read.
pub fn other_lease(component: Component, line: &CommandLine, expected: &str) -> Result<Option<String>, Unreadable> {
    if component != Component::KubeControllerManager || line.script().is_some() {
        return Ok(None);
    }

    let value = |name| line.value(Flag::text(name));
    let name = value("leader-elect-resource-name")?;
    let name = name.unwrap_or_else(|| DEFAULT_KUBE_CONTROLLER_MANAGER_LEASE.to_owned());
    if name != expected {
        return Ok(Some(format!(
            "set spec.kubeControllerManagerLease: {name}, the value of its --leader-elect-resource-name: the manager finds no evidence for Prepared in the lease {expected}"
        )));
    }

    let namespace = value("leader-elect-resource-namespace")?.filter(|namespace| namespace != NAMESPACE);
    Ok(namespace.map(|namespace| {
        format!(
            "start the cloud-controller-manager with --leader-elect-resource-namespace={namespace}, as this one; else it reads leases of {NAMESPACE}"
        )
    }))
}

//! Static Pods: files on a machine of the control plane. No admission reaches them, so a command on that machine applies
//! the rules of Pods.

use serde_json::Value;

use super::{Decision, Migration, pod_spec};
use crate::patch::Path;

/// Decides the static Pods of one machine, without targets of the migration: the caller has chosen the machine.
///
/// The Pods change together, as one object with several components does. So the API server's part waits for Complete
/// up to 1.28, as in kubeadm's ClusterConfiguration.
#[must_use]
pub fn static_pods(migration: &Migration<'_>, pods: &[&Value]) -> Vec<Decision> {
    let both = pod_spec::hold_both(pods);
    let decide = |pod: &&Value| {
        let draft = pod_spec::draft_beside(migration, &Path::default(), pod, None, both);
        Decision::of(draft, migration, "static-pod".to_owned())
    };
    pods.iter().map(decide).collect()
}

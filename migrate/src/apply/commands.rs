//! The commands that a person types.

use outrigger_shared::migration::{Phase, Profile};

/// The names in the commands.
#[derive(Clone, Copy, Debug)]
pub struct Commands<'a> {
    /// None before the object exists.
    pub migration: Option<&'a str>,
    /// The flags that name the cluster.
    pub cluster: &'a str,
    pub profiles: &'a [Profile],
}

/// The page of each profile.
const GUIDES: [(Profile, &str); 6] = [
    (Profile::KubeadmConfig, "docs/guides/kubeadm.md"),
    (Profile::HostedControlPlane, "docs/guides/hosted.md"),
    (Profile::ClusterAPI, "docs/guides/cluster-api.md"),
    (Profile::Kubermatic, "docs/guides/kkp.md"),
    (Profile::RancherRKE2, "docs/guides/rke2.md"),
    (Profile::RancherRKE1, "docs/guides/rke1.md"),
];

const WAIT_FOR_POD: &str = "# before the next machine, wait until its Pod is Ready:";

impl Commands<'_> {
    pub fn outrigger(&self, verb: &str, to: Phase) -> String {
        let name = self.migration.map(|name| format!(" {name}"));
        format!("outrigger {verb}{} --to={to}{}", name.unwrap_or_default(), self.cluster)
    }

    pub fn guide(&self) -> String {
        let page = GUIDES.iter().find(|(profile, _)| self.profiles.contains(profile));
        let page = page.map_or("the page of your distribution in docs/guides", |(_, page)| *page);
        format!("# {page} shows how")
    }

    fn is_kubeadm(&self) -> bool {
        self.profiles.contains(&Profile::KubeadmConfig)
    }

    /// A command of kubectl.
    fn kubectl(&self, words: &str) -> String {
        format!("kubectl{} {words}", self.cluster)
    }

    /// Makes the file that `outrigger node edit` reads.
    fn current(&self) -> String {
        let name = self.migration.unwrap_or("NAME");
        let get = format!("get cloudprovidermigration {name} -o yaml > current.yaml");
        self.kubectl(&get)
    }

    fn pods(&self) -> String {
        self.kubectl("-n kube-system get pods -l component=kube-controller-manager -o wide")
    }

    pub fn control_plane(&self, machines: &[String]) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![self.guide()];
        }
        vec![
            self.current(),
            format!(
                "# copy current.yaml to {}, and run there, in this order:",
                named(machines)
            ),
            "outrigger node edit --migration current.yaml --component kube-controller-manager".to_owned(),
            WAIT_FOR_POD.to_owned(),
            self.pods(),
        ]
    }

    pub fn machines(&self) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![self.guide()];
        }
        vec![
            self.current(),
            "# copy current.yaml to each machine. On one control-plane machine after the other:".to_owned(),
            "outrigger node edit --migration current.yaml".to_owned(),
            "systemctl restart kubelet".to_owned(),
            "# before the next machine, wait until its API server answers. Then on one worker after the other:"
                .to_owned(),
            "outrigger node edit --migration current.yaml --component kubelet".to_owned(),
            "systemctl restart kubelet".to_owned(),
            "# before the next worker, wait until its Node is Ready. Only when all kubelets are external:".to_owned(),
            self.kubectl("annotate nodes --all outrigger.dev/kubelet=external --overwrite"),
        ]
    }

    /// The kubelets are first: the in-tree provider removes the targets of a Node while it is not Ready.
    fn kubelets_back(&self) -> Vec<String> {
        vec![
            self.current(),
            "# copy current.yaml to each machine whose kubelet is external. On one machine after the other:".to_owned(),
            "outrigger node edit --migration current.yaml --component kubelet --back".to_owned(),
            "systemctl restart kubelet".to_owned(),
            "# a machine that joined as external has no original flags: change them by hand".to_owned(),
            "# when all Nodes are Ready and no kubelet is external:".to_owned(),
            self.kubectl("annotate nodes --all outrigger.dev/kubelet-"),
        ]
    }

    pub fn control_plane_back(&self, phase: Phase, machines: &[String]) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![format!("{}, under \"Go back\"", self.guide())];
        }
        let machines = named(machines);
        let wait = "# before the next machine, wait until its API server answers and its Pods are Ready:".to_owned();
        match phase {
            Phase::InTree => vec![
                format!("# on {machines}, in this order:"),
                "outrigger node undo".to_owned(),
                wait,
                self.pods(),
            ],
            _ => {
                let mut commands = self.kubelets_back();
                commands.extend([
                    format!("# then on {machines}, in this order:"),
                    "outrigger node edit --migration current.yaml --back".to_owned(),
                    wait,
                    self.pods(),
                ]);
                commands
            }
        }
    }
}

fn named(machines: &[String]) -> String {
    match machines {
        [] => "each control-plane machine, the leader last".to_owned(),
        machines => machines.join(", "),
    }
}

/// The flags that name a cluster, as a shell reads them.
pub fn cluster_flags(kubeconfig: Option<&str>, context: Option<&str>) -> String {
    let flag = |name: &str, value: Option<&str>| value.map(|value| format!(" --{name}={}", quoted(value)));
    [flag("kubeconfig", kubeconfig), flag("context", context)]
        .into_iter()
        .flatten()
        .collect()
}

fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@:/._-+".contains(&byte);
    match value.bytes().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_cluster_are_quoted_for_a_shell() {
        assert_eq!(cluster_flags(None, None), "");
        assert_eq!(cluster_flags(None, Some("admin@prod")), " --context=admin@prod");
        assert_eq!(
            cluster_flags(Some("a b"), Some("it's; rm")),
            r" --kubeconfig='a b' --context='it'\''s; rm'"
        );
    }
}

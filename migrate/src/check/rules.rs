//! The table of checks.

use super::error::Error;
use super::finding::Found;
use super::{access, control_plane, installation, nodes, services};
use crate::args::Severity;
use crate::facts::{ClusterFacts, NotRead};

/// A part of the cluster, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    Access,
    Installation,
    ControlPlane,
    Nodes,
    LoadBalancers,
}

impl Group {
    pub const ALL: [Self; 5] = [
        Self::Access,
        Self::Installation,
        Self::ControlPlane,
        Self::Nodes,
        Self::LoadBalancers,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Installation => "installation",
            Self::ControlPlane => "control plane",
            Self::Nodes => "nodes",
            Self::LoadBalancers => "load balancers",
        }
    }
}

/// A check. Its code is never given to another one.
#[derive(Debug)]
pub struct Rule {
    pub code: &'static str,
    pub group: Group,
    pub severity: Severity,
    /// The fault in a few words.
    pub title: &'static str,
    /// Why it matters.
    pub why: &'static str,
    pub fix: &'static str,
    /// Where the check looks.
    pub source: &'static str,
    pub find: fn(&ClusterFacts) -> Result<Found, NotRead>,
}

/// Refuses a code that no check has.
///
/// # Errors
/// With the name of the flag.
pub fn known(flag: &'static str, codes: &[String]) -> Result<(), Error> {
    let is_unknown = |code: &&String| !ALL.iter().any(|rule| rule.code.eq_ignore_ascii_case(code));
    match codes.iter().find(is_unknown) {
        Some(value) => Err(Error::NoCheck {
            flag,
            value: value.clone(),
        }),
        None => Ok(()),
    }
}

/// The rules with these codes, or of these groups; all without one.
///
/// # Errors
/// Names a text that is neither.
pub fn named(only: &[String]) -> Result<Vec<&'static Rule>, Error> {
    let is_named = |rule: &&Rule, name: &String| {
        rule.code.eq_ignore_ascii_case(name) || rule.group.as_str().replace(' ', "-").eq_ignore_ascii_case(name)
    };
    if let Some(unknown) = only.iter().find(|name| !ALL.iter().any(|rule| is_named(&rule, name))) {
        return Err(Error::NoCheck {
            flag: "only",
            value: unknown.clone(),
        });
    }

    let all = ALL.iter();
    Ok(all
        .filter(|rule| only.is_empty() || only.iter().any(|name| is_named(rule, name)))
        .collect())
}

use Group::{Access, ControlPlane, Installation, LoadBalancers, Nodes};
use Severity::{Error as E, Warning as W};

/// All checks, by code.
pub static ALL: &[Rule] = &[
    Rule {
        code: "OUT101",
        group: Access,
        severity: E,
        title: "the Kubernetes version has no leader migration",
        why: "Before 1.22 two managers cannot hand over the controllers without downtime, and before 1.20 the flags differ.",
        fix: "upgrade to 1.22 or later first; for 1.20 and 1.21 there is docs/guides/downtime.md",
        source: "the API server's version",
        find: control_plane::old_version,
    },
    Rule {
        code: "OUT102",
        group: Access,
        severity: W,
        title: "you lack a right",
        why: "A check that may not read something is not made, so it is not known whether something is in the way.",
        fix: "add the right, or ask somebody who has it for outrigger facts",
        source: "answers of the API server",
        find: access::missing_rights,
    },
    Rule {
        code: "OUT103",
        group: Access,
        severity: W,
        title: "this machine's clock differs from the API server's",
        why: "Ages are computed by the API server's clock. Times of Events and logs look wrong beside your own.",
        fix: "synchronize the clocks",
        source: "header Date of the API server",
        find: access::clocks,
    },
    Rule {
        code: "OUT201",
        group: Installation,
        severity: E,
        title: "the manager does not follow the phase",
        why: "The migration asks for a phase that the manager refuses, so nothing goes on.",
        fix: "set the phase that the message names",
        source: "condition PhaseFollowed of the CloudProviderMigration",
        find: installation::phase_not_followed,
    },
    Rule {
        code: "OUT202",
        group: Installation,
        severity: E,
        title: "the migration waits for a person",
        why: "The state that the phase asks for is not reached, and does not come by itself.",
        fix: "take the steps that outrigger status names",
        source: "condition Stalled and status.missing of the CloudProviderMigration",
        find: installation::stalled,
    },
    Rule {
        code: "OUT203",
        group: Installation,
        severity: E,
        title: "nobody observes the migration",
        why: "The status is old, so it does not describe the present cluster. The leading manager writes it at least once a minute.",
        fix: "look at the manager's Pods: kubectl -n kube-system get pods -l app.kubernetes.io/name=outrigger-manager",
        source: "status.observedBy of the CloudProviderMigration",
        find: installation::unobserved,
    },
    Rule {
        code: "OUT204",
        group: Installation,
        severity: E,
        title: "the spec of the migration contradicts itself",
        why: "Manager and webhook do nothing, or not what was meant, with an invalid spec.",
        fix: "correct the field that the message names",
        source: "condition SpecValid of the CloudProviderMigration",
        find: installation::invalid_spec,
    },
    Rule {
        code: "OUT205",
        group: Installation,
        severity: W,
        title: "stored objects do not have the form of the phase",
        why: "New machines or Pods come up in the form of another phase.",
        fix: "write the objects once more while the webhook runs, as docs/webhook.md says",
        source: "condition ObjectsApplied of the CloudProviderMigration",
        find: installation::objects_not_applied,
    },
    Rule {
        code: "OUT206",
        group: Installation,
        severity: W,
        title: "a control-plane Node has no Pod of the manager",
        why: "While the other control-plane machines do not run, no process initializes Nodes or updates load balancers.",
        fix: "let the DaemonSet tolerate the taints of that Node",
        source: "Pods of kube-system and Nodes with a control-plane role",
        find: installation::uncovered_nodes,
    },
    Rule {
        code: "OUT207",
        group: Installation,
        severity: E,
        title: "another cloud-controller-manager runs beside Outrigger's manager or the in-tree provider",
        why: "Two managers act on the same load balancers, unless they share the leases.",
        fix: "remove the other one, see docs/operations/replace.md",
        source: "Pods of kube-system",
        find: installation::second_manager,
    },
    Rule {
        code: "OUT208",
        group: Installation,
        severity: E,
        title: "the webhook is not registered, or without a CA",
        why: "The migration has targets, and API servers do not call the webhook for them.",
        fix: "install the registration: outrigger webhook register; caBundle comes from cert-manager or from the webhook itself",
        source: "MutatingWebhookConfigurations",
        find: installation::registration,
    },
    Rule {
        code: "OUT209",
        group: Installation,
        severity: W,
        title: "a Pod of the manager is not Ready",
        why: "It cannot take over when the leading one ends.",
        fix: "read the Events and the log of the Pod",
        source: "Pods of kube-system",
        find: installation::not_ready,
    },
    Rule {
        code: "OUT210",
        group: Installation,
        severity: W,
        title: "the CustomResourceDefinition lacks fields of this version",
        why: "The API server drops fields that it does not know, and the manager writes its status without them. Helm does not change a definition that is installed.",
        fix: "apply the definition of the installed version: kubectl apply --server-side --force-conflicts -f charts/outrigger/crds",
        source: "the CustomResourceDefinition",
        find: installation::old_definition,
    },
    Rule {
        code: "OUT211",
        group: Installation,
        severity: E,
        title: "no Pod of the webhook is Ready",
        why: "Objects pass unchanged, and Pods of kube-controller-managers in labelled namespaces wait.",
        fix: "read the Events and the logs of its Pods: kubectl get pods -A -l app.kubernetes.io/name=outrigger-webhook",
        source: "Pods with the label app.kubernetes.io/name=outrigger-webhook, and registrations of a Service",
        find: installation::no_webhook,
    },
    Rule {
        code: "OUT212",
        group: Installation,
        severity: W,
        title: "manager and webhook have different versions",
        why: "Only equal versions are tested with each other. During a roll-out this is expected.",
        fix: "finish the upgrade, see docs/operations/upgrade.md",
        source: "tags of the images",
        find: installation::different_releases,
    },
    Rule {
        code: "OUT213",
        group: Installation,
        severity: E,
        title: "the webhook's registration does not fit the targets",
        why: "API servers do not send the webhook all objects of the migration, so these keep their form.",
        fix: "do what the message says; with the chart, the value profiles has to name the profiles of all targets",
        source: "condition WebhookRegistered of the CloudProviderMigration",
        find: installation::not_registered,
    },
    Rule {
        code: "OUT214",
        group: Installation,
        severity: E,
        title: "the manager would change something when it takes over",
        why: "Outrigger's manager takes load balancers, routes and Nodes over as they are. Its dry run has found some that it would change when it takes over: somebody changed them at AWS, or it reads the Service or the cloud configuration in another way than the kube-controller-manager.",
        fix: "look at each change in status.adoption of the CloudProviderMigration; correct the Service, the Node or the resource at AWS. If the changes are wanted: outrigger apply --to=Migrate --accept=OUT214",
        source: "status.adoption and the condition AdoptionClean of the CloudProviderMigrations, in phases InTree and Prepare",
        find: installation::not_clean,
    },
    Rule {
        code: "OUT301",
        group: ControlPlane,
        severity: W,
        title: "no kube-controller-manager was found",
        why: "Its command line would prove when it releases the controllers.",
        fix: "a control plane in another cluster needs a target of profile HostedControlPlane; other ones need an attestation (docs/status.md)",
        source: "Pods of kube-system",
        find: control_plane::none_seen,
    },
    Rule {
        code: "OUT302",
        group: ControlPlane,
        severity: E,
        title: "the command line of a kube-controller-manager cannot be read",
        why: "The manager proves by it that nobody else acts on load balancers and Nodes.",
        fix: "start it without a shell and with its flags in the Pod, or attest its form: spec.attestation (docs/status.md)",
        source: "Pods of kube-system",
        find: control_plane::unreadable,
    },
    Rule {
        code: "OUT303",
        group: ControlPlane,
        severity: W,
        title: "the kube-controller-managers create routes",
        why: "The manager must go on with them. Without its own flags the condition Prepared stays false.",
        fix: "start the manager with --configure-cloud-routes=true and the same --cluster-cidr",
        source: "Pods of kube-system",
        find: control_plane::routes,
    },
    Rule {
        code: "OUT304",
        group: ControlPlane,
        severity: W,
        title: "the kube-controller-managers have different flags",
        why: "The next leader behaves differently. While the control plane is changed for a phase, this is expected.",
        fix: "give all of them the same flags",
        source: "Pods of kube-system",
        find: control_plane::differences,
    },
    Rule {
        code: "OUT305",
        group: ControlPlane,
        severity: E,
        title: "a kube-controller-manager uses another lease than the others, or none",
        why: "It acts without the leases that the others have.",
        fix: "turn leader election on; another lease name is spec.kubeControllerManagerLease of the migration",
        source: "Pods of kube-system",
        find: control_plane::other_locks,
    },
    Rule {
        code: "OUT306",
        group: ControlPlane,
        severity: E,
        title: "a kube-controller-manager has its own leader migration file",
        why: "Kubernetes does not show the file, so it is not known which controllers wait for the migration lease.",
        fix: "remove --leader-migration-config: versions 1.22 to 1.27 have the right list built in",
        source: "Pods of kube-system",
        find: control_plane::own_configuration,
    },
    Rule {
        code: "OUT307",
        group: ControlPlane,
        severity: E,
        title: "a lease is too short",
        why: "Another process could acquire it while the manager may still write: its renew deadline is 10 s.",
        fix: "set --leader-elect-lease-duration of the kube-controller-managers to more than 10 s; the default is 15 s",
        source: "Leases of kube-system",
        find: control_plane::short_leases,
    },
    Rule {
        code: "OUT308",
        group: ControlPlane,
        severity: W,
        title: "the leading kube-controller-manager is none of those that were found",
        why: "The manager waits for a leader that it can read.",
        fix: "find its process by the host name in the lease; an attestation can stand in (docs/status.md)",
        source: "the lease of the kube-controller-managers, and Pods of kube-system",
        find: control_plane::unknown_leader,
    },
    Rule {
        code: "OUT309",
        group: ControlPlane,
        severity: E,
        title: "a component does not start with its flags",
        why: "It fails at its next restart.",
        fix: "remove or correct the flag that the message names",
        source: "Pods of kube-system",
        find: control_plane::does_not_start,
    },
    Rule {
        code: "OUT310",
        group: ControlPlane,
        severity: W,
        title: "flags that the manager needs too",
        why: "Names of load balancers and security groups begin with the cluster name, and the cloud configuration names VPC, zone and roles.",
        fix: "give the manager the same values",
        source: "Pods of kube-system",
        find: control_plane::settings,
    },
    Rule {
        code: "OUT311",
        group: ControlPlane,
        severity: W,
        title: "a feature gate that 1.27 does not know",
        why: "After the upgrade to 1.27 the component does not start. The migration itself works with it.",
        fix: "remove the gate from --feature-gates before that upgrade",
        source: "Pods of kube-system, kubelets",
        find: control_plane::removed_gates,
    },
    Rule {
        code: "OUT312",
        group: ControlPlane,
        severity: E,
        title: "a feature gate keeps EBS volumes with the in-tree plugin",
        why: "An external kubelet cannot mount the volumes that this component still attaches in-tree.",
        fix: "install the EBS CSI driver and remove the gate, see docs/guides/prerequisites.md (EBS volumes)",
        source: "Pods of kube-system, PersistentVolumes",
        find: control_plane::csi_gates,
    },
    Rule {
        code: "OUT401",
        group: Nodes,
        severity: E,
        title: "a Node has no provider ID",
        why: "The manager cannot find its instance, so it is no target of load balancers.",
        fix: "wait for its kubelet or the cloud-controller-manager; else look at their logs",
        source: "Nodes",
        find: nodes::no_provider_id,
    },
    Rule {
        code: "OUT402",
        group: Nodes,
        severity: E,
        title: "a Node would get another name",
        why: "An external kubelet names its Node by the host name. The restarted kubelet would register a second Node.",
        fix: "set the Node's name as host name of the machine, or as --hostname-override of the kubelet",
        source: "label kubernetes.io/hostname of the Nodes, and kubelets",
        find: nodes::name_would_change,
    },
    Rule {
        code: "OUT403",
        group: Nodes,
        severity: E,
        title: "a kubelet does not hand EBS volumes to the CSI driver",
        why: "An external kubelet cannot mount in-tree EBS volumes.",
        fix: "turn CSI migration on, see docs/guides/prerequisites.md (EBS volumes)",
        source: "CSINodes, PersistentVolumes",
        find: nodes::no_csi_migration,
    },
    Rule {
        code: "OUT404",
        group: Nodes,
        severity: E,
        title: "the EBS CSI driver is missing",
        why: "An external kubelet mounts EBS volumes by the driver only.",
        fix: "install the EBS CSI driver",
        source: "CSIDrivers, PersistentVolumes",
        find: nodes::no_csi_driver,
    },
    Rule {
        code: "OUT405",
        group: Nodes,
        severity: W,
        title: "images of ECR without a credential provider",
        why: "From 1.27 on the kubelet gets no credentials for ECR by itself. The migration itself works without one.",
        fix: "set --image-credential-provider-config and --image-credential-provider-bin-dir before the upgrade to 1.27",
        source: "status.images of the Nodes, kubelets",
        find: nodes::no_credential_provider,
    },
    Rule {
        code: "OUT406",
        group: Nodes,
        severity: E,
        title: "a Node waits to be initialized",
        why: "No Pod is scheduled on it before a cloud-controller-manager has removed the taint.",
        fix: "look at the Events of the Node and at the manager's log",
        source: "Nodes",
        find: nodes::uninitialized,
    },
    Rule {
        code: "OUT407",
        group: Nodes,
        severity: W,
        title: "a Node is not Ready",
        why: "Its machine is not changed reliably, and later you may take its fault for one of the migration.",
        fix: "repair or remove the Node first",
        source: "Nodes",
        find: nodes::not_ready,
    },
    Rule {
        code: "OUT408",
        group: Nodes,
        severity: E,
        title: "a Node is marked as external, and its kubelet is in-tree",
        why: "NodesMigrated counts a Node that is not migrated.",
        fix: "restart the kubelet with --cloud-provider=external, or remove the annotation: kubectl annotate node NAME outrigger.dev/kubelet-",
        source: "annotation outrigger.dev/kubelet, kubelets",
        find: nodes::wrongly_marked,
    },
    Rule {
        code: "OUT409",
        group: Nodes,
        severity: E,
        title: "a kubelet does not start with its flags",
        why: "It fails at its next restart.",
        fix: "remove or correct the flag that the message names",
        source: "kubelets",
        find: nodes::does_not_start,
    },
    Rule {
        code: "OUT410",
        group: Nodes,
        severity: W,
        title: "a Node has a provider ID that names no AWS instance",
        why: "The Node is neither initialized nor deleted by the manager.",
        fix: "a Node outside of AWS stays as it is; otherwise delete the Node, so that its kubelet registers it again",
        source: "Nodes",
        find: nodes::foreign_provider_id,
    },
    Rule {
        code: "OUT411",
        group: Nodes,
        severity: E,
        title: "two Nodes have one provider ID",
        why: "One of them is of an earlier machine, or a kubelet has registered under another name.",
        fix: "delete the Node that is not Ready",
        source: "Nodes",
        find: nodes::twins,
    },
    Rule {
        code: "OUT601",
        group: LoadBalancers,
        severity: W,
        title: "a Service waits for its load balancer",
        why: "Its clients cannot reach it.",
        fix: "look at its Events: kubectl -n NAMESPACE describe service NAME",
        source: "Services",
        find: services::without_address,
    },
    Rule {
        code: "OUT602",
        group: LoadBalancers,
        severity: W,
        title: "a Service waits for the deletion of its load balancer",
        why: "The finalizer keeps it until its load balancer is gone. Where AWS denies a part of the deletion, Outrigger's manager removes it after 30 minutes.",
        fix: "look at its Events: kubectl -n NAMESPACE describe service NAME",
        source: "Services",
        find: services::not_deleted,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_each_is_given_once() {
        let codes: Vec<&str> = ALL.iter().map(|rule| rule.code).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        let groups: Vec<Group> = ALL.iter().map(|rule| rule.group).collect();
        assert!(groups.is_sorted(), "{groups:?}");
    }

    #[test]
    fn checks_are_named_by_code_or_group() {
        let codes = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            named(&only).map(|rules| rules.len())
        };
        assert_eq!(codes(&[]).unwrap(), ALL.len());
        assert_eq!(codes(&["out101", "OUT402"]).unwrap(), 2);
        assert!(codes(&["control-plane"]).unwrap() > 5);
        assert!(codes(&["OUT999"]).unwrap_err().to_string().contains("OUT999"));
    }
}

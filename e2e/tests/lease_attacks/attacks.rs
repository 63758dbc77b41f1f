//! All attacks, by the field that they write. The table of docs/threat-model.md names them.

/// The test that performs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The API server refuses it, without our manager.
    Refused,
    /// Before the first takeover.
    First,
    /// While a kube-controller-manager with leader migration holds M, and our manager competes for it.
    Guarded,
    /// After the takeover: objects.
    Objects,
    /// After the takeover: leases.
    Leases,
    /// The control plane of a tenant, hosted by another cluster.
    Hosted,
}

pub struct Attack {
    pub name: &'static str,
    /// The first cell of its row.
    pub field: &'static str,
    pub stage: Stage,
    pub principal: &'static str,
    pub attack: &'static str,
}

const RECORDS: &str = "record of the kube-controller-manager's main lease and of the migration lease";
const ANNOTATIONS: &str = "annotations of these leases: `outrigger.dev/released`, `outrigger.dev/prepared` (latch)";
const PODS: &str = "command line and labels of Pods and workloads in kube-system";
const MIRROR: &str = "mirror Pod on a control-plane Node";
const WORKER_MIRROR: &str = "mirror Pod on a worker";
const HOST_IP: &str = "`status.hostIP` of a Pod";
const ROLE: &str = "role label of a Node";
const MANAGED_FIELDS: &str = "`managedFields` of all objects";
const SPEC: &str = "`spec.attestation`, `spec.targets`, `spec.phase`";
const HOSTED: &str = "objects in the namespace of a hosted control plane";

const TEAM: &str = "edit in team-a";
const SYSTEM: &str = "edit in kube-system";
const WORKER: &str = "kubelet of a worker";
const CONTROL_PLANE: &str = "kubelet of a control-plane Node";
const OPERATOR: &str = "outrigger-operator";
const TENANT: &str = "administrator of the tenant";
const NAMESPACE: &str = "edit in the tenant's namespace";

macro_rules! attacks {
    ($($name:literal, $field:ident, $stage:ident, $principal:ident, $attack:literal;)*) => {
        &[$(Attack { name: $name, field: $field, stage: Stage::$stage, principal: $principal, attack: $attack }),*]
    };
}

pub const ATTACKS: &[Attack] = attacks! {
    "kubelets-write-leases", RECORDS, Refused, WORKER, "creates, changes and deletes K, C and M";
    "control-plane-kubelet-writes-leases", RECORDS, Refused, CONTROL_PLANE, "creates, changes and deletes K, C and M";
    "team-writes-leases", RECORDS, Refused, TEAM, "creates, changes and deletes K, C and M";
    "operator-writes-leases", RECORDS, Refused, OPERATOR, "creates, changes and deletes K, C and M";
    "k-emptied-hidden", RECORDS, First, SYSTEM, "empties K, which an in-tree manager holds that no Pod shows";
    "k-deleted-hidden", RECORDS, First, SYSTEM, "deletes K, which an in-tree manager holds that no Pod shows";
    "m-deleted-guarded", RECORDS, Guarded, SYSTEM, "deletes M";
    "m-emptied-guarded", RECORDS, Guarded, SYSTEM, "empties M as client-go releases it";
    "m-shortened-guarded", RECORDS, Guarded, SYSTEM, "renews M for one second, with its holder";
    "m-stolen-guarded", RECORDS, Guarded, SYSTEM, "names another holder of M for one second";
    "k-deleted", RECORDS, Leases, SYSTEM, "deletes K";
    "k-emptied", RECORDS, Leases, SYSTEM, "empties K as client-go releases it";
    "k-stolen", RECORDS, Leases, SYSTEM, "names another holder of K";
    "m-deleted", RECORDS, Leases, SYSTEM, "deletes M";
    "m-stolen", RECORDS, Leases, SYSTEM, "names another holder of M";
    "c-deleted", RECORDS, Leases, SYSTEM, "deletes C";
    "c-stolen", RECORDS, Leases, SYSTEM, "names another holder of C";
    "tenant-steals-k", RECORDS, Hosted, TENANT, "names another holder of K";
    "tenant-empties-m", RECORDS, Hosted, TENANT, "deletes and empties M";

    "m-release-forged-guarded", ANNOTATIONS, Guarded, SYSTEM, "empties M and signs that as our manager does";
    "release-forged", ANNOTATIONS, Leases, SYSTEM, "empties M and signs that as our manager does";
    "latch-damaged", ANNOTATIONS, Leases, SYSTEM, "writes a text that is no latch";
    "latch-forged", ANNOTATIONS, First, SYSTEM, "writes a latch that proves an in-tree manager, and takes C in the same write";

    "team-creates-pods", PODS, Refused, TEAM, "creates a Pod in kube-system";
    "pod-in-other-namespace", PODS, First, TEAM, "creates an external Pod with the host name of the leader in team-a";
    "pod-in-tree", PODS, First, SYSTEM, "creates an in-tree Pod";
    "pod-beside-the-leaders", PODS, First, SYSTEM, "creates an external Pod with the host name of the leader, whose own Pod is in-tree";
    "pod-in-other-namespace-later", PODS, Objects, TEAM, "creates a Pod with --leader-elect=false in team-a";
    "pod-in-tree-later", PODS, Objects, SYSTEM, "creates an in-tree Pod";
    "pod-without-election", PODS, Objects, SYSTEM, "creates an in-tree Pod with --leader-elect=false";

    "mirror-of-other-node", MIRROR, Refused, WORKER, "creates a mirror Pod of a control-plane Node";
    "mirror-of-other-control-plane", MIRROR, Refused, CONTROL_PLANE, "creates a mirror Pod of another control-plane Node";
    "mirror-in-tree", MIRROR, First, CONTROL_PLANE, "creates an in-tree mirror Pod";
    "mirror-in-tree-later", MIRROR, Objects, CONTROL_PLANE, "creates an in-tree mirror Pod";

    "mirror-with-host-name", WORKER_MIRROR, First, WORKER, "creates an external mirror Pod with the host name of the leader";
    "mirror-without-election", WORKER_MIRROR, Objects, WORKER, "creates an in-tree mirror Pod with --leader-elect=false";

    "mirror-pods-of-megabytes", WORKER_MIRROR, Objects, WORKER, "creates 120 mirror Pods with command lines of 1.2 MB";

    "host-ip-of-other-pod", HOST_IP, Refused, WORKER, "writes the status of a Pod of another Node";
    "host-ip-of-mirror", HOST_IP, First, WORKER, "writes the leader's address into the status of its own mirror Pod";
    "host-ip-of-pod", HOST_IP, First, WORKER, "writes the leader's address into the status of a Pod that is bound to it";

    "role-label", ROLE, Refused, WORKER, "labels its own Node as control plane";
    "role-label-at-creation", ROLE, Refused, WORKER, "creates its Node with that label";
    "role-label-of-other-node", ROLE, Refused, WORKER, "labels another Node";
    "role-label-by-editors", ROLE, Refused, SYSTEM, "labels a Node";

    "managed-fields", MANAGED_FIELDS, Objects, TEAM, "writes a Service with status writes of a kube-controller-manager: past, present and future";
    "service-status", MANAGED_FIELDS, Refused, TEAM, "writes the status of a Service";

    "spec-by-others", SPEC, Refused, SYSTEM, "changes the migration";
    "status-by-operator", SPEC, Refused, OPERATOR, "writes the status of the migration";
    "attestation-in-the-same-write", SPEC, First, OPERATOR, "enters a phase with its attestation in one write";
    "attestation-at-creation", SPEC, First, OPERATOR, "creates the migration with an attestation";
    "attestation-left-over", SPEC, First, OPERATOR, "leaves the attestation of an earlier run in the migration";
    "in-tree-while-owned", SPEC, Objects, OPERATOR, "goes back to InTree while our manager owns the controllers";
    "targets", SPEC, Hosted, OPERATOR, "selects no kube-controller-manager by spec.targets";

    "tenant-calls-management", HOSTED, Hosted, TENANT, "uses its credentials in the management cluster";
    "tenant-creates-pods", HOSTED, Hosted, TENANT, "creates Pods in its own kube-system";
    "hosted-in-tree", HOSTED, Hosted, NAMESPACE, "creates an in-tree Pod";
};

pub fn attack(name: &str) -> &'static Attack {
    let found = ATTACKS.iter().find(|attack| attack.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

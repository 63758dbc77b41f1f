//! Decides how an object changes, and why. Pure: no input and output, no client, no clock.
//!
//! One function, [`decide`], used by the webhook and by all tools that must agree with it. Objects that no
//! `CloudProviderMigration` selects are not changed.
//!
//! | object | file |
//! |---|---|
//! | input of a decision | `input.rs` |
//! | result of a decision | `decision.rs` |
//! | kinds with rules: the type of a row, and the table | `kind.rs`, `kinds.rs` |
//! | which migration does the object belong to | `matching.rs` |
//! | the way between phases for the durable objects of provisioners | `provisioner_object.rs`, `document.rs`, `fields.rs` |
//! | Cluster API's control planes, machine configurations and templates | `cluster_api/` |
//! | flags in YAML texts inside of objects | `yaml_arguments.rs` |
//! | ConfigMaps of kubeadm | `kubeadm_config.rs` |
//! | HelmChart of the cloud-controller-manager, alone or in a manifest; the image of each published chart | `helm_chart.rs`, `manager_chart.rs` |
//! | Deployment, StatefulSet, DaemonSet, Pod, and static Pods for a command on their machine; HyperShift's workloads, which are left to their operator | `workload.rs` |
//! | the command lines in either | `pod_spec.rs` |
//! | the file of `spec.leaderMigration` in either | `leader_migration_file.rs` |
//! | the way back in either | `pod_undo.rs` |
//! | Node | `node.rs` |
//! | how a Node is called before and after its kubelet becomes external | `node_names.rs` |
//! | Rancher's Cluster of RKE2 and K3s, of RKE1 | `rancher_rke2.rs`, `rancher_rke1.rs` |
//! | `cloud-provider` in files, commands and user data beside the argument lists | `machine_scripts.rs` |
//! | how Rancher merges the configuration of a machine | `machine_config.rs` |
//! | what RKE2 passes to its components for `cloud-provider-name`, by release | `rke2_provider.rs` |
//! | Kubermatic's Cluster and the Machines of its user clusters | `kubermatic.rs` |
//! | tags of AWS resources, and where a cluster's key must not be | `tags/` |
//! | what is refused, where an operator asks for it | `validate.rs` |
//! | how long a warning may be | `warning.rs` |

use outrigger_shared::{annotations, work};

use self::decision::Draft;
use self::fields::annotation;
use self::matching::Match;

mod arguments;
mod cluster_api;
mod decision;
mod document;
mod fields;
mod helm_chart;
mod input;
mod kamaji;
mod kind;
mod kinds;
mod kubeadm_config;
mod kubermatic;
mod leader_migration_file;
mod machine_config;
mod machine_scripts;
mod manager_chart;
mod matching;
mod node;
mod node_names;
mod pod_spec;
mod pod_undo;
mod provisioner_object;
mod rancher_rke1;
mod rancher_rke2;
mod rancher_warnings;
mod rke2_provider;
pub mod tags;
mod validate;
mod warning;
mod workload;
mod yaml_arguments;

pub use self::decision::{Decision, Outcome, Shortage};
pub use self::input::{Input, Migration, Operation, RequestedPhase};
pub use self::kind::Kind;
pub use self::kinds::{is_checked, kinds};
pub use self::manager_chart::CHARTS;
pub use self::node_names::{NODE_NAMES, NodeNames};
pub use self::validate::{Validation, ValidationOutcome, validate};
pub use self::workload::static_pods;

/// Steps of one decision, with the reading of its objects: 5 ms of processor time in a release build is the aim.
/// `benches/worst_objects.rs` measures it.
pub const MAX_WORK: u64 = 350_000;

/// Decides within [`MAX_WORK`], or what is left of the active budget ([`work`]).
#[must_use]
pub fn decide(input: &Input<'_>) -> Decision {
    match work::within(MAX_WORK, || decide_now(input)) {
        (decision, false) => decision,
        (_, true) => Decision::lacking(
            Shortage::Work,
            "outrigger: nothing changed, because the object needs more work than one decision may take; make its texts \
             and lists shorter"
                .to_owned(),
        ),
    }
}

fn decide_now(input: &Input<'_>) -> Decision {
    if input.operation == Operation::Other || !input.subresource.is_empty() {
        return Decision::default();
    }
    // The rows of one kind have different profiles: use the first row with a matching migration.
    kinds::concerned(input)
        .map(|kind| decide_as(input, kind))
        .find(|decision| decision.outcome != Outcome::NotOurs)
        .unwrap_or_default()
}

fn decide_as(input: &Input<'_>, kind: &Kind) -> Decision {
    match matching::find(input, kind.profiles) {
        Match::None => Decision::default(),
        Match::NamespaceUnknown(namespace) => Decision::lacking(
            Shortage::NamespaceLabels,
            format!(
                "outrigger: nothing changed, as the labels of namespace {namespace} are not known; write the object again"
            ),
        ),
        Match::Several(names) => Decision::refusal(format!(
            "outrigger: nothing changed, as several migrations match: {}; correct their spec.targets",
            names.join(", ")
        )),
        Match::One(migration) => {
            let mut draft = (kind.draft)(input, migration);
            draft
                .warnings
                .extend(input.requests_another_phase(migration).map(|requested| {
                format!(
                    "annotation {} requests phase {requested}, but the migration is in phase {}; set the phase, then \
                     write the annotation again",
                    annotations::APPLY,
                    migration.spec.phase
                )
            }));
            Decision::of(draft, migration, kind.rule())
        }
    }
}

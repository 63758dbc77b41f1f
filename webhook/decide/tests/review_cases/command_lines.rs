//! Command lines of a kube-controller-manager: how they are written, what starts them, and in which version.

use super::{
    Case,
    Expectation::{Changed, Has, Lacks, Refused, Silent, Unchanged, Warns},
    MigrationState::{Complete, InTree, Migrate, NotPrepared, Prepare},
    row,
};

pub(super) const MIG: &str = "mig.yaml";

pub(super) fn cases() -> Vec<Case> {
    [command_lines(), started_by_others(), versions()].concat()
}

/// A kube-controller-manager with the in-tree provider that can be read: guarded first, external when the evidence is there.
pub(super) fn moves(object: &'static str, migrations: &'static str) -> Vec<Case> {
    vec![
        row(object, migrations, InTree, &[Unchanged, Silent("")]),
        row(
            object,
            migrations,
            Prepare,
            &[Changed, Has(": --enable-leader-migration"), Lacks("provider=external")],
        ),
        row(
            object,
            migrations,
            NotPrepared,
            &[
                Changed,
                Warns("not Prepared yet"),
                Has(": --enable-leader-migration"),
                Lacks("provider=external"),
            ],
        ),
        row(
            object,
            migrations,
            Migrate,
            &[
                Changed,
                Has("provider=external"),
                Lacks("provider=aws"),
                Lacks("leader-migration"),
                Silent(""),
            ],
        ),
        row(
            object,
            migrations,
            Complete,
            &[Changed, Has("provider=external"), Lacks("leader-migration")],
        ),
    ]
}

/// One that is external, or has no provider: nothing is to be done, in any phase.
pub(super) fn stays(object: &'static str) -> Vec<Case> {
    [InTree, Prepare, NotPrepared, Migrate, Complete]
        .into_iter()
        .map(|at| row(object, MIG, at, &[Unchanged, Silent("")]))
        .collect()
}

/// One that cannot be changed safely.
pub(super) fn refused(object: &'static str, expectations: &'static [super::Expectation]) -> Vec<Case> {
    let cases = [Prepare, NotPrepared, Migrate, Complete].map(|at| row(object, MIG, at, expectations));
    let mut cases = cases.to_vec();
    cases.push(row(object, MIG, InTree, &[Unchanged]));
    cases
}

fn command_lines() -> Vec<Case> {
    let mut cases = vec![
        row(
            "02-two-tokens-split.yaml",
            MIG,
            Prepare,
            &[Changed, Has("/args/0: aws"), Has("/args/3: --enable-leader-migration")],
        ),
        row(
            "02-two-tokens-split.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("/args/0: external"),
                Lacks("cloud.conf"),
                Lacks("--cloud-config"),
                Has("/command/2: --cloud-provider"),
            ],
        ),
        // A flag of the truth values takes no second word: it is on.
        row(
            "03-leader-elect-two-token-false.yaml",
            MIG,
            Prepare,
            &[Changed, Silent("leader election")],
        ),
        row(
            "04a-dup-aws-ext.yaml",
            MIG,
            Migrate,
            &[Unchanged, Has("--cloud-provider=external")],
        ),
        // The last one counts, and it is the one that changes.
        row(
            "04b-dup-ext-aws.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Has("/command/1: --cloud-provider=external"),
                Has("/command/3: --cloud-provider=external"),
            ],
        ),
        row(
            "05a-env-known.yaml",
            MIG,
            Migrate,
            &[Changed, Lacks("$(PROVIDER)"), Has("/env/0/value: aws")],
        ),
        row(
            "05e-escaped.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--cluster-name=$$(X)")],
        ),
        row(
            "11-underscore.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--cloud_provider=external"), Lacks("cloud_config")],
        ),
        row(
            "17-controllers.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--controllers=*,-service,-route,-cloud-node-lifecycle")],
        ),
    ];
    for object in [
        "03-leader-elect-two-token-false.yaml",
        "05e-escaped.yaml",
        "11-underscore.yaml",
        "14-hyperkube.yaml",
        "17-controllers.yaml",
        "list.yaml",
    ] {
        cases.extend(moves(object, MIG));
    }
    cases.extend(stays("04a-dup-aws-ext.yaml"));
    cases.extend(stays("12-dashdash.yaml"));
    cases.extend(stays("18-noprov-135.yaml"));
    cases.extend(refused(
        "05b-env-configmap.yaml",
        &[
            Refused,
            Warns("only known when the container starts; write the value itself"),
        ],
    ));
    cases.extend(refused(
        "05c-env-hidden.yaml",
        &[Refused, Warns("\"$(EXTRA)\" may be any flag")],
    ));
    cases.extend(refused(
        "05d-envfrom.yaml",
        &[
            Refused,
            Warns("only known when the container starts; write the value itself"),
        ],
    ));
    cases.extend(refused("10-uppercase.yaml", &[Refused, Warns("\"AWS\", not \"aws\"")]));
    cases
}

fn started_by_others() -> Vec<Case> {
    let mut cases = vec![
        row(
            "01-sh-exec.yaml",
            MIG,
            Prepare,
            &[
                Refused,
                Warns("it has --cloud-provider=aws; there, write --enable-leader-migration=true"),
            ],
        ),
        row(
            "01-sh-exec.yaml",
            MIG,
            Migrate,
            &[Refused, Warns("there, write --cloud-provider=external")],
        ),
        row(
            "13-shell-variable.yaml",
            MIG,
            Prepare,
            &[
                Refused,
                Warns("the script uses $KCM_ARGS, so its flags cannot be read here"),
                Silent("nothing seems to be missing"),
            ],
        ),
        row(
            "13-shell-variable.yaml",
            MIG,
            Migrate,
            &[
                Refused,
                Warns("look at its running process"),
                Silent("nothing seems to be missing"),
            ],
        ),
    ];
    for object in ["06-kube-log-runner.yaml", "06b-vault-env.yaml", "06c-nice.yaml"] {
        cases.extend(moves(object, MIG));
    }
    cases.extend(refused(
        "06d-timeout-entrypoint.yaml",
        &[
            Refused,
            Warns("\"entrypoint.sh\", which starts the kube-controller-manager, is not known"),
        ],
    ));
    cases
}

fn versions() -> Vec<Case> {
    let mut cases = vec![
        row(
            "09-131-aws.yaml",
            MIG,
            InTree,
            &[Unchanged, Warns("1.31.1 does not start with --cloud-provider=aws")],
        ),
        row(
            "09-131-aws.yaml",
            MIG,
            Prepare,
            &[Refused, Warns("1.26 is the last version with the in-tree AWS provider")],
        ),
        row(
            "09-131-aws.yaml",
            MIG,
            Migrate,
            &[Changed, Has("--cloud-provider=external"), Lacks("volume-plugin")],
        ),
        row(
            "09b-131-external-leftovers.yaml",
            MIG,
            Prepare,
            &[
                Unchanged,
                Warns("remove --external-cloud-volume-plugin"),
                Warns("remove CSIMigrationAWS from --feature-gates"),
            ],
        ),
        row(
            "09b-131-external-leftovers.yaml",
            MIG,
            Migrate,
            &[
                Changed,
                Lacks("volume-plugin"),
                Lacks("--cloud-config"),
                Lacks("leader-migration"),
                Warns("remove CSIMigrationAWS from --feature-gates"),
            ],
        ),
    ];
    cases.extend(moves("07b-eks-tag.yaml", MIG));
    cases.extend(moves("08-arm.yaml", MIG));
    for object in ["07-digest-only.yaml", "07d-latest.yaml", "07c-companytag.yaml"] {
        cases.extend(moves(object, "mig126.yaml"));
        cases.extend(refused(object, &[Refused, Warns("set spec.kubernetesVersion")]));
    }
    cases
}

//! `CloudProviderMigration` as real API servers see it: defaults, transitions, refusals.

use anyhow::{Result, ensure};
use kube::Client;
use outrigger_environment::review::{self, Answer};
use outrigger_shared::controller::Controller;
use serde_json::{Value, json};

const COLLECTION: &str = "/apis/outrigger.dev/v1alpha1/cloudprovidermigrations";
const PHASES: [&str; 4] = ["InTree", "Prepare", "Migrate", "Complete"];

/// Everything that the definition promises.
pub async fn check(admin: &Client) -> Result<()> {
    it_is_established_without_reservations(admin).await?;
    left_out_fields_get_their_defaults(admin).await?;
    the_phase_goes_one_step_at_a_time(admin).await?;
    an_attestation_is_set_after_the_write_that_enters_its_phase(admin).await?;
    the_phase_is_not_in_tree_while_our_manager_owns_a_controller(admin).await?;
    the_cluster_is_never_another(admin).await?;
    unknown_fields_are_refused_or_dropped(admin).await?;
    a_bad_value_is_refused_by_the_name_of_its_field(admin).await?;
    what_must_be_possible_is(admin).await?;
    status_and_spec_are_written_apart(admin).await
}

fn migration(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": name}, "spec": spec})
}

async fn create(admin: &Client, name: &str, spec: Value) -> Result<Answer> {
    review::create(admin, COLLECTION, "?fieldValidation=Strict", &migration(name, spec)).await
}

async fn change(admin: &Client, name: &str, spec: Value) -> Result<Answer> {
    review::merge(admin, &format!("{COLLECTION}/{name}"), &json!({"spec": spec})).await
}

async fn it_is_established_without_reservations(admin: &Client) -> Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/cloudprovidermigrations.outrigger.dev";
    let definition = review::send(admin, http::Method::GET, path, None)
        .await?
        .granted()?
        .body;
    let conditions = definition["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let state = |kind: &str| {
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map(|condition| condition["status"].clone())
    };
    ensure!(state("Established") == Some(json!("True")), "{conditions:?}");
    ensure!(state("NamesAccepted") == Some(json!("True")), "{conditions:?}");
    ensure!(state("NonStructuralSchema").is_none(), "{conditions:?}");
    Ok(())
}

async fn left_out_fields_get_their_defaults(admin: &Client) -> Result<()> {
    let created = create(admin, "defaults", json!({"clusterID": "prod"}))
        .await?
        .granted()?;
    ensure!(created.warnings.is_empty(), "{:?}", created.warnings);
    let wanted = json!({
        "clusterID": "prod", "ownership": "owned", "phase": "InTree", "mode": "Enforce", "downtime": false,
        "nodeTaint": "WhenManagerReady", "kubeControllerManagerLease": "kube-controller-manager", "targets": [],
    });
    ensure!(created.body["spec"] == wanted, "{}", created.body["spec"]);
    Ok(())
}

async fn the_phase_goes_one_step_at_a_time(admin: &Client) -> Result<()> {
    for (i, from) in PHASES.into_iter().enumerate() {
        for (j, to) in PHASES.into_iter().enumerate() {
            let name = format!("{}-{}", from.to_lowercase(), to.to_lowercase());
            create(admin, &name, json!({"clusterID": "prod", "phase": from}))
                .await?
                .granted()?;
            let answer = change(admin, &name, json!({"phase": to})).await?;
            if i.abs_diff(j) <= 1 {
                let stored = answer.granted()?.body;
                ensure!(stored["spec"]["phase"] == to, "{from} to {to}: {stored}");
            } else {
                ensure!(answer.code == 422, "{from} to {to} is a jump: {answer:?}");
                let told = answer.message().contains("spec.phase: ") && answer.message().contains("one step at a time");
                ensure!(told, "{from} to {to}: {}", answer.message());
            }
        }
    }
    // There and back, as an operator who thinks better of it.
    for phase in ["Prepare", "InTree", "Prepare", "Migrate", "Prepare", "InTree"] {
        change(admin, "defaults", json!({"phase": phase})).await?.granted()?;
    }
    // A phase that is taken out means InTree, and that is a jump, too.
    let dropped = change(admin, "complete-migrate", json!({"phase": null})).await?;
    ensure!(dropped.code == 422, "{dropped:?}");
    Ok(())
}

async fn an_attestation_is_set_after_the_write_that_enters_its_phase(admin: &Client) -> Result<()> {
    let name = "attested";
    let refused = async |spec: Value| {
        let answer = change(admin, name, spec.clone()).await?;
        ensure!(answer.code == 422, "{spec}: {answer:?}");
        let told = answer.message().contains("spec: ") && answer.message().contains("remove spec.attestation in this");
        ensure!(told, "{spec}: {}", answer.message());
        anyhow::Ok(())
    };
    let granted = async |spec: Value| change(admin, name, spec).await?.granted().map(drop);

    create(
        admin,
        name,
        json!({"clusterID": "prod", "attestation": {"phase": "Prepare"}}),
    )
    .await?
    .granted()?;
    // It is left over, or it is set in the same write.
    refused(json!({"phase": "Prepare"})).await?;
    granted(json!({"attestation": null})).await?;
    let with_holders = json!({"phase": "Prepare", "holders": ["kcm-0"]});
    refused(json!({"phase": "Prepare", "attestation": with_holders})).await?;
    granted(json!({"phase": "Prepare"})).await?;
    granted(json!({"attestation": with_holders})).await?;

    // One for the phase that is left does not count for the next one.
    refused(json!({"phase": "Migrate", "attestation": {"phase": "Migrate"}})).await?;
    granted(json!({"attestation": {"phase": "Migrate"}})).await?;
    refused(json!({"phase": "Migrate"})).await?;
    granted(json!({"attestation": {"phase": "Prepare"}})).await?;
    granted(json!({"phase": "Migrate"})).await?;
    granted(json!({"attestation": {"phase": "Migrate"}})).await?;
    for phase in ["Complete", "Migrate", "Prepare"] {
        granted(json!({"phase": phase})).await?;
    }

    refused(json!({"phase": "Migrate"})).await?;
    granted(json!({"phase": "Migrate", "attestation": null})).await?;
    granted(json!({"phase": "Prepare"})).await?;
    granted(json!({"attestation": {"phase": "Prepare"}})).await?;
    granted(json!({"phase": "InTree"})).await?;
    refused(json!({"phase": "Prepare"})).await
}

/// Each of the controllers that both managers have; the node controller is always ours.
async fn the_phase_is_not_in_tree_while_our_manager_owns_a_controller(admin: &Client) -> Result<()> {
    let name = "owned";
    create(admin, name, json!({"clusterID": "prod", "phase": "Prepare"}))
        .await?
        .granted()?;
    let own = async |owned: &str, owner: &str| {
        let others = [
            "node-route-controller",
            "service-lb-controller",
            "cloud-node-lifecycle-controller",
        ];
        let mut rows = vec![json!({"name": "cloud-node-controller", "owner": "cloud-controller-manager"})];
        rows.extend(
            others
                .into_iter()
                .filter(|name| *name != owned)
                .map(|name| json!({"name": name})),
        );
        rows.push(match owner {
            "" => json!({"name": owned}),
            owner => json!({"name": owned, "owner": owner}),
        });
        let status = json!({"status": {"controllers": rows}});
        let path = format!("{COLLECTION}/{name}/status");
        review::merge(admin, &path, &status).await?.granted().map(drop)
    };
    let refused = async || {
        let answer = change(admin, name, json!({"phase": "InTree"})).await?;
        ensure!(answer.code == 422, "{answer:?}");
        let told = answer
            .message()
            .contains("the cloud-controller-manager owns the controllers");
        ensure!(told, "{}", answer.message());
        anyhow::Ok(())
    };

    for controller in Controller::SHARED.map(Controller::canonical_name) {
        own(controller, "cloud-controller-manager").await?;
        refused().await?;
        change(admin, name, json!({"mode": "Audit"})).await?.granted()?;
        change(admin, name, json!({"phase": "Migrate"})).await?.granted()?;
        change(admin, name, json!({"phase": "Prepare"})).await?.granted()?;
        for owner in ["kube-controller-manager", ""] {
            own(controller, owner).await?;
            change(admin, name, json!({"phase": "InTree"})).await?.granted()?;
            // The status may change in every phase.
            own(controller, "cloud-controller-manager").await?;
            change(admin, name, json!({"mode": "Enforce"})).await?.granted()?;
            change(admin, name, json!({"phase": "Prepare"})).await?.granted()?;
        }
        refused().await?;
    }

    // The exit where no manager writes the status any more.
    change(admin, name, json!({"phase": "InTree", "mode": "Audit"}))
        .await?
        .granted()?;
    Ok(())
}

async fn the_cluster_is_never_another(admin: &Client) -> Result<()> {
    let answer = change(admin, "defaults", json!({"clusterID": "other"})).await?;
    ensure!(answer.code == 422, "{answer:?}");
    let told = answer.message().contains("spec.clusterID: ") && answer.message().contains("immutable");
    ensure!(told, "{}", answer.message());
    change(admin, "defaults", json!({"clusterID": "prod", "mode": "Audit"}))
        .await?
        .granted()?;
    Ok(())
}

async fn unknown_fields_are_refused_or_dropped(admin: &Client) -> Result<()> {
    let spec = json!({"clusterID": "prod", "colour": "green", "targets": [{"profile": "Nodes", "size": 3}]});
    let strict = create(admin, "strict", spec.clone()).await?;
    ensure!(strict.code == 400, "{strict:?}");
    for field in ["spec.colour", "spec.targets[0].size"] {
        let told = strict.message().contains(&format!("unknown field {field:?}"));
        ensure!(told, "{field}: {}", strict.message());
    }
    let lenient = review::create(admin, COLLECTION, "?fieldValidation=Warn", &migration("lenient", spec)).await?;
    let lenient = lenient.granted()?;
    ensure!(lenient.warnings.len() == 2, "{:?}", lenient.warnings);
    ensure!(lenient.body["spec"].get("colour").is_none(), "{}", lenient.body);
    ensure!(
        lenient.body["spec"]["targets"] == json!([{"profile": "Nodes"}]),
        "{}",
        lenient.body
    );
    Ok(())
}

async fn a_bad_value_is_refused_by_the_name_of_its_field(admin: &Client) -> Result<()> {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
    let attested = |attestation: Value| json!({"clusterID": "prod", "attestation": attestation});
    let cases = [
        ("spec.clusterID", json!({"clusterID": ""})),
        ("spec.clusterID", json!({"clusterID": "x".repeat(107)})),
        ("spec.clusterID", json!({"phase": "InTree"})),
        ("spec.phase", json!({"clusterID": "prod", "phase": "migrate"})),
        ("spec.mode", json!({"clusterID": "prod", "mode": "DryRun"})),
        ("spec.ownership", json!({"clusterID": "prod", "ownership": "Owned"})),
        ("spec.downtime", json!({"clusterID": "prod", "downtime": "yes"})),
        ("spec.nodeTaint", json!({"clusterID": "prod", "nodeTaint": "Sometimes"})),
        ("spec.attestation.phase", attested(json!({}))),
        ("spec.attestation.phase", attested(json!({"phase": "Prepared"}))),
        ("spec.attestation.phase", attested(json!({"phase": "InTree"}))),
        ("spec.attestation.phase", attested(json!({"phase": "Complete"}))),
        (
            "spec.attestation.holders[1]",
            attested(json!({"phase": "Prepare", "holders": ["kcm-0", ""]})),
        ),
        (
            "spec.attestation.holders[0]",
            attested(json!({"phase": "Prepare", "holders": ["x".repeat(318)]})),
        ),
        (
            "spec.attestation.holders",
            attested(json!({"phase": "Prepare", "holders": vec!["kcm-0"; 17]})),
        ),
        (
            "spec.kubernetesVersion",
            json!({"clusterID": "prod", "kubernetesVersion": "2.0"}),
        ),
        (
            "spec.kubernetesVersion",
            json!({"clusterID": "prod", "kubernetesVersion": "1.26x"}),
        ),
        (
            "spec.kubeControllerManagerLease",
            json!({"clusterID": "prod", "kubeControllerManagerLease": ""}),
        ),
        (
            "spec.leaderMigration.leaderName",
            json!({"clusterID": "prod", "leaderMigration": {}}),
        ),
        (
            "spec.targets[0].profile",
            json!({"clusterID": "prod", "targets": [{"profile": "Everything"}]}),
        ),
        ("spec.targets[0].profile", json!({"clusterID": "prod", "targets": [{}]})),
        (
            "spec.targets[1].objectSelector.matchExpressions[0].operator",
            json!({"clusterID": "prod", "targets": [{"profile": "Nodes"}, {"profile": "Nodes", "objectSelector": selector}]}),
        ),
    ];
    for (field, spec) in cases {
        let answer = create(admin, "bad", spec.clone()).await?;
        ensure!(answer.code == 422, "{spec}: {answer:?}");
        let told = answer.message().contains(&format!("{field}: "));
        ensure!(told, "{spec}: {field} is not named in {}", answer.message());
    }
    Ok(())
}

/// Objects of the documents must pass: null for unset fields, and a migration that begins at its end.
async fn what_must_be_possible_is(admin: &Client) -> Result<()> {
    let nothing = json!({"clusterID": "prod", "attestation": null, "kubernetesVersion": null, "leaderMigration": null});
    create(admin, "nulls", nothing).await?.granted()?;
    change(admin, "nulls", json!({"phase": "Prepare", "attestation": null}))
        .await?
        .granted()?;
    let everything = json!({
        "clusterID": "prod", "ownership": "shared", "phase": "Complete", "mode": "Audit", "downtime": true,
        "attestation": {"phase": "Migrate", "holders": ["kcm-0", "x".repeat(317)]}, "kubernetesVersion": "v1.26.13+k3s1", "nodeTaint": "Never",
        "kubeControllerManagerLease": "kcm",
        "leaderMigration": {"leaderName": "m", "controllerLeaders": [{"name": "service", "component": "*"}]},
        "targets": [{
            "profile": "HostedControlPlane",
            "namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]},
            "objectSelector": {},
        }],
    });
    let stored = create(admin, "everything", everything.clone()).await?.granted()?.body;
    ensure!(stored["spec"] == everything, "{}", stored["spec"]);
    Ok(())
}

async fn status_and_spec_are_written_apart(admin: &Client) -> Result<()> {
    let path = format!("{COLLECTION}/everything");
    // Two writers, each with conditions of its own; neither takes the other's away.
    for (writer, kind) in [("manager-a", "Prepared"), ("manager-b", "NodesMigrated")] {
        let condition = json!({"type": kind, "status": "True", "reason": "Seen", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let mut status = migration("everything", json!({"clusterID": "hijacked"}));
        status["status"] = json!({"observedGeneration": 1, "conditions": [condition]});
        let query = format!("{path}/status?fieldManager={writer}&fieldValidation=Strict&force=true");
        review::send(admin, http::Method::PATCH, &query, Some((review::APPLY, &status)))
            .await?
            .granted()?;
    }
    let stored = review::merge(
        admin,
        &path,
        &json!({"status": {"conditions": []}, "spec": {"mode": "Enforce"}}),
    )
    .await?;
    let stored = stored.granted()?.body;
    let kinds: Vec<&str> = stored["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    ensure!(kinds == ["Prepared", "NodesMigrated"], "{stored}");
    ensure!(
        stored["spec"]["clusterID"] == "prod" && stored["spec"]["mode"] == "Enforce",
        "{stored}"
    );
    let bad = json!({"status": {"conditions": [{"type": "Prepared", "status": "Yes", "reason": "x", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}});
    let bad = review::merge(admin, &format!("{path}/status"), &bad).await?;
    ensure!(
        bad.code == 422 && bad.message().contains("status.conditions[0].status: "),
        "{bad:?}"
    );
    Ok(())
}

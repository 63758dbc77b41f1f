//! `outrigger plan` on documents of facts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use outrigger_migrate::apply::checks::{Checks, can_be_planned};
use outrigger_migrate::apply::steps::{Action, Asked, Plan, previous};
use outrigger_migrate::facts::ClusterFacts;
use outrigger_shared::migration::Phase;
use serde_json::{Value, json};

const CLEAN: &str = include_str!("facts/kubeadm-in-tree.json");

/// A cluster of kubeadm at some point of its migration.
#[derive(Clone)]
struct World {
    has_object: bool,
    has_manager: bool,
    phase: Phase,
    /// The form of the kube-controller-managers of cp-1, which leads, and of cp-2.
    managers: [&'static str; 2],
    is_ready: bool,
    objects_applied: bool,
    nodes_migrated: bool,
    /// How many changes the manager would make, once it has compared.
    changes: Option<u32>,
    /// The flag of the kube-apiserver.
    api_server: &'static str,
    owner: &'static str,
    alarm: bool,
    profiles: Value,
}

fn asked() -> Asked {
    Asked {
        name: None,
        cluster: String::new(),
        accepts_changes: false,
    }
}

fn in_tree() -> World {
    World {
        has_object: true,
        has_manager: true,
        phase: Phase::InTree,
        managers: ["WhileLeader"; 2],
        is_ready: true,
        objects_applied: true,
        nodes_migrated: false,
        changes: None,
        api_server: "aws",
        owner: "kube-controller-manager",
        alarm: false,
        profiles: json!(["Nodes", "KubeadmConfig"]),
    }
}

impl World {
    fn facts(&self) -> Value {
        let mut facts: Value = serde_json::from_str(CLEAN).unwrap();
        facts["components"]["known"][2]["flags"]["cloud-provider"] = json!(self.api_server);
        for (at, acts) in self.managers.into_iter().enumerate() {
            facts["components"]["known"][at]["isReady"] = json!(true);
            let judged = &mut facts["components"]["known"][at]["judgement"];
            judged["acts"] = json!(acts);
            judged["isInTree"] = json!(acts != "Never");
        }
        if self.has_manager {
            let manager = json!({"component": "aws-cloud-controller-manager", "object": "Pod kube-system/outrigger-manager-1", "node": "cp-1", "isOutrigger": true, "isReady": true});
            facts["components"]["known"].as_array_mut().unwrap().push(manager);
        }
        if !self.has_object {
            return facts;
        }

        let condition = |type_: &str, is_true: bool| json!({"type": type_, "status": if is_true { "True" } else { "False" }, "reason": "Because", "message": "m", "lastTransitionTime": "2026-11-30T11:00:00Z", "observedGeneration": 3});
        facts["registrations"] = json!({"known": [{"name": "outrigger-webhook", "webhooks": 3}]});
        facts["webhooks"] = json!({"known": [{"object": "Pod a/b", "isReady": true}]});
        facts["migrations"] = json!({"known": [{
            "name": "cluster", "phase": self.phase, "generation": 3, "mainLease": "kube-controller-manager",
            "migrationLease": "cloud-provider-extraction-migration", "profiles": self.profiles,
            "status": {
                "observedGeneration": 3,
                "observedBy": {"identity": "cp-2_a", "time": "2026-11-30T11:59:30Z"},
                "conditions": [
                    condition("Ready", self.is_ready), condition("ObjectsApplied", self.objects_applied),
                    condition("NodesMigrated", self.nodes_migrated), condition("RollbackPossible", true),
                ],
                "adoption": self.changes.map(|changes| json!({
                    "time": "2026-11-30T11:59:00Z", "services": 2, "nodes": 3, "changes": changes,
                    "first": (0..changes).map(|_| json!({
                        "object": "Service default/web", "action": "CreateListener", "reason": "the port has none",
                    })).collect::<Vec<_>>(),
                })),
                "missing": if self.is_ready { json!([]) } else { json!([{"code": "X", "observation": "cp-1 is in-tree", "consequence": "c", "fix": "f"}]) },
                "controllers": [{"name": "service-lb-controller", "owner": self.owner}],
                "nodes": {"total": 3, "uninitialized": 0, "migrated": 1},
                "history": [{"time": "2026-11-30T10:00:00.000000Z", "phase": "InTree", "alarm": self.alarm}],
            },
        }]});
        if let Some(changes) = self.changes {
            let clean = condition("AdoptionClean", changes == 0);
            let conditions = &mut facts["migrations"]["known"][0]["status"]["conditions"];
            conditions.as_array_mut().unwrap().push(clean);
        }
        facts
    }

    fn read(&self) -> ClusterFacts {
        serde_json::from_value(self.facts()).unwrap()
    }

    fn forward(&self) -> Plan {
        Plan::forward(&self.read(), &asked(), Phase::Complete).unwrap()
    }

    /// A phase begins with nothing done.
    fn enter(&mut self, phase: Phase) {
        (self.phase, self.is_ready, self.objects_applied) = (phase, false, false);
    }
}

/// Of the facts.
type Change = fn(&mut Value);

fn next(plan: &Plan) -> &str {
    plan.next().map_or("", |step| &step.id)
}

/// All states of the way, each with the step that comes next.
fn way() -> Vec<(World, &'static str)> {
    let mut world = World {
        has_object: false,
        has_manager: false,
        is_ready: false,
        ..in_tree()
    };
    let mut way = vec![(world.clone(), "install")];
    let mut then = |change: &dyn Fn(&mut World), step| {
        change(&mut world);
        way.push((world.clone(), step));
    };
    then(&|world| world.has_manager = true, "migration");
    then(&|world| world.has_object = true, "in-tree/ready");
    then(&|world| world.is_ready = true, "prepare/phase");
    then(&|world| world.enter(Phase::Prepare), "prepare/objects");
    then(&|world| world.objects_applied = true, "prepare/control-plane");
    then(
        &|world| world.managers[1] = "WithMigrationLease",
        "prepare/control-plane",
    );
    then(&|world| world.managers[0] = "WithMigrationLease", "prepare/ready");
    then(&|world| world.is_ready = true, "prepare/comparison");
    then(&|world| world.changes = Some(0), "migrate/phase");
    then(&|world| world.enter(Phase::Migrate), "migrate/objects");
    then(&|world| world.objects_applied = true, "migrate/control-plane");
    then(&|world| world.managers = ["Never"; 2], "migrate/ready");
    then(&|world| world.is_ready = true, "complete/phase");
    then(&|world| world.enter(Phase::Complete), "complete/objects");
    then(&|world| world.objects_applied = true, "complete/machines");
    then(&|world| world.nodes_migrated = true, "complete/machines");
    then(&|world| world.api_server = "external", "complete/ready");
    then(&|world| world.is_ready = true, "");
    way
}

/// The command is killed and started again at any point: the steps before it are done, and those behind it are not.
#[test]
fn the_plan_goes_on_where_the_cluster_is() {
    let mut ids: Vec<String> = Vec::new();
    for (world, step) in way() {
        let plan = world.forward();
        assert_eq!(next(&plan), step);
        if world.has_object {
            ids = plan.steps.iter().map(|step| step.id.clone()).collect();
        }
    }

    for (world, step) in way().iter().filter(|(world, _)| world.has_object) {
        let plan = world.forward();
        let at = ids.iter().position(|id| id == step).unwrap_or(ids.len());
        let done: Vec<&String> = plan
            .steps
            .iter()
            .filter(|step| step.is_done)
            .map(|step| &step.id)
            .collect();
        assert_eq!(done, ids[..at].iter().collect::<Vec<_>>(), "{step}");
    }
}

#[test]
fn the_text_has_every_step_and_the_commands_of_the_next_one() {
    let mut world = in_tree();
    world.enter(Phase::Migrate);
    (world.objects_applied, world.managers) = (true, ["WithMigrationLease"; 2]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), world.facts().to_string()).unwrap();
    let run = support::outrigger(&["plan", "--facts", file.path().to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    insta::assert_snapshot!(run.stdout);

    let json = support::outrigger(&["plan", "-o", "json", "--facts", file.path().to_str().unwrap()]);
    let plan: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&plan["kind"], &plan["phase"]),
        (&json!("MigrationPlan"), &json!("Migrate"))
    );
    assert_eq!(plan["steps"].as_array().unwrap().len(), 16);
}

#[test]
fn the_leader_is_changed_last_and_a_pod_that_is_not_ready_is_waited_for() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    world.objects_applied = true;
    let state = |facts: Value| {
        let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
        let plan = Plan::forward(&facts, &asked(), Phase::Complete).unwrap();
        plan.next().unwrap().state.clone()
    };
    let form = "kube-controller-managers have leader migration";
    assert_eq!(state(world.facts()), format!("{form}: cp-2, cp-1 (leads, last)"));
    world.managers[1] = "WithMigrationLease";
    assert_eq!(state(world.facts()), format!("{form}: cp-1 (leads, last)"));

    let mut facts = world.facts();
    facts["components"]["known"][1]["isReady"] = json!(false);
    let both = "cp-2 (changed, its Pod is not Ready), cp-1 (leads, last)";
    assert_eq!(state(facts.clone()), format!("{form}: {both}"));

    // The host name of a process may be the short one.
    facts["components"]["known"][0]["judgement"]["hosts"] = json!(["cp-1.example.com"]);
    assert_eq!(state(facts), format!("{form}: {both}"));
}

/// A change that the manager would make keeps phase Migrate from beginning, and no phase before.
#[test]
fn a_change_at_aws_is_in_the_way_of_migrate_until_it_is_accepted() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    world = World {
        is_ready: true,
        objects_applied: true,
        managers: ["WithMigrationLease"; 2],
        changes: Some(1),
        ..world
    };
    let plan = world.forward();
    assert_eq!(next(&plan), "migrate/phase");
    let steps = plan.steps.iter();
    let compared = steps
        .filter(|step| step.id == "prepare/comparison")
        .map(|step| step.state.as_str());
    let text = "the manager has compared load balancers, routes and Nodes with AWS: 1 change";
    assert_eq!(compared.collect::<Vec<_>>(), [text]);

    let checks = |next: Phase, accepted: &[String]| Checks::of(&world.read(), &asked(), Some(next), accepted).lines();
    let found = checks(Phase::Migrate, &[]);
    assert!(found[0].starts_with("OUT214"), "{found:?}");
    assert!(
        found.concat().contains("Service default/web: CreateListener"),
        "{found:?}"
    );
    let none: [String; 0] = [];
    assert_eq!(checks(Phase::Prepare, &[]), none);
    assert_eq!(checks(Phase::Migrate, &["OUT214".to_owned()]), none);
}

/// The step says why it waits, and whoever accepts changes does not wait for them.
#[test]
fn a_comparison_that_has_no_result_can_be_skipped() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    (world.is_ready, world.objects_applied, world.managers) = (true, true, ["WithMigrationLease"; 2]);
    world.changes = Some(0);
    let unknown: Change = |facts| {
        let status = &mut facts["migrations"]["known"][0]["status"];
        let rows = status["conditions"].as_array_mut().unwrap();
        let row = rows.iter_mut().find(|row| row["type"] == "AdoptionClean").unwrap();
        (row["status"], row["message"]) = (json!("Unknown"), json!("the last dry run failed: no answer"));
    };
    let none: Change = |facts| {
        let status = &mut facts["migrations"]["known"][0]["status"];
        let rows = status["conditions"].as_array_mut().unwrap();
        rows.retain(|row| row["type"] != "AdoptionClean");
    };
    for (change, part) in [(unknown, "failed: no answer"), (none, "makes no dry runs")] {
        let mut facts = world.facts();
        change(&mut facts);
        let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
        let plan = Plan::forward(&facts, &asked(), Phase::Complete).unwrap();
        assert_eq!(next(&plan), "prepare/comparison");
        assert!(plan.next().unwrap().state.contains(part), "{plan:?}");

        let accepts = Asked {
            accepts_changes: true,
            ..asked()
        };
        let plan = Plan::forward(&facts, &accepts, Phase::Complete).unwrap();
        assert_eq!(next(&plan), "migrate/phase");
    }
}

/// Every kubelet can make a mirror Pod.
#[test]
fn a_pod_of_a_worker_neither_counts_nor_blocks() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    (world.objects_applied, world.managers) = (true, ["WithMigrationLease"; 2]);
    let mut facts = world.facts();
    let mut forged = facts["components"]["known"][0].clone();
    forged["node"] = json!("worker-1");
    forged["unreadable"] = json!("worker-1 is no Node of the control plane");
    forged["judgement"]["acts"] = json!("WhileLeader");
    let open = |facts: &Value| {
        let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
        let plan = Plan::forward(&facts, &asked(), Phase::Complete).unwrap();
        (next(&plan).to_owned(), Checks::of(&facts, &asked(), None, &[]).pass())
    };
    facts["components"]["known"].as_array_mut().unwrap().push(forged);
    assert_eq!(
        open(&facts),
        ("prepare/control-plane".to_owned(), false),
        "if it is none of a worker"
    );
    let last = facts["components"]["known"].as_array().unwrap().len() - 1;
    facts["components"]["known"][last]["isIgnored"] = json!(true);
    assert_eq!(open(&facts), ("prepare/ready".to_owned(), true));
}

/// A condition of an older spec, an old status, and a control plane that is not known prove nothing.
#[test]
fn a_step_is_done_only_if_the_facts_of_now_say_so() {
    let mut world = in_tree();
    world.enter(Phase::Migrate);
    (world.is_ready, world.objects_applied, world.managers) = (true, true, ["Never"; 2]);
    assert_eq!(next(&world.forward()), "complete/phase");

    let changes: [(Change, &str); 4] = [
        (
            |facts| facts["migrations"]["known"][0]["generation"] = json!(4),
            "migrate/objects",
        ),
        (
            |facts| facts["migrations"]["known"][0]["status"]["observedBy"]["time"] = json!("2026-11-30T11:00:00Z"),
            "migrate/ready",
        ),
        (
            |facts| facts["migrations"]["known"][0]["status"]["conditions"][0]["observedGeneration"] = json!(2),
            "migrate/ready",
        ),
        (
            |facts| {
                facts["components"] = json!({"notRead": {"reason": "pods: forbidden"}});
                facts["migrations"]["known"][0]["status"]["conditions"][0]["status"] = json!("False");
            },
            "migrate/control-plane",
        ),
    ];
    for (change, step) in changes {
        let mut facts = world.facts();
        change(&mut facts);
        let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
        assert_eq!(next(&Plan::forward(&facts, &asked(), Phase::Complete).unwrap()), step);
    }
}

#[test]
fn objects_of_other_profiles_are_a_persons() {
    for (profiles, step, action, page) in [
        (
            json!(["KubeadmConfig"]),
            "prepare/objects",
            Action::ApplyKubeadmConfig(Phase::Prepare),
            "",
        ),
        (
            json!(["RancherRKE2"]),
            "prepare/control-plane",
            Action::Person,
            "docs/guides/rke2.md",
        ),
        (
            json!(["HostedControlPlane"]),
            "prepare/control-plane",
            Action::Person,
            "docs/guides/hosted.md",
        ),
    ] {
        let mut world = World { profiles, ..in_tree() };
        world.enter(Phase::Prepare);
        let plan = world.forward();
        let found = plan.next().unwrap();
        assert_eq!((found.id.as_str(), found.action), (step, action));
        assert!(found.commands.concat().contains(page), "{found:?}");
    }
}

/// In Migrate the API server's workload may still have its old form: it is rolled in Complete.
#[test]
fn objects_of_a_hosted_control_plane_hold_up_only_the_end() {
    let mut world = World {
        profiles: json!(["HostedControlPlane"]),
        ..in_tree()
    };
    world.enter(Phase::Migrate);
    world.is_ready = true;
    assert_eq!(next(&world.forward()), "complete/phase");
    world.enter(Phase::Complete);
    assert_eq!(next(&world.forward()), "complete/objects");
}

/// The components of the management cluster are not the tenant's.
#[test]
fn a_hosted_control_plane_is_seen_by_its_tenant() {
    let mut world = World {
        profiles: json!(["HostedControlPlane"]),
        ..in_tree()
    };
    world.enter(Phase::Prepare);
    let mut facts = world.facts();
    let mut pod = facts["components"]["known"][0].clone();
    pod["judgement"]["acts"] = json!("WithMigrationLease");
    let tenant = |name: &str| json!({"migration": name, "namespaces": ["a"], "components": {"known": [pod]}});
    for (name, step) in [("other", "prepare/control-plane"), ("cluster", "prepare/ready")] {
        facts["tenants"] = json!({"known": [tenant(name)]});
        let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
        assert_eq!(
            next(&Plan::forward(&facts, &asked(), Phase::Complete).unwrap()),
            step,
            "{name}"
        );
    }

    facts["tenants"]["known"][0]["components"] = json!({"notRead": {"reason": "pods in a: forbidden"}});
    let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
    let lines = Checks::of(&facts, &asked(), None, &[]).lines().concat();
    assert!(lines.contains("not known: pods in a: forbidden"), "{lines}");
}

/// Its Pod is gone for a moment while its file changes.
#[test]
fn a_machine_without_a_pod_is_not_done() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    (world.objects_applied, world.managers) = (true, ["WithMigrationLease"; 2]);
    let mut facts = world.facts();
    facts["components"]["known"].as_array_mut().unwrap().remove(1);
    let facts: ClusterFacts = serde_json::from_value(facts).unwrap();
    let plan = Plan::forward(&facts, &asked(), Phase::Complete).unwrap();
    assert!(
        plan.next()
            .unwrap()
            .state
            .ends_with("leader migration: cp-2 (no Pod now)"),
        "{:?}",
        plan.next()
    );
}

/// Also from a phase that was not reached. Each step is done by the facts about machines, not by `Ready` alone, which is True as
/// soon as one kube-controller-manager owns the controllers.
#[test]
fn the_way_back_leaves_a_phase_that_was_not_reached() {
    let mut world = in_tree();
    let back = |world: &World, to: Phase| Plan::back(&world.read(), &asked(), to).unwrap();
    world.enter(Phase::Complete);
    world.managers = ["Never"; 2];
    assert_eq!(next(&back(&world, Phase::Migrate)), "migrate/phase");
    world.enter(Phase::Migrate);
    assert_eq!(next(&back(&world, Phase::Prepare)), "prepare/phase");

    world.enter(Phase::Prepare);
    assert_eq!(next(&back(&world, Phase::Prepare)), "prepare/objects");
    (world.objects_applied, world.is_ready) = (true, true);
    let plan = back(&world, Phase::Prepare);
    assert_eq!(next(&plan), "prepare/control-plane");
    let commands = plan.next().unwrap().commands.join("\n");
    let (kubelets, static_pods) = commands.split_once("# then on").unwrap();
    assert!(
        kubelets.contains("--component kubelet --back") && static_pods.contains("current.yaml --back"),
        "{commands}"
    );
    world.managers[1] = "WithMigrationLease";
    assert_eq!(next(&back(&world, Phase::Prepare)), "prepare/control-plane");
    world.managers[0] = "WithMigrationLease";
    assert_eq!(next(&back(&world, Phase::Prepare)), "");
    world.is_ready = false;
    assert_eq!(next(&back(&world, Phase::Prepare)), "prepare/ready");

    assert_eq!(next(&back(&world, Phase::InTree)), "in-tree/phase");
    world.enter(Phase::InTree);
    (world.objects_applied, world.is_ready) = (true, true);
    let plan = back(&world, Phase::InTree);
    assert_eq!(next(&plan), "in-tree/control-plane");
    assert!(plan.next().unwrap().commands.concat().contains("outrigger node undo"));
    world.managers = ["WhileLeader"; 2];
    assert_eq!(next(&back(&world, Phase::InTree)), "");
}

/// The same command again does not go one phase further.
#[test]
fn a_step_back_is_finished_before_the_next_one() {
    let mut world = in_tree();
    world.enter(Phase::Migrate);
    world.owner = "cloud-controller-manager";
    let to = |world: &World| previous(&world.read(), &asked()).unwrap();
    assert_eq!(to(&world), Some(Phase::Prepare));
    world.enter(Phase::Prepare);
    assert_eq!(to(&world), Some(Phase::Prepare), "Outrigger owns still");
    world.owner = "kube-controller-manager";
    world.managers = ["WithMigrationLease", "Never"];
    assert_eq!(to(&world), Some(Phase::Prepare), "one machine is left");
    world.managers = ["WithMigrationLease"; 2];
    assert_eq!(to(&world), Some(Phase::InTree));
    world.enter(Phase::InTree);
    assert_eq!(to(&world), None);
}

/// Another migration in the same cluster is not in the way, and facts that are not known are.
#[test]
fn the_gate_is_about_this_migration_and_closed_without_facts() {
    let world = in_tree();
    let of = |facts: &Value, name: &str, accepted: &[&str]| {
        let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
        let asked = Asked {
            name: Some(name.to_owned()),
            cluster: String::new(),
            accepts_changes: false,
        };
        let accepted: Vec<String> = accepted.iter().map(|code| (*code).to_owned()).collect();
        Checks::of(&facts, &asked, None, &accepted)
    };
    let mut facts = world.facts();
    let mut other = facts["migrations"]["known"][0].clone();
    other["name"] = json!("other");
    other["status"]["observedBy"]["time"] = json!("2026-11-30T11:00:00Z");
    facts["migrations"]["known"].as_array_mut().unwrap().push(other);
    assert!(of(&facts, "cluster", &[]).pass(), "{:?}", of(&facts, "cluster", &[]));
    assert!(!of(&facts, "other", &[]).pass());
    assert!(of(&facts, "other", &["out203"]).pass());

    for part in ["components", "leases", "nodes"] {
        let mut facts = world.facts();
        facts[part] = json!({"notRead": {"reason": format!("{part}: forbidden"), "right": format!("list {part}")}});
        let lines = of(&facts, "cluster", &[]).lines().concat();
        assert!(lines.contains(&format!("add the right to list {part}")), "{lines}");
        assert!(!of(&facts, "cluster", &[]).pass(), "{part}");
    }

    let mut unreadable = world.facts();
    unreadable["migrations"]["known"][0]["phase"] = json!("Prepare");
    unreadable["components"]["known"][0]["unreadable"] = json!("another program starts it");
    assert!(!of(&unreadable, "cluster", &[]).pass());
    unreadable["migrations"]["known"][0]["isAttested"] = json!(true);
    assert!(of(&unreadable, "cluster", &[]).pass());
}

#[test]
fn a_cluster_whose_steps_are_unknown_gets_its_page() {
    let page = |facts: &Value| {
        let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
        can_be_planned(&facts, &asked()).map_err(|error| error.to_string())
    };
    assert_eq!(page(&in_tree().facts()), Ok(()));
    let external = World {
        has_object: false,
        managers: ["Never"; 2],
        ..in_tree()
    };
    assert!(page(&external.facts()).unwrap_err().contains("operations/replace.md"));
    let kubermatic = World {
        profiles: json!(["Kubermatic"]),
        ..in_tree()
    };
    assert!(page(&kubermatic.facts()).unwrap_err().contains("guides/kkp.md"));
    let mut downtime = in_tree().facts();
    downtime["migrations"]["known"][0]["isDowntime"] = json!(true);
    assert!(page(&downtime).unwrap_err().contains("guides/downtime.md"));
}

#[test]
fn an_error_of_check_and_a_wrong_phase_end_the_command() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let mut facts = in_tree().facts();
    facts["nodes"]["known"][2]["providerId"] = json!("");
    std::fs::write(path, facts.to_string()).unwrap();
    let run = support::outrigger(&["plan", "--facts", path]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("OUT401"), "{}", run.stderr);

    let mut world = in_tree();
    world.enter(Phase::Migrate);
    std::fs::write(path, world.facts().to_string()).unwrap();
    let run = support::outrigger(&["plan", "--to", "prepare", "--facts", path]);
    assert_eq!(run.code, Some(1), "{}", run.stdout);
    assert!(run.stderr.contains("outrigger rollback"), "{}", run.stderr);

    let run = support::outrigger(&["apply", "--accept", "OUT999"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("--accept=\"OUT999\" is no check"), "{}", run.stderr);
}

#[test]
fn an_alarm_is_part_of_the_plan() {
    let mut world = in_tree();
    assert_eq!(world.forward().alarm, None);
    (world.alarm, world.is_ready) = (true, false);
    assert_eq!(world.forward().alarm.unwrap().observation, "cp-1 is in-tree");

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), world.facts().to_string()).unwrap();
    let run = support::outrigger(&["plan", "--facts", file.path().to_str().unwrap()]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stdout.contains("alarm: cp-1 is in-tree") && run.stdout.contains("fix: f"),
        "{}",
        run.stdout
    );
}

#[test]
fn the_commands_name_the_cluster_that_was_asked_for() {
    let mut world = in_tree();
    world.enter(Phase::Complete);
    world.objects_applied = true;
    let asked = Asked {
        accepts_changes: false,
        name: Some("cluster".to_owned()),
        cluster: " --context=prod-2".to_owned(),
    };
    let plan = Plan::forward(&world.read(), &asked, Phase::Complete).unwrap();
    let commands = plan.next().unwrap().commands.iter();
    let of_cluster: Vec<&String> = commands.filter(|command| command.starts_with("kubectl")).collect();
    assert!(
        of_cluster.len() == 2 && of_cluster.iter().all(|command| command.contains(" --context=prod-2 ")),
        "{of_cluster:?}"
    );
    assert_eq!(plan.command, "outrigger apply cluster --to=Complete --context=prod-2");
}

//! `outrigger plan` on documents of facts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use outrigger_migrate::facts::ClusterFacts;
use outrigger_migrate::plan::steps::{Action, Plan};
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
    alarm: bool,
    profiles: Value,
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
        alarm: false,
        profiles: json!(["Nodes", "KubeadmConfig"]),
    }
}

impl World {
    fn facts(&self) -> Value {
        let mut facts: Value = serde_json::from_str(CLEAN).unwrap();
        for (at, acts) in self.managers.into_iter().enumerate() {
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
                    condition("NodesMigrated", self.nodes_migrated),
                ],
                "missing": if self.is_ready { json!([]) } else { json!([{"code": "X", "observation": "cp-1 is in-tree", "consequence": "c", "fix": "f"}]) },
                "nodes": {"total": 3, "uninitialized": 0, "migrated": 1},
                "history": [{"time": "2026-11-30T10:00:00.000000Z", "phase": "InTree", "alarm": self.alarm}],
            },
        }]});
        facts
    }

    fn read(&self) -> ClusterFacts {
        serde_json::from_value(self.facts()).unwrap()
    }

    fn forward(&self) -> Plan {
        Plan::forward(&self.read(), None, Phase::Complete).unwrap()
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
    then(&|world| world.is_ready = true, "migrate/phase");
    then(&|world| world.enter(Phase::Migrate), "migrate/objects");
    then(&|world| world.objects_applied = true, "migrate/control-plane");
    then(&|world| world.managers = ["Never"; 2], "migrate/ready");
    then(&|world| world.is_ready = true, "complete/phase");
    then(&|world| world.enter(Phase::Complete), "complete/objects");
    then(&|world| world.objects_applied = true, "complete/machines");
    then(&|world| world.nodes_migrated = true, "complete/ready");
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
    assert_eq!(plan["steps"].as_array().unwrap().len(), 15);
}

#[test]
fn the_leader_is_changed_last() {
    let mut world = in_tree();
    world.enter(Phase::Prepare);
    world.objects_applied = true;
    let place = |world: &World| world.forward().next().unwrap().place.clone();
    assert_eq!(place(&world), "cp-2 cp-1");
    world.managers[1] = "WithMigrationLease";
    assert_eq!(place(&world), "cp-1");
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
        assert_eq!(next(&Plan::forward(&facts, None, Phase::Complete).unwrap()), step);
    }
}

#[test]
fn objects_of_other_profiles_are_a_persons() {
    for (profiles, action, page) in [
        (json!(["KubeadmConfig"]), Action::ApplyKubeadmConfig(Phase::Prepare), ""),
        (json!(["RancherRKE2"]), Action::Person, "docs/guides/rke2.md"),
        (json!(["HostedControlPlane"]), Action::Person, "docs/guides/hosted.md"),
    ] {
        let mut world = World { profiles, ..in_tree() };
        world.enter(Phase::Prepare);
        let plan = world.forward();
        let step = plan.next().unwrap();
        assert_eq!((step.id.as_str(), step.action), ("prepare/objects", action));
        assert!(step.commands.concat().contains(page), "{step:?}");
    }

    let mut nodes = World {
        profiles: json!(["Nodes"]),
        ..in_tree()
    };
    nodes.enter(Phase::Prepare);
    assert_eq!(next(&nodes.forward()), "prepare/control-plane");
}

#[test]
fn the_way_back_goes_through_each_phase() {
    let mut world = in_tree();
    let back = |world: &World| Plan::back(&world.read(), None, Phase::Prepare).unwrap();
    world.enter(Phase::Complete);
    assert_eq!(next(&back(&world)), "migrate/phase");
    world.enter(Phase::Migrate);
    assert_eq!(next(&back(&world)), "migrate/objects");
    (world.objects_applied, world.is_ready) = (true, true);
    assert_eq!(next(&back(&world)), "prepare/phase");
    world.enter(Phase::Prepare);
    world.objects_applied = true;
    assert_eq!(next(&back(&world)), "prepare/machines");
    world.is_ready = true;
    assert_eq!(next(&back(&world)), "");
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
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("outrigger rollback"), "{}", run.stderr);

    for verb in ["apply", "rollback"] {
        let run = support::outrigger(&[verb, "--accept", "OUT999"]);
        assert_eq!(run.code, Some(1));
        assert!(run.stderr.contains("--accept=\"OUT999\" is no check"), "{}", run.stderr);
    }
}

#[test]
fn an_alarm_is_part_of_the_plan() {
    let mut world = in_tree();
    assert_eq!(world.forward().alarm, None);
    (world.alarm, world.is_ready) = (true, false);
    assert_eq!(world.forward().alarm.as_deref(), Some("cp-1 is in-tree"));
}

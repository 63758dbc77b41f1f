//! The steps of a migration, from the facts. Pure: a step is done if the facts show it, and nothing is remembered. So a
//! command that was killed goes on where the cluster is, also from another machine.

use outrigger_evidence::facts::{host_of, same_host};
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::{CloudProviderMigrationStatus, MissingFact, Phase, Profile, condition};
use serde::Serialize;

use super::commands::Commands;
use crate::facts::{API_VERSION, Acts, ClusterFacts, Component, Migration};
use crate::status::error::Error;
use crate::status::position::{is_current, named};

/// The way of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    Forward,
    Back,
}

/// The migration and the cluster of a plan.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The migration; none for the only one.
    pub name: Option<String>,
    /// The flags that name the cluster, for the printed commands: ` --context=prod`.
    pub cluster: String,
    /// The changes that the manager would make at AWS do not matter.
    pub accepts_changes: bool,
}

/// All steps up to a phase, in order, with those that are done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// None before the object exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<String>,
    /// The phase of now.
    pub phase: Phase,
    pub to: Phase,
    pub direction: Direction,
    pub steps: Vec<Step>,
    /// The facts that prevent the state of the phase.
    pub waits_for: Vec<MissingFact>,
    /// The manager has released the controllers, because a process acts that it does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<MissingFact>,
    /// The command that goes on.
    pub command: String,
    /// Why no step back is possible.
    #[serde(skip)]
    pub no_way_back: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `phase/step`. It stays when steps are added.
    pub id: String,
    pub who: Who,
    /// The state after the step.
    pub state: String,
    /// The meaning of the step for the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<&'static str>,
    /// The commands of a person; empty if this command or the manager does the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    pub is_done: bool,
    #[serde(skip)]
    pub action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    You,
    Outrigger,
    Manager,
}

impl Who {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::You => "you",
            Self::Outrigger => "outrigger",
            Self::Manager => "manager",
        }
    }
}

/// How a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A write of the phase.
    SetPhase(Phase),
    /// A write that has the webhook give the ConfigMap `kubeadm-config` the form of the phase.
    ApplyKubeadmConfig(Phase),
    /// By a person.
    Person,
    /// By the manager or the webhook.
    Wait,
}

/// The times of `docs/proof.md`.
const PAUSE_IN_PREPARE: &str =
    "when the last machine restarts, no process reconciles load balancers for about 17 s; they keep serving traffic";
const PAUSE_IN_MIGRATE: &str =
    "after the last machine, no process reconciles load balancers for about 15 s; they keep serving traffic";
const PAUSE_BACK: &str = "after the last machine, no process reconciles load balancers for less than 5 s, at most 20 s; they keep serving traffic";

impl Plan {
    /// The steps forward to a phase. Without a migration, the first of them install one.
    ///
    /// # Errors
    /// When the migrations are not known, there is none with this name, or several without a name.
    pub fn forward(facts: &ClusterFacts, asked: &Asked, to: Phase) -> Result<Self, Error> {
        let found = match named(facts, asked.name.as_deref()) {
            Err(Error::NotInstalled) => None,
            found => Some(found?),
        };
        let view = View::of(facts, found, asked);
        let mut steps = vec![view.installed(), view.created()];
        for phase in Phase::ALL.into_iter().filter(|phase| *phase <= to) {
            steps.extend(view.forward_to(phase));
        }

        Ok(view.plan(to, Direction::Forward, steps))
    }

    /// The steps from the next phase back to this one.
    ///
    /// # Errors
    /// When there is no such migration.
    pub fn back(facts: &ClusterFacts, asked: &Asked, to: Phase) -> Result<Self, Error> {
        let view = View::of(facts, Some(named(facts, asked.name.as_deref())?), asked);
        let steps = view.back_to(to);
        Ok(view.plan(to, Direction::Back, steps))
    }

    /// The first step that is not done.
    pub fn next(&self) -> Option<&Step> {
        self.steps.iter().find(|step| !step.is_done)
    }

    /// The phase that is set next.
    pub fn next_phase(&self) -> Option<Phase> {
        let left = self.steps.iter().filter(|step| !step.is_done);
        let mut phases = left.filter_map(|step| match step.action {
            Action::SetPhase(phase) => Some(phase),
            Action::ApplyKubeadmConfig(_) | Action::Person | Action::Wait => None,
        });
        phases.next()
    }
}

/// One migration within the facts.
struct View<'a> {
    facts: &'a ClusterFacts,
    migration: Option<&'a Migration>,
    status: CloudProviderMigrationStatus,
    /// The status is of this spec and of now.
    is_current: bool,
    asked: &'a Asked,
}

impl<'a> View<'a> {
    fn of(facts: &'a ClusterFacts, migration: Option<&'a Migration>, asked: &'a Asked) -> Self {
        let status = migration.and_then(|migration| migration.status.clone());
        let status = status.unwrap_or_default();
        Self {
            facts,
            migration,
            is_current: migration.is_some_and(|migration| is_current(facts, migration, &status)),
            status,
            asked,
        }
    }

    fn plan(&self, to: Phase, direction: Direction, steps: Vec<Step>) -> Plan {
        let commands = self.commands();
        Plan {
            api_version: API_VERSION,
            kind: "MigrationPlan",
            context: self.facts.context.clone(),
            migration: self.migration.map(|migration| migration.name.clone()),
            phase: self.phase(),
            to,
            direction,
            steps,
            waits_for: if self.is_current {
                self.status.missing.clone()
            } else {
                Vec::new()
            },
            alarm: self.alarm(),
            command: match direction {
                Direction::Forward => commands.outrigger("apply", to),
                Direction::Back => commands.outrigger("rollback", to),
            },
            no_way_back: self.no_way_back(),
        }
    }

    fn alarm(&self) -> Option<MissingFact> {
        let last = self.status.history.last().filter(|_| self.is_current)?;
        last.alarm.then(|| {
            let missing = self.status.missing.first().cloned();
            missing.unwrap_or_else(|| MissingFact {
                code: "Alarm".to_owned(),
                observation: "a process acts that the manager does not know".to_owned(),
                consequence: "the manager has released the migration lease".to_owned(),
                fix: "outrigger status shows it".to_owned(),
            })
        })
    }

    fn no_way_back(&self) -> Option<String> {
        if self.is_true(condition::ROLLBACK_POSSIBLE) {
            return None;
        }
        let mut rows = self.status.conditions.iter();
        let row = rows.find(|row| row.type_ == condition::ROLLBACK_POSSIBLE);
        Some(match row {
            Some(row) if row.status == "False" => row.message.clone(),
            _ => {
                "it is not known whether a step back is possible: the condition RollbackPossible is not True".to_owned()
            }
        })
    }

    fn phase(&self) -> Phase {
        self.migration.map_or(Phase::InTree, |migration| migration.phase)
    }

    fn has(&self, profile: Profile) -> bool {
        self.migration
            .is_some_and(|migration| migration.profiles.contains(&profile))
    }

    fn is_kubeadm(&self) -> bool {
        self.has(Profile::KubeadmConfig)
    }

    fn commands(&self) -> Commands<'a> {
        let profiles = self.migration.map_or(&[][..], |migration| &migration.profiles);
        Commands {
            migration: self.migration.map(|migration| migration.name.as_str()),
            cluster: &self.asked.cluster,
            profiles,
        }
    }

    /// Whether the manager says so about the spec of now.
    fn is_true(&self, condition: &str) -> bool {
        self.is_current && self.has_condition(condition)
    }

    /// A condition of an older spec does not count, as for `kubectl wait`.
    fn has_condition(&self, type_: &str) -> bool {
        let is_of_now = |generation| self.migration.is_some_and(|migration| migration.is_of_now(generation));
        let mut rows = self.status.conditions.iter();
        rows.any(|row| row.type_ == type_ && row.status == "True" && is_of_now(row.observed_generation))
    }

    fn installed(&self) -> Step {
        let has_manager = self.facts.managers().is_ok_and(|mut all| all.next().is_some());
        let is_seen = self.status.observed_by.is_some() || self.migration.is_some();
        Step {
            commands: vec!["# install webhook and manager: docs/guides/install.md".to_owned()],
            is_done: has_manager || is_seen,
            ..step("install", Who::You, "webhook and manager run", Action::Person)
        }
    }

    fn created(&self) -> Step {
        Step {
            commands: vec![
                "# write migration.yaml as the guide of your distribution shows".to_owned(),
                format!("kubectl apply{} -f migration.yaml", self.asked.cluster),
            ],
            is_done: self.migration.is_some(),
            ..step(
                "migration",
                Who::You,
                "the CloudProviderMigration exists",
                Action::Person,
            )
        }
    }

    /// The steps of one phase.
    fn forward_to(&self, phase: Phase) -> Vec<Step> {
        let mut steps = Vec::new();
        if phase > Phase::InTree {
            steps.push(self.entered(phase, self.phase() >= phase));
        }
        steps.extend(self.kubeadm_config(phase).filter(|_| phase > Phase::InTree));
        match phase {
            Phase::InTree => {}
            Phase::Prepare | Phase::Migrate => steps.push(self.control_plane(phase)),
            Phase::Complete => {
                steps.extend(self.objects(phase));
                steps.push(self.machines());
            }
        }
        steps.push(self.ready(phase));
        if phase == Phase::Prepare {
            steps.push(self.compared());
        }

        let is_before = self.phase() < phase || self.migration.is_none();
        at_their_time(steps, self.phase() > phase, is_before)
    }

    /// The steps of the way back into a phase.
    fn back_to(&self, phase: Phase) -> Vec<Step> {
        let mut steps = vec![self.entered(phase, self.phase() <= phase)];
        steps.extend(self.kubeadm_config(phase));
        if phase < Phase::Migrate {
            steps.push(self.control_plane_back(phase));
        }
        steps.push(self.ready(phase));

        at_their_time(steps, self.phase() < phase, self.phase() > phase)
    }

    fn entered(&self, phase: Phase, is_done: bool) -> Step {
        let state = format!("spec.phase is {phase}");
        Step {
            is_done,
            ..step(&id(phase, "phase"), Who::Outrigger, &state, Action::SetPhase(phase))
        }
    }

    /// kubeadm writes static Pods from this ConfigMap at the next upgrade.
    fn kubeadm_config(&self, phase: Phase) -> Option<Step> {
        let state = format!("the ConfigMap kubeadm-config has the form of {phase}");
        self.is_kubeadm().then(|| Step {
            commands: self.objects_left(phase).into_iter().collect(),
            is_done: self.has_condition(condition::OBJECTS_APPLIED),
            ..step(
                &id(phase, "objects"),
                Who::Outrigger,
                &state,
                Action::ApplyKubeadmConfig(phase),
            )
        })
    }

    /// The words of the webhook about objects that do not have the form of the phase.
    fn objects_left(&self, phase: Phase) -> Option<String> {
        let mut rows = self.status.conditions.iter();
        let row = rows.find(|row| row.type_ == condition::OBJECTS_APPLIED && row.status != "True")?;
        (self.phase() == phase).then(|| format!("# {}", row.message))
    }

    /// Objects that the webhook changes. In the phases before, `Ready` shows those that matter.
    fn objects(&self, phase: Phase) -> Option<Step> {
        let has_objects = |migration: &&Migration| migration.profiles.iter().any(|profile| *profile != Profile::Nodes);
        self.migration.filter(has_objects).filter(|_| !self.is_kubeadm())?;
        let left = self.objects_left(phase).into_iter();
        let state = format!("the objects of the targets have the form of {phase}");
        Some(Step {
            commands: left.chain([self.commands().guide()]).collect(),
            is_done: self.has_condition(condition::OBJECTS_APPLIED),
            ..step(&id(phase, "objects"), Who::You, &state, Action::Person)
        })
    }

    fn control_plane(&self, phase: Phase) -> Step {
        let (form, effect) = match phase {
            Phase::Prepare => ("have leader migration", PAUSE_IN_PREPARE),
            _ => ("are external", PAUSE_IN_MIGRATE),
        };
        let (left, is_known) = self.left(|component| has_form(component, phase));
        let left_objects = self.objects_left(phase).filter(|_| !self.is_kubeadm());
        let commands = left_objects.into_iter().chain(self.commands().control_plane(&left));
        Step {
            effect: Some(effect),
            commands: commands.collect(),
            is_done: self.is_true(condition::READY) || is_known && left.is_empty(),
            ..step(
                &id(phase, "control-plane"),
                Who::You,
                &format!("kube-controller-managers {form}{}", listed(&left)),
                Action::Person,
            )
        }
    }

    fn control_plane_back(&self, phase: Phase) -> Step {
        let is_back = |component: &Component| match phase {
            Phase::Prepare => acts(component) == Some(Acts::WithMigrationLease),
            _ => acts(component) == Some(Acts::WhileLeader),
        };
        let (left, is_known) = self.left(is_back);
        let form = match phase {
            Phase::Prepare => {
                "first the kubelets have their original flags, then kube-controller-managers have leader migration"
            }
            _ => "kube-controller-managers have their original flags",
        };
        // In InTree the manager is content as soon as one of them owns the controllers.
        let is_seen_by_manager = phase == Phase::Prepare && !is_known && self.is_true(condition::READY);
        Step {
            effect: (phase == Phase::Prepare).then_some(PAUSE_BACK),
            commands: self.commands().control_plane_back(phase, &left),
            is_done: is_seen_by_manager || is_known && left.is_empty(),
            ..step(
                &id(phase, "control-plane"),
                Who::You,
                &format!("{form}{}", listed(&left)),
                Action::Person,
            )
        }
    }

    /// The machines whose kube-controller-manager is not so or not Ready, the leader last: then the lease moves once. And
    /// whether any is known.
    fn left(&self, is_so: impl Fn(&Component) -> bool) -> (Vec<String>, bool) {
        let all = self.controller_managers();
        let is_left = |component: &&&Component| !is_so(component) || !component.is_ready;
        let left = all.iter().filter(is_left).map(|component| {
            let name = machine(component);
            match (is_so(component), self.leads(component)) {
                (true, _) => format!("{name} (changed, its Pod is not Ready)"),
                (false, true) => format!("{name} (leads, last)"),
                (false, false) => name.to_owned(),
            }
        });

        // The Pod of a machine is gone for a moment while its file changes.
        let nodes = self
            .facts
            .nodes
            .known()
            .filter(|_| self.is_kubeadm())
            .into_iter()
            .flatten();
        let has_pod = |name: &str| all.iter().any(|component| component.node.as_deref() == Some(name));
        let without_pod = nodes
            .filter(|node| node.is_control_plane && !has_pod(&node.name))
            .map(|node| format!("{} (no Pod now)", node.name));

        (left.chain(without_pod).collect(), !all.is_empty())
    }

    /// The components of the migrated cluster, as far as they can be seen.
    fn components(&self) -> impl Iterator<Item = &'a Component> + use<'a> {
        let tenants = self.facts.tenants.known().into_iter().flatten();
        let name = self.migration.map(|migration| migration.name.as_str());
        let is_elsewhere = self.migration.is_some_and(Migration::is_elsewhere);
        let tenant = tenants.filter(move |tenant| is_elsewhere && Some(tenant.migration.as_str()) == name);
        let here = self.facts.components.known().filter(|_| !is_elsewhere);
        let all = here.into_iter().flatten();
        let all = all.chain(tenant.filter_map(|tenant| tenant.components.known()).flatten());
        all.filter(|component| !component.is_ignored)
    }

    fn controller_managers(&self) -> Vec<&'a Component> {
        let mut all: Vec<&Component> = self.components().filter(|one| one.judgement.is_some()).collect();
        all.sort_by_key(|&component| (self.leads(component), machine(component)));
        all
    }

    fn leads(&self, component: &Component) -> bool {
        let main = self.migration.map(|migration| migration.main_lease.as_str());
        let mut leases = self.facts.leases.known().into_iter().flatten();
        let Some(lease) = leases.find(|lease| Some(lease.name.as_str()) == main) else {
            return false;
        };
        let mut hosts = component.judgement.iter().flat_map(|judged| &judged.hosts);
        hosts.any(|host| same_host(host, host_of(&lease.holder)))
    }

    fn machines(&self) -> Step {
        let counts = self.status.nodes.filter(|_| self.is_current);
        let counts = counts.map(|counts| format!(": {} of {} kubelets are", counts.migrated, counts.total));
        Step {
            commands: self.commands().machines(),
            is_done: self.is_true(condition::NODES_MIGRATED) && !self.components().any(is_in_tree_api_server),
            ..step(
                &id(Phase::Complete, "machines"),
                Who::You,
                &format!(
                    "kube-apiservers and kubelets are external{}",
                    counts.unwrap_or_default()
                ),
                Action::Person,
            )
        }
    }

    /// The manager compares before it takes over. A difference is an error of the check before phase Migrate.
    fn compared(&self) -> Step {
        let is_of_now = |generation| self.migration.is_some_and(|migration| migration.is_of_now(generation));
        let mut rows = self.status.conditions.iter();
        let any = rows.find(|row| row.type_ == condition::ADOPTION_CLEAN);
        let row = any.filter(|row| self.is_current && is_of_now(row.observed_generation));
        let found = match (row, &self.status.adoption) {
            (Some(row), _) if row.status == "Unknown" => {
                format!(": {}; --accept=OUT214 goes on without it", row.message)
            }
            (Some(_), Some(adoption)) => match adoption.changes {
                0 => format!(": {} Services, {} Nodes, no change", adoption.services, adoption.nodes),
                1 => ": 1 change".to_owned(),
                changes => format!(": {changes} changes"),
            },
            (Some(_), None) => String::new(),
            (None, _) if any.is_none() && self.is_current && self.phase() == Phase::Prepare => {
                ": this manager makes no dry runs; upgrade it, or go on with --accept=OUT214".to_owned()
            }
            (None, _) => String::new(),
        };
        let state = format!("the manager has compared load balancers, routes and Nodes with AWS{found}");
        Step {
            is_done: self.asked.accepts_changes || row.is_some_and(|row| row.status != "Unknown"),
            ..step(&id(Phase::Prepare, "comparison"), Who::Manager, &state, Action::Wait)
        }
    }

    /// The manager says when the phase is reached. A person has to act if it does not come by itself.
    fn ready(&self, phase: Phase) -> Step {
        let state = match phase {
            Phase::InTree => "a kube-controller-manager owns the load balancers",
            Phase::Prepare => "the evidence for the hand-over is recorded",
            Phase::Migrate => "Outrigger's manager owns the load balancers",
            Phase::Complete => "the migration is complete",
        };
        let is_observed = self.status.observed_by.is_some();
        let is_persons = !is_observed || self.is_true(condition::STALLED);
        let commands = (!is_observed).then(|| "# no manager observes the migration: docs/guides/install.md".to_owned());
        Step {
            commands: commands.into_iter().collect(),
            is_done: self.is_true(condition::READY),
            ..step(
                &id(phase, "ready"),
                Who::Manager,
                state,
                if is_persons { Action::Person } else { Action::Wait },
            )
        }
    }
}

/// The phase to which `outrigger rollback` goes without a flag: the previous one, or Prepare while it is not known that a
/// kube-controller-manager owns the controllers again, or one is still external.
///
/// # Errors
/// As [`Plan::back`].
pub fn previous(facts: &ClusterFacts, asked: &Asked) -> Result<Option<Phase>, Error> {
    let migration = named(facts, asked.name.as_deref())?;
    let rows = migration.status.iter().flat_map(|status| &status.controllers);
    let name = Controller::Service.canonical_name();
    let mut rows = rows.filter(|row| row.name == name);
    let is_back = rows.all(|row| row.owner == Some(Party::KubeControllerManager));
    let view = View::of(facts, Some(migration), asked);
    let mut managers = view.controller_managers().into_iter();
    if migration.phase == Phase::Prepare && (!is_back || managers.any(|one| has_form(one, Phase::Migrate))) {
        return Ok(Some(Phase::Prepare));
    }

    Ok(Phase::ALL
        .into_iter()
        .rev()
        .find(|previous| *previous < migration.phase))
}

/// The steps of a phase that is over are done, and those of one that has not begun are not, whatever the facts show.
fn at_their_time(mut steps: Vec<Step>, is_over: bool, is_before: bool) -> Vec<Step> {
    for step in &mut steps {
        step.is_done = is_over || step.is_done && !is_before;
    }

    steps
}

fn step(id: &str, who: Who, state: &str, action: Action) -> Step {
    Step {
        id: id.to_owned(),
        who,
        state: state.to_owned(),
        effect: None,
        commands: Vec::new(),
        is_done: false,
        action,
    }
}

fn id(phase: Phase, step: &str) -> String {
    let phase = match phase {
        Phase::InTree => "in-tree",
        Phase::Prepare => "prepare",
        Phase::Migrate => "migrate",
        Phase::Complete => "complete",
    };
    format!("{phase}/{step}")
}

fn listed(machines: &[String]) -> String {
    match machines {
        [] => String::new(),
        machines => format!(": {}", machines.join(", ")),
    }
}

fn machine(component: &Component) -> &str {
    component.node.as_deref().unwrap_or(&component.object)
}

/// When a kube-controller-manager acts, if its flags can be read.
fn acts(component: &Component) -> Option<Acts> {
    let judged = component.judgement.as_ref()?;
    component.unreadable.is_none().then_some(judged.acts)
}

/// Whether a kube-controller-manager has the flags of the phase, or of a later one.
fn has_form(component: &Component, phase: Phase) -> bool {
    let judged = component.judgement.as_ref();
    match acts(component) {
        Some(Acts::WithMigrationLease) => {
            phase == Phase::Prepare && judged.is_some_and(|judged| judged.configuration.is_none())
        }
        Some(Acts::Never) => phase == Phase::Prepare || judged.is_some_and(|judged| !judged.is_in_tree),
        Some(Acts::WhileLeader | Acts::Always | Acts::Unknown) | None => false,
    }
}

fn is_in_tree_api_server(component: &Component) -> bool {
    let provider = component.flags.as_ref().and_then(|flags| flags.get("cloud-provider"));
    component.component == "kube-apiserver" && provider.is_some_and(|provider| provider == "aws")
}

//! The steps of a migration, from the facts. Pure: a step is done if the facts show it, and nothing is remembered. So a
//! command that was killed goes on where the cluster is, also from another machine.

use std::io::{self, Write};

use outrigger_shared::migration::{CloudProviderMigrationStatus, MissingFact, Phase, Profile, condition};
use serde::Serialize;

use crate::explain::printable;
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

/// All steps up to a phase, in order, with those that are done.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
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
    /// Why the manager gave up the controllers: a process acts that it does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    /// Why no step back is possible.
    #[serde(skip)]
    pub no_way_back: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `phase/step`. It stays when steps are added.
    pub id: String,
    /// Who acts, or which machines change.
    #[serde(rename = "where")]
    pub place: String,
    pub what: String,
    /// What a person types; empty if the command or the manager does the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    pub is_done: bool,
    #[serde(skip)]
    pub action: Action,
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

/// What a phase means for who runs the shared controllers.
const NO_OWNER: &str = "nobody owns the load balancers for about 15 s";

impl Plan {
    /// The steps forward to a phase. Without a migration, the first of them install one.
    ///
    /// # Errors
    /// When the migrations are not known, there is none with this name, or several without a name.
    pub fn forward(facts: &ClusterFacts, name: Option<&str>, to: Phase) -> Result<Self, Error> {
        let found = match named(facts, name) {
            Err(Error::NotInstalled) => None,
            found => Some(found?),
        };
        let view = View::of(facts, found);
        let mut steps = vec![view.installed(), view.created()];
        for phase in Phase::ALL.into_iter().filter(|phase| *phase <= to) {
            steps.extend(view.forward_to(phase));
        }

        Ok(view.plan(to, Direction::Forward, steps))
    }

    /// The steps back to a phase.
    ///
    /// # Errors
    /// When there is no such migration, or it is in an earlier phase.
    pub fn back(facts: &ClusterFacts, name: Option<&str>, to: Phase) -> Result<Self, Error> {
        let view = View::of(facts, Some(named(facts, name)?));
        let phases = Phase::ALL.into_iter().rev();
        let steps = phases
            .filter(|phase| *phase >= to && *phase < Phase::Complete)
            .flat_map(|phase| view.back_to(phase));
        Ok(view.plan(to, Direction::Back, steps.collect()))
    }

    /// The first step that is not done.
    pub fn next(&self) -> Option<&Step> {
        self.steps.iter().find(|step| !step.is_done)
    }

    /// # Errors
    /// When `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = self.context.as_ref().or(self.migration.as_ref());
        let done = self.steps.iter().filter(|step| step.is_done).count();
        let (name, count) = (name.map_or("the cluster", String::as_str), self.steps.len());
        let (from, to) = (self.phase, self.to);
        writeln!(
            out,
            "{}: {from} → {to}, {done} of {count} steps done\n",
            printable(name)
        )?;

        let width = |of: fn(&Step) -> &str| self.steps.iter().map(|step| of(step).chars().count()).max();
        let (ids, places) = (width(|step| &step.id), width(|step| &step.place));
        let (ids, places) = (ids.unwrap_or_default(), places.unwrap_or_default());
        let next = self.next();
        for step in &self.steps {
            let sign = match next {
                _ if step.is_done => "√",
                Some(next) if next.id == step.id => "▶",
                _ => " ",
            };
            let (id, place, what) = (&step.id, printable(&step.place), printable(&step.what));
            writeln!(out, " {sign} {id:ids$}  {place:places$}  {what}")?;
        }
        writeln!(out)?;
        if let Some(next) = next {
            next.write_commands(out)?;
        }
        let command = match (next, self.direction, &self.migration) {
            (None, ..) => "outrigger status".to_owned(),
            (_, _, None) => "outrigger check".to_owned(),
            (Some(_), Direction::Forward, Some(name)) => format!("outrigger apply {name}"),
            (Some(_), Direction::Back, Some(name)) => format!("outrigger rollback {name} --to {to}"),
        };
        writeln!(out, "next: {command}")
    }
}

impl Step {
    /// # Errors
    /// When `out` fails.
    pub fn write_commands(&self, out: &mut dyn Write) -> io::Result<()> {
        for command in &self.commands {
            writeln!(out, "    {}", printable(command))?;
        }
        Ok(())
    }
}

/// One migration within the facts.
struct View<'a> {
    facts: &'a ClusterFacts,
    migration: Option<&'a Migration>,
    status: CloudProviderMigrationStatus,
    /// The status is of this spec and of now.
    is_current: bool,
}

impl<'a> View<'a> {
    fn of(facts: &'a ClusterFacts, migration: Option<&'a Migration>) -> Self {
        let status = migration.and_then(|migration| migration.status.clone());
        let status = status.unwrap_or_default();
        Self {
            facts,
            migration,
            is_current: migration.is_some_and(|migration| is_current(facts, migration, &status)),
            status,
        }
    }

    fn plan(&self, to: Phase, direction: Direction, steps: Vec<Step>) -> Plan {
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
            no_way_back: self.no_way_back(),
        }
    }

    fn alarm(&self) -> Option<String> {
        let last = self.status.history.last().filter(|_| self.is_current)?;
        last.alarm.then(|| {
            let missing = self.status.missing.first().map(|fact| fact.observation.clone());
            missing.unwrap_or_else(|| "the manager has released the migration lease; see outrigger status".to_owned())
        })
    }

    fn no_way_back(&self) -> Option<String> {
        let mut rows = self.status.conditions.iter();
        let row = rows.find(|row| row.type_ == condition::ROLLBACK_POSSIBLE && row.status == "False")?;
        Some(row.message.clone())
    }

    fn phase(&self) -> Phase {
        self.migration.map_or(Phase::InTree, |migration| migration.phase)
    }

    fn name(&self) -> &str {
        self.migration.map_or("NAME", |migration| &migration.name)
    }

    fn has(&self, profile: Profile) -> bool {
        self.migration
            .is_some_and(|migration| migration.profiles.contains(&profile))
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
        let is_observed = self.status.observed_by.is_some();
        let install = "docs/guides/install.md, after the prerequisites of your guide";
        Step {
            commands: vec![format!("# {install}")],
            is_done: has_manager || is_observed || self.phase() > Phase::InTree,
            ..step("install", "you", "webhook and manager", Action::Person)
        }
    }

    fn created(&self) -> Step {
        Step {
            commands: vec!["kubectl apply -f migration.yaml".to_owned()],
            is_done: self.migration.is_some(),
            ..step("migration", "you", "the CloudProviderMigration", Action::Person)
        }
    }

    /// The steps of one phase. Those of an earlier phase are over.
    fn forward_to(&self, phase: Phase) -> Vec<Step> {
        let mut steps = Vec::new();
        if phase > Phase::InTree {
            let what = format!("phase {phase}");
            steps.push(Step {
                is_done: self.phase() >= phase,
                ..step(&id(phase, "phase"), "API server", &what, Action::SetPhase(phase))
            });
            steps.extend(self.objects(phase));
        }
        match phase {
            Phase::InTree => {}
            Phase::Prepare | Phase::Migrate => steps.extend(self.control_plane(phase)),
            Phase::Complete => steps.push(self.machines()),
        }
        steps.push(self.ready(phase));

        let is_over = self.phase() > phase;
        let is_before = self.phase() < phase || self.migration.is_none();
        for step in &mut steps {
            step.is_done = is_over || step.is_done && !is_before;
        }

        steps
    }

    fn back_to(&self, phase: Phase) -> Vec<Step> {
        let what = format!("phase {phase}");
        let mut steps = vec![Step {
            is_done: self.phase() <= phase,
            ..step(&id(phase, "phase"), "API server", &what, Action::SetPhase(phase))
        }];
        steps.extend(self.objects(phase));
        if phase < Phase::Migrate {
            let what = format!("the machines get the form of {phase}; {NO_OWNER}");
            steps.push(Step {
                commands: self.commands_back(),
                is_done: self.is_true(condition::READY),
                ..step(&id(phase, "machines"), "you", &what, Action::Person)
            });
        }
        steps.push(self.ready(phase));

        let is_over = self.phase() < phase;
        let is_before = self.phase() > phase;
        for step in &mut steps {
            step.is_done = is_over || step.is_done && !is_before;
        }

        steps
    }

    /// Objects that the webhook changes: all targets but the Nodes, which get their taint when they are created.
    fn objects(&self, phase: Phase) -> Option<Step> {
        let has_objects = |migration: &&Migration| migration.profiles.iter().any(|profile| *profile != Profile::Nodes);
        self.migration.filter(has_objects)?;
        let id = id(phase, "objects");
        // Written by the webhook, whether or not a manager runs.
        let is_done = self.has_condition(condition::OBJECTS_APPLIED);
        if self.has(Profile::KubeadmConfig) {
            let what = "the ConfigMap kubeadm-config gets the form of the phase";
            return Some(Step {
                is_done,
                ..step(&id, "API server", what, Action::ApplyKubeadmConfig(phase))
            });
        }

        let row = self
            .status
            .conditions
            .iter()
            .find(|row| row.type_ == condition::OBJECTS_APPLIED);
        let left = row.filter(|row| self.phase() == phase && row.status == "False");
        let left = left.map(|row| format!("# {}", row.message));
        Some(Step {
            commands: left.into_iter().chain([self.guide()]).collect(),
            is_done,
            ..step(
                &id,
                "you",
                "the objects of the targets get the form of the phase",
                Action::Person,
            )
        })
    }

    /// The kube-controller-managers whose Pods this cluster has.
    fn control_plane(&self, phase: Phase) -> Option<Step> {
        if self.migration.is_some_and(Migration::is_elsewhere) {
            return None;
        }

        let all = self.controller_managers();
        let left: Vec<&str> = all
            .iter()
            .filter(|component| !has_form(component, phase))
            .map(|component| machine(component))
            .collect();
        let form = match phase {
            Phase::Prepare => "with leader migration",
            _ => "external",
        };
        let is_known = self.facts.components.known().is_some() && !all.is_empty();
        let place = if left.is_empty() {
            "control plane".to_owned()
        } else {
            left.join(" ")
        };

        Some(Step {
            commands: self.commands_of_control_plane(&left),
            is_done: self.is_true(condition::READY) || is_known && left.is_empty(),
            ..step(
                &id(phase, "control-plane"),
                &place,
                &format!("kube-controller-manager {form}; {NO_OWNER}"),
                Action::Person,
            )
        })
    }

    /// The leader last: then the lease moves once.
    fn controller_managers(&self) -> Vec<&'a Component> {
        let components = self.facts.components.known().into_iter().flatten();
        let mut all: Vec<&Component> = components.filter(|component| component.judgement.is_some()).collect();
        all.sort_by_key(|&component| (self.leads(component), machine(component)));
        all
    }

    fn leads(&self, component: &Component) -> bool {
        let main = self.migration.map(|migration| migration.main_lease.as_str());
        let leases = self.facts.leases.known().into_iter().flatten();
        let holder = leases
            .filter(|lease| Some(lease.name.as_str()) == main)
            .map(|lease| &lease.holder);
        let hosts = component.judgement.iter().flat_map(|judged| &judged.hosts);
        let mut hosts = hosts.map(|host| format!("{host}_"));
        holder
            .into_iter()
            .any(|holder| hosts.any(|host| holder.starts_with(&host)))
    }

    fn machines(&self) -> Step {
        let counts = self.status.nodes.filter(|_| self.is_current);
        let counts = counts.map(|counts| format!(" ({} of {} external)", counts.migrated, counts.total));
        Step {
            commands: self.commands_of_machines(),
            is_done: self.is_true(condition::NODES_MIGRATED),
            ..step(
                &id(Phase::Complete, "machines"),
                "all machines",
                &format!("kubelets external{}", counts.unwrap_or_default()),
                Action::Person,
            )
        }
    }

    fn ready(&self, phase: Phase) -> Step {
        let what = match phase {
            Phase::InTree => "the manager sees that a kube-controller-manager owns the load balancers",
            Phase::Prepare => "the manager has recorded that the kube-controller-manager can hand over",
            Phase::Migrate => "Outrigger's manager owns the load balancers",
            Phase::Complete => "the migration is complete",
        };
        Step {
            is_done: self.is_true(condition::READY),
            ..step(&id(phase, "ready"), "manager", what, Action::Wait)
        }
    }

    fn is_kubeadm(&self) -> bool {
        self.has(Profile::KubeadmConfig)
    }

    fn guide(&self) -> String {
        let page = GUIDES.iter().find(|(profile, _)| self.has(*profile));
        let page = page.map_or("the page of your distribution in docs/guides", |(_, page)| *page);
        format!("# see {page}")
    }

    /// The command that makes the file which `outrigger node edit` reads on the machines.
    fn current(&self) -> String {
        format!(
            "kubectl get cloudprovidermigration {} -o yaml > current.yaml",
            self.name()
        )
    }

    fn commands_of_control_plane(&self, machines: &[&str]) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![self.guide()];
        }
        vec![
            self.current(),
            format!(
                "# then with this file on one machine after the other: {}",
                machines.join(", ")
            ),
            "outrigger node edit --migration current.yaml --component kube-controller-manager".to_owned(),
        ]
    }

    fn commands_of_machines(&self) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![self.guide()];
        }
        vec![
            self.current(),
            "# then with this file on one control-plane machine after the other".to_owned(),
            "outrigger node edit --migration current.yaml && systemctl restart kubelet".to_owned(),
            "# on one worker after the other".to_owned(),
            "outrigger node edit --migration current.yaml --component kubelet && systemctl restart kubelet".to_owned(),
            "# when all kubelets are external".to_owned(),
            "kubectl annotate nodes --all outrigger.dev/kubelet=external --overwrite".to_owned(),
        ]
    }

    fn commands_back(&self) -> Vec<String> {
        if !self.is_kubeadm() {
            return vec![format!("{}, \"Go back\"", self.guide())];
        }
        vec![
            "# see docs/guides/kubeadm.md, \"Go back\"".to_owned(),
            self.current(),
            "# first the kubelets that are external: with this file on one machine after the other".to_owned(),
            "outrigger node edit --migration current.yaml --component kubelet --back && systemctl restart kubelet"
                .to_owned(),
            "# when no kubelet is external any more".to_owned(),
            "kubectl annotate nodes --all outrigger.dev/kubelet-".to_owned(),
            "# then on one control-plane machine after the other, the leader last".to_owned(),
            "outrigger node edit --migration current.yaml --back".to_owned(),
        ]
    }
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

fn step(id: &str, place: &str, what: &str, action: Action) -> Step {
    Step {
        id: id.to_owned(),
        place: place.to_owned(),
        what: what.to_owned(),
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

fn machine(component: &Component) -> &str {
    component.node.as_deref().unwrap_or(&component.object)
}

/// Whether a kube-controller-manager has the flags of the phase, or of a later one.
fn has_form(component: &Component, phase: Phase) -> bool {
    let judged = component.judgement.as_ref().filter(|_| component.unreadable.is_none());
    judged.is_some_and(|judged| match judged.acts {
        Acts::WithMigrationLease => phase == Phase::Prepare && judged.configuration.is_none(),
        Acts::Never => phase == Phase::Prepare || !judged.is_in_tree,
        Acts::WhileLeader | Acts::Always | Acts::Unknown => false,
    })
}

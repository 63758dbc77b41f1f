//! Everything that the timeline needs, from the machines, their API servers and the simulated AWS.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use outrigger_cluster_harness::audit::AuditLog;
use outrigger_cluster_harness::kubelets;
use outrigger_cluster_harness::leases::{LeaseName, Recorder};
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_e2e::test_nodes::InTreeCluster;
use outrigger_environment::load::{Load, LoadTarget};
use outrigger_environment::{Statuses, identifiers, load_balancers};
use outrigger_machines::Fleet;
use outrigger_machines::kubeadm::AUDIT_LOG;
use outrigger_timeline::{AwsCall, Bounds, Component, Inputs, Limits, Marker, Measurement, Report, Rules, Snapshot};

use super::operator::say;
use crate::processes::{self, NEW, OLD, Processes};

/// The name of the guide's migration.
const MIGRATION: &str = "cluster";
const EVERY: Duration = Duration::from_secs(2);

pub struct Record {
    processes: Processes,
    leases: Recorder,
    statuses: Statuses,
    snapshots: Mutex<Vec<Snapshot>>,
    markers: Mutex<Vec<Marker>>,
    unchanged: BTreeSet<String>,
    _loads: Vec<Load>,
}

impl Record {
    /// Begins with the load balancers of `services`, and changes these Services and a Node all the time.
    pub async fn start(
        fleet: &Fleet,
        cluster: &InTreeCluster,
        processes: Processes,
        services: &[&str],
    ) -> Result<Self> {
        let config = kubelets::config(&cluster.kubeconfig).await?;
        let node = fleet.machines()[0].name();
        let loads = services.iter().map(|service| {
            let target = LoadTarget {
                namespace: "default".to_owned(),
                service: (*service).to_owned(),
                node: node.to_owned(),
            };
            Load::start(&config, target, EVERY)
        });
        let loads: Result<Vec<_>, _> = loads.collect();

        let balancers = load_balancers(&cluster.cloud.moto, &cluster.cloud.proxy).await?;
        let record = Self {
            processes,
            leases: Recorder::start(&cluster.client, LeaseName::defaults()),
            statuses: Statuses::start(&cluster.client, MIGRATION),
            snapshots: Mutex::default(),
            markers: Mutex::default(),
            unchanged: identifiers(&balancers),
            _loads: loads?,
        };
        record.snapshot(cluster).await?;
        Ok(record)
    }

    /// Marks a step of the run. The measurement recognises a step back by the names `phase …`.
    pub fn mark(&self, name: &str) {
        say(&format!("== {name}"));
        let marker = Marker {
            at: Timestamp::now(),
            name: name.to_owned(),
        };
        self.markers.lock().unwrap_or_else(PoisonError::into_inner).push(marker);
    }

    /// Writes down which load balancers AWS has now.
    pub async fn snapshot(&self, cluster: &InTreeCluster) -> Result<()> {
        let snapshot = Snapshot {
            at: Timestamp::now(),
            load_balancers: load_balancers(&cluster.cloud.moto, &cluster.cloud.proxy).await?,
            routes: std::collections::BTreeMap::new(),
        };
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(snapshot);
        Ok(())
    }

    async fn inputs(&self, fleet: &Fleet, cluster: &InTreeCluster) -> Result<Inputs> {
        let spans = self.processes.spans();
        let lease_changes = self.leases.changes();
        let mut audit_events = Vec::new();
        for machine in fleet.machines() {
            audit_events.extend(AuditLog::new(machine.file(AUDIT_LOG)).events().await?);
        }
        audit_events.sort_by_key(|event| event.request_received_timestamp);

        let calls = cluster.cloud.proxy.calls();
        Ok(Inputs {
            holders: processes::holders(&lease_changes, &spans)?,
            aws_calls: calls.iter().map(|call| attributed(call.into(), &spans)).collect(),
            audit_events,
            lease_changes,
            processes: spans,
            markers: self.markers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            snapshots: self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            pauses: Vec::new(),
            statements: self.statuses.statements(),
            joins: Vec::new(),
            until: Timestamp::now(),
        })
    }

    /// The columns of `make prove`, and the bounds.
    pub async fn judge(self, fleet: &Fleet, cluster: &InTreeCluster, bounds: &Bounds) -> Result<()> {
        self.snapshot(cluster).await?;
        let inputs = self.inputs(fleet, cluster).await?;
        let mut rules = Rules::new(Component::outrigger_manager());
        rules.limits = Limits::default().beside_other_work();
        rules.unchanged.clone_from(&self.unchanged);
        rules.route_note = "by leases; no routes are configured".to_owned();
        rules.ignored_callers = inputs
            .aws_calls
            .iter()
            .map(|call| call.caller.clone())
            .filter(|caller| caller.starts_with("kubelet-"))
            .collect();

        let report: Report = outrigger_timeline::analyse(&inputs, &rules);
        let measured = Measurement::of(&report, bounds);
        println!("{}", report.table());
        println!("{measured:#?}");
        std::fs::write(fleet.folder().join("timeline.txt"), report.table())?;
        ensure!(measured.violations.is_empty(), "{:#?}", measured.violations);
        ensure!(
            measured.overlap.is_zero()
                && measured.needless_writes == 0
                && measured.recreated == 0
                && measured.lost_targets == 0
                && measured.contradictions == 0,
            "a figure breaks its bound without a violation"
        );
        Ok(())
    }
}

/// The access key names component and Node; the time tells which of their processes it was.
fn attributed(mut call: AwsCall, spans: &[ProcessSpan]) -> AwsCall {
    let of_managers = [OLD, NEW].iter().any(|component| call.caller.starts_with(component));
    if let Some(process) = processes::at(spans, &call.caller, call.at).filter(|_| of_managers) {
        call.caller = process.to_owned();
    }
    call
}

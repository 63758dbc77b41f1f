//! Observations of the environment: load balancers, leases, and the whole record for the timeline.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};

use super::{Environment, locked};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_aws_sim::{Moto, Proxy, Service};
use outrigger_cluster_harness::audit::AuditLog;
use outrigger_cluster_harness::leases::LeaseChange;
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::versions::VersionRecorder;
use outrigger_shared::controller::{Controller, Party};
use outrigger_shared::migration::CloudProviderMigrationStatus;
use outrigger_timeline::{Condition, Inputs, LoadBalancer, ObservedBy, Side, Snapshot, Statement};
use serde_json::Value;

impl Environment {
    /// The classic and network load balancers that AWS has now, by name.
    ///
    /// # Errors
    /// When moto does not answer.
    pub async fn load_balancers(&self) -> Result<BTreeMap<String, LoadBalancer>> {
        load_balancers(&self.moto, &self.proxy).await
    }

    /// Instance by table and range, for each route to an instance.
    pub(crate) async fn routes(&self) -> Result<BTreeMap<(String, String), String>> {
        let all = Parameters::default();
        let answer = self.moto.call(&Service::Ec2, "DescribeRouteTables", all).await?;
        let mut found = BTreeMap::new();
        for table in answer.items("routeTableSet") {
            for route in table.items("routeSet") {
                let (table, range) = (table.value("routeTableId"), route.value("destinationCidrBlock"));
                let instance = route.value("instanceId");
                if !instance.is_empty() {
                    found.insert((table.to_owned(), range.to_owned()), instance.to_owned());
                }
            }
        }

        Ok(found)
    }

    /// AWS identifiers of everything that a change of owners must not write to.
    pub(crate) async fn unchanged(&self) -> Result<BTreeSet<String>> {
        Ok(identifiers(&self.load_balancers().await?))
    }

    /// Writes down what AWS has now.
    ///
    /// # Errors
    /// When moto does not answer.
    pub async fn snapshot(&self) -> Result<()> {
        self.take_snapshot().await.map(drop)
    }

    /// As [`Environment::snapshot`], and returns it.
    pub(crate) async fn take_snapshot(&self) -> Result<Snapshot> {
        let snapshot = Snapshot {
            at: Timestamp::now(),
            load_balancers: self.load_balancers().await?,
            routes: self.routes().await?,
        };
        locked(&self.snapshots).push(snapshot.clone());
        Ok(snapshot)
    }

    fn processes(&self) -> Vec<ProcessSpan> {
        let mut processes = self.runner.spans();
        processes.extend(self.static_pods.spans());
        processes
    }

    /// The process behind a holder identity; none where a Pod's process has the machine's host name.
    pub(crate) fn process_of(&self, identity: &str) -> Option<ProcessSpan> {
        let processes = self.processes();
        let holders = holders(&self.leases.changes(), &processes);
        let name = holders.get(identity)?;
        processes.into_iter().find(|span| span.process == *name)
    }

    /// Everything recorded until now, for the timeline.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn record(&self) -> Result<Inputs> {
        let processes = self.processes();
        let lease_changes = self.leases.changes();

        Ok(Inputs {
            holders: holders(&lease_changes, &processes),
            aws_calls: self.proxy.calls().iter().map(Into::into).collect(),
            audit_events: AuditLog::new(self.tenant.audit_log()).events().await?,
            lease_changes,
            processes,
            markers: locked(&self.markers).clone(),
            snapshots: locked(&self.snapshots).clone(),
            pauses: locked(&self.pauses).clone(),
            statements: self.statuses.statements(),
            joins: Vec::new(),
            until: Timestamp::now(),
        })
    }
}

/// The classic and network load balancers that AWS has now, by name.
///
/// # Errors
/// When moto does not answer.
pub async fn load_balancers(moto: &Moto, proxy: &Proxy) -> Result<BTreeMap<String, LoadBalancer>> {
    let mut all = classic_load_balancers(moto).await?;
    all.extend(network_load_balancers(proxy).await?);
    Ok(all)
}

async fn classic_load_balancers(moto: &Moto) -> Result<BTreeMap<String, LoadBalancer>> {
    let ask = async |page| Ok(moto.call(&Service::Elb, "DescribeLoadBalancers", page).await?);
    let items = pages("LoadBalancerDescriptions", ask).await?;
    let one = |item: &Element| {
        let instances = item.items("Instances").iter();
        let targets = instances.map(|instance| instance.value("InstanceId").to_owned());
        let balancer = LoadBalancer {
            dns_name: item.value("DNSName").to_owned(),
            created: item.value("CreatedTime").to_owned(),
            targets: targets.collect(),
            identifiers: security_groups(item),
        };
        (item.value("LoadBalancerName").to_owned(), balancer)
    };

    Ok(items.iter().map(one).collect())
}

/// Of the proxy: moto alone gives them names without their IDs.
async fn network_load_balancers(proxy: &Proxy) -> Result<BTreeMap<String, LoadBalancer>> {
    let ask = async |page| Ok(proxy.ask(&Service::ElbV2, "DescribeLoadBalancers", page).await?);
    let items = pages("LoadBalancers", ask).await?;
    let ask = async |page| Ok(proxy.ask(&Service::ElbV2, "DescribeTargetGroups", page).await?);
    let all_groups = pages("TargetGroups", ask).await?;

    let mut all = BTreeMap::new();
    for item in items {
        let arn = item.value("LoadBalancerArn").to_owned();
        let groups = target_groups(&all_groups, &arn);
        let mut targets = BTreeSet::new();
        for group in &groups {
            targets.extend(registered_targets(proxy, group).await?);
        }

        let balancer = LoadBalancer {
            dns_name: item.value("DNSName").to_owned(),
            created: item.value("CreatedTime").to_owned(),
            targets,
            identifiers: security_groups(&item).into_iter().chain(groups).chain([arn]).collect(),
        };
        all.insert(item.value("LoadBalancerName").to_owned(), balancer);
    }

    Ok(all)
}

async fn registered_targets(proxy: &Proxy, group: &str) -> Result<Vec<String>> {
    let of = [("TargetGroupArn", group)].into_iter().collect();
    let answer = proxy.ask(&Service::ElbV2, "DescribeTargetHealth", of).await?;
    let targets = answer.items("TargetHealthDescriptions").iter();
    Ok(targets
        .filter_map(|health| health.child("Target"))
        .map(|target| target.value("Id").to_owned())
        .collect())
}

/// The names of load balancers, and what stays the same for their whole lives.
pub fn identifiers(balancers: &BTreeMap<String, LoadBalancer>) -> BTreeSet<String> {
    let all = balancers.iter();
    all.flat_map(|(name, balancer)| balancer.identifiers.iter().chain([name]))
        .cloned()
        .collect()
}

/// The items of all pages of a list.
async fn pages(list: &str, ask: impl AsyncFn(Parameters) -> Result<Element>) -> Result<Vec<Element>> {
    let mut items = Vec::new();
    let mut page = Parameters::default();
    loop {
        let answer = ask(page).await?;
        items.extend_from_slice(answer.items(list));
        match answer.find("NextMarker") {
            Some(next) if !next.text.is_empty() => page = [("Marker", next.text.as_str())].into_iter().collect(),
            _ => return Ok(items),
        }
    }
}

/// The target groups of a load balancer. They are read as a whole: AWS refuses a read of those of a load balancer that
/// has none.
fn target_groups(all: &[Element], load_balancer: &str) -> Vec<String> {
    let is_of = |group: &&Element| {
        let mut balancers = group.items("LoadBalancerArns").iter();
        balancers.any(|arn| arn.text == load_balancer)
    };
    let groups = all.iter().filter(is_of);
    groups.map(|group| group.value("TargetGroupArn").to_owned()).collect()
}

fn security_groups(balancer: &Element) -> BTreeSet<String> {
    let groups = balancer.items("SecurityGroups").iter();
    groups.map(|group| group.text.clone()).collect()
}

/// The process of each holder identity `HOST_UUID`: a Pod's process has the Pod's host name, and of a Pod's processes
/// one ran when the identity was first seen. Without host names of their own the times decide.
fn holders(changes: &[LeaseChange], processes: &[ProcessSpan]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for change in changes {
        let Some((identity, (host, _))) = change.holder.as_ref().and_then(|id| Some((id, id.rsplit_once('_')?))) else {
            continue;
        };
        let runs = |span: &&ProcessSpan| {
            let acquired_before = |ended| change.acquired.is_none_or(|at| at <= ended);
            span.started <= change.at && span.ended.is_none_or(acquired_before)
        };
        // A static Pod has its Node's host name, with which its own name ends.
        let of_host = |span: &&ProcessSpan| span.pod.chars().take(63).collect::<String>().ends_with(host);
        let possible = processes.iter().filter(runs).filter(of_host);
        if let Some(span) = possible.max_by_key(|span| span.started) {
            found.entry(identity.clone()).or_insert_with(|| span.process.clone());
        }
    }

    found
}

/// Records what the migration object's status said, and when. Dropping it ends the watch.
#[derive(Debug)]
pub struct Statuses(VersionRecorder);

impl Statuses {
    /// Starts to watch the migration object of this name, which need not exist yet.
    pub fn start(client: &Client, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("outrigger.dev", "v1alpha1", "CloudProviderMigration");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        Self(VersionRecorder::start(api, name))
    }

    /// Each status that differs from the one before.
    pub fn statements(&self) -> Vec<Statement> {
        let mut statements: Vec<Statement> = Vec::new();
        for (at, object) in self.0.versions() {
            let next = statement(at, &object);
            let same = |last: &Statement| Statement { at, ..last.clone() } == next;
            if !statements.last().is_some_and(same) {
                statements.push(next);
            }
        }
        statements
    }
}

fn statement(at: Timestamp, object: &DynamicObject) -> Statement {
    let (spec, written) = (&object.data["spec"], &object.data["status"]);
    let status: CloudProviderMigrationStatus = serde_json::from_value(written.clone()).unwrap_or_default();
    let service = status
        .controllers
        .into_iter()
        .find(|row| row.name == Controller::Service.canonical_name());
    let (owner, holder) = service.map_or((None, None), |row| (row.owner, row.holder));
    let conditions = status.conditions.into_iter().map(|condition| Condition {
        kind: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
    });

    Statement {
        at,
        phase: spec["phase"].as_str().map(str::to_owned),
        generation: object.metadata.generation,
        owner: owner.map(|party| match party {
            Party::KubeControllerManager => Side::Old,
            Party::CloudControllerManager => Side::New,
        }),
        holder,
        conditions: conditions.collect(),
        observed_by: observed_by(&written["observedBy"]),
    }
}

fn observed_by(field: &Value) -> Option<ObservedBy> {
    Some(ObservedBy {
        identity: field["identity"].as_str()?.to_owned(),
        time: field["time"].as_str()?.parse().ok()?,
    })
}

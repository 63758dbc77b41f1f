//! One switch from a manager to the other: nothing of AWS changes, and they do not overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::{Call, Service};
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::wait;
use outrigger_parity::services::{Names, account};
use serde_json::Value;

use super::cluster::Cluster;

/// A lease expires 15 s after its last renewal, and the winner reconciles everything.
const TAKEN: Duration = Duration::from_secs(90);
/// A manager without calls for so long has reconciled everything.
const SILENCE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(180);

/// A manager that holds the lease.
#[derive(Debug, Clone)]
pub struct Leader {
    pub span: ProcessSpan,
    acquired: Timestamp,
}

/// The state before a switch.
pub struct Before {
    leader: Leader,
    resources: BTreeMap<String, BTreeMap<String, Value>>,
    load_balancers: BTreeSet<String>,
    mark: u64,
}

impl Cluster {
    /// Waits until a process of a program holds the main lease.
    pub async fn leader(&self, component: &str) -> Result<Leader> {
        self.leader_besides(component, "").await
    }

    /// As [`Cluster::leader`], another process than this one.
    async fn leader_besides(&self, component: &str, old: &str) -> Result<Leader> {
        let look = async || {
            let change = self.leases.latest(Lease::C).context("no lease")?;
            let span = self.process_of(&change).context("no holder that runs here")?;
            ensure!(
                span.component == component && span.process != old,
                "{} holds it",
                span.process
            );
            let acquired = change.acquired.context("no acquireTime")?;
            anyhow::Ok(Some(Leader { span, acquired }))
        };
        let what = format!("{component} holds the lease");
        Ok(wait::until(&what, TAKEN, look).await?)
    }

    /// The process of a holder `POD_UUID`: a process has the host name of its Pod.
    fn process_of(&self, change: &LeaseChange) -> Option<ProcessSpan> {
        let host = change.holder.as_ref()?.rsplit_once('_')?.0.to_owned();
        self.runner.spans().into_iter().rfind(|span| span.pod == host)
    }

    /// Waits until a manager has read the load balancers of both types, and then calls AWS no more.
    pub async fn wait_idle(&self, leader: &Leader) -> Result<()> {
        let start = Instant::now();
        let (mut count, mut since) = (0, Instant::now());
        loop {
            let calls = self.proxy.calls();
            let reads = |service: &Service| {
                let mut own = calls.iter().filter(|call| call.caller == leader.span.process);
                own.any(|call| call.service == *service && call.action == "DescribeLoadBalancers")
            };
            if calls.len() != count {
                (count, since) = (calls.len(), Instant::now());
            }
            if since.elapsed() >= SILENCE && reads(&Service::Elb) && reads(&Service::ElbV2) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < IDLE,
                "{} reads nothing, or never stops",
                leader.span.process
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The writes of the incumbent's successor after a restart, without any other manager. It repeats some of them at
    /// each start: the row "unchanged Service" of `docs/parity.md`.
    pub async fn restarted(&self, old: &Leader) -> Result<(Leader, BTreeSet<String>)> {
        let mark = self.proxy.mark();
        let delete = format!("kubectl -n kube-system delete pod {}", old.span.pod);
        self.shell.run(&delete).await?;
        let leader = self.leader_besides(&old.span.component, &old.span.process).await?;
        self.wait_idle(&leader).await?;
        Ok((leader, writes(&self.proxy.calls_since(mark))))
    }

    /// The state before a switch from this leader.
    pub async fn before(&self, leader: Leader) -> Result<Before> {
        Ok(Before {
            leader,
            resources: account::read(&self.proxy, &mut Names::default()).await?,
            load_balancers: self.load_balancers().await?,
            mark: self.proxy.mark(),
        })
    }

    /// Waits until the other manager leads and is idle. Fails if AWS got a write since `before` besides those of each
    /// start of that manager, if a resource changed, or if the managers worked at the same time.
    pub async fn switched(&self, before: &Before, to: &str, of_each_start: &BTreeSet<String>) -> Result<Leader> {
        let leader = self.leader(to).await?;
        self.wait_idle(&leader).await?;

        let calls = self.proxy.calls_since(before.mark);
        let writes = writes(&calls);
        let by_the_switch: Vec<&String> = writes.difference(of_each_start).collect();
        ensure!(
            by_the_switch.is_empty(),
            "AWS writes by the switch to {to}: {by_the_switch:#?}"
        );
        let resources = account::read(&self.proxy, &mut Names::default()).await?;
        ensure!(
            resources == before.resources,
            "AWS has {resources:#?} instead of {:#?}",
            before.resources
        );
        let load_balancers = self.load_balancers().await?;
        ensure!(
            load_balancers == before.load_balancers,
            "{load_balancers:?}, not {:?}",
            before.load_balancers
        );

        self.no_overlap(&before.leader, &leader, &calls)?;
        println!("{}", summary(&before.leader, &leader, &calls));
        Ok(leader)
    }

    /// The old process makes no call from the moment at which the new one acquires the lease.
    fn no_overlap(&self, old: &Leader, new: &Leader, calls: &[Call]) -> Result<()> {
        let mut of_old = calls.iter().filter(|call| call.caller == old.span.process);
        let late = of_old.find(|call| call.at >= new.acquired);
        ensure!(
            late.is_none(),
            "{} works after {}: {late:?}",
            old.span.process,
            new.acquired
        );

        let changes = self.leases.changes();
        let since = changes
            .iter()
            .filter(|change| change.lease == Lease::C && change.at > old.acquired);
        let holders: Vec<String> = since
            .filter_map(|change| self.process_of(change))
            .map(|span| span.process)
            .collect();
        let first_new = holders.iter().position(|holder| *holder == new.span.process);
        let returned = holders
            .iter()
            .skip(first_new.unwrap_or_default())
            .any(|holder| *holder == old.span.process);
        ensure!(!returned, "the lease returned to {}: {holders:?}", old.span.process);
        Ok(())
    }

    /// When the process of a leader ended.
    pub fn end_of(&self, leader: &Leader) -> Result<Timestamp> {
        let spans = self.runner.spans();
        let span = spans.iter().find(|span| span.process == leader.span.process);
        span.and_then(|span| span.ended)
            .with_context(|| format!("{} still runs", leader.span.process))
    }

    /// Identifiers of each load balancer, which another one of the same name would not have.
    async fn load_balancers(&self) -> Result<BTreeSet<String>> {
        let all = Parameters::default;
        let classic = self.moto.call(&Service::Elb, "DescribeLoadBalancers", all()).await?;
        let network = self.moto.call(&Service::ElbV2, "DescribeLoadBalancers", all()).await?;
        let classic = classic.items("LoadBalancerDescriptions").iter();
        let network = network.items("LoadBalancers").iter();
        let fields = ["LoadBalancerName", "LoadBalancerArn", "DNSName", "CreatedTime"];
        let found: BTreeSet<String> = classic
            .chain(network)
            .map(|item| fields.map(|field| item.value(field)).join(" "))
            .collect();
        ensure!(found.len() == 2, "two load balancers: {found:?}");
        Ok(found)
    }
}

/// Action and parameters.
fn writes(calls: &[Call]) -> BTreeSet<String> {
    let writes = calls.iter().filter(|call| call.is_write());
    let text = |call: &Call| {
        let parameters: Vec<String> = call
            .parameters
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("{} {}", call.action, parameters.join(" "))
    };
    writes.map(text).collect()
}

fn summary(old: &Leader, new: &Leader, calls: &[Call]) -> String {
    let reads = calls.iter().filter(|call| call.caller == new.span.process).count();
    format!(
        "{} -> {}: 0 AWS writes by the switch, {reads} calls",
        old.span.process, new.span.process
    )
}

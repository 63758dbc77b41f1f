//! Observations of the environment: load balancers, leases, and the whole record for the timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use anyhow::Result;
use jiff::Timestamp;

use super::Environment;
use outrigger_aws_sim::Service;
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::xml::Element;
use outrigger_cluster_harness::audit::AuditLog;
use outrigger_timeline::{Inputs, LoadBalancer, Snapshot};

impl Environment {
    /// The load balancers that AWS has now, by name.
    ///
    /// # Errors
    /// When moto does not answer.
    pub async fn load_balancers(&self) -> Result<BTreeMap<String, LoadBalancer>> {
        let answer = self
            .moto
            .call(&Service::Elb, "DescribeLoadBalancers", Parameters::default())
            .await?;
        let all = answer
            .find("LoadBalancerDescriptions")
            .map(|list| list.children.clone())
            .unwrap_or_default();
        let one = |item: &Element| {
            let targets: BTreeSet<String> = item
                .items("Instances")
                .iter()
                .map(|instance| instance.value("InstanceId").to_owned())
                .collect();
            let (dns_name, created) = (item.value("DNSName").to_owned(), item.value("CreatedTime").to_owned());
            (
                item.value("LoadBalancerName").to_owned(),
                LoadBalancer {
                    dns_name,
                    created,
                    targets,
                },
            )
        };

        Ok(all.iter().map(one).collect())
    }

    /// Writes down what AWS has now.
    ///
    /// # Errors
    /// When moto does not answer.
    pub async fn snapshot(&self) -> Result<()> {
        let snapshot = Snapshot {
            at: Timestamp::now(),
            load_balancers: self.load_balancers().await?,
        };
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(snapshot);
        Ok(())
    }

    /// Everything recorded until now, for the timeline.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn record(&self) -> Result<Inputs> {
        Ok(Inputs {
            aws_calls: self.proxy.calls().iter().map(Into::into).collect(),
            audit_events: AuditLog::new(self.tenant.audit_log()).events().await?,
            lease_changes: self.leases.changes(),
            processes: self.runner.spans(),
            holders: BTreeMap::new(),
            markers: self.markers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            snapshots: self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            until: Timestamp::now(),
        })
    }
}

//! The metrics of kube-controller-manager's range allocator, spelt as there, and one of ours.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::allocator::Allocator;
use super::cidr_set::CidrSet;
use crate::metrics::{Metrics, ReasonLabel};

type Labels = Vec<(String, String)>;
type ByCluster<M> = Family<Labels, M>;

/// Counts of ranges, by range of the cluster.
#[derive(Clone)]
pub struct IpamMetrics {
    allocations: ByCluster<Counter>,
    releases: ByCluster<Counter>,
    most: ByCluster<Gauge>,
    usage: ByCluster<Gauge<f64, AtomicU64>>,
    tries: Family<Labels, Histogram, fn() -> Histogram>,
    problems: Family<ReasonLabel, Gauge>,
}

fn tries() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 5.0, 5))
}

fn label(cidr_set: &CidrSet) -> Labels {
    vec![("clusterCIDR".into(), cidr_set.cluster().to_string())]
}

impl IpamMetrics {
    /// Registers them; once in a process.
    #[must_use]
    pub fn registered(metrics: &Metrics) -> Self {
        let own = Self {
            allocations: Family::default(),
            releases: Family::default(),
            most: Family::default(),
            usage: Family::default(),
            tries: Family::new_with_constructor(tries),
            problems: Family::default(),
        };

        metrics.with_registry(|r| {
            r.family(
                "node_ipam_controller_cidrset_cidrs_allocations",
                &["clusterCIDR"],
                "CIDRs allocated",
                own.allocations.clone(),
            );
            r.family(
                "node_ipam_controller_cidrset_cidrs_releases",
                &["clusterCIDR"],
                "CIDRs released",
                own.releases.clone(),
            );
            // The misspelling is upstream's.
            r.family(
                "node_ipam_controller_cirdset_max_cidrs",
                &["clusterCIDR"],
                "Number of CIDRs in the cluster CIDR",
                own.most.clone(),
            );
            r.family(
                "node_ipam_controller_cidrset_usage_cidrs",
                &["clusterCIDR"],
                "Share of the CIDRs that is allocated, 0 to 1",
                own.usage.clone(),
            );
            r.family(
                "node_ipam_controller_cidrset_allocation_tries_per_request",
                &["clusterCIDR"],
                "Allocated CIDRs that were skipped to find a free one",
                own.tries.clone(),
            );
            r.family(
                "outrigger_node_ipam_problem_nodes",
                &["reason"],
                "Nodes with invalid Pod CIDRs, which are not changed, by reason",
                own.problems.clone(),
            );
        });

        own
    }

    /// How many were passed over, for each range of the cluster.
    pub(super) fn tried(&self, allocator: &Allocator, skipped: &[u32]) {
        for (cidr_set, skipped) in allocator.sets().iter().zip(skipped) {
            self.tries.get_or_create(&label(cidr_set)).observe(f64::from(*skipped));
        }
    }

    /// Brings all but the tries up to date.
    pub(super) fn update(&self, allocator: &mut Allocator) {
        let changes = allocator.take_changes();
        for (cidr_set, changes) in allocator.sets().iter().zip(changes) {
            let label = label(cidr_set);
            self.allocations.get_or_create(&label).inc_by(changes.taken);
            self.releases.get_or_create(&label).inc_by(changes.released);
            self.most.get_or_create(&label).set(i64::from(cidr_set.count()));
            let usage = f64::from(cidr_set.taken()) / f64::from(cidr_set.count());
            self.usage.get_or_create(&label).set(usage);
        }

        for (reason, count) in allocator.problems() {
            self.problems.get_or_create(&ReasonLabel { reason }).set(*count);
        }
    }
}

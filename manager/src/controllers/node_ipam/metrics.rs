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

#[derive(Clone)]
pub struct IpamMetrics {
    allocations: ByCluster<Counter>,
    releases: ByCluster<Counter>,
    most: ByCluster<Gauge>,
    usage: ByCluster<Gauge<f64, AtomicU64>>,
    tries: Family<Labels, Histogram, fn() -> Histogram>,
    problems: Family<ReasonLabel, Gauge>,
}

fn label(cidr_set: &CidrSet) -> Labels {
    vec![("clusterCIDR".into(), cidr_set.cluster().to_string())]
}

impl IpamMetrics {
    /// Registers them; once in a process.
    pub fn registered(metrics: &Metrics) -> Self {
        const CLUSTER: &[&str] = &["clusterCIDR"];

        metrics.with_registry(|catalog| Self {
            allocations: catalog.labelled(
                "node_ipam_controller_cidrset_cidrs_allocations",
                CLUSTER,
                "CIDRs allocated",
            ),
            releases: catalog.labelled("node_ipam_controller_cidrset_cidrs_releases", CLUSTER, "CIDRs released"),
            // The misspelling is upstream's.
            most: catalog.labelled(
                "node_ipam_controller_cirdset_max_cidrs",
                CLUSTER,
                "Number of CIDRs in the cluster CIDR",
            ),
            usage: catalog.labelled(
                "node_ipam_controller_cidrset_usage_cidrs",
                CLUSTER,
                "Share of the CIDRs that is allocated, 0 to 1",
            ),
            tries: catalog.family(
                "node_ipam_controller_cidrset_allocation_tries_per_request",
                CLUSTER,
                "Allocated CIDRs that were skipped to find a free one",
                Family::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 5.0, 5))),
            ),
            problems: catalog.labelled(
                "outrigger_node_ipam_problem_nodes",
                &["reason"],
                "Nodes with invalid Pod CIDRs, which are not changed, by reason",
            ),
        })
    }

    /// Records the number of allocated CIDRs that were skipped, for each range of the cluster.
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

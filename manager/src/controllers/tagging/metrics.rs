//! The incumbent's two metrics of tagging, spelt as there, and the right spelling beside it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::{Metrics, buckets};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    error_type: &'static str,
    /// Empty: the incumbent has a series for each instance that ever failed, which never ends.
    instance_id: &'static str,
}

/// Clones share the metrics.
#[derive(Clone)]
pub struct TaggingMetrics {
    errors: Family<ErrorLabels, Counter>,
    misspelt_delay: Histogram,
    delay: Histogram,
}

impl TaggingMetrics {
    /// Registers them; once in a process. The incumbent has them whether its controller runs or not.
    pub fn registered(metrics: &Metrics) -> Self {
        metrics.with_registry(|catalog| Self {
            errors: catalog.labelled(
                "cloudprovider_aws_tagging_controller_work_item_errors",
                &["error_type", "instance_id"],
                "Failed attempts to add tags to an instance or to remove them",
            ),
            misspelt_delay: catalog.histogram(
                "tagging_controller_inital_node_tagging_delay_seconds",
                "Time from a Node's creation to its first successful tagging; the misspelt name is that of aws-cloud-controller-manager",
                buckets::node_delay(),
            ),
            delay: catalog.histogram(
                "tagging_controller_initial_node_tagging_delay_seconds",
                "Time from a Node's creation to its first successful tagging",
                buckets::node_delay(),
            ),
        })
    }

    pub(super) fn failed(&self) {
        self.count("total_errors");
    }

    /// As often as the incumbent tries before it gives up.
    pub(super) fn exhausted(&self) {
        self.count("errors_after_retries_exhausted");
    }

    fn count(&self, error_type: &'static str) {
        let labels = ErrorLabels {
            error_type,
            instance_id: "",
        };
        self.errors.get_or_create(&labels).inc();
    }

    /// A Node's first tagging, so long after its creation.
    pub(super) fn first(&self, seconds: f64) {
        self.misspelt_delay.observe(seconds);
        self.delay.observe(seconds);
    }
}

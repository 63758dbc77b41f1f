//! Checks of controllers' flags that depend on more than the command line.

use anyhow::{Result, bail};
use ipnet::IpNet;
use outrigger_shared::tags;

use crate::args::Options;
use crate::controllers::node_ipam;
use crate::metrics::Metrics;

/// The state of node IPAM that is kept between terms of leadership.
pub(super) struct Ipam {
    pub ranges: Vec<node_ipam::ClusterRange>,
    pub excluded: Vec<IpNet>,
    pub metrics: node_ipam::IpamMetrics,
}

impl Ipam {
    pub fn of(options: &Options, metrics: &Metrics) -> Result<Option<Self>> {
        if !options.allocates_node_cidrs() {
            return Ok(None);
        }

        let ranges = options
            .node_ranges()
            .map_err(|problems| anyhow::anyhow!("{}", problems.join("\n")))?;
        let cluster = ranges.cluster.into_iter();
        Ok(Some(Self {
            ranges: cluster
                .map(|(cluster, node_prefix)| node_ipam::ClusterRange { cluster, node_prefix })
                .collect(),
            excluded: ranges.excluded,
            metrics: node_ipam::IpamMetrics::registered(metrics),
        }))
    }
}

/// Tags that would put this cluster's instances into another one are refused.
pub(super) fn clusters_stay_apart<'a>(
    flags: impl IntoIterator<Item = (&'a String, &'a String)>,
    cluster_id: &str,
) -> Result<()> {
    for (key, value) in flags {
        if let Some(other) = tags::cluster_named(key, value).filter(|other| *other != cluster_id) {
            bail!(
                "--tags: {key}={value} names the cluster {other:?}, but this one is {cluster_id:?}; remove this tag from the flag"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_may_name_this_cluster_only() {
        let refused = |key: &str, value: &str| {
            let (key, value) = (key.to_owned(), value.to_owned());
            clusters_stay_apart([(&key, &value)], "prod")
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(refused("team", "test"), None);
        assert_eq!(refused("kubernetes.io/cluster/prod", "owned"), None);
        assert_eq!(refused("KubernetesCluster", "prod"), None);
        for (key, value) in [("kubernetes.io/cluster/test", "owned"), ("KubernetesCluster", "test")] {
            let error = refused(key, value).unwrap();
            assert!(
                error.contains(key) && error.contains("\"test\"") && error.contains("\"prod\""),
                "{error}"
            );
        }
    }
}

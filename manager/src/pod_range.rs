//! How large a range of `spec.podCIDRs` may be to count in full. A kubelet may write them when it creates its Node, so a Node
//! may claim any range, also the whole of the cluster's.

/// Bits by which a Node's range may be broader than `--node-cidr-mask-size` says: the flag may have been changed, or may not be
/// set where another process allocates the ranges.
const SLACK: u8 = 4;
/// Bits by which a range that is broader than that is narrower than the cluster's: at most a quarter of it.
const PART: u8 = 2;

/// The shortest prefix that counts in full, where the Nodes' prefixes and the cluster's have these lengths.
pub fn shortest_prefix(node: u8, cluster: u8) -> u8 {
    node.saturating_sub(SLACK).max(node.min(cluster.saturating_add(PART)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_at_most_a_quarter_of_the_clusters_and_sixteen_times_a_nodes() {
        for (node, cluster, shortest) in [
            (24, 16, 20),
            (24, 8, 20),
            (24, 20, 22),
            (24, 22, 24),
            (25, 21, 23),
            (19, 16, 18),
        ] {
            assert_eq!(shortest_prefix(node, cluster), shortest, "/{node} in /{cluster}");
        }
    }
}

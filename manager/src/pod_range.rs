//! Which ranges of `spec.podCIDRs` count. A kubelet may write them when it creates its Node, so a Node may claim any range.

use ipnet::IpNet;

/// Bits by which a Node's range may be broader than `--node-cidr-mask-size` says. The flag may have been changed, or may not
/// be set where another process allocates the ranges; but no Node may take a large part of the cluster's range.
const SLACK: u8 = 4;

/// The shortest prefix of a range that counts, where the Nodes' prefixes have this length.
pub fn shortest_prefix(node_prefix: u8) -> u8 {
    node_prefix.saturating_sub(SLACK)
}

/// Why a range does not count in a cluster's range, as the end of a sentence that begins with the range. A range that
/// overlaps with that of another Node is not noticed here.
pub fn refusal(range: IpNet, cluster: IpNet, shortest: u8) -> Option<String> {
    if !cluster.contains(&range) {
        return Some(format!(
            "is not inside of --cluster-cidr={cluster}; create the Node again, or widen --cluster-cidr"
        ));
    }
    (range.prefix_len() < shortest).then(|| {
        format!(
            "is larger than a /{shortest}, the largest range of a Node by --node-cidr-mask-size; create the Node again, or set \
             the flag to the length of the Nodes' prefixes"
        )
    })
}

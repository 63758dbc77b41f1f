//! The flags of node IPAM, which are kube-controller-manager's own, and its rules for them.

use ipnet::IpNet;
use outrigger_shared::controller::Controller;

use super::options::Options;
use super::parse::CommandLine;

/// Length of a Node's prefix where no flag says otherwise.
const DEFAULT_V4: u8 = 24;
const DEFAULT_V6: u8 = 64;
/// Most bits between the cluster's prefix and a Node's: the bitmap of ranges has a bit for each. IPv6 as upstream, which
/// has no limit for IPv4.
const MOST_BITS_V4: u8 = 24;
const MOST_BITS_V6: u8 = 16;

/// Flags that are read by node IPAM only.
const FLAGS: [&str; 5] = [
    "cidr-allocator-type",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
    "service-cluster-ip-range",
];

#[derive(Debug, Clone)]
pub struct NodeIpam {
    pub allocator_type: String,
    /// `--service-cluster-ip-range`: ranges that no Node gets.
    pub service_cluster_ip_range: Vec<String>,
    /// `--node-cidr-mask-size`; 0 means that it is not set, as for the next two.
    pub mask_size: u8,
    pub mask_size_ipv4: u8,
    pub mask_size_ipv6: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRanges {
    /// The cluster's ranges, at most one of each family, with the length of the Nodes' prefixes in it.
    pub cluster: Vec<(IpNet, u8)>,
    pub excluded: Vec<IpNet>,
}

pub(super) fn read(line: &mut CommandLine) -> NodeIpam {
    NodeIpam {
        allocator_type: line.text("cidr-allocator-type"),
        service_cluster_ip_range: line.list("service-cluster-ip-range"),
        mask_size: line.int("node-cidr-mask-size"),
        mask_size_ipv4: line.int("node-cidr-mask-size-ipv4"),
        mask_size_ipv6: line.int("node-cidr-mask-size-ipv6"),
    }
}

/// Warnings about flags of node IPAM that have no or a reduced effect.
pub(super) fn warnings(options: &Options) -> Vec<String> {
    let is_named = options.general.controllers.enabled(Controller::NodeIpam);
    if options.allocates_node_cidrs() {
        return Vec::new();
    }

    let mut warnings: Vec<String> = FLAGS
        .into_iter()
        .filter(|flag| options.explicitly_set(flag))
        .map(|flag| format!("--{flag} has no effect: node IPAM does not run"))
        .collect();

    if is_named {
        warnings.push("--controllers names node IPAM, which stays off without --allocate-node-cidrs".into());
    }

    if options.routes.allocate_node_cidrs {
        warnings.push(
            "--allocate-node-cidrs alone starts nothing: on AWS kube-controller-manager allocates; if it does not, add \
             node-ipam-controller to --controllers"
                .into(),
        );
    }

    warnings
}

impl Options {
    /// Whether node IPAM runs: it is named and allowed. Neither alone is enough, since two allocators in one cluster
    /// would give the same range twice.
    pub fn allocates_node_cidrs(&self) -> bool {
        self.routes.allocate_node_cidrs && self.general.controllers.enabled(Controller::NodeIpam)
    }

    /// The ranges for node IPAM, checked.
    pub fn node_ranges(&self) -> Result<NodeRanges, Vec<String>> {
        let mut problems = Vec::new();
        let flags = &self.node_ipam;
        if flags.allocator_type != "RangeAllocator" {
            problems.push(format!(
                "--cidr-allocator-type={}: only RangeAllocator is supported",
                flags.allocator_type
            ));
        }

        // An invalid CIDR in --cluster-cidr is reported when the flag is read.
        let cluster: Vec<IpNet> = self.routes.cluster_cidr.iter().filter_map(|text| parse(text)).collect();
        if cluster.is_empty() {
            problems.push("--cluster-cidr is empty: node IPAM needs a CIDR such as 10.244.0.0/16".into());
        }

        let contradictions = contradictions(flags, &cluster);
        let is_clear = contradictions.is_empty();
        problems.extend(contradictions);

        let mut ranges = NodeRanges {
            cluster: Vec::new(),
            excluded: Vec::new(),
        };
        for range in cluster {
            let (flag, prefix) = flags.prefix(&range);
            match fits(&range, flag, prefix) {
                Ok(()) => ranges.cluster.push((range, prefix)),
                Err(problem) if is_clear => problems.push(problem),
                Err(_) => {}
            }
        }

        let services = &flags.service_cluster_ip_range;
        if services.len() > 2 {
            problems.push(format!(
                "--service-cluster-ip-range: at most two CIDRs, got {}",
                services.len()
            ));
        }

        for text in services {
            match parse(text) {
                Some(range) => ranges.excluded.push(range),
                None => problems.push(format!(
                    "--service-cluster-ip-range: {text:?} is not a CIDR such as 10.96.0.0/12"
                )),
            }
        }

        if problems.is_empty() { Ok(ranges) } else { Err(problems) }
    }
}

impl NodeIpam {
    /// The length of the Nodes' prefixes in a range of the cluster, and the flag that says so.
    pub fn prefix(&self, range: &IpNet) -> (&'static str, u8) {
        let (flag, own, default) = match range {
            IpNet::V4(_) => ("node-cidr-mask-size-ipv4", self.mask_size_ipv4, DEFAULT_V4),
            IpNet::V6(_) => ("node-cidr-mask-size-ipv6", self.mask_size_ipv6, DEFAULT_V6),
        };
        match (self.mask_size, own) {
            (0, 0) => (flag, default),
            (0, own) => (flag, own),
            (size, _) => ("node-cidr-mask-size", size),
        }
    }
}

fn parse(text: &str) -> Option<IpNet> {
    text.trim().parse::<IpNet>().ok().map(|range| range.trunc())
}

fn contradictions(flags: &NodeIpam, cluster: &[IpNet]) -> Vec<String> {
    let mut problems = Vec::new();
    if flags.mask_size != 0 && cluster.len() > 1 {
        problems.push(
            "--node-cidr-mask-size cannot be used with two CIDRs in --cluster-cidr; use --node-cidr-mask-size-ipv4 and \
             --node-cidr-mask-size-ipv6"
                .into(),
        );
    }

    let has = |v4: bool| cluster.iter().any(|range| range.addr().is_ipv4() == v4);
    for (flag, size, is_there, family) in [
        ("--node-cidr-mask-size-ipv4", flags.mask_size_ipv4, has(true), "IPv4"),
        ("--node-cidr-mask-size-ipv6", flags.mask_size_ipv6, has(false), "IPv6"),
    ] {
        if size == 0 {
            continue;
        }
        if flags.mask_size != 0 && cluster.len() < 2 {
            problems.push(format!(
                "{flag} and --node-cidr-mask-size are mutually exclusive; set only one of them"
            ));
        } else if !is_there && !cluster.is_empty() {
            problems.push(format!("{flag}={size}: --cluster-cidr has no {family} CIDR"));
        }
    }

    problems
}

/// Whether a range of the cluster can be cut so.
fn fits(range: &IpNet, flag: &str, prefix: u8) -> Result<(), String> {
    let most = match range {
        IpNet::V4(_) => MOST_BITS_V4,
        IpNet::V6(_) => MOST_BITS_V6,
    };
    if prefix > range.max_prefix_len() {
        return Err(format!(
            "--{flag}={prefix}: an address has {} bits",
            range.max_prefix_len()
        ));
    }

    match prefix.checked_sub(range.prefix_len()) {
        None => Err(format!(
            "--{flag}={prefix}: a Node's range would be larger than --cluster-cidr={range}; use at least {}",
            range.prefix_len()
        )),
        Some(bits) if bits > most => Err(format!(
            "--{flag}={prefix}: too many ranges in --cluster-cidr={range}; use at most {}",
            range.prefix_len() + most
        )),
        Some(_) => Ok(()),
    }
}

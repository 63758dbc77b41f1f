//! A cluster CIDR, divided into CIDRs for Nodes. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Most bits between the cluster's prefix and a Node's: 2²⁴ ranges, a bitmap of 2 MiB. For IPv6 upstream allows 16.
pub const MAX_BITS: u8 = 24;
/// Most bits for IPv6, as upstream.
pub const MAX_BITS_V6: u8 = 16;

/// Consecutive CIDRs, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: u32,
    pub last: u32,
}

impl Span {
    pub fn common(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub span: Span,
    pub range: IpNet,
    /// The number of used CIDRs that were skipped.
    pub skipped: u32,
}

/// A bitmap of the CIDRs in use. The search continues after the last allocation, so a released CIDR is reused as late as
/// possible.
#[derive(Debug)]
pub struct CidrSet {
    cluster: IpNet,
    prefix: u8,
    used: Vec<u64>,
    count: u32,
    taken: u32,
    next: u32,
}

impl CidrSet {
    /// All ranges of length `prefix` in `cluster`, none in use. `None` when a Node's range would be larger than the
    /// cluster's, or there would be too many.
    pub fn new(cluster: IpNet, prefix: u8) -> Option<Self> {
        let cluster = cluster.trunc();
        let most = if cluster.addr().is_ipv4() {
            MAX_BITS
        } else {
            MAX_BITS_V6
        };
        let bits = prefix.checked_sub(cluster.prefix_len()).filter(|bits| *bits <= most)?;
        if prefix > cluster.max_prefix_len() {
            return None;
        }

        let count = 1u32 << bits;
        Some(Self {
            cluster,
            prefix,
            used: vec![0; count.div_ceil(64) as usize],
            count,
            taken: 0,
            next: 0,
        })
    }

    pub fn cluster(&self) -> IpNet {
        self.cluster
    }

    /// The length of the Nodes' prefixes.
    pub fn node_prefix(&self) -> u8 {
        self.prefix
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// The places that a range covers; `None` when it has nothing in common with the cluster's.
    pub fn span(&self, range: &IpNet) -> Option<Span> {
        if range.addr().is_ipv4() != self.cluster.addr().is_ipv4() {
            return None;
        }

        let (low, high) = (number(self.cluster.network()), number(self.cluster.broadcast()));
        let (first, last) = (number(range.network()).max(low), number(range.broadcast()).min(high));
        if first > last {
            return None;
        }

        let shift = u32::from(self.cluster.max_prefix_len() - self.prefix);
        let place = |address: u128| u32::try_from((address - low).checked_shr(shift).unwrap_or(0)).ok();
        Some(Span {
            first: place(first)?,
            last: place(last)?,
        })
    }

    /// Takes the next free one, from these spans only if there is no other.
    pub fn take_next(&mut self, avoided: &[Span]) -> Option<Taken> {
        if self.taken == self.count {
            return None;
        }

        let is_free = |step: &u32| !self.is_used(self.wrapped(*step));
        let is_avoided = |step: &u32| {
            let place = self.wrapped(*step);
            avoided.iter().any(|span| (span.first..=span.last).contains(&place))
        };
        let mut steps = 0..self.count;
        let skipped = steps
            .find(|step| is_free(step) && !is_avoided(step))
            .or_else(|| (0..self.count).find(is_free))?;
        let place = self.wrapped(skipped);
        let range = self.range(place)?;
        let span = Span {
            first: place,
            last: place,
        };
        self.occupy(span);
        self.next = (place + 1) % self.count;

        Some(Taken { span, range, skipped })
    }

    pub fn any_used(&self, span: Span) -> bool {
        (span.first..=span.last).any(|place| self.is_used(place))
    }

    /// Marks these as used, and returns how many were free.
    pub fn occupy(&mut self, span: Span) -> u32 {
        let changed = self.mark(span, true);
        self.taken += changed;
        changed
    }

    /// Marks these as free, and returns how many were used.
    pub fn release(&mut self, span: Span) -> u32 {
        let changed = self.mark(span, false);
        self.taken -= changed;
        changed
    }

    fn mark(&mut self, span: Span, used: bool) -> u32 {
        let mut changed = 0;
        for place in span.first..=span.last.min(self.count - 1) {
            let bit = 1u64 << (place % 64);
            if let Some(word) = self.used.get_mut(place as usize / 64)
                && (*word & bit != 0) != used
            {
                *word ^= bit;
                changed += 1;
            }
        }

        changed
    }

    fn wrapped(&self, step: u32) -> u32 {
        (self.next + step) % self.count
    }

    fn is_used(&self, place: u32) -> bool {
        self.used
            .get(place as usize / 64)
            .is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    fn range(&self, place: u32) -> Option<IpNet> {
        let shift = u32::from(self.cluster.max_prefix_len() - self.prefix);
        let offset = u128::from(place).checked_shl(shift).unwrap_or(0);
        let address = number(self.cluster.network()) + offset;
        let address = match self.cluster {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(address).ok()?)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(address)),
        };

        IpNet::new(address, self.prefix).ok()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr_set(cluster: &str, prefix: u8) -> CidrSet {
        CidrSet::new(cluster.parse().unwrap(), prefix).unwrap()
    }

    fn next(cidr_set: &mut CidrSet) -> Option<String> {
        cidr_set.take_next(&[]).map(|taken| taken.range.to_string())
    }

    #[test]
    fn ranges_are_given_in_order_and_a_released_one_last() {
        let mut cidr_set = cidr_set("10.1.0.0/22", 24);
        assert_eq!(next(&mut cidr_set).as_deref(), Some("10.1.0.0/24"));
        assert_eq!(next(&mut cidr_set).as_deref(), Some("10.1.1.0/24"));
        let first = cidr_set.span(&"10.1.0.0/24".parse().unwrap()).unwrap();
        assert_eq!(cidr_set.release(first), 1);
        assert_eq!(cidr_set.release(first), 0, "released once");
        assert_eq!(next(&mut cidr_set).as_deref(), Some("10.1.2.0/24"));
        assert_eq!(next(&mut cidr_set).as_deref(), Some("10.1.3.0/24"));
        assert_eq!(next(&mut cidr_set).as_deref(), Some("10.1.0.0/24"));
        assert_eq!(next(&mut cidr_set), None);
    }

    #[test]
    fn ranges_of_ipv6_cross_the_middle_of_the_address() {
        let mut cidr_set = cidr_set("fd00:1:2:ff00::/56", 72);
        assert_eq!(cidr_set.count(), 1 << 16);
        cidr_set.occupy(Span { first: 0, last: 255 });
        assert_eq!(next(&mut cidr_set).as_deref(), Some("fd00:1:2:ff01::/72"));
        let span = cidr_set.span(&"fd00:1:2:ff01::/72".parse().unwrap());
        assert_eq!(span, Some(Span { first: 256, last: 256 }));
    }

    #[test]
    fn a_wider_range_covers_many_a_narrower_one_its_own_and_a_foreign_one_none() {
        let cidr_set = cidr_set("10.1.0.0/16", 24);
        for (range, wanted) in [
            ("10.0.0.0/8", Some((0, 255))),
            ("10.1.4.0/23", Some((4, 5))),
            ("10.1.4.128/25", Some((4, 4))),
            ("10.2.0.0/24", None),
            ("fd00::/64", None),
        ] {
            let span = cidr_set.span(&range.parse().unwrap());
            assert_eq!(span, wanted.map(|(first, last)| Span { first, last }), "{range}");
        }
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for (cluster, prefix) in [
            ("10.0.0.0/16", 8),
            ("10.0.0.0/30", 33),
            ("fd00::/40", 64),
            ("0.0.0.0/0", 32),
        ] {
            assert!(
                CidrSet::new(cluster.parse().unwrap(), prefix).is_none(),
                "{cluster} {prefix}"
            );
        }
        assert_eq!(cidr_set("10.0.0.1/32", 32).count(), 1);
        assert_eq!(cidr_set("::/0", 16).count(), 1 << 16);
    }
}

//! How much AWS allows.

/// The part of the account's budget that this process may take.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// A part greater than 0 and at most 1.
    #[must_use]
    pub fn new(part: f64) -> Option<Self> {
        (part > 0.0 && part <= 1.0).then_some(Self(part))
    }
}

/// A quarter: a cluster is seldom alone in its account.
impl Default for Share {
    fn default() -> Self {
        Self(0.25)
    }
}

/// A bucket: so many calls at once, and so many more a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    pub size: f64,
    pub refill: f64,
}

/// The name under which calls by plain IDs, which cannot be paged, are counted besides their action's own. EC2 does not
/// say which of its buckets they go into, so both are assumed.
pub(super) const BY_PLAIN_ID: &str = "DescribeInstances by plain IDs";

/// The share of an action's bucket, as EC2 documents it for an account in one region. At least one call fits in.
pub(super) fn of(action: &str, share: Share) -> Shape {
    let (size, refill) = match action {
        BY_PLAIN_ID => (50.0, 10.0),
        "DescribeInstanceTopology" => (1.0, 1.0),
        "CreateTags" | "DeleteTags" => (100.0, 10.0),
        _ if action.starts_with("Describe") => (100.0, 20.0),
        _ => (50.0, 5.0),
    };
    Shape {
        size: f64::max(size * share.0, 1.0),
        refill: refill * share.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part() {
        for bad in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(bad), None, "{bad}");
        }
        assert_eq!(Share::new(0.25), Some(Share::default()));
    }

    #[test]
    fn every_action_has_its_share_and_room_for_one_call() {
        let of = |action, share| {
            let shape = of(action, Share::new(share).unwrap());
            (shape.size, shape.refill)
        };
        assert_eq!(of("DescribeInstances", 0.25), (25.0, 5.0));
        assert_eq!(of(BY_PLAIN_ID, 0.5), (25.0, 5.0));
        assert_eq!(of("CreateTags", 0.25), (25.0, 2.5));
        assert_eq!(of("CreateRoute", 1.0), (50.0, 5.0));
        assert_eq!(of("DescribeInstanceTopology", 0.25), (1.0, 0.25));
    }
}

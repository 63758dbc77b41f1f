//! Requests to EC2 and its answers.

use std::sync::Arc;

use outrigger_aws::ec2::FargateEni;
use outrigger_aws::{Error, Instance, InstanceId};

/// EC2's answer about the instance of a Node.
#[derive(Debug, Clone)]
pub enum Answer {
    Found(Arc<Instance>),
    /// EC2 lists no instance. That alone does not prove that it is gone.
    Absent,
    /// This number of instances have the Node's name or address.
    Ambiguous(usize),
    /// The call failed: the state is unknown.
    Failed(Error),
    /// The Node runs on Fargate; its network interface.
    Fargate(Arc<FargateEni>),
    /// The Node is not on EC2; why. No call was made.
    Foreign(String),
    /// The instance that was found is not the Node's own; why.
    Refused(String),
}

/// The subject of a request to EC2, and the key of its cached result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Id(InstanceId),
    Dns(String),
    /// A private IPv4 address of an instance.
    Ip(String),
    /// The private IPv4 address of a Fargate node.
    Fargate(String),
}

/// Whether EC2 takes the text as an instance ID at all. One that it does not take fails a whole call by plain IDs, and
/// matches nothing in a filter.
pub(super) fn is_well_formed(id: &InstanceId) -> bool {
    let digits = id.as_str().strip_prefix("i-").unwrap_or_default();
    (8..=17).contains(&digits.len()) && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_and_hexadecimal_digits_make_an_id() {
        for (id, good) in [
            ("i-0123456789abcdef0", true),
            ("i-0abcdef1", true),
            ("i-1", false),
            ("i-0123456", false),
            ("i-0123456789abcdef01", false),
            ("i-0123456789ABCDEF0", false),
            ("i-01234567.internal", false),
            ("i-", false),
            ("vol-0abcdef1", false),
            ("i-0abcdef1\u{e9}", false),
        ] {
            assert_eq!(is_well_formed(&InstanceId::new(id)), good, "{id}");
        }
    }
}

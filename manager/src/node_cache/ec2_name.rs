//! Names that EC2 gives to instances, and what they say about the instance of a Node:
//! <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-naming.html>.

use std::net::Ipv4Addr;

/// The address in a name such as `ip-10-0-1-5.ec2.internal`.
pub fn address(name: &str) -> Option<Ipv4Addr> {
    first_label(name).strip_prefix("ip-")?.replace('-', ".").parse().ok()
}

/// The instance ID in a name such as `i-0123456789abcdef0.ec2.internal`.
pub fn instance(name: &str) -> Option<&str> {
    let label = first_label(name);
    let digits = label.strip_prefix("i-")?;
    let is_id =
        matches!(digits.len(), 8 | 17) && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then_some(label)
}

/// Whether the name is of one of these forms.
pub fn is_one(name: &str) -> bool {
    instance(name).is_some() || address(name).is_some()
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

//! Where the simulated AWS is.

/// The region of every simulated account. moto names load balancers after this one whatever it is asked.
pub const REGION: &str = "us-east-1";

/// The local zone of every simulated account, beside moto's availability zones.
pub const LOCAL_ZONE: &str = "us-east-1-bos-1a";

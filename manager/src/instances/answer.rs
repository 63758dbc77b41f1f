use std::sync::Arc;

use outrigger_aws::ec2::FargateEni;
use outrigger_aws::{Error, Instance};

/// What EC2 says about one Node's instance.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The instance.
    Found(Arc<Instance>),
    /// EC2 lists none. That alone is no proof that it is gone.
    Absent,
    /// So many living instances have the Node's name or address.
    Ambiguous(usize),
    /// The question failed: nothing is known.
    Failed(Error),
    /// The Node runs on Fargate; its network interface.
    Fargate(Arc<FargateEni>),
    /// The Node is not on EC2; why. No call was made.
    Foreign(String),
}

use std::sync::Arc;

use outrigger_aws::ec2::FargateEni;
use outrigger_aws::{Error, Instance};

/// EC2's answer about the instance of a Node.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The instance.
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
}

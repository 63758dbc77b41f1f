//! Errors of a pass, and errors that end the controller.

use outrigger_aws::Error as AwsError;
use outrigger_leader::NotLeader;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the route controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// The configured table does not exist.
    #[error("EC2 lists no route table {0}: correct RouteTableID in the cloud configuration, or remove it")]
    NoSuchTable(String),
    /// No table has the cluster's tag.
    #[error(
        "no route table of VPC {vpc} has the tag kubernetes.io/cluster/{cluster}: tag the tables of the nodes' subnets, or \
         name one with RouteTableID in the cloud configuration"
    )]
    NoTaggedTable { vpc: String, cluster: String },
}

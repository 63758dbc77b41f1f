//! Why a pass fails, and why the controller ends.

use outrigger_aws::Error as AwsError;
use outrigger_leader::NotLeader;

/// Why the controller ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It may not write any more.
    #[error("the route controller lost its permit to write")]
    NotLeader(#[from] NotLeader),
}

/// Why the routes are not known.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// AWS did not tell.
    #[error(transparent)]
    Aws(#[from] AwsError),
    /// The configured table does not exist.
    #[error("EC2 knows no route table {0}: correct RouteTableID in the cloud configuration, or remove it")]
    NoSuchTable(String),
    /// No table has the cluster's tag.
    #[error(
        "no route table of VPC {vpc} has the tag kubernetes.io/cluster/{cluster}: tag the tables of the nodes' subnets, or \
         name one with RouteTableID in the cloud configuration"
    )]
    NoTaggedTable {
        /// The VPC.
        vpc: String,
        /// The cluster's ID.
        cluster: String,
    },
}

//! Errors that keep a Service from its load balancer.

use outrigger_leader::NotLeader;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec is invalid; only a change of the Service helps.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Aws(#[from] outrigger_aws::Error),
    #[error(transparent)]
    Environment(#[from] Environment),
    #[error("the Kubernetes API server refused to {operation}")]
    Kubernetes {
        operation: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    /// Leadership has ended; nothing was written after that.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error("target group {arn} cannot be deleted yet: AWS says that a listener still uses it")]
    TargetGroupInUse { arn: String },
    #[error(
        "security group {group} cannot be deleted yet: it is still in use, by a network interface or by a rule of another \
         security group"
    )]
    GroupInUse { group: String },
    #[error(
        "rules of security group {group} cannot be revoked yet: after a start of the manager it is not known which of them \
         other Services need, until each Service with a load balancer has been reconciled"
    )]
    RulesDeferred { group: String },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("annotation {key} is {value:?}: {expected}")]
    Annotation {
        key: String,
        value: String,
        expected: String,
    },
    #[error("{field} is {value:?}: {expected}")]
    Field {
        field: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error(
        "annotation service.beta.kubernetes.io/aws-load-balancer-type requests a {wanted} load balancer, but the \
         Service's status names {hostname:?}, which is not one: the type cannot be changed; restore the \
         annotation, or delete the Service and create it again"
    )]
    TypeChanged { wanted: &'static str, hostname: String },
    #[error(
        "the Service has more than {annotations} KiB of annotations of load balancers, {ranges} entries of \
         spec.loadBalancerSourceRanges, {ports} ports or 100 finalizers: remove some"
    )]
    TooLarge {
        annotations: usize,
        ranges: usize,
        ports: usize,
    },
    #[error("{what} is not supported; nothing was changed at AWS")]
    NotBuilt { what: &'static str },
}

/// A condition at AWS that prevents the spec, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Environment {
    #[error(
        "no subnet of VPC {vpc} is suitable for {scheme} load balancer: tag subnets with \
         kubernetes.io/cluster/{cluster}, {public}or list them in annotation \
         service.beta.kubernetes.io/aws-load-balancer-subnets"
    )]
    NoSubnets {
        vpc: String,
        /// `an internet-facing` or `an internal`.
        scheme: &'static str,
        cluster: String,
        /// A further hint for internet-facing ones.
        public: &'static str,
    },
    #[error(
        "annotation service.beta.kubernetes.io/aws-load-balancer-subnets lists {listed} subnets, but AWS has {found} with these IDs or Name tags in the VPC"
    )]
    SubnetsMissing { listed: usize, found: usize },
    #[error(
        "the load balancer is in subnet {subnet} only, and AWS does not replace it by {replacement} of the same \
         zone: also list a subnet of another zone in annotation service.beta.kubernetes.io/aws-load-balancer-subnets, \
         if only for a while"
    )]
    OnlySubnet { subnet: String, replacement: String },
    #[error(
        "subnet {subnet} has no route table, and its VPC has no main one, so it is unknown whether the subnet is public: \
         associate a route table with the subnet"
    )]
    NoRouteTable { subnet: String },
    #[error(
        "instance {instance} has several security groups {which} for the rule from the load balancer: {groups}; leave \
         the tag kubernetes.io/cluster/{cluster} on exactly one of them"
    )]
    AmbiguousGroups {
        instance: String,
        /// `with the cluster's tag` or `and none with the cluster's tag`.
        which: &'static str,
        /// The groups, as `ID(name)`.
        groups: String,
        cluster: String,
    },
    #[error(
        "target group {name} is used by load balancer {load_balancer}: first delete the listener there that forwards to this target group"
    )]
    TargetGroupTaken { name: String, load_balancer: String },
    #[error(
        "annotation service.beta.kubernetes.io/aws-load-balancer-{annotation} lists {addresses} addresses for {subnets} \
         subnets; list one for each subnet"
    )]
    AddressCount {
        /// The annotation, without its prefix.
        annotation: &'static str,
        addresses: usize,
        subnets: usize,
    },
    #[error(
        "security group {group} would have {rules} rules, and the quota is {quota}: nothing was changed; name fewer client \
         networks or ports, or have AWS raise the quota and set --security-group-rules-quota"
    )]
    TooManyRules { group: String, rules: usize, quota: usize },
    #[error(
        "load balancer {load_balancer} belongs to another cluster, and nothing was changed: its tag \
         outrigger.dev/cluster-uid is {other:?}, and the UID of namespace kube-system of this cluster is {own:?}. This cluster \
         may be a restored copy of the other one. If both are in use, delete this Service here and create it again: the load \
         balancer stays with the other cluster. If the other cluster is gone, remove this tag from the load balancer"
    )]
    ForeignLoadBalancer {
        load_balancer: String,
        other: String,
        own: String,
    },
    #[error("security group {group} has tag {key}={value}, expected {expected:?}: it belongs to another cluster")]
    ForeignGroup {
        group: String,
        key: String,
        value: String,
        expected: String,
    },
}

impl Error {
    pub(super) fn kubernetes(operation: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            operation,
            source: Box::new(source),
        }
    }

    /// The error with its causes, for an Event.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut reason = std::error::Error::source(self);
        while let Some(current) = reason {
            let more = current.to_string();
            if !text.contains(&more) {
                text.push_str(": ");
                text.push_str(&more);
            }
            reason = current.source();
        }

        text
    }
}

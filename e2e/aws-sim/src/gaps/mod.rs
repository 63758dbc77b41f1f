//! Where moto 5.2 is not AWS, and what is done about it. Each row was needed by a real controller, or by a test that
//! compares what two of them leave behind.
//!
//! | action | moto | here |
//! |---|---|---|
//! | EC2 DescribeInstanceTopology | missing | an empty set, as for types without topology |
//! | EC2 DescribeNetworkInterfaces | fails on the filter `attachment.status` | the filter is applied to the answer |
//! | EC2 DescribeRouteTables | a route to a terminated instance stays active | a blackhole to its interface |
//! | EC2 CreateTags | tags instances that do not exist | `InvalidInstanceID.NotFound` |
//! | EC2 AuthorizeSecurityGroupIngress | 60 rules of both address families; of rules that do not all fit, the first ones stay | AWS's quota; `RulesPerSecurityGroupLimitExceeded` refuses the whole call |
//! | EC2 DeleteSecurityGroup | deletes what is in use | `DependencyViolation` while a rule or a load balancer refers to it |
//! | ELB DescribeLoadBalancers | no health check before one is configured | AWS's default |
//! | ELB DescribeLoadBalancers | a listener's instance protocol is its own protocol | the one it was created with |
//! | ELB DescribeLoadBalancers | an instance twice that was registered twice | once |
//! | ELB DescribeLoadBalancers | policies of instance ports that came after the creation are lost | kept |
//! | ELB DescribeLoadBalancerAttributes | no draining timeout, desync mode missing or many times | 300 s, `defensive`, once |
//! | ELB AttachLoadBalancerToSubnets, DetachLoadBalancerFromSubnets | two subnets of a zone, and none at all | `InvalidConfigurationRequest` |
//! | ELB RegisterInstancesWithLoadBalancer | any number | AWS's quota |
//! | ELB DeleteLoadBalancerListeners | a list of ports removes one and doubles others | one call for each port |
//! | ELBv2 CreateLoadBalancer | the same name twice | the existing one where type, scheme and subnets agree, else `DuplicateLoadBalancerName` |
//! | ELBv2 load balancers | DNS name in the classic form, no scheme unless asked for | `NAME-NUMBER.elb.REGION.amazonaws.com`, internet-facing |
//! | ELBv2 DescribeLoadBalancerAttributes | `access_logs.s3.enabled` is missing | `false` |
//! | ELBv2 CreateListener | a second listener on a port | `DuplicateListener`, whatever the protocol |
//! | ELBv2 CreateListener, ModifyListener | any target group | `InvalidConfigurationRequest` where the protocols do not fit |
//! | ELBv2 ModifyListener | refuses TLS and UDP, forgets certificates | accepts and remembers |
//! | ELBv2 listeners | a policy on every listener | on TLS only |
//! | ELBv2 CreateTargetGroup | the same settings again: `DuplicateTargetGroupName` | the existing one |
//! | ELBv2 DescribeTargetGroups | of a load balancer: forgets what ModifyListener changed, fails where there is none | those of its listeners |
//! | ELBv2 RegisterTargets | takes instances that are stopped | `InvalidTarget` for the whole call |
//! | ELBv2 RegisterTargets, CreateListener, ModifyListener | any number of targets | AWS's quotas of a target group, and of a load balancer in a zone |
//! | ELBv2 DescribeTargetGroupAttributes | `preserve_client_ip.enabled`, `proxy_protocol_v2.enabled` are missing | AWS's defaults for instances |
//!
//! Not here: `net` in the ARNs of network load balancers (moto says `app`), addresses of load balancers, targets that
//! are still being deregistered, one instance with two ports in one target group, other quotas.

mod ec2;
mod elb;
mod elbv2;
#[cfg(test)]
pub(super) mod fixture;
mod groups;
mod quotas;
mod upstream;

use outrigger_aws_quotas::Quotas;

use super::query::Query;
use super::service::Service;
use super::xml::XmlError;

pub(super) use upstream::{Reply, Upstream};

/// The gaps, and what must be remembered to fill them.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    ec2: ec2::Memory,
    elb: elb::Memory,
    elbv2: elbv2::Memory,
    quotas: quotas::Memory,
}

impl Gaps {
    /// Carries out a call as AWS would.
    ///
    /// # Errors
    /// When a good answer of moto is not XML.
    pub(super) async fn answer<U: Upstream>(
        &self,
        moto: &U,
        service: &Service,
        query: Query,
    ) -> Result<Reply, XmlError> {
        if let Some(refused) = self.ec2.refused_targets(&query) {
            return Ok(refused);
        }
        if let Some(refused) = self.quotas.refused(moto, service, &query, &self.elbv2).await? {
            return Ok(refused);
        }

        let asked = query.clone();
        let reply = match service {
            Service::Ec2 => self.ec2.answer(moto, query).await?,
            Service::Elb => self.elb.answer(moto, query).await?,
            Service::ElbV2 => self.elbv2.answer(moto, query).await?,
            Service::Sts | Service::Other(_) => Reply::Moto(moto.ask(service, &query).await),
        };
        if reply.is_good() {
            self.quotas.remember(service, &asked);
        }

        Ok(reply)
    }

    pub(super) fn set_quotas(&self, quotas: Quotas) {
        self.quotas.set(quotas);
    }

    pub(super) fn terminated(&self, ids: &[&str]) {
        self.ec2.terminated(ids);
    }
}

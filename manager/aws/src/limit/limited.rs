//! [`Ec2`] within its budget.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::gate::Gate;
use super::lane::Lane;
use super::shape::{self, BY_PLAIN_ID, Share};
use crate::ec2::{
    AvailabilityZone, FargateEni, Filter, Instance, InstanceId, IpPermission, MAX_FILTER_VALUES, NewSecurityGroup,
    RouteTable, SecurityGroup, Subnet,
};
use crate::{Ec2, Error, Kind, Tags};

/// An [`Ec2`] whose calls wait until there is budget for them, in the lane of [`Lane::run`].
///
/// A call that AWS throttles fails, and is not repeated here: whoever made it comes again by himself, and then waits
/// until the action's pause is over. Pages after the first are not counted; filters of at most 200 values seldom have
/// any.
pub struct Limited {
    inner: Arc<dyn Ec2>,
    share: Share,
    gates: Mutex<HashMap<&'static str, Arc<Gate>>>,
}

impl Limited {
    /// Calls of `inner` within this share of the account's budget.
    #[must_use]
    pub fn new(inner: Arc<dyn Ec2>, share: Share) -> Self {
        Self {
            inner,
            share,
            gates: Mutex::default(),
        }
    }

    fn gate(&self, action: &'static str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Gate::new(action, shape::of(action, self.share)));
        Arc::clone(gates.entry(action).or_insert_with(new))
    }

    /// Sends a call of one action when its turn has come.
    async fn call<T>(&self, action: &'static str, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.counted(&[action], call).await
    }

    async fn counted<T>(
        &self,
        actions: &[&'static str],
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let gates: Vec<Arc<Gate>> = actions.iter().map(|action| self.gate(action)).collect();
        for gate in &gates {
            gate.pass(Lane::current()).await;
        }
        let sent = Instant::now();
        let answer = call.await;
        for gate in &gates {
            match &answer {
                Err(error) if error.kind() == Kind::Throttled => gate.throttled(sent),
                Err(error) if error.kind() == Kind::Transport => {}
                _ => gate.answered(sent),
            }
        }
        answer
    }
}

#[async_trait]
impl Ec2 for Limited {
    async fn instances_by_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(MAX_FILTER_VALUES) {
            found.extend(
                self.call("DescribeInstances", self.inner.instances_by_id(chunk))
                    .await?,
            );
        }
        Ok(found)
    }

    async fn instances_by_private_dns_name(&self, names: &[String]) -> Result<Vec<Instance>, Error> {
        let mut found = Vec::with_capacity(names.len());
        for chunk in names.chunks(MAX_FILTER_VALUES) {
            let call = self.inner.instances_by_private_dns_name(chunk);
            found.extend(self.call("DescribeInstances", call).await?);
        }
        Ok(found)
    }

    async fn availability_zones(&self) -> Result<Vec<AvailabilityZone>, Error> {
        self.call("DescribeAvailabilityZones", self.inner.availability_zones())
            .await
    }

    async fn subnets(&self, filters: &[Filter]) -> Result<Vec<Subnet>, Error> {
        self.call("DescribeSubnets", self.inner.subnets(filters)).await
    }

    async fn route_tables(&self, vpc_id: &str) -> Result<Vec<RouteTable>, Error> {
        self.call("DescribeRouteTables", self.inner.route_tables(vpc_id)).await
    }

    async fn security_groups(&self, filters: &[Filter]) -> Result<Vec<SecurityGroup>, Error> {
        self.call("DescribeSecurityGroups", self.inner.security_groups(filters))
            .await
    }

    async fn create_security_group(&self, group: &NewSecurityGroup) -> Result<String, Error> {
        self.call("CreateSecurityGroup", self.inner.create_security_group(group))
            .await
    }

    async fn authorize_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = self.inner.authorize_ingress(group_id, rules);
        self.call("AuthorizeSecurityGroupIngress", call).await
    }

    async fn revoke_ingress(&self, group_id: &str, rules: &[IpPermission]) -> Result<(), Error> {
        let call = self.inner.revoke_ingress(group_id, rules);
        self.call("RevokeSecurityGroupIngress", call).await
    }

    async fn delete_security_group(&self, group_id: &str) -> Result<(), Error> {
        self.call("DeleteSecurityGroup", self.inner.delete_security_group(group_id))
            .await
    }

    async fn create_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.call("CreateTags", self.inner.create_tags(resources, tags)).await
    }

    async fn instance_topology(&self, ids: &[InstanceId]) -> Result<Vec<(InstanceId, Vec<String>)>, Error> {
        self.call("DescribeInstanceTopology", self.inner.instance_topology(ids))
            .await
    }

    async fn route_tables_by(&self, filters: &[Filter]) -> Result<Vec<RouteTable>, Error> {
        self.call("DescribeRouteTables", self.inner.route_tables_by(filters))
            .await
    }

    async fn create_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.call("CreateRoute", self.inner.create_route(table_id, cidr, instance))
            .await
    }

    async fn replace_route(&self, table_id: &str, cidr: &str, instance: &InstanceId) -> Result<(), Error> {
        self.call("ReplaceRoute", self.inner.replace_route(table_id, cidr, instance))
            .await
    }

    async fn delete_route(&self, table_id: &str, cidr: &str) -> Result<(), Error> {
        self.call("DeleteRoute", self.inner.delete_route(table_id, cidr)).await
    }

    async fn disable_source_dest_check(&self, instance: &InstanceId) -> Result<(), Error> {
        let call = self.inner.disable_source_dest_check(instance);
        self.call("ModifyInstanceAttribute", call).await
    }

    async fn delete_tags(&self, resources: &[String], tags: &Tags) -> Result<(), Error> {
        self.call("DeleteTags", self.inner.delete_tags(resources, tags)).await
    }

    async fn instances_by_plain_id(&self, ids: &[InstanceId]) -> Result<Vec<Instance>, Error> {
        let call = self.inner.instances_by_plain_id(ids);
        self.counted(&["DescribeInstances", BY_PLAIN_ID], call).await
    }

    async fn instances_by_private_ip(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<Instance>, Error> {
        let call = self.inner.instances_by_private_ip(vpc_id, ips);
        self.call("DescribeInstances", call).await
    }

    async fn fargate_interfaces(&self, vpc_id: &str, ips: &[String]) -> Result<Vec<FargateEni>, Error> {
        let call = self.inner.fargate_interfaces(vpc_id, ips);
        self.call("DescribeNetworkInterfaces", call).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fake::FakeAws;

    fn limited(aws: &Arc<FakeAws>) -> Arc<Limited> {
        Arc::new(Limited::new(aws.clone(), Share::default()))
    }

    fn throttled(action: &'static str) -> Error {
        Error::answered(action, "RequestLimitExceeded", "slow down")
    }

    async fn tag(ec2: &Limited) -> Result<(), Error> {
        ec2.create_tags(&[], &Tags::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_action_pauses_and_no_other_does() {
        let aws = Arc::new(FakeAws::default());
        let ec2 = limited(&aws);
        aws.fail_next("CreateTags", throttled("CreateTags"));
        let start = Instant::now();
        assert_eq!(tag(&ec2).await.unwrap_err().kind(), Kind::Throttled);
        for _ in 0..20 {
            ec2.instances_by_id(&[InstanceId::new("i-1")]).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "describes go on");
        tag(&ec2).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_throttling_calls_go_through_again_within_seconds() {
        let aws = Arc::new(FakeAws::default());
        let ec2 = limited(&aws);
        let start = Instant::now();
        let mut refused = 0;
        while start.elapsed() < Duration::from_secs(60) {
            aws.fail_next("CreateTags", throttled("CreateTags"));
            tag(&ec2).await.unwrap_err();
            refused += 1;
        }
        assert!(refused < 20, "{refused} calls against the wall");
        let over = Instant::now();
        tag(&ec2).await.unwrap();
        assert!(over.elapsed() <= Duration::from_secs(10), "{:?}", over.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_row_of_calls_is_never_throttled_by_an_aws_with_its_real_buckets() {
        let aws = Arc::new(FakeAws::default());
        aws.throttle_like_aws();
        let ec2 = Limited::new(aws.clone(), Share::new(1.0).unwrap());
        let start = Instant::now();
        for _ in 0..300 {
            tag(&ec2).await.unwrap();
        }
        assert_eq!(start.elapsed().as_secs(), 20, "100 at once, then 10 a second");
        for _ in 0..100 {
            let id = InstanceId::new("i-0000000a");
            let error = ec2.instances_by_plain_id(&[id]).await.unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_lanes_go_first_and_whoever_gives_up_holds_nobody_back() {
        let aws = Arc::new(FakeAws::default());
        let ec2 = limited(&aws);
        for _ in 0..25 {
            tag(&ec2).await.unwrap();
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let call = |lane: Lane| {
            let (ec2, order) = (Arc::clone(&ec2), Arc::clone(&order));
            async move {
                lane.run(tag(&ec2)).await.unwrap();
                order.lock().unwrap().push(lane);
            }
        };
        let lanes = [Lane::Background, Lane::Refresh, Lane::Lifecycle, Lane::Initialize];
        let hasty = tokio::time::timeout(Duration::from_millis(1), call(Lane::Initialize));
        let all = futures_of(lanes.map(call));
        let (given_up, ()) = tokio::join!(hasty, all);
        assert!(given_up.is_err());
        let mut wanted = lanes;
        wanted.reverse();
        assert_eq!(*order.lock().unwrap(), wanted);
    }

    async fn futures_of(calls: [impl Future<Output = ()>; 4]) {
        let [a, b, c, d] = calls;
        tokio::join!(a, b, c, d);
    }
}

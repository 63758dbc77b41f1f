//! Instances by the thousand, which moto is too slow for: DescribeInstances of 200 takes moto a third of a second of
//! processor time, and it works on one call at a time. The proxy answers from here instead, in EC2's words and at once.
//!
//! Only what node controllers ask is known: plain IDs, filters, pages. A filter that is not known is refused, as EC2
//! refuses one, so that a caller who needs more is seen at once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_cluster_harness::kubelets::Instance;
use quick_xml::escape::partial_escape;

use super::query::Parameters;
use super::seeded_account::{SeededAccount, Subnet, cluster_tag};
use super::service::REGION;

/// EC2's number and name of a state of an instance's life.
type State = (u8, &'static str);
const RUNNING: State = (16, "running");
const TERMINATED: State = (48, "terminated");

/// Many instances of one cluster.
#[derive(Debug)]
pub struct Fleet {
    cluster_id: String,
    vpc_id: String,
    security_group_id: String,
    /// By ID, with the subnet and the state.
    instances: Mutex<BTreeMap<String, (Instance, String, State)>>,
}

/// EC2's refusal: its error code, and its message. The status is 400.
pub type Refusal = (&'static str, String);

impl Fleet {
    /// As many running instances as `count` in the subnets of `account`, whose own instances are not among them. No IDs or
    /// addresses are drawn at random: two fleets of one account are the same.
    #[must_use]
    pub fn new(account: &SeededAccount, count: u32) -> Self {
        let subnets = account.subnets.iter().cycle();
        let instances = (1..=count)
            .zip(subnets)
            .map(|(number, subnet)| {
                let instance = instance(number, subnet);
                (instance.id.clone(), (instance, subnet.id.clone(), RUNNING))
            })
            .collect();

        Self {
            cluster_id: account.cluster_id.clone(),
            vpc_id: account.vpc_id.clone(),
            security_group_id: account.security_group_id.clone(),
            instances: Mutex::new(instances),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instance, String, State)>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All instances, terminated ones included.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        self.lock().values().map(|(instance, ..)| instance.clone()).collect()
    }

    /// Terminates instances: EC2 goes on listing them as `terminated` for about an hour, which no test waits for.
    pub fn terminate<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        let mut instances = self.lock();
        for id in ids {
            if let Some((_, _, state)) = instances.get_mut(id) {
                *state = TERMINATED;
            }
        }
    }

    /// The answer to DescribeInstances.
    ///
    /// # Errors
    /// What EC2 refuses: an ID that does not exist, a filter that it does not know.
    pub fn describe(&self, parameters: &Parameters) -> Result<String, Refusal> {
        let (ids, filters) = (parameters.list("InstanceId"), parameters.filters());
        let instances = self.lock();
        let unknown: Vec<&str> = ids.iter().copied().filter(|id| !instances.contains_key(*id)).collect();

        if let Some(refusal) = unknown_instances(&unknown) {
            return Err(refusal);
        }

        // The filter on IDs names few of many: look those up instead of looking at all.
        let by_id = filters.iter().find(|(name, _)| *name == "instance-id");
        let named = if ids.is_empty() {
            by_id.map(|(_, ids)| ids)
        } else {
            Some(&ids)
        };
        let candidates: Vec<_> = match named {
            Some(ids) => ids.iter().filter_map(|id| instances.get(*id)).collect(),
            None => instances.values().collect(),
        };
        let mut found = Vec::new();

        for candidate in candidates {
            if self.matches(candidate, &filters)? {
                found.push(candidate);
            }
        }

        Ok(self.page(&found, parameters))
    }

    fn matches(
        &self,
        (instance, subnet, state): &(Instance, String, State),
        filters: &[(&str, Vec<&str>)],
    ) -> Result<bool, Refusal> {
        for (name, values) in filters {
            let own = match *name {
                "instance-id" => &instance.id,
                "private-dns-name" => &instance.private_dns_name,
                "private-ip-address" | "network-interface.addresses.private-ip-address" => &instance.private_ip,
                "vpc-id" => &self.vpc_id,
                "subnet-id" => subnet,
                "instance-state-name" => state.1,
                "tag-key" => &cluster_tag(&self.cluster_id),
                _ => {
                    let message = format!("The filter '{name}' is invalid");
                    return Err(("InvalidParameterValue", message));
                }
            };
            if !values.contains(&own) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One page, each instance in a reservation of its own.
    fn page(&self, found: &[&(Instance, String, State)], parameters: &Parameters) -> String {
        let number = |key: &str| parameters.get(key).and_then(|text| text.parse::<usize>().ok());
        let begin = number("NextToken").unwrap_or(0).min(found.len());
        let end = number("MaxResults").map_or(found.len(), |size| begin.saturating_add(size).min(found.len()));
        let mut body = String::with_capacity((end - begin) * 3200 + 400);
        body.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>fleet</requestId><reservationSet>");
        for (instance, subnet, state) in found.get(begin..end).unwrap_or_default() {
            self.reservation(&mut body, instance, subnet, *state);
        }

        body.push_str("</reservationSet>");
        if end < found.len() {
            let _ = write!(body, "<nextToken>{end}</nextToken>");
        }

        body.push_str("</DescribeInstancesResponse>");

        body
    }

    /// An instance with the fields that EC2 gives for one, so that reading it costs what it costs there.
    fn reservation(&self, body: &mut String, instance: &Instance, subnet: &str, state: State) {
        let Instance {
            id,
            private_dns_name,
            private_ip,
            zone,
            instance_type,
            ..
        } = instance;

        let (code, name) = state;
        let (vpc, group) = (&self.vpc_id, &self.security_group_id);
        let hex = id.trim_start_matches("i-");
        let tag = cluster_tag(&self.cluster_id);
        let tag = partial_escape(&tag);
        let groups =
            format!("<groupSet><item><groupId>{group}</groupId><groupName>nodes</groupName></item></groupSet>");
        let _ = write!(
            body,
            "<item><reservationId>r-{hex}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet><item>\
             <instanceId>{id}</instanceId><imageId>ami-12c6146b</imageId><instanceState><code>{code}</code><name>{name}</name></instanceState>\
             <privateDnsName>{private_dns_name}</privateDnsName><dnsName/><reason/><keyName>nodes</keyName><amiLaunchIndex>0</amiLaunchIndex><productCodes/>\
             <instanceType>{instance_type}</instanceType><launchTime>2026-01-01T00:00:00.000Z</launchTime>\
             <placement><availabilityZone>{zone}</availabilityZone><groupName/><tenancy>default</tenancy></placement>\
             <monitoring><state>disabled</state></monitoring><subnetId>{subnet}</subnetId><vpcId>{vpc}</vpcId>\
             <privateIpAddress>{private_ip}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>{groups}\
             <architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType><rootDeviceName>/dev/xvda</rootDeviceName>\
             <blockDeviceMapping><item><deviceName>/dev/xvda</deviceName><ebs><volumeId>vol-{hex}</volumeId><status>attached</status>\
             <attachTime>2026-01-01T00:00:01.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></ebs></item></blockDeviceMapping>\
             <virtualizationType>hvm</virtualizationType><clientToken>fleet-{hex}</clientToken>\
             <tagSet><item><key>{tag}</key><value>owned</value></item><item><key>Name</key><value>node</value></item>\
             <item><key>aws:autoscaling:groupName</key><value>nodes</value></item></tagSet><hypervisor>xen</hypervisor>\
             <networkInterfaceSet><item><networkInterfaceId>eni-{hex}</networkInterfaceId><subnetId>{subnet}</subnetId><vpcId>{vpc}</vpcId>\
             <description/><ownerId>123456789012</ownerId><status>in-use</status><macAddress>02:00:00:00:00:00</macAddress>\
             <privateIpAddress>{private_ip}</privateIpAddress><privateDnsName>{private_dns_name}</privateDnsName><sourceDestCheck>true</sourceDestCheck>{groups}\
             <attachment><attachmentId>eni-attach-{hex}</attachmentId><deviceIndex>0</deviceIndex><status>attached</status>\
             <attachTime>2026-01-01T00:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination></attachment>\
             <privateIpAddressesSet><item><privateIpAddress>{private_ip}</privateIpAddress><privateDnsName>{private_dns_name}</privateDnsName>\
             <primary>true</primary></item></privateIpAddressesSet><ipv6AddressesSet/><interfaceType>interface</interfaceType></item></networkInterfaceSet>\
             <iamInstanceProfile><arn>arn:aws:iam::123456789012:instance-profile/nodes</arn><id>AIPA{hex}</id></iamInstanceProfile>\
             <ebsOptimized>false</ebsOptimized><enaSupport>true</enaSupport><cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>\
             <metadataOptions><state>applied</state><httpTokens>required</httpTokens><httpPutResponseHopLimit>1</httpPutResponseHopLimit>\
             <httpEndpoint>enabled</httpEndpoint></metadataOptions></item></instancesSet></item>"
        );
    }
}

/// EC2's refusal of a call that names these instances, which do not exist. `None` if the list is empty.
pub(super) fn unknown_instances(ids: &[&str]) -> Option<Refusal> {
    let message = match ids {
        [] => return None,
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    };
    Some(("InvalidInstanceID.NotFound", message))
}

/// The instance with this number, 1 or more: each has an address of its own in 172.31/16, moto's default VPC.
fn instance(number: u32, subnet: &Subnet) -> Instance {
    let (high, low) = (number / 250, number % 250 + 1);
    Instance {
        id: format!("i-0f{number:015x}"),
        private_dns_name: format!("ip-172-31-{high}-{low}.ec2.internal"),
        private_ip: format!("172.31.{high}.{low}"),
        zone: subnet.zone.clone(),
        region: REGION.to_owned(),
        // A type without topology information, so that nobody asks for it.
        instance_type: "t3.medium".to_owned(),
        public: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Fleet, Parameters};
    use crate::SeededAccount;
    use crate::seeded_account::Subnet;
    use crate::xml::Element;

    fn fleet(count: u32) -> Fleet {
        let subnet = |id: &str, zone: &str| Subnet {
            id: id.into(),
            zone: zone.into(),
        };
        let account = SeededAccount {
            cluster_id: "prod".into(),
            vpc_id: "vpc-1".into(),
            route_table_id: "rtb-1".into(),
            subnets: vec![subnet("subnet-1", "us-east-1a"), subnet("subnet-2", "us-east-1b")],
            security_group_id: "sg-1".into(),
            instances: Vec::new(),
            cloud_config_lines: String::new(),
        };
        Fleet::new(&account, count)
    }

    fn described(fleet: &Fleet, parameters: &[(&str, &str)]) -> (Vec<String>, Option<String>) {
        let answer = fleet
            .describe(&parameters.iter().copied().collect())
            .expect("an answer");
        let answer = Element::parse(&answer).expect("XML");
        let ids = answer
            .items("reservationSet")
            .iter()
            .map(|item| item.items("instancesSet")[0].value("instanceId").to_owned());
        (ids.collect(), answer.child("nextToken").map(|token| token.text.clone()))
    }

    #[test]
    fn every_instance_has_its_own_id_name_and_address() {
        let instances = fleet(10_000).instances();
        for field in [
            |i: &super::Instance| i.id.clone(),
            |i: &super::Instance| i.private_dns_name.clone(),
            |i: &super::Instance| i.private_ip.clone(),
        ] {
            assert_eq!(instances.iter().map(field).collect::<BTreeSet<_>>().len(), 10_000);
        }
    }

    #[test]
    fn pages_hold_every_instance_once() {
        let fleet = fleet(25);
        let (first, token) = described(&fleet, &[("MaxResults", "20")]);
        let (second, end) = described(&fleet, &[("MaxResults", "20"), ("NextToken", &token.expect("a token"))]);
        assert_eq!((first.len(), second.len(), end), (20, 5, None));
        assert_eq!(first.into_iter().chain(second).collect::<BTreeSet<_>>().len(), 25);
    }

    #[test]
    fn filters_leave_out_and_plain_ids_must_exist() {
        let fleet = fleet(3);
        let one = fleet.instances()[0].clone();
        let by_name = [
            ("Filter.1.Name", "private-dns-name"),
            ("Filter.1.Value.1", one.private_dns_name.as_str()),
            ("Filter.1.Value.2", "ip-1-1-1-1.ec2.internal"),
        ];
        assert_eq!(described(&fleet, &by_name).0, [one.id.as_str()]);
        let by_id = [
            ("Filter.1.Name", "instance-id"),
            ("Filter.1.Value.1", one.id.as_str()),
            ("Filter.1.Value.2", "i-0"),
        ];
        assert_eq!(described(&fleet, &by_id).0, [one.id.as_str()]);
        let refused = |parameters: &[(&str, &str)]| fleet.describe(&Parameters::from_iter(parameters.iter().copied()));
        let gone = refused(&[("InstanceId.1", one.id.as_str()), ("InstanceId.2", "i-0")]);
        assert_eq!(
            gone,
            Err((
                "InvalidInstanceID.NotFound",
                "The instance ID 'i-0' does not exist".into()
            ))
        );
        assert!(refused(&[("Filter.1.Name", "colour"), ("Filter.1.Value.1", "red")]).is_err());
    }

    #[test]
    fn a_terminated_instance_is_listed_as_such() {
        let fleet = fleet(2);
        let one = fleet.instances()[0].clone();
        fleet.terminate([one.id.as_str()]);
        let state = |name| {
            described(
                &fleet,
                &[("Filter.1.Name", "instance-state-name"), ("Filter.1.Value.1", name)],
            )
            .0
        };
        assert_eq!(state("terminated"), [one.id]);
        assert_eq!(state("running").len(), 1);
    }
}

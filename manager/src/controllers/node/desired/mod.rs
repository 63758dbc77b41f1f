//! The host of a Node, and the provider ID and labels that follow from it. Pure.

pub mod addresses;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outrigger_aws::Instance;
use outrigger_aws::ec2::FargateEni;

use crate::cloud_config::IpFamily;
use crate::controllers::node::error::Waiting;
use crate::node_cache::NodeView;

pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";

#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// The region; labels name this one, whatever the instance's zone says.
    pub region: String,
    pub families: Vec<IpFamily>,
}

/// The platform that runs a Node.
#[derive(Debug, Clone)]
pub enum Host {
    Instance(Arc<Instance>),
    /// Fargate, of which EC2 shows the network interface alone.
    Fargate(Arc<FargateEni>),
}

impl Host {
    pub fn zone(&self) -> Option<&str> {
        let zone = match self {
            Self::Instance(instance) => &instance.availability_zone,
            Self::Fargate(interface) => &interface.availability_zone,
        };
        some(zone)
    }

    pub fn instance_type(&self) -> Option<&str> {
        match self {
            Self::Instance(instance) => some(&instance.instance_type),
            Self::Fargate(_) => None,
        }
    }

    /// The ID at EC2, for people.
    pub fn id(&self) -> &str {
        match self {
            Self::Instance(instance) => instance.id.as_str(),
            Self::Fargate(interface) => interface.id.as_deref().unwrap_or("a Fargate interface"),
        }
    }

    /// The provider ID of a Node that has none; one on Fargate always has one.
    pub fn provider_id(&self, zone: &str) -> Option<String> {
        match self {
            Self::Instance(instance) => Some(format!("aws:///{zone}/{}", instance.id)),
            Self::Fargate(_) => None,
        }
    }
}

fn some(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The desired fields of a Node, except for its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// For a Node without one. `None` on Fargate.
    pub provider_id: Option<String>,
    /// `None`: unknown, so there is no label.
    pub instance_type: Option<String>,
    pub zone: String,
    pub region: String,
    /// Additional labels, only for keys that the Node does not have.
    pub additional: BTreeMap<String, String>,
}

/// The desired fields of a Node. `zone_ids` maps zones to their IDs; without it, the label of the zone's ID is left out.
///
/// # Errors
/// [`Waiting`], when a required value is missing.
pub fn desired(
    node: &NodeView,
    host: &Host,
    place: &ClusterSettings,
    zone_ids: Option<&HashMap<String, String>>,
) -> Result<Desired, Waiting> {
    let zone = host.zone().ok_or_else(|| Waiting::NoZone(host.id().to_owned()))?;
    let mut additional = BTreeMap::new();
    if let Some(zone_ids) = zone_ids
        && node.label(ZONE_ID).is_none()
    {
        let id = zone_ids
            .get(zone)
            .ok_or_else(|| Waiting::UnknownZone(zone.to_owned()))?;
        additional.insert(ZONE_ID.to_owned(), id.clone());
    }

    Ok(Desired {
        provider_id: host.provider_id(zone),
        instance_type: host.instance_type().map(str::to_owned),
        zone: zone.to_owned(),
        region: place.region.clone(),
        additional,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: serde_json::Value) -> NodeView {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
    }

    fn place() -> ClusterSettings {
        ClusterSettings {
            region: "us-east-1".into(),
            families: vec![IpFamily::V4],
        }
    }

    fn zones() -> HashMap<String, String> {
        HashMap::from([("z".to_owned(), "z-id".to_owned())])
    }

    fn instance(zone: Option<&str>) -> Host {
        Host::Instance(Arc::new(Instance {
            availability_zone: zone.map(str::to_owned),
            ..Instance::new("i-1")
        }))
    }

    #[test]
    fn without_its_zone_or_the_zones_id_a_node_waits() {
        let want = |host: &Host, ids: &HashMap<_, _>| desired(&node(json!({})), host, &place(), Some(ids));
        for missing in [None, Some("")] {
            assert!(matches!(want(&instance(missing), &zones()), Err(Waiting::NoZone(_))));
        }
        let unknown = want(&instance(Some("z")), &HashMap::new());
        assert!(matches!(unknown, Err(Waiting::UnknownZone(_))));
        let found = want(&instance(Some("z")), &zones()).unwrap();
        assert_eq!(found.provider_id.as_deref(), Some("aws:///z/i-1"));
        assert_eq!((found.instance_type, found.region.as_str()), (None, "us-east-1"));
        assert_eq!(
            found.additional,
            BTreeMap::from([(ZONE_ID.to_owned(), "z-id".to_owned())])
        );
    }

    #[test]
    fn a_zones_id_that_is_there_needs_no_list_of_zones() {
        let has = node(json!({ZONE_ID: "mine"}));
        let found = desired(&has, &instance(Some("z")), &place(), Some(&HashMap::new())).unwrap();
        assert!(found.additional.is_empty());
    }

    #[test]
    fn fargate_has_a_zone_and_neither_type_nor_provider_id() {
        let host = Host::Fargate(Arc::new(FargateEni {
            availability_zone: Some("z".into()),
            ..FargateEni::default()
        }));
        let found = desired(&node(json!({})), &host, &place(), Some(&zones())).unwrap();
        assert_eq!((found.provider_id, found.instance_type), (None, None));
        assert_eq!((found.zone.as_str(), found.additional.len()), ("z", 1));
    }
}

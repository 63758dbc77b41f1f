//! The instance that this manager runs on. Both sources are asked once at most, and only when something is missing.

use outrigger_aws::imds::{Metadata, OwnInstance};
use outrigger_aws::{Ec2, Instance};
use tokio::sync::OnceCell;

use crate::cloud_config::identity::{Given, cluster_of_tags, region_of_zone};
use crate::cloud_config::{ClusterId, IdentityError};

const METADATA: &str = "the instance metadata service";
const DESCRIPTION: &str = "the own instance's description";

/// The own instance, as far as anything was asked about it.
pub(super) struct Own {
    metadata: Metadata,
    said: OnceCell<Result<OwnInstance, String>>,
    described: OnceCell<Result<Instance, String>>,
}

impl Own {
    pub(super) fn new(metadata: Metadata) -> Self {
        Self {
            metadata,
            said: OnceCell::new(),
            described: OnceCell::new(),
        }
    }

    /// An instance that is part of another cluster than that of the Services: nothing about it is of use, and its region
    /// or VPC would be wrong ones.
    pub(super) fn of_another_cluster(metadata: Metadata) -> Self {
        let refused = "with --migration-kubeconfig=in-cluster instance metadata is that of another cluster";
        Self {
            said: OnceCell::new_with(Some(Err(refused.into()))),
            ..Self::new(metadata)
        }
    }

    async fn said(&self) -> Result<&OwnInstance, String> {
        let ask = || async { self.metadata.own_instance().await.map_err(|error| error.to_string()) };
        self.said.get_or_init(ask).await.as_ref().map_err(Clone::clone)
    }

    /// EC2's description of the instance that the metadata service names.
    async fn described(&self, ec2: &dyn Ec2) -> Result<&Instance, String> {
        let described = self.described.get_or_init(|| self.describe(ec2)).await;
        described.as_ref().map_err(Clone::clone)
    }

    async fn describe(&self, ec2: &dyn Ec2) -> Result<Instance, String> {
        let said = self.said().await?;
        let id = said.id.clone().ok_or_else(|| self.silent_about("instance-id"))?;
        match ec2.instances_by_id(std::slice::from_ref(&id)).await {
            Ok(instances) => {
                let own = instances.into_iter().find(|instance| instance.id == id);
                own.ok_or_else(|| format!("EC2 does not know this manager's own instance {id}"))
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                Err(format!("describing this manager's own instance {id} failed: {error:#}"))
            }
        }
    }

    fn silent_about(&self, path: &str) -> String {
        format!("{METADATA} at {} has no {path}", self.metadata.address())
    }

    /// The region, or that of the zone.
    pub(super) async fn region(&self) -> Result<Given, IdentityError> {
        let said = self.said().await.map_err(IdentityError::NoRegion)?;
        let of_zone = || said.zone.as_deref().and_then(region_of_zone).map(str::to_owned);
        match said.region.clone().or_else(of_zone) {
            Some(value) => Ok(Given::new(value, METADATA)),
            None => Err(IdentityError::NoRegion(self.silent_about("placement/region"))),
        }
    }

    /// The cluster that the instance's tags name.
    pub(super) async fn cluster(&self, ec2: &dyn Ec2) -> Result<ClusterId, IdentityError> {
        let own = self.described(ec2).await.map_err(IdentityError::NoCluster)?;
        let tags = own.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        cluster_of_tags(tags)?.ok_or_else(|| {
            IdentityError::NoCluster(format!(
                "this manager's own instance {} has no tag kubernetes.io/cluster/ID or KubernetesCluster=ID",
                own.id
            ))
        })
    }

    /// VPC and subnet. The metadata service knows them without a permission in AWS; EC2 is asked where it does not say.
    pub(super) async fn vpc(&self, ec2: &dyn Ec2) -> Result<(Given, Option<String>), IdentityError> {
        let said = self.said().await.map_err(IdentityError::NoVpc)?;
        if let Some(value) = said.vpc_id.clone() {
            return Ok((Given::new(value, METADATA), said.subnet_id.clone()));
        }

        let own = self.described(ec2).await.map_err(IdentityError::NoVpc)?;
        match own.vpc_id.clone() {
            Some(value) => Ok((Given::new(value, DESCRIPTION), own.subnet_id.clone())),
            None => Err(IdentityError::NoVpc(format!(
                "this manager's own instance {} has no VPC",
                own.id
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use outrigger_aws::fake::{FakeAws, World};
    use outrigger_aws::imds::MetadataError;
    use outrigger_aws::{Error, InstanceId};

    use super::*;

    const ID: &str = "i-0123456789abcdef0";

    /// An own instance about which the metadata service has said this already.
    fn own(said: Result<OwnInstance, MetadataError>) -> Own {
        Own {
            said: OnceCell::new_with(Some(said.map_err(|error| error.to_string()))),
            ..Own::new(Metadata::new(Some("http://127.0.0.1:1"), |_| None))
        }
    }

    fn known() -> OwnInstance {
        OwnInstance {
            zone: Some("eu-west-1b".into()),
            id: Some(InstanceId::new(ID)),
            ..OwnInstance::default()
        }
    }

    fn aws(tags: &[(&str, &str)]) -> FakeAws {
        let mut instance = Instance::new(ID);
        instance.vpc_id = Some("vpc-1".into());
        instance.subnet_id = Some("subnet-1".into());
        instance.tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        FakeAws::new(World {
            instances: [(instance.id.clone(), instance)].into(),
            ..World::default()
        })
    }

    #[tokio::test]
    async fn the_region_is_the_services_or_that_of_its_zone() {
        assert_eq!(own(Ok(known())).region().await.unwrap().value, "eu-west-1");
        let both = OwnInstance {
            region: Some("eu-south-1".into()),
            ..known()
        };
        assert_eq!(own(Ok(both)).region().await.unwrap().value, "eu-south-1");
        let error = own(Ok(OwnInstance::default())).region().await.unwrap_err().to_string();
        assert!(
            error.contains("http://127.0.0.1:1 has no placement/region; set --region"),
            "{error}"
        );
        let error = own(Err(MetadataError::Disabled))
            .region()
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("AWS_EC2_METADATA_DISABLED; set --region"), "{error}");
    }

    /// The address is that of a service which would answer for the wrong cluster: it is not asked.
    #[tokio::test]
    async fn an_instance_of_another_cluster_gives_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let own = Own::of_another_cluster(Metadata::new(Some(&url), |_| None));

        let aws = aws(&[("kubernetes.io/cluster/management", "owned")]);
        let errors = [
            own.region().await.unwrap_err(),
            own.cluster(&aws).await.unwrap_err(),
            own.vpc(&aws).await.unwrap_err(),
        ];
        for (error, flag) in errors.iter().zip(["--region", "--cluster-id", "--vpc-id"]) {
            let text = error.to_string();
            assert!(text.contains("--migration-kubeconfig=in-cluster"), "{text}");
            assert!(text.contains(&format!("set {flag}")), "{text}");
        }
        assert_eq!(aws.calls(), []);
        assert!(listener.accept().is_err(), "nobody connected");
    }

    #[tokio::test]
    async fn cluster_and_vpc_come_from_one_description() {
        let (own, aws) = (
            own(Ok(known())),
            aws(&[("kubernetes.io/cluster/prod", "owned"), ("Name", "cp")]),
        );
        let cluster = own.cluster(&aws).await.unwrap();
        assert_eq!((cluster.id.as_str(), cluster.legacy_tags), ("prod", false));
        let (vpc, subnet) = own.vpc(&aws).await.unwrap();
        assert_eq!((vpc.value.as_str(), subnet.as_deref()), ("vpc-1", Some("subnet-1")));
        assert_eq!(aws.calls().len(), 1, "{:?}", aws.calls());
    }

    #[tokio::test]
    async fn the_metadata_service_gives_the_vpc_without_a_call_to_ec2() {
        let said = OwnInstance {
            vpc_id: Some("vpc-9".into()),
            ..known()
        };
        let aws = aws(&[]);
        assert_eq!(own(Ok(said)).vpc(&aws).await.unwrap().0.value, "vpc-9");
        assert_eq!(aws.calls(), []);
    }

    #[tokio::test]
    async fn each_way_in_vain_says_where_it_looked_and_names_the_flag() {
        let denied = aws(&[]);
        denied.fail_next(
            "DescribeInstances",
            Error::answered("DescribeInstances", "UnauthorizedOperation", "no"),
        );
        for (own, aws, words) in [
            (
                own(Ok(known())),
                aws(&[]),
                ["own instance i-0123456789abcdef0 has no tag", "KubernetesClusterID"],
            ),
            (own(Ok(known())), FakeAws::default(), ["EC2 does not know", ID]),
            (
                own(Ok(known())),
                denied,
                ["describing this manager's own instance", "UnauthorizedOperation"],
            ),
            (
                own(Err(MetadataError::Silent("http://x".into()))),
                aws(&[]),
                ["http://x did not answer", "2 s"],
            ),
            (
                own(Ok(OwnInstance::default())),
                aws(&[]),
                ["has no instance-id", "http://127.0.0.1:1"],
            ),
        ] {
            let error = own.cluster(&aws).await.unwrap_err().to_string();
            assert!(
                error.starts_with("no cluster ID: ") && error.ends_with("set --cluster-id"),
                "{error}"
            );
            words.iter().for_each(|word| assert!(error.contains(word), "{error}"));
        }
    }
}

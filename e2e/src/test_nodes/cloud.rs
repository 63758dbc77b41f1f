//! A simulated AWS account whose instances are the machines.

use anyhow::{Result, ensure};
use outrigger_aws_sim::{InstanceMetadata, Moto, Proxy, REGION, SeededAccount};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_machines::{Fleet, HOST};

/// The programs on the machines call AWS with an access key of their own, which names component and Node.
const ACCESS_KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "not-a-secret-the-simulation-checks-no-signature";

/// A simulated AWS account with an instance for each machine.
pub struct Cloud {
    pub account: SeededAccount,
    /// Records every call to `moto`.
    pub proxy: Proxy,
    pub moto: Moto,
    /// The content of the file of `--cloud-config`.
    pub configuration: String,
    _metadata: InstanceMetadata,
}

impl Cloud {
    pub(super) async fn start(fleet: &mut Fleet, cluster_id: &str) -> Result<Self> {
        let tools = Tools::load(&[Tool::MotoPython]).await?;
        let moto = Moto::start(&tools, fleet.folder()).await?;
        let calls = fleet.folder().join("aws.jsonl");
        let proxy = Proxy::start(&moto, &[], Some(&calls)).await?;
        proxy.set_limits(true);

        let mut account = SeededAccount::seed(&moto, cluster_id, 0).await?;
        for machine in fleet.machines() {
            let instance = account.add_instance_at(&moto, &machine.address().to_string()).await?;
            ensure!(
                instance.private_dns_name == machine.name(),
                "instance {} of {}",
                instance.private_dns_name,
                machine.name()
            );
        }
        let metadata = InstanceMetadata::start(&account).await?;
        for machine in fleet.machines_mut() {
            machine.lead_metadata_to(format!("{HOST}:{}", metadata.port())).await?;
        }

        // For the machines loopback is at another address.
        let endpoint = proxy.url().replace("127.0.0.1", &HOST.to_string());
        Ok(Self {
            configuration: account.cloud_config_of_instances(&endpoint),
            account,
            proxy,
            moto,
            _metadata: metadata,
        })
    }
}

/// Credentials, which stand for the role of the instance.
pub(super) fn credentials(component: &str) -> [(&'static str, String); 3] {
    [
        (ACCESS_KEY, format!("{component}-$(NODE_NAME)")),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", REGION.to_owned()),
    ]
}

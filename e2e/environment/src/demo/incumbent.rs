//! The same migration with the incumbent in our manager's place: what an operator gets today.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::operator::{NEW_MANAGER, OLD_MANAGER};
use crate::{CLUSTER, Environment, Progress, manager_flags};
use outrigger_cluster_harness::cluster::User;
use outrigger_cluster_harness::leases::Lease;
use outrigger_cluster_harness::tools::{INCUMBENT_VERSION, Tool};
use outrigger_timeline::{Component, Controller, Report, Rules};

const ROLL: Duration = Duration::from_secs(120);
/// How long both run side by side, and the incumbent alone, under load.
const QUIET: Duration = Duration::from_secs(15);
/// A file that names the incumbent's own controllers, so that its exact match finds them.
const OWN_NAMES: &str = "apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: cloud-provider-extraction-migration
controllerLeaders:
- {name: service-lb-controller, component: \"*\"}
- {name: node-route-controller, component: \"*\"}
- {name: cloud-node-lifecycle-controller, component: \"*\"}
";

/// The published image of the incumbent. Nothing pulls it.
pub(crate) fn image() -> String {
    format!("registry.k8s.io/provider-aws/cloud-controller-manager:{INCUMBENT_VERSION}")
}

/// Runs the documented leader migration with the incumbent: `own_names` gives it a file with its controllers' names.
///
/// # Errors
/// When a step does not come about. An overlap is no error here: the report says it.
pub async fn incumbent(run: &Path, own_names: bool, progress: &Progress) -> Result<Report> {
    progress.step(if own_names {
        "The incumbent v1.37, with a leader migration file that names its own controllers"
    } else {
        "The incumbent v1.37, with --enable-leader-migration and its default configuration"
    });

    let mut environment = Environment::build(run, 3, &[Tool::AwsCloudControllerManager], progress).await?;
    let before = guarded_in_tree(&mut environment, progress).await?;
    let load = super::start_load(&environment).await?;
    environment.snapshot().await?;
    beside(&environment, own_names, progress).await?;
    take_over(&environment, &before, progress).await?;
    environment.snapshot().await?;
    load.stop();

    let mut rules = Rules::new(incumbents_rules(own_names));
    rules.unchanged = environment.load_balancers().await?.into_keys().collect();
    rules.route_note = "by leases; it does not run with --configure-cloud-routes=false".into();

    Ok(outrigger_timeline::analyse(&environment.record().await?, &rules))
}

/// Nodes, two Services, and an old manager that has leader migration already; returns the holder of M.
async fn guarded_in_tree(environment: &mut Environment, progress: &Progress) -> Result<String> {
    for index in 0..2 {
        environment.join_in_tree(index).await?;
    }

    // The rights that the published guide has the operator grant, for both sides.
    environment.install_tenant(progress).await?;
    environment.deploy_old_manager(&["--enable-leader-migration"]).await?;
    let what = "the old manager runs with leader migration";
    environment
        .wait_rolled(OLD_MANAGER, what, ROLL, progress, |_| true)
        .await?;

    let holder = environment
        .wait_holder(Lease::M, None, Duration::from_secs(60), progress)
        .await?;
    environment.create_load_balancer_service("web", 80).await?;
    environment.create_load_balancer_service("api", 443).await?;
    environment.wait_load_balancers(&["web", "api"], 2, progress).await?;

    Ok(holder)
}

/// The incumbent joins.
async fn beside(environment: &Environment, own_names: bool, progress: &Progress) -> Result<()> {
    let arguments = arguments(environment, own_names)?;
    environment.create_manager_account().await?;
    environment.replace_manager(&image(), arguments).await?;
    environment
        .wait_rolled(NEW_MANAGER, "the incumbent runs", ROLL, progress, |_| true)
        .await?;
    environment
        .wait_holder(Lease::C, None, Duration::from_secs(60), progress)
        .await?;
    progress.say("both managers run, as in the documented migration");
    tokio::time::sleep(QUIET).await;

    Ok(())
}

/// The old manager becomes external.
async fn take_over(environment: &Environment, before: &str, progress: &Progress) -> Result<()> {
    environment.mark("phase Migrate");
    environment.deploy_external().await?;
    environment.wait_handed_over(Some(before), ROLL, progress).await?;
    tokio::time::sleep(QUIET).await;
    Ok(())
}

/// Under which leases the incumbent runs its controllers. Its built-in list spells two of them as no release registers
/// them, so its exact match finds only the third. Its route controller does not run here.
fn incumbents_rules(own_names: bool) -> Component {
    let incumbent = Component::aws_cloud_controller_manager();
    if own_names {
        return incumbent;
    }
    incumbent.runs_under(Controller::Service, Lease::C)
}

/// The command line of the incumbent. With `own_names` its file has the names of its own controllers.
pub(crate) fn arguments(environment: &Environment, own_names: bool) -> Result<Vec<String>> {
    // The incumbent may do what it asks for: this is about its leases, not about its rights.
    let kubeconfig = environment.tenant.kubeconfig(&User::admin())?;
    let cloud_config = environment.run.join("incumbent-cloud.conf");
    let text = environment.account.cloud_config(environment.proxy.url());
    let text = text.replace("elasticloadbalancing", "Elastic Load Balancing");
    std::fs::write(&cloud_config, text.replace("= ec2", "= EC2"))?;

    let mut arguments = manager_flags(&cloud_config, &kubeconfig).to_vec();
    arguments.extend([
        "--authentication-skip-lookup=true".to_owned(),
        format!("--cluster-name={CLUSTER}"),
        "--leader-elect=true".to_owned(),
        "--enable-leader-migration".to_owned(),
    ]);

    if own_names {
        let path = environment.run.join("leader-migration.yaml");
        std::fs::write(&path, OWN_NAMES)?;
        arguments.push(format!("--leader-migration-config={}", path.display()));
    }

    Ok(arguments)
}

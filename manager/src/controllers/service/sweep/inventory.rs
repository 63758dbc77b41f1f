//! Reading at AWS what may be left over. Everything of the account and region is listed, since what has no Service any
//! more is known by nothing but its own name and tags; only what has such a name is asked for its tags.

use std::collections::BTreeMap;

use outrigger_aws::{Error, Filter, Tags};

use super::super::names::is_load_balancer;
use super::super::reads::Aws;
use super::super::settings::Settings;
use super::decide::{Inventory, prefix};

/// Lists what there is.
///
/// # Errors
/// The first call that failed: nothing is left over in half a list.
pub(super) async fn take(aws: &Aws, settings: &Settings) -> Result<Inventory, Error> {
    let mut inventory = Inventory::default();
    let all = aws.elb.all().await?;
    let names: Vec<String> = all
        .iter()
        .filter(|lb| is_load_balancer(&lb.name))
        .map(|lb| lb.name.clone())
        .collect();
    let mut tags = unless_denied(aws, aws.elb.tags_of_many(&names).await)?;
    inventory.classic = all
        .into_iter()
        .map(|lb| {
            let of_it = tags.remove(&lb.name).unwrap_or_default();
            (lb, of_it)
        })
        .collect();
    let all = aws.elbv2.all_load_balancers().await?;
    let named = all.iter().filter(|lb| is_load_balancer(&lb.name));
    let tags = tags_of(aws, named.map(|lb| lb.arn.clone()).collect()).await?;
    inventory.network = all
        .into_iter()
        .map(|lb| {
            let of_it = tags(&lb.arn);
            (lb, of_it)
        })
        .collect();
    let all = aws.elbv2.all_target_groups().await?;
    let named: Vec<_> = all.into_iter().filter(|group| prefix(&group.name).is_some()).collect();
    let tags = tags_of(aws, named.iter().map(|group| group.arn.clone()).collect()).await?;
    inventory.target_groups = named
        .into_iter()
        .map(|group| {
            let of_it = tags(&group.arn);
            (group, of_it)
        })
        .collect();
    inventory.groups = aws
        .ec2
        .security_groups(&[Filter::new("vpc-id", [&settings.vpc_id])])
        .await?;
    Ok(inventory)
}

async fn tags_of(aws: &Aws, arns: Vec<String>) -> Result<impl Fn(&str) -> Tags, Error> {
    let tags = if arns.is_empty() {
        BTreeMap::new()
    } else {
        unless_denied(aws, aws.elbv2.tags(&arns).await)?
    };
    Ok(move |arn: &str| tags.get(arn).cloned().unwrap_or_default())
}

/// Tags that may not be read are unknown, so that nothing is the cluster's by them: it is kept, and counts as in use.
fn unless_denied(aws: &Aws, answer: Result<BTreeMap<String, Tags>, Error>) -> Result<BTreeMap<String, Tags>, Error> {
    Ok(aws.tag_reads.allowed(answer)?.unwrap_or_default())
}

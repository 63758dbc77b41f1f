//! The order in which subnets are attached and detached. A load balancer has at most one subnet in a zone and at least
//! one in all.

use std::collections::BTreeSet;

use outrigger_aws::ec2::Subnet;

use super::super::error::Environment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetChange {
    /// Attach these.
    Attach(Vec<String>),
    /// Detach these.
    Detach(Vec<String>),
}

/// Changes from `actual` to `wanted`; `all` has the zones. First subnets in new zones are attached. Then the others are
/// replaced zone by zone; if no other subnet would be attached meanwhile, one of the old ones stays until the end.
/// Fails when the only subnet is replaced in the same zone: AWS allows neither order.
pub fn subnet_changes(
    actual: &BTreeSet<String>,
    wanted: &[Subnet],
    all: &[Subnet],
) -> Result<Vec<SubnetChange>, Environment> {
    let zone = |id: &str| {
        let subnet = all.iter().find(|subnet| subnet.id == id);
        subnet.and_then(|subnet| subnet.availability_zone.as_deref())
    };
    let ids = wanted.iter().map(|subnet| subnet.id.as_str());
    let (kept, new): (Vec<&str>, Vec<&str>) = ids.partition(|id| actual.contains(*id));
    let old = actual.iter().map(String::as_str).filter(|id| !kept.contains(id));
    let old: Vec<&str> = old.collect();
    let beside = |id: &str, others: &[&str]| zone(id).is_some_and(|at| others.iter().any(|o| zone(o) == Some(at)));
    let (replacing, fresh): (Vec<&str>, Vec<&str>) = new.into_iter().partition(|id| beside(id, &old));
    let (mut replaced, mut last): (Vec<&str>, Vec<&str>) = old.into_iter().partition(|id| beside(id, &replacing));

    if !kept.is_empty() || !fresh.is_empty() {
        replaced.append(&mut last);
    } else if last.is_empty()
        && let Some(one) = replaced.pop()
    {
        if replaced.is_empty() {
            return Err(Environment::OnlySubnet {
                subnet: one.to_owned(),
                replacement: replacing.join(", "),
            });
        }
        last.push(one);
    }

    let (then, at_last): (Vec<&str>, Vec<&str>) = replacing.into_iter().partition(|id| !beside(id, &last));
    let texts = |ids: Vec<&str>| ids.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let subnet_changes = [
        SubnetChange::Attach(texts(fresh)),
        SubnetChange::Detach(texts(replaced)),
        SubnetChange::Attach(texts(then)),
        SubnetChange::Detach(texts(last)),
        SubnetChange::Attach(texts(at_last)),
    ];
    let is_one =
        |step: &SubnetChange| !matches!(step, SubnetChange::Attach(ids) | SubnetChange::Detach(ids) if ids.is_empty());

    Ok(subnet_changes.into_iter().filter(is_one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subnet whose zone is the first letter of its ID.
    fn subnet(id: &str) -> Subnet {
        Subnet {
            id: id.into(),
            vpc_id: None,
            availability_zone: id.get(..1).map(str::to_owned),
            cidr_block: None,
            tags: outrigger_aws::Tags::new(),
        }
    }

    /// The moves as words: `+` comes, `-` goes.
    fn way(actual: &[&str], wanted: &[&str]) -> Result<String, Environment> {
        let all: Vec<Subnet> = ["a1", "a2", "b1", "b2", "c1"].map(subnet).into();
        let wanted: Vec<Subnet> = wanted.iter().map(|id| subnet(id)).collect();
        let subnet_changes = subnet_changes(&actual.iter().map(|id| (*id).to_owned()).collect(), &wanted, &all)?;
        let word = |one: &SubnetChange| match one {
            SubnetChange::Attach(ids) => format!("+{}", ids.join(",")),
            SubnetChange::Detach(ids) => format!("-{}", ids.join(",")),
        };
        Ok(subnet_changes.iter().map(word).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_load_balancer_never_has_no_subnet_or_two_in_a_zone() {
        for (actual, wanted, expected) in [
            (&["a1"][..], &["a1"][..], ""),
            (&["a1"], &["a2", "b1"], "+b1 -a1 +a2"),
            (&["a1", "b1"], &["a2", "b1"], "-a1 +a2"),
            (&["a1", "b1", "c1"], &["a2"], "-a1 +a2 -b1,c1"),
            (&["a1", "b1"], &["a2", "b2"], "-a1 +a2 -b1 +b2"),
            (&["a1", "gone"], &["a2"], "-a1 +a2 -gone"),
            (&["a1", "b1"], &["c1"], "+c1 -a1,b1"),
        ] {
            assert_eq!(way(actual, wanted).as_deref(), Ok(expected), "{actual:?} to {wanted:?}");
        }
    }

    #[test]
    fn the_only_subnet_cannot_be_replaced_in_its_zone() {
        let error = way(&["a1"], &["a2"]).unwrap_err().to_string();
        assert!(
            error.contains("a1") && error.contains("a2") && error.contains("another zone"),
            "{error}"
        );
    }
}

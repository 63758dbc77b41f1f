//! Chooses subnets as the in-tree provider does.

use std::collections::{BTreeMap, BTreeSet};

use outrigger_aws::ec2::{AvailabilityZone, RouteTable, Subnet};
use outrigger_shared::tags;

use super::super::error::Environment;
use super::super::model::Vpc;
use super::super::settings::Settings;
use super::super::spec::names;
use super::super::spec::request::Subnets;
use crate::cloud_config::identity::region_of_zone;

/// The type of a zone that classic load balancers support.
const ORDINARY_ZONE: &str = "availability-zone";

const INTERNAL: &str = "internal";

/// Chooses one subnet in each zone. A role tag is a preference, never a condition; an internal load balancer takes
/// public and private subnets alike.
/// Fails when no subnet is suitable, or public and private ones cannot be told apart.
fn choose(
    vpc: &Vpc,
    internal: bool,
    settings: &Settings,
    attached: &BTreeSet<String>,
) -> Result<Vec<Subnet>, Environment> {
    let role = match internal {
        true => "kubernetes.io/role/internal-elb",
        false => "kubernetes.io/role/elb",
    };
    let rank = |subnet: &Subnet| {
        let no_role = !subnet.tags.contains_key(role);
        let no_cluster = !names::in_cluster(&subnet.tags, &settings.cluster_id);
        (no_role, no_cluster, subnet.id.clone())
    };

    let mut chosen: BTreeMap<&str, &Subnet> = BTreeMap::new();

    for subnet in usable(&vpc.subnets, settings) {
        let public = is_public(subnet, &vpc.route_tables)?;
        let zone = subnet.availability_zone.as_deref();
        let Some(zone) = zone.filter(|_| public || internal) else {
            continue;
        };

        let best = chosen.entry(zone).or_insert(subnet);
        if rank(subnet) < rank(best) {
            *best = subnet;
        }
    }

    let ordinary = |zone: &str| {
        let known = vpc.zones.iter().find(|known| known.name == zone);
        let kind = known.and_then(|known| known.zone_type.as_deref());
        kind.is_none_or(|kind| kind == ORDINARY_ZONE)
    };
    // An attached subnet in a local or wavelength zone stays: the in-tree provider chose it, and a migration must change
    // nothing.
    let chosen = chosen.into_iter();
    let chosen = chosen.filter(|(zone, subnet)| ordinary(zone) || attached.contains(&subnet.id));
    let chosen: Vec<Subnet> = chosen.map(|(_, subnet)| subnet.clone()).collect();

    match chosen.is_empty() {
        true => Err(none(internal, settings)),
        false => Ok(chosen),
    }
}

/// The listed subnets, or the chosen ones, of a load balancer with `attached` subnets.
/// Fails when none is suitable, or not all that are listed were found.
pub fn wanted(
    wanted: &Subnets,
    internal: bool,
    settings: &Settings,
    attached: &BTreeSet<String>,
    vpc: &Vpc,
) -> Result<Vec<Subnet>, Environment> {
    match wanted {
        Subnets::Discover => choose(vpc, internal, settings, attached),
        Subnets::Listed { ids, names } => {
            let by_id = |subnet: &&Subnet| ids.contains(&subnet.id);
            let wanted = |subnet: &&Subnet| by_id(subnet) || vpc.named.contains(&subnet.id);
            let listed = ids.len() + names.len();
            // A subnet listed by ID and by name counts twice, as in the in-tree provider, but is one.
            let found = vpc.subnets.iter().filter(by_id).count() + vpc.named.len();

            if found == listed {
                Ok(vpc.subnets.iter().filter(wanted).cloned().collect())
            } else {
                Err(Environment::SubnetsMissing { listed, found })
            }
        }
    }
}

/// Whether a load balancer is internal. An existing one keeps its scheme, which AWS never changes, and its subnets have
/// to fit it.
pub fn is_internal(scheme: Option<&str>, requested: bool) -> bool {
    scheme.map_or(requested, |scheme| scheme == INTERNAL)
}

/// The chosen subnets, and attached ones that are unchosen for the first time: those stay until a later observation
/// confirms it. While a route table is replaced, a public subnet looks private for a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    /// The wanted subnets for now, at most one in a zone.
    pub wanted: Vec<Subnet>,
    /// Attached subnets that are not chosen.
    pub unconfirmed: BTreeSet<String>,
}

/// Keeps attached subnets that are not `chosen`, unless an earlier observation has not chosen them either. `all` has
/// the zones.
pub fn confirmed(
    chosen: Vec<Subnet>,
    attached: &BTreeSet<String>,
    unchosen_before: &BTreeSet<String>,
    all: &[Subnet],
) -> Confirmed {
    let is_chosen = |id: &String| chosen.iter().any(|subnet| subnet.id == *id);
    let is_unconfirmed = |id: &&String| !is_chosen(id) && !unchosen_before.contains(*id);
    let unconfirmed: BTreeSet<String> = attached.iter().filter(is_unconfirmed).cloned().collect();
    let kept = all.iter().filter(|subnet| unconfirmed.contains(&subnet.id));
    let kept: Vec<Subnet> = kept.cloned().collect();

    let mut wanted = chosen;
    let in_zone_of = |kept: &Subnet, subnet: &Subnet| kept.availability_zone == subnet.availability_zone;
    let beside = |subnet: &Subnet| kept.iter().any(|kept| in_zone_of(kept, subnet));
    wanted.retain(|subnet| attached.contains(&subnet.id) || !beside(subnet));
    wanted.extend(kept);

    Confirmed { wanted, unconfirmed }
}

fn none(internal: bool, settings: &Settings) -> Environment {
    let (scheme, public) = match internal {
        true => ("an internal", ""),
        false => ("an internet-facing", "give them a route to an internet gateway, "),
    };
    Environment::NoSubnets {
        vpc: settings.vpc_id.clone(),
        scheme,
        cluster: settings.cluster_id.clone(),
        public,
    }
}

/// The subnets of the cluster and of no cluster; if there are none, the manager's own.
fn usable<'a>(subnets: &'a [Subnet], settings: &Settings) -> Vec<&'a Subnet> {
    let of_cluster = |subnet: &Subnet| names::in_cluster(&subnet.tags, &settings.cluster_id);
    let of_none = |subnet: &Subnet| !subnet.tags.keys().any(|key| key.starts_with(tags::CLUSTER_PREFIX));
    let ours = subnets.iter().filter(|subnet| of_cluster(subnet) || of_none(subnet));
    let ours: Vec<&Subnet> = ours.collect();
    if !ours.is_empty() {
        return ours;
    }

    let own = settings.own_subnet_id.as_ref();
    subnets.iter().filter(|subnet| own == Some(&subnet.id)).collect()
}

/// Whether a subnet's route table, its own or else the main one, has an internet gateway.
fn is_public(subnet: &Subnet, tables: &[RouteTable]) -> Result<bool, Environment> {
    let own = tables.iter().rfind(|table| table.subnet_ids.contains(&subnet.id));
    let table = own.or_else(|| tables.iter().find(|table| table.main));
    let table = table.ok_or_else(|| Environment::NoRouteTable {
        subnet: subnet.id.clone(),
    })?;
    Ok(table.gateway_ids.iter().any(|gateway| gateway.starts_with("igw")))
}

pub fn unknown_zones<'a>(subnets: &'a [Subnet], zones: &[AvailabilityZone]) -> BTreeSet<&'a str> {
    let known: BTreeSet<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    let of_subnets = subnets.iter().filter_map(|subnet| subnet.availability_zone.as_deref());
    of_subnets.filter(|zone| !known.contains(zone)).collect()
}

/// The zone of this name, with the type that the name tells: `us-east-1a`, local `us-east-1-bos-1a`, wavelength
/// `us-east-1-wl1-bos-wlz-1` or `eu-west-3-cmn-wlz-1a`. Without a type, for a name of another form.
///
/// <https://docs.aws.amazon.com/local-zones/latest/ug/available-local-zones.html>,
/// <https://docs.aws.amazon.com/wavelength/latest/developerguide/available-wavelength-zones.html>
pub fn zone_by_name(name: &str) -> AvailabilityZone {
    let beyond_region = region_of_zone(name).and_then(|region| name.strip_prefix(region));
    let zone_type = beyond_region.and_then(|rest| match rest.strip_prefix('-') {
        Some(group) if group.split('-').any(|word| word == "wlz") => Some("wavelength-zone"),
        Some(_) => Some("local-zone"),
        None => (rest.len() == 1).then_some(ORDINARY_ZONE),
    });

    AvailabilityZone {
        name: name.to_owned(),
        id: None,
        zone_type: zone_type.map(str::to_owned),
    }
}

/// One change in the order of attaching and detaching. A load balancer has at most one subnet in a zone and at least one
/// in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetChange {
    Attach(Vec<String>),
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

    fn subnet(id: &str, zone: &str, keys: &[&str]) -> Subnet {
        Subnet {
            id: id.into(),
            vpc_id: Some("vpc-1".into()),
            availability_zone: Some(zone.into()),
            cidr_block: None,
            tags: keys.iter().map(|key| ((*key).to_owned(), String::new())).collect(),
        }
    }

    fn tables(private: &[&str]) -> Vec<RouteTable> {
        vec![
            RouteTable {
                id: "main".into(),
                main: true,
                gateway_ids: vec!["local".into(), "igw-1".into()],
                ..Default::default()
            },
            RouteTable {
                id: "private".into(),
                subnet_ids: private.iter().map(|id| (*id).to_owned()).collect(),
                gateway_ids: vec!["local".into()],
                ..Default::default()
            },
        ]
    }

    fn chosen(
        subnets: &[Subnet],
        private: &[&str],
        internal: bool,
        attached: &[&str],
    ) -> Result<Vec<String>, Environment> {
        let zones = [
            ("a", ORDINARY_ZONE),
            ("b", ORDINARY_ZONE),
            ("lax", "local-zone"),
            ("wlz", "wavelength-zone"),
        ];
        let zones = zones.map(|(name, kind)| AvailabilityZone {
            name: name.into(),
            id: None,
            zone_type: Some(kind.into()),
        });
        let attached = attached.iter().map(|id| (*id).to_owned()).collect();
        let settings = Settings {
            vpc_id: "vpc-1".into(),
            cluster_id: "prod".into(),
            own_subnet_id: Some("own".into()),
            ..Settings::default()
        };
        let vpc = Vpc {
            subnets: subnets.to_vec(),
            route_tables: tables(private),
            zones: zones.into(),
            named: BTreeSet::new(),
        };
        choose(&vpc, internal, &settings, &attached).map(|s| s.into_iter().map(|s| s.id).collect())
    }

    const PROD: &str = "kubernetes.io/cluster/prod";
    const ELB: &str = "kubernetes.io/role/elb";
    const INTERNAL: &str = "kubernetes.io/role/internal-elb";

    #[test]
    fn one_subnet_per_zone_by_role_then_cluster_tag_then_id() {
        let of = |subnets: &[Subnet], internal| chosen(subnets, &[], internal, &[]).unwrap();
        assert_eq!(
            of(
                &[subnet("s3", "a", &[PROD, INTERNAL]), subnet("s1", "a", &[ELB])],
                false
            ),
            ["s1"]
        );
        assert_eq!(of(&[subnet("s1", "a", &[]), subnet("s2", "a", &[PROD])], false), ["s2"]);
        assert_eq!(
            of(&[subnet("s2", "a", &[PROD]), subnet("s1", "a", &[PROD])], false),
            ["s1"]
        );
        assert_eq!(
            of(&[subnet("s1", "b", &[PROD]), subnet("s2", "a", &[])], false),
            ["s2", "s1"]
        );
        assert_eq!(
            of(
                &[subnet("s1", "a", &[PROD, ELB]), subnet("s2", "a", &[PROD, INTERNAL])],
                true
            ),
            ["s2"]
        );
    }

    #[test]
    fn private_subnets_serve_internal_load_balancers_only() {
        let private = [subnet("s1", "a", &[PROD])];
        assert!(matches!(
            chosen(&private, &["s1"], false, &[]),
            Err(Environment::NoSubnets { .. })
        ));
        assert_eq!(chosen(&private, &["s1"], true, &[]).unwrap(), ["s1"]);
    }

    #[test]
    fn subnets_of_other_clusters_do_not_count_and_the_own_one_is_the_last_resort() {
        let other = "kubernetes.io/cluster/other";
        assert_eq!(
            chosen(
                &[subnet("s1", "a", &[other]), subnet("s2", "b", &[PROD])],
                &[],
                false,
                &[]
            )
            .unwrap(),
            ["s2"]
        );
        assert_eq!(
            chosen(
                &[subnet("s1", "a", &[other]), subnet("own", "b", &[other])],
                &[],
                false,
                &[]
            )
            .unwrap(),
            ["own"]
        );
    }

    #[test]
    fn local_zones_are_left_out_unless_the_load_balancer_stands_there() {
        let subnets = [
            subnet("s1", "a", &[]),
            subnet("s2", "lax", &[]),
            subnet("s3", "wlz", &[]),
            subnet("s4", "new", &[]),
        ];
        assert_eq!(chosen(&subnets, &[], false, &[]).unwrap(), ["s1", "s4"]);
        assert_eq!(chosen(&subnets, &[], false, &["s2"]).unwrap(), ["s1", "s2", "s4"]);
    }

    #[test]
    fn the_type_of_a_zone_is_derived_from_its_name() {
        for (name, wanted) in [
            ("us-east-1a", Some("availability-zone")),
            ("us-gov-west-1b", Some("availability-zone")),
            ("us-iso-east-1c", Some("availability-zone")),
            ("eusc-de-east-1a", Some("availability-zone")),
            ("us-east-1-bos-1a", Some("local-zone")),
            ("ap-southeast-2-akl-1a", Some("local-zone")),
            ("us-east-1-wl1-bos-wlz-1", Some("wavelength-zone")),
            ("eu-west-3-cmn-wlz-1a", Some("wavelength-zone")),
            ("us-east-1", None),
            ("nova", None),
            ("", None),
        ] {
            assert_eq!(zone_by_name(name).zone_type.as_deref(), wanted, "{name}");
        }
    }

    #[test]
    fn an_attached_subnet_stays_until_it_is_unchosen_twice() {
        let [s1, s2, s3, s4] =
            [("s1", "a"), ("s2", "b"), ("s3", "a"), ("s4", "c")].map(|(id, zone)| subnet(id, zone, &[]));
        let all = [s1, s2.clone(), s3.clone(), s4.clone()];
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let now = |before: &[&str]| {
            let chosen = vec![s2.clone(), s3.clone(), s4.clone()];
            let confirmed = confirmed(chosen, &ids(&["s1", "s2"]), &ids(before), &all);
            let wanted: BTreeSet<String> = confirmed.wanted.iter().map(|subnet| subnet.id.clone()).collect();
            (wanted, confirmed.unconfirmed)
        };
        assert_eq!(now(&[]), (ids(&["s1", "s2", "s4"]), ids(&["s1"])));
        assert_eq!(now(&["s1"]), (ids(&["s2", "s3", "s4"]), ids(&[])));
    }

    #[test]
    fn the_scheme_of_a_load_balancer_that_exists_counts() {
        assert!(is_internal(Some("internal"), false));
        assert!(!is_internal(Some("internet-facing"), true));
        assert!(is_internal(None, true));
    }

    /// A subnet whose zone is the first letter of its ID.
    fn in_zone(id: &str) -> Subnet {
        Subnet {
            id: id.into(),
            vpc_id: None,
            availability_zone: id.get(..1).map(str::to_owned),
            cidr_block: None,
            tags: outrigger_aws::Tags::new(),
        }
    }

    /// The changes as words: `+` is attached, `-` is detached.
    fn way(actual: &[&str], wanted: &[&str]) -> Result<String, Environment> {
        let all: Vec<Subnet> = ["a1", "a2", "b1", "b2", "c1"].map(in_zone).into();
        let wanted: Vec<Subnet> = wanted.iter().map(|id| in_zone(id)).collect();
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

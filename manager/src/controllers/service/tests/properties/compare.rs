//! Comparing two states of AWS, one line for each thing, so that a failure shows what differs and nothing else.

use std::collections::BTreeSet;

use outrigger_aws::ec2::{IpPermission, IpRange, SecurityGroup};
use outrigger_aws::fake::World;
use proptest::test_runner::TestCaseError;

use super::super::super::spec::names::{CLIENT_RULE, HEALTH_RULE, MTU_RULE, rule};
use super::super::fixture::LB;
use super::case::Case;
use super::edits::own_groups;
use super::network_edits;
use super::run::Verdict;

/// The Service's resources at these moments of a run.
#[derive(Debug, Default)]
pub struct Ours {
    /// Groups that its load balancer may speak from: its own, wherever the run makes it, and listed ones.
    pub sources: BTreeSet<String>,
    /// Groups that were made for its load balancer, and are not said to be somebody else's.
    pub groups: BTreeSet<String>,
    /// Target groups that its load balancer uses or that are tagged as its own, and that were not made by hand.
    pub target_groups: BTreeSet<String>,
}

impl Ours {
    /// The resources of a Service that requests a load balancer.
    pub fn of(case: &Case, worlds: &[&World]) -> Self {
        let mut ours = Self::owned_resources(worlds);
        // A tag without a value is made good, as if it were not there.
        let untagged = |id: &String| worlds.iter().any(|world| has_empty_tag(world, id));
        ours.groups
            .extend(worlds.iter().copied().flat_map(own_groups).filter(untagged));
        ours.sources.extend(worlds.iter().copied().flat_map(own_groups));
        ours.sources.extend(case.wish.listed_groups());
        ours.sources.extend(case.settings.elb_security_group.clone());
        ours
    }

    /// The resources of a Service that is deleted: a group that is tagged for others stays, whatever its name.
    pub fn owned_resources(worlds: &[&World]) -> Self {
        let mut ours = Self::default();
        for world in worlds.iter().copied() {
            let own = own_groups(world).into_iter();
            let used = network_edits::target_groups(world).into_iter();
            ours.target_groups.extend(used.filter(|arn| !by_hand(arn)));
            ours.groups
                .extend(own.filter(|id| !is_foreign(&world.security_groups[id])));
        }
        ours.sources.clone_from(&ours.groups);
        ours
    }

    fn is_rule_of(&self, permission: &IpPermission) -> bool {
        let mut sources = permission.groups.iter().filter_map(|pair| pair.group_id.as_ref());
        let described = |range: &IpRange| {
            let text = range.description.as_deref().unwrap_or_default();
            text == MTU_RULE || [CLIENT_RULE, HEALTH_RULE].iter().any(|kind| text == rule(kind, LB))
        };
        sources.any(|source| self.sources.contains(source)) || permission.ranges.iter().any(described)
    }
}

/// Whether a target group was made by hand, by its ARN or the end of it.
pub fn by_hand(arn: &str) -> bool {
    arn.contains(&format!("targetgroup/{}", network_edits::BY_HAND))
}

fn has_empty_tag(world: &World, id: &str) -> bool {
    let group = world.security_groups.get(id);
    group.is_some_and(|group| {
        group
            .tags
            .get("kubernetes.io/cluster/prod")
            .is_some_and(String::is_empty)
    })
}

fn is_foreign(group: &SecurityGroup) -> bool {
    let tag = |key: &str| group.tags.get(key).map(String::as_str);
    let ours = tag("kubernetes.io/cluster/prod") == Some("owned") || tag("KubernetesCluster") == Some("prod");
    let tagged = |key: &String| key.starts_with("kubernetes.io/cluster/") || key == "KubernetesCluster";
    !ours && group.tags.keys().any(tagged)
}

/// The account without the Service's resources.
pub fn others(mut world: World, ours: &Ours) -> World {
    world.load_balancers.remove(LB);
    if let Some(arn) = network_edits::balancer(&world) {
        world.network.load_balancers.remove(&arn);
        world
            .network
            .listeners
            .retain(|_, listener| listener.load_balancer != arn);
    }
    world
        .network
        .target_groups
        .retain(|arn, _| !ours.target_groups.contains(arn));
    world.security_groups.retain(|id, _| !ours.groups.contains(id));
    for group in world.security_groups.values_mut() {
        group.ingress.retain(|rule| !ours.is_rule_of(rule));
    }
    world
}

/// One line for each resource. Counters are left out, and numbered resources are listed by name.
fn lines(world: &World) -> BTreeSet<String> {
    let mut lines: BTreeSet<String> = BTreeSet::new();
    let mut rest = world.clone();
    for mut group in std::mem::take(&mut rest.security_groups).into_values() {
        for mut rule in std::mem::take(&mut group.ingress) {
            rule.groups.iter_mut().for_each(|pair| pair.user_id = None);
            lines.insert(format!("rule of {:?}: {rule:?}", group.id));
        }
        lines.insert(format!("{group:?}"));
    }
    for mut lb in std::mem::take(&mut rest.load_balancers).into_values() {
        lb.described.listeners.sort();
        lines.insert(format!("{lb:?}"));
    }
    let network = &mut rest.network;
    network.made.clear();
    for mut lb in std::mem::take(&mut network.load_balancers).into_values() {
        (lb.provisioning, lb.described.state) = (0, None);
        lines.insert(format!("{lb:?}"));
    }
    let listeners = std::mem::take(&mut network.listeners);
    lines.extend(listeners.into_iter().map(|listener| format!("{listener:?}")));
    for mut group in std::mem::take(&mut network.target_groups).into_values() {
        if by_hand(&group.described.arn) {
            // Its targets depend on how long a listener has forwarded to it.
            lines.insert(group.described.arn);
            continue;
        }
        group.draining.clear();
        lines.insert(format!("{group:?}"));
    }
    (rest.groups_made, rest.lingering) = (0, std::collections::BTreeMap::new());
    lines.insert(format!("{rest:?}"));
    let name = |id: &String| world.security_groups[id].name.clone().unwrap_or_default();
    let renamed: Vec<(String, String)> = own_groups(world)
        .iter()
        .map(|id| (format!("{id:?}"), format!("{:?}", name(id))))
        .collect();
    let rename = |line: String| renamed.iter().fold(line, |line, (id, name)| line.replace(id, name));
    lines.into_iter().map(|line| unnumbered(&rename(line))).collect()
}

/// The text without the numbers that end ARNs: what is made again has another one.
fn unnumbered(text: &str) -> String {
    let mut parts = text.split('/');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        plain.push('/');
        plain.push_str(part.get(digits..).filter(|_| digits == 16).unwrap_or(part));
    }
    plain
}

/// Fails where the two states differ, with the things that are in one of them only.
pub fn same(actual: &World, expected: &World, why: &str) -> Verdict {
    let (actual, expected) = (lines(actual), lines(expected));
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect::<Vec<_>>();
    if actual == expected {
        return Ok(());
    }
    let (more, less) = (only(&actual, &expected), only(&expected, &actual));
    Err(TestCaseError::fail(format!(
        "{why}\nthere is {more:#?}\nexpected {less:#?}"
    )))
}

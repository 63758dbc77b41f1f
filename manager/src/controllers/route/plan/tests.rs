use serde_json::json;

use super::*;
use crate::controllers::route::confirmation::MIN_AGE;

const CLUSTER: &str = "10.0.0.0/16";

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn cluster() -> ClusterRange {
    ClusterRange {
        cidr: net(CLUSTER),
        shortest_prefix: 20,
    }
}

fn member(name: &str, host: NodeHost, cidrs: &[&str]) -> Member {
    let node = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2024-01-01T00:00:00Z"}});
    Member {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        cidrs: cidrs.iter().map(|cidr| net(cidr)).collect(),
        host,
    }
}

fn on(id: &str) -> NodeHost {
    NodeHost::Instance(InstanceId::new(id))
}

fn to(id: &str) -> RouteTarget {
    RouteTarget::Instance(InstanceId::new(id))
}

fn route(cidr: &str, target: RouteTarget) -> Route {
    Route {
        destination: Some(cidr.into()),
        target,
        blackhole: false,
    }
}

fn dead(cidr: &str, target: RouteTarget) -> Route {
    Route {
        blackhole: true,
        ..route(cidr, target)
    }
}

fn table(id: &str, routes: Vec<Route>) -> RouteTable {
    RouteTable {
        id: id.into(),
        routes,
        ..RouteTable::default()
    }
}

fn world(routes: Vec<Route>, members: Vec<Member>, former: &[&str]) -> Observed {
    Observed {
        tables: vec![table("rtb-1", routes)],
        members,
        former: former.iter().map(|id| InstanceId::new(*id)).collect(),
    }
}

/// The plan of a second pass that sees the same: deletions are ripe.
fn settled(observed: &Observed) -> Plan {
    let (mut confirmations, start) = (Confirmations::default(), Instant::now());
    let first = plan(observed, cluster(), &mut confirmations, start);
    assert!(first.deletions.is_empty(), "nothing goes at first sight: {first:?}");
    plan(observed, cluster(), &mut confirmations, start + MIN_AGE)
}

/// Steps as `+cidr` and `~cidr`, deletions as `-cidr`, obstacles as `!`.
fn shape(observed: &Observed) -> Vec<String> {
    let plan = settled(observed);
    let steps = plan.node_plans.iter().flat_map(|work| &work.steps);
    let mut shape: Vec<String> = steps
        .map(|step| format!("{}{}", if step.replaces { "~" } else { "+" }, step.cidr))
        .collect();
    shape.extend(
        plan.node_plans
            .iter()
            .flat_map(|work| &work.obstacles)
            .map(|_| "!".to_owned()),
    );
    shape.extend(plan.deletions.iter().map(|deletion| format!("-{}", deletion.cidr)));
    shape.sort();
    shape
}

const MINE: &str = "10.0.1.0/24";
const OTHER: &str = "10.0.9.0/24";
const OUTSIDE: &str = "192.168.0.0/24";

/// Plans for Node a on i-1 with range MINE and Node b on i-2 without a range; i-former was a Node.
fn confirmed(case: &str, routes: Vec<Route>, wanted: &[&str]) {
    let members = vec![member("a", on("i-1"), &[MINE]), member("b", on("i-2"), &[])];
    assert_eq!(shape(&world(routes, members, &["i-former"])), wanted, "{case}");
}

fn eni() -> RouteTarget {
    RouteTarget::NetworkInterface("eni-1".into())
}

fn gateway() -> RouteTarget {
    RouteTarget::Other("pcx-1".into())
}

#[test]
fn a_wanted_range_leads_to_its_node_unless_someone_elses_route_is_there() {
    let led_back: &[&str] = &["~10.0.1.0/24"];
    let one = |route| vec![route];
    confirmed("missing", vec![], &["+10.0.1.0/24"]);
    confirmed("there", one(route(MINE, to("i-1"))), &[]);
    confirmed("its instance is stopped", one(dead(MINE, to("i-1"))), &[]);
    confirmed("leads to a former Node", one(route(MINE, to("i-former"))), led_back);
    confirmed("leads to another Node", one(route(MINE, to("i-2"))), led_back);
    confirmed("leads to a stranger", one(route(MINE, to("i-nat"))), &["!"]);
    confirmed("leads to a dead stranger", one(dead(MINE, to("i-nat"))), led_back);
    confirmed("leads to a dead interface", one(dead(MINE, eni())), led_back);
    confirmed("leads to an interface", one(route(MINE, eni())), &["!"]);
    confirmed("leads to a gateway", one(route(MINE, gateway())), &["!"]);
    confirmed("leads to a dead gateway", one(dead(MINE, gateway())), &["!"]);
}

#[test]
fn of_other_routes_only_those_of_the_cluster_and_in_its_range_go() {
    let beside = |other| vec![route(MINE, to("i-1")), other];
    let goes: &[&str] = &["-10.0.9.0/24"];
    confirmed("of a Node", beside(route(OTHER, to("i-1"))), goes);
    confirmed("of a former Node", beside(route(OTHER, to("i-former"))), goes);
    confirmed("of a stranger", beside(route(OTHER, to("i-nat"))), &[]);
    confirmed("dead", beside(dead(OTHER, eni())), goes);
    confirmed("dead gateway", beside(dead(OTHER, gateway())), &[]);
    confirmed("outside", beside(route(OUTSIDE, to("i-1"))), &[]);
    confirmed("dead outside", beside(dead(OUTSIDE, eni())), &[]);
    confirmed("all the world", beside(route("0.0.0.0/0", to("i-1"))), &[]);
}

#[test]
fn a_deletion_names_its_reason() {
    let other = [
        (to("i-1"), "its target is a Node that does not have its range"),
        (to("i-former"), "its target is an instance that is no longer a Node"),
    ];
    for (target, why) in other {
        let members = vec![member("a", on("i-1"), &[MINE])];
        let routes = vec![route(MINE, to("i-1")), route(OTHER, target)];
        let plan = settled(&world(routes, members, &["i-former"]));
        assert_eq!(
            plan.deletions.iter().map(|deletion| deletion.why).collect::<Vec<_>>(),
            [why]
        );
    }
}

#[test]
fn an_obstacle_names_the_target_of_the_route() {
    let targets = [
        (to("i-nat"), "to i-nat,"),
        (eni(), "to eni-1,"),
        (gateway(), "to pcx-1,"),
        (RouteTarget::Unknown, "to a target of unknown type,"),
    ];
    for (target, named) in targets {
        let members = vec![member("a", on("i-1"), &[MINE])];
        let plan = settled(&world(vec![route(MINE, target)], members, &[]));
        let obstacles = &plan.node_plans[0].obstacles;
        assert!(
            obstacles.len() == 1 && obstacles[0].contains(named),
            "{named} {obstacles:?}"
        );
    }
}

#[test]
fn a_range_concerns_the_cluster_if_it_begins_or_ends_there() {
    let cluster = net("10.1.0.0/16");
    for (cidr, concerned) in [
        ("10.1.2.0/24", true),
        ("10.1.0.0/16", true),
        ("10.0.0.0/15", true), // ends there
        ("10.0.0.0/8", false),
        ("10.2.0.0/16", false),
    ] {
        assert_eq!(concerns(cluster, net(cidr)), concerned, "{cidr}");
    }
    assert!(concerns(net("10.0.0.0/16"), net("10.0.0.0/15")), "begins there");
}

/// Four unwanted routes are a mass loss if they are more than a fifth of the cluster's routes.
#[test]
fn only_the_routes_of_the_cluster_in_its_range_count_for_a_mass_loss() {
    let wanted = |n: u8| format!("10.0.{n}.0/24");
    let with = |count: u8, others: Vec<Route>| {
        let ranges: Vec<String> = (0..count).map(wanted).collect();
        let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
        let mut routes: Vec<Route> = ranges.iter().map(|cidr| route(cidr, to("i-1"))).collect();
        routes.extend((100..104).map(|n| route(&wanted(n), to("i-former"))));
        routes.extend(others);
        let members = vec![member("a", on("i-1"), &ranges)];
        let plan = settled(&world(routes, members, &["i-former"]));
        (plan.deletions.len(), plan.deferred)
    };

    assert_eq!(with(16, vec![]), (4, 0));
    assert_eq!(with(15, vec![]), (0, 4));
    let others = vec![route(OUTSIDE, to("i-1")), route("10.0.200.0/24", to("i-nat"))];
    assert_eq!(with(15, others), (0, 4));
}

#[test]
fn routes_to_ipv6_ranges_and_prefix_lists_are_unmanaged() {
    let members = || vec![member("a", on("i-1"), &[MINE])];
    let mine = || route(MINE, to("i-1"));
    let prefix_list = Route {
        destination: None,
        ..dead(OTHER, to("i-1"))
    };
    let ipv6 = dead("fd00:10::/64", to("i-1"));
    assert!(shape(&world(vec![mine(), prefix_list, ipv6], members(), &[])).is_empty());

    let ipv4 = dead(OTHER, to("i-1"));
    assert_eq!(shape(&world(vec![mine(), ipv4], members(), &[])), [format!("-{OTHER}")]);
}

#[test]
fn every_table_gets_every_route() {
    let observed = Observed {
        tables: vec![
            table("rtb-1", vec![route("10.0.1.0/24", to("i-1"))]),
            table("rtb-2", vec![route("10.0.7.0/24", to("i-1"))]),
        ],
        members: vec![member("a", on("i-1"), &["10.0.1.0/24"])],
        ..Observed::default()
    };
    let plan = settled(&observed);
    assert_eq!(
        plan.node_plans[0].steps,
        [Step {
            table: "rtb-2".into(),
            cidr: net("10.0.1.0/24"),
            replaces: false
        }]
    );
    assert_eq!(plan.deletions.len(), 1);
    assert_eq!(plan.deletions[0].table, "rtb-2");
}

#[test]
fn while_a_nodes_instance_is_not_known_its_routes_stay() {
    let unknown = || vec![member("a", NodeHost::Unknown("throttled".into()), &["10.0.1.0/24"])];
    let there = world(vec![route("10.0.1.0/24", to("i-nat"))], unknown(), &["i-nat"]);
    let plan = settled(&there);
    assert!(plan.deletions.is_empty() && plan.node_plans[0].steps.is_empty() && plan.node_plans[0].waits.is_none());
    let missing = settled(&world(vec![], unknown(), &[]));
    assert_eq!(missing.node_plans[0].waits.as_deref(), Some("throttled"));
    assert!(missing.node_plans[0].steps.is_empty());
}

#[test]
fn an_instance_without_the_clusters_tag_gets_no_route_and_loses_none() {
    let stranger = |cidr| {
        member(
            "a",
            NodeHost::NotInCluster(InstanceId::new("i-nat"), "no tag".into()),
            &[cidr],
        )
    };
    let plan = settled(&world(vec![], vec![stranger(MINE)], &[]));
    assert!(plan.node_plans[0].steps.is_empty());
    assert_eq!(plan.node_plans[0].obstacles, ["no tag"]);
    let plan = settled(&world(vec![route(MINE, to("i-other"))], vec![stranger(MINE)], &[]));
    assert_eq!(plan.node_plans[0].obstacles, ["no tag"]);

    let routes = vec![route(MINE, to("i-nat")), route(OTHER, to("i-nat"))];
    let plan = settled(&world(routes, vec![stranger(MINE)], &[]));
    assert!(
        plan.deletions.is_empty() && plan.node_plans[0].obstacles.is_empty(),
        "{plan:?}"
    );
}

#[test]
fn a_range_goes_to_the_node_whose_instance_has_the_clusters_tag() {
    let stranger = member(
        "a",
        NodeHost::NotInCluster(InstanceId::new("i-nat"), "no tag".into()),
        &[MINE],
    );
    let members = vec![stranger, member("b", on("i-2"), &[MINE])];
    let plan = settled(&world(vec![route(MINE, to("i-nat"))], members, &[]));
    assert_eq!(plan.node_plans[0].kept.len(), 1, "the stranger's Node");
    assert!(plan.node_plans[0].steps.is_empty());
}

#[test]
fn nodes_that_do_not_run_on_ec2_are_left_alone_with_their_ranges() {
    let elsewhere = vec![member("a", NodeHost::NotOnEc2, &["10.0.1.0/24"])];
    let plan = settled(&world(vec![route("10.0.1.0/24", to("i-old"))], elsewhere, &["i-old"]));
    assert!(plan.deletions.is_empty() && plan.node_plans.is_empty());
}

#[test]
fn of_two_nodes_with_one_range_the_one_that_has_the_route_keeps_it() {
    let two = || {
        vec![
            member("a", on("i-1"), &["10.0.1.0/24"]),
            member("b", on("i-2"), &["10.0.1.0/24"]),
        ]
    };
    let with = |routes| settled(&world(routes, two(), &[]));
    let plan = with(vec![route("10.0.1.0/24", to("i-2"))]);
    assert!(
        plan.node_plans.iter().all(|work| work.steps.is_empty()),
        "no flapping: {plan:?}"
    );
    assert_eq!(plan.node_plans[0].obstacles.len(), 1);
    assert!(plan.node_plans[0].obstacles[0].contains("Node b"));
    let plan = with(vec![]);
    assert_eq!(
        (plan.node_plans[0].steps.len(), plan.node_plans[1].obstacles.len()),
        (1, 1),
        "else by name"
    );
}

#[test]
fn a_node_without_a_range_to_which_a_route_leads_is_told_apart() {
    let members = || vec![member("a", on("i-1"), &[])];
    let plan = settled(&world(vec![route("10.0.1.0/24", to("i-1"))], members(), &[]));
    assert!(plan.node_plans[0].has_no_range);
    assert!(settled(&world(vec![], members(), &[])).node_plans.is_empty());
}

/// A younger Node. A kubelet chooses the range of the Node that it creates.
fn joined(name: &str, id: &str, cidr: &str) -> Member {
    let node = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z"}});
    Member {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        ..member(name, on(id), &[cidr])
    }
}

#[test]
fn a_range_that_a_kubelet_may_not_choose_gets_no_route_and_the_node_says_why() {
    for (chosen, said) in [
        ("192.168.1.0/24", "is not inside of --cluster-cidr=10.0.0.0/16"),
        ("172.20.0.0/16", "is not inside of --cluster-cidr=10.0.0.0/16"),
        ("0.0.0.0/1", "is not inside of --cluster-cidr=10.0.0.0/16"),
        ("10.0.0.0/15", "is not inside of --cluster-cidr=10.0.0.0/16"),
        ("10.0.0.0/16", "overlaps with the range 10.0.1.0/24 of Node a"),
        ("10.0.1.0/24", "is also the range of Node a"),
        ("10.0.1.16/28", "overlaps with the range 10.0.1.0/24 of Node a"),
        ("10.0.1.255/32", "overlaps with the range 10.0.1.0/24 of Node a"),
        ("10.0.0.0/23", "overlaps with the range 10.0.1.0/24 of Node a"),
    ] {
        let members = vec![joined("evil", "i-9", chosen), member("a", on("i-1"), &[MINE])];
        for routes in [vec![], vec![route(MINE, to("i-1"))]] {
            let plan = settled(&world(routes.clone(), members.clone(), &[]));
            let evil = plan.node_plans.iter().find(|work| work.member == 0).unwrap();
            assert!(evil.steps.is_empty(), "{chosen}: {evil:?}");
            assert!(evil.obstacles[0].contains(said), "{chosen}: {evil:?}");

            let others = plan.node_plans.iter().filter(|work| work.member == 1);
            let steps: Vec<_> = others.flat_map(|work| &work.steps).map(|step| step.cidr).collect();
            let wanted: &[Ipv4Net] = if routes.is_empty() { &[net(MINE)] } else { &[] };
            assert_eq!(steps, wanted, "{chosen}");
        }
    }
}

/// An older version, or v1.37, may have created it. Its Node stays available, and says why.
#[test]
fn a_route_that_exists_for_a_refused_range_stays() {
    for chosen in ["192.168.1.0/24", "10.0.0.0/17", "10.0.1.16/28"] {
        let members = |host| {
            let refused = Member {
                host,
                ..joined("b", "i-2", chosen)
            };
            vec![refused, member("a", on("i-1"), &[MINE])]
        };
        let routes = |route| vec![super::tests::route(MINE, to("i-1")), route];
        let untagged = NodeHost::NotInCluster(InstanceId::new("i-2"), "no tag".into());
        for host in [on("i-2"), untagged] {
            for there in [route(chosen, to("i-2")), dead(chosen, to("i-2"))] {
                let observed = world(routes(there), members(host.clone()), &["i-2"]);
                assert!(shape(&observed).is_empty(), "{chosen}");
                let plan = settled(&observed);
                let work = plan.node_plans.iter().find(|work| work.member == 0).unwrap();
                assert_eq!(work.kept.len(), 1, "{chosen}: {work:?}");
            }
        }

        let unknown = world(
            routes(route(chosen, to("i-2"))),
            members(NodeHost::Unknown("throttled".into())),
            &["i-2"],
        );
        assert!(shape(&unknown).is_empty(), "{chosen}");
    }

    let members = vec![joined("b", "i-2", "10.0.1.16/28"), member("a", on("i-1"), &[MINE])];
    let elsewhere = vec![route(MINE, to("i-1")), route("10.0.1.16/28", to("i-3"))];
    assert_eq!(shape(&world(elsewhere, members, &["i-3"])), ["!", "-10.0.1.16/28"]);
}

/// Where Nodes have such ranges, they do not overlap.
#[test]
fn a_range_that_is_much_larger_than_a_nodes_comes_after_all_others() {
    let broad = || member("broad", on("i-9"), &["10.0.0.0/17"]);
    let alone = world(vec![], vec![broad()], &[]);
    assert_eq!(shape(&alone), ["+10.0.0.0/17"]);

    let beside = world(vec![], vec![broad(), joined("a", "i-1", MINE)], &[]);
    assert_eq!(shape(&beside), ["!", "+10.0.1.0/24"], "although its Node is older");
}

#[test]
fn of_many_ranges_no_two_that_overlap_get_routes() {
    let ranges: Vec<String> = (0..64_u8)
        .flat_map(|n| [24, 25, 22, 28].map(|prefix| format!("10.0.{}.{}/{prefix}", n / 2, n)))
        .collect();
    let member = |(at, cidr): (usize, &String)| {
        let id = format!("i-{at}");
        let cidr = net(cidr).trunc().to_string();
        member(&format!("node-{}", at * 7919 % 256), on(&id), &[&cidr])
    };
    let observed = world(vec![], ranges.iter().enumerate().map(member).collect(), &[]);
    let plan = settled(&observed);
    let routed: Vec<Ipv4Net> = plan
        .node_plans
        .iter()
        .flat_map(|work| &work.steps)
        .map(|step| step.cidr)
        .collect();
    assert!(routed.len() > 10, "{routed:?}");
    for (at, one) in routed.iter().enumerate() {
        for other in &routed[at + 1..] {
            assert!(!one.contains(other) && !other.contains(one), "{one} {other}");
        }
    }
    let refused = plan.node_plans.iter().filter(|work| !work.obstacles.is_empty());
    assert_eq!(refused.count() + routed.len(), ranges.len());
}

#[test]
fn an_empty_cluster_keeps_its_routes_for_a_minute() {
    let routes: Vec<Route> = (0..10)
        .map(|n| route(&format!("10.0.{n}.0/24"), to(&format!("i-{n}"))))
        .collect();
    let ids: Vec<String> = (0..10).map(|n| format!("i-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let plan = settled(&world(routes, vec![], &ids));
    assert!(plan.deletions.is_empty());
    assert_eq!(plan.deferred, 10);
}

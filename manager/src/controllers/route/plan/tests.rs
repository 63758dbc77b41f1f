use serde_json::json;

use super::*;
use crate::controllers::route::confirmation::APART;

const CLUSTER: &str = "10.0.0.0/16";

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn member(name: &str, host: Host, cidrs: &[&str]) -> Member {
    let node = json!({"metadata": {"name": name, "uid": name, "creationTimestamp": "2024-01-01T00:00:00Z"}});
    Member {
        node: Arc::new(serde_json::from_value(node).unwrap()),
        cidrs: cidrs.iter().map(|cidr| net(cidr)).collect(),
        host,
    }
}

fn on(id: &str) -> Host {
    Host::Instance(InstanceId::new(id))
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
    let (mut sightings, start) = (Sightings::default(), Instant::now());
    let first = plan(observed, net(CLUSTER), &mut sightings, start);
    assert!(first.deletions.is_empty(), "nothing goes at first sight: {first:?}");
    plan(observed, net(CLUSTER), &mut sightings, start + APART)
}

/// Steps as `+cidr` and `~cidr`, deletions as `-cidr`, obstacles as `!`.
fn shape(observed: &Observed) -> Vec<String> {
    let plan = settled(observed);
    let steps = plan.works.iter().flat_map(|work| &work.steps);
    let mut shape: Vec<String> = steps
        .map(|step| format!("{}{}", if step.replaces { "~" } else { "+" }, step.cidr))
        .collect();
    shape.extend(
        plan.works
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

/// What follows from routes for Node a on i-1 with range MINE and Node b on i-2 without; i-former was a Node.
fn judged(case: &str, routes: Vec<Route>, wanted: &[&str]) {
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
    judged("missing", vec![], &["+10.0.1.0/24"]);
    judged("there", one(route(MINE, to("i-1"))), &[]);
    judged("its instance is stopped", one(dead(MINE, to("i-1"))), &[]);
    judged("leads to a former Node", one(route(MINE, to("i-former"))), led_back);
    judged("leads to another Node", one(route(MINE, to("i-2"))), led_back);
    judged("leads to a stranger", one(route(MINE, to("i-nat"))), &["!"]);
    judged("leads to a dead stranger", one(dead(MINE, to("i-nat"))), led_back);
    judged("leads to a dead interface", one(dead(MINE, eni())), led_back);
    judged("leads to an interface", one(route(MINE, eni())), &["!"]);
    judged("leads to a gateway", one(route(MINE, gateway())), &["!"]);
    judged("leads to a dead gateway", one(dead(MINE, gateway())), &["!"]);
}

#[test]
fn of_other_routes_only_those_of_the_cluster_and_in_its_range_go() {
    let beside = |other| vec![route(MINE, to("i-1")), other];
    let goes: &[&str] = &["-10.0.9.0/24"];
    judged("of a Node", beside(route(OTHER, to("i-1"))), goes);
    judged("of a former Node", beside(route(OTHER, to("i-former"))), goes);
    judged("of a stranger", beside(route(OTHER, to("i-nat"))), &[]);
    judged("dead", beside(dead(OTHER, eni())), goes);
    judged("dead gateway", beside(dead(OTHER, gateway())), &[]);
    judged("outside", beside(route(OUTSIDE, to("i-1"))), &[]);
    judged("dead outside", beside(dead(OUTSIDE, eni())), &[]);
    judged("all the world", beside(route("0.0.0.0/0", to("i-1"))), &[]);
}

#[test]
fn ipv6_and_prefix_lists_are_no_ones_business() {
    let six = Route {
        target: to("i-1"),
        blackhole: true,
        ..Route::default()
    };
    assert!(shape(&world(vec![six], vec![member("a", on("i-1"), &[])], &[])).is_empty());
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
        plan.works[0].steps,
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
    let unknown = || vec![member("a", Host::Unknown("throttled".into()), &["10.0.1.0/24"])];
    let there = world(vec![route("10.0.1.0/24", to("i-nat"))], unknown(), &["i-nat"]);
    let plan = settled(&there);
    assert!(plan.deletions.is_empty() && plan.works[0].steps.is_empty() && plan.works[0].waits.is_none());
    let missing = settled(&world(vec![], unknown(), &[]));
    assert_eq!(missing.works[0].waits.as_deref(), Some("throttled"));
    assert!(missing.works[0].steps.is_empty());
}

#[test]
fn an_instance_without_the_clusters_tag_gets_no_route_and_loses_none() {
    let stranger = |cidr| {
        member(
            "a",
            Host::NotInCluster(InstanceId::new("i-nat"), "no tag".into()),
            &[cidr],
        )
    };
    let plan = settled(&world(vec![], vec![stranger(MINE)], &[]));
    assert!(plan.works[0].steps.is_empty());
    assert_eq!(plan.works[0].obstacles, ["no tag"]);

    let routes = vec![route(MINE, to("i-nat")), route(OTHER, to("i-nat"))];
    let plan = settled(&world(routes, vec![stranger(MINE)], &[]));
    assert!(
        plan.deletions.is_empty() && plan.works[0].obstacles.is_empty(),
        "{plan:?}"
    );
}

#[test]
fn a_range_goes_to_the_node_whose_instance_has_the_clusters_tag() {
    let stranger = member(
        "a",
        Host::NotInCluster(InstanceId::new("i-nat"), "no tag".into()),
        &[MINE],
    );
    let members = vec![stranger, member("b", on("i-2"), &[MINE])];
    let plan = settled(&world(vec![route(MINE, to("i-nat"))], members, &[]));
    assert_eq!(plan.works[0].obstacles.len(), 1, "the stranger's Node");
    assert!(plan.works[0].steps.is_empty());
}

#[test]
fn nodes_that_do_not_run_on_ec2_are_left_alone_with_their_ranges() {
    let elsewhere = vec![member("a", Host::Elsewhere, &["10.0.1.0/24"])];
    let plan = settled(&world(vec![route("10.0.1.0/24", to("i-old"))], elsewhere, &["i-old"]));
    assert!(plan.deletions.is_empty() && plan.works.is_empty());
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
        plan.works.iter().all(|work| work.steps.is_empty()),
        "no flapping: {plan:?}"
    );
    assert_eq!(plan.works[0].obstacles.len(), 1);
    assert!(plan.works[0].obstacles[0].contains("Node b"));
    let plan = with(vec![]);
    assert_eq!(
        (plan.works[0].steps.len(), plan.works[1].obstacles.len()),
        (1, 1),
        "else by name"
    );
}

#[test]
fn a_node_without_a_range_to_which_a_route_leads_is_told_apart() {
    let members = || vec![member("a", on("i-1"), &[])];
    let plan = settled(&world(vec![route("10.0.1.0/24", to("i-1"))], members(), &[]));
    assert!(plan.works[0].bare);
    assert!(settled(&world(vec![], members(), &[])).works.is_empty());
}

#[test]
fn a_range_outside_of_the_clusters_gets_its_route_and_keeps_what_is_there() {
    let outside = || vec![member("a", on("i-1"), &["192.168.1.0/24"])];
    assert_eq!(shape(&world(vec![], outside(), &[])), ["+192.168.1.0/24"]);
    let taken = vec![route("192.168.1.0/24", to("i-2"))];
    assert_eq!(shape(&world(taken, outside(), &["i-2"])), ["!"]);
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
    assert_eq!(plan.held, 10);
}

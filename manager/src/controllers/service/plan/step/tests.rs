//! Which steps depend on which, and what is known of each.

use super::super::super::spec::permissions::all_from;
use super::{ClassicStep as Classic, NetworkStep as Network, *};

const ARN: &str = "arn:aws:elasticloadbalancing:eu-central-1:1:targetgroup/k8s-web/0123";

fn revoke(group: &str) -> Step {
    GroupStep::Revoke(group.to_owned(), Vec::new()).into()
}

fn authorize(group: &str) -> Step {
    GroupStep::Authorize(GroupRef::Id(group.to_owned()), Vec::new()).into()
}

fn listener(port: i32) -> Listener {
    Listener {
        port,
        protocol: "tcp".to_owned(),
        instance_port: port + 30000,
        instance_protocol: "tcp".to_owned(),
        certificate: None,
    }
}

fn former(port: i32) -> FormerListener {
    FormerListener {
        listener: listener(port),
        policies: Vec::new(),
        backend_policies: Vec::new(),
    }
}

fn replace_listener(port: i32) -> Step {
    Classic::ReplaceListeners {
        old: vec![former(port)],
        new: vec![listener(port)],
    }
    .into()
}

fn change_certificate(port: i32) -> Step {
    Classic::SetCertificate {
        listener: former(port),
        certificate: "arn:new".to_owned(),
    }
    .into()
}

/// A step of [`steps_of_network`] or [`steps_of_classic`], by its name in the expectations.
type Named = (&'static str, Step);

fn new_group() -> Step {
    let new = NewSecurityGroup {
        name: "k8s-elb-a1".to_owned(),
        description: String::new(),
        vpc_id: "vpc-1".to_owned(),
        tags: Tags::new(),
    };
    GroupStep::Create(new).into()
}

fn let_in(from: GroupRef) -> Step {
    let node_group = "sg-1".to_owned();
    GroupStep::LetIn { node_group, from }.into()
}

fn widen(group: &str) -> Step {
    GroupStep::Widen(group.to_owned(), vec![all_from("sg-9")]).into()
}

fn narrow(group: &str) -> Step {
    GroupStep::Narrow(group.to_owned(), Change::default()).into()
}

fn given() -> GroupRef {
    GroupRef::Id("sg-9".to_owned())
}

fn created(name: &str) -> TargetGroupRef {
    TargetGroupRef::Created(name.to_owned())
}

fn change_targets(group: &str, add: &[&str], remove: &[&str]) -> Step {
    let targets = |ids: &[&str]| {
        let target = |id: &&str| Target {
            id: InstanceId::new(*id),
            port: 30080,
        };
        ids.iter().map(target).collect()
    };
    Network::ChangeTargets {
        group: created(group),
        add: targets(add),
        remove: targets(remove),
        needed: false,
    }
    .into()
}

fn modify_target_group(port: Option<&str>) -> Step {
    let change = HealthCheckChange {
        port: port.map(str::to_owned),
        ..HealthCheckChange::default()
    };
    Network::ModifyTargetGroup(ARN.to_owned(), change).into()
}

fn create_listener(port: i32, group: &str) -> Step {
    let listener = ListenerSettings {
        port,
        ..ListenerSettings::default()
    };
    Network::CreateListener {
        balancer: BalancerRef::Created,
        listener,
        group: created(group),
        tags: Tags::new(),
    }
    .into()
}

fn modify_listener(group: &str, moves: bool) -> Step {
    Network::ModifyListener {
        arn: "listener/80".to_owned(),
        listener: ListenerSettings::default(),
        group: created(group),
        moves,
    }
    .into()
}

fn create_network_balancer(group: GroupRef) -> Step {
    let (new, groups) = (NewNetworkLoadBalancer::default(), vec![group]);
    Network::CreateLoadBalancer { new, groups }.into()
}

fn create_classic_balancer(group: GroupRef) -> Step {
    let new = NewLoadBalancer {
        name: "a1".to_owned(),
        internal: false,
        listeners: vec![listener(80)],
        subnets: Vec::new(),
        security_groups: Vec::new(),
        tags: Tags::new(),
    };
    let groups = vec![group];
    Classic::CreateLoadBalancer { new, groups }.into()
}

fn steps_of_groups() -> Vec<Named> {
    vec![
        ("create group", new_group()),
        ("tag group", GroupStep::Tag("sg-1".to_owned(), Tags::new()).into()),
        (
            "add rules to new group",
            GroupStep::Authorize(GroupRef::Created, Vec::new()).into(),
        ),
        ("add rules to sg-1", authorize("sg-1")),
        ("let new group into sg-1", let_in(GroupRef::Created)),
        ("let sg-9 into sg-1", let_in(given())),
        ("revoke rules of sg-1", revoke("sg-1")),
        ("revoke rules of sg-2", revoke("sg-2")),
        ("let sg-9 into sg-1 by a claim", widen("sg-1")),
        ("narrow sg-1", narrow("sg-1")),
        ("narrow sg-2", narrow("sg-2")),
        ("delete group", GroupStep::Delete("sg-3".to_owned()).into()),
    ]
}

/// Every kind of step of a network load balancer, and one of a classic one.
fn steps_of_network() -> Vec<Named> {
    let target_group = |name: &str| {
        Step::from(Network::CreateTargetGroup(NewTargetGroup {
            name: name.to_owned(),
            ..NewTargetGroup::default()
        }))
    };
    let attributes = |name: &str| Network::ModifyTargetGroupAttributes(created(name), Attributes::new()).into();
    let balancer = || "lb/1".to_owned();
    let mut steps = steps_of_groups();
    steps.extend([
        (
            "create balancer in new group",
            create_network_balancer(GroupRef::Created),
        ),
        ("create balancer in sg-9", create_network_balancer(given())),
        (
            "set new group",
            Network::SetSecurityGroups(balancer(), vec![GroupRef::Created]).into(),
        ),
        ("set sg-9", Network::SetSecurityGroups(balancer(), vec![given()]).into()),
        (
            "modify balancer",
            Network::ModifyAttributes(BalancerRef::Created, Attributes::new()).into(),
        ),
        ("create k8s-web", target_group("k8s-web")),
        ("modify k8s-web", attributes("k8s-web")),
        ("change check", modify_target_group(None)),
        ("move check", modify_target_group(Some("30081"))),
        ("fill k8s-web", change_targets("k8s-web", &["i-1"], &["i-2"])),
        ("empty k8s-web", change_targets("k8s-web", &[], &["i-2"])),
        ("listen on 80 for k8s-web", create_listener(80, "k8s-web")),
        ("listen on 81 for k8s-api", create_listener(81, "k8s-api")),
        ("move listener to k8s-web", modify_listener("k8s-web", true)),
        ("move listener to k8s-api", modify_listener("k8s-api", true)),
        ("change listener of k8s-web", modify_listener("k8s-web", false)),
        (
            "delete listener 80",
            Network::DeleteListener {
                arn: "listener/80".to_owned(),
                port: 80,
            }
            .into(),
        ),
        ("delete k8s-web", Network::DeleteTargetGroup(ARN.to_owned()).into()),
        ("delete balancer", Network::DeleteLoadBalancer(balancer()).into()),
        ("add classic tags", Classic::AddTags(Tags::new()).into()),
    ]);
    steps
}

fn steps_of_policies() -> Vec<Named> {
    let policy = NewPolicy {
        name: "proxy".to_owned(),
        type_name: "ProxyProtocolPolicyType".to_owned(),
        attributes: std::collections::BTreeMap::new(),
    };
    let named = || vec!["proxy".to_owned()];
    vec![
        ("create policy", Classic::CreatePolicy(policy).into()),
        (
            "set policy of backend 30080",
            Classic::SetBackendPolicies(30080, named()).into(),
        ),
        (
            "clear policies of backend 30081",
            Classic::SetBackendPolicies(30081, Vec::new()).into(),
        ),
        (
            "set policy of listener 80",
            Classic::SetListenerPolicies(80, named()).into(),
        ),
        (
            "clear policies of listener 81",
            Classic::SetListenerPolicies(81, Vec::new()).into(),
        ),
    ]
}

/// Every kind of step of a classic load balancer, and one of a network load balancer.
fn steps_of_classic() -> Vec<Named> {
    let instances = || vec![InstanceId::new("i-1")];
    let subnets = || vec!["subnet-1".to_owned()];
    let register = Classic::Register {
        instances: instances(),
        needed: false,
    };
    let mut steps = [steps_of_groups(), steps_of_policies()].concat();
    steps.extend([
        (
            "create balancer in new group",
            create_classic_balancer(GroupRef::Created),
        ),
        ("create balancer in sg-9", create_classic_balancer(given())),
        ("attach subnet", Classic::AttachSubnets(subnets()).into()),
        ("detach subnet", Classic::DetachSubnets(subnets()).into()),
        ("apply new group", Classic::ApplyGroups(vec![GroupRef::Created]).into()),
        ("apply sg-9", Classic::ApplyGroups(vec![given()]).into()),
        ("add tags", Classic::AddTags(Tags::new()).into()),
        ("delete listener 80", Classic::DeleteListeners(vec![80]).into()),
        (
            "create listener 80",
            Classic::CreateListeners(vec![listener(80)]).into(),
        ),
        (
            "create listener 81",
            Classic::CreateListeners(vec![listener(81)]).into(),
        ),
        ("replace listener 80", replace_listener(80)),
        ("change certificate", change_certificate(80)),
        (
            "modify balancer",
            Classic::ModifyAttributes(elb::Attributes::default()).into(),
        ),
        (
            "change check",
            Classic::ConfigureHealthCheck(HealthCheck::default()).into(),
        ),
        ("register", register.into()),
        ("deregister", Classic::Deregister(instances()).into()),
        ("delete balancer", Classic::DeleteLoadBalancer.into()),
        (
            "delete network listener",
            Network::DeleteListener {
                arn: "listener/80".to_owned(),
                port: 80,
            }
            .into(),
        ),
    ]);
    steps
}

fn names_where(steps: &[Named], wanted: impl Fn(&Step) -> bool) -> Vec<&'static str> {
    let found = steps.iter().filter(|(_, step)| wanted(step));
    found.map(|(name, _)| *name).collect()
}

/// Compares the steps that depend on each step with the expected ones. Steps without an expectation have no dependent ones.
#[track_caller]
fn assert_dependent(steps: &[Named], expected: &[(&str, &[&[&str]])]) {
    for (omitted, step) in steps {
        let mut dependent = names_where(steps, |other| other.depends_on(step));
        let wanted = expected.iter().find(|(name, _)| name == omitted);
        let mut wanted = wanted.map(|(_, names)| names.concat()).unwrap_or_default();
        dependent.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(dependent, wanted, "without {omitted:?}");
    }

    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    let all = expected
        .iter()
        .flat_map(|(name, others)| others.iter().copied().flatten().chain([name]));
    assert_eq!(
        all.filter(|name| !names.contains(name)).collect::<Vec<_>>(),
        [&""; 0],
        "unknown names"
    );
}

/// Steps that remove access: after them, traffic and checks of the present state may be blocked.
const REMOVE_ACCESS: &[&str] = &[
    "revoke rules of sg-1",
    "revoke rules of sg-2",
    "narrow sg-1",
    "narrow sg-2",
    "delete group",
];

/// Steps that name the new group, for both kinds of load balancers.
const USE_NEW_GROUP: &[&str] = &[
    "add rules to new group",
    "let new group into sg-1",
    "create balancer in new group",
];

const REPLACE_RULES_OF_SG_1: &[&str] = &["revoke rules of sg-1", "narrow sg-1"];

const REMOVE_LISTENER: &[&str] = &["delete listener 80", "replace listener 80"];

const MOVE_LISTENER: &[&str] = &["move listener to k8s-web", "move listener to k8s-api"];

#[test]
fn a_denied_action_of_a_network_load_balancer_stops_only_the_steps_that_depend_on_it() {
    let steps = steps_of_network();
    let names = names_where(&steps, |_| true);
    let (classic, all_of_network) = names.split_last().expect("a step");
    assert_eq!(*classic, "add classic tags");
    let of_k8s_web: &[&str] = &[
        "modify k8s-web",
        "fill k8s-web",
        "empty k8s-web",
        "listen on 80 for k8s-web",
        "move listener to k8s-web",
        "change listener of k8s-web",
    ];
    let needs_replacement: &[&[&str]] = &[REPLACE_RULES_OF_SG_1, MOVE_LISTENER];
    let without_move: &[&[&str]] = &[REMOVE_ACCESS, &["delete k8s-web"]];

    assert_dependent(
        &steps,
        &[
            ("create group", &[USE_NEW_GROUP, &["set new group"]]),
            ("add rules to new group", &[MOVE_LISTENER, &["set new group"]]),
            ("add rules to sg-1", needs_replacement),
            (
                "let new group into sg-1",
                &[REPLACE_RULES_OF_SG_1, MOVE_LISTENER, &["set new group"]],
            ),
            (
                "let sg-9 into sg-1",
                &[REPLACE_RULES_OF_SG_1, MOVE_LISTENER, &["set sg-9"]],
            ),
            (
                "let sg-9 into sg-1 by a claim",
                &[REPLACE_RULES_OF_SG_1, MOVE_LISTENER, &["set sg-9"]],
            ),
            ("create balancer in new group", &[&names]),
            ("create balancer in sg-9", &[&names]),
            ("delete balancer", &[all_of_network]),
            ("set new group", &[REMOVE_ACCESS]),
            ("set sg-9", &[REMOVE_ACCESS]),
            ("create k8s-web", &[of_k8s_web]),
            ("modify k8s-web", &[&["move listener to k8s-web"]]),
            // The old port is still checked.
            ("move check", &[REMOVE_ACCESS]),
            (
                "fill k8s-web",
                &[REMOVE_ACCESS, &["listen on 80 for k8s-web", "move listener to k8s-web"]],
            ),
            // A target that is not deregistered still gets traffic.
            ("empty k8s-web", &[REMOVE_ACCESS]),
            // The old listener serves instead.
            ("listen on 80 for k8s-web", &[&["delete listener 80"]]),
            ("listen on 81 for k8s-api", &[&["delete listener 80"]]),
            // The old target group still serves.
            ("move listener to k8s-web", without_move),
            ("move listener to k8s-api", without_move),
            // AWS allows one listener for each port, and deletes no target group that a listener uses.
            (
                "delete listener 80",
                &[REMOVE_ACCESS, &["delete k8s-web", "listen on 80 for k8s-web"]],
            ),
            // AWS allows one target group of a name.
            ("delete k8s-web", &[&["create k8s-web"]]),
        ],
    );
}

#[test]
fn a_denied_action_of_a_classic_load_balancer_stops_only_the_steps_that_depend_on_it() {
    let steps = steps_of_classic();
    let names = names_where(&steps, |_| true);
    let (network, all_of_classic) = names.split_last().expect("a step");
    assert_eq!(*network, "delete network listener");
    let needs_replacement: &[&[&str]] = &[REPLACE_RULES_OF_SG_1, REMOVE_LISTENER];

    assert_dependent(
        &steps,
        &[
            ("create group", &[USE_NEW_GROUP, &["apply new group"]]),
            ("add rules to new group", &[&["apply new group"]]),
            ("add rules to sg-1", needs_replacement),
            (
                "let new group into sg-1",
                &[REPLACE_RULES_OF_SG_1, REMOVE_LISTENER, &["apply new group"]],
            ),
            (
                "let sg-9 into sg-1",
                &[REPLACE_RULES_OF_SG_1, REMOVE_LISTENER, &["apply sg-9"]],
            ),
            (
                "let sg-9 into sg-1 by a claim",
                &[REPLACE_RULES_OF_SG_1, REMOVE_LISTENER, &["apply sg-9"]],
            ),
            ("create balancer in new group", &[&names]),
            ("create balancer in sg-9", &[&names]),
            ("delete balancer", &[all_of_classic]),
            // AWS allows one subnet for each zone.
            ("attach subnet", &[&["detach subnet"]]),
            ("detach subnet", &[&["attach subnet"]]),
            ("apply new group", &[REMOVE_ACCESS]),
            ("apply sg-9", &[REMOVE_ACCESS]),
            // AWS accepts policies only for the ports of listeners that exist, and of their backends.
            (
                "create listener 80",
                &[&["set policy of backend 30080", "set policy of listener 80"]],
            ),
            (
                "replace listener 80",
                &[&["set policy of backend 30080", "set policy of listener 80"]],
            ),
            (
                "create listener 81",
                &[&["clear policies of backend 30081", "clear policies of listener 81"]],
            ),
            (
                "create policy",
                &[&["set policy of backend 30080", "set policy of listener 80"]],
            ),
            ("register", &[REMOVE_ACCESS, &["deregister"]]),
            ("deregister", &[REMOVE_ACCESS]),
            // Of a network load balancer, with the same rules as above.
            ("delete network listener", &[REMOVE_ACCESS]),
        ],
    );
}

#[test]
fn steps_that_create_or_delete_the_load_balancer_and_steps_of_targets_are_known() {
    let created = ["create balancer in new group", "create balancer in sg-9"];
    let network = steps_of_network();
    assert_eq!(names_where(&network, Step::creates_balancer), created);
    assert_eq!(names_where(&network, Step::deletes_balancer), ["delete balancer"]);
    assert_eq!(
        names_where(&network, Step::is_of_targets),
        ["fill k8s-web", "empty k8s-web"]
    );

    let classic = steps_of_classic();
    assert_eq!(names_where(&classic, Step::creates_balancer), created);
    assert_eq!(names_where(&classic, Step::deletes_balancer), ["delete balancer"]);
    assert_eq!(names_where(&classic, Step::is_of_targets), ["register", "deregister"]);
}

#[test]
fn each_step_of_a_network_load_balancer_has_the_name_of_its_aws_action() {
    let steps = steps_of_network();
    let is_of_network = |step: &&Step| matches!(step, Step::Network(_));
    let mut actions: Vec<&str> = steps
        .iter()
        .map(|(_, step)| step)
        .filter(is_of_network)
        .map(Step::action)
        .collect();
    actions.dedup();
    let expected = [
        "CreateLoadBalancer",
        "SetSecurityGroups",
        "ModifyLoadBalancerAttributes",
        "CreateTargetGroup",
        "ModifyTargetGroupAttributes",
        "ModifyTargetGroup",
        "RegisterTargets",
        // Nothing is added.
        "DeregisterTargets",
        "CreateListener",
        "ModifyListener",
        "DeleteListener",
        "DeleteTargetGroup",
        "DeleteLoadBalancer",
    ];
    assert_eq!(actions, expected);
}

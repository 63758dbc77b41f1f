use serde_json::{Value, json};

use super::super::super::case::Case;
use super::super::super::outcome::Outcome;
use super::problems;

const ENSURED: &str = "Normal EnsuredLoadBalancer of c: m";
const FAILED: &str = "Warning SyncLoadBalancerFailed of c: m: m: m";

fn step(label: &str, event: &str, writes: &[&str], aws: Value) -> Outcome {
    let service = json!({"finalizers": []});
    let outcome = json!({
        "step": label, "events": [event], "writes": writes, "reads": 1, "aws": aws, "service": service,
    });
    serde_json::from_value(outcome).expect("an outcome")
}

fn both(update: Outcome) -> Vec<Outcome> {
    let create = step("1 create", ENSURED, &["A x"], json!({"lb": {"scheme": "internal"}}));
    vec![create, update]
}

fn found(theirs: Vec<Outcome>, ours: &[Outcome]) -> Vec<String> {
    let text = "about: a\nservice: {}\nsteps: [{do: create}, {do: update, patch: {spec: {}}}]\n";
    let mut case: Case = serde_saphyr::from_str(text).expect("a case");
    case.recorded = Some(theirs);
    problems(&case, ours)
        .iter()
        .map(|problem| format!("{} {}", problem.step, problem.field))
        .collect()
}

#[test]
fn where_both_ensured_the_order_of_writes_does_not_matter_and_all_else_does() {
    let theirs = || {
        both(step(
            "2 update",
            ENSURED,
            &["A g IpPermissions=[a, b]", "B x"],
            json!({"lb": {"scheme": "x"}}),
        ))
    };
    let ours =
        |event, writes: &[&str], scheme| both(step("2 update", event, writes, json!({"lb": {"scheme": scheme}})));
    let good: &[&str] = &["B x", "A g IpPermissions=[b]", "A g IpPermissions=[a]"];
    assert_eq!(found(theirs(), &ours(ENSURED, good, "x")), Vec::<String>::new());
    assert_eq!(found(theirs(), &ours(ENSURED, &good[..2], "x")), ["2 update writes"]);
    assert_eq!(found(theirs(), &ours(ENSURED, good, "y")), ["2 update aws/lb/scheme"]);
    assert_eq!(found(theirs(), &ours(FAILED, good, "x")), ["2 update events"]);
}

#[test]
fn a_failure_of_one_side_is_a_problem_unless_it_is_known() {
    let failed = |words: &str| both(step("2 update", &format!("{FAILED}{words}"), &["A x"], json!({})));
    let ensured = || both(step("2 update", ENSURED, &["B x"], json!({"lb": {"scheme": "y"}})));
    assert_eq!(found(failed(""), &ensured()), ["2 update events"]);
    assert_eq!(
        found(failed(" DuplicateListener: no"), &ensured()),
        Vec::<String>::new()
    );
    assert_eq!(found(failed(""), &failed(" in other words")), Vec::<String>::new());
}

#[test]
fn orphaned_resources_of_a_deleted_service_are_a_problem_after_a_failure_too() {
    let case = |recorded: &[Outcome]| {
        let text = "about: a\nservice: {}\nsteps: [{do: create}, {do: delete}]\n";
        let mut case: Case = serde_saphyr::from_str(text).expect("a case");
        case.recorded = Some(recorded.to_vec());
        case
    };
    let gone = |aws: Value| {
        let mut gone = step("2 delete", "Normal DeletedLoadBalancer of c: m", &[], aws);
        gone.service = None;
        gone
    };
    let failed = || step("1 create", FAILED, &["A x"], json!({"target group t": {"port": "1"}}));
    let theirs = [failed(), gone(json!({}))];
    let reported = |ours: &[Outcome]| problems(&case(&theirs), ours).len();
    assert_eq!(reported(&[failed(), gone(json!({"target group t": null}))]), 0);
    assert_eq!(reported(&[failed(), gone(json!({}))]), 0, "v1.37 leaves it too");
    let other = json!({"target group t": null, "target group u": {"port": "2"}});
    assert_eq!(reported(&[failed(), gone(other)]), 2);
    let stays = step("2 delete", FAILED, &[], json!({"target group t": null}));
    assert_eq!(
        reported(&[failed(), stays]),
        2,
        "only ours fails, and the Service is there"
    );
}

fn of_case(text: &str, theirs: Outcome, ours: Outcome) -> Vec<String> {
    let mut case: Case = serde_saphyr::from_str(&format!("about: a\n{text}")).expect("a case");
    case.recorded = Some(vec![theirs]);
    problems(&case, &[ours])
        .iter()
        .map(|problem| format!("{} {}", problem.step, problem.field))
        .collect()
}

#[test]
fn a_certificate_that_ours_changes_in_place_has_other_writes_but_the_same_listeners() {
    let ended = |writes: &[&str], certificate: &str| {
        step("1 create", ENSURED, writes, json!({"lb": {"listeners": [certificate]}}))
    };
    let again = [
        "DeleteLoadBalancerListeners LoadBalancerName=lb LoadBalancerPorts=[443]",
        "CreateLoadBalancerListeners Listeners=[{LoadBalancerPort=443}] LoadBalancerName=lb",
    ];
    let in_place = ["SetLoadBalancerListenerSSLCertificate LoadBalancerName=lb LoadBalancerPort=443"];
    let found = |ours: Outcome| {
        let text = "service: {}\nsteps: [{do: create}]\n";
        of_case(text, ended(&again, "two"), ours)
    };
    assert_eq!(found(ended(&in_place, "two")), Vec::<String>::new());
    assert_eq!(found(ended(&in_place, "one")), ["1 create aws/lb/listeners"]);
    assert_eq!(found(ended(&again[1..], "two")), ["1 create writes"]);
}

fn registering(instances: &[&str]) -> Outcome {
    let sent: Vec<String> = instances.iter().map(|id| format!("{{InstanceId={id}}}")).collect();
    let line = format!(
        "RegisterInstancesWithLoadBalancer Instances=[{}] LoadBalancerName=lb",
        sent.join(" ")
    );
    let lines: &[&str] = if instances.is_empty() { &[] } else { &[&line] };
    step("1 create", ENSURED, lines, json!({"lb": {"instances": instances}}))
}

#[test]
fn targets_are_as_under_v1_37_or_as_the_case_requires() {
    let unready = "nodes: {patch: {node-2: {status: {conditions: [{type: Ready, status: Unknown}]}}}, remove: [node-3, node-4, node-5, node-6]}";
    let text = format!("{unready}\nservice: {{}}\nsteps: [{{do: create}}]\n");
    let both = ["<node-1>", "<node-2>"];
    let reported = |ours: &[&str]| of_case(&text, registering(&both), registering(ours));
    assert_eq!(reported(&both[..1]), Vec::<String>::new(), "it is not Ready");
    assert_eq!(reported(&both), Vec::<String>::new(), "as v1.37");
    assert_eq!(reported(&both[1..]), ["1 create aws/lb/instances"]);
    assert_eq!(reported(&["<node-1>", "<node-7>"]), ["1 create aws/lb/instances"]);
    let labels = "service: {metadata: {annotations: {service.beta.kubernetes.io/aws-load-balancer-target-node-labels: 'role=edge, tier='}}}";
    let labelled = "nodes: {patch: {node-2: {metadata: {labels: {role: edge, tier: x}}}, node-1: {metadata: {labels: {role: edge}}}}}";
    let text = format!("{labels}\n{labelled}\nsteps: [{{do: create}}]\n");
    let reported = |ours: &[&str]| of_case(&text, registering(&[]), registering(ours));
    assert_eq!(reported(&["<node-2>"]), Vec::<String>::new());
    assert_eq!(reported(&both), ["1 create aws/lb/instances"]);
}

#[test]
fn a_failure_of_both_is_reported_and_ours_creates_no_other_resources() {
    let failed = |words: &str, aws: Value| both(step("2 update", &format!("{FAILED}{words}"), &["A x"], aws));
    let theirs = || failed("", json!({"lb": {"scheme": "y"}}));
    let reported = |ours: Vec<Outcome>| found(theirs(), &ours);
    assert_eq!(reported(failed("", json!({}))), Vec::<String>::new(), "unchanged");
    assert_eq!(
        reported(failed("", json!({"lb": {"scheme": "y"}}))),
        Vec::<String>::new()
    );
    assert_eq!(
        reported(failed("", json!({"lb": {"scheme": "z"}}))),
        ["2 update aws/lb/scheme"]
    );
    assert_eq!(
        reported(failed("", json!({"other": {"a": "b"}}))),
        ["2 update aws/other/a"]
    );
    let opened = |rule: &str| {
        failed(
            "",
            json!({"security group parity-nodes": {"ingress": [rule], "description": "d"}}),
        )
    };
    let ours = "tcp 30080 from 0.0.0.0/0 (kubernetes.io/rule/nlb/client=<lb>)";
    assert_eq!(reported(opened(ours)), Vec::<String>::new(), "rules are added first");
    let others = "tcp 30080 from 0.0.0.0/0 (kubernetes.io/rule/nlb/client=other)";
    assert_eq!(
        reported(opened(others)),
        ["2 update aws/security group parity-nodes/ingress"]
    );
    let other = both(step(
        "2 update",
        "Warning UpdateLoadBalancerFailed of c: m",
        &["A x"],
        json!({}),
    ));
    assert_eq!(reported(other), ["2 update events"]);
    let mut silent = failed("", json!({}));
    silent[1].events.clear();
    assert_eq!(reported(silent), ["2 update events"], "v1.37 fails alone");
}

#[test]
fn targets_that_are_registered_and_deregistered_in_a_step_are_no_difference() {
    let line = |action: &str| format!("{action} TargetGroupArn=g Targets=[{{Id=<node-1> Port=1}}]");
    let (registers, deregisters) = (line("RegisterTargets"), line("DeregisterTargets"));
    let made = |writes: &[&str]| step("1 create", ENSURED, writes, json!({}));
    let reported = |ours: &[&str]| of_case("service: {}\nsteps: [{do: create}]\n", made(&["A x"]), made(ours));
    assert_eq!(reported(&["A x", &registers, &deregisters]), Vec::<String>::new());
    assert_eq!(reported(&["A x", &registers]), ["1 create writes"]);
    assert_eq!(reported(&["A x", &deregisters]), ["1 create writes"]);
}

#[test]
fn a_replaced_own_group_may_stay_until_its_service_is_deleted() {
    let text = |config: &str| {
        format!(
            "config: {{{config}}}\nservice: {{spec: {{groups: <sg:shared>}}}}\nsteps: [{{do: create}}, {{do: delete}}]\n"
        )
    };
    let group = json!({"security group k8s-elb-<lb>": {"description": "d"}});
    let reported = |config: &str, aws: Value| {
        let mut case: Case = serde_saphyr::from_str(&format!("about: a\n{}", text(config))).expect("a case");
        let gone = || step("2 delete", "Normal DeletedLoadBalancer of c: m", &[], json!({}));
        case.recorded = Some(vec![step("1 create", ENSURED, &["A x"], json!({})), gone()]);
        let mut ours = gone();
        ours.aws = serde_json::from_value(aws).expect("a change");
        problems(&case, &[step("1 create", ENSURED, &["A x"], group.clone()), ours]).len()
    };
    let deleted = || json!({"security group k8s-elb-<lb>": null});
    assert_eq!(reported("DisableSecurityGroupIngress: 'true'", deleted()), 0);
    assert_eq!(reported("DisableSecurityGroupIngress: 'true'", json!({})), 1);
    assert_ne!(reported("", deleted()), 0);
}

#[test]
fn rules_are_of_a_protocol_that_ec2_has() {
    let made = |rule: &str| {
        let line = format!("AuthorizeSecurityGroupIngress GroupId=g IpPermissions=[icmp 3-4 from 10.0.0.0/8, {rule}]");
        step(
            "1 create",
            ENSURED,
            &[&line],
            json!({"security group g": {"ingress": [rule]}}),
        )
    };
    let reported = |theirs: &str, ours: &str| of_case("service: {}\nsteps: [{do: create}]\n", made(theirs), made(ours));
    assert_eq!(
        reported("tls 80 from 10.0.0.0/8", "tcp 80 from 10.0.0.0/8"),
        Vec::<String>::new()
    );
    let wrong = reported("tls 80 from 10.0.0.0/8", "tls 80 from 10.0.0.0/8");
    assert_eq!(wrong, ["1 create aws/security group g/ingress", "1 create writes"]);
}

#[test]
fn only_refusals_with_a_row_of_the_page_are_allowed() {
    let refused = || step("1 create", FAILED, &[], json!({}));
    let made = || step("1 create", ENSURED, &["A x"], json!({}));
    let number = |number: &str| {
        format!(
            "service: {{metadata: {{annotations: {{service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval: '{number}'}}}}}}\nsteps: [{{do: create}}]\n"
        )
    };
    assert_eq!(of_case(&number("4294967298"), made(), refused()), Vec::<String>::new());
    assert_eq!(of_case(&number("10"), made(), refused()), ["1 create events"]);
}

//! The timeline's figures, each seen green once and red at least once.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use outrigger_cluster_harness::audit::{AuditEvent, ObjectRef};
use outrigger_cluster_harness::leases::{Lease, LeaseChange};
use outrigger_cluster_harness::pods::{Exit, ProcessSpan};
use outrigger_timeline::{
    AwsCall, Bounds, Component, Condition, Controller, Gaps, Inputs, Join, LoadBalancer, Marker, Measurement,
    NEW_WORK_BEGINS, Pause, Report, Rules, Side, Snapshot, Statement, analyse,
};

const OLD: &str = "kcm-7d9-x";
const NEW: &str = "outrigger-5c4-y";
const OLD_ID: &str = "host_0001";
const NEW_ID: &str = "host_0002";
const KCM_AGENT: &str = "kube-controller-manager/v1.26.13 (linux/amd64) kubernetes/0000000";
const OUR_AGENT: &str = "outrigger-manager/0.1.0";

/// Seconds into the run.
fn at(seconds: f64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_micros((seconds * 1_000_000.0) as i64)
}

fn process(name: &str, component: &str, flags: &[&str], from: f64, until: Option<f64>) -> ProcessSpan {
    ProcessSpan {
        process: name.into(),
        component: component.into(),
        namespace: "tenant".into(),
        pod: name.into(),
        uid: name.into(),
        pid: 1,
        program: PathBuf::from(component),
        argv: std::iter::once(component)
            .chain(flags.iter().copied())
            .map(Into::into)
            .collect(),
        started: at(from),
        ended: until.map(at),
        exit: until.map(|_| Exit::Signal(15)),
    }
}

fn call(caller: &str, action: &str, seconds: f64, parameters: &[(&str, &str)]) -> AwsCall {
    let service = if action.contains("LoadBalancer") {
        "elasticloadbalancing"
    } else {
        "ec2"
    };
    AwsCall {
        at: at(seconds),
        caller: caller.into(),
        service: service.into(),
        action: action.into(),
        preflight: false,
        is_write: !action.starts_with("Describe"),
        parameters: parameters
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect(),
        status: 200,
        done: at(seconds),
    }
}

fn lease(lease: Lease, holder: &str, acquired: f64, seen: f64) -> LeaseChange {
    LeaseChange {
        lease,
        at: at(seen),
        since_start: Duration::from_secs_f64(seen),
        holder: Some(holder.into()).filter(|holder: &String| !holder.is_empty()),
        acquired: Some(at(acquired)),
        renewed: Some(at(seen)),
        // A release has a duration of one second.
        duration: Some(Duration::from_secs(if holder.is_empty() { 1 } else { 15 })),
        transitions: 0,
        annotations: BTreeMap::new(),
        deleted: false,
    }
}

/// A second manager of ours, `host_0003`.
fn add_standby(run: &mut Inputs) {
    let standby = process("next", "outrigger-manager", &["--migration=prod"], 12.0, None);
    run.processes.push(standby);
    run.holders = [
        ("host_0003".to_owned(), "next".to_owned()),
        (NEW_ID.to_owned(), NEW.to_owned()),
    ]
    .into();
}

fn held(which: Lease, holder: &str, from: f64, until: f64) -> Vec<LeaseChange> {
    (0..)
        .map(|n| from + 2.0 * f64::from(n))
        .take_while(|s| *s < until)
        .map(|s| lease(which, holder, from, s))
        .collect()
}

fn write(agent: &str, verb: &str, resource: &str, seconds: f64) -> AuditEvent {
    AuditEvent {
        stage: "ResponseComplete".into(),
        verb: verb.into(),
        user_agent: agent.into(),
        object_ref: ObjectRef {
            resource: resource.into(),
            name: "x".into(),
            ..ObjectRef::default()
        },
        request_received_timestamp: at(seconds),
        stage_timestamp: at(seconds + 0.004),
        ..AuditEvent::default()
    }
}

fn snapshot(seconds: f64) -> Snapshot {
    let load_balancer = |dns: &str| LoadBalancer {
        dns_name: dns.into(),
        created: "2026-11-20T10:00:00Z".into(),
        targets: ["i-1".to_owned(), "i-2".to_owned()].into(),
        identifiers: [format!("sg-{dns}")].into(),
    };
    let both = [
        ("lb-a".to_owned(), load_balancer("a.elb")),
        ("lb-b".to_owned(), load_balancer("b.elb")),
    ];
    let route = ("rtb-1".to_owned(), "10.0.1.0/24".to_owned());
    Snapshot {
        at: at(seconds),
        load_balancers: both.into(),
        routes: [(route, "i-1".to_owned())].into(),
    }
}

fn statement(seconds: f64, owner: Side, holder: &str) -> Statement {
    Statement {
        at: at(seconds),
        owner: Some(owner),
        holder: Some(holder.into()),
        ..Statement::default()
    }
}

/// A status that names no owner.
fn nobody(seconds: f64, reason: &str) -> Statement {
    let condition = Condition {
        kind: "ControlPlaneMigrated".into(),
        status: "False".into(),
        reason: reason.into(),
        message: "roll it".into(),
    };
    Statement {
        at: at(seconds),
        conditions: vec![condition],
        ..Statement::default()
    }
}

fn reads(caller: &str, from: f64, until: f64) -> impl Iterator<Item = AwsCall> {
    let times = (0..)
        .map(move |n| from + 2.0 * f64::from(n))
        .take_while(move |seconds| *seconds < until);
    times.map(move |seconds| call(caller, "DescribeLoadBalancers", seconds, &[]))
}

/// The old manager owns everything until it ends at 40 s; ours takes M at 53.8 s and makes a new load balancer at 72 s.
fn good_run() -> Inputs {
    let mut aws_calls: Vec<_> = reads(OLD, 2.0, 40.0).chain(reads(NEW, 54.0, 90.0)).collect();
    aws_calls.push(call(
        OLD,
        "ModifyLoadBalancerAttributes",
        3.0,
        &[("LoadBalancerName", "lb-a")],
    ));
    aws_calls.push(call(NEW, "DescribeInstances", 20.0, &[]));
    aws_calls.push(call(NEW, "CreateLoadBalancer", 72.0, &[("LoadBalancerName", "lb-new")]));
    Inputs {
        aws_calls,
        audit_events: vec![
            write(&format!("{KCM_AGENT}/service-controller"), "patch", "services", 4.0),
            write(
                &format!("{KCM_AGENT}/system:serviceaccount:kube-system:node-controller"),
                "delete",
                "nodes",
                30.0,
            ),
            write(&format!("{OUR_AGENT} node-controller"), "patch", "nodes", 25.0),
            write(&format!("{OUR_AGENT} service-controller"), "create", "events", 72.5),
        ],
        lease_changes: [
            held(Lease::K, OLD_ID, 1.0, 40.0),
            held(Lease::M, OLD_ID, 1.5, 40.0),
            held(Lease::C, NEW_ID, 11.0, 90.0),
            held(Lease::M, NEW_ID, 53.8, 90.0),
        ]
        .concat(),
        processes: vec![
            process(
                OLD,
                "kube-controller-manager",
                &["--cloud-provider=aws", "--enable-leader-migration"],
                0.0,
                Some(40.0),
            ),
            process(NEW, "outrigger-manager", &["--migration=prod"], 10.0, None),
        ],
        holders: BTreeMap::new(),
        markers: vec![
            Marker {
                at: at(8.0),
                name: "phase Prepare".into(),
            },
            Marker {
                at: at(70.0),
                name: NEW_WORK_BEGINS.into(),
            },
        ],
        snapshots: vec![snapshot(5.0), snapshot(60.0), snapshot(90.0)],
        pauses: Vec::new(),
        joins: Vec::new(),
        statements: vec![
            statement(12.0, Side::Old, OLD_ID),
            nobody(40.5, "LeaseHeldByOther"),
            statement(54.1, Side::New, NEW_ID),
        ],
        until: at(95.0),
    }
}

fn rules() -> Rules {
    let mut rules = Rules::new(Component::outrigger_manager());
    rules.unchanged = ["lb-a".to_owned(), "lb-b".to_owned()].into();
    rules
}

fn reasons(report: &Report) -> String {
    report.verdict().reasons.join("\n")
}

/// Red for exactly this reason: nothing else is held against the run.
fn red_for(inputs: &Inputs, rules: &Rules, reason: &str) -> Report {
    let report = analyse(inputs, rules);
    let reasons = report.verdict().reasons;
    assert!(!reasons.is_empty(), "the verdict passes; wanted: {reason}");
    assert!(
        reasons.iter().all(|given| given.contains(reason)),
        "wanted {reason:?}, got {reasons:#?}"
    );
    report
}

fn overlap_of(report: &Report, controller: Controller) -> Duration {
    report
        .controller(controller)
        .map(outrigger_timeline::ControllerTimeline::overlap)
        .unwrap_or_default()
}

#[test]
fn a_clean_switch_passes_and_its_proof_line_says_so() {
    let report = analyse(&good_run(), &rules());
    assert_eq!(reasons(&report), "");
    assert!(report.verdict().passed());
    let line = r#"proof: {"overlap_ms":0,"gap_ms":13800,"aws_writes_by_switch":0,"load_balancers_recreated":0,"targets_lost":0}"#;
    assert_eq!(report.proof_line(), line);
    for expected in [
        "service",
        "node lifecycle",
        "by leases; the demo makes no routes",
        OLD,
        NEW,
        "phase Prepare",
        "+200 ms",
    ] {
        assert!(
            report.table().contains(expected),
            "{expected} is not in\n{}",
            report.table()
        );
    }
}

#[test]
fn the_table_shows_steps_then_owners_then_handovers_of_m_then_figures() {
    let expected = "\
STEP             AT
phase Prepare    8.000 s
new work begins  70.000 s

CONTROLLER      HELD BY          PROGRAM                  FROM      UNTIL     AWS CALLS  API WRITES  LEASE
service         kcm-7d9-x        kube-controller-manager  2.000 s   38.000 s  20         1           -
service         outrigger-5c4-y  outrigger-manager        54.000 s  88.000 s  19         1           -
node lifecycle  kcm-7d9-x        kube-controller-manager  1.500 s   40.000 s  0          1           M
node lifecycle  outrigger-5c4-y  outrigger-manager        53.800 s  95.000 s  0          0           M
route           kcm-7d9-x        kube-controller-manager  1.500 s   40.000 s  0          0           M
route           outrigger-5c4-y  outrigger-manager        53.800 s  95.000 s  0          0           M

M FROM     TO               OLD END   ACQUIRED  GAP       FIRST SYNC  LIMIT
kcm-7d9-x  outrigger-5c4-y  40.000 s  53.800 s  13800 ms  +200 ms     15500 ms

overlap, service                 0 ms      by AWS calls and API writes
overlap, node lifecycle          0 ms      by API writes and leases
overlap, route                   0 ms      by leases; the demo makes no routes
gap                              13800 ms  the old process's end → acquireTime of M
AWS writes caused by the switch  0
load balancers recreated         0
targets lost                     0
";
    assert_eq!(analyse(&good_run(), &rules()).table(), expected);
}

#[test]
fn the_table_says_of_a_controller_without_an_owner_that_nobody_was_seen() {
    let table = analyse(&Inputs::default(), &rules()).table();
    for row in [
        "service         nobody seen\n",
        "node lifecycle  nobody seen\n",
        "route           nobody seen\n",
    ] {
        assert!(table.contains(row), "{row} is not in\n{table}");
    }
}

#[test]
fn the_clock_of_the_table_starts_with_the_earliest_process_step_or_call() {
    let mut run = Inputs {
        until: at(95.0),
        ..Inputs::default()
    };
    let start = |run: &Inputs| analyse(run, &rules()).start;
    assert_eq!(start(&run), at(95.0), "nothing was recorded");
    run.aws_calls = vec![call(OLD, "DescribeLoadBalancers", 9.0, &[])];
    assert_eq!(start(&run), at(9.0));
    run.markers = vec![Marker {
        at: at(6.0),
        name: "phase Prepare".into(),
    }];
    assert_eq!(start(&run), at(6.0));
    run.processes = vec![process(OLD, "kube-controller-manager", &[], 5.0, None)];
    assert_eq!(start(&run), at(5.0));
}

#[test]
fn without_a_handover_the_gap_of_the_proof_line_is_null() {
    let mut run = good_run();
    run.lease_changes.clear();
    let line = analyse(&run, &rules()).proof_line();
    assert!(line.contains(r#","gap_ms":null,"#), "{line}");
}

#[test]
fn intervals_span_all_calls_reads_included_and_shared_reads_belong_to_nobody() -> Result<(), Box<dyn Error>> {
    let report = analyse(&good_run(), &rules());
    let service = &report.controller(Controller::Service).ok_or("no service")?.intervals;
    let spans: Vec<_> = service
        .iter()
        .map(|i| (i.actor.label(), i.from, i.until, i.aws_calls, i.api_writes))
        .collect();
    assert_eq!(
        spans,
        [
            (OLD.to_owned(), at(2.0), at(38.0), 20, 1),
            (NEW.to_owned(), at(54.0), at(88.0), 19, 1),
        ]
    );
    let lifecycle = &report
        .controller(Controller::NodeLifecycle)
        .ok_or("no node lifecycle")?
        .intervals;
    assert_eq!(
        lifecycle.first().map(|i| (i.from, i.until, i.api_writes)),
        Some((at(1.5), at(40.0), 1))
    );
    Ok(())
}

#[test]
fn an_aws_read_of_ours_while_the_old_manager_owns_the_service_controller_is_overlap() {
    let mut run = good_run();
    run.aws_calls.push(call(NEW, "DescribeLoadBalancers", 37.0, &[]));
    let report = red_for(
        &run,
        &rules(),
        "service: outrigger-5c4-y owned it together with kcm-7d9-x",
    );
    assert_eq!(
        report.figures().overlap_ms,
        1000,
        "from our call at 37 s to the old manager's last at 38 s"
    );
}

#[test]
fn a_preflight_call_is_no_ownership() {
    let mut run = good_run();
    run.aws_calls.push(AwsCall {
        preflight: true,
        ..call(NEW, "DescribeLoadBalancers", 37.0, &[])
    });
    assert_eq!(reasons(&analyse(&run, &rules())), "");
}

#[test]
fn a_single_call_of_another_process_is_overlap_although_it_has_no_length() {
    let mut run = good_run();
    run.processes.push(process(
        "outrigger-5c4-z",
        "outrigger-manager",
        &["--migration=prod"],
        50.0,
        None,
    ));
    run.aws_calls
        .push(call("outrigger-5c4-z", "DescribeSecurityGroups", 60.5, &[]));
    let report = red_for(
        &run,
        &rules(),
        "service: outrigger-5c4-z owned it together with outrigger-5c4-y",
    );
    assert_eq!(report.figures().overlap_ms, 1);
}

#[test]
fn a_write_to_kubernetes_by_ours_while_the_old_manager_owns_is_overlap() {
    let mut run = good_run();
    run.audit_events.push(write(
        &format!("{OUR_AGENT} service-controller"),
        "patch",
        "services",
        20.0,
    ));
    red_for(&run, &rules(), "service: outrigger-5c4-y owned it");
    let mut run = good_run();
    run.audit_events.push(write(
        &format!("{OUR_AGENT} cloud-node-lifecycle-controller"),
        "delete",
        "nodes",
        20.0,
    ));
    let report = red_for(&run, &rules(), "node lifecycle: outrigger-5c4-y owned it");
    assert_eq!(overlap_of(&report, Controller::NodeLifecycle), Duration::from_secs(20));
}

#[test]
fn a_kube_controller_manager_without_leader_migration_beside_ours_with_m_is_our_overlap() {
    let mut run = good_run();
    run.processes.push(process(
        "kcm-old",
        "kube-controller-manager",
        &["--cloud-provider=aws"],
        45.0,
        None,
    ));
    run.lease_changes
        .retain(|change| !(change.lease == Lease::K && change.at > at(46.0)));
    run.lease_changes.extend(held(Lease::K, "host_0009", 46.0, 90.0));
    run.aws_calls.extend(reads("kcm-old", 47.0, 90.0));
    let report = analyse(&run, &rules());
    for controller in Controller::ALL {
        assert!(
            overlap_of(&report, controller) > Duration::from_secs(30),
            "{controller}\n{}",
            report.table()
        );
    }
    assert!(!report.verdict().passed());
}

#[test]
fn ours_without_a_migration_beside_the_old_manager_is_our_overlap() {
    let mut run = good_run();
    run.processes = vec![
        process(OLD, "kube-controller-manager", &["--cloud-provider=aws"], 0.0, None),
        process(NEW, "outrigger-manager", &["--cloud-provider=aws"], 10.0, None),
    ];
    run.lease_changes = [held(Lease::K, OLD_ID, 1.0, 90.0), held(Lease::C, NEW_ID, 11.0, 90.0)].concat();
    run.aws_calls = reads(OLD, 2.0, 90.0).chain(reads(NEW, 12.0, 90.0)).collect();
    let report = analyse(&run, &rules());
    for controller in Controller::ALL {
        assert!(
            overlap_of(&report, controller) > Duration::from_secs(70),
            "{controller}\n{}",
            report.table()
        );
    }
    assert!(reasons(&report).contains("M never went from the old side to the new one"));
}

#[test]
fn a_go_manager_that_was_paused_and_goes_on_after_losing_m_is_told_but_is_not_ours() {
    let mut run = good_run();
    if let Some(old) = run.processes.first_mut() {
        (old.ended, old.exit) = (None, None);
    }
    run.aws_calls.push(call(OLD, "DescribeLoadBalancers", 57.0, &[]));
    let report = analyse(&run, &rules());
    assert_eq!(report.figures().overlap_ms, 0);
    let service = report.controller(Controller::Service);
    assert_eq!(service.map(|s| s.overlap_by_old_side()), Some(Duration::from_secs(3)));
    assert!(report.table().contains("not ours, kcm-7d9-x"), "{}", report.table());
}

#[test]
fn ours_going_on_after_the_old_manager_took_m_back_is_our_overlap() {
    let mut run = good_run();
    run.processes.push(process(
        "kcm-back",
        "kube-controller-manager",
        &["--cloud-provider=aws", "--enable-leader-migration"],
        60.0,
        None,
    ));
    run.lease_changes
        .retain(|change| change.at < at(62.0) || change.lease == Lease::C);
    run.lease_changes.push(lease(Lease::M, "", 62.0, 62.0));
    run.lease_changes.extend(held(Lease::K, "host_0003", 61.0, 90.0));
    run.lease_changes.extend(held(Lease::M, "host_0003", 64.0, 90.0));
    run.aws_calls.extend(reads("kcm-back", 65.0, 90.0));
    let report = analyse(&run, &rules());
    assert!(
        overlap_of(&report, Controller::Service) > Duration::from_secs(20),
        "{}",
        report.table()
    );
    assert_eq!(
        overlap_of(&report, Controller::NodeLifecycle),
        Duration::ZERO,
        "its lease was released in time"
    );
}

#[test]
fn a_rollback_and_a_second_migration_are_no_overlap_although_our_process_lives_on() {
    let mut run = good_run();
    run.processes.push(process(
        "kcm-back",
        "kube-controller-manager",
        &["--cloud-provider=aws", "--enable-leader-migration"],
        58.0,
        Some(76.0),
    ));
    run.lease_changes
        .retain(|change| change.at < at(60.0) || change.lease == Lease::C);
    run.lease_changes.push(lease(Lease::M, "", 60.0, 60.0));
    run.lease_changes.extend(held(Lease::K, "host_0003", 59.0, 76.0));
    run.lease_changes.extend(held(Lease::M, "host_0003", 64.0, 76.0));
    run.lease_changes.extend(held(Lease::M, NEW_ID, 90.0, 94.0));
    run.aws_calls = reads(OLD, 2.0, 40.0)
        .chain(reads(NEW, 54.0, 60.0))
        .chain(reads("kcm-back", 65.0, 76.0))
        .chain(reads(NEW, 90.5, 94.0))
        .collect();
    run.audit_events
        .retain(|event| event.request_received_timestamp < at(70.0));
    let report = analyse(&run, &rules());
    assert_eq!(reasons(&report), "", "{}", report.table());
    assert_eq!(report.figures().gap_ms, Some(14_000), "the longer of two take-overs");
    assert_eq!(
        report.hand_overs.iter().map(|h| h.gap).collect::<Vec<_>>(),
        [
            Some(Duration::from_millis(13_800)),
            Some(Duration::from_secs(4)),
            Some(Duration::from_secs(14)),
        ]
    );
}

#[test]
fn a_gap_longer_than_a_lease_duration_and_our_reaction_is_red() {
    let mut run = good_run();
    run.lease_changes
        .retain(|change| !(change.lease == Lease::M && change.at > at(50.0)));
    run.lease_changes.extend(held(Lease::M, NEW_ID, 55.6, 90.0));
    run.aws_calls.retain(|call| call.caller != NEW || call.at > at(55.6));
    let report = red_for(
        &run,
        &rules(),
        "took M from kcm-7d9-x after 15600 ms, the limit is 15500 ms",
    );
    assert_eq!(report.figures().gap_ms, Some(15_600));
}

#[test]
fn m_taken_from_a_live_holder_is_red() {
    let mut run = good_run();
    if let Some(old) = run.processes.first_mut() {
        (old.ended, old.exit) = (None, None);
    }
    run.lease_changes
        .retain(|change| !(change.holder.as_deref() == Some(NEW_ID) && change.lease == Lease::M));
    run.lease_changes.extend(held(Lease::M, NEW_ID, 45.0, 90.0));
    red_for(
        &run,
        &rules(),
        "took M although kcm-7d9-x neither ended nor released it",
    );
}

#[test]
fn a_run_in_which_ours_never_took_over_is_red() {
    let mut run = good_run();
    run.lease_changes
        .retain(|change| !(change.lease == Lease::M && change.at > at(50.0)));
    let report = analyse(&run, &rules());
    assert!(reasons(&report).contains("M never went from the old side to the new one"));
    assert!(report.proof_line().contains(r#""gap_ms":null"#));
}

#[test]
fn an_aws_write_of_ours_before_new_work_begins_is_red() {
    let mut run = good_run();
    run.aws_calls.push(call(
        NEW,
        "ModifyLoadBalancerAttributes",
        56.0,
        &[("LoadBalancerName", "lb-a")],
    ));
    let report = red_for(
        &run,
        &rules(),
        "wrote to AWS without need: ModifyLoadBalancerAttributes",
    );
    assert_eq!(report.figures().aws_writes_by_switch, 1);
}

#[test]
fn an_aws_write_of_ours_to_an_unchanged_load_balancer_is_red_even_later() {
    let mut run = good_run();
    run.aws_calls.push(call(
        NEW,
        "ConfigureHealthCheckOfLoadBalancer",
        80.0,
        &[("LoadBalancerName", "lb-b")],
    ));
    red_for(&run, &rules(), "wrote to AWS without need: ConfigureHealthCheck");
}

#[test]
fn registering_a_new_nodes_instance_with_an_unchanged_load_balancer_is_called_for() {
    let register = |instance| {
        let parameters = [
            ("LoadBalancerName", "lb-b"),
            ("Instances.member.1.InstanceId", instance),
        ];
        call(NEW, "RegisterInstancesWithLoadBalancer", 80.0, &parameters)
    };
    let mut rules = rules();
    rules.changed.insert("i-new".into());
    let mut run = good_run();
    run.aws_calls.push(register("i-new"));
    assert_eq!(reasons(&analyse(&run, &rules)), "");
    run.aws_calls.push(register("i-1"));
    red_for(&run, &rules, "wrote to AWS without need: RegisterInstances");
}

#[test]
fn without_the_marker_every_aws_write_of_ours_counts() {
    let mut run = good_run();
    run.markers.clear();
    red_for(&run, &rules(), "wrote to AWS without need: CreateLoadBalancer");
}

#[test]
fn a_load_balancer_with_another_dns_name_or_creation_time_was_recreated() {
    for change in [
        |lb: &mut LoadBalancer| lb.dns_name = "other.elb".into(),
        |lb: &mut LoadBalancer| lb.created = "2026-11-20T11:00:00Z".into(),
    ] {
        let mut run = good_run();
        if let Some(lb) = run
            .snapshots
            .last_mut()
            .and_then(|snapshot| snapshot.load_balancers.get_mut("lb-a"))
        {
            change(lb);
        }
        let report = red_for(&run, &rules(), "load balancer lb-a is gone or another one");
        assert_eq!(report.figures().load_balancers_recreated, 1);
    }
}

#[test]
fn a_load_balancer_deleted_and_made_again_between_two_snapshots_was_recreated() {
    let mut run = good_run();
    run.aws_calls
        .push(call(OLD, "DeleteLoadBalancer", 39.0, &[("LoadBalancerName", "lb-a")]));
    red_for(&run, &rules(), "load balancer lb-a is gone or another one");
    let mut rules = rules();
    rules.removed_on_purpose.insert("lb-a".into());
    assert_eq!(reasons(&analyse(&run, &rules)), "");
}

#[test]
fn a_target_missing_in_any_later_snapshot_was_lost() {
    let mut run = good_run();
    if let Some(lb) = run
        .snapshots
        .get_mut(1)
        .and_then(|snapshot| snapshot.load_balancers.get_mut("lb-b"))
    {
        lb.targets.remove("i-2");
    }
    let report = red_for(&run, &rules(), "load balancer lb-b lost target i-2");
    assert_eq!(report.figures().targets_lost, 1);
}

#[test]
fn a_target_deregistered_and_registered_again_between_two_snapshots_was_lost() {
    let mut run = good_run();
    let parameters = [("LoadBalancerName", "lb-b"), ("Instances.member.1.InstanceId", "i-1")];
    run.aws_calls
        .push(call(OLD, "DeregisterInstancesFromLoadBalancer", 39.0, &parameters));
    red_for(&run, &rules(), "load balancer lb-b lost target i-1");
}

#[test]
fn a_caller_that_nobody_knows_is_red_unless_it_is_the_harness() {
    let mut run = good_run();
    run.aws_calls
        .push(call("AKIAUNKNOWN", "DescribeLoadBalancers", 45.0, &[]));
    red_for(&run, &rules(), "service: nobody knows who AKIAUNKNOWN is");
    let mut rules = rules();
    rules.ignored_callers.insert("AKIAUNKNOWN".into());
    assert_eq!(reasons(&analyse(&run, &rules)), "");
}

#[test]
fn a_write_to_a_service_under_a_name_that_nobody_knows_is_red() {
    let mut run = good_run();
    run.audit_events.push(write(
        &format!("{KCM_AGENT}/some-other-name"),
        "patch",
        "services",
        20.0,
    ));
    red_for(&run, &rules(), "are counted for nobody");
}

#[test]
fn too_little_evidence_is_red() {
    let mut run = good_run();
    run.snapshots.truncate(1);
    red_for(&run, &rules(), "AWS must be looked at before and after");
    let mut run = good_run();
    run.aws_calls.retain(|call| call.caller != OLD);
    run.audit_events.clear();
    red_for(&run, &rules(), "service: no owner on the old side was seen");
    let mut run = good_run();
    run.aws_calls.retain(|call| call.caller != OLD || call.at < at(20.0));
    red_for(&run, &rules(), "service: kcm-7d9-x made no call in the last");
}

#[test]
fn what_comes_after_the_end_of_the_run_is_left_out() {
    let mut run = good_run();
    run.aws_calls
        .push(call(NEW, "DeleteLoadBalancer", 96.0, &[("LoadBalancerName", "lb-a")]));
    run.snapshots.push(Snapshot {
        at: at(97.0),
        load_balancers: BTreeMap::new(),
        routes: BTreeMap::new(),
    });
    assert_eq!(reasons(&analyse(&run, &rules())), "");
}

#[test]
fn of_two_processes_of_one_component_the_lease_holder_is_the_writer() {
    let mut run = good_run();
    run.processes.push(process(
        "outrigger-5c4-z",
        "outrigger-manager",
        &["--migration=prod"],
        55.0,
        None,
    ));
    let report = analyse(&run, &rules());
    assert_eq!(
        reasons(&report),
        "",
        "the standby is not blamed for the holder's write at 72.5 s"
    );
    let service = report.controller(Controller::Service).map(|s| s.intervals.len());
    assert_eq!(service, Some(2));
}

#[test]
fn a_write_that_either_of_two_standbys_may_have_made_is_held_against_the_owner_only() {
    let mut run = good_run();
    for (name, from) in [("outrigger-5c4-a", 10.0), ("outrigger-5c4-b", 10.0)] {
        run.processes
            .push(process(name, "outrigger-manager", &["--migration=prod"], from, None));
    }
    run.audit_events.push(write(
        &format!("{OUR_AGENT} service-controller"),
        "patch",
        "services",
        20.0,
    ));
    let report = analyse(&run, &rules());
    let culprits: Vec<_> = report
        .controllers
        .iter()
        .flat_map(|c| &c.overlaps)
        .map(|o| o.caused_by.side)
        .collect();
    assert_eq!(culprits, [Side::New], "{}", report.table());
}

const BOUNDS: Bounds = Bounds {
    hand_overs: 1,
    ownerless: Duration::from_millis(15_500),
    observed: None,
    late_effects: false,
    overrun: None,
};

fn measured(run: &Inputs) -> Measurement {
    Measurement::of(&analyse(run, &rules()), &BOUNDS)
}

#[track_caller]
fn violation(run: &Inputs, text: &str) {
    let violations = measured(run).violations;
    assert!(
        violations.iter().any(|violation| violation.contains(text)),
        "{text}: {violations:#?}"
    );
}

#[test]
fn a_good_run_breaks_no_bound_and_has_all_figures() {
    let measured = measured(&good_run());
    assert_eq!(measured.violations, Vec::<String>::new());
    let gap = Duration::from_millis(13_800);
    assert_eq!(measured.median_and_worst(Gaps::OldToNew), Some((gap, gap)));
    assert_eq!(measured.median_and_worst(Gaps::NewToOld), None);
    let ownerless = measured.ownerless.expect("M was free");
    assert_eq!(ownerless.length(), gap);
    assert_eq!(ownerless.shown.as_deref(), Some("LeaseHeldByOther: roll it"));
}

#[test]
fn figures_of_several_runs_are_added() {
    let mut sum = measured(&good_run());
    let mut longer = good_run();
    longer
        .lease_changes
        .retain(|change| change.lease != Lease::M || change.at < at(53.0));
    longer.lease_changes.extend(held(Lease::M, NEW_ID, 55.0, 90.0));
    longer.aws_calls.retain(|call| call.caller != NEW || call.at > at(55.0));
    sum.add(measured(&longer));
    let (median, worst) = (Duration::from_secs(15), Duration::from_secs(15));
    assert_eq!(sum.median_and_worst(Gaps::OldToNew), Some((median, worst)));
    assert_eq!(sum.ownerless.map(|time| time.length()), Some(worst));
    assert_eq!(sum.hand_overs, 2);
}

#[test]
fn fewer_handovers_than_expected_are_red() {
    let mut run = good_run();
    run.lease_changes.retain(|change| change.lease != Lease::M);
    violation(&run, "0 handovers were seen");
}

#[test]
fn two_owners_break_the_bound() {
    let mut run = good_run();
    run.aws_calls.extend(reads(NEW, 30.0, 38.0));
    violation(&run, "owned it together with");
}

#[test]
fn a_time_without_an_owner_is_red_and_names_the_condition() {
    let mut run = good_run();
    run.lease_changes.push(lease(Lease::M, "", 70.0, 70.0));
    run.lease_changes
        .retain(|change| change.lease != Lease::M || change.at <= at(70.0));
    run.statements.push(nobody(70.1, "UnguardedControllerManager"));
    violation(
        &run,
        "for 25000 ms, the limit is 15500 ms; the status said UnguardedControllerManager: roll it",
    );
}

#[test]
fn a_process_that_is_stopped_by_a_signal_owns_nothing_and_its_gap_counts_from_there() {
    let mut run = good_run();
    run.lease_changes
        .retain(|change| change.lease != Lease::M || change.at < at(60.0));
    add_standby(&mut run);
    run.lease_changes.extend(held(Lease::M, "host_0003", 77.0, 90.0));
    run.aws_calls.retain(|call| call.caller != NEW || call.at < at(60.0));
    run.pauses = vec![Pause {
        process: NEW.into(),
        from: at(60.0),
        until: None,
    }];
    violation(&run, "next took M from outrigger-5c4-y after 17000 ms");
    violation(&run, "nobody owned the Service controller for 17000 ms");
}

#[test]
fn a_write_without_the_lease_is_red_before_it_and_after_its_end() {
    for seconds in [50.0, 80.0] {
        let mut run = good_run();
        run.lease_changes
            .retain(|change| change.lease != Lease::M || change.at < at(60.0));
        run.lease_changes.push(lease(Lease::M, "", 62.0, 62.0));
        run.aws_calls
            .push(call(NEW, "CreateLoadBalancer", seconds, &[("LoadBalancerName", "x")]));
        violation(&run, "wrote to AWS without the lease: CreateLoadBalancer");
    }
    assert_eq!(measured(&good_run()).writes_without_lease, 0);
}

/// Of two faults one after the other, each has its own wait.
#[test]
fn the_gap_begins_again_when_our_waiting_leader_is_killed() {
    for (killed, red) in [(Some(47.0), false), (None, true)] {
        let mut run = good_run();
        run.processes[1].ended = killed.map(at);
        add_standby(&mut run);
        run.lease_changes
            .retain(|change| change.at < at(40.0) || change.lease == Lease::C && change.at < at(47.0));
        run.lease_changes.extend(held(Lease::C, "host_0003", 61.4, 90.0));
        run.lease_changes.extend(held(Lease::M, "host_0003", 61.5, 90.0));
        let violations = measured(&run).violations.join(", ");
        let late = violations.contains("took M from kcm-7d9-x after 21500 ms, the limit is 15500 ms");
        assert_eq!(late, red, "{violations}");
        assert!(!violations.contains("after 14500 ms"), "{violations}");
    }
}

#[test]
fn a_lease_that_was_deleted_or_emptied_by_hand_is_not_released() {
    let by_hand = LeaseChange {
        duration: Some(Duration::from_secs(15)),
        ..lease(Lease::M, "", 36.0, 36.0)
    };
    let deleted = LeaseChange::deleted(Lease::M, at(36.0), Duration::from_secs(36));
    for change in [by_hand, deleted] {
        let mut run = good_run();
        run.lease_changes
            .retain(|change| change.lease != Lease::M || change.at < at(36.0));
        run.lease_changes.push(change);
        run.lease_changes.extend(held(Lease::M, NEW_ID, 36.1, 90.0));
        run.processes[0].ended = None;
        run.lease_changes.extend(held(Lease::K, OLD_ID, 1.0, 90.0));
        violation(&run, "took M although kcm-7d9-x neither ended nor released it");
    }
}

#[test]
fn a_statement_about_an_owner_that_held_nothing_is_contradicted() {
    let mut run = good_run();
    run.statements.push(statement(60.0, Side::Old, OLD_ID));
    violation(
        &run,
        "named host_0001 (Old) as the owner, which held no lease of it then",
    );
    let mut run = good_run();
    run.statements[2] = statement(48.0, Side::New, NEW_ID);
    violation(&run, "named host_0002 (New) as the owner");
}

#[test]
fn a_statement_that_a_living_writer_does_not_correct_is_contradicted() {
    let mut run = good_run();
    run.statements.truncate(1);
    violation(
        &run,
        "still named host_0001 (Old) as the owner 55 s after its lease ended",
    );
    run.lease_changes.retain(|change| change.lease != Lease::C);
    run.processes[1].started = at(50.0);
    assert_eq!(measured(&run).contradictions, 0, "nobody could correct it");
}

#[test]
fn a_later_write_of_other_conditions_repeats_no_statement_about_the_owner() {
    let mut run = good_run();
    let last = run.statements.pop().unwrap();
    let mut conditions_of_the_webhook = last.clone();
    conditions_of_the_webhook.conditions.clear();
    conditions_of_the_webhook.at = at(88.0);
    run.lease_changes
        .retain(|change| change.lease == Lease::K || change.at < at(60.0));
    for lease_of_ours in [Lease::M, Lease::C] {
        run.lease_changes.push(lease(lease_of_ours, "", 62.0, 62.0));
    }
    run.statements.extend([last, conditions_of_the_webhook]);
    assert_eq!(measured(&run).contradictions, 0);
}

#[test]
fn a_go_manager_in_our_place_does_not_write_the_status() {
    let mut run = good_run();
    run.processes.push(process(
        "incumbent",
        "aws-cloud-controller-manager",
        &["--cloud-provider=aws"],
        60.0,
        None,
    ));
    run.holders = [("host_9".to_owned(), "incumbent".to_owned())].into();
    run.lease_changes
        .retain(|change| change.at < at(62.0) || change.lease == Lease::K);
    for which in [Lease::C, Lease::M] {
        run.lease_changes.push(lease(which, "", 11.0, 62.0));
        run.lease_changes.extend(held(which, "host_9", 63.0, 120.0));
    }
    run.until = at(120.0);
    let contradicted = |incumbent: Component| {
        let mut rules = rules();
        rules.components.push(incumbent);
        !analyse(&run, &rules).contradictions.is_empty()
    };
    assert!(contradicted(Component::aws_cloud_controller_manager()));
    assert!(!contradicted(Component::aws_cloud_controller_manager().on(Side::Old)));
}

/// The same run, whose status has one more condition from this second on.
fn said(mut run: Inputs, seconds: f64, [kind, status, reason]: [&str; 3]) -> Inputs {
    let condition = Condition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: String::new(),
    };
    run.statements.retain(|statement| statement.at < at(seconds));
    run.statements.push(Statement {
        at: at(seconds),
        conditions: vec![condition],
        ..Statement::default()
    });
    run
}

#[test]
fn a_condition_that_is_kept_after_its_time_is_contradicted() {
    // Another program leads and holds nothing else, and a manager of ours runs beside it.
    let mut taken = said(good_run(), 54.1, ["ControlPlaneMigrated", "True", "Migrated"]);
    taken.lease_changes.retain(|change| change.at < at(60.0));
    taken.lease_changes.push(lease(Lease::M, "", 60.0, 60.0));
    taken.lease_changes.extend(held(Lease::C, "host_9", 60.0, 150.0));
    let incumbent = ["--cloud-provider=aws"];
    let incumbent = process("incumbent", "aws-cloud-controller-manager", &incumbent, 50.0, None);
    taken.processes.push(incumbent);
    taken.holders = [
        (NEW_ID.to_owned(), NEW.to_owned()),
        ("host_9".to_owned(), "incumbent".to_owned()),
    ]
    .into();
    taken.until = at(145.0);
    violation(
        &taken,
        "ControlPlaneMigrated=True (Migrated) claimed: our manager holds M",
    );

    // The record of a dead process is valid for an hour.
    let mut dead = said(good_run(), 41.0, ["ControlPlaneMigrated", "False", "Acquiring"]);
    dead.lease_changes
        .retain(|change| change.holder.as_deref() != Some(NEW_ID) || change.lease != Lease::M);
    for change in &mut dead.lease_changes {
        change.duration = Some(Duration::from_secs(3600));
    }
    violation(
        &dead,
        "ControlPlaneMigrated=False (Acquiring) claimed: no process holds M",
    );

    let mut in_tree = said(good_run(), 20.0, ["Prepared", "True", "EvidenceLatched"]);
    in_tree.processes[0].argv.pop();
    violation(
        &in_tree,
        "Prepared=True (EvidenceLatched) claimed: no process acts without M",
    );

    let nobody_owns = said(good_run(), 54.1, ["ControlPlaneMigrated", "False", "OldManagerOwns"]);
    violation(
        &nobody_owns,
        "OldManagerOwns) claimed: an old manager owns the controllers",
    );
}

#[test]
fn every_load_balancer_is_observed_when_each_was_named_after_the_handover() {
    let mut run = good_run();
    assert!(measured(&run).all_observed.is_empty(), "no call names one");
    for (action, seconds, name) in [
        ("DescribeLoadBalancers", 50.0, "lb-a"),
        ("DescribeLoadBalancers", 55.0, "lb-b"),
    ] {
        run.aws_calls
            .push(call(NEW, action, seconds, &[("LoadBalancerNames.member.1", name)]));
    }
    assert!(measured(&run).all_observed.is_empty(), "lb-a was named before");

    run.aws_calls
        .push(call(NEW, "DescribeTargetHealth", 57.8, &[("Arn", "sg-a.elb")]));
    assert_eq!(measured(&run).all_observed, [Duration::from_secs(4)]);
}

#[test]
fn a_network_load_balancer_must_keep_its_arn_its_target_groups_and_its_targets() {
    let mut run = good_run();
    let group = || "arn:targetgroup/a".to_owned();
    for snapshot in &mut run.snapshots {
        let balancer = snapshot.load_balancers.get_mut("lb-a").expect("lb-a");
        balancer.identifiers.insert(group());
    }
    assert_eq!(measured(&run).violations, Vec::<String>::new());

    let mut other = run.clone();
    let last = other.snapshots.last_mut().expect("a snapshot");
    let balancer = last.load_balancers.get_mut("lb-a").expect("lb-a");
    balancer.identifiers.remove(&group());
    violation(&other, "load balancer lb-a is gone or another one");

    for (action, text) in [
        ("DeleteTargetGroup", "load balancer lb-a is gone or another one"),
        ("DeregisterTargets", "load balancer lb-a lost target i-1"),
    ] {
        let mut changed = run.clone();
        let mut call = call(
            OLD,
            action,
            30.0,
            &[("TargetGroupArn", &group()), ("Targets.member.1.Id", "i-1")],
        );
        call.service = "elasticloadbalancing".into();
        changed.aws_calls.push(call);
        violation(&changed, text);
    }
}

#[test]
fn the_gap_to_a_go_manager_begins_when_it_leads_and_so_competes() {
    for (leads, gap) in [(61.0, 7), (66.0, 3)] {
        let mut run = good_run();
        let flags = ["--cloud-provider=aws", "--enable-leader-migration"];
        run.processes
            .push(process("kcm-back", "kube-controller-manager", &flags, 58.0, None));
        run.lease_changes
            .retain(|change| change.at < at(62.0) || change.lease == Lease::C);
        run.lease_changes.push(lease(Lease::M, "", 62.0, 62.0));
        run.lease_changes.extend(held(Lease::K, "host_0003", leads, 90.0));
        run.lease_changes.extend(held(Lease::M, "host_0003", 69.0, 90.0));
        let report = analyse(&run, &rules());
        let last = report.hand_overs.last().and_then(|hand_over| hand_over.gap);
        assert_eq!(last, Some(Duration::from_secs(gap)), "{}", report.table());
    }
}

#[test]
fn an_offer_that_nobody_takes_is_no_leader_change_and_a_late_standby_is_one() {
    for (ended, phases, red) in [
        (67.0, ["Prepare", "Migrate"], false),
        (62.5, ["Prepare", "Migrate"], true),
        (62.5, ["Migrate", "Prepare"], false),
    ] {
        let mut run = good_run();
        run.markers = [(8.0, phases[0]), (61.0, phases[1])]
            .map(|(seconds, phase)| Marker {
                at: at(seconds),
                name: format!("phase {phase}"),
            })
            .into();
        run.processes[1].ended = Some(at(ended));
        add_standby(&mut run);
        run.lease_changes.retain(|change| change.at < at(62.0));
        run.lease_changes.push(lease(Lease::M, "", 62.0, 62.0));
        run.lease_changes.extend(held(Lease::M, "host_0003", 72.0, 90.0));
        let violations = measured(&run).violations.join(", ");
        assert_eq!(
            violations.contains("after 10000 ms, the limit is 2000 ms"),
            red,
            "{violations}"
        );
    }
}

#[test]
fn after_a_kill_in_a_step_back_the_old_manager_has_its_time_from_the_expiry_on() {
    for (acquired, gap, red) in [(80.0, 18, false), (84.0, 22, true)] {
        let mut run = good_run();
        run.markers = [(8.0, "phase Migrate"), (61.0, "phase Prepare")]
            .map(|(seconds, phase)| Marker {
                at: at(seconds),
                name: phase.to_owned(),
            })
            .into();
        let flags = ["--cloud-provider=aws", "--enable-leader-migration"];
        run.processes
            .push(process("kcm-back", "kube-controller-manager", &flags, 58.0, None));
        run.processes[1].ended = Some(at(62.0));
        run.lease_changes.retain(|change| change.at < at(62.0));
        run.lease_changes.extend(held(Lease::K, "host_0003", 61.5, 90.0));
        // The last renewal was at 61.8 s; another process of ours empties the lease.
        run.lease_changes.push(lease(Lease::M, "", 77.0, 77.0));
        run.lease_changes.extend(held(Lease::M, "host_0003", acquired, 90.0));
        let report = analyse(&run, &rules());
        let last = report.hand_overs.last().expect("a handover");
        assert!(last.emptied && !last.released, "{}", report.table());
        assert_eq!(last.gap, Some(Duration::from_secs(gap)), "{}", report.table());
        assert_eq!(
            measured(&run).violations.join(", ").contains("the limit is 20500 ms"),
            red,
            "{}",
            report.table()
        );
    }
}

#[test]
fn the_overrun_of_a_continued_go_manager_begins_when_it_is_continued() {
    let mut run = good_run();
    run.processes[0].ended = None;
    run.lease_changes.extend(held(Lease::K, "host_0003", 56.0, 90.0));
    run.pauses = vec![Pause {
        process: OLD.into(),
        from: at(39.5),
        until: Some(at(70.0)),
    }];
    run.aws_calls.extend(reads(OLD, 70.0, 79.0));
    let measured = measured(&run);
    assert_eq!(measured.overrun, Duration::from_secs(8));
    assert_eq!(measured.violations, Vec::<String>::new());
}

#[test]
fn an_effect_of_a_write_after_the_next_acquisition_is_red() {
    let late = |done: f64, acquired: f64| {
        let mut run = good_run();
        run.lease_changes
            .retain(|change| change.lease != Lease::M || change.at < at(40.0));
        run.lease_changes.extend(held(Lease::M, NEW_ID, acquired, 90.0));
        run.aws_calls.push(AwsCall {
            done: at(done),
            ..call(OLD, "CreateLoadBalancer", 39.0, &[("LoadBalancerName", "lb-late")])
        });
        run
    };
    assert_eq!(measured(&late(48.0, 53.8)).violations, Vec::<String>::new());
    violation(
        &late(48.0, 43.0),
        "AWS carried out CreateLoadBalancer of kcm-7d9-x 5000 ms after another",
    );
    let allowed = Bounds {
        late_effects: true,
        ..BOUNDS
    };
    let report = analyse(&late(60.0, 53.8), &rules());
    assert_eq!(Measurement::of(&report, &allowed).violations, Vec::<String>::new());
}

#[test]
fn load_balancers_that_are_read_or_get_a_node_too_late_are_red() {
    let bounds = Bounds {
        observed: Some(Duration::from_secs(5)),
        ..BOUNDS
    };
    let joined = |last: f64| {
        let mut run = good_run();
        run.joins.push(Join {
            at: at(45.0),
            target: "i-3".into(),
        });
        for (balancer, seconds) in [("lb-a", 54.5), ("lb-b", last)] {
            let names = [("LoadBalancerName", balancer), ("Instances.member.1.InstanceId", "i-3")];
            let register = call(NEW, "RegisterInstancesWithLoadBalancer", seconds, &names);
            run.aws_calls.push(register);
        }
        let mut rules = rules();
        rules.changed = ["i-3".to_owned()].into();
        run.markers.push(Marker {
            at: at(45.0),
            name: NEW_WORK_BEGINS.into(),
        });
        (
            Measurement::of(&analyse(&run, &rules), &bounds).violations,
            analyse(&run, &rules),
        )
    };

    let (violations, report) = joined(57.0);
    assert_eq!(violations, Vec::<String>::new());
    let took: Vec<_> = report.joined.iter().map(|one| one.took).collect();
    assert_eq!(took, [Some(Duration::from_millis(3200))], "from the acquisition on");

    let (violations, _) = joined(70.0);
    let texts = [
        "asked about the last load balancer after 16200 ms",
        "i-3 was a target of the last load balancer after 16200 ms",
    ];
    for text in texts {
        assert!(
            violations.iter().any(|violation| violation.contains(text)),
            "{text}: {violations:#?}"
        );
    }
    let never = Measurement::of(&analyse(&good_run(), &rules()), &bounds).violations;
    assert!(
        never.iter().any(|violation| violation.ends_with("load balancer never")),
        "{never:#?}"
    );
}

#[test]
fn a_route_that_goes_or_leads_elsewhere_is_red() {
    let with = |change: &dyn Fn(&mut Inputs)| {
        let mut run = good_run();
        change(&mut run);
        run
    };
    let gone = with(&|run| run.snapshots.last_mut().unwrap().routes.clear());
    violation(&gone, "route rtb-1 10.0.1.0/24 is gone");
    let other = with(&|run| {
        let routes = run.snapshots.last_mut().unwrap().routes.values_mut();
        routes.for_each(|instance| *instance = "i-2".into());
    });
    violation(&other, "route rtb-1 10.0.1.0/24 is gone or another one");
    let deleted = with(&|run| {
        let names = [("RouteTableId", "rtb-1"), ("DestinationCidrBlock", "10.0.1.0/24")];
        run.aws_calls.push(call(OLD, "DeleteRoute", 30.0, &names));
    });
    violation(&deleted, "route rtb-1 10.0.1.0/24 is gone");
}

#[test]
fn a_status_may_name_the_holder_of_a_lease_until_it_expires() {
    let named_at = |seconds: f64| {
        let mut run = good_run();
        run.statements.push(statement(seconds, Side::Old, OLD_ID));
        run.statements.push(Statement {
            at: at(seconds + 1.0),
            ..Statement::default()
        });
        run.statements.sort_by_key(|said| said.at);
        run
    };
    let of_status = |run: &Inputs| measured(run).contradictions;
    assert_eq!(
        of_status(&named_at(50.0)),
        of_status(&good_run()),
        "its process ended at 40 s"
    );
    assert_eq!(of_status(&named_at(60.0)), of_status(&good_run()) + 1);
}

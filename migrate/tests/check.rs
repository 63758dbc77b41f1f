//! `outrigger check` on documents of facts: each broken cluster has its code and no other error.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod support;

use std::collections::BTreeSet;

use outrigger_migrate::check::report::Report;
use outrigger_migrate::check::rules;
use outrigger_migrate::facts::ClusterFacts;
use serde_json::{Value, json};

const CLEAN: &str = include_str!("facts/kubeadm-in-tree.json");

fn clean() -> Value {
    serde_json::from_str(CLEAN).unwrap()
}

fn report_of(facts: &Value) -> Value {
    let facts: ClusterFacts = serde_json::from_value(facts.clone()).unwrap();
    let all = rules::named(&[]).unwrap();
    serde_json::to_value(Report::of(&facts, &all)).unwrap()
}

/// The codes that were found, with their severities and the texts of their causes.
fn findings(report: &Value) -> Vec<(String, String, String)> {
    let groups = report["groups"].as_array().unwrap().iter();
    let all = groups.flat_map(|group| group["findings"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|finding| {
        (
            text(&finding["code"]),
            text(&finding["severity"]),
            finding["causes"].to_string(),
        )
    })
    .collect()
}

/// A cluster with Outrigger in phase Prepare, and nothing wrong.
fn installed() -> Value {
    let mut facts = clean();
    facts["migrations"] = json!({"known": [{
        "name": "cluster", "phase": "Prepare", "generation": 2, "mainLease": "kube-controller-manager",
        "migrationLease": "cloud-provider-extraction-migration", "profiles": ["Nodes"],
        "status": {"observedBy": {"identity": "cp-1_a", "time": "2026-11-30T11:59:30Z"}},
    }]});
    facts["registrations"] = json!({"known": [{"name": "outrigger-webhook", "webhooks": 3}]});
    let components = facts["components"]["known"].as_array_mut().unwrap();
    for node in ["cp-1", "cp-2"] {
        components.push(json!({
            "component": "aws-cloud-controller-manager", "object": format!("Pod kube-system/outrigger-manager-{node}"),
            "node": node, "flags": {"migration": "cluster"}, "isOutrigger": true, "isReady": true,
        }));
    }
    facts
}

fn condition(type_: &str, status: &str) -> Value {
    json!([{
        "type": type_, "status": status, "reason": "Because", "message": "the reason and the fix",
        "lastTransitionTime": "2026-11-30T11:00:00Z",
    }])
}

type Change = fn(&mut Value);

#[test]
fn clusters_in_order_have_no_finding() {
    for facts in [clean(), installed()] {
        assert_eq!(findings(&report_of(&facts)), []);
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn each_broken_cluster_has_its_code_and_no_other() {
    let of_clean: &[(&str, &str, Change)] = &[
        ("OUT101", "1.21", |facts| {
            facts["version"] = json!({"known": "v1.21.14"})
        }),
        ("OUT102", "list services", |facts| {
            facts["services"] = json!({"notRead": {"reason": "services: forbidden", "right": "list services"}});
        }),
        ("OUT103", "by 45 s", |facts| facts["clockAheadSeconds"] = json!(-45)),
        ("OUT301", "none among", |facts| {
            facts["components"]["known"]
                .as_array_mut()
                .unwrap()
                .retain(|one| one["component"] == "kube-apiserver");
        }),
        ("OUT302", "a shell script", |facts| {
            kcm(facts)["unreadable"] = json!("a shell script")
        }),
        ("OUT303", "10.244.0.0/16", |facts| {
            for at in [0, 1] {
                let one = &mut facts["components"]["known"][at];
                one["judgement"]["routes"] = json!(true);
                one["flags"]["cluster-cidr"] = json!("10.244.0.0/16");
            }
        }),
        ("OUT304", "--controllers", |facts| {
            kcm(facts)["flags"]["controllers"] = json!("*,-route")
        }),
        ("OUT305", "--leader-elect=false", |facts| {
            kcm(facts)["judgement"]["acts"] = json!("Always");
            kcm(facts)["judgement"]["otherLock"] = json!("--leader-elect=false");
        }),
        ("OUT306", "own file", |facts| {
            kcm(facts)["judgement"]["configuration"] = json!("it names its own file")
        }),
        ("OUT307", "8 s", |facts| {
            facts["leases"]["known"][0]["durationSeconds"] = json!(8)
        }),
        ("OUT308", "other_1", |facts| {
            facts["leases"]["known"][0]["holder"] = json!("other_1")
        }),
        ("OUT309", "remove --x", |facts| {
            facts["components"]["known"][2]["doesNotStart"] = json!("remove --x")
        }),
        ("OUT310", "--cluster-name=prod", |facts| {
            for at in [0, 1] {
                facts["components"]["known"][at]["flags"]["cluster-name"] = json!("prod");
            }
        }),
        ("OUT311", "CSIMigrationAWS", |facts| {
            facts["nodes"]["known"][2]["kubelet"]["known"]["flags"]["feature-gates"] = json!("CSIMigrationAWS=true");
        }),
        ("OUT312", "CSIMigration=false", |facts| {
            for at in [0, 1] {
                facts["components"]["known"][at]["flags"]["feature-gates"] =
                    json!("A=true,CSIMigration=false,CSIMigrationAWS=false");
            }
        }),
        ("OUT401", "worker-1", |facts| worker(facts)["providerId"] = json!("")),
        ("OUT402", "ip-10-0-1-2", |facts| {
            worker(facts)["hostName"] = json!("ip-10-0-1-2")
        }),
        ("OUT403", "worker-1", |facts| {
            worker(facts)["migratesEbs"] = json!({"known": false})
        }),
        ("OUT404", "2 PersistentVolumes", |facts| {
            facts["hasEbsCsiDriver"] = json!({"known": false})
        }),
        ("OUT405", "worker-1", |facts| worker(facts)["hasEcrImage"] = json!(true)),
        ("OUT406", "worker-1", |facts| {
            worker(facts)["isUninitialized"] = json!(true)
        }),
        ("OUT407", "worker-1", |facts| worker(facts)["isReady"] = json!(false)),
        ("OUT408", "worker-1", |facts| {
            worker(facts)["isMarkedExternal"] = json!(true)
        }),
        ("OUT409", "keep 1.26", |facts| {
            worker(facts)["kubelet"]["known"]["doesNotStart"] = json!("keep 1.26")
        }),
        ("OUT410", "names no AWS instance", |facts| {
            worker(facts)["providerId"] = json!("gce://a/b/c")
        }),
        ("OUT411", "cp-1, worker-1", |facts| {
            worker(facts)["providerId"] = json!("aws:///eu-central-1a/i-1")
        }),
        ("OUT601", "default/web for", |facts| {
            facts["services"]["known"][0]["hasAddress"] = json!(false)
        }),
        ("OUT602", "default/web for 60 min", |facts| {
            facts["services"]["known"][0]["deleted"] = json!("2026-11-30T11:00:00Z");
        }),
    ];
    let of_installed: &[(&str, &str, Change)] = &[
        ("OUT201", "the reason", |facts| {
            status(facts)["conditions"] = condition("PhaseFollowed", "False")
        }),
        ("OUT202", "kubectl do it", |facts| {
            status(facts)["conditions"] = condition("Stalled", "True");
            status(facts)["missing"] = json!([{
                "code": "MainLeaseIdle", "observation": "nobody leads", "consequence": "it waits", "fix": "kubectl do it",
            }]);
        }),
        ("OUT203", "60 min old", |facts| {
            status(facts)["observedBy"]["time"] = json!("2026-11-30T11:00:00Z")
        }),
        ("OUT203", "no manager", |facts| {
            facts["migrations"]["known"][0]["status"] = Value::Null
        }),
        ("OUT204", "the reason", |facts| {
            status(facts)["conditions"] = condition("SpecValid", "False")
        }),
        ("OUT205", "the reason", |facts| {
            status(facts)["conditions"] = condition("ObjectsApplied", "False")
        }),
        ("OUT206", "cp-2", |facts| {
            _ = facts["components"]["known"].as_array_mut().unwrap().pop()
        }),
        ("OUT207", "Pod kube-system/ccm", |facts| {
            let other = json!({"component": "aws-cloud-controller-manager", "object": "Pod kube-system/ccm"});
            facts["components"]["known"].as_array_mut().unwrap().push(other);
        }),
        ("OUT209", "outrigger-manager-cp-2", |facts| {
            facts["components"]["known"].as_array_mut().unwrap().last_mut().unwrap()["isReady"] = json!(false);
        }),
        ("OUT213", "the reason", |facts| {
            status(facts)["conditions"] = condition("WebhookRegistered", "False")
        }),
        ("OUT214", "CreateListener (it has none)", |facts| {
            status(facts)["conditions"] = condition("AdoptionClean", "False");
            status(facts)["adoption"] = json!({
                "time": "2026-11-30T11:59:00Z", "services": 2, "nodes": 3, "changes": 30,
                "first": [{"object": "Service default/web", "action": "CreateListener", "reason": "it has none"}],
            });
        }),
        ("OUT214", "the reason", |facts| {
            status(facts)["conditions"] = condition("AdoptionClean", "False");
        }),
        ("OUT210", "it lacks spec.attestation", |facts| {
            facts["definition"] = json!({"known": ["spec", "spec.phase"]});
        }),
        ("OUT211", "w: 1 Pods, and none is Ready", |facts| {
            facts["registrations"] = json!({"known": [{"name": "w", "webhooks": 3, "callsService": true}]});
            facts["webhooks"] = json!({"known": [{"object": "Pod a/b", "isReady": false}]});
        }),
        ("OUT212", "0.2.0: Pod a/b", |facts| {
            facts["components"]["known"][3]["version"] = json!("0.1.0");
            facts["webhooks"] = json!({"known": [{"object": "Pod a/b", "version": "0.2.0", "isReady": true}]});
        }),
        ("OUT208", "no MutatingWebhookConfiguration", |facts| {
            facts["registrations"] = json!({"known": []})
        }),
        ("OUT208", "nodes.outrigger.dev", |facts| {
            facts["registrations"]["known"][0]["withoutCa"] = json!(["nodes.outrigger.dev"]);
        }),
    ];

    let mut seen = BTreeSet::new();
    for (base, changes) in [(clean(), of_clean), (installed(), of_installed)] {
        for (code, text, change) in changes {
            let mut facts = base.clone();
            change(&mut facts);
            let found = findings(&report_of(&facts));
            let (own, others): (Vec<_>, Vec<_>) = found.iter().partition(|finding| finding.0 == *code);
            assert!(
                matches!(own.as_slice(), [(.., causes)] if causes.contains(text)),
                "{code}: {found:?}"
            );
            assert!(others.iter().all(|other| other.1 == "warning"), "{code}: {found:?}");
            seen.insert(*code);
        }
    }

    let all: BTreeSet<&str> = rules::ALL.iter().map(|rule| rule.code).collect();
    assert_eq!(seen, all, "each check has a broken cluster");
}

fn kcm(facts: &mut Value) -> &mut Value {
    &mut facts["components"]["known"][1]
}

fn worker(facts: &mut Value) -> &mut Value {
    &mut facts["nodes"]["known"][2]
}

fn status(facts: &mut Value) -> &mut Value {
    &mut facts["migrations"]["known"][0]["status"]
}

/// `UPDATE_DOCS=1` writes the table.
#[test]
fn the_page_has_every_check() {
    let rows = rules::ALL.iter().map(|rule| {
        let (code, group, severity) = (rule.code, rule.group.as_str(), rule.severity.as_str());
        format!(
            "| {code} | {group} | {severity} | {} | {} | {} |\n",
            rule.title, rule.why, rule.fix
        )
    });
    let head = "| code | group | severity | finding | why | fix |\n|---|---|---|---|---|---|\n";
    let table = head.to_owned() + &rows.collect::<String>();

    let path = "../docs/check.md";
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- checks: begin -->\n", "<!-- checks: end -->");
    let (from, to) = (text.find(begin).unwrap() + begin.len(), text.find(end).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
        return;
    }
    assert_eq!(
        &text[from..to],
        table,
        "docs/check.md is out of date: run this test with UPDATE_DOCS=1"
    );
}

/// A missing right hides no other finding, and is never taken for something that is in order.
#[test]
fn what_was_not_read_is_not_looked_at() {
    let mut facts = clean();
    let why = json!({"notRead": {"reason": "nodes: forbidden", "right": "list nodes"}});
    facts["nodes"] = why;
    facts["leases"]["known"][0]["durationSeconds"] = json!(8);
    let report = report_of(&facts);
    let codes: Vec<String> = findings(&report).into_iter().map(|(code, ..)| code).collect();
    assert_eq!(codes, ["OUT102", "OUT307"]);
    let nodes = report["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["group"] == "nodes")
        .unwrap();
    let not = &nodes["notMade"][0];
    assert_eq!(
        (not["reason"].as_str(), not["missingRight"].as_str()),
        (Some("nodes: forbidden"), Some("list nodes"))
    );
    let looked: u64 = nodes["ok"].as_u64().unwrap();
    let rows = u64::try_from(not["codes"].as_array().unwrap().len()).unwrap();
    let all = rules::ALL.iter().filter(|rule| rule.group.as_str() == "nodes").count();
    assert_eq!(usize::try_from(looked + rows).unwrap(), all);
    // OUT404 is about volumes.
    assert_eq!(looked, 1);

    let mut facts = clean();
    for section in [
        "components",
        "nodes",
        "leases",
        "migrations",
        "registrations",
        "ebsVolumes",
        "hasEbsCsiDriver",
        "services",
        "tenants",
        "definition",
        "webhooks",
    ] {
        facts[section] = json!({"notRead": {"reason": "no answer in 10 s"}});
    }
    let groups = report_of(&facts)["groups"].clone();
    assert!(
        groups.as_array().unwrap().iter().skip(1).all(|group| group["ok"] == 0),
        "{groups:#}"
    );
}

/// Each hosted control plane is checked by itself, and says nothing about the others or about this cluster's own.
#[test]
fn a_hosted_control_plane_is_a_group_of_its_own() {
    let mut facts = installed();
    let migration = &mut facts["migrations"]["known"][0];
    migration["profiles"] = json!(["HostedControlPlane"]);
    facts["components"] = json!({"known": []});
    let kcm = |flags: Value, judgement: Value| {
        json!({
            "component": "kube-controller-manager", "object": "Pod tenant/kcm", "version": "1.26.13", "flags": flags,
            "judgement": judgement,
        })
    };
    let in_tree = json!({"acts": "WhileLeader", "isInTree": true, "routes": false});
    let unlocked = json!({"acts": "Always", "isInTree": true, "routes": false, "otherLock": "--leader-elect=false"});
    let tenant =
        |name: &str, components: Value| json!({"migration": name, "namespaces": [name], "components": components});
    let aws = json!({"cloud-provider": "aws"});
    facts["tenants"] = json!({"known": [
        tenant("good", json!({"known": [kcm(aws.clone(), in_tree)]})),
        tenant("empty", json!({"known": []})),
        tenant("bad", json!({"known": [kcm(json!({"cloud-provider": "aws", "cluster-name": "x"}), unlocked)]})),
        tenant("hidden", json!({"notRead": {"reason": "pods in hidden: forbidden", "right": "list pods in hidden"}})),
    ]});

    let report = report_of(&facts);
    let groups = report["groups"].as_array().unwrap();
    let codes = |group: &str| -> Vec<String> {
        let group = groups.iter().find(|one| one["group"] == group).unwrap();
        let findings = group["findings"].as_array().unwrap().iter();
        findings
            .map(|finding| finding["code"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(codes("tenant good"), Vec::<String>::new());
    assert_eq!(codes("tenant empty"), ["OUT301"]);
    assert_eq!(codes("tenant bad"), ["OUT305", "OUT310"]);
    assert_eq!(codes("access"), ["OUT102"]);
    let hidden = groups.iter().find(|group| group["group"] == "tenant hidden").unwrap();
    assert_eq!(
        (
            hidden["ok"].as_u64(),
            hidden["notMade"][0]["codes"].as_array().unwrap().len()
        ),
        (Some(0), 8)
    );
    assert_eq!(codes("control plane"), Vec::<String>::new());
}

#[test]
fn the_text_shows_findings_causes_and_the_next_command() {
    let mut facts = clean();
    worker(&mut facts)["hostName"] = json!("ip-10-0-1-2\u{1b}[31m");
    facts["services"] = json!({"notRead": {"reason": "services: forbidden", "right": "list services"}});
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), facts.to_string()).unwrap();
    let path = file.path().to_str().unwrap();

    let run = support::outrigger(&["check", "--facts", path]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    insta::assert_snapshot!(run.stdout);
    let run = support::outrigger(&["check", "--facts", path, "--only", "control-plane"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
}

#[test]
fn each_check_is_explained_and_wrong_input_names_the_fix() {
    let run = support::outrigger(&["check", "--explain", "out402"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    insta::assert_snapshot!(run.stdout);
    let run = support::outrigger(&["check", "--explain", "all"]);
    assert_eq!(run.stdout.lines().count(), rules::ALL.len());

    for (args, part) in [
        (
            &["check", "--explain", "OUT999"][..],
            "--explain=\"OUT999\" is no check",
        ),
        (
            &["check", "--only", "OUT9"],
            "--only=\"OUT9\" is no check; outrigger check --explain all lists them",
        ),
        (&["check", "--facts", "/no/such/file"], "/no/such/file: No such file"),
        (&["check", "--kubeconfig", "/no/such/file"], "kubeconfig: "),
        (&["check", "--context", "x", "--facts", "y"], "cannot be used with"),
        (&["check", "--request-timeout", "0"], "request-timeout"),
        (&["check", "--wait", "--context", "prod-*"], "a wait is for one cluster"),
        (&["check", "--wait", "--facts", "y"], "cannot be used with"),
    ] {
        let run = support::outrigger(args);
        assert_eq!(run.code, Some(1), "{args:?}");
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
}

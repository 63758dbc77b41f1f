//! The guides and the operations pages say what is there: migrations are valid, commands parse, flags, conditions and
//! names exist, and the examples are real. Each check is a function from a page to its faults; a page with a
//! planted fault shows that it finds them.
//!
//! | check | file |
//! |---|---|
//! | `CloudProviderMigration`s, and patches of their spec | `migrations.rs` |
//! | command lines in console blocks | `commands.rs`, `programs.rs` |
//! | patches and paths of kustomizations | `overlays.rs` |
//! | flags, conditions, reasons, fields, names of objects | `names.rs` |
//! | the headings that all guides share | `headings.rs` |
//! | objects before and after a phase | `examples.rs` |
//! | which console blocks tests run | `tested.rs` |

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod commands;
mod examples;
mod headings;
mod migrations;
mod names;
mod overlays;
mod page;
mod programs;
mod shell;
#[path = "../support/mod.rs"]
mod support;
mod tested;

use page::{Page, pages, with_commands};

type Check = fn(&Page) -> Vec<String>;

#[track_caller]
fn none(check: Check) {
    let faults: Vec<String> = pages().iter().flat_map(check).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The check finds exactly this in a page with this text.
#[track_caller]
fn finds(check: Check, text: &str, fault: &str) {
    let faults = check(&Page::planted(text));
    assert!(faults.len() == 1 && faults[0].contains(fault), "{text}: {faults:?}");
}

#[test]
fn all_pages_are_read() {
    let pages = pages();
    assert!(pages.len() >= 17, "{}", pages.len());
    let count = |language: &str| {
        let blocks = pages.iter().flat_map(Page::blocks);
        blocks.filter(|block| block.language == language).count()
    };
    assert!(
        count("yaml") > 40 && count("console") > 60,
        "{} {}",
        count("yaml"),
        count("console")
    );
}

/// A word that no page has is no exception.
#[test]
fn every_exception_is_used() {
    let text: String = pages().into_iter().map(|page| page.text).collect();
    let flags = names::FOREIGN_FLAGS.split_whitespace().map(|flag| format!("--{flag}"));
    let lists = [names::OTHER_NAMES, names::FOREIGN_FIELDS, names::OWN_NAMES].join(" ");
    let words = lists.split_whitespace().map(str::to_owned);
    let unused: Vec<String> = flags.chain(words).filter(|word| !text.contains(word)).collect();
    assert!(unused.is_empty(), "{unused:?}");

    let lines: Vec<String> = with_commands().iter().flat_map(Page::console).collect();
    let commands: Vec<Vec<String>> = lines.iter().flat_map(|line| shell::commands(line)).collect();
    let mut listed = commands::NOT_RUN.iter().map(|(program, _)| *program);
    let unused = listed.find(|program| !commands.iter().any(|words| words[0] == *program));
    assert_eq!(unused, None);
}

#[test]
fn every_migration_is_valid() {
    none(migrations::faults);
    let object = |spec: &str| {
        format!(
            "```yaml\napiVersion: outrigger.dev/v1alpha1\nkind: CloudProviderMigration\n\
             metadata: {{name: a}}\nspec: {spec}\n```\n"
        )
    };
    finds(migrations::faults, &object("{clusterID: a, phases: InTree}"), "phases");
    finds(
        migrations::faults,
        &object("{clusterID: a, targets: [{profile: Node}]}"),
        "Node",
    );
    let contradiction = "{clusterID: a, targets: [{profile: RancherRKE2}]}";
    finds(migrations::faults, &object(contradiction), "has no selector");
    let patch = |spec: &str| format!("```console\n$ kubectl patch cpm a --type=merge -p '{{\"spec\":{spec}}}'\n```\n");
    finds(migrations::faults, &patch(r#"{"phase":"Migration"}"#), "Migration");
    finds(migrations::faults, &patch(r#"{"attested":"Prepare"}"#), "attested");
    let complete = r#"{"attestation":{"phase":"Complete"}}"#;
    finds(migrations::faults, &patch(complete), "spec.attestation.phase Complete");
    let at_once = r#"{"phase":"Prepare","attestation":{"phase":"Prepare"}}"#;
    finds(migrations::faults, &patch(at_once), "in a later write");
}

#[test]
fn every_command_line_is_checked_or_listed() {
    let faults: Vec<String> = with_commands().iter().flat_map(commands::faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn wrong_command_lines_are_found() {
    for (line, fault) in [
        (
            "kubectl get cpm a -o yaml | outrigger mutate -f - --migrations m.yaml > b",
            "--migrations",
        ),
        ("outrigger chek", "chek"),
        ("outriger mutate -f a", "outriger"),
        ("kubectl wait cpm a --for=condition=Readi", "Readi"),
        (
            r#"kubectl get cpm -o custom-columns='A:.status.conditions[?(@.type=="Applied")].status'"#,
            "Applied",
        ),
        ("kubectl gett cpm", "gett"),
        ("kubectl -n kube-system rollout restrt daemonset/a", "restrt"),
        ("kubectl get cpm --selectors a=b", "--selectors"),
        ("kubectl apply -k manifests/bases", "manifests/bases"),
        ("kubectl delete lease a -A --timeout", "--timeout"),
        ("kubectl get poods", "poods"),
        ("kubectl get pods,cmp", "cmp"),
        ("kubectl get pods -o yml", "yml"),
        ("kubectl get pods -o jsonpath='{.items[*}'", "unterminated"),
        ("kubectl get pods -o custom-columns=A:.a[,B:.b", "unterminated"),
        (
            "helm install a charts/outrigger --create-namespaces",
            "--create-namespaces",
        ),
        ("helm install a charts/outriger", "charts/outriger"),
        (
            "helm install a charts/outrigger \\\n    --set manager.port=1",
            "manager.port",
        ),
        (
            "helm upgrade a charts/aws-cloud-controller-manager --set-json 'clusterRoles=[]'",
            "clusterRoles",
        ),
        ("NAME=a outriger mutate -f a", "outriger"),
        ("crane push a b --insecur", "--insecur"),
        ("crane auth logon a", "logon"),
        ("make imag", "imag"),
        ("make image IMAG=a", "IMAG"),
        ("cargo install --path migrat", "migrat"),
    ] {
        finds(commands::faults, &format!("```console\n$ {line}\n```\n"), fault);
    }
    finds(commands::faults, "```sh\nkubectl get pods\n```\n", "console block");
    finds(commands::faults, "Run `outrigger node restore --force`.", "restore");
    finds(commands::faults, "Run `outrigger node undo --hard`.", "--hard");
    finds(commands::faults, "Run `kubectl delete cpms cluster`.", "cpms");
}

/// A reader of `docs/README.md` sees which commands a test runs.
#[test]
fn the_table_of_tested_commands_is_complete() {
    let pages = with_commands();
    let faults = tested::faults(&pages, tested::RUNS, tested::REASONS, page::read);
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    let table = tested::table(&pages, tested::RUNS, tested::REASONS);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page::root().join("docs/README.md"), tested::written(Some(&table))).unwrap();
        return;
    }
    assert_eq!(
        tested::written(None),
        table,
        "docs/README.md is out of date: see tested.rs"
    );
}

#[test]
fn wrong_rows_of_the_table_of_tested_commands_are_found() {
    let block = "```console\n$ kubectl get pods\n```\n";
    let page = Page::planted(&format!(
        "# Page\n{block}## Section\n{block}```yaml\na: b\n```\n{block}"
    ));
    let run = |section, whole, part, evidence| tested::Run {
        page: "docs/guides/planted.md",
        section,
        whole,
        part,
        test: "e2e/tests/a.rs",
        evidence,
        make: "make test",
    };
    let reasons = [("docs/guides/planted.md", "It needs a cluster.")];
    let pages = [page];

    let row = "| [docs/guides/planted.md](guides/planted.md) | 3 | 1 | 1 | 1 | `e2e/tests/a.rs` (make test) | It needs a cluster. |";
    let table = tested::table(&pages, &[run("Section", 1, 1, "a")], &reasons);
    assert_eq!(table.lines().nth(2), Some(row));

    let find = |run: &tested::Run, reasons: &[(&str, &str)]| {
        let faults = tested::faults(&pages, std::slice::from_ref(run), reasons, |_| "abc".to_owned());
        faults.join("\n")
    };
    let place = "docs/guides/planted.md, section \"Section\"";
    assert_eq!(find(&run("Section", 1, 1, "b"), &reasons), "");
    let more = find(&run("Section", 2, 1, "b"), &reasons);
    assert_eq!(more, format!("{place}: has 2 console blocks"));
    let other = find(&run("Section", 1, 0, "d"), &reasons);
    assert_eq!(other, format!("{place}: e2e/tests/a.rs does not follow it"));
    let none = find(&run("Section", 1, 0, "b"), &[]);
    assert_eq!(none, "docs/guides/planted.md: say why no test runs all of its blocks");

    let both = [run("Section", 2, 0, "b"), run("Page", 1, 0, "b")];
    let done = tested::faults(&pages, &both, &reasons, |_| "abc".to_owned());
    assert_eq!(
        done,
        ["docs/guides/planted.md: a test runs all of its blocks: delete the reason"]
    );
}

#[test]
fn every_overlay_fits_the_manifests() {
    none(overlays::faults);
    let patch = |line: &str| {
        format!(
            "```yaml\npatches:\n- target: {{kind: DaemonSet, name: outrigger-manager}}\n  \
             patch: |\n    - {line}\n```\n"
        )
    };
    let test = "{op: test, path: /spec/template/spec/containers/0/args/3, value: --migration=cluster}";
    finds(overlays::faults, &patch(test), "args/3");
    let add = "{op: add, path: /spec/template/spec/containers/0/args/-, value: --cluster=a}";
    finds(overlays::faults, &patch(add), "--cluster");
    let resources = "```yaml\nkind: Kustomization\nresources: [../../manifests/bases]\n```\n";
    finds(overlays::faults, resources, "manifests/bases");
}

#[test]
fn every_name_exists() {
    none(names::faults);
    finds(names::faults, "Set `--leader-elect-name`.", "--leader-elect-name");
    finds(
        names::faults,
        "```console\n$ kubectl get a --alsologtostdout\n```\n",
        "--alsologtostdout",
    );
    finds(names::faults, "`ControlPlaneReady` is True.", "ControlPlaneReady");
    finds(names::faults, "The reason is `OldManagerLeads`.", "OldManagerLeads");
    finds(names::faults, "Set `spec.attested: Prepare`.", "spec.attested");
    finds(
        names::faults,
        "Delete the Role `outrigger-manager:leases`.",
        "outrigger-manager:leases",
    );
    finds(
        names::faults,
        "Set the annotation `outrigger.dev/phase`.",
        "outrigger.dev/phase",
    );
    finds(
        names::faults,
        "Watch `outrigger_migration_state`.",
        "outrigger_migration_state",
    );
}

#[test]
fn all_guides_have_the_same_shape() {
    none(headings::faults);
    let text = std::fs::read_to_string(page::root().join("docs/guides/kubeadm.md")).unwrap();
    let mut page = Page::planted(&text.replace("## Time\n", "## Times\n"));
    page.path = "docs/guides/kubeadm.md".into();
    assert_eq!(headings::faults(&page).len(), 1);
    page.text = text.replace("| ECR |", "| registry |");
    assert_eq!(headings::faults(&page).len(), 1);
}

#[test]
fn the_examples_are_what_outrigger_mutate_prints() {
    none(examples::faults);
    let count: usize = pages().iter().map(|page| examples::of(page).len()).sum();
    assert!(count >= 8, "{count} examples");
    let text = std::fs::read_to_string(page::root().join("docs/guides/rke2.md")).unwrap();
    let wrong = text.replace(
        "        - enable-leader-migration\n",
        "        - enable-leader-migration=true\n",
    );
    assert_ne!(text, wrong);
    finds(examples::faults, &wrong, "kube-controller-manager-arg");
    let more = text.replace("      disable-cloud-controller: true\n      kube", "      kube");
    assert_ne!(text, more);
    finds(examples::faults, &more, "disable-cloud-controller");
}

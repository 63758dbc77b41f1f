//! The table of `docs/README.md` that says for each page how many of its console blocks a test runs, and why it does not run
//! the others. `UPDATE_DOCS=1 cargo test -p outrigger-migrate --test guides` writes it.

use std::collections::BTreeMap;

use crate::page::{self, Page};

/// A test that runs console blocks of a section.
pub struct Run {
    pub page: &'static str,
    pub section: &'static str,
    /// How many blocks of the section it runs completely.
    pub whole: usize,
    /// How many it runs in part.
    pub part: usize,
    pub test: &'static str,
    /// A text of the test that shows that it follows the section.
    pub evidence: &'static str,
    pub make: &'static str,
}

const TEST: &str = "make test";
const LONG: &str = "make test-long";

const CHART: &str = "charts/aws-cloud-controller-manager/README.md";
const KUBEADM: &str = "docs/guides/kubeadm.md";
const NODE: &str = "docs/node.md";
const REPLACE: &str = "docs/operations/replace.md";

const IN_PLACE: &str = "e2e/tests/replace/in_place.rs";
const BESIDE: &str = "e2e/tests/replace/beside.rs";
const GUIDE: &str = "e2e/tests/kubelets/kubeadm_guide/guide.rs";
const MACHINE: &str = "migrate/tests/node.rs";

/// The tests that run blocks. All others are only parsed (`commands.rs`).
pub const RUNS: &[Run] = &[
    run(
        "docs/mutate.md",
        "Example",
        (1, 0),
        TEST,
        "migrate/tests/real_world.rs",
        "\"$ outrigger mutate \"",
    ),
    run(
        "docs/try.md",
        "Install it on a test cluster",
        (2, 1),
        TEST,
        "e2e/tests/kubelets/test_cluster/mod.rs",
        "\"Install it on a test cluster\"",
    ),
    run(
        "charts/outrigger/README.md",
        "A cluster with the in-tree provider",
        (0, 1),
        TEST,
        "e2e/tests/chart/main.rs",
        "\"$ helm \"",
    ),
    run(
        "charts/outrigger/README.md",
        "A cluster that is external already",
        (0, 1),
        TEST,
        "e2e/tests/chart/main.rs",
        "\"$ helm \"",
    ),
    run(
        "charts/outrigger/README.md",
        "Upgrade and uninstall",
        (0, 1),
        TEST,
        "e2e/tests/chart/main.rs",
        "\"$ helm \"",
    ),
    run(
        CHART,
        "Replace",
        (1, 0),
        TEST,
        IN_PLACE,
        "Section::read(README, \"Replace\")",
    ),
    run(
        CHART,
        "Return",
        (1, 0),
        TEST,
        IN_PLACE,
        "Section::read(README, \"Return\")",
    ),
    run(
        CHART,
        "Keep it",
        (1, 0),
        TEST,
        IN_PLACE,
        "Section::read(README, \"Keep it\")",
    ),
    run(
        "docs/guides/install.md",
        "Apply it",
        (0, 1),
        LONG,
        "e2e/tests/kubelets/kubeadm_guide/install.rs",
        "\"Apply it\"",
    ),
    run(KUBEADM, "Prerequisites", (1, 0), LONG, GUIDE, "(\"Prerequisites\", &["),
    run(KUBEADM, "1. InTree", (1, 0), LONG, GUIDE, "(\"1. InTree\", &["),
    run(KUBEADM, "2. Prepare", (4, 0), LONG, GUIDE, "(\"2. Prepare\", &["),
    run(KUBEADM, "3. Migrate", (3, 0), LONG, GUIDE, "(\"3. Migrate\", &["),
    run(KUBEADM, "4. Complete", (5, 0), LONG, GUIDE, "\"4. Complete\","),
    run(KUBEADM, "Go back", (9, 0), LONG, GUIDE, "\"Go back\","),
    run(
        "docs/operations/emergency.md",
        "Emergency: turn the webhook off",
        (1, 0),
        TEST,
        "e2e/tests/chart/emergency.rs",
        "\"docs/operations/emergency.md\"",
    ),
    run(NODE, "Change a machine", (1, 1), TEST, MACHINE, "\"$ outrigger node \""),
    run(NODE, "Go back", (0, 1), TEST, MACHINE, "\"$ outrigger node \""),
    run(
        REPLACE,
        "Before you begin",
        (1, 0),
        TEST,
        BESIDE,
        "Section::read(PAGE, \"Before you begin\")",
    ),
    run(
        REPLACE,
        "Install beside it",
        (0, 1),
        TEST,
        BESIDE,
        "Section::read(PAGE, \"Install beside it\")",
    ),
    run(
        REPLACE,
        "Switch",
        (1, 0),
        TEST,
        BESIDE,
        "Section::read(PAGE, \"Switch\")",
    ),
    run(
        REPLACE,
        "Return",
        (2, 0),
        TEST,
        BESIDE,
        "Section::read(PAGE, \"Return\")",
    ),
];

/// Why the other blocks of a page are not run, and what is left out of those that are run in part.
pub const REASONS: &[(&str, &str)] = &[
    ("README.md", "They start tests, or need a cluster of a distribution."),
    (
        "charts/outrigger/README.md",
        "`helm template` in place of `helm install` and `helm upgrade`: a release needs an image in a registry.",
    ),
    (CHART, "The first block reads the release of the user."),
    (
        "docs/try.md",
        "The first block starts tests. The block with `make nodes`: the test starts its program.",
    ),
    ("docs/alerts.md", "It reads logs of a cluster with a fault."),
    (
        "docs/certificates.md",
        "They need a cluster with the fault that they repair.",
    ),
    (
        "docs/guides/cluster-api.md",
        "They need Cluster API with machines on AWS.",
    ),
    (
        "docs/guides/downtime.md",
        "They need a distribution that is stopped by hand.",
    ),
    (
        "docs/guides/hosted.md",
        "They need a management cluster. `e2e/tests/migration.rs` performs the migration without these commands.",
    ),
    (
        "docs/guides/install.md",
        "They need a registry and the overlay of the user. Of the block in part: not `kubectl apply`, the test installs the chart.",
    ),
    ("docs/guides/kkp.md", "They need Kubermatic."),
    ("docs/guides/kops.md", "They need kOps and an AWS account."),
    ("docs/guides/prerequisites.md", "They need a cluster on AWS."),
    ("docs/guides/rke1.md", "They need Rancher."),
    ("docs/guides/rke2.md", "They need Rancher."),
    (
        "docs/image.md",
        "They need a registry, a container engine or keys. `e2e/tests/image` builds and checks an image without these commands.",
    ),
    (
        "docs/mutate.md",
        "It needs the objects of a cluster. `migrate/tests/mutate.rs` runs the command with other files.",
    ),
    (
        NODE,
        "Without `systemctl` and `kubectl`: the machine of the test is a folder. The guide of kubeadm has both on real kubelets.",
    ),
    (
        "docs/operations/emergency.md",
        "The others need the overlay of the user, or a cluster with a fault.",
    ),
    (
        "docs/operations/finish.md",
        "They need a cluster whose migration is finished.",
    ),
    ("docs/operations/gitops.md", "They need Argo CD or Flux."),
    (
        REPLACE,
        "The others need kOps. Of the block in part: not `kubectl logs`, which needs a kubelet.",
    ),
    ("docs/operations/topologies.md", "They need two clusters of the user."),
    ("docs/operations/upgrade.md", "They need an older release in a cluster."),
    (
        "docs/policies.md",
        "It needs the migration of a cluster. `e2e/tests/policies` applies the output of the command to an API server.",
    ),
    (
        "manifests/README.md",
        "It needs an image in a registry. `e2e/tests/manifests` applies the same manifests to an API server.",
    ),
];

const fn run(
    page: &'static str,
    section: &'static str,
    (whole, part): (usize, usize),
    make: &'static str,
    test: &'static str,
    evidence: &'static str,
) -> Run {
    Run {
        page,
        section,
        whole,
        part,
        test,
        evidence,
        make,
    }
}

/// The table, one row for each page with console blocks.
pub fn table(pages: &[Page], runs: &[Run], reasons: &[(&str, &str)]) -> String {
    let mut table = "| page | console blocks | run | run in part | only parsed | tests | why not all |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for page in pages.iter().filter(|page| blocks(page).values().sum::<usize>() > 0) {
        let name = page.path.to_string_lossy();
        let all: usize = blocks(page).values().sum();
        let of_page: Vec<&Run> = runs.iter().filter(|run| run.page == name).collect();
        let whole: usize = of_page.iter().map(|run| run.whole).sum();
        let part: usize = of_page.iter().map(|run| run.part).sum();
        let parsed = all.saturating_sub(whole + part);

        let mut tests: Vec<String> = of_page
            .iter()
            .map(|run| format!("`{}` ({})", run.test, run.make))
            .collect();
        tests.dedup();
        let reason = reasons
            .iter()
            .find(|(page, _)| *page == name)
            .map_or("", |(_, reason)| reason);
        table += &format!(
            "| [{name}]({}) | {all} | {whole} | {part} | {parsed} | {} | {reason} |\n",
            link(&name),
            tests.join(", ")
        );
    }
    table
}

/// Where [`RUNS`] and [`REASONS`] do not fit the pages and the tests. `source` reads a test.
pub fn faults(pages: &[Page], runs: &[Run], reasons: &[(&str, &str)], source: impl Fn(&str) -> String) -> Vec<String> {
    let of_runs = runs.iter().filter_map(|run| {
        let page = pages.iter().find(|page| page.path.to_string_lossy() == run.page);
        let there = page.and_then(|page| blocks(page).get(run.section).copied());
        let fault = match there.unwrap_or_default() {
            there if there < run.whole + run.part => format!("has {there} console blocks"),
            _ if !source(run.test).contains(run.evidence) => format!("{} does not follow it", run.test),
            _ => return None,
        };
        Some(format!("{}, section {:?}: {fault}", run.page, run.section))
    });

    let of_pages = pages.iter().filter_map(|page| {
        let name = page.path.to_string_lossy();
        let whole: usize = runs.iter().filter(|run| run.page == name).map(|run| run.whole).sum();
        let is_complete = blocks(page).values().sum::<usize>() == whole;
        let has_reason = reasons.iter().any(|(page, _)| *page == name);
        (is_complete == has_reason).then(|| match has_reason {
            true => format!("{name}: a test runs all of its blocks: delete the reason"),
            false => format!("{name}: say why no test runs all of its blocks"),
        })
    });
    of_runs.chain(of_pages).collect()
}

/// The number of console blocks of each section.
fn blocks(page: &Page) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let (mut section, mut in_block) = (String::new(), false);
    for line in page.text.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(language) => {
                if !in_block && language == "console" {
                    *counts.entry(section.clone()).or_default() += 1;
                }
                in_block = !in_block;
            }
            None if !in_block && line.starts_with('#') => section = line.trim_start_matches(['#', ' ']).to_owned(),
            None => {}
        }
    }
    counts
}

/// A page, seen from the folder `docs`.
fn link(page: &str) -> String {
    page.strip_prefix("docs/")
        .map_or_else(|| format!("../{page}"), str::to_owned)
}

/// The table in `docs/README.md`, or the page with another table.
pub fn written(table: Option<&str>) -> String {
    let text = page::read("docs/README.md");
    let (before, rest) = text.split_once("<!-- commands: begin -->\n").unwrap();
    let (there, after) = rest.split_once("<!-- commands: end -->").unwrap();
    match table {
        None => there.to_owned(),
        Some(table) => format!("{before}<!-- commands: begin -->\n{table}<!-- commands: end -->{after}"),
    }
}

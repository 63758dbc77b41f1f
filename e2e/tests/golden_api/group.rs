//! One group of cases with the same migrations.
//!
//! Before the migrations are there, the API server says by dry runs what it makes of the expected objects (its defaults), and
//! the objects that are updated get their earlier form. Then the migrations are made, and every case is written in every way.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use http::Method;
use outrigger_cluster_harness::cluster::User;
use outrigger_environment::{manifests, review};
use serde_json::{Value, json};

use crate::barrier::Barrier;
use crate::bench::{Bench, MIGRATIONS};
use crate::cases::Case;
use crate::kubectl::Kubectl;
use crate::verdict;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// The registration that asks at the path of one migration.
const BY_PATH: &str = "outrigger-by-path";

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    ServerSide,
    Kubectl,
    KubectlServerSide,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::ServerSide, Self::Kubectl, Self::KubectlServerSide];

    /// The options of `kubectl apply`; none where it is not kubectl that writes.
    fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::ServerSide => None,
            Self::Kubectl => Some(&[]),
            Self::KubectlServerSide => Some(&["--server-side"]),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::ServerSide => "s",
            Self::Kubectl => "k",
            Self::KubectlServerSide => "ks",
        }
    }
}

/// An API server, and a user's kubectl.
pub struct Fixture {
    bench: Bench,
    kubectl: Kubectl,
    barrier: Barrier,
}

impl Fixture {
    pub async fn new(bench: Bench) -> Result<Self> {
        let kubectl = Kubectl::new(bench.server.kubeconfig(&User::admin())?, bench.run.join("home")).await?;
        let barrier = Barrier::begin(&bench).await?;
        Ok(Self {
            bench,
            kubectl,
            barrier,
        })
    }
}

/// The results of a group.
#[derive(Default)]
pub struct Report {
    pub run: BTreeMap<Way, usize>,
    /// Cases in no way, and why.
    pub left_out: BTreeMap<String, String>,
    /// Cases that kubectl's client-side apply cannot write.
    pub with_null: usize,
    pub wrong: Vec<String>,
}

/// A case with what must be stored.
struct Ready<'a> {
    case: &'a Case,
    number: usize,
    wanted: Value,
}

impl Ready<'_> {
    fn name(&self, group: usize, way: Way) -> String {
        format!("g{group}-c{}-{}", self.number, way.suffix())
    }

    fn path(&self, group: usize, way: Way) -> String {
        format!("{}/{}", collection(self.case), self.name(group, way))
    }
}

fn collection(case: &Case) -> String {
    let version = case.input.object["apiVersion"].as_str().unwrap_or_default();
    let root = if case.kind.group.is_empty() { "/api" } else { "/apis" };
    let namespace = case
        .namespace()
        .map_or_else(String::new, |(name, _)| format!("namespaces/{name}/"));
    format!("{root}/{version}/{namespace}{}", case.kind.plural)
}

/// A group whose cases can be written.
pub struct Prepared<'a> {
    number: usize,
    ready: Vec<Ready<'a>>,
    /// The first is server-side apply.
    ways: &'static [Way],
    pub report: Report,
}

impl Prepared<'_> {
    /// How many writes of its cases are kubectl's.
    pub fn writes_by_kubectl(&self) -> usize {
        let ways = self.ways.iter().filter(|way| way.options().is_some());
        self.ready.len() * ways.count()
    }
}

/// Writes the cases in their ways.
pub async fn run(fixture: &Fixture, prepared: Prepared<'_>) -> Result<Report> {
    let Prepared {
        number: group,
        ready,
        ways,
        mut report,
    } = prepared;
    if ready.is_empty() {
        return Ok(report);
    }

    // Another group may have other labels in it.
    for one in &ready {
        namespace(&fixture.bench, one.case).await?;
    }
    begin(fixture, &ready).await.context("the migrations")?;
    by_server_side_apply(fixture, group, &ready, &mut report).await?;
    for (way, more) in ways.iter().filter_map(|way| Some((*way, way.options()?))) {
        by_kubectl(fixture, group, &ready, (way, more), &mut report).await?;
    }
    end(fixture, group, &ready).await.context("cleaning up")?;
    Ok(report)
}

/// Asks by dry runs what must be stored, before there are migrations.
pub async fn prepare<'a>(
    fixture: &Fixture,
    number: usize,
    cases: &'a [Case],
    ways: &'static [Way],
) -> Result<Prepared<'a>> {
    let (bench, mut report, mut ready) = (&fixture.bench, Report::default(), Vec::new());
    for (position, case) in cases.iter().enumerate() {
        if let Some(why) = case.why_not() {
            report.left_out.insert(case.name.clone(), why.to_owned());
            continue;
        }
        namespace(bench, case).await?;
        let dry_run = format!("{}?dryRun=All&fieldValidation=Strict", collection(case));
        let wanted = case.wanted(&format!("g{number}-c{position}"));
        let answer = bench.create(&dry_run, &wanted).await?;
        if answer.is_granted() {
            ready.push(Ready {
                case,
                number: position,
                wanted: answer.body,
            });
        } else {
            report.left_out.insert(case.name.clone(), answer.message().to_owned());
        }
    }
    for one in &ready {
        if let Some(before) = one.case.before(&one.name(number, Way::ServerSide)) {
            let path = one.path(number, Way::ServerSide);
            server_side(bench, &path, &before)
                .await?
                .granted()
                .with_context(|| format!("{}: the earlier form", one.case.name))?;
        }
    }
    Ok(Prepared {
        number,
        ready,
        ways,
        report,
    })
}

/// Writes the earlier forms of all groups: kubectl reads schemas at each start.
pub async fn write_before(fixture: &Fixture, all: &[Prepared<'_>]) -> Result<()> {
    for (way, more) in Way::ALL.into_iter().filter_map(|way| Some((way, way.options()?))) {
        let of_way = all.iter().filter(|group| group.ways.contains(&way));
        let before: Vec<Value> = of_way
            .flat_map(|group| {
                let ready = group.ready.iter();
                ready.filter_map(|one| one.case.before(&one.name(group.number, way)))
            })
            .collect();
        let done = fixture.kubectl.apply("before", &before, more).await?;
        ensure!(done.success, "{way:?}: the earlier forms: {}", done.said);
    }
    Ok(())
}

async fn namespace(bench: &Bench, case: &Case) -> Result<()> {
    let Some((name, labels)) = case.namespace() else {
        return Ok(());
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
    manifests::apply(&bench.admin, &[namespace, account]).await
}

async fn begin(fixture: &Fixture, ready: &[Ready<'_>]) -> Result<()> {
    let bench = &fixture.bench;
    let input = &ready[0].case.input;
    for (name, migration) in &input.migrations {
        let object = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration",
            "metadata": {"name": name}, "spec": migration.spec,
        });
        bench.create(MIGRATIONS, &object).await?.granted()?;
        if migration.prepared {
            bench.write_prepared(name, "True").await?;
        }
    }
    fixture.barrier.settle(bench).await?;
    if ready[0].case.kind.kind != "Node" {
        return Ok(());
    }
    if let Some(path) = &input.path {
        ask_by_path(bench, path).await?;
    }
    hold_lease(bench, input.manager_ready == Some(true)).await?;
    // Both are seen a moment later.
    let probe = ready[0].case.written("probe");
    let wanted = verdict::essence(&ready[0].wanted);
    let collection = format!("{}?dryRun=All", collection(ready[0].case));
    bench
        .until("a new Node is as the first case expects it", async || {
            let answer = bench.create(&collection, &probe).await?.granted()?;
            Ok(verdict::essence(&answer.body) == wanted)
        })
        .await
}

/// As a tenant's API server asks.
async fn ask_by_path(bench: &Bench, path: &str) -> Result<()> {
    let mut registration = bench.read(&format!("{REGISTRATIONS}/outrigger-tenant")).await?;
    registration["metadata"] = json!({"name": BY_PATH});
    let url = registration["webhooks"][0]["clientConfig"]["url"]
        .as_str()
        .context("a registration without URL")?;
    let (root, _) = url.rsplit_once('/').context("a URL without path")?;
    registration["webhooks"][0]["clientConfig"]["url"] = json!(format!("{root}/{path}"));
    manifests::apply(&bench.admin, &[registration]).await
}

async fn hold_lease(bench: &Bench, held: bool) -> Result<()> {
    // MicroTime wants six digits.
    let now = format!("{:.6}", jiff::Timestamp::now());
    let holder = if held { "manager-1" } else { "" };
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "cloud-controller-manager"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": now},
    });
    server_side(bench, LEASE, &lease).await?.granted()?;
    Ok(())
}

async fn server_side(bench: &Bench, path: &str, object: &Value) -> Result<review::Answer> {
    let path = format!("{path}?fieldManager=operator&force=true&fieldValidation=Strict");
    review::send(&bench.admin, Method::PATCH, &path, Some((review::APPLY, object))).await
}

async fn by_server_side_apply(fixture: &Fixture, group: usize, ready: &[Ready<'_>], report: &mut Report) -> Result<()> {
    let (bench, way) = (&fixture.bench, Way::ServerSide);
    for one in ready {
        let (path, object) = (one.path(group, way), one.case.written(&one.name(group, way)));
        let first = server_side(bench, &path, &object).await?;
        if !first.is_granted() {
            report
                .wrong
                .push(format!("{} by {way:?}: {}", one.case.name, first.message()));
            continue;
        }
        let stored = bench.read(&path).await?;
        let mut wrong: Vec<String> = verdict::of_stored(&one.wanted, &stored).into_iter().collect();
        wrong.extend(verdict::of_warnings(
            std::iter::once(&one.case.expected),
            &first.warnings,
        ));
        if one.case.is_written_twice() {
            let again = server_side(bench, &path, &object).await?.granted()?;
            wrong.extend(verdict::of_second(&stored, &again.body));
        }
        note(report, one.case, way, wrong);
    }
    Ok(())
}

/// All in one call, as from one folder, so its warnings are those of all. An object that is written twice is listed twice.
async fn by_kubectl(
    fixture: &Fixture,
    group: usize,
    ready: &[Ready<'_>],
    (way, more): (Way, &[&str]),
    report: &mut Report,
) -> Result<()> {
    let able = |one: &&Ready<'_>| way != Way::Kubectl || !one.case.has_null();
    let all: Vec<&Ready<'_>> = ready.iter().filter(able).collect();
    report.with_null += ready.len() - all.len();
    if all.is_empty() {
        return Ok(());
    }

    let twice: Vec<&Ready<'_>> = all.iter().copied().filter(|one| one.case.is_written_twice()).collect();
    let writes: Vec<&Ready<'_>> = all.iter().chain(&twice).copied().collect();
    let objects: Vec<Value> = writes
        .iter()
        .map(|one| one.case.written(&one.name(group, way)))
        .collect();
    let done = fixture.kubectl.apply("group", &objects, more).await?;
    ensure!(
        done.success && done.objects.len() == objects.len(),
        "{way:?}: {} of {} objects: {}",
        done.objects.len(),
        objects.len(),
        done.said
    );

    let seen = verdict::of_warnings(all.iter().map(|one| &one.case.expected), &done.warnings);
    report
        .wrong
        .extend(seen.map(|text| format!("the group of {} by {way:?}: {text}", all[0].case.name)));
    let (first, again) = done.objects.split_at(all.len());
    for (one, stored) in all.iter().zip(first) {
        let mut wrong: Vec<String> = verdict::of_stored(&one.wanted, stored).into_iter().collect();
        let position = twice.iter().position(|other| other.number == one.number);
        wrong.extend(position.and_then(|position| verdict::of_second(stored, &again[position])));
        note(report, one.case, way, wrong);
    }
    Ok(())
}

fn note(report: &mut Report, case: &Case, way: Way, wrong: Vec<String>) {
    *report.run.entry(way).or_default() += 1;
    let wrong = wrong
        .into_iter()
        .map(|text| format!("{} by {way:?}: {text}", case.name));
    report.wrong.extend(wrong);
}

async fn end(fixture: &Fixture, group: usize, ready: &[Ready<'_>]) -> Result<()> {
    let bench = &fixture.bench;
    let delete = async |path: &str| -> Result<()> {
        review::send(&bench.admin, Method::DELETE, path, None)
            .await?
            .granted()?;
        Ok(())
    };
    for one in ready {
        for way in Way::ALL {
            // An object that was not written is absent.
            let path = format!("{}?gracePeriodSeconds=0", one.path(group, way));
            review::send(&bench.admin, Method::DELETE, &path, None).await?;
        }
    }
    for name in ready[0].case.input.migrations.keys() {
        delete(&format!("{MIGRATIONS}/{name}")).await?;
    }
    if ready[0].case.input.path.is_some() && ready[0].case.kind.kind == "Node" {
        delete(&format!("{REGISTRATIONS}/{BY_PATH}")).await?;
    }
    fixture.barrier.settle(bench).await
}

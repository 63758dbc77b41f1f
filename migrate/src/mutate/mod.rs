//! `outrigger mutate`: the webhook's decisions about objects in files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use outrigger_decide::{Decision, Input, Kind, Migration, Outcome, decide, kinds};
use outrigger_shared::annotations::NAMESPACE_NAME_LABEL;
use outrigger_shared::component::Component;
use outrigger_shared::migration::Labels;
use serde_json::Value;

use self::report::{Entry, Report};
use crate::args::{MutateArgs, Operation, Output};
use crate::documents::{Document, Inputs, Origin};
use crate::end::{End, Failure};
use crate::explain::printable;
use crate::migrations::{self, Found};

mod provider;
mod report;

/// Flags and objects that contradict each other.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "--operation=update needs --old=FILE, the objects as they are stored: an update acts only on what it changes"
    )]
    OldMissing,
    #[error("--old is for --operation=update; leave one of them out")]
    OldOnCreate,
    #[error("{origin}: {what} is not in --old={file}; add it there, or remove it here")]
    NotInOld { origin: Origin, what: String, file: String },
    #[error("{origin}: {what} occurs twice in --old={file}; remove one")]
    TwiceInOld { origin: Origin, what: String, file: String },
    /// A version that the API server never sends to the webhook.
    #[error(
        "{origin}: {what} has version {version:?}; the API server sends it to the webhook as {expected}: convert it to that version"
    )]
    Version {
        origin: Box<Origin>,
        what: String,
        version: String,
        expected: String,
    },
    #[error("--path={path}: no migration has that name (known: {names}), so nothing would be changed")]
    Path { path: String, names: String },
    /// A defect in the decision.
    #[error("{origin}: the patch does not apply ({source}); please report this defect")]
    Patch {
        origin: Origin,
        source: json_patch::PatchError,
    },
    #[error("--out={}: {source}", path.display())]
    Out { path: PathBuf, source: io::Error },
}

/// Reads, decides, prints.
///
/// # Errors
/// [`Failure`] on wrong input; then nothing is printed to `out`.
pub fn run(args: &MutateArgs, stdin: &mut dyn Read, out: &mut dyn Write, err: &mut dyn Write) -> Result<End, Failure> {
    let operation = operation(args)?;
    let mut inputs = Inputs::new(stdin);
    let mut documents = Vec::new();

    for file in &args.filename {
        documents.extend(inputs.read(file)?);
    }

    let old = match &args.old {
        Some(file) => Old::new(file, inputs.read(file)?, args)?,
        None => Old::default(),
    };
    let mut found = migrations::find(&args.migration, &documents, &mut inputs)?;
    let mut notes = notes(args, &found);
    check_path(args, &found)?;
    for found in &mut found {
        found.migration.spec.phase = args.phase.unwrap_or(found.migration.spec.phase);
    }

    let migrations = found.iter().map(|found| {
        let migration = Migration::from(&found.migration);
        let prepared = args.prepared.unwrap_or(migration.prepared);
        Migration { prepared, ..migration }
    });
    let run = Run {
        args,
        operation,
        migrations: migrations.collect(),
        namespaces: namespaces(&documents),
        old,
    };
    let entries: Result<_, Error> = documents.iter().map(|document| run.entry(document)).collect();
    let report = Report {
        operation,
        entries: entries?,
    };

    if report.entries.iter().any(|entry| entry.namespace_is_unknown) {
        notes.push(
            "hint: name labels of namespaces with --namespace-labels=KEY=VALUE,..., or add the Namespaces to -f"
                .to_owned(),
        );
    }

    notes.extend(not_sent(&report.entries));
    print(args, &report, &notes, out, err)?;

    // A preview of another phase than the one that was asked for is no success.
    let is_refused = report.count(Outcome::Refused) > 0 || report.has_other_phase();
    Ok(if is_refused { End::Refused } else { End::Success })
}

/// The webhook's registration in `manifests/base` leaves kube-system out.
fn not_sent(entries: &[Entry<'_>]) -> Option<String> {
    let would_change = |entry: &&Entry<'_>| matches!(entry.decision.outcome, Outcome::Changed | Outcome::Audited);
    let of_kube_system = |entry: &&Entry<'_>| entry.namespace.as_deref() == Some("kube-system");
    let count = entries.iter().filter(would_change).filter(of_kube_system).count();

    (count > 0).then(|| {
        format!(
            "note: {count} of these objects are in kube-system, which manifests/base does not send to the webhook: ConfigMaps and \
             HelmCharts need manifests/components/kube-system, other kinds a webhook entry of your own"
        )
    })
}

fn operation(args: &MutateArgs) -> Result<Operation, Error> {
    match (args.operation, &args.old) {
        (Some(Operation::Update), None) => Err(Error::OldMissing),
        (Some(Operation::Create), Some(_)) => Err(Error::OldOnCreate),
        (_, Some(_)) => Ok(Operation::Update),
        (_, None) => Ok(Operation::Create),
    }
}

/// Notes about the migrations, printed before the decisions.
fn notes(args: &MutateArgs, found: &[Found]) -> Vec<String> {
    let mut notes = Vec::new();
    for found in found {
        notes.extend(migrations::problems(found));
        notes.extend(migrations::skipped_step(found, args.phase));
    }

    notes
}

fn check_path(args: &MutateArgs, found: &[Found]) -> Result<(), Error> {
    let Some(path) = &args.path else { return Ok(()) };
    if found.iter().any(|found| found.name == *path) {
        return Ok(());
    }

    Err(Error::Path {
        path: path.clone(),
        names: migrations::listed(found),
    })
}

/// Labels of the namespaces that are among the documents.
fn namespaces(documents: &[Document]) -> BTreeMap<&str, Labels> {
    let all = documents
        .iter()
        .filter(|one| one.group.is_empty() && one.kind == "Namespace");
    all.map(|one| (one.name(), stored_labels(one.name(), labels(&one.object))))
        .collect()
}

fn labels(object: &Value) -> Labels {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

/// The same for every object.
struct Run<'a> {
    args: &'a MutateArgs,
    operation: Operation,
    migrations: Vec<Migration<'a>>,
    namespaces: BTreeMap<&'a str, Labels>,
    old: Old,
}

impl Run<'_> {
    /// Decides one object as the webhook would when the API server asks about it.
    fn entry<'a>(&self, document: &'a Document) -> Result<Entry<'a>, Error> {
        let args = self.args;
        let namespace = namespace_of(args, document);
        if let Some(expected) = expected_versions(document) {
            return Err(Error::Version {
                origin: Box::new(document.origin.clone()),
                what: report::what(document, namespace),
                version: document.version.clone(),
                expected,
            });
        }

        let labels = namespace.and_then(|name| {
            let others = || Some(stored_labels(name, args.namespace_labels.clone()?));
            self.namespaces.get(name).cloned().or_else(others)
        });

        let decision = decide(&Input {
            operation: match self.operation {
                Operation::Create => outrigger_decide::Operation::Create,
                Operation::Update => outrigger_decide::Operation::Update,
            },
            group: &document.group,
            kind: &document.kind,
            subresource: "",
            namespace,
            namespace_labels: labels.as_ref(),
            name: document.name(),
            object: &document.object,
            old_object: self.old.of(args, document)?,
            migrations: &self.migrations,
            path_migration: args.path.as_deref(),
            own_namespace: Some(&args.own_namespace),
            manager_fresh: args.manager_ready,
        });
        let mut decision = refuse_if_owned_by_a_topology(document, decision);
        if decision.outcome == Outcome::NotOurs {
            decision.reasons.extend(of_unmanaged(document));
        }

        let mut after = document.object.clone();
        json_patch::patch(&mut after, &decision.patch).map_err(|source| Error::Patch {
            origin: document.origin.clone(),
            source,
        })?;

        let unmatched = decision.outcome == Outcome::Refused && !decision.audit_annotations.contains_key("migration");
        Ok(Entry {
            document,
            namespace_is_unknown: unmatched && namespace.is_some() && labels.is_none(),
            namespace: namespace.map(str::to_owned),
            decision,
            after,
        })
    }
}

/// A line about an object that nothing changes, although it may configure a component.
fn of_unmanaged(document: &Document) -> Option<String> {
    let place = provider::place(&document.object)?;
    let next = other_way(document).unwrap_or("check by hand whether it configures a component");
    Some(format!(
        "it names the cloud provider aws at {place}, and nothing here changes it: {next}"
    ))
}

/// The way to change an object of a kind that the webhook never reviews.
fn other_way(document: &Document) -> Option<&'static str> {
    match (document.group.as_str(), document.kind.as_str()) {
        ("", "Pod") if is_of_control_plane(&document.object) => Some(
            "if it is a static Pod, `outrigger node edit` changes its file on the machine, and --dry-run shows the difference",
        ),
        ("kubeadm.k8s.io", _) => Some(
            "the webhook changes ClusterConfiguration in the ConfigMap kubeadm-config, so give that ConfigMap; in a file for kubeadm, \
             change it by hand",
        ),
        ("kops.k8s.io", _) => Some("kOps sets the flags of its control planes: see the guide for kOps"),
        _ => None,
    }
}

fn is_of_control_plane(pod: &Value) -> bool {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let names = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["name"].as_str());
    let components = [Component::KubeControllerManager, Component::KubeApiserver].map(Component::as_str);
    names.into_iter().any(|name| components.contains(&name))
}

/// Cluster API's topology controller sets this label on each object that it applies:
/// <https://github.com/kubernetes-sigs/cluster-api/blob/v1.8.4/api/v1beta1/common_types.go>
const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";

/// The topology controller answers a write by hand within a second: it applies the provider of the ClusterClass again, but
/// not leader migration, which it never owned. Then all machines are replaced. The webhook changes the controller's own
/// writes, so its changes last.
fn refuse_if_owned_by_a_topology(document: &Document, decision: Decision) -> Decision {
    let labels = document.object.pointer("/metadata/labels");
    let is_owned = labels.is_some_and(|labels| labels.get(TOPOLOGY_OWNED).is_some());
    if decision.outcome != Outcome::Changed || !is_owned {
        return decision;
    }

    let refusal = format!(
        "outrigger: nothing changed, as the label {TOPOLOGY_OWNED} says that the topology controller of Cluster API writes this \
         object, and would restore the old flags at once, without leader migration; change the topology of the Cluster or its \
         ClusterClass, or let the webhook change the object in the management cluster"
    );
    let mut audit_annotations = decision.audit_annotations;
    audit_annotations.insert("decision".to_owned(), Outcome::Refused.as_str().to_owned());
    audit_annotations.insert("reasons".to_owned(), refusal.clone());
    Decision {
        outcome: Outcome::Refused,
        patch: Vec::new(),
        warnings: vec![refusal.clone()],
        reasons: vec![refusal],
        audit_annotations,
        shortage: None,
    }
}

fn print(
    args: &MutateArgs,
    report: &Report<'_>,
    notes: &[String],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    if let Some(path) = &args.out {
        fs::write(path, report.objects()?).map_err(|source| Error::Out {
            path: path.clone(),
            source,
        })?;
    }

    for note in notes {
        writeln!(err, "{}", printable(note))?;
    }

    match args.output {
        Output::Text => out.write_all(report.text(args.patch)?.as_bytes())?,
        Output::Json => {
            serde_json::to_writer_pretty(&mut *out, &report.to_json(notes))?;
            writeln!(out)?;
        }
        Output::Yaml => {
            out.write_all(report.objects()?.as_bytes())?;
            // Only the objects are written to stdout; the warnings that kubectl would show are written to stderr.
            for entry in &report.entries {
                for warning in &entry.decision.warnings {
                    writeln!(err, "warning: {}: {}", entry.what(), printable(warning))?;
                }
            }
        }
    }

    out.flush()?;
    writeln!(err, "{}", report.summary())?;

    Ok(())
}

/// Group, kind, namespace and name identify an object.
type Key = (String, String, Option<String>, String);

/// The stored objects (`--old`), for updates.
#[derive(Default)]
struct Old {
    file: Option<String>,
    objects: BTreeMap<Key, Value>,
}

impl Old {
    fn new(file: &str, documents: Vec<Document>, args: &MutateArgs) -> Result<Self, Error> {
        let mut objects = BTreeMap::new();
        for document in documents {
            let origin = document.origin.clone();
            let what = report::what(&document, namespace_of(args, &document));
            if objects.insert(key(args, &document), document.object).is_some() {
                let file = file.to_owned();
                return Err(Error::TwiceInOld { origin, what, file });
            }
        }

        let file = Some(file.to_owned());
        Ok(Self { file, objects })
    }

    /// The stored object of a document. Namespaces and migrations need none, as they are only read.
    fn of(&self, args: &MutateArgs, document: &Document) -> Result<Option<&Value>, Error> {
        let Some(file) = &self.file else { return Ok(None) };
        let is_namespace = document.group.is_empty() && document.kind == "Namespace";
        match self.objects.get(&key(args, document)) {
            None if !is_namespace && !migrations::is_migration(document) => Err(Error::NotInOld {
                origin: document.origin.clone(),
                what: report::what(document, namespace_of(args, document)),
                file: file.clone(),
            }),
            stored => Ok(stored),
        }
    }
}

fn key(args: &MutateArgs, document: &Document) -> Key {
    let namespace = namespace_of(args, document).map(str::to_owned);
    (
        document.group.clone(),
        document.kind.clone(),
        namespace,
        document.name().to_owned(),
    )
}

/// The namespace of an object: its own, or that of `--namespace`.
fn namespace_of<'a>(args: &'a MutateArgs, document: &'a Document) -> Option<&'a str> {
    let default = || (!is_cluster_scoped(&document.group, &document.kind)).then_some(args.namespace.as_str());
    document.namespace().or_else(default)
}

/// The labels of a stored namespace: the API server adds its name.
fn stored_labels(name: &str, mut labels: Labels) -> Labels {
    labels.insert(NAMESPACE_NAME_LABEL.to_owned(), name.to_owned());
    labels
}

/// The rows of the webhook's table for a kind.
fn rows<'a>(group: &'a str, kind: &'a str) -> impl Iterator<Item = &'static Kind> + 'a {
    kinds().filter(move |row| row.group == group && row.kind == kind)
}

/// Whether objects of a kind have no namespace, by the webhook's table. For most kinds without rules the answer changes
/// nothing; the exceptions are listed here.
pub fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    match rows(group, kind).next() {
        Some(row) => !row.namespaced,
        None => matches!(
            (group, kind),
            ("", "Namespace" | "PersistentVolume") | ("outrigger.dev", _)
        ),
    }
}

/// The versions that a document of this kind should have instead of its own; none if its own is known. The API server
/// converts objects before it calls the webhook; this command does not.
fn expected_versions(document: &Document) -> Option<String> {
    let versions = || rows(&document.group, &document.kind).flat_map(|row| row.versions);
    let known = versions().any(|version| *version == document.version);
    let mut names: Vec<&str> = versions().copied().collect();
    names.sort_unstable();
    names.dedup();
    (!known && !names.is_empty()).then(|| names.join(" or "))
}

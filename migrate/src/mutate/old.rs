//! The stored objects (`--old`), for updates.

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::Error;
use super::report;
use crate::args::MutateArgs;
use crate::documents::Document;
use crate::{decide, migrations};

/// Group, kind, namespace and name identify an object.
type Key = (String, String, Option<String>, String);

#[derive(Debug, Default)]
pub(super) struct Old {
    file: Option<String>,
    objects: BTreeMap<Key, Value>,
}

impl Old {
    pub fn new(file: &str, documents: Vec<Document>, args: &MutateArgs) -> Result<Self, Error> {
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
    pub fn of(&self, args: &MutateArgs, document: &Document) -> Result<Option<&Value>, Error> {
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
pub(super) fn namespace_of<'a>(args: &'a MutateArgs, document: &'a Document) -> Option<&'a str> {
    let default = || (!decide::is_cluster_scoped(&document.group, &document.kind)).then_some(args.namespace.as_str());
    document.namespace().or_else(default)
}

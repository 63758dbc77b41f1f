//! The objects as they are stored, for updates.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Error, namespace_of, report};
use crate::args::MutateArgs;
use crate::documents::Document;
use crate::migrations;

/// Group, kind, namespace and name: what makes an object the same one.
type Key = (String, String, Option<String>, String);

/// The objects as they are stored.
#[derive(Debug, Default)]
pub(super) struct Old {
    file: Option<String>,
    objects: BTreeMap<Key, Value>,
}

impl Old {
    /// Reads them apart.
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

    /// What is stored of a document; namespaces and migrations are there to decide by, and need not be.
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

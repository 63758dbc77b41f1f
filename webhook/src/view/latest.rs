//! The newest version of one watched object.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::watch::Index;

/// The state of a watch.
#[derive(Debug, Clone)]
enum Seen<K> {
    /// With the error of the watch.
    Unknown(Option<String>),
    Absent,
    Present(Arc<K>),
}

pub struct Latest<K> {
    seen: Mutex<Seen<K>>,
    changed: Arc<Notify>,
}

impl<K> Latest<K> {
    pub fn new(changed: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            seen: Mutex::new(Seen::Unknown(None)),
            changed: Arc::clone(changed),
        })
    }

    /// The object, or `Some(None)` if it does not exist; `None` while the watch does not work.
    pub fn get(&self) -> Option<Option<Arc<K>>> {
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Seen::Unknown(_) => None,
            Seen::Absent => Some(None),
            Seen::Present(object) => Some(Some(Arc::clone(object))),
        }
    }

    /// The error because of which the watch does not work.
    pub fn error(&self) -> Option<String> {
        match &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            Seen::Unknown(error) => error.clone(),
            Seen::Absent | Seen::Present(_) => None,
        }
    }

    fn set(&self, seen: Seen<K>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        self.changed.notify_one();
    }
}

impl<K: Send + Sync + 'static> Index<K> for Latest<K> {
    fn replace(&self, objects: Vec<K>) {
        // The watch selects one name.
        let first = objects.into_iter().next();
        self.set(first.map_or(Seen::Absent, |object| Seen::Present(Arc::new(object))));
    }

    fn apply(&self, object: K) {
        self.set(Seen::Present(Arc::new(object)));
    }

    fn delete(&self, _: &K) {
        self.set(Seen::Absent);
    }

    fn absent(&self) {
        // Every API server has these types; a 404 comes from a proxy in between.
        self.set(Seen::Unknown(Some("the type is not served".to_owned())));
    }

    fn broken(&self, error: &str) {
        self.set(Seen::Unknown(Some(error.to_owned())));
    }
}

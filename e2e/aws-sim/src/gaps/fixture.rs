//! A moto with prepared answers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::upstream::{Reply, Upstream};
use crate::query::Query;
use crate::service::Service;
use crate::xml::{Element, XmlError};

/// Answers by action; refuses what it was not told.
#[derive(Debug, Default)]
pub(crate) struct Script {
    answers: BTreeMap<&'static str, String>,
    always: Option<String>,
    asked: Mutex<Vec<Query>>,
}

impl Script {
    /// The same good answer to everything.
    pub(super) fn answering(body: &str) -> Self {
        Self {
            always: Some(body.to_owned()),
            ..Self::default()
        }
    }

    pub(crate) fn on(mut self, action: &'static str, body: &str) -> Self {
        self.answers.insert(action, body.to_owned());
        self
    }

    pub(crate) fn asked(&self) -> Vec<Query> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

impl Upstream for Script {
    async fn ask(&self, _: &Service, query: &Query) -> Response<Bytes> {
        self.asked.lock().expect("not poisoned").push(query.clone());
        let told = self.answers.get(query.action.as_str()).or(self.always.as_ref());
        let (status, body) = told.map_or((500, "<R/>".to_owned()), |body| (200, body.clone()));
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        response
    }
}

pub(super) fn body(reply: Result<Reply, XmlError>) -> Element {
    match reply.expect("XML") {
        Reply::Body(body) => Element::parse(&body).expect("XML"),
        Reply::Moto(response) => {
            assert!(response.status().is_success(), "{response:?}");
            Element::parse(&String::from_utf8_lossy(response.body())).expect("XML")
        }
        Reply::Refused(code, message) => panic!("{code}: {message}"),
    }
}

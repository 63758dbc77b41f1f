//! How the gaps ask moto, and what they answer.

use std::future::Future;

use bytes::Bytes;
use http::Response;

use outrigger_aws_quotas::Refusal;

use crate::query::Query;
use crate::service::Service;
use crate::xml::{Element, XmlError};

/// moto, as the gaps ask it.
pub(crate) trait Upstream: Sync {
    fn ask(&self, service: &Service, query: &Query) -> impl Future<Output = Response<Bytes>> + Send;
}

/// The answer for the caller.
#[derive(Debug)]
pub(crate) enum Reply {
    Moto(Response<Bytes>),
    /// A good answer with this body.
    Body(String),
    /// AWS's refusal: status 400, error code, message.
    Refused(&'static str, String),
}

impl Reply {
    pub(super) fn is_good(&self) -> bool {
        match self {
            Self::Moto(response) => response.status().is_success(),
            Self::Body(_) => true,
            Self::Refused(..) => false,
        }
    }
}

impl From<Refusal> for Reply {
    fn from(Refusal { code, message }: Refusal) -> Self {
        Self::Refused(code, message)
    }
}

impl From<&Element> for Reply {
    fn from(answer: &Element) -> Self {
        Self::Body(answer.document())
    }
}

/// A good answer, or moto's refusal as it is.
pub(super) type Answered = Result<Element, Reply>;

/// Asks moto and reads a good answer.
pub(super) async fn read<U: Upstream>(moto: &U, service: &Service, query: &Query) -> Result<Answered, XmlError> {
    let response = moto.ask(service, query).await;
    if !response.status().is_success() {
        return Ok(Err(Reply::Moto(response)));
    }
    Ok(Ok(Element::parse(&String::from_utf8_lossy(response.body()))?))
}

/// Forwards a call and corrects a good answer.
pub(super) async fn corrected<U: Upstream>(
    moto: &U,
    service: &Service,
    query: &Query,
    correct: impl FnOnce(&mut Element) + Send,
) -> Result<Reply, XmlError> {
    Ok(match read(moto, service, query).await? {
        Ok(mut answer) => {
            correct(&mut answer);
            Reply::from(&answer)
        }
        Err(refused) => refused,
    })
}

pub(super) fn query(service: &Service, action: &str, parameters: &[(&str, &str)]) -> Query {
    Query::new(service, action, parameters.iter().copied().collect())
}

/// The same call without the parameters of these keys, or below them.
pub(super) fn without(query: &Query, keys: &[&str]) -> Query {
    let below = |key: &str| {
        let mut rests = keys.iter().filter_map(|dropped| key.strip_prefix(dropped));
        rests.any(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let kept = query.parameters.iter().filter(|(key, _)| !below(key));
    Query {
        parameters: kept.collect(),
        ..query.clone()
    }
}

/// Replaces the child of the same name, or adds it.
pub(super) fn set(parent: &mut Element, child: Element) {
    match parent.child_mut(&child.name) {
        Some(existing) => *existing = child,
        None => parent.children.push(child),
    }
}

pub(super) fn texts(members: &[Element]) -> Vec<String> {
    members.iter().map(|member| member.text.clone()).collect()
}

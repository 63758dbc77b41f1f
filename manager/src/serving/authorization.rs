//! Authorization by the API server, as in every Kubernetes component.
//!
//! Paths of `--authorization-always-allow-paths` need no authorization. For any other path the caller is authenticated
//! by its own certificate, by a front proxy's, or by a bearer token, which is sent to the API server in a TokenReview.
//! A SubjectAccessReview decides whether that user may read the path. A caller without credentials is
//! `system:anonymous`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use outrigger_serving::PeerCertificates;
use rustls::pki_types::UnixTime;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::authentication::Said;
use super::authorities::Authorities;
use crate::args::Authentication;

/// How long the API server may take for a review.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers kept at most. Callers choose tokens and paths, so the cache must not grow with them.
const KEPT: usize = 1024;
const MASTERS: &str = "system:masters";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// 401: the token is no good.
    Unauthenticated,
    Forbidden,
    /// 500: the API server could not be asked.
    Unknown,
}

pub(super) struct Asked<'a> {
    /// The method in lower case.
    pub(super) verb: &'a str,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a str>,
    pub(super) peer: Option<&'a PeerCertificates>,
    pub(super) headers: &'a HeaderMap,
}

/// Decides who may read what.
pub struct Access {
    settings: Authentication,
    authorities: Authorities,
    reviewer: Option<Client>,
    /// Reviews tokens, where another API server than `reviewer` does.
    token_reviewer: Option<Client>,
    users: Cache<Option<User>>,
    verdicts: Cache<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl Access {
    /// Asks `reviewer`; without one only the open paths can be read. `authorities` vouch for certificates.
    pub fn new(settings: Authentication, authorities: Authorities, reviewer: Option<Client>) -> Self {
        Self {
            settings,
            authorities,
            reviewer,
            token_reviewer: None,
            users: Cache::default(),
            verdicts: Cache::default(),
        }
    }

    /// The same, with another API server for tokens (`--authentication-kubeconfig`).
    pub fn with_token_reviewer(self, client: Client) -> Self {
        Self {
            token_reviewer: Some(client),
            ..self
        }
    }

    pub(super) async fn decide(&self, asked: &Asked<'_>) -> Verdict {
        let (verb, path) = (asked.verb, asked.path);
        if self.settings.always_allow_paths.iter().any(|open| covers(open, path)) {
            return Verdict::Allowed;
        }
        let Some(client) = &self.reviewer else {
            return Verdict::Forbidden;
        };

        let said = self
            .authorities
            .trust()
            .judge(asked.peer, asked.headers, UnixTime::now());
        let user = match (said, asked.token) {
            (Said::User(user), _) => user,
            (Said::Nothing, None) => anonymous(),
            (Said::Untrusted, None) => return Verdict::Unauthenticated,
            (_, Some(token)) => match self.user(self.token_reviewer.as_ref().unwrap_or(client), token).await {
                Some(Some(user)) => user,
                Some(None) => return Verdict::Unauthenticated,
                None => return Verdict::Unknown,
            },
        };
        if user.groups.iter().any(|group| group == MASTERS) {
            return Verdict::Allowed;
        }

        match self.allowed(client, &user, verb, path).await {
            Some(true) => Verdict::Allowed,
            Some(false) => Verdict::Forbidden,
            None => Verdict::Unknown,
        }
    }

    /// The token's user; `Some(None)` if the token is invalid, `None` if the review failed.
    async fn user(&self, client: &Client, token: &str) -> Option<Option<User>> {
        let key = digest(&[token]);
        if let Some(known) = self.users.get(&key) {
            return Some(known);
        }

        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let status = answered(Api::all(client.clone()).create(&PostParams::default(), &review))
            .await?
            .status?;
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(User::from);
        self.users.put(key, user.clone(), self.settings.token_cache_ttl);

        Some(user)
    }

    async fn allowed(&self, client: &Client, user: &User, verb: &str, path: &str) -> Option<bool> {
        let key = digest(&[verb, path, &format!("{user:?}")]);
        if let Some(known) = self.verdicts.get(&key) {
            return Some(known);
        }

        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        };

        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let status = answered(Api::all(client.clone()).create(&PostParams::default(), &review))
            .await?
            .status?;
        let allowed = status.allowed && status.denied != Some(true);
        let kept = if allowed {
            self.settings.authorized_cache_ttl
        } else {
            self.settings.unauthorized_cache_ttl
        };

        self.verdicts.put(key, allowed, kept);

        Some(allowed)
    }
}

async fn answered<T>(review: impl Future<Output = kube::Result<T>>) -> Option<T> {
    match tokio::time::timeout(PATIENCE, review).await {
        Ok(Ok(review)) => Some(review),
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to review the access of a client"
            );
            None
        }
        Err(_) => {
            tracing::warn!("timed out reviewing the access of a client");
            None
        }
    }
}

fn anonymous() -> User {
    User {
        name: "system:anonymous".into(),
        uid: None,
        groups: vec!["system:unauthenticated".into()],
        extra: BTreeMap::new(),
    }
}

impl From<UserInfo> for User {
    fn from(info: UserInfo) -> Self {
        Self {
            name: info.username.unwrap_or_default(),
            uid: info.uid,
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        }
    }
}

/// A trailing `*` stands for the rest of the path.
fn covers(open: &str, path: &str) -> bool {
    match open.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => open == path,
    }
}

/// Tokens are not kept, only what they hash to.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[derive(Default)]
struct Cache<T> {
    entries: Mutex<HashMap<[u8; 32], (Instant, T)>>,
}

impl<T: Clone> Cache<T> {
    fn get(&self, key: &[u8; 32]) -> Option<T> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .get(key)
            .filter(|(until, _)| *until > Instant::now())
            .map(|(_, value)| value.clone())
    }

    fn put(&self, key: [u8; 32], value: T, kept: Duration) {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= KEPT {
            entries.retain(|_, (until, _)| *until > now);
        }

        if entries.len() >= KEPT {
            entries.clear();
        }

        entries.insert(key, (now + kept, value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn open_paths_are_exact_unless_they_end_in_a_star() {
        assert!(covers("/healthz", "/healthz"));
        assert!(!covers("/healthz", "/healthz/leaderElection"));
        assert!(covers("/healthz*", "/healthz/leaderElection"));
        assert!(!covers("/metrics", "/metricsx"));
    }

    #[test]
    fn the_parts_of_a_key_do_not_run_together() {
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_forgets_in_time_and_never_grows_past_its_bound() {
        let cache = Cache::default();
        cache.put(digest(&["a"]), 1, Duration::from_secs(10));
        assert_eq!(cache.get(&digest(&["a"])), Some(1));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(cache.get(&digest(&["a"])), None);
        for n in 0..3 * KEPT {
            cache.put(digest(&[&n.to_string()]), n, Duration::from_secs(10));
        }
        assert!(cache.entries.lock().unwrap().len() <= KEPT);
    }

    /// An API server that lets everything pass and notes what it is asked to review.
    fn reviewer(seen: &Arc<Mutex<Vec<String>>>, name: &'static str) -> Client {
        let seen = Arc::clone(seen);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            seen.lock().unwrap().push(format!("{kind} at {name}"));
            let answer = match kind.as_str() {
                "tokenreviews" => r#"{"spec": {}, "status": {"authenticated": true, "user": {"username": "u"}}}"#,
                _ => r#"{"spec": {}, "status": {"allowed": true}}"#,
            };
            let body = http_body_util::Full::new(bytes::Bytes::from(answer));
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn tokens_can_be_reviewed_by_another_api_server() {
        let settings = match crate::args::parse(&["--cloud-provider=aws".to_owned()]) {
            Ok(crate::args::Request::Run(options)) => options.authentication,
            other => panic!("{other:?}"),
        };
        let seen = Arc::default();
        let authorities = Authorities::load(&settings).unwrap();
        let access = Access::new(settings, authorities, Some(reviewer(&seen, "home")))
            .with_token_reviewer(reviewer(&seen, "elsewhere"));
        let asked = Asked {
            verb: "get",
            path: "/metrics",
            token: Some("t"),
            peer: None,
            headers: &HeaderMap::new(),
        };
        assert_eq!(access.decide(&asked).await, Verdict::Allowed);
        assert_eq!(
            *seen.lock().unwrap(),
            ["tokenreviews at elsewhere", "subjectaccessreviews at home"]
        );
    }
}

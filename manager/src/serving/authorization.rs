//! Authorization by the API server, as in every Kubernetes component.
//!
//! Paths of `--authorization-always-allow-paths` need no authorization. For any other path the caller is authenticated
//! by its own certificate, by a front proxy's, or by a bearer token, which is sent to the API server in a TokenReview.
//! A SubjectAccessReview decides whether that user may read the path. A caller without credentials is
//! `system:anonymous`.
//!
//! Every client that reaches the port can cause reviews, so their number per second is limited. Answers are cached, good ones apart
//! from bad ones, and a caller that was good in the last minutes has a budget of its own: a flood of bad callers neither
//! removes what is known of it nor delays it. Each budget is shared.

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
use crate::token_bucket::TokenBucket;

/// How long the API server may take for a review.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers kept at most. Callers choose tokens and paths, so the cache must not grow with them.
const KEPT: usize = 1024;
/// Reviews of each kind: per second, and at once.
const RATE: f64 = 20.0;
const BURST: f64 = 40.0;
/// For this time after a good answer, the next review has a budget of its own.
const REMEMBERED: Duration = Duration::from_secs(600);
const MASTERS: &str = "system:masters";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// 401: the token is no good.
    Unauthenticated,
    Forbidden,
    /// 429: the API server is asked too often.
    Busy,
    /// 500: the API server could not be asked.
    Unknown,
}

pub(super) struct Asked<'a> {
    /// The method in lower case.
    pub(super) verb: &'a str,
    pub(super) path: &'a str,
    /// Whether there is anything at this path.
    pub(super) is_served: bool,
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
    users: Answers<User>,
    verdicts: Answers<()>,
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
            users: Answers::new(Instant::now()),
            verdicts: Answers::new(Instant::now()),
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
        match self.try_decide(asked).await {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    async fn try_decide(&self, asked: &Asked<'_>) -> Result<Verdict, Verdict> {
        let (verb, path) = (asked.verb, asked.path);
        if self.settings.always_allow_paths.iter().any(|open| covers(open, path)) {
            return Ok(Verdict::Allowed);
        }
        let client = self.reviewer.as_ref().ok_or(Verdict::Forbidden)?;

        let said = self
            .authorities
            .trust()
            .judge(asked.peer, asked.headers, UnixTime::now());
        let user = match (said, asked.token) {
            (Said::User(user), _) => user,
            (Said::Nothing, None) => anonymous(),
            (Said::Untrusted, None) => return Err(Verdict::Unauthenticated),
            (_, Some(token)) => {
                let reviewer = self.token_reviewer.as_ref().unwrap_or(client);
                self.user(reviewer, token).await?.ok_or(Verdict::Unauthenticated)?
            }
        };
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(Verdict::Allowed);
        }

        // A caller chooses the path, and every user may read `/apis/*`, so reviews of such paths could fill the caches.
        if !asked.is_served {
            return Err(Verdict::Forbidden);
        }

        let allowed = self.allowed(client, &user, verb, path).await?;
        Ok(allowed.map_or(Verdict::Forbidden, |()| Verdict::Allowed))
    }

    /// The token's user; `None` if the token is invalid.
    async fn user(&self, client: &Client, token: &str) -> Result<Option<User>, Verdict> {
        let key = digest(&[token]);
        if let Some(known) = self.users.find(&key)? {
            return Ok(known);
        }

        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let review = answered(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
        let status = review.status.ok_or(Verdict::Unknown)?;
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(User::from);
        self.users.put(key, user.clone(), self.settings.token_cache_ttl);

        Ok(user)
    }

    async fn allowed(&self, client: &Client, user: &User, verb: &str, path: &str) -> Result<Option<()>, Verdict> {
        let key = digest(&[verb, path, &format!("{user:?}")]);
        if let Some(known) = self.verdicts.find(&key)? {
            return Ok(known);
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
        let review = answered(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
        let status = review.status.ok_or(Verdict::Unknown)?;
        let allowed = (status.allowed && status.denied != Some(true)).then_some(());
        let kept = match allowed {
            Some(()) => self.settings.authorized_cache_ttl,
            None => self.settings.unauthorized_cache_ttl,
        };
        self.verdicts.put(key, allowed, kept);

        Ok(allowed)
    }
}

async fn answered<T>(review: impl Future<Output = kube::Result<T>>) -> Result<T, Verdict> {
    match tokio::time::timeout(PATIENCE, review).await {
        Ok(Ok(review)) => Ok(review),
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to review the access of a client"
            );
            Err(Verdict::Unknown)
        }
        Err(_) => {
            tracing::warn!("timed out reviewing the access of a client");
            Err(Verdict::Unknown)
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

/// The answers of one kind of review, and how many may be asked for.
struct Answers<T> {
    good: Cache<T>,
    bad: Cache<()>,
    /// The keys of good answers, for [`REMEMBERED`].
    known: Cache<()>,
    budgets: Mutex<Budgets>,
}

struct Budgets {
    known: TokenBucket,
    others: TokenBucket,
}

impl<T: Clone> Answers<T> {
    fn new(now: Instant) -> Self {
        Self {
            good: Cache::default(),
            bad: Cache::default(),
            known: Cache::default(),
            budgets: Mutex::new(Budgets {
                known: TokenBucket::full(RATE, BURST, now),
                others: TokenBucket::full(RATE, BURST, now),
            }),
        }
    }

    /// The answer that is kept: `Some(None)` for a bad one. `None`: a review may be asked for.
    fn find(&self, key: &[u8; 32]) -> Result<Option<Option<T>>, Verdict> {
        if let Some(good) = self.good.get(key) {
            return Ok(Some(Some(good)));
        }
        if self.bad.get(key).is_some() {
            return Ok(Some(None));
        }

        let is_known = self.known.get(key).is_some();
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = match is_known {
            true => &mut budgets.known,
            false => &mut budgets.others,
        };
        if budget.available(Instant::now()) == 0 {
            return Err(Verdict::Busy);
        }
        budget.take(1);

        Ok(None)
    }

    fn put(&self, key: [u8; 32], answer: Option<T>, kept: Duration) {
        match answer {
            Some(good) => {
                self.good.put(key, good, kept);
                self.known.put(key, (), REMEMBERED);
            }
            None => self.bad.put(key, (), kept),
        }
    }
}

struct Cache<T> {
    entries: Mutex<HashMap<[u8; 32], (Instant, T)>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
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

    /// An API server that knows one token, whose user may read everything. It notes what it is asked to review.
    fn reviewer(seen: &Arc<Mutex<Vec<String>>>, name: &'static str) -> Client {
        let seen = Arc::clone(seen);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            seen.lock().unwrap().push(format!("{kind} at {name}"));
            async move {
                let sent = http_body_util::BodyExt::collect(request.into_body())
                    .await
                    .unwrap()
                    .to_bytes();
                let sent = String::from_utf8_lossy(&sent);
                let answer = match kind.as_str() {
                    "tokenreviews" if sent.contains("\"good\"") => {
                        r#"{"spec": {}, "status": {"authenticated": true, "user": {"username": "u"}}}"#
                    }
                    // As an API server answers about a token that is not good.
                    "tokenreviews" => r#"{"spec": {}, "status": {"user": {}}}"#,
                    _ if sent.contains("\"user\":\"u\"") => r#"{"spec": {}, "status": {"allowed": true}}"#,
                    _ => r#"{"spec": {}, "status": {"allowed": false}}"#,
                };
                let body = http_body_util::Full::new(bytes::Bytes::from(answer));
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        Client::new(service, "default")
    }

    fn settings() -> Authentication {
        match crate::args::parse(&["--cloud-provider=aws".to_owned()]) {
            Ok(crate::args::Request::Run(options)) => options.authentication,
            other => panic!("{other:?}"),
        }
    }

    async fn verdict(access: &Access, token: Option<&str>, path: &str) -> Verdict {
        let asked = Asked {
            verb: "get",
            path,
            is_served: !path.starts_with("/apis"),
            token,
            peer: None,
            headers: &HeaderMap::new(),
        };
        access.decide(&asked).await
    }

    #[tokio::test]
    async fn tokens_can_be_reviewed_by_another_api_server() {
        let settings = settings();
        let seen = Arc::default();
        let authorities = Authorities::load(&settings).unwrap();
        let access = Access::new(settings, authorities, Some(reviewer(&seen, "home")))
            .with_token_reviewer(reviewer(&seen, "elsewhere"));
        assert_eq!(verdict(&access, Some("good"), "/metrics").await, Verdict::Allowed);
        assert_eq!(
            *seen.lock().unwrap(),
            ["tokenreviews at elsewhere", "subjectaccessreviews at home"]
        );
    }

    #[tokio::test]
    async fn a_token_that_is_not_said_to_be_good_is_bad() {
        let access = Access::new(
            settings(),
            Authorities::load(&settings()).unwrap(),
            Some(reviewer(&Arc::default(), "")),
        );
        assert_eq!(
            verdict(&access, Some("random"), "/metrics").await,
            Verdict::Unauthenticated
        );
    }

    #[tokio::test]
    async fn a_path_without_anything_needs_no_review_of_the_path() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let authorities = Authorities::load(&settings()).unwrap();
        let access = Access::new(settings(), authorities, Some(reviewer(&seen, "home")));
        for number in 0..100 {
            let path = format!("/apis/{number}");
            assert_eq!(verdict(&access, Some("good"), &path).await, Verdict::Forbidden);
            assert_eq!(verdict(&access, None, &path).await, Verdict::Forbidden);
        }
        assert_eq!(*seen.lock().unwrap(), ["tokenreviews at home"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_callers_causes_few_reviews_and_does_not_delay_good_ones() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let authorities = Authorities::load(&settings()).unwrap();
        let access = Access::new(settings(), authorities, Some(reviewer(&seen, "home")));
        assert_eq!(verdict(&access, Some("good"), "/metrics").await, Verdict::Allowed);
        assert_eq!(verdict(&access, None, "/metrics").await, Verdict::Forbidden);
        seen.lock().unwrap().clear();

        const SECONDS: u32 = 60;
        let mut refused = 0;
        for second in 0..SECONDS {
            for number in 0..200 {
                let flood = format!("{second}-{number}");
                let token = verdict(&access, Some(&flood), "/metrics").await;
                let path = verdict(&access, None, &format!("/{flood}")).await;
                refused += usize::from(token == Verdict::Busy) + usize::from(path == Verdict::Busy);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(
                verdict(&access, Some("good"), "/metrics").await,
                Verdict::Allowed,
                "{second}"
            );
        }

        let seen = seen.lock().unwrap();
        let most = 2.0 * (RATE * f64::from(SECONDS) + BURST) + f64::from(SECONDS);
        assert!(seen.len() as f64 <= most, "{} reviews", seen.len());
        assert!(refused > 20_000, "{refused} refused");
    }
}

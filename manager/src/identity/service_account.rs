//! One service account for each controller (`--use-service-account-credentials`).
//!
//! The API server binds its own roles to accounts of these names in `kube-system`, so that each controller may do what its
//! task needs and no more. The manager's own account needs `create` on `serviceaccounts` and on `serviceaccounts/token`.

use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::BoxError;

const NAMESPACE: &str = "kube-system";
/// Requested life of a token. The API server may choose another.
const LIFE_SECONDS: i64 = 3600;
/// How long the API server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a renewal that failed, while the old token is still good.
const PAUSE: Duration = Duration::from_secs(10);
/// Backoff after a failed token request. Until it ends, API requests fail immediately, so that thousands of them cause
/// one token request.
const AGAIN: Duration = Duration::from_secs(1);

/// The account of the client of this purpose; `None` for those that are no controller's.
pub(super) fn of_purpose(purpose: &str) -> Option<&'static str> {
    match purpose {
        // Upstream's node lifecycle controller shares the node controller's; the ranges of Pods are written to Nodes, too.
        "node-controller" | "cloud-node-lifecycle-controller" | "node-ipam-controller" => Some("node-controller"),
        "service-controller" => Some("service-controller"),
        "route-controller" => Some("route-controller"),
        "tagging-controller" => Some("tagging-controller"),
        _ => None,
    }
}

/// A service account with a token that is renewed when four fifths of its life are over, or the API server takes it no more.
pub(super) struct Account {
    name: &'static str,
    root: Client,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    token: Option<Token>,
    /// Why there is none, and until when none is asked for.
    none: Option<(String, Instant)>,
}

struct Token {
    header: HeaderValue,
    renew: Instant,
    end: Instant,
}

impl Account {
    pub(super) fn new(name: &'static str, root: Client) -> Self {
        Self {
            name,
            root,
            kept: Mutex::default(),
        }
    }

    /// The value of the header `Authorization`.
    ///
    /// # Errors
    /// When there is no token that is still good, and none can be had.
    pub(super) async fn header(&self) -> Result<HeaderValue, BoxError> {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        if let Some(token) = kept.token.as_ref().filter(|token| now < token.renew) {
            return Ok(token.header.clone());
        }
        if let Some((why, _)) = kept.none.as_ref().filter(|(_, until)| now < *until) {
            return Err(self.without(why));
        }

        let asked = tokio::time::timeout(PATIENCE, self.ask(now)).await;
        match asked.unwrap_or_else(|_| Err("no answer within 10 s".into())) {
            Ok(token) => {
                kept.none = None;
                Ok(kept.token.insert(token).header.clone())
            }
            Err(error) => match kept.token.as_mut().filter(|token| now < token.end) {
                Some(token) => {
                    tracing::warn!(
                        account = self.name,
                        error,
                        "failed to renew the token; still using the old one"
                    );
                    token.renew = (now + PAUSE).min(token.end);
                    Ok(token.header.clone())
                }
                None => {
                    let told = self.without(&error);
                    kept.none = Some((error, Instant::now() + AGAIN));
                    Err(told)
                }
            },
        }
    }

    fn without(&self, why: &str) -> BoxError {
        format!("no token for service account {NAMESPACE}/{}: {why}", self.name).into()
    }

    /// The API server does not take this header: the account was deleted, or the keys that sign tokens have changed. The
    /// next request after a pause asks for another token.
    pub(super) async fn reject(&self, header: &HeaderValue) {
        let mut kept = self.kept.lock().await;
        if kept.token.as_ref().is_some_and(|token| token.header == *header) {
            tracing::warn!(
                account = self.name,
                "the API server rejected the token; requesting another one"
            );
            *kept = Kept {
                token: None,
                none: Some((
                    "the API server did not accept the last one".into(),
                    Instant::now() + AGAIN,
                )),
            };
        }
    }

    /// Asks for a token, and makes the account where there is none.
    async fn ask(&self, now: Instant) -> Result<Token, String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.root.clone(), NAMESPACE);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(LIFE_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let mut answer = accounts.create_token_request(self.name, &parameters, &request).await;

        if answer.as_ref().is_err_and(|error| is(error, 404)) {
            let account = ServiceAccount {
                metadata: ObjectMeta {
                    name: Some(self.name.to_owned()),
                    namespace: Some(NAMESPACE.to_owned()),
                    ..ObjectMeta::default()
                },
                ..ServiceAccount::default()
            };

            match accounts.create(&parameters, &account).await {
                Ok(_) => tracing::info!(account = self.name, "created the service account"),
                // Someone else was faster.
                Err(error) if is(&error, 409) => {}
                Err(error) => return Err(format!("creating it failed: {error}")),
            }

            answer = accounts.create_token_request(self.name, &parameters, &request).await;
        }

        let given = answer.map_err(|error| error.to_string())?;
        let seconds = given.spec.expiration_seconds.unwrap_or(LIFE_SECONDS);
        let life = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let text = given.status.map(|status| status.token).unwrap_or_default();
        let header = HeaderValue::try_from(format!("Bearer {text}"))
            .ok()
            .filter(|_| !text.is_empty());
        let mut header = header.ok_or("the answer holds no token")?;
        header.set_sensitive(true);

        Ok(Token {
            header,
            renew: now + life * 4 / 5,
            end: now + life,
        })
    }
}

fn is(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex as Lock};

    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Requests so far, and the status of the next answers; 0 is the usual one.
    #[derive(Default)]
    struct Server {
        seen: Vec<String>,
        statuses: Vec<u16>,
    }

    fn server(statuses: &[u16]) -> (Client, Arc<Lock<Server>>) {
        let server = Arc::new(Lock::new(Server {
            statuses: statuses.iter().rev().copied().collect(),
            ..Server::default()
        }));
        let shared = Arc::clone(&server);
        let service = tower::service_fn(move |request: Request<Body>| {
            let mut server = shared.lock().unwrap();
            let path = request.uri().path().to_owned();
            server.seen.push(format!("{} {path}", request.method()));
            let number = server.seen.len();
            let (status, body) = match server.statuses.pop().unwrap_or_default() {
                0 if path.ends_with("/token") => (201, token(number)),
                0 => (
                    201,
                    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}}),
                ),
                code => (
                    code,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}),
                ),
            };
            let answer = Response::builder()
                .status(status)
                .body(Full::new(bytes::Bytes::from(body.to_string())));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        (Client::new(service, "default"), server)
    }

    fn token(number: usize) -> Value {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
            "spec": {"audiences": [], "expirationSeconds": 1000},
            "status": {"token": format!("t{number}"), "expirationTimestamp": "2026-01-01T00:00:00Z"}})
    }

    async fn bearer(account: &Account) -> String {
        account.header().await.unwrap().to_str().unwrap().to_owned()
    }

    const TOKEN: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts/node-controller/token";
    const MAKE: &str = "POST /api/v1/namespaces/kube-system/serviceaccounts";

    #[tokio::test(start_paused = true)]
    async fn a_token_serves_for_four_fifths_of_its_life() {
        let (client, server) = server(&[]);
        let account = Account::new("node-controller", client);
        assert_eq!(bearer(&account).await, "Bearer t1");
        tokio::time::sleep(Duration::from_secs(799)).await;
        assert_eq!(bearer(&account).await, "Bearer t1");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(bearer(&account).await, "Bearer t2");
        assert_eq!(server.lock().unwrap().seen, [TOKEN, TOKEN]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_missing_is_made_also_beside_another_maker() {
        for made in [0, 409] {
            let (client, server) = server(&[404, made, 0]);
            let account = Account::new("node-controller", client);
            assert_eq!(bearer(&account).await, "Bearer t3");
            assert_eq!(server.lock().unwrap().seen, [TOKEN, MAKE, TOKEN]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_token_serves_to_its_end_when_it_cannot_be_renewed() {
        let (client, server) = server(&[0, 500, 500, 403, 403]);
        let account = Account::new("node-controller", client);
        assert_eq!(bearer(&account).await, "Bearer t1");
        tokio::time::sleep(Duration::from_secs(801)).await;
        assert_eq!(bearer(&account).await, "Bearer t1");
        assert_eq!(bearer(&account).await, "Bearer t1", "and is not renewed again at once");
        assert_eq!(server.lock().unwrap().seen.len(), 2);
        tokio::time::sleep(Duration::from_secs(198)).await;
        assert_eq!(bearer(&account).await, "Bearer t1");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let error = account.header().await.unwrap_err().to_string();
        assert!(
            error.starts_with("no token for service account kube-system/node-controller: "),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_token_it_is_asked_for_once_a_second_however_many_requests_need_it() {
        let (client, server) = server(&[403, 403, 0]);
        let account = Account::new("node-controller", client);
        for _ in 0..100 {
            let error = account.header().await.unwrap_err().to_string();
            assert!(error.starts_with("no token for service account"), "{error}");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        assert_eq!(server.lock().unwrap().seen, [TOKEN, TOKEN]);
        tokio::time::sleep(AGAIN).await;
        assert_eq!(bearer(&account).await, "Bearer t3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_the_server_does_not_take_is_asked_for_anew_and_an_older_ones_refusal_does_not_count() {
        let (client, server) = server(&[]);
        let account = Account::new("node-controller", client);
        let first = account.header().await.unwrap();
        account.reject(&first).await;
        assert!(account.header().await.is_err(), "after a pause");
        tokio::time::sleep(AGAIN).await;
        assert_eq!(bearer(&account).await, "Bearer t2");
        account.reject(&first).await;
        assert_eq!(bearer(&account).await, "Bearer t2");
        assert_eq!(server.lock().unwrap().seen, [TOKEN, TOKEN]);
    }
}

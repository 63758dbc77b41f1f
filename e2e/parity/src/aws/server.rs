//! The scripted EC2 on a free port of loopback.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use outrigger_aws_sim::Service;
use outrigger_aws_sim::iam::{self, Policy};
use outrigger_aws_sim::query::Query;

use super::account::Account;
use super::answer::{REQUEST_ID, answer};

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct ScriptedEc2 {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    account: Account,
    policy: Option<Arc<Policy>>,
    unknown: Mutex<BTreeSet<String>>,
    called: watch::Sender<bool>,
}

impl ScriptedEc2 {
    /// Listens and answers from `account` the calls that the policy allows; without a policy, all calls.
    ///
    /// # Errors
    /// Without a free port.
    pub async fn start(account: Account, policy: Option<Arc<Policy>>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("the scripted EC2")?;
        let url = format!("http://{}", listener.local_addr().context("the scripted EC2")?);
        let shared = Arc::new(Shared {
            account,
            policy,
            unknown: Mutex::default(),
            called: watch::Sender::default(),
        });
        let router = Router::new().fallback(handle).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the scripted EC2 ended");
            }
        });

        Ok(Self { url, shared, server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the first call.
    pub async fn called(&self) {
        let mut called = self.shared.called.subscribe();
        // It cannot fail: this server keeps the sender.
        let _ = called.wait_for(|called| *called).await;
    }

    /// Requested actions that it does not know. An outcome that depends on one proves nothing.
    pub fn unknown(&self) -> BTreeSet<String> {
        let unknown = self.shared.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.clone()
    }
}

impl Drop for ScriptedEc2 {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn handle(State(shared): State<Arc<Shared>>, form: Bytes) -> Response {
    shared.called.send_replace(true);
    let query = Query::parse(&form);
    let policy = shared.policy.as_ref();
    if let Some(denial) = policy.and_then(|policy| iam::evaluate_read(policy, &Service::Ec2, &query)) {
        return refuse(denial.status, denial.code, &denial.message);
    }

    match answer(&shared.account, &query) {
        Ok(answer) => respond(200, answer.document()),
        Err(refusal) => {
            if refusal.is_unknown_action() {
                let mut unknown = shared.unknown.lock().unwrap_or_else(PoisonError::into_inner);
                unknown.insert(query.action);
            }
            refuse(refusal.status, &refusal.code, &refusal.message)
        }
    }
}

fn refuse(status: u16, code: &str, message: &str) -> Response {
    respond(status, Service::Ec2.error_body(status, code, message, REQUEST_ID))
}

fn respond(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "text/xml")], body).into_response()
}

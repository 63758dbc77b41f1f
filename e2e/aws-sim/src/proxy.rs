//! The proxy: plain HTTP on loopback, in front of moto.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outrigger_aws_quotas::Quotas;
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use outrigger_cluster_harness::loopback::LoopbackClient;

use super::bucket::Limits;
use super::call::{Call, Caller};
use super::fault::{Fault, FaultHandle};
use super::fleet::Fleet;
use super::gaps::Gaps;
use super::iam::Policy;
use super::query::{Parameters, Query};
use super::record::CallRecord;
use super::service::Service;
use super::serving::{Shared, serve};
use super::xml::Element;
use super::{AwsError, Moto, moto};

/// How many recorded calls the error of a wait shows.
const SHOWN_CALLS: usize = 30;

/// A running proxy. Dropping it stops listening.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<Infallible>,
}

impl Proxy {
    /// Listens on a free port of loopback in front of `moto`, without rate limits. With `record`, each call is also
    /// appended to that file, one JSON line a call.
    ///
    /// # Errors
    /// When it cannot listen or the file cannot be made.
    pub async fn start(moto: &Moto, callers: &[Caller], record: Option<&Path>) -> Result<Self, AwsError> {
        let file = record
            .map(|path| File::options().create(true).append(true).open(path))
            .transpose()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            moto: moto.url().to_owned(),
            client: LoopbackClient::default(),
            callers: Mutex::default(),
            started: Instant::now(),
            record: CallRecord::new(file),
            limits: Mutex::default(),
            policy: Mutex::default(),
            rules: Arc::default(),
            gaps: Gaps::default(),
            fleet: Mutex::default(),
        });

        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let proxy = Self { url, shared, server };
        callers.iter().for_each(|caller| proxy.add_caller(caller));

        Ok(proxy)
    }

    /// Its URL: the AWS endpoint of every process under test.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Names the process that uses this access key from now on.
    pub fn add_caller(&self, caller: &Caller) {
        let mut callers = self.shared.callers.lock().unwrap_or_else(PoisonError::into_inner);
        callers.insert(caller.access_key_id.clone(), caller.name.clone());
    }

    /// Limits rates as AWS does, with full buckets from now; or no longer.
    pub fn set_limits(&self, on: bool) {
        self.limit(on.then(Limits::default));
    }

    /// Limits rates as AWS does, with full buckets from now, in an account in which another tenant takes this part of each
    /// bucket's refill all the time.
    pub fn set_limits_beside(&self, taken: f64) {
        self.limit(Some(Limits::beside(taken)));
    }

    fn limit(&self, limits: Option<Limits>) {
        *self.shared.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Evaluates every call against this policy from now on; or allows all again.
    pub fn set_policy(&self, policy: Option<Arc<Policy>>) {
        *self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Answers DescribeInstances from a fleet from now on, without moto; or from moto again.
    pub fn set_fleet(&self, fleet: Option<Arc<Fleet>>) {
        *self.shared.fleet.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    /// Applies these quotas from now on. Those of a new proxy are AWS's defaults.
    pub fn set_quotas(&self, quotas: Quotas) {
        self.shared.gaps.set_quotas(quotas);
    }

    /// Shows routes to these instances, which were terminated at moto itself, as EC2 would.
    pub fn instances_terminated(&self, ids: &[&str]) {
        self.shared.gaps.terminated(ids);
    }

    /// Injects a fault for as long as the handle lives.
    pub fn add_fault(&self, fault: Fault) -> FaultHandle {
        self.shared.rules.add(fault)
    }

    /// As [`Moto::call`], with the gaps filled as for a process under test: neither recorded nor limited.
    ///
    /// # Errors
    /// [`AwsError::Refused`] with AWS's error code, or an answer that is no XML.
    pub async fn ask(&self, service: &Service, action: &str, parameters: Parameters) -> Result<Element, AwsError> {
        let query = Query::new(service, action, parameters);
        let response = self.shared.carry_out(service, query, &moto::headers(service)).await;
        moto::good(action, &response)
    }

    /// All calls so far, in order of arrival; those under way have no outcome yet.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.record.calls().clone()
    }

    /// The number that the next call will get: a place to count from.
    pub fn mark(&self) -> u64 {
        self.shared.record.calls().len() as u64
    }

    pub fn calls_since(&self, mark: u64) -> Vec<Call> {
        let calls = self.shared.record.calls();
        calls.iter().filter(|call| call.seq >= mark).cloned().collect()
    }

    /// How often each caller called each action.
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for call in self.shared.record.calls().iter() {
            *counts.entry((call.caller.clone(), call.action.clone())).or_default() += 1;
        }
        counts
    }

    /// Every call from now on, as it ends.
    pub fn subscribe(&self) -> broadcast::Receiver<Call> {
        self.shared.record.finished.subscribe()
    }

    /// Waits until the calls so far satisfy `look`, and returns what it found. `what` completes "no … within 5 s".
    ///
    /// # Errors
    /// [`AwsError::NotSeen`] with the last calls.
    pub async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&[Call]) -> Option<T>,
    ) -> Result<T, AwsError> {
        let mut changes = self.shared.record.changed.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(&self.shared.record.calls()) {
                    return found;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await; // cannot be: the record lives in self
                }
            }
        };

        match tokio::time::timeout(within, found).await {
            Ok(found) => Ok(found),
            Err(_) => {
                let calls = self.calls();
                let last = calls[calls.len().saturating_sub(SHOWN_CALLS)..].iter();
                let last = last.map(ToString::to_string).collect::<Vec<_>>().join("\n");

                Err(AwsError::NotSeen {
                    what: what.to_owned(),
                    seconds: within.as_secs_f64(),
                    last,
                })
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

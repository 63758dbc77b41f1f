//! A kube-controller-manager as far as its leases show it: it acquires, renews and loses them as client-go 0.26 does
//! (<https://github.com/kubernetes/client-go/blob/v0.26.13/tools/leaderelection/leaderelection.go>), with its own user.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::request::micro_time;

/// Longer than our manager's renew deadline. As in a real one, a process that lost its lease acts until the renew deadline
/// after its next attempt, and not until its record would have expired.
pub const DURATION: Duration = Duration::from_secs(8);
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The controllers that it runs, and under which lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The shared controllers, under K.
    InTree,
    /// The shared controllers, under M.
    Guarded,
    /// None of them.
    External,
}

impl Form {
    /// Its command line.
    pub fn command(self) -> Vec<&'static str> {
        let provider = match self {
            Self::InTree | Self::Guarded => "--cloud-provider=aws",
            Self::External => "--cloud-provider=external",
        };
        let mut command = vec!["kube-controller-manager", provider, "--configure-cloud-routes=false"];
        command.extend((self == Self::Guarded).then_some("--enable-leader-migration"));
        command
    }
}

/// A time during which its shared controllers ran.
#[derive(Debug, Clone)]
pub struct Acting {
    pub identity: String,
    pub from: Timestamp,
    /// `None`: it still acts.
    pub until: Option<Timestamp>,
}

/// The processes on one host: another one starts when one has ended. Dropping it kills the process.
pub struct StandIn {
    acting: Arc<Mutex<Vec<Acting>>>,
    task: JoinHandle<()>,
}

impl StandIn {
    pub fn start(client: &Client, host: &str, form: Form) -> Self {
        let acting = Arc::new(Mutex::new(Vec::new()));
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
        let task = tokio::spawn(processes(leases, host.to_owned(), form, Arc::clone(&acting)));
        Self { acting, task }
    }

    pub fn acting(&self) -> Vec<Acting> {
        self.acting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills the process: its leases expire.
    pub fn kill(&self) {
        self.task.abort();
        end(&self.acting);
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn processes(leases: Api<Lease>, host: String, form: Form, acting: Arc<Mutex<Vec<Acting>>>) {
    for number in 1.. {
        let identity = format!("{host}_{number}");
        let mut elections = [
            Election::new(&leases, "kube-controller-manager", &identity),
            Election::new(&leases, "cloud-provider-extraction-migration", &identity),
        ];
        let [main, migration] = &mut elections;

        main.acquire().await;
        match form {
            Form::External => while main.holds().await {},
            Form::InTree => {
                begin(&acting, &identity);
                while main.holds().await {}
            }
            Form::Guarded => under_both(main, migration, || begin(&acting, &identity)).await,
        }
        end(&acting);
    }
}

/// Until one of both is lost.
async fn under_both(main: &mut Election, migration: &mut Election, begin: impl FnOnce()) {
    let guarded = async {
        migration.acquire().await;
        begin();
        while migration.holds().await {}
    };
    tokio::select! {
        () = guarded => {}
        () = async { while main.holds().await {} } => {}
    }
}

fn begin(acting: &Mutex<Vec<Acting>>, identity: &str) {
    let now = Acting {
        identity: identity.to_owned(),
        from: Timestamp::now(),
        until: None,
    };
    acting.lock().unwrap_or_else(PoisonError::into_inner).push(now);
}

fn end(acting: &Mutex<Vec<Acting>>) {
    let mut acting = acting.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = acting.last_mut() {
        last.until.get_or_insert_with(Timestamp::now);
    }
}

struct Election {
    leases: Api<Lease>,
    name: &'static str,
    identity: String,
    /// The last record, and when it changed.
    observed: Option<(Value, Instant)>,
}

impl Election {
    fn new(leases: &Api<Lease>, name: &'static str, identity: &str) -> Self {
        Self {
            leases: leases.clone(),
            name,
            identity: identity.to_owned(),
            observed: None,
        }
    }

    async fn acquire(&mut self) {
        while !self.attempt().await {
            sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews it after the retry period. False when that failed for the renew deadline.
    async fn holds(&mut self) -> bool {
        sleep(RETRY_PERIOD).await;
        timeout(RENEW_DEADLINE, self.acquire()).await.is_ok()
    }

    /// client-go's `tryAcquireOrRenew`.
    async fn attempt(&mut self) -> bool {
        self.write().await.unwrap_or(false)
    }

    async fn write(&mut self) -> Result<bool, kube::Error> {
        let now = micro_time(Timestamp::now());
        let mut spec = json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": DURATION.as_secs(),
            "acquireTime": now, "renewTime": now, "leaseTransitions": 0,
        });
        let Some(mut lease) = self.leases.get_opt(self.name).await? else {
            let lease = serde_json::from_value(json!({"metadata": {"name": self.name}, "spec": spec}));
            let created = self
                .leases
                .create(&PostParams::default(), &lease.expect("a Lease"))
                .await?;
            self.observe(&created);
            return Ok(true);
        };

        self.observe(&lease);
        let old = serde_json::to_value(&lease.spec).expect("JSON");
        let holder = old["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let is_own = holder == self.identity;
        let since = self.observed.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        if !holder.is_empty() && !is_own && since.elapsed() < DURATION {
            return Ok(false);
        }

        if is_own {
            spec["acquireTime"] = old["acquireTime"].clone();
        }
        let transitions = old["leaseTransitions"].as_i64().unwrap_or(0);
        spec["leaseTransitions"] = json!(transitions + i64::from(!is_own));
        lease.spec = serde_json::from_value(spec).expect("a spec");
        let stored = self.leases.replace(self.name, &PostParams::default(), &lease).await?;
        self.observe(&stored);
        Ok(true)
    }

    fn observe(&mut self, lease: &Lease) {
        let record = serde_json::to_value(&lease.spec).expect("JSON");
        if self.observed.as_ref().is_none_or(|(old, _)| *old != record) {
            self.observed = Some((record, Instant::now()));
        }
    }
}

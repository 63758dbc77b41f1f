//! Two managers with short leases: one leads, one waits.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use outrigger_cluster_harness::wait::Answer;
use outrigger_e2e::single_cluster::{Manager, SingleCluster};
use tokio::time::Instant;

/// Much longer than a start, or a lease that runs out.
const LIMIT: Duration = Duration::from_secs(30);
/// A manager that was told to end does so within this.
const GRACE: Duration = Duration::from_secs(10);
/// Short, and long enough for a renewal on a busy machine.
pub const LEASE: Duration = Duration::from_secs(6);
/// Only the controller that has targets.
const FLAGS: [&str; 3] = [
    "--controllers=service-lb-controller",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=500ms",
];

/// How a leader ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// SIGTERM: it releases its lease.
    Terminate,
    /// SIGKILL: its lease runs out.
    Kill,
}

/// Without a leader.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// Whether the lease was released. A leader that does not stop its controllers within 5 s ends without a release.
    pub released: bool,
    /// From the end of the leader until this test sees the next holder, up to 50 ms and a read after the acquisition.
    pub lasted: Duration,
}

/// The leader and the one that waits.
pub struct Pair {
    leader: Manager,
    standby: Manager,
    holder: String,
    managers: usize,
    leases: Api<Lease>,
}

impl Pair {
    /// Starts both; the first leads.
    pub async fn start(cluster: &SingleCluster) -> Self {
        let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-system");
        let leader = start(cluster, 1);
        let holder = next_holder(&leases, "", &leader).await;
        Self {
            leader,
            standby: start(cluster, 2),
            holder,
            managers: 2,
            leases,
        }
    }

    /// The leader's name in the record of AWS calls.
    pub fn leader(&self) -> &str {
        self.leader.name()
    }

    /// Waits for a value, while both run.
    pub async fn until<A: Answer>(&self, what: &str, within: Duration, mut probe: impl AsyncFnMut() -> A) -> A::Value {
        let probe = async || {
            self.standby.alive().expect("the other runs");
            probe().await
        };
        self.leader.until(what, within, probe).await.expect("in time")
    }

    fn alive(&self) {
        self.leader.alive().expect("the leader runs");
        self.standby.alive().expect("the other runs");
    }

    /// Ends the leader and waits until the other leads; a third manager then waits.
    pub async fn change(&mut self, cluster: &SingleCluster, how: How) -> Gap {
        self.alive();
        let released = match how {
            How::Kill => {
                self.leader.kill().await.expect("killed");
                false
            }
            How::Terminate => {
                let exit = self.leader.stop(GRACE).await.expect("told");
                let code = exit.status.and_then(|status| status.code());
                code.unwrap_or_else(|| panic!("{} did not end by itself: {exit:?}", self.leader.name())) == 0
            }
        };

        let ended = Instant::now();
        self.holder = next_holder(&self.leases, &self.holder, &self.standby).await;
        let lasted = ended.elapsed();
        self.managers += 1;
        let third = start(cluster, self.managers);
        self.leader = std::mem::replace(&mut self.standby, third);
        Gap { released, lasted }
    }
}

fn start(cluster: &SingleCluster, number: usize) -> Manager {
    let duration = format!("--leader-elect-lease-duration={}s", LEASE.as_secs());
    let flags: Vec<&str> = FLAGS.into_iter().chain([duration.as_str()]).collect();
    let manager = cluster.manager(&format!("outrigger-manager-{number}"), &flags);
    manager.expect("the manager starts")
}

/// Waits until someone else than `before` holds the lease.
async fn next_holder(leases: &Api<Lease>, before: &str, next: &Manager) -> String {
    let holder = async || {
        let lease = leases.get_opt("cloud-controller-manager").await.expect("readable");
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        holder.filter(|holder| !holder.is_empty() && holder != before)
    };
    next.until("new holder of the lease", LIMIT, holder)
        .await
        .expect("in time")
}

//! Changes of Nodes and Services during the test. A fixed seed decides their order.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use outrigger_e2e::single_cluster::SingleCluster;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::nodes::{Causes, Played, bystanders};
use crate::services::{self, Services};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// From one change to the next.
const PACE: Duration = Duration::from_millis(120);

/// Where a Node is that comes and goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    Excluded,
    Gone,
}

/// How often what was done.
#[derive(Debug, Default)]
pub struct Done {
    flips: usize,
    outages: usize,
    labels: usize,
    comings_and_goings: usize,
    services: usize,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} flips of Ready, {} times all NotReady, {} labels, {} comings and goings, {} changes of Services",
            self.flips, self.outages, self.labels, self.comings_and_goings, self.services
        )
    }
}

/// The cluster's Nodes and Services.
pub struct Churn {
    steady: Vec<Played>,
    transient: Vec<(Played, Place)>,
    services: Services,
    causes: Arc<Causes>,
    random: u64,
    done: Done,
}

/// Churn that is under way.
pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Churn>,
}

impl Churn {
    /// All Nodes join, and all Services are made.
    pub async fn prepare(cluster: &SingleCluster, steady: usize) -> Self {
        let nodes = Api::all(cluster.client.clone());
        bystanders(&nodes).await;
        let mut all = Vec::new();
        for instance in &cluster.account.instances {
            let node = Played::new(nodes.clone(), instance.clone());
            node.join().await;
            all.push(node);
        }
        let transient = all.split_off(steady);
        Self {
            steady: all,
            transient: transient.into_iter().map(|node| (node, Place::Here)).collect(),
            services: services::create(cluster).await,
            causes: Arc::default(),
            random: SEED,
            done: Done::default(),
        }
    }

    /// Changes something again and again.
    pub fn start(mut self) -> Running {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            while stopped.try_recv().is_err() {
                self.change().await;
                sleep(PACE).await;
            }
            self.calm().await;
            self
        });
        Running { stop, task }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 33).unwrap_or_default() % below
    }

    async fn change(&mut self) {
        match self.random(20) {
            0..=8 => {
                self.done.flips += 1;
                let status = ["True", "False", "Unknown"][self.random(3)];
                let which = self.random(self.steady.len());
                self.steady[which].ready(status).await;
            }
            9 => {
                self.done.outages += 1;
                self.all_steady("Unknown").await;
                sleep(Duration::from_millis(1500)).await;
                self.all_steady("True").await;
            }
            10..=11 => {
                self.done.labels += 1;
                let (which, value) = (self.random(self.steady.len()), self.random(1000).to_string());
                self.steady[which].label("churn", Some(&value)).await;
            }
            12..=16 => {
                self.done.comings_and_goings += 1;
                let (which, excluded) = (self.one_that_moves(), self.random(2) == 0);
                let next = match self.transient[which].1 {
                    Place::Here if excluded => Place::Excluded,
                    Place::Here => Place::Gone,
                    Place::Excluded | Place::Gone => Place::Here,
                };
                self.put(which, next).await;
            }
            _ => {
                self.done.services += 1;
                let which = self.random(usize::MAX);
                self.services.change(which).await;
            }
        }
    }

    /// Mostly no more than two are away at once: the loss of more is looked at twice, which a leader has to live for.
    fn one_that_moves(&mut self) -> usize {
        let (any, more) = (self.random(self.transient.len()), self.random(4) == 0);
        let mut away = (0..self.transient.len()).filter(|which| self.transient[*which].1 != Place::Here);
        match (away.next(), away.next()) {
            (Some(first), Some(_)) if !more => first,
            _ => any,
        }
    }

    async fn all_steady(&self, status: &str) {
        for node in &self.steady {
            node.ready(status).await;
        }
    }

    /// The cause is noted before the Node goes, and closed after it is back.
    async fn put(&mut self, which: usize, next: Place) {
        let (node, place) = &mut self.transient[which];
        let id = node.instance.id.clone();
        match (*place, next) {
            (Place::Here, Place::Excluded) => {
                self.causes.begin(&id, Timestamp::now());
                node.exclude(true).await;
            }
            (Place::Here, Place::Gone) => {
                self.causes.begin(&id, Timestamp::now());
                node.leave().await;
            }
            (Place::Excluded, Place::Here) => {
                node.exclude(false).await;
                self.causes.end(&id, Timestamp::now());
            }
            (Place::Gone, Place::Here) => {
                node.join().await;
                self.causes.end(&id, Timestamp::now());
            }
            _ => return,
        }
        *place = next;
    }

    /// All are here and Ready.
    async fn calm(&mut self) {
        for which in 0..self.transient.len() {
            self.put(which, Place::Here).await;
        }
        self.all_steady("True").await;
    }
}

impl Running {
    /// Lets the cluster come to rest, with every Node here and Ready.
    pub async fn stop(self) -> (Done, Arc<Causes>) {
        let _ = self.stop.send(()); // it ended by a panic, which the join tells
        let churn = self.task.await.expect("the churn went on to its end");
        (churn.done, churn.causes)
    }
}

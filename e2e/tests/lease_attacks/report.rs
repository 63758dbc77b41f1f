//! What was done, a line for each attack.

use outrigger_environment::review::Answer;

use super::attacks::{self, ATTACKS, Stage};
use super::cluster::{Cluster, Mark};

/// Our manager gives up, closes or loses the permit.
const INTERRUPTIONS: [&str; 3] = [
    "ALARM",
    "releasing the migration lease",
    "keeping the migration lease and writing nothing",
];

pub struct Report {
    stage: Stage,
    performed: Vec<&'static str>,
}

impl Report {
    pub fn new(stage: Stage) -> Self {
        Self {
            stage,
            performed: Vec::new(),
        }
    }

    /// A request and its answer.
    pub fn refused(&mut self, name: &str, answer: &Answer, code: u16) {
        assert_eq!(answer.code, code, "{name}: {} {}", answer.message(), answer.body);
        let message: String = answer.message().chars().take(160).collect();
        self.line(name, &format!("{}: {message}", answer.code), "nothing");
    }

    /// An attack that our manager has to answer in this way. Two owners are never an answer.
    pub fn answered(&mut self, cluster: &Cluster, name: &str, mark: &Mark, did: &str) {
        if let Some((time, what)) = cluster.overlap(mark) {
            let log = cluster.manager().log_since(mark.log);
            panic!("{name}: two owners for {time:?}: {what}\n{log}");
        }
        self.line(name, "granted", did);
    }

    /// The same, and our manager had M and its permit all the time, or did not have M all the time.
    pub fn unchanged(&mut self, cluster: &Cluster, name: &str, mark: &Mark, did: &str) {
        let log = cluster.manager().log_since(mark.log);
        let interrupted = INTERRUPTIONS.iter().find(|text| log.contains(*text));
        assert!(interrupted.is_none(), "{name}: {interrupted:?}\n{log}");
        assert_eq!(
            cluster.manager().restarts(),
            mark.restarts,
            "{name}: our manager ended\n{log}"
        );

        let m = outrigger_cluster_harness::leases::Lease::M;
        let is_ours = |holder: &Option<String>| holder.as_deref().is_some_and(Cluster::is_ours);
        let others = cluster.changes_since(m, mark).into_iter();
        let other = others
            .map(|change| change.holder)
            .find(|holder| *holder != mark.owner && is_ours(holder));
        assert!(other.is_none(), "{name}: {other:?} acquired M\n{log}");
        if is_ours(&mark.owner) {
            assert_eq!(cluster.holder(m), mark.owner, "{name}: M was lost\n{log}");
        }
        self.answered(cluster, name, mark, did);
    }

    fn line(&mut self, name: &str, said: &str, did: &str) {
        let attack = attacks::attack(name);
        assert!(attack.stage == self.stage, "{name} belongs to another test");
        if !self.performed.contains(&attack.name) {
            println!(
                "| {name} | {} | {} | {} | {said} | {did} |",
                attack.field, attack.principal, attack.attack
            );
        }
        self.performed.push(attack.name);
    }

    pub fn is_complete(&self) {
        let all = ATTACKS.iter().filter(|attack| attack.stage == self.stage);
        let left_out: Vec<&str> = all
            .map(|attack| attack.name)
            .filter(|name| !self.performed.contains(name))
            .collect();
        assert!(left_out.is_empty(), "{:?}: {left_out:?}", self.stage);
    }
}

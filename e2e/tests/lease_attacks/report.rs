//! A line for each attack, with its result.

use outrigger_cluster_harness::leases::Lease;
use outrigger_environment::review::Answer;

use super::attacks::{self, ATTACKS, Stage};
use super::cluster::{Cluster, Mark};

/// Our manager gives up, closes or loses the permit.
const INTERRUPTIONS: [&str; 3] = [
    "ALARM",
    "releasing the migration lease",
    "keeping the migration lease and writing nothing",
];

/// Each attack is judged, also after one that has another result than expected.
pub struct Report {
    stage: Stage,
    performed: Vec<&'static str>,
    failed: Vec<String>,
}

impl Report {
    pub fn new(stage: Stage) -> Self {
        Self {
            stage,
            performed: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// A request and its answer.
    pub fn refused(&mut self, name: &str, answer: &Answer, code: u16) {
        let message: String = answer.message().chars().take(160).collect();
        let said = format!("{}: {message}", answer.code);
        if answer.code != code {
            self.failed.push(format!("{name}: not {code}, but {said}"));
        }
        self.line(name, &said, "nothing");
    }

    /// A request that is no attack: the credentials of the principal are good.
    pub fn granted(&mut self, answer: &Answer) {
        if !answer.is_granted() {
            self.failed
                .push(format!("not granted: {} {}", answer.code, answer.message()));
        }
    }

    /// An attack that our manager answers in this way. Two owners are never an answer.
    pub fn answered(&mut self, cluster: &Cluster, name: &str, mark: &Mark, did: &str) {
        let two_owners = cluster.overlap(mark);
        let two_owners = two_owners.map(|(time, what)| format!("two owners for {time:.1?}: {what}"));
        let unsaid = cluster
            .take_unsaid()
            .into_iter()
            .map(|text| format!("it does not say {text:?}"));
        let failed: Vec<String> = two_owners.into_iter().chain(unsaid).collect();
        self.judge(cluster, name, mark, failed);
        self.line(name, "granted", did);
    }

    /// The same, and our manager has M and its permit all the time, or does not acquire M.
    pub fn unchanged(&mut self, cluster: &Cluster, name: &str, mark: &Mark, did: &str) {
        let log = cluster.manager().log_since(mark.log);
        let interrupted = INTERRUPTIONS.iter().find(|text| log.contains(*text));
        let mut failed: Vec<String> = interrupted
            .map(|text| format!("it says {text:?}"))
            .into_iter()
            .collect();
        if cluster.manager().restarts() != mark.restarts {
            failed.push("our manager ended".to_owned());
        }

        let is_ours = |holder: &Option<String>| holder.as_deref().is_some_and(Cluster::is_ours);
        let changes = cluster.changes_since(Lease::M, mark).into_iter();
        let mut holders = changes.map(|change| change.holder);
        if let Some(other) = holders.find(|holder| *holder != mark.owner && is_ours(holder)) {
            failed.push(format!("{other:?} acquired M"));
        }
        let now = cluster.holder(Lease::M);
        if is_ours(&mark.owner) && now != mark.owner {
            failed.push(format!("{:?} lost M to {now:?}", mark.owner));
        }
        self.judge(cluster, name, mark, failed);
        self.answered(cluster, name, mark, did);
    }

    fn judge(&mut self, cluster: &Cluster, name: &str, mark: &Mark, failed: Vec<String>) {
        if failed.is_empty() {
            return;
        }
        let failed = format!("{name}: {}", failed.join("; "));
        println!("{failed}\n{}", cluster.manager().log_since(mark.log));
        self.failed.push(failed);
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

    /// Each attack of the stage was performed and had the expected result.
    pub fn complete(self) {
        let all = ATTACKS.iter().filter(|attack| attack.stage == self.stage);
        let names = all.map(|attack| attack.name);
        let left_out: Vec<&str> = names.filter(|name| !self.performed.contains(name)).collect();
        assert!(left_out.is_empty(), "{:?}: {left_out:?}", self.stage);
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }
}

//! Calls that take time, and answers about security groups that are some seconds old.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::FakeAws;
use crate::ec2::SecurityGroup;

/// How old the state may be from which EC2 answers.
const STALE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Lag {
    groups: Vec<String>,
    random: u64,
    /// Former states, each with the moment when it ended.
    former: VecDeque<(Instant, BTreeMap<String, SecurityGroup>)>,
}

impl Lag {
    /// A number below `limit` of a fixed sequence (xorshift).
    fn random(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Keeps the state before a write.
    pub(super) fn keep(&mut self, groups: &BTreeMap<String, SecurityGroup>) {
        let now = Instant::now();
        self.former
            .retain(|(until, _)| now.saturating_duration_since(*until) <= STALE);
        self.former.push_back((now, groups.clone()));
    }

    /// Gives the groups rules that they had at some moment of the last seconds.
    fn age(&mut self, groups: &mut BTreeMap<String, SecurityGroup>) {
        let age = Duration::from_secs(self.random(STALE.as_secs() + 1));
        let at = Instant::now().checked_sub(age);
        let mut former = self.former.iter();
        let Some((_, old)) = former.find(|(until, _)| at.is_some_and(|at| *until > at)) else {
            return;
        };

        for id in &self.groups {
            if let (Some(group), Some(old)) = (groups.get_mut(id), old.get(id)) {
                group.ingress.clone_from(&old.ingress);
            }
        }
    }
}

impl FakeAws {
    /// From now on calls of several tasks interleave, and `DescribeSecurityGroups` answers with rules of these groups from up
    /// to 10 s ago.
    pub fn lag(&self, groups: &[&str], seed: u64) {
        self.inner().lag = Some(Lag {
            groups: groups.iter().map(|id| (*id).to_owned()).collect(),
            random: seed.max(1),
            former: VecDeque::new(),
        });
    }

    /// Other tasks may continue before or after a call.
    pub(super) async fn turn(&self) {
        let times = self.inner().lag.as_mut().map_or(0, |lag| lag.random(4));
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }

    /// The groups as `DescribeSecurityGroups` knows them now.
    pub(super) fn listed_groups(&self) -> BTreeMap<String, SecurityGroup> {
        let mut inner = self.inner();
        let mut groups = inner.world.security_groups.clone();
        if let Some(lag) = &mut inner.lag {
            lag.age(&mut groups);
        }
        groups
    }
}

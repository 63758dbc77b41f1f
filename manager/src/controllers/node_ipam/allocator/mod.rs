//! Who holds which range. Pure: what was listed, seen and tried comes in; what may be given comes out.
//!
//! - A range belongs to a Node's UID from the moment it is chosen for it, before the write is sent. It stays so whatever
//!   comes out of the write, and a second try for the same Node gets the same range: an answer that was lost can never
//!   let another Node have it.
//! - `spec.podCIDRs` cannot change once set, so what a Node was once seen with stays its own until that Node is gone.
//! - Gone means: the cache showed this Node and then did not; or a full list, begun after the range was noted, is
//!   without it.

use std::collections::{BTreeMap, HashMap, HashSet};

use ipnet::IpNet;

use super::cidr_set::{CidrSet, Span};

/// What is wrong with a Node's ranges. The Node is left alone: its ranges cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Not a range.
    Unreadable(String),
    /// Outside of the cluster's ranges.
    OutOfRange(String),
    /// Another Node has it too, or a part of it.
    Overlap(String, String),
}

impl Problem {
    /// The reason of its Event, and its metric's label.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "CIDRUnreadable",
            Self::OutOfRange(_) => "CIDROutOfRange",
            Self::Overlap(..) => "CIDROverlap",
        }
    }
}

/// A Node as far as this matters.
#[derive(Debug, Clone, Copy)]
pub struct NodeRanges<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
    /// `spec.podCIDRs`.
    pub ranges: &'a [String],
}

/// A range of the cluster has none left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted(pub IpNet);

/// What a Node is to get, one range for each range of the cluster, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The ranges.
    pub ranges: Vec<IpNet>,
    /// How many were passed over, for each range of the cluster; empty when the ranges were chosen before.
    pub skipped: Vec<u32>,
}

/// How often ranges were taken and released since the last question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCounts {
    /// Taken.
    pub taken: u64,
    /// Released.
    pub released: u64,
}

#[derive(Debug)]
struct Allocation {
    uid: String,
    places: Vec<(usize, Span)>,
    /// What is to be written; empty once the Node itself shows its ranges.
    chosen: Vec<IpNet>,
    problem: Option<Problem>,
    /// Whether the cache has shown this Node.
    cached: bool,
    /// The full list that was the newest one begun when this was noted.
    since: u64,
}

/// Who holds which range.
#[derive(Debug)]
pub struct Allocator {
    sets: Vec<CidrSet>,
    changes: Vec<ChangeCounts>,
    excluded: Vec<(usize, Span)>,
    /// By name; more than one while a Node was made anew and not every source says so yet.
    holders: HashMap<String, Vec<Allocation>>,
    /// Whether two Nodes ever had the same range, so that a release must look who else has it.
    has_overlaps: bool,
    lists: u64,
    problems: BTreeMap<&'static str, i64>,
    uncached: usize,
}

impl Allocator {
    /// Nobody holds anything; `excluded` is never given.
    #[must_use]
    pub fn new(sets: Vec<CidrSet>, excluded: &[IpNet]) -> Self {
        let mut allocator = Self {
            changes: vec![ChangeCounts::default(); sets.len()],
            excluded: Vec::new(),
            sets,
            holders: HashMap::new(),
            has_overlaps: false,
            lists: 0,
            problems: BTreeMap::new(),
            uncached: 0,
        };
        let places = excluded
            .iter()
            .flat_map(|range| allocator.places(range))
            .collect::<Vec<_>>();
        for (set, span) in places {
            allocator.occupy(set, span);
            allocator.excluded.push((set, span));
        }
        allocator
    }

    /// The cluster's ranges and how full they are.
    #[must_use]
    pub fn sets(&self) -> &[CidrSet] {
        &self.sets
    }

    /// What moved since the last call, for each range of the cluster.
    pub fn take_changes(&mut self) -> Vec<ChangeCounts> {
        let fresh = vec![ChangeCounts::default(); self.sets.len()];
        std::mem::replace(&mut self.changes, fresh)
    }

    /// How many Nodes have a problem, by reason.
    #[must_use]
    pub fn problems(&self) -> &BTreeMap<&'static str, i64> {
        &self.problems
    }

    /// Takes note of a Node that has ranges. Returns what is wrong with them, the first time it is seen.
    pub fn observe(&mut self, node: NodeRanges<'_>) -> Option<Problem> {
        if node.ranges.is_empty() || self.is_settled(node) {
            return None;
        }
        let old = self.remove(node.name, node.uid);
        let mut held = Allocation {
            uid: node.uid.to_owned(),
            places: Vec::new(),
            chosen: Vec::new(),
            problem: None,
            cached: old.as_ref().is_some_and(|held| held.cached),
            since: old.map_or(self.lists, |held| held.since),
        };
        for text in node.ranges {
            let Ok(range) = text.parse::<IpNet>() else {
                held.problem.get_or_insert(Problem::Unreadable(text.clone()));
                continue;
            };
            let places = self.places(&range);
            if places.is_empty() {
                held.problem.get_or_insert(Problem::OutOfRange(text.clone()));
            }
            for (set, span) in places {
                if let Some(other) = self.other_holder(set, span) {
                    self.has_overlaps = true;
                    held.problem.get_or_insert(Problem::Overlap(text.clone(), other));
                }
                self.occupy(set, span);
                held.places.push((set, span));
            }
        }
        let problem = held.problem.clone();
        self.insert(node.name, held);
        problem
    }

    /// What the cache has under a name now: the Node's UID, or nothing. Returns whether ranges were released.
    pub fn cache_shows(&mut self, name: &str, uid: Option<&str>) -> bool {
        let Some(held) = self.holders.get_mut(name) else {
            return false;
        };
        let mut gone = Vec::new();
        for allocation in held {
            if Some(allocation.uid.as_str()) == uid {
                self.uncached -= usize::from(!allocation.cached);
                allocation.cached = true;
            } else if allocation.cached {
                gone.push(allocation.uid.clone());
            }
        }
        gone.iter().for_each(|uid| drop(self.remove(name, uid)));
        !gone.is_empty()
    }

    /// Chooses ranges for a Node without any; the same ones again for the same Node. `None` when it has some already,
    /// though the cache does not say so yet.
    ///
    /// # Errors
    /// The first range of the cluster that has none left; then nothing was taken.
    pub fn reserve(&mut self, name: &str, uid: &str) -> Result<Option<Reservation>, Exhausted> {
        if let Some(held) = self.allocation(name, uid) {
            let again = Reservation {
                ranges: held.chosen.clone(),
                skipped: Vec::new(),
            };
            return Ok(Some(again).filter(|again| !again.ranges.is_empty()));
        }
        let mut taken = Vec::new();
        for set in 0..self.sets.len() {
            match self.take_next(set) {
                Some(next) => taken.push(next),
                None => {
                    for (set, next) in taken.iter().enumerate() {
                        self.release(set, next.span);
                    }
                    let cluster = self.sets.get(set).map(CidrSet::cluster);
                    return cluster.map_or(Ok(None), |cluster| Err(Exhausted(cluster)));
                }
            }
        }
        let ranges: Vec<IpNet> = taken.iter().map(|next| next.range).collect();
        let held = Allocation {
            uid: uid.to_owned(),
            places: taken.iter().map(|next| next.span).enumerate().collect(),
            chosen: ranges.clone(),
            problem: None,
            // Only Nodes of the cache are given ranges.
            cached: true,
            since: self.lists,
        };
        self.insert(name, held);
        let skipped = taken.iter().map(|next| next.skipped).collect();
        Ok(Some(Reservation { ranges, skipped }))
    }

    /// A full list of the Nodes begins; to be given to [`Allocator::release_missing`] at its end.
    pub fn begin_list(&mut self) -> u64 {
        self.lists += 1;
        self.lists
    }

    /// A full list ended: whoever held something when it began and is not in it, is gone. Returns whether ranges were
    /// released.
    pub fn release_missing(&mut self, list: u64, uids: &HashSet<&str>) -> bool {
        let gone: Vec<(String, String)> = self
            .holders
            .iter()
            .flat_map(|(name, held)| held.iter().map(move |held| (name, held)))
            .filter(|(_, held)| held.since < list && !uids.contains(held.uid.as_str()))
            .map(|(name, held)| (name.clone(), held.uid.clone()))
            .collect();
        gone.iter().for_each(|(name, uid)| drop(self.remove(name, uid)));
        !gone.is_empty()
    }

    /// Whether there are holders that only a list knows of. The cache may be behind it, or may have been ahead; then a
    /// further list has to tell.
    #[must_use]
    pub fn needs_list(&self) -> bool {
        self.uncached > 0
    }

    fn insert(&mut self, name: &str, held: Allocation) {
        self.count(&held, 1);
        self.uncached += usize::from(!held.cached);
        self.holders.entry(name.to_owned()).or_default().push(held);
    }

    fn count(&mut self, held: &Allocation, change: i64) {
        if let Some(problem) = &held.problem {
            *self.problems.entry(problem.reason()).or_default() += change;
        }
    }

    fn allocation(&self, name: &str, uid: &str) -> Option<&Allocation> {
        self.holders.get(name)?.iter().find(|held| held.uid == uid)
    }

    /// Whether its ranges are noted already, or are those that were chosen for it.
    fn is_settled(&mut self, node: NodeRanges<'_>) -> bool {
        let mut held = self.holders.get_mut(node.name).into_iter().flatten();
        let Some(held) = held.find(|held| held.uid == node.uid) else {
            return false;
        };
        let chosen = held.chosen.iter().map(ToString::to_string);
        if chosen.eq(node.ranges.iter().cloned()) {
            held.chosen.clear();
        }
        held.chosen.is_empty()
    }

    fn remove(&mut self, name: &str, uid: &str) -> Option<Allocation> {
        let held = self.holders.get_mut(name)?;
        let place = held.iter().position(|held| held.uid == uid)?;
        let removed = held.swap_remove(place);
        if held.is_empty() {
            self.holders.remove(name);
        }
        self.count(&removed, -1);
        self.uncached -= usize::from(!removed.cached);
        for (set, span) in &removed.places {
            self.release(*set, *span);
        }
        Some(removed)
    }

    fn places(&self, range: &IpNet) -> Vec<(usize, Span)> {
        let spans = self.sets.iter().enumerate();
        spans
            .filter_map(|(set, cidr_set)| Some((set, cidr_set.span(range)?)))
            .collect()
    }

    fn take_next(&mut self, set: usize) -> Option<super::cidr_set::Taken> {
        let taken = self.sets.get_mut(set)?.take_next()?;
        self.changes.get_mut(set)?.taken += 1;
        Some(taken)
    }

    fn occupy(&mut self, set: usize, span: Span) {
        if let (Some(cidr_set), Some(changes)) = (self.sets.get_mut(set), self.changes.get_mut(set)) {
            changes.taken += u64::from(cidr_set.occupy(span));
        }
    }

    /// Releases what nobody else has.
    fn release(&mut self, set: usize, span: Span) {
        let mut kept: Vec<Span> = common(&self.excluded, set, span).collect();
        if self.has_overlaps {
            let others = self.holders.values().flatten();
            kept.extend(others.flat_map(|held| common(&held.places, set, span)));
        }
        if let (Some(cidr_set), Some(changes)) = (self.sets.get_mut(set), self.changes.get_mut(set)) {
            let released = cidr_set.release(span);
            let again: u32 = kept.into_iter().map(|span| cidr_set.occupy(span)).sum();
            changes.released += u64::from(released.saturating_sub(again));
        }
    }

    /// The name of a Node that has a part of this. The search is long, so the bitmap is asked first.
    fn other_holder(&self, set: usize, span: Span) -> Option<String> {
        if !self.sets.get(set)?.any_used(span) {
            return None;
        }
        let has = |held: &Allocation| common(&held.places, set, span).next().is_some();
        let mut holders = self.holders.iter().filter(|(_, held)| held.iter().any(has));
        holders.next().map(|(name, _)| name.clone())
    }
}

fn common(places: &[(usize, Span)], set: usize, span: Span) -> impl Iterator<Item = Span> {
    let of_set = places.iter().filter(move |(of, _)| *of == set);
    of_set.filter_map(move |(_, other)| other.common(span))
}

#[cfg(test)]
mod tests;

//! Allocates CIDRs to Nodes. Pure.
//!
//! - A CIDR is allocated to a Node's UID before the write is sent, and stays so whatever the result of the write is. A
//!   retry for the same Node gets the same CIDR, so a lost answer never lets another Node have it.
//! - `spec.podCIDRs` cannot change once set, so the CIDRs that a Node was observed with stay allocated until it is gone.
//! - A kubelet may choose the range of a Node that it creates. So one that is much larger than a Node's does not exhaust the
//!   cluster's: its parts are allocated, after all others.
//! - A Node is gone if the cache showed it and then did not, or if a full list that began after the allocation does not
//!   contain it.

use std::collections::{BTreeMap, HashMap, HashSet};

use ipnet::IpNet;

use super::cidr_set::{CidrSet, Span};
use crate::pod_range;

/// A problem of a Node's CIDRs. The Node stays unchanged, since its CIDRs cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    Unreadable(String),
    OutOfRange(String),
    TooLarge(String),
    Overlap(String, String),
}

impl Problem {
    /// The reason of its Event, and its metric's label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "CIDRUnreadable",
            Self::OutOfRange(_) => "CIDROutOfRange",
            Self::TooLarge(_) => "CIDRTooLarge",
            Self::Overlap(..) => "CIDROverlap",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NodeRanges<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub ranges: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted(pub IpNet);

/// The CIDRs for a Node, one for each cluster CIDR, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub ranges: Vec<IpNet>,
    /// The number of used CIDRs that were skipped, by cluster CIDR; empty for a repeated reservation.
    pub skipped: Vec<u32>,
}

/// Allocations and releases since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCounts {
    pub taken: u64,
    pub released: u64,
}

#[derive(Debug)]
struct Allocation {
    uid: String,
    places: Vec<(usize, Span)>,
    /// Places of ranges that are too large: allocated to others last.
    avoided: Vec<(usize, Span)>,
    /// The CIDRs to write; empty once the Node has them.
    chosen: Vec<IpNet>,
    problem: Option<Problem>,
    /// Whether the cache has shown this Node.
    cached: bool,
    /// The number of the last full list that had begun at the time of the allocation.
    since: u64,
}

#[derive(Debug)]
pub struct Allocator {
    sets: Vec<CidrSet>,
    changes: Vec<ChangeCounts>,
    excluded: Vec<(usize, Span)>,
    /// By name; several after a Node was created again and not every source shows it.
    holders: HashMap<String, Vec<Allocation>>,
    /// Whether two Nodes ever had overlapping CIDRs, so that a release must check the others.
    has_overlaps: bool,
    lists: u64,
    problems: BTreeMap<&'static str, i64>,
    uncached: usize,
}

impl Allocator {
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

    /// The cluster CIDRs and their usage.
    pub fn sets(&self) -> &[CidrSet] {
        &self.sets
    }

    /// Allocations and releases since the last call, by cluster CIDR.
    pub fn take_changes(&mut self) -> Vec<ChangeCounts> {
        let fresh = vec![ChangeCounts::default(); self.sets.len()];
        std::mem::replace(&mut self.changes, fresh)
    }

    /// The number of Nodes with a problem, by reason.
    pub fn problems(&self) -> &BTreeMap<&'static str, i64> {
        &self.problems
    }

    /// Records a Node with CIDRs. Returns their problem the first time.
    pub fn observe(&mut self, node: NodeRanges<'_>) -> Option<Problem> {
        if node.ranges.is_empty() || self.is_settled(node) {
            return None;
        }

        let old = self.remove(node.name, node.uid);
        let mut held = Allocation {
            uid: node.uid.to_owned(),
            places: Vec::new(),
            avoided: Vec::new(),
            chosen: Vec::new(),
            problem: None,
            cached: old.as_ref().is_some_and(|held| held.cached),
            since: old.map_or(self.lists, |held| held.since),
        };

        for text in node.ranges {
            let (place, problem) = self.claim(text);
            let is_too_large = matches!(problem, Some(Problem::TooLarge(_)));
            if let Some(problem) = problem {
                held.problem.get_or_insert(problem);
            }
            match place {
                Some(place) if is_too_large => held.avoided.push(place),
                Some((set, span)) => {
                    if let Some(other) = self.other_holder(set, span) {
                        self.has_overlaps = true;
                        held.problem.get_or_insert(Problem::Overlap(text.clone(), other));
                    }
                    self.occupy(set, span);
                    held.places.push((set, span));
                }
                None => {}
            }
        }

        let problem = held.problem.clone();
        self.insert(node.name, held);

        problem
    }

    /// Records the UID of the Node of this name in the cache, if any. Returns whether CIDRs were released.
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

    /// Allocates CIDRs to a Node without any; the same ones again for the same Node. `None` if it already has some, though
    /// the cache does not show them yet.
    ///
    /// # Errors
    /// The first cluster CIDR without a free CIDR; then nothing was allocated.
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
            avoided: Vec::new(),
            chosen: ranges.clone(),
            problem: None,
            // Only Nodes in the cache get CIDRs.
            cached: true,
            since: self.lists,
        };

        self.insert(name, held);

        let skipped = taken.iter().map(|next| next.skipped).collect();
        Ok(Some(Reservation { ranges, skipped }))
    }

    /// Begins a full list of Nodes, which ends with [`Allocator::release_missing`].
    pub fn begin_list(&mut self) -> u64 {
        self.lists += 1;
        self.lists
    }

    /// Ends a full list: releases the CIDRs of Nodes that had them when it began and are not in it. Returns whether there
    /// were any.
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

    /// Whether there are allocations to Nodes that the cache has not shown. Only another list can show whether they exist.
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

    /// Whether its CIDRs are recorded already, or are those that were allocated to it.
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

    /// The place of a Node's range, and its problem.
    fn claim(&self, text: &str) -> (Option<(usize, Span)>, Option<Problem>) {
        let Ok(range) = text.parse::<IpNet>() else {
            return (None, Some(Problem::Unreadable(text.to_owned())));
        };
        let place = self.places(&range).into_iter().next();
        let Some((cidr_set, place)) = place.and_then(|place| Some((self.sets.get(place.0)?, place))) else {
            return (None, Some(Problem::OutOfRange(text.to_owned())));
        };

        let cluster = cidr_set.cluster();
        let shortest = pod_range::shortest_prefix(cidr_set.node_prefix(), cluster.prefix_len());
        let is_too_large = !cluster.contains(&range) || range.prefix_len() < shortest;
        (Some(place), is_too_large.then(|| Problem::TooLarge(text.to_owned())))
    }

    fn take_next(&mut self, set: usize) -> Option<super::cidr_set::Taken> {
        let held = self.holders.values().flatten();
        let avoided = held.flat_map(|held| &held.avoided).filter(|(of, _)| *of == set);
        let avoided: Vec<Span> = avoided.map(|(_, span)| *span).collect();
        let taken = self.sets.get_mut(set)?.take_next(&avoided)?;
        self.changes.get_mut(set)?.taken += 1;
        Some(taken)
    }

    fn occupy(&mut self, set: usize, span: Span) {
        if let (Some(cidr_set), Some(changes)) = (self.sets.get_mut(set), self.changes.get_mut(set)) {
            changes.taken += u64::from(cidr_set.occupy(span));
        }
    }

    /// Releases a span, except for the parts that others have.
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

    /// The name of a Node with a CIDR in this span. The search is slow, so check the bitmap first.
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

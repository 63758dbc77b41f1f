use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn allocator() -> Allocator {
    let sets = [("10.0.0.0/29", 32), ("fd00::/61", 64)];
    let sets = sets
        .iter()
        .map(|(cluster, prefix)| CidrSet::new(cluster.parse().unwrap(), *prefix).unwrap());
    Allocator::new(sets.collect(), &["10.0.0.2/31".parse().unwrap()])
}

fn ranges(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn node<'a>(name: &'a str, ranges: &'a [String]) -> NodeRanges<'a> {
    NodeRanges {
        name,
        uid: name,
        ranges,
    }
}

fn reserved(allocator: &mut Allocator, name: &str) -> Vec<String> {
    let reservation = allocator.reserve(name, name).unwrap().unwrap();
    reservation.ranges.iter().map(ToString::to_string).collect()
}

#[test]
fn a_node_gets_one_range_of_each_family_and_the_same_ones_again() {
    let mut allocator = allocator();
    assert_eq!(reserved(&mut allocator, "a"), ["10.0.0.0/32", "fd00::/64"]);
    assert_eq!(reserved(&mut allocator, "a"), ["10.0.0.0/32", "fd00::/64"]);
    assert_eq!(reserved(&mut allocator, "b"), ["10.0.0.1/32", "fd00:0:0:1::/64"]);
    assert_eq!(
        reserved(&mut allocator, "c"),
        ["10.0.0.4/32", "fd00:0:0:2::/64"],
        "the excluded ones are passed over"
    );
}

#[test]
fn ranges_out_of_the_clusters_or_of_two_nodes_are_told_once_and_stay_counted() {
    let mut allocator = allocator();
    let (foreign, first, second) = (
        ranges(&["10.9.0.0/32"]),
        ranges(&["10.0.0.0/32"]),
        ranges(&["10.0.0.0/32"]),
    );
    assert_eq!(
        allocator.observe(node("x", &foreign)),
        Some(Problem::OutOfRange("10.9.0.0/32".into()))
    );
    assert_eq!(allocator.observe(node("x", &foreign)), None);
    assert_eq!(
        allocator.observe(node("y", &ranges(&["ten"]))),
        Some(Problem::Unreadable("ten".into()))
    );
    assert_eq!(allocator.observe(node("a", &first)), None);
    assert_eq!(
        allocator.observe(node("b", &second)),
        Some(Problem::Overlap("10.0.0.0/32".into(), "a".into()))
    );
    let counts = [("CIDROutOfRange", 1), ("CIDROverlap", 1), ("CIDRUnreadable", 1)];
    assert_eq!(allocator.problems(), &BTreeMap::from(counts));
    allocator.cache_shows("a", Some("a"));
    assert!(allocator.cache_shows("a", None));
    assert_eq!(
        reserved(&mut allocator, "c")[0],
        "10.0.0.1/32",
        "b still has what a had"
    );
}

/// A kubelet chooses the range of the Node that it creates.
#[test]
fn a_node_cannot_exhaust_the_clusters_range() {
    let cidr_set = || vec![CidrSet::new("10.0.0.0/16".parse().unwrap(), 24).unwrap()];
    for chosen in ["10.0.0.0/16", "10.0.0.0/15", "0.0.0.0/0"] {
        let mut allocator = Allocator::new(cidr_set(), &[]);
        let problem = Some(Problem::TooLarge(chosen.into()));
        assert_eq!(allocator.observe(node("evil", &ranges(&[chosen]))), problem);
        assert_eq!(reserved(&mut allocator, "a"), ["10.0.0.0/24"], "{chosen}");
    }

    let mut small = Allocator::new(vec![CidrSet::new("10.0.0.0/20".parse().unwrap(), 24).unwrap()], &[]);
    small.observe(node("evil", &ranges(&["10.0.0.0/20"])));
    assert_eq!(reserved(&mut small, "a"), ["10.0.0.0/24"]);
}

/// The flag may have been changed.
#[test]
fn parts_of_a_large_range_are_allocated_last() {
    let mut allocator = Allocator::new(vec![CidrSet::new("10.0.0.0/16".parse().unwrap(), 24).unwrap()], &[]);
    let (large, half) = (ranges(&["10.0.16.0/20"]), ranges(&["10.0.0.0/17"]));
    assert_eq!(allocator.observe(node("large", &large)), None);
    assert_eq!(
        allocator.observe(node("half", &half)),
        Some(Problem::TooLarge("10.0.0.0/17".into()))
    );

    for at in 128..256 {
        assert_eq!(reserved(&mut allocator, &format!("n{at}")), [format!("10.0.{at}.0/24")]);
    }
    for at in (0..16).chain(32..128) {
        assert_eq!(reserved(&mut allocator, &format!("n{at}")), [format!("10.0.{at}.0/24")]);
    }
    assert!(allocator.reserve("late", "late").is_err(), "a /20 is occupied");
}

#[test]
fn a_node_that_only_a_list_knows_of_is_not_gone_because_the_cache_lacks_it() {
    let mut allocator = allocator();
    let list = allocator.begin_list();
    let has = ranges(&["10.0.0.0/32"]);
    allocator.observe(node("a", &has));
    allocator.release_missing(list, &HashSet::from(["a"]));
    assert!(!allocator.cache_shows("a", None), "the cache may be behind the list");
    assert_eq!(reserved(&mut allocator, "b")[0], "10.0.0.1/32");
    assert!(allocator.needs_list());
    let list = allocator.begin_list();
    assert!(allocator.release_missing(list, &HashSet::from(["b"])));
    assert!(!allocator.needs_list());
}

#[test]
fn when_a_family_has_none_left_nothing_is_taken_of_the_other() {
    let mut allocator = allocator();
    for name in ["a", "b", "c", "d", "e", "f"] {
        reserved(&mut allocator, name);
    }
    assert_eq!(
        allocator.reserve("g", "g"),
        Err(Exhausted("10.0.0.0/29".parse().unwrap()))
    );
    assert!(
        allocator.cache_shows("a", Some("another")),
        "a new Node of that name has not the old one's ranges"
    );
    assert_eq!(reserved(&mut allocator, "g")[0], "10.0.0.0/32");
    assert_eq!(allocator.sets()[0].taken(), 8);
    assert_eq!(allocator.sets()[1].taken(), 6);
}

/// The result of a write.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Answered,
    AnswerLost,
    Refused,
    /// Under way until [`Step::Arrive`].
    Slow,
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Delete(u8),
    /// The cache learns of a Node, or of its end.
    Watch(u8),
    Allocate(u8, Outcome),
    Arrive(bool),
    BeginList,
    EndList,
    /// Another process starts. Leases see to it that no write of the old one is under way any more.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Outcome::Answered),
        Just(Outcome::AnswerLost),
        Just(Outcome::Refused),
        Just(Outcome::Slow)
    ];
    prop_oneof![
        3 => (0..8u8).prop_map(Step::Add),
        3 => (0..8u8).prop_map(Step::Delete),
        6 => (0..8u8).prop_map(Step::Watch),
        8 => (0..8u8, outcome).prop_map(|(name, outcome)| Step::Allocate(name, outcome)),
        2 => any::<bool>().prop_map(Step::Arrive),
        1 => Just(Step::BeginList),
        2 => Just(Step::EndList),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Clone)]
struct Stored {
    uid: String,
    ranges: Vec<String>,
}

/// A server, a cache that is behind it, and the allocator between them.
struct World {
    server: BTreeMap<String, Stored>,
    cache: BTreeMap<String, Stored>,
    slow: Vec<(String, String, Vec<String>)>,
    list: Option<(u64, BTreeMap<String, Stored>)>,
    allocator: Allocator,
    made: u32,
}

impl World {
    fn act(&mut self, step: Step) {
        match step {
            Step::Add(name) => {
                self.made += 1;
                let uid = format!("uid-{}", self.made);
                let fresh = Stored {
                    uid,
                    ranges: Vec::new(),
                };
                self.server.entry(name.to_string()).or_insert(fresh);
            }
            Step::Delete(name) => drop(self.server.remove(&name.to_string())),
            Step::Watch(name) => self.watch(&name.to_string()),
            Step::Allocate(name, outcome) => self.allocate(&name.to_string(), outcome),
            Step::Arrive(arrives) => {
                if let Some((name, uid, ranges)) = self.slow.pop().filter(|_| arrives) {
                    self.write(&name, &uid, ranges);
                }
            }
            Step::BeginList => self.list = Some((self.allocator.begin_list(), self.server.clone())),
            Step::EndList => self.end_list(),
            Step::Restart => {
                for (name, uid, ranges) in std::mem::take(&mut self.slow) {
                    self.write(&name, &uid, ranges);
                }
                self.allocator = allocator();
                self.act(Step::BeginList);
                self.end_list();
                let names: Vec<String> = self.cache.keys().cloned().collect();
                names.iter().for_each(|name| self.show(name));
            }
        }
    }

    fn write(&mut self, name: &str, uid: &str, ranges: Vec<String>) {
        let same = |stored: &&mut Stored| stored.uid == uid && stored.ranges.is_empty();
        if let Some(stored) = self.server.get_mut(name).filter(same) {
            stored.ranges = ranges;
        }
    }

    fn watch(&mut self, name: &str) {
        match self.server.get(name) {
            Some(stored) => drop(self.cache.insert(name.to_owned(), stored.clone())),
            None => drop(self.cache.remove(name)),
        }
        self.show(name);
    }

    fn show(&mut self, name: &str) {
        let cached = self.cache.get(name);
        self.allocator
            .cache_shows(name, cached.map(|stored| stored.uid.as_str()));
        if let Some(stored) = cached {
            let (uid, ranges) = (&stored.uid, &stored.ranges);
            self.allocator.observe(NodeRanges { name, uid, ranges });
        }
    }

    fn allocate(&mut self, name: &str, outcome: Outcome) {
        let Some(cached) = self.cache.get(name).filter(|cached| cached.ranges.is_empty()).cloned() else {
            return;
        };
        let Ok(Some(reservation)) = self.allocator.reserve(name, &cached.uid) else {
            return;
        };
        let ranges: Vec<String> = reservation.ranges.iter().map(ToString::to_string).collect();
        match outcome {
            Outcome::Refused => {}
            Outcome::Slow => self.slow.push((name.to_owned(), cached.uid, ranges)),
            Outcome::AnswerLost => self.write(name, &cached.uid, ranges),
            Outcome::Answered => {
                self.write(name, &cached.uid, ranges);
                if let Some(stored) = self.server.get(name).filter(|stored| stored.uid == cached.uid) {
                    let (uid, ranges) = (&stored.uid, &stored.ranges);
                    self.allocator.observe(NodeRanges { name, uid, ranges });
                }
            }
        }
    }

    fn end_list(&mut self) {
        let Some((list, listed)) = self.list.take() else {
            return;
        };
        for (name, stored) in &listed {
            let (uid, ranges) = (&stored.uid, &stored.ranges);
            self.allocator.observe(NodeRanges { name, uid, ranges });
        }
        let uids = listed.values().map(|stored| stored.uid.as_str()).collect();
        self.allocator.release_missing(list, &uids);
    }

    fn check(&self) {
        let mut seen = HashSet::from(["10.0.0.2/32".to_owned(), "10.0.0.3/32".to_owned()]);
        for range in self.server.values().flat_map(|stored| &stored.ranges) {
            assert!(
                seen.insert(range.clone()),
                "{range} is given twice or excluded: {:?}",
                self.server
            );
        }
    }

    /// All writes arrive, the cache catches up, one more list is made: then everybody gets ranges, and nothing leaks.
    fn settle(&mut self) {
        while !self.slow.is_empty() {
            self.act(Step::Arrive(true));
        }
        let full = self.server.len() > 6;
        for round in 0..2 {
            (0..8).for_each(|name| self.watch(&name.to_string()));
            self.act(Step::BeginList);
            self.end_list();
            if round == 0 {
                (0..8).for_each(|name| self.allocate(&name.to_string(), Outcome::Answered));
            }
        }
        self.check();
        if !full {
            assert!(
                self.server.values().all(|stored| stored.ranges.len() == 2),
                "{:?}",
                self.server
            );
        }
        let held = self.server.values().filter(|stored| !stored.ranges.is_empty()).count();
        assert_eq!(
            self.allocator.sets()[0].taken() as usize,
            2 + held,
            "{:?}",
            self.allocator
        );
        assert_eq!(self.allocator.sets()[1].taken() as usize, held);
        assert!(!self.allocator.needs_list());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_range_is_ever_given_to_two_nodes(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World {
            server: BTreeMap::new(),
            cache: BTreeMap::new(),
            slow: Vec::new(),
            list: None,
            allocator: allocator(),
            made: 0,
        };
        world.act(Step::Restart);
        for step in steps {
            world.act(step);
            world.check();
        }
        world.settle();
    }
}

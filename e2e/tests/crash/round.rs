//! A change without a kill, which tells how many writes it has and how it ends; then the same with a kill at each.

use std::fmt;

use outrigger_aws_sim::{Call, FaultHandle, When};
use outrigger_e2e::single_cluster::differences;
use serde_json::Value;

use crate::change::{Change, Edit};
use crate::fixture::{Fixture, LIMIT};

/// Of so many states [`Depth::SomeStates`] takes one.
pub const OUT_OF: usize = 3;

/// The fate of the write at which the manager is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// AWS never sees it.
    NeverSent,
    /// AWS does it, and the manager never hears.
    AnswerLost,
    /// It reaches AWS late: after the next manager has looked, and decided to write the same.
    Late,
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Each state that a kill can leave at AWS once: what the write before did, is what this one finds undone.
    EachState,
    /// One of [`OUT_OF`] of these states, from the state of this number on. Where there are fewer, the last one.
    SomeStates(usize),
    /// Every moment of every write.
    EveryMoment,
}

impl Depth {
    fn kills(self, writes: usize) -> Vec<Kill> {
        let all = |nth| [Moment::NeverSent, Moment::AnswerLost, Moment::Late].map(|moment| Kill { nth, moment });
        let kills = (1..=writes).flat_map(all);
        let leaves_a_state =
            |kill: &Kill| kill.moment == Moment::AnswerLost || (kill.nth == 1 && kill.moment == Moment::NeverSent);

        match self {
            Self::EveryMoment => kills.collect(),
            Self::EachState => kills.filter(leaves_a_state).collect(),
            Self::SomeStates(from) => {
                let states: Vec<Kill> = kills.filter(leaves_a_state).collect();
                let from = from.min(states.len().saturating_sub(1));
                states.into_iter().skip(from).step_by(OUT_OF).collect()
            }
        }
    }
}

/// A kill at a write, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kill {
    nth: usize,
    moment: Moment,
}

/// One way of a change, as it goes when nobody disturbs it.
struct Leg<'a> {
    what: String,
    is_way_back: bool,
    edit: &'a Edit,
    writes: Vec<String>,
    end: Value,
}

/// Counts of a campaign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes of undisturbed changes.
    pub writes: usize,
    pub kills: usize,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.kills += other.kills;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} writes, {} kills", self.writes, self.kills)
    }
}

/// Goes there and back without a kill, and then as often as there are kills. Each way ends as it does undisturbed.
pub async fn there_and_back(fixture: &mut Fixture, change: &Change, depth: Depth) -> Tally {
    let before = fixture.state().await;
    let there = undisturbed(fixture, &format!("{}, there", change.name), &change.there).await;
    assert_ne!(there.end, before, "{}: it changes nothing", there.what);
    let mut back = undisturbed(fixture, &format!("{}, back", change.name), &change.back).await;
    back.is_way_back = true;
    fixture.forget_given_group().await;
    back.end = fixture.state().await;
    let lines = differences(&before, &back.end).join("\n");
    assert!(lines.is_empty(), "{}: something is left or lost: {lines}", back.what);
    let (kills_there, kills_back) = (depth.kills(there.writes.len()), depth.kills(back.writes.len()));
    for turn in 0..kills_there.len().max(kills_back.len()) {
        go(fixture, &there, kills_there.get(turn)).await;
        go(fixture, &back, kills_back.get(turn)).await;
    }
    Tally {
        writes: there.writes.len() + back.writes.len(),
        kills: kills_there.len() + kills_back.len(),
    }
}

/// A Service whose creation is cut off after each of its writes, and which is deleted before the next manager starts.
pub async fn cut_off_and_deleted(fixture: &mut Fixture, change: &Change) -> Tally {
    let before = fixture.state().await;
    let there = undisturbed(fixture, "a Service that is cut off", &change.there).await;
    let mark = fixture.mark();
    fixture.edit(&change.back).await;
    fixture.reach(&before, mark, "deleted").await;
    for nth in 1..=there.writes.len() {
        let kill = Kill {
            nth,
            moment: Moment::AnswerLost,
        };
        let held = killed(fixture, &there, kill).await;
        held.release();
        fixture.edit(&change.back).await;
        let mark = fixture.mark();
        fixture.restart_manager();
        let what = format!("{} at {kill:?}, then deleted", there.what);
        fixture.reach(&before, mark, &what).await;
    }
    Tally {
        writes: 0,
        kills: there.writes.len(),
    }
}

async fn undisturbed<'a>(fixture: &mut Fixture, what: &str, edit: &'a Edit) -> Leg<'a> {
    let (mark, events) = (fixture.mark(), fixture.last_events().await);
    fixture.edit(edit).await;
    fixture.quiet(mark, events).await;
    let calls = fixture.calls_since(mark);
    let writes: Vec<&Call> = calls.iter().filter(|call| call.is_write()).collect();
    for call in &writes {
        assert!(call.succeeded(), "{what}: {call}");
    }
    let writes = writes.iter().map(|call| call.action.clone()).collect();
    println!("{what}: {writes:?}");
    Leg {
        what: what.to_owned(),
        is_way_back: false,
        edit,
        writes,
        end: fixture.state().await,
    }
}

async fn go(fixture: &mut Fixture, leg: &Leg<'_>, kill: Option<&Kill>) {
    let what = match kill {
        Some(kill) => format!("{}, killed at {kill:?}", leg.what),
        None => leg.what.clone(),
    };
    let mark = fixture.mark();
    match kill {
        None => fixture.edit(leg.edit).await,
        Some(kill) => cut_off(fixture, leg, *kill).await,
    }
    if leg.is_way_back {
        fixture.forget_given_group().await;
    }
    fixture.reach(&leg.end, mark, &what).await;
    if kill.is_none_or(|kill| kill.moment != Moment::Late) {
        made_once(fixture, leg, mark, &what);
    }
}

/// Nothing is created twice: AWS carried out as many creations as in the undisturbed change.
fn made_once(fixture: &Fixture, leg: &Leg<'_>, mark: u64, what: &str) {
    let calls = fixture.calls_since(mark);
    let done = |call: &&Call| {
        call.outcome
            .as_ref()
            .is_some_and(|outcome| outcome.forwarded && outcome.error_code.is_none())
    };
    let creations = |action: &&String| action.starts_with("Create");
    let mut made: Vec<&String> = calls
        .iter()
        .filter(done)
        .map(|call| &call.action)
        .filter(creations)
        .collect();
    let mut expected: Vec<&String> = leg.writes.iter().filter(creations).collect();
    made.sort();
    expected.sort();
    assert_eq!(made, expected, "{what}");
}

/// Makes the change, kills the manager at a write, and starts the next.
async fn cut_off(fixture: &mut Fixture, leg: &Leg<'_>, kill: Kill) {
    let held = killed(fixture, leg, kill).await;
    match kill.moment {
        Moment::NeverSent => held.discard(),
        Moment::AnswerLost => held.release(),
        Moment::Late => return late(fixture, &leg.writes[kill.nth - 1], &held).await,
    }
    fixture.restart_manager();
}

/// Makes the change and kills the manager at a write, which is still held.
async fn killed(fixture: &mut Fixture, leg: &Leg<'_>, kill: Kill) -> FaultHandle {
    let when = match kill.moment {
        Moment::NeverSent | Moment::Late => When::BeforeForwarding,
        Moment::AnswerLost => When::AfterForwarding,
    };
    let held = fixture.hold_write(kill.nth, when);
    let mark = fixture.mark();
    fixture.edit(leg.edit).await;
    assert!(held.reached(1, LIMIT).await, "{}: no write {}", leg.what, kill.nth);
    let calls = fixture.calls_since(mark);
    let written: Vec<&String> = calls
        .iter()
        .filter(|call| call.is_write())
        .map(|call| &call.action)
        .collect();
    let expected: Vec<&String> = leg.writes[..kill.nth].iter().collect();
    assert_eq!(written, expected, "{}: other writes than undisturbed", leg.what);
    fixture.kill_manager().await;
    held
}

/// The dead manager's write reaches AWS between the next one's look and its own write.
async fn late(fixture: &mut Fixture, action: &str, held: &FaultHandle) {
    let mark = fixture.mark();
    fixture.restart_manager();
    let next = fixture.hold_next(action);
    assert!(
        next.reached(1, LIMIT).await,
        "{action} was not sent by the next manager"
    );
    let pending = fixture
        .calls_since(0)
        .into_iter()
        .rfind(|call| call.seq < mark && call.action == action);
    let seq = pending.expect("the dead manager's write").seq;
    held.release();
    let arrived = |calls: &[Call]| {
        let call = calls.iter().find(|call| call.seq == seq)?;
        call.outcome.as_ref().map(|outcome| outcome.forwarded)
    };
    assert!(fixture.wait_for("late write", arrived).await, "{action} reached AWS");
    next.release();
}

#[test]
fn the_parts_together_are_each_state() {
    let each = Depth::EachState.kills(7);
    assert_eq!(each.len(), 8);

    let parts: Vec<Vec<Kill>> = (0..OUT_OF).map(|from| Depth::SomeStates(from).kills(7)).collect();
    assert!(
        each.iter()
            .all(|kill| parts.iter().flatten().any(|other| other == kill))
    );
    assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), each.len());

    // A single write has two states, and one of them is always taken.
    assert!((0..OUT_OF).all(|from| Depth::SomeStates(from).kills(1).len() == 1));
}

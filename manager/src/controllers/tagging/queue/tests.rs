use super::*;

fn id(number: u32) -> InstanceId {
    InstanceId::new(format!("i-{number:x}"))
}

fn see(queue: &mut WorkQueue, name: &str, instance: &InstanceId, labelled: bool) {
    let instance = Some(instance);
    queue.observe(ObservedNode {
        name,
        instance,
        labelled,
    });
}

fn take(queue: &mut WorkQueue) -> Option<(Action, Vec<String>)> {
    let batch = queue.take(50, Instant::now())?;
    let ids = batch.instances.into_iter().map(String::from).collect();
    Some((batch.action, ids))
}

#[test]
fn a_new_node_is_tagged_once_and_a_labelled_one_never() {
    let mut queue = WorkQueue::default();
    see(&mut queue, "a", &id(1), false);
    see(&mut queue, "a", &id(1), false);
    see(&mut queue, "b", &id(2), true);
    assert_eq!(take(&mut queue), Some((Action::Tag, vec!["i-1".into()])));
    see(&mut queue, "a", &id(1), false);
    assert_eq!(take(&mut queue), None, "it is under way");
    queue.done(&id(1), Action::Tag);
    see(&mut queue, "a", &id(1), true);
    assert_eq!(take(&mut queue), None);
}

#[test]
fn a_node_that_goes_takes_the_tags_off_and_one_that_returns_keeps_them() {
    let mut queue = WorkQueue::default();
    see(&mut queue, "a", &id(1), true);
    queue.gone("a");
    see(&mut queue, "a", &id(1), false);
    assert_eq!(take(&mut queue), Some((Action::Tag, vec!["i-1".into()])));
    queue.gone("a");
    assert_eq!(take(&mut queue), None, "not while it is being tagged");
    queue.done(&id(1), Action::Tag);
    assert_eq!(take(&mut queue), Some((Action::Untag, vec!["i-1".into()])));
    queue.done(&id(1), Action::Untag);
    assert_eq!((take(&mut queue), queue.settled()), (None, Vec::new()));
}

#[test]
fn an_instance_with_another_node_keeps_its_tags() {
    let mut queue = WorkQueue::default();
    see(&mut queue, "old-name", &id(1), true);
    see(&mut queue, "new-name", &id(1), true);
    queue.gone("old-name");
    assert_eq!(take(&mut queue), None);
    queue.gone("new-name");
    assert_eq!(take(&mut queue).map(|(action, _)| action), Some(Action::Untag));
}

#[test]
fn a_node_of_the_same_name_on_another_instance_moves_the_tags() {
    let mut queue = WorkQueue::default();
    see(&mut queue, "a", &id(1), true);
    see(&mut queue, "a", &id(2), false);
    assert_eq!(take(&mut queue), Some((Action::Untag, vec!["i-1".into()])));
    assert_eq!(take(&mut queue), Some((Action::Tag, vec!["i-2".into()])));
}

#[test]
fn batches_hold_one_kind_and_no_more_than_asked_for() {
    let mut queue = WorkQueue::default();
    for number in 0..5 {
        see(&mut queue, &format!("n{number}"), &id(number), false);
    }
    see(&mut queue, "gone", &id(9), true);
    queue.gone("gone");
    let now = Instant::now();
    assert_eq!(queue.take(3, now).map(|batch| batch.instances.len()), Some(3));
    assert_eq!(queue.take(3, now).map(|batch| batch.instances.len()), Some(2));
    assert_eq!(take(&mut queue), Some((Action::Untag, vec!["i-9".into()])));
}

#[test]
fn failures_wait_longer_each_time_and_what_is_missing_is_given_up_in_the_end() {
    let mut queue = WorkQueue::default();
    let now = Instant::now();
    see(&mut queue, "a", &id(1), false);
    assert!(queue.take(1, now).is_some());
    assert_eq!(queue.failed(&id(1), now), 1);
    assert!(queue.take(1, now).is_none());
    assert!(queue.take(1, now + FIRST_BACKOFF).is_some());
    queue.missing(&id(1), now + MAX_BACKOFF);
    see(&mut queue, "a", &id(1), false);
    assert!(
        queue.take(1, now + MAX_BACKOFF).is_none(),
        "EC2 is asked whether it is there, not to tag it"
    );
    assert_eq!(queue.give_up(now), Vec::new());
    assert_eq!(queue.give_up(now + MAX_BACKOFF), [id(1)]);
    see(&mut queue, "a", &id(1), false);
    assert!(queue.take(1, now + MAX_BACKOFF).is_none());
    queue.repair(&id(1));
    assert!(queue.take(1, now).is_some(), "it appeared against all hope");
    queue.abandoned(&id(1));
    queue.gone("a");
    assert!(
        queue.take(1, now + MAX_BACKOFF).is_none(),
        "what was never tagged is not untagged"
    );
}

#[test]
fn lost_tags_are_set_again_though_the_label_says_that_they_are_there() {
    let mut queue = WorkQueue::default();
    see(&mut queue, "a", &id(1), true);
    assert_eq!(queue.settled(), [id(1)]);
    queue.repair(&id(1));
    see(&mut queue, "a", &id(1), true);
    assert_eq!(take(&mut queue), Some((Action::Tag, vec!["i-1".into()])));
}

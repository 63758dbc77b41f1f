use super::*;

fn id(number: u32) -> InstanceId {
    InstanceId::new(format!("i-{number:x}"))
}

fn see(book: &mut Book, name: &str, instance: &InstanceId, labelled: bool) {
    let instance = Some(instance);
    book.seen(Seen {
        name,
        instance,
        labelled,
    });
}

fn take(book: &mut Book) -> Option<(Action, Vec<String>)> {
    let batch = book.take(50, Instant::now())?;
    let ids = batch.instances.into_iter().map(String::from).collect();
    Some((batch.action, ids))
}

#[test]
fn a_new_node_is_tagged_once_and_a_labelled_one_never() {
    let mut book = Book::default();
    see(&mut book, "a", &id(1), false);
    see(&mut book, "a", &id(1), false);
    see(&mut book, "b", &id(2), true);
    assert_eq!(take(&mut book), Some((Action::Tag, vec!["i-1".into()])));
    see(&mut book, "a", &id(1), false);
    assert_eq!(take(&mut book), None, "it is under way");
    book.done(&id(1), Action::Tag);
    see(&mut book, "a", &id(1), true);
    assert_eq!(take(&mut book), None);
}

#[test]
fn a_node_that_goes_takes_the_tags_off_and_one_that_returns_keeps_them() {
    let mut book = Book::default();
    see(&mut book, "a", &id(1), true);
    book.gone("a");
    see(&mut book, "a", &id(1), false);
    assert_eq!(take(&mut book), Some((Action::Tag, vec!["i-1".into()])));
    book.gone("a");
    assert_eq!(take(&mut book), None, "not while it is being tagged");
    book.done(&id(1), Action::Tag);
    assert_eq!(take(&mut book), Some((Action::Untag, vec!["i-1".into()])));
    book.done(&id(1), Action::Untag);
    assert_eq!((take(&mut book), book.settled()), (None, Vec::new()));
}

#[test]
fn an_instance_with_another_node_keeps_its_tags() {
    let mut book = Book::default();
    see(&mut book, "old-name", &id(1), true);
    see(&mut book, "new-name", &id(1), true);
    book.gone("old-name");
    assert_eq!(take(&mut book), None);
    book.gone("new-name");
    assert_eq!(take(&mut book).map(|(action, _)| action), Some(Action::Untag));
}

#[test]
fn a_node_of_the_same_name_on_another_instance_moves_the_tags() {
    let mut book = Book::default();
    see(&mut book, "a", &id(1), true);
    see(&mut book, "a", &id(2), false);
    assert_eq!(take(&mut book), Some((Action::Untag, vec!["i-1".into()])));
    assert_eq!(take(&mut book), Some((Action::Tag, vec!["i-2".into()])));
}

#[test]
fn batches_hold_one_kind_and_no_more_than_asked_for() {
    let mut book = Book::default();
    for number in 0..5 {
        see(&mut book, &format!("n{number}"), &id(number), false);
    }
    see(&mut book, "gone", &id(9), true);
    book.gone("gone");
    let now = Instant::now();
    assert_eq!(book.take(3, now).map(|batch| batch.instances.len()), Some(3));
    assert_eq!(book.take(3, now).map(|batch| batch.instances.len()), Some(2));
    assert_eq!(take(&mut book), Some((Action::Untag, vec!["i-9".into()])));
}

#[test]
fn failures_wait_longer_each_time_and_what_is_missing_is_given_up_in_the_end() {
    let mut book = Book::default();
    let now = Instant::now();
    see(&mut book, "a", &id(1), false);
    assert!(book.take(1, now).is_some());
    assert_eq!(book.failed(&id(1), now), 1);
    assert!(book.take(1, now).is_none());
    assert!(book.take(1, now + FIRST).is_some());
    book.missing(&id(1), now + LONGEST);
    see(&mut book, "a", &id(1), false);
    assert!(
        book.take(1, now + LONGEST).is_none(),
        "EC2 is asked whether it is there, not to tag it"
    );
    assert_eq!(book.give_up(now), Vec::new());
    assert_eq!(book.give_up(now + LONGEST), [id(1)]);
    see(&mut book, "a", &id(1), false);
    assert!(book.take(1, now + LONGEST).is_none());
    book.repair(&id(1));
    assert!(book.take(1, now).is_some(), "it appeared against all hope");
    book.hopeless(&id(1));
    book.gone("a");
    assert!(
        book.take(1, now + LONGEST).is_none(),
        "what was never tagged is not untagged"
    );
}

#[test]
fn lost_tags_are_set_again_though_the_label_says_that_they_are_there() {
    let mut book = Book::default();
    see(&mut book, "a", &id(1), true);
    assert_eq!(book.settled(), [id(1)]);
    book.repair(&id(1));
    see(&mut book, "a", &id(1), true);
    assert_eq!(take(&mut book), Some((Action::Tag, vec!["i-1".into()])));
}

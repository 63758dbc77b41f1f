//! Argument lists that are no container's: with dashes, without, and as names and values.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::command_line::{CommandLine, Flag, Unreadable};
use proptest::prelude::*;

const PROVIDER: Flag = Flag::text("cloud-provider");
const CONFIG: Flag = Flag::text("cloud-config");
const GATES: Flag = Flag::text("feature-gates");
const MIGRATION: Flag = Flag::boolean("enable-leader-migration");

fn own(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn bare(items: &[&str]) -> CommandLine {
    CommandLine::bare(own(items)).unwrap()
}

fn dashed(items: &[&str]) -> CommandLine {
    CommandLine::dashed(own(items)).unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> CommandLine {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    CommandLine::of_pairs(pairs.iter().map(own).collect::<Vec<_>>()).unwrap()
}

fn items(line: &CommandLine) -> Vec<&str> {
    line.items().unwrap().iter().map(String::as_str).collect()
}

#[test]
fn flags_without_dashes_are_read_with_and_without_them() {
    for list in [
        &["cloud-provider=aws"][..],
        &["--cloud-provider=aws"],
        &["cloud_provider=aws", "v=2"],
        &["cloud-provider=gce", "cloud-provider=aws"],
        &["profiling", "--", "cloud-provider+=aws"],
    ] {
        assert_eq!(bare(list).value(PROVIDER), Ok(Some("aws".to_owned())), "{list:?}");
    }
    assert_eq!(bare(&["enable-leader-migration"]).boolean(MIGRATION), Ok(Some(true)));
    assert_eq!(
        bare(&["enable-leader-migration=false"]).boolean(MIGRATION),
        Ok(Some(false))
    );
    assert_eq!(
        bare(&["feature-gates=A=true", "feature-gates+=B=true"]).values(GATES),
        Ok(own(&["A=true", "B=true"]))
    );
    assert_eq!(
        bare(&["-", "--", "", "=x", "cloud-provider-x=1"]).value(PROVIDER),
        Ok(None)
    );
}

#[test]
fn an_item_of_a_list_without_dashes_is_never_another_ones_value() {
    let mut line = bare(&["cloud-provider", "aws"]);
    let error = Unreadable::NoValue {
        flag: "cloud-provider".to_owned(),
    };
    assert_eq!(line.value(PROVIDER), Err(error.clone()));
    assert_eq!(line.set(PROVIDER, "external"), Err(error));
    let mut line = bare(&["cloud-provider-=aws"]);
    let error = Unreadable::Prepended {
        flag: "cloud-provider".to_owned(),
        item: "cloud-provider-=aws".to_owned(),
    };
    assert_eq!(line.set(PROVIDER, "external"), Err(error));
    assert_eq!(items(&line), ["cloud-provider-=aws"]);
}

#[test]
fn a_list_without_dashes_keeps_its_style() {
    for (before, after) in [
        (&[][..], &["cloud-provider=external", "enable-leader-migration"][..]),
        (
            &["cloud-provider=aws", "cloud-config=/c", "v=2"],
            &["cloud-provider=external", "v=2", "enable-leader-migration"],
        ),
        (
            &["--v=2", "--cloud-config=/c"],
            &["--v=2", "--cloud-provider=external", "--enable-leader-migration"],
        ),
        (
            &["--v=2", "profiling=false"],
            &[
                "--v=2",
                "profiling=false",
                "cloud-provider=external",
                "enable-leader-migration",
            ],
        ),
        (
            &["--cloud-provider=aws", "enable-leader-migration=false"],
            &["--cloud-provider=external", "enable-leader-migration=true"],
        ),
    ] {
        let mut line = bare(before);
        assert!(change(&mut line));
        assert_eq!(items(&line), after, "{before:?}");
    }
}

#[test]
fn a_list_with_dashes_never_gets_two_tokens() {
    for (before, after) in [
        (
            &[][..],
            &["--cloud-provider=external", "--enable-leader-migration=true"][..],
        ),
        (
            &["--v", "2", "--cloud-provider", "aws"],
            &[
                "--v",
                "2",
                "--cloud-provider=external",
                "--enable-leader-migration=true",
            ],
        ),
        (
            &["--v", "2"],
            &[
                "--v",
                "2",
                "--cloud-provider=external",
                "--enable-leader-migration=true",
            ],
        ),
        (
            &["-cloud-provider=aws", "--cloud-config", "/c"],
            &["-cloud-provider=external", "--enable-leader-migration=true"],
        ),
        (
            &["cloud-provider=aws"],
            &[
                "cloud-provider=aws",
                "--cloud-provider=external",
                "--enable-leader-migration=true",
            ],
        ),
    ] {
        let mut line = dashed(before);
        assert!(change(&mut line));
        assert_eq!(items(&line), after, "{before:?}");
    }
}

#[test]
fn pairs_have_no_dashes_and_always_a_value() {
    let mut line = pairs(&[("cloud-provider", "aws"), ("v", "2"), ("cloud-config", "/c")]);
    assert!(change(&mut line));
    let expected = vec![
        ("cloud-provider", "external"),
        ("v", "2"),
        ("enable-leader-migration", "true"),
    ];
    assert_eq!(line.pairs(), Some(expected));
    let repeated = pairs(&[("cloud-provider", "a"), ("cloud_provider", "b=c")]);
    assert_eq!(repeated.value(PROVIDER), Ok(Some("b=c".to_owned())));
    assert_eq!(
        repeated.pairs().unwrap(),
        [("cloud-provider", "a"), ("cloud_provider", "b=c")]
    );
    assert_eq!(
        pairs(&[("cloud-provider", "")]).value(PROVIDER),
        Ok(Some(String::new()))
    );
}

#[test]
fn names_that_no_flag_can_have_are_reported() {
    for name in ["", "a=b"] {
        let error = CommandLine::of_pairs(vec![(name.to_owned(), "x".to_owned())]).unwrap_err();
        assert_eq!(error, Unreadable::NotAName { name: name.to_owned() });
    }
}

#[test]
fn a_list_that_is_not_there_is_made_and_goes_again() {
    for empty in [
        CommandLine::bare(None),
        CommandLine::dashed(None),
        CommandLine::of_pairs(None),
    ] {
        let mut line = empty.unwrap();
        assert_eq!(line.value(PROVIDER), Ok(None));
        line.set(PROVIDER, "external").unwrap();
        assert_eq!(line.value(PROVIDER), Ok(Some("external".to_owned())));
        let edits = line.edits().to_vec();
        assert!(line.undo(&edits));
        assert_eq!(line.items(), None);
    }
}

fn change(line: &mut CommandLine) -> bool {
    line.set(PROVIDER, "external").is_ok() && line.remove(CONFIG).is_ok() && line.set(MIGRATION, "true").is_ok()
}

fn item() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("cloud-provider=aws".to_owned()),
        Just("--cloud_provider=aws".to_owned()),
        Just("cloud-provider+=aws".to_owned()),
        Just("--cloud-config".to_owned()),
        Just("cloud-config=/a".to_owned()),
        Just("--".to_owned()),
        Just("-v=2".to_owned()),
        "(--)?enable-leader-migration(=false|=true)?",
        "(--)?[a-z]{1,4}(=[a-z]{0,3})?",
    ]
}

/// A line of every shape.
fn list() -> impl Strategy<Value = CommandLine> {
    let items = || proptest::option::of(proptest::collection::vec(item(), 0..8));
    let pair = |item: String| {
        let (name, value) = item.split_once('=').unwrap_or((&item, "true"));
        (name.to_owned(), value.to_owned())
    };
    prop_oneof![
        items().prop_map(|items| CommandLine::bare(items).unwrap()),
        items().prop_map(|items| CommandLine::dashed(items).unwrap()),
        items().prop_map(move |items| {
            CommandLine::of_pairs(items.map(|items| items.into_iter().map(pair).collect::<Vec<_>>())).unwrap()
        }),
    ]
}

proptest! {
    #[test]
    fn changing_twice_is_changing_once_and_undoing_gives_the_original(original in list()) {
        let mut once = original.clone();
        if change(&mut once) {
            prop_assert_eq!(once.value(PROVIDER), Ok(Some("external".to_owned())));
            prop_assert_eq!(once.value(CONFIG), Ok(None));
            prop_assert_eq!(once.boolean(MIGRATION), Ok(Some(true)));
            let mut twice = once.clone();
            prop_assert!(change(&mut twice));
            prop_assert_eq!(twice.items(), once.items());
        }
        let edits = once.edits().to_vec();
        prop_assert!(once.undo(&edits));
        prop_assert_eq!(once.items(), original.items());
        prop_assert_eq!(once.pairs(), original.pairs());
    }
}

//! YAML texts are edited line by line, and everything else in them stays as it is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::work::WorkBudget;
use outrigger_shared::yaml_text::{LineEdit, MAX_BYTES, MAX_DEPTH, Refusal, YamlText, undo};
use proptest::prelude::*;
use serde_json::{Value, json};

enum Step<'a> {
    Set(&'a [&'a str], &'a str),
    Insert(&'a [&'a str], Value),
    Push(&'a [&'a str], Value),
    Item(&'a [&'a str], usize, Value),
    Remove(&'a [&'a str]),
}
use Step::{Insert, Item, Push, Remove, Set};

fn apply(text: &mut YamlText, step: &Step<'_>) -> Result<(), Refusal> {
    match step {
        Set(path, new) => text.set(0, path, new),
        Insert(path, new) => text.insert(0, path, new),
        Push(path, new) => text.push(0, path, new),
        Item(path, index, new) => text.insert_item(0, path, *index, new),
        Remove(path) => text.remove(0, path),
    }
}

#[track_caller]
fn becomes(before: &str, step: &Step<'_>, after: &str) {
    let mut text = YamlText::parse(before).unwrap();
    apply(&mut text, step).unwrap_or_else(|refusal| panic!("{before:?}: {refusal}"));
    assert_eq!(text.text(), after);
    let edits = serde_json::to_string(text.edits()).unwrap();
    let edits: Vec<LineEdit> = serde_json::from_str(&edits).unwrap();
    assert_eq!(undo(after, &edits).as_deref(), Some(before));
}

#[track_caller]
fn is_refused(before: &str, step: &Step<'_>, says: &str) {
    let mut text = YamlText::parse(before).unwrap();
    let refusal = apply(&mut text, step).unwrap_err().to_string();
    assert!(refusal.contains(says), "{refusal}");
    assert_eq!((text.text(), text.edits().len()), (before, 0));
}

#[test]
fn scalars_change_in_their_place_and_their_quoting() {
    let path: &[&str] = &["a", "b"];
    for (before, after) in [
        (
            "a:\n  # why\n  b: aws   # c\n  d: 1\n",
            "a:\n  # why\n  b: external   # c\n  d: 1\n",
        ),
        ("a:\n    b: \"aws\"\n", "a:\n    b: \"external\"\n"),
        ("a:\n  b: 'aws'", "a:\n  b: 'external'"),
        ("a: {c: 1, b: aws}  # x\n", "a: {c: 1, b: external}  # x\n"),
        ("{a: {c: 1,\n b: aws}}\n", "{a: {c: 1,\n b: external}}\n"),
        ("a:\r\n  b: aws\r\nz: 1\r\n", "a:\r\n  b: external\r\nz: 1\r\n"),
        (
            "a:\n  b:   # nothing\n  c: 1\n",
            "a:\n  b: external   # nothing\n  c: 1\n",
        ),
        ("a:\n  b: ~\n", "a:\n  b: external\n"),
        ("a:\n  ? b\n  : aws\n", "a:\n  ? b\n  : external\n"),
        ("a: &x\n  b: aws\n", "a: &x\n  b: external\n"),
    ] {
        becomes(before, &Set(path, "external"), after);
    }
    for (new, written) in [
        ("true", "\"true\""),
        ("1", "\"1\""),
        ("yes", "\"yes\""),
        ("a: b", "\"a: b\""),
        ("--f=v", "--f=v"),
        ("", "\"\""),
        ("a,b", "\"a,b\""),
        ("é\n", "\"é\\n\""),
    ] {
        becomes("a:\n  b: aws\n", &Set(path, new), &format!("a:\n  b: {written}\n"));
    }
}

#[test]
fn entries_come_at_the_end_of_their_map() {
    let entry = || Insert(&["m", "x"], json!("true"));
    for (before, after) in [
        (
            "m:\n  a: b # c\n# end\nz: 1\n",
            "m:\n  a: b # c\n  x: \"true\"\n# end\nz: 1\n",
        ),
        ("m:\n  a:\n  - b\n", "m:\n  a:\n  - b\n  x: \"true\"\n"),
        (
            "m:\n  a: |\n    text\n\nz: 1\n",
            "m:\n  a: |\n    text\n  x: \"true\"\n\nz: 1\n",
        ),
        ("m:\n  a: b", "m:\n  a: b\n  x: \"true\""),
        ("m:\n  a: 'b'\n", "m:\n  a: 'b'\n  x: 'true'\n"),
        ("m: {}\n", "m: {x: \"true\"}\n"),
        ("m: { a: b }\n", "m: { a: b, x: \"true\" }\n"),
        ("m: {a: b,\n  c: d}\n", "m: {a: b,\n  c: d, x: \"true\"}\n"),
        ("m:\nz: 1\n", "m: {x: \"true\"}\nz: 1\n"),
        ("z: 1\n", "z: 1\nm:\n  x: \"true\"\n"),
        ("m:\r\n  a: b\r\nz: 1\r\n", "m:\r\n  a: b\r\n  x: \"true\"\r\nz: 1\r\n"),
    ] {
        becomes(before, &entry(), after);
    }
    becomes(
        "a: 1\n",
        &Insert(&["l", "m"], json!([{"name": "flag", "value": "v"}, "--f=true"])),
        "a: 1\nl:\n  m:\n  - name: flag\n    value: v\n  - --f=true\n",
    );
}

#[test]
fn items_come_at_the_end_of_their_list() {
    let item = || Push(&["l"], json!("--f=true"));
    for (before, after) in [
        ("l:\n- a # c\nz: 1\n", "l:\n- a # c\n- --f=true\nz: 1\n"),
        ("l:\n    - 'a'\n", "l:\n    - 'a'\n    - '--f=true'\n"),
        ("l: []\n", "l: [--f=true]\n"),
        ("l: [a, b]\n", "l: [a, b, --f=true]\n"),
        (
            "l:\n- a: b\n  c:\n    d: e\n",
            "l:\n- a: b\n  c:\n    d: e\n- --f=true\n",
        ),
    ] {
        becomes(before, &item(), after);
    }
    becomes(
        "l:\n  - name: a\n    value: b\n",
        &Push(&["l"], json!({"name": "x", "value": "true"})),
        "l:\n  - name: a\n    value: b\n  - name: x\n    value: \"true\"\n",
    );
}

#[test]
fn items_are_added_before_another() {
    let item = |index| Item(&["a"], index, json!("--n"));
    for (before, index, after) in [
        ("a:\n- x # 1\n# 2\n- y\n", 1, "a:\n- x # 1\n- --n\n# 2\n- y\n"),
        ("a:\n  - \"x\"\n  - \"y\"", 1, "a:\n  - \"x\"\n  - \"--n\"\n  - \"y\""),
        ("a: [x, y]\n", 1, "a: [x, --n, y]\n"),
        ("a: [x, y]\n", 0, "a: [--n, x, y]\n"),
        ("a: []\n", 0, "a: [--n]\n"),
        ("a:\n- x\nb: 1\n", 7, "a:\n- x\n- --n\nb: 1\n"),
    ] {
        becomes(before, &item(index), after);
    }
    is_refused("a:\n- x\n", &item(0), "add --n to it by hand");
    is_refused("a: x\n", &item(0), "is not a list");
}

#[test]
fn entries_and_items_go_with_their_lines() {
    for (before, path, after) in [
        (
            "m:\n  # mine\n  a: b # c\n  x: y\n",
            &["m", "a"][..],
            "m:\n  # mine\n  x: y\n",
        ),
        ("m:\n  a:\n  - b\n  - c\n  x: y", &["m", "a"], "m:\n  x: y"),
        ("m:\n  x: y\n  a: b", &["m", "a"], "m:\n  x: y"),
        ("m:\n  a: b\nz: 1\n", &["m", "a"], "m: {}\nz: 1\n"),
        ("l:\n- a\n- b\n- a\n", &["l", "0"], "l:\n- b\n- a\n"),
        ("l:\n- a\n- a\n", &["l", "0"], "l:\n- a\n"),
        ("l:\n- a: 1\n  b: 2\n- c\n", &["l", "0"], "l:\n- c\n"),
        ("l:\n  - a\n", &["l", "0"], "l: []\n"),
        ("m: {a: b, x: y}\n", &["m", "a"], "m: {x: y}\n"),
        ("m: {x: y, a: b}\n", &["m", "a"], "m: {x: y}\n"),
        ("m: { a: b }\n", &["m", "a"], "m: {  }\n"),
        ("l: [a, b, c]\n", &["l", "1"], "l: [a, c]\n"),
    ] {
        becomes(before, &Remove(path), after);
    }
}

#[test]
fn what_no_edit_can_change_safely_is_refused_with_its_place() {
    let set = || Set(&["a"], "n");
    is_refused(
        "z: 1\na: |\n  b\n",
        &set(),
        "a (line 3) is an anchor, a tag or a string over several lines",
    );
    is_refused("a: one\n  two\n", &set(), "set it to \"n\" by hand");
    is_refused("a: &x b\nc: *x\n", &set(), "anchor");
    is_refused("a: !!str b\n", &set(), "tag");
    is_refused("b: &x c\na: *x\n", &set(), "a (line 2) is not a string");
    is_refused("a: [b]\n", &set(), "is not a string");
    is_refused("a: [b]\n", &Insert(&["a", "c"], json!(1)), "has no map above it");
    is_refused("a: b\n", &Insert(&["a"], json!(1)), "exists already");
    is_refused("a: |+\n  b\n\n", &Insert(&["c"], json!(1)), "add 1 by hand");
    is_refused(
        "x: &x {b: c}\na: *x\n",
        &Insert(&["a", "c"], json!(1)),
        "a.c (line 2) is below an alias of an anchor",
    );
    is_refused(
        "x: &x [b]\na: *x\n",
        &Push(&["a"], json!(1)),
        "a (line 2) is an alias of an anchor",
    );
    is_refused("x: &x\n  b: c\na: *x\n", &Insert(&["x", "c"], json!(1)), "x.c (line 2)");
    is_refused("a: {b: 1, # x\n c: 2}\n", &Remove(&["a", "b"]), "remove it by hand");
    is_refused("- a: 1\n  b: 2\n", &Remove(&["0", "a"]), "0.a (line 1)");
    is_refused("a: b\n", &Push(&["a"], json!(1)), "is not a list");
}

#[test]
fn one_document_of_several_is_edited() {
    let before = "# first\na: 1\n---\n# nothing\n---\na: b\n...\n---\nc: d\n";
    let mut text = YamlText::parse(before).unwrap();
    assert_eq!(text.documents().len(), 3);
    text.set(1, &["a"], "e").unwrap();
    text.insert(0, &["f"], &json!("g")).unwrap();
    text.insert(2, &["f"], &json!("g")).unwrap();
    let after = "# first\na: 1\nf: g\n---\n# nothing\n---\na: e\n...\n---\nc: d\nf: g\n";
    assert_eq!(text.text(), after);
    assert_eq!(undo(after, text.edits()).as_deref(), Some(before));
    assert!(text.set(3, &["a"], "e").is_err());
}

#[test]
fn a_text_in_a_text_is_edited_in_its_lines() {
    let change = |inner: &mut YamlText| inner.push(0, &["args"], &json!("--f=true"));
    for (before, after) in [
        (
            "s:\n  v: |-\n    # c\n    args:\n    - a # d\n\n    z: 1\nx: 1\n",
            "s:\n  v: |-\n    # c\n    args:\n    - a # d\n    - --f=true\n\n    z: 1\nx: 1\n",
        ),
        (
            "s:\n  v: |\n    args:\n    - a\n",
            "s:\n  v: |\n    args:\n    - a\n    - --f=true\n",
        ),
        (
            "s:\n  v: |\n    args:\n    - a",
            "s:\n  v: |\n    args:\n    - a\n    - --f=true",
        ),
        (
            "s:\r\n  v: |  # |\r\n\r\n    args:\r\n    - a\r\n",
            "s:\r\n  v: |  # |\r\n\r\n    args:\r\n    - a\r\n    - --f=true\r\n",
        ),
        (
            "s:\n  v: |+\n    args: [a]\n\n",
            "s:\n  v: |+\n    args: [a, --f=true]\n\n",
        ),
        ("s: {v: \"args: [a]\"}\n", "s: {v: \"args: [a, --f=true]\"}\n"),
    ] {
        let mut text = YamlText::parse(before).unwrap();
        text.nested(0, &["s", "v"], change)
            .unwrap_or_else(|refusal| panic!("{before:?}: {refusal}"));
        assert_eq!(text.text(), after);
        assert_eq!(undo(after, text.edits()).as_deref(), Some(before));
    }
    for (before, says) in [
        ("s:\n  v: >\n    args: [a]\n", "folded"),
        ("s:\n  v: [a]\n", "is not a string"),
        ("s:\n  v: 'args: a'\n", "is not a list"),
        ("s:\n  v: 'args: ['\n", "not YAML"),
    ] {
        let refusal = YamlText::parse(before)
            .unwrap()
            .nested(0, &["s", "v"], change)
            .unwrap_err();
        assert!(refusal.to_string().contains(says), "{refusal}");
    }
}

#[test]
fn what_another_hand_wrote_stays() {
    let before = "a: aws\nb: 1\nc: 2\nd: 3\n";
    let mut text = YamlText::parse(before).unwrap();
    text.set(0, &["a"], "external").unwrap();
    text.remove(0, &["c"]).unwrap();
    let edits = text.edits().to_vec();
    let moved = format!("# new\n{}", text.text());
    assert_eq!(undo(&moved, &edits).unwrap(), format!("# new\n{before}"));
    for theirs in [
        before,
        "a: theirs\nb: 1\nd: 3\n",
        "a: external\nb: 1\nc: 2\nd: 3\n",
        // The entry is back with another value, at another place.
        "a: external\nb: 1\nd: 3\nc: 9\n",
        "a: external\nd: 3\n",
        "a: [",
    ] {
        assert_eq!(undo(theirs, &edits), None, "{theirs:?}");
    }
    // An item of a list that is back is not put in twice.
    let mut text = YamlText::parse("l:\n- a\n- b\n- c\n").unwrap();
    text.remove(0, &["l", "1"]).unwrap();
    assert_eq!(undo("l:\n- a\n- b\n- c\n", text.edits()), None);
    assert_eq!(
        undo("l:\n- z\n- a\n- c\n", text.edits()).unwrap(),
        "l:\n- z\n- a\n- b\n- c\n"
    );
}

#[test]
fn texts_beyond_any_real_one_are_refused() {
    let long = "a".repeat(MAX_BYTES + 1);
    assert!(matches!(YamlText::parse(&long), Err(Refusal::TooLong(_))));
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(YamlText::parse(&deep(MAX_DEPTH)).unwrap().documents().len(), 1);
    assert!(matches!(YamlText::parse(&deep(MAX_DEPTH + 1)), Err(Refusal::TooDeep)));
}

fn values() -> impl Strategy<Value = Value> {
    let texts = "[a-z0-9 :#'\"éy-]{0,6}";
    let leaf = prop_oneof![
        texts.prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Every path in a value, with what is there.
fn paths(value: &Value, here: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
    found.push((here.clone(), value.clone()));
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in children {
        here.push(key);
        paths(value, here, found);
        here.pop();
    }
}

fn pointer(path: &[&str]) -> String {
    path.iter().map(|key| format!("/{key}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_makes_it_panic(text in "(?s)[a-c:\\-#\\[\\]{},&*!|>'\"%@?~ \n\r\t\u{e9}\u{feff}1]{0,60}", new in ".{0,5}") {
        if let Ok(read) = YamlText::parse(&text) {
            let mut found = Vec::new();
            if let Some(root) = read.documents().first() {
                paths(root, &mut Vec::new(), &mut found);
            }
            for (path, _) in found {
                let mut path: Vec<&str> = path.iter().map(String::as_str).collect();
                for deeper in [false, true] {
                    if deeper {
                        path.push("k");
                    }
                    for step in [Set(&path, &new), Insert(&path, json!({"k": new})), Push(&path, json!(new)), Remove(&path)] {
                        let mut text = read.clone();
                        let before = text.text().to_owned();
                        let done = apply(&mut text, &step).is_ok();
                        prop_assert!(done || text.text() == before);
                        prop_assert_eq!(undo(text.text(), text.edits()), Some(before));
                    }
                }
            }
        }
    }

    #[test]
    fn edits_mean_what_was_meant_and_are_taken_back(value in values(), pick in any::<prop::sample::Index>(), new in "[a-z0-9 :#'\"éy-]{0,6}") {
        let before = serde_saphyr::to_string(&json!({"root": value, "other": [1]})).unwrap();
        let mut text = YamlText::parse(&before).unwrap();
        let original = text.documents()[0].clone();
        let mut found = Vec::new();
        paths(&original["root"], &mut vec!["root".to_owned()], &mut found);
        let (path, there) = pick.get(&found);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let mut intended = original.clone();
        let place = intended.pointer_mut(&pointer(&path)).unwrap();
        let done = match there {
            Value::Array(_) => {
                place.as_array_mut().unwrap().push(json!(new));
                text.push(0, &path, &json!(new))
            }
            Value::Object(_) => {
                place["new"] = json!({"k": [new]});
                text.insert(0, &[&path[..], &["new"]].concat(), &json!({"k": [new]}))
            }
            _ => {
                *place = json!(new);
                text.set(0, &path, &new)
            }
        };
        prop_assert!(done.is_ok(), "{before}: {done:?}");
        prop_assert_eq!(&text.documents()[0], &intended);
        if path.len() > 1 {
            // Going on from there: the entry goes, if it is not the first key of a map in a list.
            let removed = text.remove(0, &path).is_ok();
            prop_assert!(removed || before.contains("- "), "{}", text.text());
        }
        prop_assert_eq!(undo(text.text(), text.edits()), Some(before.clone()));
        prop_assert!(serde_json::to_string(text.edits()).unwrap().len() < 3 * (before.len() + 200));
    }
}

/// A text of some hundred bytes that stands for a value with 2^18 leaves.
fn doubling_aliases() -> String {
    let lines = (1..18).map(|line| format!("a{line}: &a{line} [*a{0}, *a{0}]\n", line - 1));
    format!("a0: &a0 [x, x]\n{}", lines.collect::<String>())
}

#[test]
fn aliases_are_expanded_up_to_a_limit() {
    let refused = YamlText::parse(&doubling_aliases());
    assert!(matches!(refused, Err(Refusal::Aliases)), "{refused:?}");
    // A merge of a map is an alias too.
    let merges = format!(
        "a: &a {{{}}}\nb: [{}]\n",
        "x: 1, y: 2",
        vec!["{<<: *a}"; 400].join(", ")
    );
    assert!(matches!(YamlText::parse(&merges), Err(Refusal::Aliases)));

    let few = format!("a: &a [x, y]\nb: [{}]\n", vec!["*a"; 50].join(", "));
    let read = YamlText::parse(&few).unwrap();
    assert_eq!(read.documents()[0]["b"].as_array().unwrap().len(), 50);
}

/// Steps of the first edits of as many documents, in one batch.
fn steps_of_a_batch(edits: usize) -> u64 {
    let before = "a: aws\nb: 1\n---\n".repeat(64);
    let mut text = YamlText::parse(&before).unwrap();
    let mut budget = WorkBudget::new(u64::MAX);
    budget.run(|| {
        text.batch(|text| (0..edits).try_for_each(|document| text.set(document, &["a"], "external")))
            .unwrap();
    });

    let after = [
        "a: external\nb: 1\n---\n".repeat(edits),
        "a: aws\nb: 1\n---\n".repeat(64 - edits),
    ]
    .concat();
    assert_eq!(text.text(), after);
    assert_eq!(text.edits().len(), edits, "each edit can be undone alone");
    assert_eq!(undo(&after, text.edits()).as_deref(), Some(&*before));
    budget.used()
}

#[test]
fn a_batch_parses_the_text_once() {
    let (one, all) = (steps_of_a_batch(1), steps_of_a_batch(64));
    assert!(all < 4 * one, "{one} steps for one edit, {all} for 64");
}

#[test]
fn a_batch_may_need_the_result_of_its_earlier_edits() {
    for (before, after) in [
        ("a:\n- x\n- y\n- z\n", "a:\n- y\n- w\n- new\n"),
        ("a: [x, y, z]\n", "a: [y, w, new]\n"),
    ] {
        let mut text = YamlText::parse(before).unwrap();
        text.batch(|text| {
            text.remove(0, &["a", "0"])?;
            text.set(0, &["a", "1"], "w")?;
            text.push(0, &["a"], &json!("new"))
        })
        .unwrap();
        assert_eq!(text.text(), after);
        assert_eq!(undo(after, text.edits()).as_deref(), Some(before));
    }

    let mut text = YamlText::parse("m:\n").unwrap();
    text.batch(|text| {
        text.insert(0, &["m", "a", "b"], &json!("1"))?;
        text.set(0, &["m", "a", "c"], "2")?;
        text.set(0, &["m", "a", "b"], "3")
    })
    .unwrap();
    assert_eq!(text.documents()[0], json!({"m": {"a": {"b": "3", "c": "2"}}}));
    assert_eq!(undo(text.text(), text.edits()).as_deref(), Some("m:\n"));
}

#[test]
fn a_batch_with_an_edit_that_is_refused_changes_nothing() {
    let before = "a: aws\nb: |\n  text\n";
    let mut text = YamlText::parse(before).unwrap();
    let refusal = text
        .batch(|text| {
            text.set(0, &["a"], "external")?;
            text.set(0, &["b"], "external")
        })
        .unwrap_err();
    assert!(refusal.to_string().starts_with("b (line 3)"), "{refusal}");
    assert_eq!((text.text(), text.edits().len()), (before, 0));
    assert_eq!(text.documents()[0]["a"], "aws");
    text.set(0, &["a"], "external").unwrap();
}

#[test]
fn a_text_that_needs_more_work_than_is_left_is_refused() {
    let before = "a: aws\n".to_owned() + &"# comment\n".repeat(1000);
    let mut needed = WorkBudget::new(u64::MAX);
    let read = needed.run(|| YamlText::parse(&before)).unwrap();
    let mut less = WorkBudget::new(needed.used() - 1);
    let refused = less.run(|| YamlText::parse(&before));
    assert!(matches!(refused, Err(Refusal::Work(_))), "{refused:?}");

    let mut text = read.clone();
    let mut budget = WorkBudget::new(needed.used());
    let refused = budget.run(|| text.set(0, &["a"], "external"));
    assert!(matches!(refused, Err(Refusal::Work(_))), "{refused:?}");
    assert_eq!((text.text(), text.documents()), (&*before, read.documents()));
}

#[test]
fn only_the_documents_with_a_word_are_read_and_changed() {
    let other = "a: {not yaml\n---\n# a comment\nkind: Other\nlist: [x]\n---\n";
    let text = format!("{other}kind: Mine\nlist: [x]\n---\nkind: Another\n");
    assert!(matches!(YamlText::parse(&text), Err(Refusal::Syntax(_))));

    let mut read = YamlText::parse_documents_with(&text, "Mine").unwrap();
    assert_eq!(read.documents(), [json!({"kind": "Mine", "list": ["x"]})]);
    read.push(0, &["list"], &json!("y")).unwrap();
    read.set(0, &["kind"], "Yours").unwrap_err();
    assert_eq!(
        read.text(),
        format!("{other}kind: Mine\nlist: [x, \"y\"]\n---\nkind: Another\n")
    );

    let undone = undo(read.text(), read.edits()).unwrap();
    assert_eq!(undone, text);
}

#[test]
fn a_fault_is_placed_in_the_whole_text() {
    let text = "kind: Other\n---\nkind: Mine\nlist: &a [x]\n---\nkind: Mine\nbad: [\n";
    let refusal = YamlText::parse_documents_with(text, "Mine").unwrap_err().to_string();
    assert!(refusal.contains("in the document of line 5"), "{refusal}");

    let marked = text.split("---\nkind: Mine\nbad").next().unwrap();
    let mut read = YamlText::parse_documents_with(marked, "Mine").unwrap();
    let refusal = read.set(0, &["list"], "y").unwrap_err().to_string();
    assert!(refusal.contains("line 4"), "{refusal}");
}

/// A parse of the whole text would need more work than one decision may take.
#[test]
fn an_edit_of_one_document_is_undone_without_reading_the_others() {
    let other = "kind: Other\nnumbers: [1, 2, 3]\n---\n".repeat(6000);
    let text = format!("{other}bad: [\n---\nkind: Mine\nlist:\n- x\n");
    let mut read = YamlText::parse_documents_with(&text, "Mine").unwrap();
    read.push(0, &["list"], &json!("y")).unwrap();

    let mut budget = WorkBudget::new(200_000);
    let undone = budget.run(|| undo(read.text(), read.edits()));
    assert_eq!(undone.unwrap(), text);
    assert!(!budget.is_exceeded());

    let broken = read.text().replace("kind: Mine", "kind: [");
    assert_eq!(undo(&broken, read.edits()), None, "the document of the edit is no YAML");
}

//! Properties of every command line, form of storage, component, version and sequence of phases.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]

use outrigger_shared::{
    command_line::{CommandLine, Edit, Flag, List},
    component::Component::{self, CloudControllerManager, KubeApiserver, KubeControllerManager, Kubelet},
    migration::Phase::{self, Complete, InTree, Migrate, Prepare},
    phase_flags::{Circumstances, NodeIpam, OwnConfiguration, changes, flag},
    version::KubernetesVersion,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// How the words are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Command,
    Both(usize),
    Json,
    Dashed,
    Bare,
    Pairs,
}

/// A flag with its value, and how it is written where the shape leaves a choice.
#[derive(Clone, Debug)]
struct Word {
    name: &'static str,
    value: Option<&'static str>,
    two_tokens: bool,
    underscores: bool,
}

impl Word {
    fn write(&self, shape: Shape) -> Vec<String> {
        let name = if self.underscores {
            self.name.replace('-', "_")
        } else {
            self.name.to_owned()
        };
        let dashes = if matches!(shape, Shape::Bare | Shape::Pairs) {
            ""
        } else {
            "--"
        };
        let has_program = matches!(shape, Shape::Command | Shape::Both(_) | Shape::Json);
        match self.value {
            Some(value) if self.two_tokens && has_program => vec![format!("{dashes}{name}"), value.to_owned()],
            Some(value) => vec![format!("{dashes}{name}={value}")],
            None if shape == Shape::Pairs => vec![format!("{name}=true")],
            None => vec![format!("{dashes}{name}")],
        }
    }
}

fn word() -> impl Strategy<Value = Word> {
    let ours = prop_oneof![
        (
            Just("cloud-provider"),
            prop_oneof![4 => Just("aws"), 2 => Just("external"), 1 => Just(""), 1 => Just("gce")]
        )
            .prop_map(|(name, value)| (name, Some(value))),
        Just(("cloud-config", Some("/cloud.conf"))),
        Just(("external-cloud-volume-plugin", Some("aws"))),
        Just(("enable-leader-migration", None)),
        Just(("leader-migration-config", Some("/cloud.yaml"))),
    ];
    let others = prop_oneof![
        Just(("kubeconfig", Some("/k"))),
        Just(("v", Some("2"))),
        Just(("profiling", None)),
        Just(("use-service-account-credentials", None)),
        Just(("controllers", Some("*,-nodeipam"))),
        Just(("feature-gates", Some("CSIMigrationAWS=false"))),
        Just(("feature-gates", Some("RotateKubeletServerCertificate=true"))),
        Just(("leader-elect", None)),
        Just(("root-ca-file", Some("/a&b<c>.crt"))),
    ];
    (prop_oneof![ours, others], any::<bool>(), any::<bool>()).prop_map(|((name, value), two_tokens, underscores)| {
        Word {
            name,
            value,
            // An empty value cannot be told from none by eye, so nobody writes it as a token of its own.
            two_tokens: two_tokens && value != Some(""),
            underscores,
        }
    })
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Command),
        (0..6_usize).prop_map(Shape::Both),
        Just(Shape::Json),
        Just(Shape::Dashed),
        Just(Shape::Bare),
        Just(Shape::Pairs),
    ]
}

fn component() -> impl Strategy<Value = Component> {
    proptest::sample::select(Component::ALL.to_vec())
}

fn phase() -> impl Strategy<Value = Phase> {
    proptest::sample::select(vec![InTree, Prepare, Migrate, Complete])
}

/// The part of an object that stores the command line: a container, or a list.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    shape: Shape,
    value: Value,
}

impl Stored {
    fn new(shape: Shape, words: &[Word]) -> Self {
        let tokens: Vec<String> = words.iter().flat_map(|word| word.write(shape)).collect();
        let value = match shape {
            Shape::Command => json!({ "command": after_program(&tokens) }),
            Shape::Both(split) => {
                let (command, args) = tokens.split_at(split.min(tokens.len()));
                json!({ "command": after_program(command), "args": args })
            }
            Shape::Json => {
                let text = json!(tokens).to_string();
                let text = text
                    .replace('<', "\\u003c")
                    .replace('>', "\\u003e")
                    .replace('&', "\\u0026");
                let text = format!(r#"{{"command":"/bin/program","args":{text}}}"#);
                json!({ "command": ["/http-prober"], "args": ["-retries", "9", "-command", text] })
            }
            Shape::Dashed | Shape::Bare | Shape::Pairs => json!(tokens),
        };
        Self { shape, value }
    }

    fn read(&self) -> CommandLine {
        let items = || serde_json::from_value::<Vec<String>>(self.value.clone()).unwrap();
        let pair = |item: String| {
            let (name, value) = item.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        match self.shape {
            Shape::Command | Shape::Both(_) | Shape::Json => CommandLine::of_container(&self.value),
            Shape::Dashed => CommandLine::dashed(items()),
            Shape::Bare => CommandLine::bare(items()),
            Shape::Pairs => CommandLine::of_pairs(items().into_iter().map(pair).collect::<Vec<_>>()),
        }
        .unwrap()
    }

    fn written(shape: Shape, line: &CommandLine) -> Self {
        let value = match shape {
            Shape::Command | Shape::Both(_) | Shape::Json => {
                let mut container = json!({});
                for list in [List::Command, List::Args] {
                    if let Some(tokens) = line.list(list) {
                        container[list.as_str()] = json!(tokens);
                    }
                }
                container
            }
            Shape::Dashed | Shape::Bare | Shape::Pairs => json!(line.items()),
        };
        Self { shape, value }
    }

    /// The tokens of the component itself.
    fn tokens(&self) -> Vec<String> {
        let list = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap_or_default();
        match self.shape {
            Shape::Command | Shape::Both(_) => [list(&self.value["command"]), list(&self.value["args"])].concat(),
            Shape::Json => {
                list(&serde_json::from_str::<Value>(self.value["args"][3].as_str().unwrap()).unwrap()["args"])
            }
            Shape::Dashed | Shape::Bare | Shape::Pairs => list(&self.value),
        }
    }
}

fn after_program(tokens: &[String]) -> Vec<String> {
    std::iter::once("program".to_owned())
        .chain(tokens.iter().cloned())
        .collect()
}

fn at(phase: Phase, minor: u32, downtime: bool) -> Circumstances {
    Circumstances {
        phase,
        version: Some(KubernetesVersion::v1(minor)),
        both_in_one_object: false,
        downtime,
        own_configuration: OwnConfiguration::None,
        node_ipam: if minor.is_multiple_of(2) {
            NodeIpam::Moves {
                default_controllers: Some("*"),
            }
        } else {
            NodeIpam::Stays
        },
        named_elsewhere: false,
    }
}

/// One review: back to the original, on to the phase; none where the phase is refused, and then all stays as it is.
fn review(stored: &Stored, edits: &[Edit], component: Component, now: &Circumstances) -> Option<(Stored, Vec<Edit>)> {
    let mut line = stored.read();
    assert!(line.undo(edits), "nobody else has changed {stored:?}");
    for change in changes(component, &line, now).ok()? {
        change.apply(&mut line).ok()?;
    }
    // As the annotation keeps them.
    let edits = serde_json::from_value(json!(line.edits())).unwrap();
    Some((Stored::written(stored.shape, &line), edits))
}

/// Which value of which flag a component of a version starts with, by what Kubernetes' releases accept. `None` stands
/// for any value.
fn legal_values(component: Component, minor: u32, flag: Flag) -> Option<&'static [&'static str]> {
    const NONE: Option<&[&str]> = Some(&[]);
    let in_tree: Option<&[&str]> = Some(&["", "aws", "external"]);
    let external: Option<&[&str]> = Some(&["", "external"]);
    match (component, flag.name, minor) {
        (KubeApiserver, "cloud-provider", ..=28) => None,
        (KubeApiserver, "cloud-provider", 29..=32) => external,
        (KubeApiserver, "cloud-config", ..=32) => None,
        (KubeControllerManager | Kubelet, "cloud-provider", ..=26) => in_tree,
        (KubeControllerManager | Kubelet, "cloud-provider", _) => external,
        (KubeControllerManager, "external-cloud-volume-plugin", ..=26 | 32..) => None,
        (
            KubeControllerManager | CloudControllerManager,
            "enable-leader-migration" | "leader-migration-config",
            22..,
        ) => None,
        (KubeControllerManager | CloudControllerManager, "cloud-config", _) => None,
        (CloudControllerManager, "cloud-provider", _) => Some(&["aws"]),
        (Kubelet, "cloud-config", ..=33) => None,
        _ => NONE,
    }
}

fn is_legal(component: Component, minor: u32, stored: &Stored) -> bool {
    let line = stored.read();
    let ours = [
        flag::CLOUD_PROVIDER,
        flag::CLOUD_CONFIG,
        flag::EXTERNAL_CLOUD_VOLUME_PLUGIN,
        flag::ENABLE_LEADER_MIGRATION,
        flag::LEADER_MIGRATION_CONFIG,
    ];
    ours.iter().all(|flag| {
        let Some(value) = line.value(*flag).unwrap() else {
            return true;
        };
        legal_values(component, minor, *flag).is_none_or(|legal| legal.contains(&value.as_str()))
    })
}

/// Tokens that are about no flag of a migration.
fn others(stored: &Stored) -> Vec<String> {
    let is_other = |token: &String| {
        let text = token.replace('_', "-");
        !["cloud", "leader-migration", "controllers", "nodeipam"]
            .iter()
            .any(|ours| text.contains(ours))
            && !["aws", "external", "gce"].contains(&&*text)
    };
    stored.tokens().into_iter().filter(is_other).collect()
}

fn words() -> impl Strategy<Value = Vec<Word>> {
    proptest::collection::vec(word(), 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_phase_applied_twice_is_applied_once(
        words in words(), shape in shape(), component in component(), phase in phase(), minor in 20..=37_u32, downtime: bool,
    ) {
        let original = Stored::new(shape, &words);
        let now = at(phase, minor, downtime);
        if let Some((once, edits)) = review(&original, &[], component, &now) {
            prop_assert_eq!(changes(component, &once.read(), &now), Ok(Vec::new()));
            prop_assert_eq!(review(&once, &edits, component, &now), Some((once, edits)));
        }
    }

    #[test]
    fn every_way_back_to_in_tree_gives_the_original(
        words in words(), shape in shape(), component in component(), minor in 20..=37_u32, downtime: bool,
        phases in proptest::collection::vec(phase(), 0..6),
    ) {
        let original = Stored::new(shape, &words);
        let mut state = (original.clone(), Vec::new());
        for phase in phases {
            if let Some(next) = review(&state.0, &state.1, component, &at(phase, minor, downtime)) {
                state = next;
            }
        }
        let back = review(&state.0, &state.1, component, &at(InTree, minor, downtime));
        prop_assert_eq!(back, Some((original, Vec::new())));
    }

    #[test]
    fn other_tokens_stay_in_their_order(
        words in words(), shape in shape(), component in component(), phase in phase(), minor in 20..=37_u32,
    ) {
        let original = Stored::new(shape, &words);
        if let Some((after, _)) = review(&original, &[], component, &at(phase, minor, false)) {
            prop_assert_eq!(others(&after), others(&original));
        }
    }

    #[test]
    fn from_migrate_on_every_line_becomes_legal(
        words in words(), shape in shape(), complete: bool, minor in 20..=37_u32,
        component in proptest::sample::select(vec![KubeControllerManager, KubeApiserver, Kubelet]),
    ) {
        // Flags that are not this component's own are nobody's to take away.
        let own = |word: &Word| match component {
            KubeControllerManager => true,
            _ => matches!(word.name, "cloud-provider" | "cloud-config") || !word.name.contains("cloud"),
        } && (component == KubeControllerManager || !word.name.contains("leader-migration"));
        let words: Vec<Word> = words.into_iter().filter(own).collect();
        let phase = if complete { Complete } else { Migrate };
        if let Some((after, _)) = review(&Stored::new(shape, &words), &[], component, &at(phase, minor, false)) {
            prop_assert!(is_legal(component, minor, &after), "{:?}", after);
        }
    }
}

proptest! {
    #[test]
    fn a_legal_line_never_becomes_illegal(words in words(), shape in shape(), component in component(), downtime: bool) {
        let original = Stored::new(shape, &words);
        for (phase, minor) in [Prepare, Migrate, Complete].iter().flat_map(|phase| (20..=37).map(move |minor| (*phase, minor))) {
            if !is_legal(component, minor, &original) {
                continue;
            }
            if let Some((after, _)) = review(&original, &[], component, &at(phase, minor, downtime)) {
                prop_assert!(is_legal(component, minor, &after), "{} {} 1.{}: {:?}", component, phase, minor, after);
            }
        }
    }
}

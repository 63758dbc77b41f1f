//! The tagging controller of our real binary, alone, on a real API server and moto's instances: tags in batches, with bad
//! ones among them, back when they are lost, off when a Node goes, and other tags after a restart, one by one.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::{Call, Fault, Service, When};
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster};
use serde_json::json;
use tokio::time::sleep;

/// More than one batch of fifty.
const NODES: usize = 60;
const LIMIT: Duration = Duration::from_secs(90);
/// Of the second manager: instances in a second, and at once.
const RATE: u32 = 7;
const BURST: usize = 5;
/// The first call may be on its way so much longer than the last one.
const LATE: Duration = Duration::from_secs(4);
/// Lost tags are looked for so often.
const PERIOD: Duration = Duration::from_secs(2);
const LABEL: &str = "k8s.io/cloud-provider-aws";
/// The incumbent's values of the label for these tags.
const BOTH: (&str, &str) = ("key1=value1,key2=value2", "c812faa65d1d5e5aefa6b069b3da39df");
const ONE: (&str, &str) = ("key1=value1", "9767c4972ba72e87ab553bad2afde741");
/// A Node of an instance that EC2 does not know, one of another cloud, and one that has no provider ID yet.
const UNKNOWN: &str = "unknown";
const FOREIGN: &str = "foreign";
const BARE: &str = "bare";

/// Tags by instance.
type Tags = BTreeMap<String, BTreeMap<String, String>>;

#[tokio::test(flavor = "multi_thread")]
async fn instances_of_nodes_have_their_tags_and_others_lose_them() {
    let options = Options {
        name: "outrigger-tagging-",
        service_range: "127.81.0.0/16",
        instances: NODES + 1,
        global: &[],
    };
    let cluster = SingleCluster::start(&options).await.expect("a tenant");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    create_nodes(&cluster, &nodes).await;
    let tags = format!("--tags={}", BOTH.0);
    let flags = ["--tagging-controller-enable-batching", "--tag-resync-period=2s", &tags];
    let mut fixture = Fixture {
        manager: start(&cluster, "first", &flags),
        cluster: &cluster,
        nodes,
    };
    fixture.tagged_in_batches().await;
    fixture.a_provider_id_that_comes_late_counts().await;
    fixture.what_is_lost_comes_back().await;
    fixture.the_tags_of_a_removed_node_go().await;
    fixture.quiet().await;
    fixture.manager.kill().await.expect("killed");

    let tags = format!("--tags={}", ONE.0);
    let rate = format!("--tagging-controller-rate-limit={RATE}");
    let burst = format!("--tagging-controller-burst-limit={BURST}");
    let flags = [rate.as_str(), &burst, "--tag-resync-period=0", &tags];
    fixture.manager = start(&cluster, "second", &flags);
    fixture.other_tags_one_by_one_at_the_rate().await;
}

struct Fixture<'a> {
    manager: Manager,
    cluster: &'a SingleCluster,
    nodes: Api<Node>,
}

impl Fixture<'_> {
    /// One call for fifty; the one that EC2 does not know costs one call more and keeps nobody else from their tags.
    async fn tagged_in_batches(&self) {
        let label = BTreeMap::from_iter((0..NODES).map(|number| (name(number), BOTH.1.to_owned())));
        self.eventually("all are labelled", async || self.labels().await == label)
            .await;
        let wanted: BTreeSet<String> = self.ids(0..NODES);
        assert_eq!(self.tagged("key1", "value1").await, wanted);
        assert_eq!(self.tagged("key2", "value2").await, wanted);
        let calls = self.calls("CreateTags", 0);
        let sizes: Vec<usize> = calls.iter().map(|call| resources(call).len()).collect();
        assert!(
            calls.len() <= 3 && sizes.iter().all(|size| *size <= 50),
            "{NODES} Nodes and a bad one: {sizes:?}"
        );
        let strange = calls.iter().flat_map(resources).find(|id| !id.starts_with("i-"));
        assert_eq!(strange, None, "only instances are tagged");
    }

    async fn a_provider_id_that_comes_late_counts(&self) {
        let machine = &self.cluster.account.instances[NODES];
        let patch = Patch::Merge(json!({"spec": {"providerID": machine.provider_id()}}));
        let patched = self.nodes.patch(BARE, &PatchParams::default(), &patch).await;
        patched.expect("patched");
        let labelled = async || self.labels().await.get(BARE).is_some_and(|label| label == BOTH.1);
        self.eventually("the late one is labelled", labelled).await;
        assert!(self.tagged("key1", "value1").await.contains(&machine.id));
    }

    /// One tag of three instances is deleted, and one of two has another value: each time one call puts them right.
    async fn what_is_lost_comes_back(&self) {
        let (lost, changed) = (self.ids(0..3), self.ids(3..5));
        for (by_hand, value, whom) in [("DeleteTags", None, lost), ("CreateTags", Some("other"), changed)] {
            let mut parameters = vec![("Tag.1.Key".to_owned(), "key1".to_owned())];
            parameters.extend(value.map(|value| ("Tag.1.Value".to_owned(), value.to_owned())));
            let numbered = whom.iter().enumerate();
            parameters.extend(numbered.map(|(number, id)| (format!("ResourceId.{}", number + 1), id.clone())));
            let mark = self.cluster.proxy.mark();
            // Moto changes one instance after the other: a describe in between would see a part.
            let held = Fault::on("DescribeInstances").hold(When::BeforeForwarding);
            let held = self.cluster.proxy.add_fault(held);
            let ended = |calls: &[Call]| {
                let mut before = calls.iter().filter(|call| call.seq < mark);
                before.all(|call| call.outcome.is_some()).then_some(())
            };
            let ended = self.cluster.proxy.wait_for("end of earlier calls", LIMIT, ended).await;
            ended.expect("answers");
            self.ec2(by_hand, parameters).await;
            drop(held);
            let back = async || self.tagged("key1", "value1").await.is_superset(&whom);
            self.eventually(&format!("back after {by_hand} by hand"), back).await;
            let calls = self.calls("CreateTags", mark);
            let asked: Vec<BTreeSet<String>> = calls.iter().map(resources).collect();
            assert_eq!(asked, [whom]);
        }
    }

    /// The Node goes, its instance stays: the tags are taken off, those of others are not.
    async fn the_tags_of_a_removed_node_go(&self) {
        let mark = self.cluster.proxy.mark();
        for number in [7, 8] {
            let deleted = self.nodes.delete(&name(number), &DeleteParams::default()).await;
            deleted.expect("deleted");
        }
        let whom = self.ids(7..9);
        let gone = async || self.tagged("key1", "value1").await.is_disjoint(&whom);
        self.eventually("off when the Nodes are gone", gone).await;
        let calls = self.calls("DeleteTags", mark);
        let asked: BTreeSet<String> = calls.iter().flat_map(resources).collect();
        assert_eq!(asked, whom);
        for call in &calls {
            let of = |key: &str| call.parameters.get(key).unwrap_or_default().to_owned();
            let named = BTreeSet::from([1, 2].map(|n| (of(&format!("Tag.{n}.Key")), of(&format!("Tag.{n}.Value")))));
            let both = [("key1", "value1"), ("key2", "value2")].map(|(key, value)| (key.into(), value.into()));
            assert_eq!(named, BTreeSet::from(both), "only where the values are ours");
        }
        for id in &whom {
            let left: Vec<String> = self.tags().await[id].keys().cloned().collect();
            assert_eq!(left, ["Name", "kubernetes.io/cluster/prod"]);
        }
    }

    /// Lost tags are looked for with one describe for all, and where nothing is lost nothing is written; also not on the
    /// instances of Nodes that are gone.
    async fn quiet(&self) {
        sleep(PERIOD).await;
        let calls = self.cluster.idle_passes(&self.manager, PERIOD).await;
        let calls = calls.expect("one read in each period");
        let actions: Vec<&str> = calls.iter().map(|call| call.action.as_str()).collect();
        assert!(
            actions.iter().all(|action| *action == "DescribeInstances"),
            "{actions:?}"
        );
        let untouched = self.labels().await;
        assert!(!untouched.contains_key(FOREIGN) && !untouched.contains_key(UNKNOWN));
    }

    /// Without batching a call is for one instance. Other tags make another label, and the old ones stay.
    async fn other_tags_one_by_one_at_the_rate(&self) {
        let count = NODES - 1;
        let labelled = async || {
            let labels = self.labels().await;
            labels.len() == count && labels.values().all(|label| label == ONE.1)
        };
        self.eventually("all have the other label", labelled).await;
        let calls: Vec<Call> = self.calls("CreateTags", 0);
        let calls: Vec<&Call> = calls
            .iter()
            .filter(|call| call.caller == "second" && call.succeeded())
            .collect();
        assert!(calls.iter().all(|call| resources(call).len() == 1));
        assert_eq!(calls.len(), count);
        let (first, last) = (calls.first().expect("calls"), calls.last().expect("calls"));
        let took = last.offset - first.offset;
        let after_burst = u32::try_from(count - BURST).expect("few");
        let least = Duration::from_secs(1) * after_burst / RATE - LATE;
        assert!(took > least, "{RATE} in a second after a burst of {BURST}: {took:?}");
        assert_eq!(self.tagged("key2", "value2").await.len(), count);
    }

    fn ids(&self, numbers: std::ops::Range<usize>) -> BTreeSet<String> {
        let machines = &self.cluster.account.instances[numbers];
        machines.iter().map(|machine| machine.id.clone()).collect()
    }

    /// The label of each Node that has one.
    async fn labels(&self) -> BTreeMap<String, String> {
        let nodes = self.nodes.list(&ListParams::default()).await.expect("listed");
        let labelled = nodes.into_iter().filter_map(|node| {
            let label = node.metadata.labels?.remove(LABEL)?;
            Some((node.metadata.name?, label))
        });
        labelled.collect()
    }

    /// The tags of everything, as moto has them.
    async fn tags(&self) -> Tags {
        let answer = self.ec2("DescribeTags", Vec::new()).await;
        let mut tags = Tags::new();
        for item in answer.items("tagSet") {
            let of = |field: &str| item.value(field).to_owned();
            tags.entry(of("resourceId")).or_default().insert(of("key"), of("value"));
        }
        tags
    }

    /// Everything, not only instances, that has this tag.
    async fn tagged(&self, key: &str, value: &str) -> BTreeSet<String> {
        let mut tags = self.tags().await;
        tags.retain(|_, own| own.get(key).is_some_and(|own| own == value));
        tags.into_keys().collect()
    }

    async fn ec2(&self, action: &str, parameters: Vec<(String, String)>) -> outrigger_aws_sim::xml::Element {
        let parameters: Parameters = parameters.into_iter().collect();
        let answer = self.cluster.moto.call(&Service::Ec2, action, parameters).await;
        answer.expect("moto carries it out")
    }

    fn calls(&self, action: &str, mark: u64) -> Vec<Call> {
        let mut calls = self.cluster.proxy.calls_since(mark);
        calls.retain(|call| call.action == action);
        calls
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFnMut() -> bool) {
        self.manager.until(what, LIMIT, holds).await.expect("in time");
    }
}

fn start(cluster: &SingleCluster, name: &str, flags: &[&str]) -> Manager {
    let all = [
        "--leader-elect=false",
        "--controllers=tagging-controller",
        "--resources=instance",
        "--aws-api-budget-share=1",
    ];
    let flags: Vec<&str> = all.into_iter().chain(flags.iter().copied()).collect();
    cluster.manager(name, &flags).expect("the manager starts")
}

fn resources(call: &Call) -> BTreeSet<String> {
    call.parameters
        .list("ResourceId")
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

async fn create_nodes(cluster: &SingleCluster, nodes: &Api<Node>) {
    let machines = cluster.account.instances[..NODES].iter().enumerate();
    let mut wanted: Vec<(String, Option<String>)> = machines
        .map(|(number, machine)| (name(number), Some(machine.provider_id())))
        .collect();
    let zone = &cluster.account.subnets[0].zone;
    wanted.push((UNKNOWN.into(), Some(format!("aws:///{zone}/i-0123456789abcdef0"))));
    wanted.push((FOREIGN.into(), Some("othercloud:///zone/machine-1".into())));
    wanted.push((BARE.into(), None));
    let created: Vec<()> = stream::iter(&wanted)
        .map(|(name, provider_id)| async move {
            let node = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}});
            let node = serde_json::from_value(node).expect("a Node");
            nodes.create(&PostParams::default(), &node).await.expect("created");
        })
        .buffer_unordered(8)
        .collect()
        .await;
    assert_eq!(created.len(), NODES + 3);
}

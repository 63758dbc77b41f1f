//! Tags in any shape: whatever stands there, adding is settled after once, never makes a second cluster's key, and leaves
//! every other tag as it was, in its order. And every place in the table of tags exists in the real definitions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod shared_data;

use std::collections::BTreeMap;

use outrigger_decide::{
    Decision, Input, Migration, decide, kinds,
    tags::{Policy, TagFormat, TagRow, tag_rows},
};
use outrigger_shared::migration::{CloudProviderMigrationSpec, Phase};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shared_data::patched;

const PREFIX: &str = "kubernetes.io/cluster/";

fn spec(profile: &str, phase: Phase) -> CloudProviderMigrationSpec {
    let everything = json!({"matchLabels": {"cluster": "prod"}});
    let mut spec: CloudProviderMigrationSpec = serde_json::from_value(
        json!({"clusterID": "prod", "targets": [{"profile": profile, "objectSelector": everything}]}),
    )
    .unwrap();
    spec.phase = phase;
    spec
}

fn decided(row: &TagRow, object: &Value, old: Option<&Value>, phase: Phase) -> Decision {
    let spec = spec(&format!("{:?}", row.profiles.first().unwrap()), phase);
    let migration = Migration {
        name: "prod",
        spec: &spec,
        prepared: true,
    };
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "infra".to_owned())]);
    let migrations = [migration];
    decide(&Input {
        namespace: row.namespaced.then_some("infra"),
        namespace_labels: Some(&labels),
        name: "one",
        group: row.group,
        kind: row.kind,
        ..Input::creation(object, &migrations).over(old)
    })
}

/// Sets a field at a JSON Pointer; `*` makes a list of one.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let keys: Vec<String> = pointer.split('/').skip(1).map(|key| key.replace("~1", "/")).collect();
    let mut here = object;
    for key in &keys {
        here = if key == "*" {
            if !here.is_array() {
                *here = json!([{"resourceType": "instance"}]);
            }
            here.get_mut(0).unwrap()
        } else {
            if !here.is_object() {
                *here = json!({});
            }
            here.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null)
        };
    }
    *here = value;
}

/// The place where the row's tag goes.
fn place(row: &TagRow) -> (String, TagFormat) {
    match row.launch_template {
        Some(list) => {
            let pointer = format!("{list}/*/tags");
            let shape = row.paths.iter().find(|path| path.pointer == pointer).unwrap().shape;
            (pointer, shape)
        }
        None => {
            let path = row.target().unwrap();
            (path.pointer.to_owned(), path.shape)
        }
    }
}

fn object(row: &TagRow, tags: &[(String, String)]) -> Value {
    let mut object = json!({"kind": row.kind, "unknown": {"kept": [1, 2]}, "metadata": {"name": "one",
        "labels": {"cluster": "prod"}, "annotations": {"outrigger.dev/apply": "prod/Prepare"}}});
    if let Some(field) = row.on_aws {
        put(&mut object, field.pointer, json!(field.values.first().unwrap()));
    }
    let (pointer, shape) = place(row);
    put(&mut object, &pointer, written(shape, tags));
    object
}

fn written(shape: TagFormat, tags: &[(String, String)]) -> Value {
    match shape {
        TagFormat::Map => tags
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect::<Map<_, _>>()
            .into(),
        TagFormat::List { key: k, value: v } => tags
            .iter()
            .map(|(key, value)| json!({k: key, v: value, "more": 1}))
            .collect(),
        TagFormat::GroupList => tags
            .iter()
            .map(|(key, value)| json!({"key": key, "value": value, "propagateAtLaunch": true}))
            .collect(),
        TagFormat::CommaText => json!(
            tags.iter()
                .map(|(key, value)| format!("{key},{value}"))
                .collect::<Vec<_>>()
                .join(",")
        ),
        TagFormat::EqualsText => json!(
            tags.iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(",")
        ),
        TagFormat::Parameters => tags
            .iter()
            .enumerate()
            .map(|(number, (key, value))| (format!("tagSpecification_{number}"), json!(format!("{key}={value}"))))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// The keys at the place, in order, read by no code of the webhook.
fn keys(row: &TagRow, object: &Value) -> Vec<String> {
    let (pointer, shape) = place(row);
    let found = object.pointer(&pointer.replace('*', "0")).cloned().unwrap_or_default();
    match (shape, found) {
        (TagFormat::Map, Value::Object(map)) => map.keys().cloned().collect(),
        (TagFormat::List { key, .. }, Value::Array(list)) => {
            list.iter().map(|tag| tag[key].as_str().unwrap().to_owned()).collect()
        }
        (TagFormat::GroupList, Value::Array(list)) => {
            list.iter().map(|tag| tag["key"].as_str().unwrap().to_owned()).collect()
        }
        (_, Value::String(text)) => vec![text],
        (_, other) => vec![other.to_string()],
    }
}

fn tag() -> impl Strategy<Value = (String, String)> {
    let key = prop_oneof![
        4 => "[A-Za-z]{1,8}",
        1 => Just("kubernetes.io/cluster/prod".to_owned()),
        1 => Just("kubernetes.io/cluster/test".to_owned()),
        1 => Just("kubernetes.io/cluster/".to_owned()),
        1 => Just("KubernetesCluster".to_owned()),
        1 => Just("system/cluster".to_owned()),
        1 => Just("".to_owned()),
    ];
    let value = prop_oneof![
        Just("owned".to_owned()),
        Just("prod".to_owned()),
        Just("shared".to_owned()),
        ".{0,6}"
    ];
    (key, value)
}

fn one_per_key(tags: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut seen = std::collections::BTreeSet::new();
    tags.into_iter().filter(|(key, _)| seen.insert(key.clone())).collect()
}

proptest! {
    #[test]
    fn adding_is_settled_after_once_and_spoils_nothing(
        tags in prop::collection::vec(tag(), 0..54).prop_map(one_per_key),
        index in any::<prop::sample::Index>(),
        update in any::<bool>(),
    ) {
        let rows: Vec<&TagRow> = tag_rows().collect();
        let row = *index.get(&rows);
        let before = object(row, &tags);
        let old = object(row, &[]);
        let old = update.then_some(&old);
        let decision = decided(row, &before, old, Phase::Prepare);
        let after = patched(&before, &decision);
        prop_assert!(decided(row, &after, old, Phase::Prepare).patch.is_empty(), "{}", row.kind);
        let (had, has) = (keys(row, &before), keys(row, &after));
        let kept: Vec<&String> = has.iter().filter(|key| had.contains(key)).collect();
        prop_assert_eq!(kept, had.iter().collect::<Vec<_>>());
        let new: Vec<&String> = has.iter().filter(|key| !had.contains(key)).collect();
        let had_any = had.iter().any(|key| key.starts_with(PREFIX));
        prop_assert!(new.is_empty() || (new == ["kubernetes.io/cluster/prod"] && !had_any), "{:?}", new);
        prop_assert!(new.is_empty() || matches!(row.policy, Policy::Add(_)));
        prop_assert!(new.is_empty() || has.len() <= 50);
        // Nothing else: without the new tag it is what it was.
        if new.is_empty() { prop_assert_eq!(&after, &before); }
        prop_assert_eq!(&after["unknown"], &before["unknown"]);
        prop_assert!(decision.warnings.iter().all(|text| text.chars().count() <= 256), "{:?}", decision.warnings);
        prop_assert!(decided(row, &before, old, Phase::InTree).patch.is_empty());
    }
}

#[test]
fn every_row_that_may_add_does_so_and_no_other() {
    for row in tag_rows() {
        let decision = decided(
            row,
            &object(row, &[("team".to_owned(), "web".to_owned())]),
            None,
            Phase::Prepare,
        );
        let adds = matches!(row.policy, Policy::Add(_));
        assert_eq!(
            !decision.patch.is_empty(),
            adds,
            "{} {}: {:?}",
            row.group,
            row.kind,
            decision.reasons
        );
        let listed = kinds().any(|kind| kind.group == row.group && kind.kind == row.kind && kind.plural == row.plural);
        assert!(listed, "{} {}", row.group, row.kind);
    }
}

/// Whether a schema has the place. A field that keeps whatever is in it has every place below it.
fn has(schema: &Value, keys: &[&str]) -> bool {
    let Some((key, rest)) = keys.split_first() else {
        return true;
    };
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return true;
    }
    match *key {
        "*" => schema["items"].is_object() && has(&schema["items"], rest),
        key => schema["properties"].get(key).is_some_and(|next| has(next, rest)),
    }
}

#[test]
fn every_place_exists_in_the_definitions() {
    let Some(definitions) = shared_data::objects("crds") else {
        return;
    };
    let mut looked_at = 0;
    for row in tag_rows() {
        let definition = definitions
            .iter()
            .map(|(_, object)| object)
            .find(|object| object["spec"]["group"] == row.group && object["spec"]["names"]["kind"] == row.kind);
        let Some(definition) = definition else { continue };
        looked_at += 1;
        assert_eq!(definition["spec"]["names"]["plural"], row.plural, "{}", row.group);
        assert_eq!(
            definition["spec"]["scope"] == "Namespaced",
            row.namespaced,
            "{} {}",
            row.group,
            row.kind
        );
        let versions = definition["spec"]["versions"].as_array().unwrap();
        for path in row.paths {
            let keys: Vec<&str> = path.pointer.split('/').skip(1).collect();
            let in_version = |version: &&Value| has(&version["schema"]["openAPIV3Schema"], &keys);
            let own = versions
                .iter()
                .filter(|version| row.versions.iter().any(|own| version["name"] == *own));
            assert!(
                own.clone().any(|version| in_version(&version)),
                "{} {}: {}",
                row.group,
                row.kind,
                path.pointer
            );
            if row.target().is_some_and(|target| target.pointer == path.pointer) {
                for version in own {
                    assert!(
                        in_version(&version),
                        "{} {}: {} in {}",
                        row.group,
                        row.kind,
                        path.pointer,
                        version["name"]
                    );
                }
            }
        }
    }
    assert!(looked_at >= 50, "only {looked_at} rows have a definition");
}

/// The results of the table for real files: the number of tags, and whether the cluster's tag is added.
const CORPUS: &[(&str, bool)] = &[
    ("ack/elbv2-loadbalancer.yaml", false),
    ("ack/instance.yaml", true),
    ("ack/launch_template_tag_specifications.yaml", true),
    ("ack/route_table.yaml", true),
    ("ack/security_group.yaml", true),
    ("ack/subnet.yaml", true),
    ("ack/vpc.yaml", false),
    ("cluster-api-aws/awscluster.yaml", false),
    ("cluster-api-aws/awsclustertemplate.yaml", false),
    ("cluster-api-aws/awsmachinepool.yaml", false),
    ("cluster-api-aws/awsmachinetemplate-turtles.yaml", false),
    ("cluster-api-aws/awsmachinetemplate.yaml", false),
    ("cluster-api-aws/awsmanagedcontrolplane-eks.yaml", false),
    ("cluster-api-aws/awsmanagedmachinepool.yaml", false),
    ("crossplane/community-ec2-instance.yaml", true),
    ("crossplane/community-ec2-launchtemplate.yaml", true),
    ("crossplane/community-ec2-securitygroup.yaml", true),
    ("crossplane/community-ec2-subnet.yaml", true),
    ("crossplane/community-ec2-volume.yaml", true),
    ("crossplane/community-eks-cluster.yaml", false),
    ("crossplane/community-elbv2-loadbalancer.yaml", false),
    ("crossplane/upbound-ec2-ebsvolume.yaml", true),
    ("crossplane/upbound-ec2-instance.yaml", true),
    ("crossplane/upbound-ec2-launchtemplate.yaml", true),
    ("gardener/machineclass-aws.yaml", false),
    ("hypershift/hostedcluster-aws.yaml", false),
    ("hypershift/nodepool-aws.yaml", false),
    ("karpenter/ec2nodeclass-al2-custom-userdata.yaml", false),
    ("karpenter/ec2nodeclass-br-custom-userdata.yaml", false),
    ("karpenter/ec2nodeclass-general-purpose.yaml", false),
    ("karpenter/ec2nodeclass-tags-perflab.yaml", false),
    ("karpenter/ec2nodeclass-v1beta1.yaml", false),
    ("karpenter/ec2nodeclass-windows-2022.yaml", false),
    ("kops-cluster/cluster-complex-cloudlabels.yaml", false),
    ("machine-controller/machine-aws-migrated.yaml", false),
    ("machine-controller/machine-aws-providerconfig.yaml", false),
    ("machine-controller/machinedeployment-aws-spot.yaml", false),
    ("machine-controller/machinedeployment-aws.yaml", false),
    ("machine-controller/machinedeployment-azure.yaml", false),
    ("machine-controller/machinedeployment-gce.yaml", false),
    ("machine-controller/machinedeployment-hetzner.yaml", false),
    ("machine-controller/machinedeployment-openstack.yaml", false),
    ("machine-controller/machinedeployment-vsphere.yaml", false),
    ("machine-controller/machineset-hetzner.yaml", false),
    ("openshift-machine/controlplanemachineset-aws-testsuite.yaml", false),
    ("openshift-machine/machine-docs-example.yaml", false),
    ("openshift-machine/machine-with-filters-aws-4.10.yaml", false),
    ("openshift-machine/machineset-aws-4.10.yaml", true),
    ("service/aws-nginx-ingress-nlb.yaml", false),
    ("storageclass/ebs-csi-example.yaml", false),
    ("storageclass/kops-1.22-intree-aws-ebs.yaml", false),
    ("storageclass/kops-e2e-aws-ebs.yaml", false),
    ("storageclass/regolibrary-eks-gp3.yaml", false),
];

#[test]
fn real_objects_come_out_as_the_table_says_and_go_through_every_phase() {
    let Some(objects) = shared_data::objects("corpus") else {
        return;
    };
    let expected: BTreeMap<&str, bool> = CORPUS.iter().copied().collect();
    let mut seen = BTreeMap::new();
    for (name, mut object) in objects {
        let api_version = object["apiVersion"].as_str().unwrap_or("v1").to_owned();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let Some(row) = tag_rows().find(|row| row.group == group && row.kind == kind) else {
            continue;
        };
        let Some(adds) = expected.get(name.as_str()) else {
            assert!(
                name.starts_with("service/") || name.starts_with("kops-cluster/"),
                "{name} is not in the table"
            );
            continue;
        };
        object["metadata"]["labels"]["cluster"] = json!("prod");
        object["metadata"]["annotations"]["outrigger.dev/apply"] = json!("prod/Prepare");
        let mut now = object.clone();
        for phase in [
            Phase::InTree,
            Phase::Prepare,
            Phase::Migrate,
            Phase::Complete,
            Phase::Migrate,
            Phase::Prepare,
            Phase::InTree,
        ] {
            let decision = decided(row, &now, None, phase);
            let next = patched(&now, &decision);
            assert!(decided(row, &next, None, phase).patch.is_empty(), "{name} in {phase}");
            assert!(phase != Phase::InTree || next == now, "{name}: InTree changes nothing");
            now = next;
        }
        assert_eq!(now != object, *adds, "{name}");
        let text = serde_json::to_string(&now).unwrap();
        let had = serde_json::to_string(&object).unwrap().matches(PREFIX).count();
        assert_eq!(text.matches(PREFIX).count(), had + usize::from(*adds), "{name}");
        seen.insert(name, ());
    }
    let missing: Vec<&&str> = expected.keys().filter(|name| !seen.contains_key(**name)).collect();
    assert!(missing.is_empty(), "not seen: {missing:?}");
}

#[test]
fn the_real_ebs_driver_is_told_its_cluster_and_goes_back_to_the_original() {
    let Some(objects) = shared_data::objects("corpus") else {
        return;
    };
    let (_, mut object) = objects
        .into_iter()
        .find(|(name, _)| name == "not-control-plane/ebs-csi-controller.yaml")
        .unwrap();
    object["metadata"]["labels"]["cluster"] = json!("prod");
    let migrated = |object: &Value, phase: Phase| {
        let spec = spec("AwsResources", phase);
        let migrations = [Migration {
            name: "prod",
            spec: &spec,
            prepared: false,
        }];
        let decision = decide(&Input {
            namespace: Some("infra"),
            namespace_labels: Some(&BTreeMap::new()),
            ..Input::creation(object, &migrations)
        });
        assert_eq!(decision.warnings, Vec::<String>::new());
        patched(object, &decision)
    };
    let after = [Phase::Prepare, Phase::Migrate, Phase::Complete, Phase::Migrate]
        .into_iter()
        .fold(object.clone(), |object, phase| migrated(&object, phase));
    let args = after.pointer("/spec/template/spec/containers/0/args").unwrap();
    assert_eq!(
        args.as_array().unwrap().last(),
        Some(&json!("--k8s-tag-cluster-id=prod"))
    );
    assert_eq!(migrated(&after, Phase::InTree), object);
}

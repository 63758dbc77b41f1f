//! The phase table: which flags each component has in each phase.
//!
//! | phase | kube-controller-manager | kube-apiserver | kubelet |
//! |---|---|---|---|
//! | InTree | its original form | unchanged | unchanged |
//! | Prepare | and `--enable-leader-migration`; from 1.22 on, before only with a downtime and without it | unchanged | unchanged |
//! | Migrate | external; leader migration and `--cloud-config` removed. `--external-cloud-volume-plugin=aws`, and then `--cloud-config`, while volumes are mounted in-tree (up to 1.24) | up to 1.28 `aws` becomes external, from 1.29 on the flag is removed; never added. Beside kube-controller-manager in one object: in Complete | external |
//! | Complete | the same | the same | external |
//!
//! The rows about RKE2's override and about a custom leader migration configuration are in docs/webhook.md.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    case::{Case, Version, version},
    lines::{self, API_SERVER, CLOUD, EBS, Flags, KUBELET, Line, MANAGER},
};

/// The flags that a phase may change. All others stay.
pub const FLAGS: [&str; 7] = [
    "cloud-config",
    "cloud-provider",
    "controllers",
    "enable-leader-migration",
    "external-cloud-volume-plugin",
    "k8s-tag-cluster-id",
    "leader-migration-config",
];
/// Where a custom configuration is mounted.
const CONFIG_FOLDER: &str = "/etc/outrigger/";

/// Differences between the flags of the result and those that the table gives to the original.
pub fn check(case: &Case, original: &Value, result: &Value) -> Vec<String> {
    let (before, after) = (lines::of(original), lines::of(result));
    let places: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut wrong = Vec::new();
    for place in places {
        let line = before.get(place).or_else(|| after.get(place)).unwrap();
        let row = Row {
            case,
            version: version_of(case, original, line),
            provider: before
                .get(place)
                .and_then(|line| line.flags.get("cloud-provider").cloned())
                .or_else(|| implied(original, place)),
            name: implied(result, place),
            has_both: has_both(original),
            place,
        };
        let flags = |line: Option<&Line>| {
            let flags = line.into_iter().flat_map(|line| line.flags.clone());
            flags
                .filter(|(name, _)| FLAGS.contains(&name.as_str()))
                .collect::<Flags>()
        };
        let (mut wanted, mut found) = (flags(before.get(place)), flags(after.get(place)));
        row.apply(line, &mut wanted);
        row.leave_out(line.component, &mut wanted, &mut found);
        if is_replaced(original, place) && found == flags(before.get(place)) {
            continue;
        }
        if wanted != found {
            wrong.push(format!("{place}, version {:?}: {found:?}, not {wanted:?}", row.version));
        }
    }
    wrong
}

struct Row<'a> {
    case: &'a Case,
    version: Option<Version>,
    /// By its flag, or by the provisioner's field for all components.
    provider: Option<String>,
    /// In that field of the result.
    name: Option<String>,
    has_both: bool,
    place: &'a str,
}

impl Row<'_> {
    fn minor(&self) -> Option<u64> {
        self.version.map(|(minor, _)| minor)
    }

    fn apply(&self, line: &Line, flags: &mut Flags) {
        match line.component {
            MANAGER => self.manager(line, flags),
            API_SERVER => self.api_server(flags),
            KUBELET if self.case.is_migrated() => set(flags, "cloud-provider", "external"),
            CLOUD => self.cloud(flags),
            EBS if self.case.phase() != "InTree" && self.case.has_profile("AwsResources") => {
                flags
                    .entry("k8s-tag-cluster-id".to_owned())
                    .or_insert_with(|| id(self.case));
            }
            _ => {}
        }
    }

    fn manager(&self, line: &Line, flags: &mut Flags) {
        let provider = self.provider.as_deref();
        if !matches!(provider, Some("aws" | "external")) {
            return;
        }
        if self.case.phase() == "Prepare" && provider == Some("aws") && self.has_leader_migration() {
            set(flags, "enable-leader-migration", "true");
            if self.case.spec()["leaderMigration"].is_object() {
                set(
                    flags,
                    "leader-migration-config",
                    &format!("{CONFIG_FOLDER}leader-migration.yaml"),
                );
            }
        }
        if !self.case.is_migrated() {
            return;
        }
        set(flags, "cloud-provider", "external");
        flags.remove("enable-leader-migration");
        flags.remove("leader-migration-config");
        if provider != Some("aws") {
            // It does not start with the plugin from 1.27 on.
            if self.minor() >= Some(27) && flags.remove("external-cloud-volume-plugin").is_some() {
                flags.remove("cloud-config");
            }
            return;
        }
        if self
            .minor()
            .is_some_and(|minor| minor <= 24 && mounts_in_tree(&line.flags, minor))
        {
            set(flags, "external-cloud-volume-plugin", "aws");
        } else {
            flags.remove("external-cloud-volume-plugin");
            flags.remove("cloud-config");
        }
        if moves_node_ipam(self.case) {
            let default = if self.place.starts_with('/') {
                "*,bootstrapsigner,tokencleaner"
            } else {
                "*"
            };
            let list = flags.get("controllers").map_or(default, String::as_str);
            let rest: Vec<&str> = list.split(',').filter(|name| !name.ends_with("nodeipam")).collect();
            let list = format!("{},-nodeipam", rest.join(","));
            set(flags, "controllers", &list);
        }
    }

    /// Up to 1.21 it is missing, or needs a gate and a file: only with a downtime.
    fn has_leader_migration(&self) -> bool {
        self.minor().is_none_or(|minor| minor > 21) || !self.case.has_downtime()
    }

    fn api_server(&self, flags: &mut Flags) {
        let minor = self.minor().unwrap_or_default();
        let moves = self.case.phase() == "Complete" || (self.case.phase() == "Migrate" && !self.has_both);
        if self.case.is_migrated() && minor >= 33 {
            flags.remove("cloud-provider");
            flags.remove("cloud-config");
        } else if self.case.is_migrated() && self.name.as_deref() == Some("aws") && ends_by_name(self.version) {
            flags
                .entry("cloud-provider".to_owned())
                .or_insert("external".to_owned());
        } else if moves && minor >= 29 {
            flags.remove("cloud-provider");
        } else if moves && flags.get("cloud-provider").is_some_and(|provider| provider == "aws") {
            set(flags, "cloud-provider", "external");
        }
    }

    fn cloud(&self, flags: &mut Flags) {
        match self.case.phase() {
            "Prepare" | "Migrate" if !self.case.has_downtime() => set(flags, "enable-leader-migration", "true"),
            "Complete" => {
                flags.remove("enable-leader-migration");
                flags.remove("leader-migration-config");
            }
            _ => {}
        }
    }

    /// Removes flags that may be in another place: the provisioner's field, another list, the chart's own arguments.
    fn leave_out(&self, component: &str, wanted: &mut Flags, found: &mut Flags) {
        let name = self.name.as_deref().map(|name| name.trim_end_matches("-aws"));
        if component == CLOUD {
            wanted.remove("cloud-provider");
            found.remove("cloud-provider");
        }
        if self.name.is_some()
            && (name == Some("external") || component == KUBELET)
            && found.get("cloud-provider").is_none()
        {
            wanted.remove("cloud-provider");
        }
        // The field gives RKE1 the same value.
        if self.place.contains("rancherKubernetesEngineConfig")
            && wanted.get("cloud-config").is_some_and(String::is_empty)
        {
            wanted.remove("cloud-config");
        }
    }
}

/// A machine's own list in a selector replaces the list of all machines.
fn is_replaced(object: &Value, place: &str) -> bool {
    let Some(key) = place.strip_prefix("/spec/rkeConfig/machineGlobalConfig/") else {
        return false;
    };
    let selectors = object["spec"]["rkeConfig"]["machineSelectorConfig"].as_array();
    selectors
        .into_iter()
        .flatten()
        .any(|selector| selector["config"].get(key).is_some())
}

fn set(flags: &mut Flags, name: &str, value: &str) {
    flags.insert(name.to_owned(), value.to_owned());
}

pub fn id(case: &Case) -> String {
    case.spec()["clusterID"].as_str().unwrap().to_owned()
}

/// Whether volumes of the in-tree plugin are mounted by it: `CSIMigrationAWS` is off by default up to 1.22.
pub fn mounts_in_tree(flags: &Flags, minor: u64) -> bool {
    let gates = flags.get("feature-gates").map_or("", String::as_str);
    gates.contains("CSIMigrationAWS=false") || (minor <= 22 && !gates.contains("CSIMigrationAWS=true"))
}

fn moves_node_ipam(case: &Case) -> bool {
    let listed = case.spec()["leaderMigration"]["controllerLeaders"].as_array();
    listed.into_iter().flatten().any(|controller| {
        matches!(controller["component"].as_str(), Some("*" | "cloud-controller-manager"))
            && controller["name"]
                .as_str()
                .is_some_and(|name| name.replace('-', "").contains("nodeipam"))
    })
}

/// With the provider aws from `cloud-provider-name`, kube-apiserver of these releases of RKE2 does not start.
pub fn ends_by_name(version: Option<Version>) -> bool {
    matches!(version, Some((29, ..=10) | (30, ..=6) | (31, ..=2)))
}

/// The provider that the provisioner gives to components without the flag.
pub fn implied(object: &Value, place: &str) -> Option<String> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).map(str::to_owned);
    if place.starts_with("/spec/rkeConfig") {
        let (home, _) = place.rsplit_once('/')?;
        let own = text(&format!("{home}/cloud-provider-name"));
        let of_all = || text("/spec/rkeConfig/machineGlobalConfig/cloud-provider-name");
        return own
            .or_else(of_all)
            .or_else(|| text("/spec/rkeConfig/machineSelectorConfig/0/config/cloud-provider-name"));
    }
    match object["kind"].as_str()? {
        "RKE2ControlPlane" => text("/spec/serverConfig/cloudProviderName"),
        "RKE2ControlPlaneTemplate" => text("/spec/template/spec/serverConfig/cloudProviderName"),
        "Cluster" => text("/spec/rancherKubernetesEngineConfig/cloudProvider/name").map(|name| match name.as_str() {
            "external-aws" => "external".to_owned(),
            _ => name,
        }),
        _ => None,
    }
}

fn has_both(object: &Value) -> bool {
    if lines::pod(object).is_none() {
        return true;
    }
    let found = lines::of(object);
    let has = |component| found.values().any(|line| line.component == component);
    has(MANAGER) && has(API_SERVER)
}

/// Of the image's tag or the object, unless the migration's is more than three minors newer.
pub fn version_of(case: &Case, object: &Value, line: &Line) -> Option<Version> {
    let fields = [
        "/spec/version",
        "/spec/kubernetesVersion",
        "/spec/kubernetes/version",
        "/spec/rancherKubernetesEngineConfig/kubernetesVersion",
        "/spec/clusterConfiguration/kubernetesVersion",
    ];
    let fields = fields
        .iter()
        .filter_map(|field| version(object.pointer(field)?.as_str()?));
    let config = object.pointer(lines::TEXTS[0]).and_then(Value::as_str);
    let in_config = config.and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("kubernetesVersion:"))?;
        version(line.trim().trim_matches('"'))
    });
    let own = line.version.or(in_config).or_else(|| fields.into_iter().next());
    let of_migration = case.spec()["kubernetesVersion"].as_str().and_then(version);
    match (own, of_migration) {
        (Some(own), Some(newer)) if newer.0 > own.0 + 3 => Some(newer),
        (own, of_migration) => own.or(of_migration),
    }
}

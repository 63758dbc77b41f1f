//! A configuration as the file that a kube-controller-manager of one version reads.
//!
//! That process compares controller names exactly, with those that its own release registered, and knows only the API
//! versions of its time; so one file for all versions would protect nothing in some of them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    ANY_COMPONENT, ControllerLeader, LeaderMigrationConfiguration,
    decode::{GROUP, KIND},
};
use crate::{controller::Controller, version::KubernetesVersion};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {0} has no leader migration; upgrade it to 1.22")]
pub struct TooOld(pub KubernetesVersion);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    api_version: &'static str,
    /// `v1` has no such field; the older two must give it.
    has_lock: bool,
    config: LeaderMigrationConfiguration,
}

impl LeaderMigrationConfiguration {
    /// The file for a kube-controller-manager of that version. Each controller occurs once, under the name that this
    /// version registers; a name that no release had stays as it is; a controller that this process never had is left
    /// out. A shared controller that the list leaves out is there with `*`, as the process would run it under its main
    /// lease else.
    ///
    /// # Errors
    /// For a version that has no leader migration.
    pub fn for_kube_controller_manager(&self, version: KubernetesVersion) -> Result<File, TooOld> {
        let (api_version, has_lock) = match version.minor {
            24.. => ("v1", false),
            22 | 23 => ("v1beta1", true),
            20 | 21 => ("v1alpha1", true),
            _ => return Err(TooOld(version)),
        };
        let mut controller_leaders: Vec<ControllerLeader> = Vec::new();
        for (index, entry) in self.controller_leaders.iter().enumerate() {
            let later = self.controller_leaders.get(index + 1..).unwrap_or_default();
            if later.iter().any(|later| is_same(&later.name, &entry.name)) {
                continue;
            }

            let name = match Controller::parse(&entry.name) {
                Some(controller) => controller.name_in_kube_controller_manager(version),
                None => Some(entry.name.as_str()),
            };
            controller_leaders.extend(name.map(|name| leader(name, &entry.component)));
        }

        let omitted = Controller::SHARED
            .into_iter()
            .filter(|shared| self.component_of(*shared).is_none());
        let names = omitted.filter_map(|controller| controller.name_in_kube_controller_manager(version));
        controller_leaders.extend(names.map(|name| leader(name, ANY_COMPONENT)));

        Ok(File {
            api_version,
            has_lock,
            config: Self {
                leader_name: self.leader_name.clone(),
                controller_leaders,
            },
        })
    }

    /// The file for a cloud-controller-manager from 1.28 on, whose built-in list names service and route otherwise than
    /// the process does. Each controller occurs once, under the name that it registers.
    #[must_use]
    pub fn for_cloud_controller_manager(&self) -> File {
        let shared = Controller::SHARED.into_iter();
        let listed = shared.map(|controller| {
            let component = self.component_of(controller).unwrap_or(ANY_COMPONENT);
            leader(controller.canonical_name(), component)
        });
        let node_ipam = self
            .component_of(Controller::NodeIpam)
            .map(|component| leader(Controller::NodeIpam.canonical_name(), component));

        File {
            api_version: "v1",
            has_lock: false,
            config: Self {
                leader_name: self.leader_name.clone(),
                controller_leaders: listed.chain(node_ipam).collect(),
            },
        }
    }
}

fn leader(name: &str, component: &str) -> ControllerLeader {
    ControllerLeader {
        name: name.to_owned(),
        component: component.to_owned(),
    }
}

fn is_same(one: &str, other: &str) -> bool {
    let known = Controller::parse(one);
    one == other || (known.is_some() && known == Controller::parse(other))
}

impl File {
    /// The text, as YAML for people to read. Every value is quoted: a bare `*` is a YAML alias.
    #[must_use]
    pub fn yaml(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let mut text = format!(
            "apiVersion: {GROUP}/{}\nkind: {KIND}\nleaderName: {}\n",
            self.api_version,
            quoted(&self.config.leader_name)
        );

        if self.has_lock {
            text.push_str("resourceLock: leases\n");
        }

        text.push_str("controllerLeaders:\n");
        for entry in &self.config.controller_leaders {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "- {{name: {}, component: {}}}",
                quoted(&entry.name),
                quoted(&entry.component)
            );
        }

        text
    }

    /// The text in one line, as JSON, for messages. It is the same file.
    #[must_use]
    pub fn one_line(&self) -> String {
        let mut file = json!({
            "apiVersion": format!("{GROUP}/{}", self.api_version),
            "kind": KIND,
            "leaderName": self.config.leader_name,
            "controllerLeaders": self.config.controller_leaders,
        });

        if self.has_lock {
            file["resourceLock"] = json!("leases");
        }

        file.to_string()
    }
}

//! The names of a Pod's processes, and the access key by which AWS sees each of them. Pure.

/// One process of a Pod: a container's N-th run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessIdentity {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// Counts Pods of this name from 1: a StatefulSet gives a name again.
    pub(super) occurrence: usize,
    pub(super) uid: String,
    /// The container's name, where the Pod has several.
    pub(super) container: Option<String>,
    /// The container's place in the Pod.
    pub(super) index: usize,
    pub(super) restarts: u32,
}

/// A pair of static credentials. Nobody checks them; the ID tells who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccessKey {
    pub(super) id: String,
    pub(super) secret: String,
}

impl ProcessIdentity {
    /// Unique in a run; also the name of its log file.
    pub(super) fn process(&self) -> String {
        let container = self
            .container
            .as_ref()
            .map(|name| format!(":{name}"))
            .unwrap_or_default();
        let restart = if self.restarts == 0 {
            String::new()
        } else {
            format!("#{}", self.restarts)
        };
        let again = if self.occurrence > 1 {
            format!("~{}", self.occurrence)
        } else {
            String::new()
        };

        format!("{}{again}{container}{restart}", self.pod)
    }

    /// In AWS's form, AKIA and 16 capitals and digits: ten of the Pod's UID, two of the container, four of the run.
    pub(super) fn access_key(&self) -> AccessKey {
        let uid: String = self.uid.chars().filter(char::is_ascii_alphanumeric).take(10).collect();
        let id = format!(
            "AKIA{:0<10}{:02}{:04}",
            uid.to_uppercase(),
            self.index % 100,
            self.restarts % 10_000
        );

        AccessKey {
            secret: format!("secret-of-{id}"),
            id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_of_every_container_has_its_own_name_and_key() {
        let mut identity = ProcessIdentity {
            namespace: "tenant".into(),
            pod: "kcm-0".into(),
            occurrence: 1,
            uid: "0d9f3c1e-8a2b-4c5d-9e6f-000000000000".into(),
            container: None,
            index: 0,
            restarts: 0,
        };
        assert_eq!(identity.process(), "kcm-0");
        assert_eq!(identity.access_key().id, "AKIA0D9F3C1E8A000000");
        identity.restarts = 2;
        identity.container = Some("side".into());
        identity.index = 1;
        assert_eq!(identity.process(), "kcm-0:side#2");
        identity.occurrence = 3;
        assert_eq!(identity.process(), "kcm-0~3:side#2");
        assert_eq!(identity.access_key().id, "AKIA0D9F3C1E8A010002");
        assert_eq!(identity.access_key().id.len(), 20);
    }
}

//! Where the authorities of callers' certificates come from: files that flags name, else the ConfigMap that every API
//! server keeps for its components. Both are followed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use outrigger_shared::limited_file;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::authentication::{Proxies, Trust, Verifier, verifier};
use crate::args::{Authentication, RequestHeader};

const CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// Interval of reading the files: the kubelet replaces mounted files without an event.
const LOOK: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[error("{flag}={}: {reason}", path.display())]
pub struct AuthoritiesError {
    flag: &'static str,
    path: PathBuf,
    reason: String,
}

/// The authorities that count now. Clones share them.
#[derive(Debug, Clone)]
pub struct Authorities {
    settings: Authentication,
    trust: Arc<RwLock<Trust>>,
}

impl Authorities {
    /// Reads the files of the flags.
    ///
    /// # Errors
    /// When one cannot be read or holds no authorities.
    pub fn load(settings: &Authentication) -> Result<Self, AuthoritiesError> {
        let authorities = Self {
            settings: settings.clone(),
            trust: Arc::default(),
        };
        authorities.read_files()?;
        Ok(authorities)
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut Trust)) {
        change(&mut self.trust.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn read_files(&self) -> Result<(), AuthoritiesError> {
        if let Some(path) = &self.settings.client_ca_file {
            let clients = from_file("--client-ca-file", path)?;
            self.change(|trust| trust.clients = Some(clients));
        }

        let flags = &self.settings.request_header;
        if let Some(path) = &flags.client_ca_file {
            let verifier = from_file("--requestheader-client-ca-file", path)?;
            let settings = flags.clone();
            self.change(|trust| trust.proxies = Some(Proxies { verifier, settings }));
        }

        Ok(())
    }

    /// Follows files and ConfigMap until `stop`. Invalid content is logged, and the previous content stays in use.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let files = stop.run_until_cancelled(self.follow_files());
        let config_map = stop.run_until_cancelled(self.follow_config_map(client));
        tokio::join!(files, config_map);
    }

    async fn follow_files(&self) {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            let files = self.clone();
            match tokio::task::spawn_blocking(move || files.read_files()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "keeping the old client CAs"),
                Err(error) => tracing::error!(%error, "the reload of the client CAs ended abnormally"),
            }
        }
    }

    async fn follow_config_map(&self, client: Client) {
        let flags = &self.settings;
        let all_by_flag = flags.client_ca_file.is_some() && flags.request_header.client_ca_file.is_some();
        if flags.skip_lookup || all_by_flag {
            return;
        }

        let (namespace, name) = CONFIG_MAP;
        let api = Api::<ConfigMap>::namespaced(client, namespace);
        let mut seen = std::pin::pin!(watcher::watch_object(api, name).default_backoff());

        while let Some(event) = seen.next().await {
            match event {
                Ok(Some(found)) => self.take_up(&found.data.unwrap_or_default()),
                Ok(None) => tracing::warn!(
                    namespace,
                    name,
                    "the ConfigMap does not exist; ignoring client certificates"
                ),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    namespace,
                    name,
                    "cannot read the client CAs; retrying (--authentication-skip-lookup disables the lookup)"
                ),
            }
        }
    }

    /// Takes the settings that no flag sets from the ConfigMap.
    pub(super) fn take_up(&self, data: &BTreeMap<String, String>) {
        let read =
            |key: &str| -> Result<Option<Verifier>, String> { data.get(key).map(|pem| verifier(pem)).transpose() };
        if self.settings.client_ca_file.is_none() {
            match read("client-ca-file") {
                Ok(clients) => self.change(|trust| trust.clients = clients),
                Err(reason) => unusable("client-ca-file", &reason),
            }
        }

        if self.settings.request_header.client_ca_file.is_none() {
            let found = read("requestheader-client-ca-file").and_then(|verifier| {
                let settings = request_header(data)?;
                Ok(verifier.map(|verifier| Proxies { verifier, settings }))
            });
            match found {
                Ok(proxies) => self.change(|trust| trust.proxies = proxies),
                Err(reason) => unusable("requestheader-*", &reason),
            }
        }
    }
}

fn unusable(key: &str, reason: &str) {
    let (namespace, name) = CONFIG_MAP;
    tracing::error!(
        namespace,
        name,
        key,
        reason,
        "the ConfigMap cannot be used; keeping the old client CAs"
    );
}

fn from_file(flag: &'static str, path: &Path) -> Result<Verifier, AuthoritiesError> {
    let read = limited_file::read_text(path).map_err(|error| error.to_string());
    read.and_then(|pem| verifier(&pem)).map_err(|reason| AuthoritiesError {
        flag,
        path: path.to_owned(),
        reason,
    })
}

/// The ConfigMap holds each list as JSON.
fn request_header(data: &BTreeMap<String, String>) -> Result<RequestHeader, String> {
    let list = |key: &str| match data.get(key).map(String::as_str) {
        None | Some("") => Ok(Vec::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| format!("{key}: {error}")),
    };
    Ok(RequestHeader {
        client_ca_file: None,
        allowed_names: list("requestheader-allowed-names")?,
        extra_headers_prefix: list("requestheader-extra-headers-prefix")?,
        group_headers: list("requestheader-group-headers")?,
        uid_headers: list("requestheader-uid-headers")?,
        username_headers: list("requestheader-username-headers")?,
    })
}

//! Relays between a manager of ours and its servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use outrigger_cluster_harness::relay::{Link, Relay};

use super::Environment;

/// The flags of our manager that name a file with a server's address.
const FILES: [&str; 3] = ["--kubeconfig=", "--migration-kubeconfig=", "--cloud-config="];

/// The relays of one or more managers.
pub struct Relays {
    pub tenant: Relay,
    pub management: Relay,
    pub aws: Relay,
    /// The URL of each server, and that of its relay.
    urls: [(String, String); 3],
}

impl Relays {
    /// Both API servers.
    pub fn set_api(&self, link: Link) {
        self.tenant.set(link);
        self.management.set(link);
    }
}

impl Environment {
    /// # Errors
    /// When a relay cannot listen.
    pub async fn start_relays(&self) -> Result<Relays> {
        let (tenant, tenant_urls) = relay(self.tenant.url()).await?;
        let (management, management_urls) = relay(self.management.url()).await?;
        let (aws, aws_urls) = relay(self.proxy.url()).await?;
        Ok(Relays {
            tenant,
            management,
            aws,
            urls: [tenant_urls, management_urls, aws_urls],
        })
    }

    /// The arguments of our manager, with the addresses of the relays in its files.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn arguments_through(&self, relays: &Relays) -> Result<Vec<String>> {
        let arguments = self.manager_arguments()?.into_iter();
        arguments
            .map(|argument| {
                let flag = FILES.iter().find(|flag| argument.starts_with(**flag));
                let Some(flag) = flag else {
                    return Ok(argument);
                };
                let path = through(Path::new(&argument[flag.len()..]), relays)?;
                Ok(format!("{flag}{}", path.display()))
            })
            .collect()
    }
}

/// A relay in front of a URL, and both URLs.
async fn relay(url: &str) -> Result<(Relay, (String, String))> {
    let (scheme, address) = url.split_once("://").context("a URL without a scheme")?;
    let address: SocketAddr = address.trim_end_matches('/').parse()?;
    let relay = Relay::start(address).await?;
    let own = format!("{scheme}://{}", relay.address());
    Ok((relay, (url.to_owned(), own)))
}

/// A copy of a file with the relays' URLs.
fn through(path: &Path, relays: &Relays) -> Result<PathBuf> {
    let mut text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    for (server, relay) in &relays.urls {
        text = text.replace(server, relay);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".relayed");
    std::fs::write(&name, text)?;
    Ok(name.into())
}

//! Which callers are API servers, as far as that is known. For them a part of slots, bodies and memory is kept free, and
//! their reviews are decided first.
//!
//! The addresses are those of the EndpointSlice `default/kubernetes` of the management cluster, which its API servers write
//! themselves, and those that the operator names. Nothing else depends on them: a caller at another address is answered as
//! well, as long as others leave room. Where an API server calls through another address (a proxy, a tunnel, a network that
//! replaces the source), the operator names that one.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use ipnet::IpNet;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::view::Index;

/// A caller of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    /// API servers come first.
    pub rank: Rank,
    pub address: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    ApiServer,
    Other,
}

impl Rank {
    /// The label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "api_server",
            Self::Other => "other",
        }
    }
}

/// The addresses of API servers.
#[derive(Debug, Default)]
pub struct ApiServers {
    named: Vec<IpNet>,
    watched: RwLock<BTreeSet<IpAddr>>,
}

impl ApiServers {
    /// With the networks that the operator names.
    #[must_use]
    pub fn new(named: Vec<IpNet>) -> Arc<Self> {
        Arc::new(Self {
            named,
            watched: RwLock::default(),
        })
    }

    /// The caller with this address. While no API server is known, any caller may be one.
    #[must_use]
    pub fn caller(&self, address: IpAddr) -> Caller {
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
        let is_unknown = self.named.is_empty() && watched.is_empty();
        let is_one = is_unknown || watched.contains(&address) || self.named.iter().any(|net| net.contains(&address));
        let rank = if is_one { Rank::ApiServer } else { Rank::Other };
        Caller { rank, address }
    }

    fn set<'a>(&self, slices: impl IntoIterator<Item = &'a EndpointSlice>) {
        let endpoints = slices.into_iter().flat_map(|slice| &slice.endpoints);
        let addresses = endpoints.flat_map(|endpoint| &endpoint.addresses);
        let addresses = addresses.filter_map(|text| text.parse::<IpAddr>().ok());
        let addresses = addresses.map(|address| address.to_canonical()).collect();
        *self.watched.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

/// A broken watch keeps the addresses: an API server that does not answer still calls.
impl Index<EndpointSlice> for ApiServers {
    fn replace(&self, slices: Vec<EndpointSlice>) {
        self.set(&slices);
    }

    fn apply(&self, slice: EndpointSlice) {
        self.set([&slice]);
    }

    fn delete(&self, _: &EndpointSlice) {
        self.set([]);
    }

    fn absent(&self) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(addresses: &[&str]) -> EndpointSlice {
        let endpoints = json!([{"addresses": addresses}]);
        serde_json::from_value(
            json!({"metadata": {"name": "kubernetes"}, "addressType": "IPv4", "endpoints": endpoints}),
        )
        .unwrap()
    }

    fn rank(servers: &ApiServers, address: &str) -> Rank {
        servers.caller(address.parse().unwrap()).rank
    }

    #[test]
    fn addresses_are_watched_and_named() {
        let servers = ApiServers::new(vec!["10.1.0.0/16".parse().unwrap()]);
        servers.replace(vec![slice(&["192.0.2.1", "not an address"])]);
        assert_eq!(rank(&servers, "192.0.2.1"), Rank::ApiServer);
        assert_eq!(rank(&servers, "10.1.2.3"), Rank::ApiServer);
        assert_eq!(rank(&servers, "192.0.2.2"), Rank::Other);

        servers.apply(slice(&["192.0.2.2"]));
        assert_eq!(rank(&servers, "192.0.2.1"), Rank::Other);
        assert_eq!(rank(&servers, "192.0.2.2"), Rank::ApiServer);
    }

    #[test]
    fn a_broken_watch_forgets_nobody() {
        let servers = ApiServers::new(Vec::new());
        servers.apply(slice(&["192.0.2.1"]));
        servers.broken("the API server does not answer");
        servers.absent();
        assert_eq!(rank(&servers, "192.0.2.1"), Rank::ApiServer);
        assert_eq!(rank(&servers, "192.0.2.2"), Rank::Other);
    }

    #[test]
    fn without_a_known_one_any_caller_may_be_one() {
        let servers = ApiServers::new(Vec::new());
        assert_eq!(rank(&servers, "192.0.2.2"), Rank::ApiServer);
        servers.apply(slice(&["192.0.2.1"]));
        servers.delete(&slice(&[]));
        assert_eq!(rank(&servers, "192.0.2.2"), Rank::ApiServer);
    }
}

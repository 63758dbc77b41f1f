//! The API server's own counts of requests.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::Client;

use super::cluster::get;

const COUNTER: &str = "apiserver_request_total{";

/// Requests by verb and resource, such as `PATCH nodes/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(pub BTreeMap<String, u64>);

impl Requests {
    /// All since the API server's start. Watches count when they end.
    pub async fn so_far(client: &Client) -> Result<Self> {
        let text = client
            .request_text(get("/metrics")?)
            .await
            .context("the API server's metrics")?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::<String, u64>::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(COUNTER)) {
            let Some((labels, value)) = line.rsplit_once("} ") else {
                continue;
            };

            let of = |name: &str| {
                let labels = labels.split(',').filter_map(|label| label.split_once('='));
                let mut found = labels.filter(|(key, _)| *key == name);
                found.next().map_or("", |(_, value)| value.trim_matches('"'))
            };
            let (verb, resource, subresource) = (of("verb"), of("resource"), of("subresource"));
            // Requests of the API server to itself, and probes.
            if resource.is_empty() {
                continue;
            }

            let what = if subresource.is_empty() {
                format!("{verb} {resource}")
            } else {
                format!("{verb} {resource}/{subresource}")
            };
            // A counter is written as an integer, or with an exponent from a million on.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of requests"
            )]
            let count = value.trim().parse::<f64>().unwrap_or_default() as u64;

            *counts.entry(what).or_default() += count;
        }

        Self(counts)
    }

    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let later = self.0.iter().map(|(what, count)| {
            let before = earlier.0.get(what).copied().unwrap_or_default();
            (what.clone(), count.saturating_sub(before))
        });
        Self(later.filter(|(_, count)| *count > 0).collect())
    }

    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Requests about Nodes and Events.
    #[must_use]
    pub fn counted(&self) -> Self {
        let counted = |what: &str| {
            let resource = what.split([' ', '/']).nth(1).unwrap_or_default();
            ["nodes", "events"].contains(&resource)
        };
        Self(
            self.0
                .iter()
                .filter(|(what, _)| counted(what))
                .map(|(what, count)| (what.clone(), *count))
                .collect(),
        )
    }

    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    #[test]
    fn codes_are_added_up_and_differences_are_of_one_kind_each() {
        let text = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"200\",component=\"apiserver\",resource=\"nodes\",scope=\"resource\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"} 3\n\
            apiserver_request_total{code=\"409\",resource=\"nodes\",subresource=\"status\",verb=\"PATCH\"} 1\n\
            apiserver_request_total{code=\"201\",resource=\"events\",subresource=\"\",verb=\"POST\"} 1.2e+06\n\
            apiserver_request_total{code=\"200\",resource=\"namespaces\",subresource=\"\",verb=\"LIST\"} 7\n\
            apiserver_request_total{code=\"200\",resource=\"\",subresource=\"/readyz\",verb=\"GET\"} 9\n\
            apiserver_request_terminations_total{code=\"500\",resource=\"nodes\",verb=\"GET\"} 1\n";
        let requests = Requests::parse(text);
        assert_eq!(requests.of("PATCH nodes/status"), 4);
        assert_eq!(requests.of("POST events"), 1_200_000);
        assert_eq!(requests.counted().total(), 1_200_004);
        let later = Requests([("PATCH nodes/status".to_owned(), 10)].into());
        assert_eq!(later.since(&requests).0, [("PATCH nodes/status".to_owned(), 6)].into());
    }
}

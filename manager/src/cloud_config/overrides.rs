//! `[ServiceOverride "LABEL"]`: which endpoint serves an AWS API in a region.

use std::net::IpAddr;

use super::Findings;
use super::read::given;
use super::syntax::{Entry, Place};
use crate::suggest;

const KEYS: [&str; 6] = [
    "Region",
    "Service",
    "SigningMethod",
    "SigningName",
    "SigningRegion",
    "URL",
];

/// An AWS API that an override can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwsService {
    Ec2,
    /// Elastic Load Balancing, classic.
    Elb,
    Elbv2,
    Kms,
    Imds,
}

impl AwsService {
    const ALL: [Self; 5] = [Self::Ec2, Self::Elb, Self::Elbv2, Self::Kms, Self::Imds];

    /// The name in files for an external manager that is built with version 2 of the SDK for Go.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "EC2",
            Self::Elb => "Elastic Load Balancing",
            Self::Elbv2 => "Elastic Load Balancing v2",
            Self::Kms => "KMS",
            Self::Imds => "ec2imds",
        }
    }

    /// The name in files for the in-tree provider and older managers, which one file may carry beside the other.
    pub fn old_name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Elb | Self::Elbv2 => "elasticloadbalancing",
            Self::Kms => "kms",
            Self::Imds => "ec2metadata",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceOverride {
    /// `Service`, trimmed.
    pub service: String,
    /// `Region`, trimmed.
    pub region: String,
    pub url: String,
    pub signing_region: String,
    /// `SigningName`; `None` means the API's own.
    pub signing_name: Option<String>,
}

/// The override for an API in a region: the exact name goes before the old one. The region does not matter for the
/// instance metadata service.
pub fn find<'a>(overrides: &'a [ServiceOverride], service: AwsService, region: &str) -> Option<&'a ServiceOverride> {
    [service.name(), service.old_name()].into_iter().find_map(|name| {
        overrides
            .iter()
            .find(|entry| entry.service == name && (service == AwsService::Imds || entry.region == region))
    })
}

/// An override as far as it is read.
pub(super) struct Draft {
    label: String,
    place: Place,
    entry: ServiceOverride,
}

impl Draft {
    fn says(&self, problem: &str) -> String {
        format!("ServiceOverride {:?}: {problem}", self.label)
    }
}

/// Adds an entry to the draft of its label.
pub(super) fn collect(drafts: &mut Vec<Draft>, entry: &Entry, findings: &mut Findings<'_>) {
    let label = entry.subsection.clone().unwrap_or_default();
    if !drafts.iter().any(|draft| draft.label == label) {
        drafts.push(Draft {
            label: label.clone(),
            place: entry.section_place,
            entry: ServiceOverride::default(),
        });
    }

    let Some(draft) = drafts.iter_mut().find(|draft| draft.label == label) else {
        return;
    };
    if entry.key.is_empty() {
        return;
    }
    let Some(name) = KEYS.iter().find(|known| known.eq_ignore_ascii_case(&entry.key)) else {
        let hint = suggest::hint(&entry.key, KEYS, "");
        findings.tolerable(
            entry.place,
            &format!("unknown key {:?} in section ServiceOverride{hint}", entry.key),
        );
        return;
    };
    let Some((value, _)) = given(entry, findings) else {
        return;
    };

    let value = value.trim().to_owned();
    match *name {
        "Service" => draft.entry.service = value,
        "Region" => draft.entry.region = value,
        "URL" => draft.entry.url = value,
        "SigningRegion" => draft.entry.signing_region = value,
        "SigningName" => draft.entry.signing_name = Some(value).filter(|name| !name.is_empty()),
        // Read by no SDK that an external manager was built with.
        _ => {}
    }
}

pub(super) fn finish(drafts: Vec<Draft>, findings: &mut Findings<'_>) -> Vec<ServiceOverride> {
    let mut overrides: Vec<ServiceOverride> = Vec::new();
    for draft in drafts {
        let complete = required(&draft, findings);
        let is_duplicate = overrides
            .iter()
            .any(|entry| entry.service == draft.entry.service && entry.region == draft.entry.region);
        if is_duplicate && complete {
            let problem = format!(
                "duplicate override for service {:?} in region {:?}",
                draft.entry.service, draft.entry.region
            );
            findings.error(draft.place, &draft.says(&problem));
        }

        known(&draft, findings);
        overrides.push(draft.entry);
    }

    overrides
}

fn required(draft: &Draft, findings: &mut Findings<'_>) -> bool {
    let mut complete = true;
    for (key, value) in [
        ("Service", &draft.entry.service),
        ("Region", &draft.entry.region),
        ("URL", &draft.entry.url),
        ("SigningRegion", &draft.entry.signing_region),
    ] {
        if value.is_empty() {
            complete = false;
            findings.error(draft.place, &draft.says(&format!("{key} is missing")));
        }
    }

    complete
}

/// Whether signed requests leave this machine without encryption. Requests to the instance metadata service are not signed.
fn unencrypted(draft: &Draft) -> bool {
    let Ok(url) = draft.entry.url.parse::<http::Uri>() else {
        return false;
    };

    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    let loopback = address.is_some_and(|address| address.is_loopback()) || host.eq_ignore_ascii_case("localhost");
    let metadata = [AwsService::Imds.name(), AwsService::Imds.old_name()].contains(&draft.entry.service.as_str());

    url.scheme_str() == Some("http") && !loopback && !metadata
}

fn known(draft: &Draft, findings: &mut Findings<'_>) {
    let ServiceOverride { service, url, .. } = &draft.entry;
    let url_ok = url
        .parse::<http::Uri>()
        .is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
    if !url.is_empty() && !url_ok {
        let problem = format!("URL {url:?} is not an http or https URL");
        findings.error(draft.place, &draft.says(&problem));
    }

    if unencrypted(draft) {
        let problem = format!(
            "URL {url:?} is not encrypted: others on the network can read the signed requests and repeat them; use https://"
        );
        findings.warning(draft.place, &draft.says(&problem));
    }

    let names = || AwsService::ALL.into_iter().map(AwsService::name);
    let mut ours = names()
        .chain(AwsService::ALL.into_iter().map(AwsService::old_name))
        .chain(["autoscaling"]);
    if !service.is_empty() && !ours.any(|name| name == service) {
        let hint = suggest::hint(service, names(), "");
        let problem = format!("no API is called {service:?}, so this override matches nothing{hint}");
        findings.warning(draft.place, &draft.says(&problem));
    }
}

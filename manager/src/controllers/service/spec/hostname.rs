//! Derives the kind of a load balancer from the Service's status.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

use super::super::error::Invalid;
use super::annotations::Kind;

/// Refuses a Service whose type annotation requests another kind of load balancer than the status names. Otherwise a
/// second load balancer would be created, and the first one orphaned.
pub fn same_kind(service: &Service, wanted: Kind) -> Result<(), Invalid> {
    let Some(first) = first(service) else {
        return Ok(());
    };

    let hostname = first.hostname.as_deref().unwrap_or_default();
    let wanted = match wanted {
        Kind::Classic if !is_classic(hostname) => "classic",
        Kind::Network if is_classic(hostname) => "network",
        _ => return Ok(()),
    };

    Err(Invalid::TypeChanged {
        wanted,
        hostname: hostname.to_owned(),
    })
}

/// The kind of load balancer that the address in the status belongs to; `None` without an address.
pub fn kind_in_status(service: &Service) -> Option<Kind> {
    let hostname = first(service)?.hostname.as_deref().filter(|name| !name.is_empty())?;
    match is_classic(hostname) {
        true => Some(Kind::Classic),
        false => Some(Kind::Network),
    }
}

/// Whether the Service's address is that of the load balancer of this name. An internal one has a prefix.
pub fn is_of(service: &Service, load_balancer: &str) -> bool {
    let hostname = first(service).and_then(|first| first.hostname.as_deref());
    let hostname = hostname.unwrap_or_default();
    let name = hostname.strip_prefix("internal-").unwrap_or(hostname);
    let rest = name.strip_prefix(load_balancer);
    rest.is_some_and(|rest| rest.starts_with(['-', '.']))
}

fn first(service: &Service) -> Option<&LoadBalancerIngress> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()
}

/// Whether it is the name of a classic load balancer: `NAME.REGION.elb.SUFFIX`; a network load balancer has
/// `NAME.elb.REGION.SUFFIX`. The suffix depends on the AWS partition and is not compared.
fn is_classic(hostname: &str) -> bool {
    let labels: Vec<&str> = hostname.trim_end_matches('.').split('.').collect();
    let Some(at) = labels.iter().position(|label| *label == "elb") else {
        return false;
    };
    at >= 2 && labels.get(at + 1).is_some_and(|next| !is_region(next))
}

/// Whether a label looks like a region: words and a number, joined by dashes.
fn is_region(label: &str) -> bool {
    let parts: Vec<&str> = label.split('-').collect();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() >= 3 && parts.last().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CLASSIC: &str = "a1-123.eu-central-1.elb.amazonaws.com";
    const CHINA: &str = "a1-123.cn-north-1.elb.amazonaws.com.cn";
    const NETWORK: &str = "a1-abc.elb.eu-central-1.amazonaws.com";

    fn service(ingress: serde_json::Value) -> Service {
        serde_json::from_value(json!({"status": {"loadBalancer": {"ingress": ingress}}})).unwrap()
    }

    #[test]
    fn a_status_of_the_same_kind_or_none_is_fine() {
        for (ingress, kind) in [
            (json!([]), Kind::Classic),
            (json!([{"hostname": CLASSIC}]), Kind::Classic),
            (json!([{"hostname": CHINA}]), Kind::Classic),
            (json!([{"hostname": NETWORK}]), Kind::Network),
        ] {
            assert_eq!(same_kind(&service(ingress.clone()), kind), Ok(()), "{ingress}");
        }
    }

    #[test]
    fn a_status_of_the_other_kind_or_of_someone_else_is_refused() {
        for (ingress, kind) in [
            (json!([{"hostname": CLASSIC}]), Kind::Network),
            (json!([{"hostname": CHINA}]), Kind::Network),
            (json!([{"hostname": NETWORK}]), Kind::Classic),
            (json!([{"hostname": "web.example.com"}]), Kind::Classic),
            (json!([{"ip": "192.0.2.1"}]), Kind::Classic),
        ] {
            assert!(same_kind(&service(ingress.clone()), kind).is_err(), "{ingress}");
        }
    }
}

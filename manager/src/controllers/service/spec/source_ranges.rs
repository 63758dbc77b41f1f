//! The client networks that may reach a load balancer.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;

use super::super::error::Invalid;
use super::annotations::Annotations;

const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// `spec.loadBalancerSourceRanges`, else the annotation, else everyone; host bits cleared, duplicates merged.
/// Fails when an entry is no IPv4 network: a classic load balancer in a VPC has no IPv6 addresses.
pub fn wanted(service: &Service) -> Result<BTreeSet<String>, Invalid> {
    let listed = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    if let Some(listed) = listed.filter(|listed| !listed.is_empty()) {
        let parse = |text: &String| {
            network(text.trim()).ok_or_else(|| Invalid::Field {
                field: "spec.loadBalancerSourceRanges",
                value: text.clone(),
                expected: "expected IPv4 networks such as 10.0.0.0/8",
            })
        };
        return listed.iter().map(parse).collect();
    }

    let annotation = Annotations::of(service).full(ANNOTATION).unwrap_or_default();
    if annotation.trim().is_empty() {
        return Ok(BTreeSet::from(["0.0.0.0/0".to_owned()]));
    }

    let parse = |text: &str| {
        network(text.trim()).ok_or_else(|| Invalid::Annotation {
            key: ANNOTATION.to_owned(),
            value: text.to_owned(),
            expected: "expected a comma list of IPv4 networks such as 10.0.0.0/8".to_owned(),
        })
    };

    annotation.split(',').map(parse).collect()
}

/// The network of `address/length`, without host bits. Leading zeros are read as decimal, as Kubernetes does here.
fn network(text: &str) -> Option<String> {
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'/')
    {
        return None;
    }

    let (address, length) = text.split_once('/')?;
    let mut octets = [0_u8; 4];
    let mut parts = address.split('.');

    for octet in &mut octets {
        *octet = parts.next()?.parse().ok()?;
    }

    if parts.next().is_some() {
        return None;
    }

    let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
    let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
    Some(format!(
        "{}/{length}",
        Ipv4Addr::from(u32::from_be_bytes(octets) & mask)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ranges(field: &[&str], annotation: &str) -> Result<Vec<String>, Invalid> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"annotations": {ANNOTATION: annotation}},
            "spec": {"loadBalancerSourceRanges": field},
        }))
        .unwrap();
        wanted(&service).map(|set| set.into_iter().collect())
    }

    #[test]
    fn the_field_wins_over_the_annotation_and_nothing_means_everyone() {
        assert_eq!(
            ranges(&["10.1.2.3/8", "10.0.0.0/8"], "192.168.0.0/16"),
            Ok(vec!["10.0.0.0/8".into()])
        );
        assert_eq!(
            ranges(&[], " 192.168.1.1/16 , 0.0.0.0/0"),
            Ok(vec!["0.0.0.0/0".into(), "192.168.0.0/16".into()])
        );
        assert_eq!(ranges(&[], "  "), Ok(vec!["0.0.0.0/0".into()]));
    }

    #[test]
    fn what_is_no_ipv4_network_is_refused_with_its_place() {
        assert!(ranges(&[], "10.0.0.0/8,").is_err(), "an empty item is no network");
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "2001:db8::/32",
            "1.2.3/8",
            "1.2.3.4.5/8",
            "x/8",
            "+1.2.3.4/8",
        ] {
            assert!(
                ranges(&[bad], "")
                    .unwrap_err()
                    .to_string()
                    .contains("spec.loadBalancerSourceRanges"),
                "{bad}"
            );
            assert!(ranges(&[], bad).unwrap_err().to_string().contains(ANNOTATION), "{bad}");
        }
    }
}

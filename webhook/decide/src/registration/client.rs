//! `clientConfig` of an entry: where API servers call, and whom they trust.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The name for which the API server verifies the certificate.
pub fn host(config: &Value) -> Option<String> {
    let service = &config["service"];
    if let (Some(name), Some(namespace)) = (service["name"].as_str(), service["namespace"].as_str()) {
        return Some(format!("{name}.{namespace}.svc"));
    }

    let url = url(config)?;
    let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
    Some(host.to_ascii_lowercase())
}

pub(super) fn path(config: &Value) -> String {
    let of_service = config["service"]["path"].as_str().map(str::to_owned);
    let of_url = || url(config).map(|url| url.path().to_owned());
    of_service.or_else(of_url).unwrap_or_else(|| "/".to_owned())
}

/// The decoded `caBundle`; `None` if there is none or it cannot be decoded.
pub fn bundle(config: &Value) -> Option<String> {
    let decoded = STANDARD.decode(config["caBundle"].as_str()?).ok()?;
    String::from_utf8(decoded).ok().filter(|text| !text.is_empty())
}

fn url(config: &Value) -> Option<http::Uri> {
    config["url"].as_str()?.parse().ok()
}

//! Selects the proxy of a request.
//!
//! The rules are those of Go's `net/http.ProxyFromEnvironment`, which the AWS SDK for Go follows:
//! <https://pkg.go.dev/golang.org/x/net/http/httpproxy>. The HTTP client of the SDK for Rust follows curl's by itself: there
//! `ALL_PROXY` counts, an entry of `NO_PROXY` has no port, `.domain` means the domain too, and loopback addresses are
//! proxied.
//!
//! Unlike in Go, the addresses of instance metadata and of container credentials are never proxied: they answer for the
//! machine that asks, so the answer to a proxy would be another machine's.

use std::fmt;
use std::net::IpAddr;

use http::Uri;

use crate::SettingsError;

/// Where instance metadata and container credentials are, of ECS and of EKS:
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.
const LOCAL: [&str; 5] = [
    "169.254.169.254",
    "fd00:ec2::254",
    "169.254.170.2",
    "169.254.170.23",
    "fd00:ec2::23",
];

/// The proxies of HTTP and HTTPS requests, and the destinations that are reached without.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    pub(crate) http: Option<String>,
    pub(crate) https: Option<String>,
    exceptions: Vec<Exception>,
}

/// Proxies may have passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &Option<String>| url.as_deref().map(without_credentials);
        f.debug_struct("Proxies")
            .field("http", &shown(&self.http))
            .field("https", &shown(&self.https))
            .field("exceptions", &self.exceptions)
            .finish()
    }
}

/// How a request reaches its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Without a proxy.
    Direct,
    /// As a request to the proxy of `http://` URLs.
    HttpProxy,
    /// Through a tunnel that the proxy of `https://` URLs opens.
    HttpsProxy,
}

/// An entry of `NO_PROXY`. A port restricts it to that port.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exception {
    Everything,
    Address {
        address: IpAddr,
        port: Option<u16>,
    },
    Network {
        address: IpAddr,
        prefix: u32,
    },
    Domain {
        /// In lower case, with a dot in front.
        suffix: String,
        /// Whether the domain itself is meant besides its subdomains.
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// The proxies that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name, or the same names in lower case. `environment` gives
    /// variables by name; an empty one counts as absent. `AWS_EC2_METADATA_SERVICE_ENDPOINT` is reached without a proxy.
    ///
    /// # Errors
    /// [`SettingsError::Proxy`] when a proxy is not a URL of `http://` or `https://`.
    pub fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let first = |names: [&'static str; 2]| {
            let given = |name| (name, environment(name).unwrap_or_default());
            names.into_iter().map(given).find(|(_, value)| !value.is_empty())
        };
        let proxy = |names| first(names).map(|(name, value)| url(name, &value)).transpose();
        let http = proxy(["HTTP_PROXY", "http_proxy"])?;
        let https = proxy(["HTTPS_PROXY", "https_proxy"])?;

        let list = first(["NO_PROXY", "no_proxy"])
            .map(|(_, value)| value)
            .unwrap_or_default();
        let mut exceptions: Vec<Exception> = list.split(',').filter_map(Exception::parse).collect();
        let metadata = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_default();
        let local = LOCAL.into_iter().map(str::to_owned);
        let local = local.chain(Destination::parse(&metadata).map(|at| at.host));
        exceptions.extend(local.filter_map(|host| Exception::host(&host, None)));

        Ok(Self {
            http,
            https,
            exceptions,
        })
    }

    /// How a request to this URL reaches its destination.
    pub(crate) fn path(&self, url: &str) -> Path {
        let Some(to) = Destination::parse(url) else {
            return Path::Direct;
        };

        let (proxy, path) = if to.is_https {
            (&self.https, Path::HttpsProxy)
        } else {
            (&self.http, Path::HttpProxy)
        };
        let excepted = to.is_loopback() || self.exceptions.iter().any(|exception| exception.matches(&to));
        if proxy.is_none() || excepted {
            return Path::Direct;
        }

        path
    }
}

/// The URL of a proxy. Without a scheme it is `http://`.
fn url(variable: &'static str, value: &str) -> Result<String, SettingsError> {
    let url = if value.contains("://") {
        value.to_owned()
    } else {
        format!("http://{value}")
    };
    let parsed = url.parse::<Uri>().ok();
    let is_usable = |parsed: &Uri| matches!(parsed.scheme_str(), Some("http" | "https")) && parsed.host().is_some();
    if !parsed.as_ref().is_some_and(is_usable) {
        return Err(SettingsError::Proxy {
            variable,
            value: without_credentials(value),
        });
    }

    Ok(url)
}

fn without_credentials(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => url.to_owned(),
    }
}

/// Where a request goes.
struct Destination {
    is_https: bool,
    /// In lower case; an IPv6 address without brackets.
    host: String,
    port: u16,
}

impl Destination {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_https = match scheme {
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
            _ => (authority, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');

        Some(Self {
            is_https,
            host: host.to_ascii_lowercase(),
            port: port.unwrap_or(if is_https { 443 } else { 80 }),
        })
    }

    fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok().map(|address: IpAddr| address.to_canonical())
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.address().is_some_and(|address| address.is_loopback())
    }
}

impl Exception {
    /// An entry; `None` for one that names nothing.
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_ascii_lowercase();
        if entry == "*" {
            return Some(Self::Everything);
        }

        if let Some((address, prefix)) = entry.split_once('/') {
            let address: Option<IpAddr> = address.parse().ok();
            let network = address.zip(prefix.parse().ok());
            if let Some((address, prefix)) = network.filter(|(address, prefix)| *prefix <= bits(*address).1) {
                return Some(Self::Network { address, prefix });
            }
        }

        // Several colons without brackets are an IPv6 address.
        let with_port = match entry.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once("]:"),
            None => entry.split_once(':').filter(|(_, port)| !port.contains(':')),
        };
        match with_port {
            Some((host, "")) => Self::host(host, None),
            Some((host, port)) => port.parse().ok().and_then(|port| Self::host(host, Some(port))),
            None => Self::host(&entry, None),
        }
    }

    fn host(host: &str, port: Option<u16>) -> Option<Self> {
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Some(Self::Address { address, port });
        }

        let domain = host.strip_prefix('*').filter(|rest| rest.starts_with('.'));
        let host = domain.unwrap_or(host);
        let itself = !host.starts_with('.');
        let suffix = if itself { format!(".{host}") } else { host.to_owned() };

        (!host.is_empty()).then_some(Self::Domain { suffix, itself, port })
    }

    fn matches(&self, to: &Destination) -> bool {
        let is_port = |port: &Option<u16>| port.is_none_or(|port| port == to.port);
        match self {
            Self::Everything => true,
            Self::Address { address, port } => to.address() == Some(*address) && is_port(port),
            Self::Network { address, prefix } => to.address().is_some_and(|to| {
                let ((network, width), (to, of)) = (bits(*address), bits(to));
                let ignored = width - prefix;
                // A shift by the whole width overflows, and a prefix of no bits holds everything.
                width == of && (*prefix == 0 || network >> ignored == to >> ignored)
            }),
            Self::Domain { suffix, itself, port } => {
                let is_host = to.host.ends_with(suffix.as_str()) || (*itself && suffix[1..] == to.host);
                is_host && is_port(port)
            }
        }
    }
}

/// The bits of an address and how many there are.
fn bits(address: IpAddr) -> (u128, u32) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, SettingsError> {
        Proxies::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// The path to `url` with proxies for both schemes and this `NO_PROXY`.
    fn path(no_proxy: &str, url: &str) -> Path {
        let both = [
            ("HTTPS_PROXY", "proxy:1"),
            ("HTTP_PROXY", "proxy:2"),
            ("NO_PROXY", no_proxy),
        ];
        proxies(&both).unwrap().path(url)
    }

    #[test]
    fn each_scheme_has_a_proxy_of_its_own_and_upper_case_wins_unless_it_is_empty() {
        let https = proxies(&[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1")]).unwrap();
        assert_eq!(https.https.as_deref(), Some("http://a:1"));
        assert_eq!(https.path("https://ec2.eu-central-1.amazonaws.com/"), Path::HttpsProxy);
        assert_eq!(https.path("http://ec2.eu-central-1.amazonaws.com/"), Path::Direct);

        let http = proxies(&[("HTTP_PROXY", ""), ("http_proxy", "b:1"), ("ALL_PROXY", "c:1")]).unwrap();
        assert_eq!(http.http.as_deref(), Some("http://b:1"));
        assert_eq!(http.path("http://moto:5000/"), Path::HttpProxy);
        assert_eq!(
            http.path("https://moto:5000/"),
            Path::Direct,
            "HTTP_PROXY is not for https://"
        );
        assert_eq!(Proxies::default().path("https://moto:5000/"), Path::Direct);
    }

    #[test]
    fn loopback_metadata_and_container_credentials_are_reached_without_a_proxy() {
        for host in [
            "localhost",
            "127.0.0.1",
            "127.94.0.7",
            "[::1]",
            "169.254.169.254",
            "[fd00:ec2::254]",
            "169.254.170.2",
            "169.254.170.23",
            "[fd00:ec2::23]",
        ] {
            assert_eq!(
                path("", &format!("http://{host}/latest/api/token")),
                Path::Direct,
                "{host}"
            );
            assert_eq!(path("", &format!("http://{host}:8080/v1")), Path::Direct, "{host}");
        }
        assert_eq!(path("", "http://169.254.169.253/"), Path::HttpProxy);

        let elsewhere = proxies(&[
            ("HTTP_PROXY", "proxy"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://10.0.0.9:1338/"),
        ]);
        assert_eq!(elsewhere.unwrap().path("http://10.0.0.9:1338/latest"), Path::Direct);
    }

    /// The table of golang.org/x/net/http/httpproxy's documentation and the forms that its source reads.
    #[test]
    fn exceptions_are_read_as_go_reads_them() {
        let ec2 = "https://ec2.eu-central-1.amazonaws.com/";
        for (no_proxy, url, is_direct) in [
            ("amazonaws.com", ec2, true),
            (".amazonaws.com", ec2, true),
            ("*.amazonaws.com", ec2, true),
            ("EC2.eu-central-1.AMAZONAWS.com", ec2, true),
            ("other.com, amazonaws.com ,", ec2, true),
            ("amazonaws.com:443", ec2, true),
            ("amazonaws.com:8443", ec2, false),
            ("amazonaws.com:", ec2, true),
            ("aws.com", ec2, false),
            ("*aws.com", ec2, false),
            ("*", ec2, true),
            ("other.com,*", ec2, true),
            (".foo.com", "https://foo.com/", false),
            ("foo.com", "https://foo.com/", true),
            ("foo.com", "https://notfoo.com/", false),
            ("10.0.0.0/8", "http://10.1.2.3:5000/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("10.1.2.3/8", "http://10.9.9.9/", true),
            ("0.0.0.0/0", "http://11.1.2.3/", true),
            ("0.0.0.0/0", "http://[2001:db8::1]/", false),
            ("2001:db8::/32", "http://[2001:db8:1::1]/", true),
            ("2001:db8::/32", "http://[2001:db9::1]/", false),
            ("10.0.0.0/8", "http://ten.internal/", false),
            ("10.1.2.3", "http://10.1.2.3:5000/", true),
            ("10.1.2.3:5000", "http://10.1.2.3:5000/", true),
            ("10.1.2.3:80", "http://10.1.2.3:5000/", false),
            ("10.1.2.3:80", "http://10.1.2.3/", true),
            ("2001:db8::1", "http://[2001:db8::1]:5000/", true),
            ("[2001:db8::1]:5000", "http://[2001:db8::1]:5000/", true),
            ("[2001:db8::1]:80", "http://[2001:db8::1]:5000/", false),
            (":443", ec2, false),
            ("", ec2, false),
            ("10.0.0.0/99", "http://10.0.0.0/", false),
        ] {
            assert_eq!(path(no_proxy, url) == Path::Direct, is_direct, "{no_proxy:?} {url}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_an_error_that_names_the_variable_and_no_password() {
        for value in ["socks5://user:geheim@proxy:1080", "http://", "http://user:geheim@a b"] {
            let error = proxies(&[("https_proxy", value)]).unwrap_err().to_string();
            assert!(error.starts_with("https_proxy "), "{error}");
            assert!(!error.contains("geheim"), "{error}");
        }
        let shown = format!(
            "{:?}",
            proxies(&[("HTTPS_PROXY", "http://user:geheim@proxy:1")]).unwrap()
        );
        assert!(shown.contains("***@proxy:1") && !shown.contains("geheim"), "{shown}");
    }
}

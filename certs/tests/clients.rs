//! The three levels of client authentication, over TLS 1.2 and 1.3.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Error, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{Authority, Clients, Issued, Reloader, Source, Validity, bundle, tls, write};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion};

const HOUR: Duration = Duration::from_secs(3600);

fn hour() -> Validity {
    Validity::starting(Timestamp::now(), HOUR)
}

fn authority(name: &str) -> Authority {
    Authority::new(name, hour()).unwrap()
}

/// A server with a certificate of its own authority, and a file of the callers' authorities.
struct Bench {
    serving: Authority,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(callers: &str) -> Self {
        let (serving, directory) = (authority("serving"), tempfile::tempdir().unwrap());
        write(directory.path(), &serving.issue(&["localhost"], hour()).unwrap(), None).unwrap();
        let bench = Self { serving, directory };
        bench.trust(callers);
        bench
    }

    fn trust(&self, callers: &str) {
        fs::write(self.file(), callers).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("clients.pem")
    }

    fn clients(&self, names: &[&str]) -> Arc<Clients> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(Clients::load(self.file(), names, outrigger_certs::provider()).unwrap())
    }

    fn server(&self, callers: &tls::Callers) -> Arc<ServerConfig> {
        let source = Source {
            directory: self.directory.path().to_owned(),
            names: Vec::new(),
        };
        let pair = Reloader::load(source, outrigger_certs::provider(), Timestamp::now()).unwrap();
        Arc::new(tls::server_config(outrigger_certs::provider(), Arc::new(pair), callers).unwrap())
    }

    /// Calls once, without a network; what the server said to it.
    fn call(
        &self,
        server: &Arc<ServerConfig>,
        version: &'static SupportedProtocolVersion,
        shown: Option<&Issued>,
    ) -> Result<(), Error> {
        let config = ClientConfig::builder_with_provider(outrigger_certs::provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(bundle::roots(self.serving.certificate_pem()).unwrap());
        let config = match shown {
            None => config.with_no_client_auth(),
            Some(issued) => {
                let chain = vec![CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        client.writer().write_all(b"hello").unwrap();
        for _ in 0..10 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire)?;
            server.read_tls(&mut wire.as_slice())?;
            server.process_new_packets().map_err(Error::other)?;
            wire.clear();
            server.write_tls(&mut wire)?;
            client.read_tls(&mut wire.as_slice())?;
            client.process_new_packets().map_err(Error::other)?;
        }
        let mut heard = [0; 5];
        server.reader().read_exact(&mut heard)?;
        assert_eq!(&heard, b"hello");
        Ok(())
    }
}

/// Whether a caller gets through, the same way over both versions of TLS.
fn lets_in(bench: &Bench, callers: &tls::Callers, shown: Option<&Issued>) -> bool {
    let server = bench.server(callers);
    let answers = [&TLS12, &TLS13].map(|version| bench.call(&server, version, shown));
    assert_eq!(answers[0].is_ok(), answers[1].is_ok(), "{answers:?}");
    answers[0].is_ok()
}

#[test]
fn each_level_lets_in_whom_it_should_and_nobody_else() {
    let (ours, other) = (authority("ours"), authority("other"));
    let named = ours.issue_client("kube-apiserver", &[], hour()).unwrap();
    let unnamed = ours.issue_client("system:node:a", &[], hour()).unwrap();
    let by_san = ours
        .issue_client("someone", &["apiserver.example.org"], hour())
        .unwrap();
    let stranger = other.issue_client("kube-apiserver", &[], hour()).unwrap();
    let for_servers = ours.issue(&["kube-apiserver"], hour()).unwrap();
    let then = Validity {
        not_before: Timestamp::now() - 2 * HOUR,
        not_after: Timestamp::now() - HOUR,
    };
    let expired = ours.issue_client("kube-apiserver", &[], then).unwrap();

    let bench = Bench::new(ours.certificate_pem());
    let signed = tls::Callers::Checked(bench.clients(&[]));
    let both = tls::Callers::Checked(bench.clients(&["kube-apiserver", "apiserver.example.org"]));
    for (who, certificate, any, with_authority, with_name) in [
        ("nobody", None, true, false, false),
        ("the API server", Some(&named), true, true, true),
        ("the API server by alternative name", Some(&by_san), true, true, true),
        ("another client of the authority", Some(&unnamed), true, true, false),
        ("a client of another authority", Some(&stranger), true, false, false),
        ("a server", Some(&for_servers), true, false, false),
        ("an expired one", Some(&expired), true, false, false),
    ] {
        assert_eq!(lets_in(&bench, &tls::Callers::Any, certificate), any, "{who}, any");
        assert_eq!(
            lets_in(&bench, &signed, certificate),
            with_authority,
            "{who}, authority"
        );
        assert_eq!(
            lets_in(&bench, &both, certificate),
            with_name,
            "{who}, authority and name"
        );
    }
}

#[test]
fn a_name_counts_letter_by_letter() {
    let ours = authority("ours");
    let shown = ours.issue_client("kube-apiserver", &["10.0.0.1"], hour()).unwrap();
    let bench = Bench::new(ours.certificate_pem());
    for (name, expected) in [
        ("kube-apiserver", true),
        ("10.0.0.1", true),
        ("kube-apiserve", false),
        ("kube-apiserver-2", false),
        ("Kube-Apiserver", false),
        ("*", false),
        ("", false),
    ] {
        let callers = tls::Callers::Checked(bench.clients(&[name]));
        assert_eq!(lets_in(&bench, &callers, Some(&shown)), expected, "{name:?}");
    }
}

#[test]
fn new_authorities_count_from_the_next_call_on_and_bad_ones_are_not_taken() {
    let (old, new) = (authority("old"), authority("new"));
    let [by_old, by_new] = [&old, &new].map(|authority| authority.issue_client("c", &[], hour()).unwrap());
    let bench = Bench::new(old.certificate_pem());
    let clients = bench.clients(&[]);
    let callers = tls::Callers::Checked(Arc::clone(&clients));
    assert!(!clients.check().unwrap(), "nothing has changed");
    let both = bundle::merge(old.certificate_pem(), new.certificate_pem(), Timestamp::now()).unwrap();
    assert!(!lets_in(&bench, &callers, Some(&by_new)));
    bench.trust(&both);
    assert!(clients.check().unwrap());
    assert!(lets_in(&bench, &callers, Some(&by_old)) && lets_in(&bench, &callers, Some(&by_new)));

    for bad in ["", "garbage", &both[..both.len() * 3 / 4]] {
        bench.trust(bad);
        clients.check().unwrap_err();
        assert!(lets_in(&bench, &callers, Some(&by_old)), "the old ones stay: {bad:?}");
    }
    assert_eq!(clients.failures(), 3);
    bench.trust(new.certificate_pem());
    assert!(clients.check().unwrap());
    assert!(!lets_in(&bench, &callers, Some(&by_old)) && lets_in(&bench, &callers, Some(&by_new)));
}

#[test]
fn a_server_does_not_start_without_authorities_and_says_which_file() {
    let bench = Bench::new("");
    for content in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        bench.trust(content);
        let error = Clients::load(bench.file(), Vec::new(), outrigger_certs::provider()).unwrap_err();
        assert!(error.to_string().contains("clients.pem"), "{content:?}: {error}");
    }
    let error = Clients::load("/nowhere".into(), Vec::new(), outrigger_certs::provider()).unwrap_err();
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("/nowhere")
    );
}

#[test]
fn a_session_is_never_resumed_so_that_each_call_is_checked() {
    let ours = authority("ours");
    let shown = ours.issue_client("c", &[], hour()).unwrap();
    let bench = Bench::new(ours.certificate_pem());
    let server = bench.server(&tls::Callers::Checked(bench.clients(&[])));
    assert!(bench.call(&server, &TLS13, Some(&shown)).is_ok());
    assert_eq!(server.send_tls13_tickets, 0);
    assert!(!server.session_storage.can_cache() && !server.ticketer.enabled());
}

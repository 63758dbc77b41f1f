//! Loading, issuing and bundling, on real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use outrigger_certs::{
    Authority, CA_FILE, CERTIFICATE_FILE, Issued, KEY_FILE, LoadError, Pair, Source, Validity, bundle, load, write,
};

const HOUR: Duration = Duration::from_secs(3600);
const NAME: &str = "webhook.test.svc";

fn now() -> Timestamp {
    "2026-05-01T12:00:00Z".parse().unwrap()
}

fn authority(name: &str) -> Authority {
    Authority::new(name, Validity::starting(now(), 48 * HOUR)).unwrap()
}

fn source(directory: &Path) -> Source {
    Source {
        directory: directory.to_owned(),
        names: vec![NAME.to_owned()],
    }
}

fn written() -> (tempfile::TempDir, Issued) {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority("first");
    let issued = authority
        .issue(&[NAME, "127.0.0.1", "::1"], Validity::starting(now(), HOUR))
        .unwrap();
    write(directory.path(), &issued, Some(authority.certificate_pem())).unwrap();
    (directory, issued)
}

fn refusal(directory: &Path, at: Timestamp) -> LoadError {
    load(&source(directory), &outrigger_certs::provider(), at).unwrap_err()
}

#[test]
fn what_is_issued_and_written_loads_with_its_names_and_dates() {
    let (directory, _) = written();
    let pair = load(&source(directory.path()), &outrigger_certs::provider(), now()).unwrap();
    assert_eq!(pair.names(), [NAME, "127.0.0.1", "::1"]);
    assert_eq!(pair.not_after(), now() + HOUR);
    assert_eq!(pair.authority().len(), 1);
    assert!((pair.days_left(now()) - 1.0 / 24.0).abs() < 1e-9);
    assert!(!pair.is_valid_at(now() + HOUR));
}

/// As API servers verify with `caBundle`.
#[test]
fn a_bundle_is_accepted_if_it_has_the_authority_that_signed_and_is_valid() {
    let first = authority("first");
    let issued = first.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
    let provider = outrigger_certs::provider();
    let pair = Pair::from_issued(&source(Path::new("")), &issued, &provider, now()).unwrap();
    let other = authority("first");
    let both = format!("{}{}", other.certificate_pem(), first.certificate_pem());
    for (bundle, at, accepted) in [
        (first.certificate_pem(), now(), true),
        (both.as_str(), now(), true),
        // Another key under the same name.
        (other.certificate_pem(), now(), false),
        ("", now(), false),
        ("no PEM", now(), false),
        // Pinned, without its authority.
        (issued.certificate_pem.as_str(), now(), true),
        (first.certificate_pem(), now() + 49 * HOUR, false),
    ] {
        assert_eq!(pair.is_trusted_by(bundle, &provider, at), accepted, "{bundle} at {at}");
    }
}

#[test]
fn the_key_is_readable_to_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, _) = written();
    let mode = fs::metadata(directory.path().join(KEY_FILE))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn writing_again_replaces_all_files_and_leaves_nothing_behind() {
    let (directory, first) = written();
    let second = authority("second")
        .issue(&[NAME], Validity::starting(now(), HOUR))
        .unwrap();
    write(directory.path(), &second, None).unwrap();
    assert_ne!(
        fs::read_to_string(directory.path().join(CERTIFICATE_FILE)).unwrap(),
        first.certificate_pem
    );
    assert_eq!(
        fs::read_to_string(directory.path().join(KEY_FILE)).unwrap(),
        second.key_pem
    );
    assert!(!directory.path().join(CA_FILE).exists());
    let mut entries: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    entries.retain(|name| !name.starts_with("..issue-"));
    entries.sort();
    assert_eq!(entries, ["..data", "tls.crt", "tls.key"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
}

#[test]
fn plain_files_of_a_pair_are_replaced_by_links() {
    let directory = tempfile::tempdir().unwrap();
    for file in [CERTIFICATE_FILE, KEY_FILE] {
        fs::write(directory.path().join(file), "old").unwrap();
    }
    let issued = authority("first")
        .issue(&[NAME], Validity::starting(now(), HOUR))
        .unwrap();
    write(directory.path(), &issued, None).unwrap();
    for (file, text) in [(CERTIFICATE_FILE, &issued.certificate_pem), (KEY_FILE, &issued.key_pem)] {
        let path = directory.path().join(file);
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("..data").join(file));
        assert_eq!(fs::read_to_string(&path).unwrap(), *text);
    }
    load(&source(directory.path()), &outrigger_certs::provider(), now()).unwrap();
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = refusal(directory.path(), now());
    assert!(matches!(error, LoadError::Read { .. }), "{error:?}");
    assert!(error.to_string().contains("tls.crt"), "{error}");
}

#[test]
fn text_that_is_not_pem_is_refused_without_showing_it() {
    let (directory, _) = written();
    fs::remove_file(directory.path().join(KEY_FILE)).unwrap();
    fs::write(
        directory.path().join(KEY_FILE),
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n",
    )
    .unwrap();
    let error = refusal(directory.path(), now());
    assert!(
        matches!(
            error,
            LoadError::NotPem {
                wanted: "PRIVATE KEY",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("c2VjcmV0"));
}

#[test]
fn a_certificate_block_with_other_content_is_refused() {
    let (directory, _) = written();
    fs::remove_file(directory.path().join(CERTIFICATE_FILE)).unwrap();
    fs::write(
        directory.path().join(CERTIFICATE_FILE),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let error = refusal(directory.path(), now());
    assert!(matches!(error, LoadError::NotACertificate { .. }), "{error:?}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let (directory, issued) = written();
    let other = authority("second")
        .issue(&[NAME], Validity::starting(now(), HOUR))
        .unwrap();
    let mixed = Issued {
        certificate_pem: issued.certificate_pem,
        key_pem: other.key_pem,
    };
    write(directory.path(), &mixed, None).unwrap();
    let error = refusal(directory.path(), now());
    assert!(matches!(error, LoadError::KeyMismatch { .. }), "{error:?}");
}

#[test]
fn a_certificate_is_refused_before_and_after_its_life() {
    let (directory, _) = written();
    assert!(matches!(
        refusal(directory.path(), now() - HOUR),
        LoadError::NotYetValid { .. }
    ));
    assert!(matches!(
        refusal(directory.path(), now() + HOUR),
        LoadError::Expired { .. }
    ));
}

#[test]
fn a_certificate_for_other_names_is_refused_and_says_which_it_has() {
    let (directory, _) = written();
    for wanted in ["other.test.svc", "127.0.0.2", "not a name"] {
        let source = Source {
            directory: directory.path().to_owned(),
            names: vec![NAME.to_owned(), wanted.to_owned()],
        };
        let error = load(&source, &outrigger_certs::provider(), now()).unwrap_err();
        assert!(matches!(error, LoadError::WrongName { .. }), "{error:?}");
        assert!(
            error.to_string().contains(wanted) && error.to_string().contains(NAME),
            "{error}"
        );
    }
}

#[test]
fn a_file_of_megabytes_is_refused() {
    let (directory, _) = written();
    fs::remove_file(directory.path().join(CERTIFICATE_FILE)).unwrap();
    fs::write(directory.path().join(CERTIFICATE_FILE), vec![b'a'; 2 * 1024 * 1024]).unwrap();
    assert!(matches!(refusal(directory.path(), now()), LoadError::TooLarge { .. }));
}

#[test]
fn nothing_is_issued_without_a_name_or_for_a_malformed_one() {
    let authority = authority("first");
    let validity = Validity::starting(now(), HOUR);
    assert!(authority.issue(&[], validity).is_err());
    assert!(
        authority
            .issue(&["has space"], validity)
            .unwrap_err()
            .to_string()
            .contains("has space")
    );
}

#[test]
fn an_authority_read_back_issues_what_its_certificate_verifies() {
    let first = authority("first");
    let again = Authority::from_issued(first.issued().clone()).unwrap();
    let issued = again.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
    verify(&issued.certificate_pem, first.certificate_pem()).unwrap();
    verify(&issued.certificate_pem, authority("second").certificate_pem()).unwrap_err();
}

#[test]
fn a_merged_bundle_trusts_both_authorities_and_merging_again_changes_nothing() {
    let (old, new) = (authority("old"), authority("new"));
    let merged = bundle::merge(old.certificate_pem(), new.certificate_pem(), now()).unwrap();
    for authority in [&old, &new] {
        let issued = authority.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
        verify(&issued.certificate_pem, &merged).unwrap();
    }
    assert_eq!(bundle::merge(&merged, new.certificate_pem(), now()).unwrap(), merged);
    assert_eq!(bundle::merge(&merged, &merged, now()).unwrap(), merged);
}

#[test]
fn a_bundle_drops_expired_authorities_but_never_becomes_empty() {
    let old = Authority::new("old", Validity::starting(now(), HOUR)).unwrap();
    let new = authority("new");
    let later = now() + 2 * HOUR;
    let merged = bundle::merge(old.certificate_pem(), new.certificate_pem(), later).unwrap();
    assert_eq!(merged.matches("BEGIN CERTIFICATE").count(), 1);
    assert!(bundle::merge(new.certificate_pem(), old.certificate_pem(), later).is_err());
    assert!(bundle::merge(new.certificate_pem(), "", now()).is_err());
}

#[test]
fn a_bundle_refuses_garbage_and_serving_certificates() {
    let authority = authority("first");
    let leaf = authority.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
    assert!(bundle::merge("garbage", authority.certificate_pem(), now()).is_err());
    assert!(bundle::merge("", &leaf.certificate_pem, now()).is_err());
    assert!(bundle::merge(&authority.certificate_pem()[..200], authority.certificate_pem(), now()).is_err());
}

/// Verifies chain and name as a client does, at the fixed time of these tests.
fn verify(leaf: &str, roots: &str) -> Result<(), rustls::Error> {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).unwrap();
    let roots = std::sync::Arc::new(bundle::roots(roots).unwrap());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, outrigger_certs::provider())
        .build()
        .unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(now().as_second().unsigned_abs()));
    verifier
        .verify_server_cert(&leaf, &[], &ServerName::try_from(NAME).unwrap(), &[], at)
        .map(|_| ())
}

#[test]
fn an_authority_is_read_with_its_own_key_only() {
    let (one, two) = (authority("one").issued().clone(), authority("two").issued().clone());
    let read = Authority::from_issued(one.clone()).unwrap();
    assert_eq!(read.issued(), &one);
    assert_eq!(read.validity(), Validity::starting(now(), 48 * HOUR));
    let mixed = Issued {
        key_pem: two.key_pem,
        ..one
    };
    assert!(Authority::from_issued(mixed).is_err());
    let leaf = read.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
    assert!(Authority::from_issued(leaf).is_err(), "not an authority");
}

#[test]
fn an_authority_knows_what_it_signed() {
    let (one, two) = (authority("one"), authority("one"));
    let leaf = one.issue(&[NAME], Validity::starting(now(), HOUR)).unwrap();
    let pair = Pair::from_issued(&source(Path::new("Secret")), &leaf, &outrigger_certs::provider(), now()).unwrap();
    assert!(one.signed(&pair, &outrigger_certs::provider()));
    assert!(
        !two.signed(&pair, &outrigger_certs::provider()),
        "the name alone is the same"
    );
}

#[test]
fn a_successor_is_due_after_two_thirds_of_the_life() {
    let validity = Validity::starting(now(), 3 * HOUR);
    assert_eq!(validity.renewal(), now() + 2 * HOUR);
}

#[test]
fn a_bundle_is_extended_once() {
    let (old, new) = (authority("old"), authority("new"));
    let (old, new) = (old.certificate_pem(), new.certificate_pem());
    let both = bundle::extend(old, new, now()).unwrap().unwrap();
    assert!(bundle::contains(&both, old) && bundle::contains(&both, new));
    assert_eq!(bundle::extend(&both, new, now()).unwrap(), None);
    assert_eq!(
        bundle::extend(&both, old, now()).unwrap(),
        None,
        "the order does not matter"
    );
    assert!(!bundle::contains(old, new) && !bundle::contains("no PEM", new) && !bundle::contains(&both, ""));
    assert!(
        bundle::extend(&both, old, now() + 48 * HOUR).is_err(),
        "nothing valid would be left"
    );
}

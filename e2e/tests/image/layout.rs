//! Files, modes, owners, configuration and digests.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::{ARCHITECTURE, Image, build_command, dynamic_program, stand_ins, static_program};

/// `licences.rs` has the tests of these files, which depend on Cargo.lock and on the packages of the machine.
fn is_licence(line: &str) -> bool {
    line.contains(" licenses/third-party/")
}

/// The files of an image with static programs, without the licences of others.
const FILES: &str = "\
lrwxrwxrwx 0/0 1970-01-01 00:00:00 aws-cloud-controller-manager -> /usr/local/bin/outrigger-manager
drwxr-xr-x 0/0 1970-01-01 00:00:00 bin/
lrwxrwxrwx 0/0 1970-01-01 00:00:00 bin/aws-cloud-controller-manager -> /usr/local/bin/outrigger-manager
drwxr-xr-x 0/0 1970-01-01 00:00:00 etc/
-rw-r--r-- 0/0 1970-01-01 00:00:00 etc/group
-rw-r--r-- 0/0 1970-01-01 00:00:00 etc/nsswitch.conf
-rw-r--r-- 0/0 1970-01-01 00:00:00 etc/passwd
drwxr-xr-x 0/0 1970-01-01 00:00:00 etc/ssl/
drwxr-xr-x 0/0 1970-01-01 00:00:00 etc/ssl/certs/
-rw-r--r-- 0/0 1970-01-01 00:00:00 etc/ssl/certs/ca-certificates.crt
drwxr-xr-x 0/0 1970-01-01 00:00:00 licenses/
-rw-r--r-- 0/0 1970-01-01 00:00:00 licenses/LICENSE
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/bin/
lrwxrwxrwx 0/0 1970-01-01 00:00:00 usr/bin/kubectl-outrigger -> /usr/local/bin/outrigger
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/bin/
-rwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/bin/outrigger
-rwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/bin/outrigger-manager
-rwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/bin/outrigger-webhook
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/share/
drwxr-xr-x 0/0 1970-01-01 00:00:00 usr/local/share/sbom/
-rw-r--r-- 0/0 1970-01-01 00:00:00 usr/local/share/sbom/outrigger.cdx.json
";

#[tokio::test]
async fn static_programs_bring_no_library_and_every_file_is_roots() {
    let programs = stand_ins(&static_program().await);

    let image = Image::build(programs.path(), &[]);

    let expected: Vec<&str> = FILES.lines().collect();
    let (licences, files) = image
        .files()
        .into_iter()
        .partition::<Vec<_>, _>(|line| is_licence(line));
    assert_eq!(files, expected);
    let has_mode = |line: &String| {
        let modes = ["-rw-r--r-- 0/0 1970-", "drwxr-xr-x 0/0 1970-"];
        modes.iter().any(|mode| line.starts_with(mode))
    };
    assert!(licences.iter().all(has_mode), "{licences:?}");
    // The Containerfile copies this folder.
    assert!(image.root().join("usr/local/bin/outrigger-webhook").is_file());
}

/// `ldd` names them; a program of C needs at least a loader and libc.
#[test]
fn a_dynamic_program_brings_its_loader_and_its_libraries_and_nothing_else() {
    let programs = stand_ins(&dynamic_program());

    let image = Image::build(programs.path(), &[]);

    let fixed: Vec<&str> = FILES.lines().collect();
    let files = image.files();
    let added: Vec<&String> = files
        .iter()
        .filter(|line| !fixed.contains(&line.as_str()) && line.starts_with('-') && !is_licence(line))
        .collect();
    let has = |part: &str| added.iter().any(|line| line.contains(part));
    assert!(has("/ld-linux-") && has("/libc.so."), "{added:?}");
    assert!(added.iter().all(|line| line.contains(".so.")), "{added:?}");
    assert!(
        added.iter().all(|line| line.starts_with("-rwxr-xr-x 0/0 ")),
        "{added:?}"
    );
}

#[test]
fn the_same_programs_give_the_same_digest_and_one_byte_gives_another() {
    let programs = [stand_ins(&dynamic_program()), stand_ins(&dynamic_program())];
    let build = |folder: &Path| Image::build(folder, &[]);

    let (one, two) = (build(programs[0].path()), build(programs[1].path()));
    let archives = [&one, &two].map(|image| fs::read(image.path("outrigger.tar")).expect("the archive"));
    let webhook = programs[1].path().join("outrigger-webhook");
    let mut file = fs::File::options().append(true).open(webhook).expect("opened");
    file.write_all(b"x").expect("written");
    let changed = build(programs[1].path());

    assert_eq!(one.digest, two.digest);
    assert!(archives[0] == archives[1], "the archives differ");
    assert_ne!(one.digest, changed.digest);
}

#[test]
fn the_name_and_a_stricter_mode_of_new_files_do_not_change_the_digest() {
    let programs = stand_ins(&dynamic_program());
    let plain = Image::build(programs.path(), &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "umask 077; exec ../image/build --name=registry.example.com/o --programs={ARCHITECTURE}={} --output={}",
        programs.path().display(),
        folder.path().display()
    );

    let run = std::process::Command::new("sh")
        .args(["-c", &script])
        .env_remove("SOURCE_DATE_EPOCH")
        .output();

    let run = run.expect("sh");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stdout).trim(), plain.digest);
    let index = fs::read_to_string(folder.path().join("oci/index.json")).expect("the index");
    assert!(index.contains("\"registry.example.com/o:0.1.0\""), "{index}");
}

#[test]
fn the_configuration_is_that_of_the_containerfile() {
    let programs = stand_ins(&dynamic_program());

    let image = Image::build(programs.path(), &["--revision=0123abcd"]);

    let config = image.config();
    assert_eq!(config["architecture"], ARCHITECTURE);
    assert_eq!(config["os"], "linux");
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    assert_eq!(
        config["config"],
        json!({
            "User": "65532:65532",
            "Entrypoint": ["/usr/local/bin/outrigger-manager"],
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "outrigger",
                "org.opencontainers.image.description": "Migrates a Kubernetes cluster on AWS to the external cloud provider",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                "org.opencontainers.image.revision": "0123abcd",
            },
        })
    );
}

#[test]
fn links_lead_to_programs_and_users_have_names() {
    let programs = stand_ins(&dynamic_program());

    let image = Image::build(programs.path(), &[]);

    let root = image.root();
    for (link, program) in [
        ("bin/aws-cloud-controller-manager", "usr/local/bin/outrigger-manager"),
        ("aws-cloud-controller-manager", "usr/local/bin/outrigger-manager"),
        ("usr/bin/kubectl-outrigger", "usr/local/bin/outrigger"),
    ] {
        let target = fs::read_link(root.join(link)).expect("a link");
        assert_eq!(target, Path::new("/").join(program), "{link}");
        assert!(root.join(program).is_file(), "{program}");
    }
    let text = |name: &str| fs::read_to_string(root.join(name)).expect("a file");
    assert!(text("etc/passwd").contains("\nnonroot:x:65532:65532:"));
    assert!(text("etc/group").contains("\nnonroot:x:65532:"));
    assert_eq!(
        text("licenses/LICENSE"),
        fs::read_to_string("../LICENSE").expect("LICENSE")
    );
    let certificates = text("etc/ssl/certs/ca-certificates.crt")
        .matches("BEGIN CERTIFICATE")
        .count();
    assert!(certificates > 100, "{certificates} certificates");
}

/// Both would fail only in a cluster.
#[test]
fn a_missing_program_and_a_program_of_another_architecture_are_refused() {
    let output = tempfile::tempdir().expect("a folder");
    let programs = stand_ins(&dynamic_program());
    let refusal = || {
        let run = build_command(programs.path(), output.path()).output().expect("python3");
        assert!(!run.status.success());
        assert!(!output.path().join("digest").exists());
        String::from_utf8_lossy(&run.stderr).into_owned()
    };

    // The field e_machine of the header: a processor of 1990.
    let webhook = programs.path().join("outrigger-webhook");
    let mut program = fs::read(&webhook).expect("a program");
    program[18] = 4;
    fs::write(&webhook, program).expect("written");
    let message = refusal();
    assert!(
        message.contains("machine 4") && message.contains(ARCHITECTURE),
        "{message}"
    );

    fs::write(&webhook, "#!/bin/sh\n").expect("written");
    let message = refusal();
    assert!(message.contains("is no 64-bit ELF program"), "{message}");

    fs::remove_file(&webhook).expect("removed");
    let message = refusal();
    assert!(
        message.contains("outrigger-webhook is absent: build it first"),
        "{message}"
    );
}

/// Such a program would start, and resolve no name.
#[test]
fn a_c_library_that_loads_its_resolver_later_is_refused() {
    let programs = stand_ins(&dynamic_program());
    let output = tempfile::tempdir().expect("a folder");
    let ldd = programs.path().join("ldd");
    fs::write(&ldd, "#!/bin/sh\necho 'ldd (Debian GLIBC 2.31-13) 2.31'\n").expect("written");
    fs::set_permissions(&ldd, fs::Permissions::from_mode(0o755)).expect("executable");
    let path = std::env::var("PATH").expect("PATH");

    let run = build_command(programs.path(), output.path())
        .env("PATH", format!("{}:{path}", programs.path().display()))
        .output()
        .expect("python3");

    let message = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(!run.status.success() && message.contains("LIBC=musl"), "{message}");
}

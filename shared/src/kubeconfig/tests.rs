use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const SECRET: &str = "a-token-that-no-message-may-hold";

/// Nothing that the loader does waits for anything.
fn loaded(path: &Path, author: Author) -> Result<kube::Config, Unusable> {
    let mut loading = pin!(config(path, author));
    match loading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the loader waits"),
    }
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: fine}}}}]\n\
         users: [{{name: fine, user: {{token: {SECRET}}}}}, {{name: tenant-a, user: {{{user}}}}}]\n"
    )
}

/// Reads a kubeconfig with these fields from a directory as Kubernetes mounts a Secret, with a key and a token. Beside
/// it is a directory with another token.
fn judged(author: Author, cluster: &str, user: &str) -> Result<(), String> {
    let root = tempfile::tempdir().unwrap();
    let (mount, others) = (root.path().join("mount"), root.path().join("others"));
    let data = mount.join("..2026_01_01_00_00_00.1");
    fs::create_dir_all(&data).unwrap();
    fs::create_dir(&others).unwrap();
    fs::write(others.join("token"), SECRET).unwrap();
    symlink(others.join("token"), mount.join("elsewhere")).unwrap();
    symlink("..2026_01_01_00_00_00.1", mount.join("..data")).unwrap();
    let text = kubeconfig(cluster, user).replace("ROOT", root.path().to_str().unwrap());
    for (name, text) in [("kubeconfig", text.as_str()), ("token", SECRET), ("key", SECRET)] {
        fs::write(data.join(name), text).unwrap();
        symlink(Path::new("..data").join(name), mount.join(name)).unwrap();
    }

    let result = loaded(&mount.join("kubeconfig"), author).map(drop);
    result.map_err(|error| {
        let told = error.to_string();
        assert!(!told.contains(SECRET), "{told}");
        told.replace(root.path().to_str().unwrap(), "ROOT")
    })
}

#[test]
fn credentials_from_programs_are_refused_without_what_they_hold() {
    let exec = format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{SECRET}]}}");
    let provider = format!("auth-provider: {{name: gcp, config: {{cmd-path: /bin/sh, access-token: {SECRET}}}}}");
    let oidc = format!("auth-provider: {{name: oidc, config: {{refresh-token: {SECRET}}}}}");
    for (user, field) in [
        (exec, "field exec"),
        (provider, "field auth-provider"),
        (oidc, "field auth-provider"),
    ] {
        let told = judged(Author::Tenant, "", &user).unwrap_err();
        assert!(told.contains(r#"user "tenant-a""#) && told.contains(field), "{told}");
        assert!(told.contains("use token"), "{told}");
        assert_eq!(judged(Author::Operator, "", &user), Ok(()));
    }
    assert_eq!(judged(Author::Tenant, "", ""), Ok(()));
}

#[test]
fn a_tenants_kubeconfig_names_only_files_beside_it() {
    const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/../../../../../etc/hostname";
    for (field, of_user) in [
        ("tokenFile", true),
        ("client-certificate", true),
        ("client-key", true),
        ("certificate-authority", false),
    ] {
        let judged = |author, path: &str| match of_user {
            true => judged(author, "", &format!("{field}: '{path}'")),
            false => judged(author, &format!("{field}: '{path}'"), ""),
        };
        for path in [
            "ROOT/others/token",
            "../others/token",
            "elsewhere",
            "ROOT/mount/../others/token",
        ] {
            let told = judged(Author::Tenant, path).unwrap_err();
            let entry = if of_user {
                r#"user "tenant-a""#
            } else {
                r#"cluster "c""#
            };
            assert!(told.starts_with(&format!("{entry} has {field}: ")), "{told}");
            assert!(
                told.contains("folder ROOT/mount ") && told.contains("put the file beside"),
                "{told}"
            );
        }
        let told = judged(Author::Tenant, "nothing").unwrap_err();
        assert!(told.contains("mount/nothing, which cannot be found"), "{told}");
        assert!(judged(Author::Tenant, ACCOUNT).is_err(), "{field}");
    }
}

#[test]
fn files_of_a_mounted_secret_are_usable() {
    for path in ["token", "ROOT/mount/token", "./token", "..data/token"] {
        assert_eq!(
            judged(Author::Tenant, "", &format!("tokenFile: '{path}'")),
            Ok(()),
            "{path}"
        );
    }
    let both = "client-certificate: key, client-key: ROOT/mount/key";
    assert_eq!(judged(Author::Tenant, "", both), Ok(()));
}

#[test]
fn the_operators_kubeconfig_may_name_any_file() {
    assert_eq!(judged(Author::Operator, "", "tokenFile: ROOT/others/token"), Ok(()));
    assert_eq!(judged(Author::Operator, "", "client-key: ../others/token"), Ok(()));
}

#[test]
fn a_folder_that_holds_every_file_holds_none_of_the_kubeconfigs() {
    let file = Place {
        entry: "user \"a\"".to_owned(),
        field: "tokenFile",
        path: "/etc/hostname".to_owned(),
    };
    assert!(matches!(file.is_in(Path::new("/")), Err(Unusable::Outside(..))));
    assert!(file.is_in(Path::new("/etc")).is_ok());
}

#[test]
fn no_fault_of_the_file_shows_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let users = format!("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user:\n    token: {SECRET}\n");
    for (case, text) in [
        ("the token alone", SECRET.to_owned()),
        ("a list for a token", users.replace(SECRET, &format!("[{SECRET}]"))),
        ("the token twice", format!("{users}    token: {SECRET}\n")),
        ("an indent after it", format!("{users}   x: y\n")),
        (
            "no map of users",
            format!("apiVersion: v1\nkind: Config\nusers: {SECRET}\n"),
        ),
    ] {
        fs::write(&path, text).unwrap();
        for author in [Author::Operator, Author::Tenant] {
            let error = loaded(&path, author).err().unwrap();
            let told = format!("{error} {error:?}");
            assert!(told.contains("line "), "{case}: {told}");
            assert!(!told.contains(SECRET), "{case}: {told}");
        }
    }
}

#[test]
fn only_the_proxy_of_the_current_cluster_counts() {
    for (fields, expected) in [
        ("proxy-url: 'http://proxy:1'", true),
        ("proxy-url: ''", false),
        ("", false),
    ] {
        let file = Kubeconfig::from_yaml(&kubeconfig(fields, "")).unwrap();
        assert_eq!(names_proxy(&file), expected, "{fields}");
    }
    let other = kubeconfig("", "").replace(
        "clusters: [",
        "clusters: [{name: o, cluster: {proxy-url: 'http://p'}}, ",
    );
    assert!(!names_proxy(&Kubeconfig::from_yaml(&other).unwrap()));
}

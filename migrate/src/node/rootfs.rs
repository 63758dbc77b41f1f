//! Paths of the machine, below `--rootfs`. The disk of another machine is not trusted: its links and records can name
//! every path. Links are followed here, as that machine follows them, so none leads out. Nothing else may write to the
//! disk meanwhile. (`openat2` with `RESOLVE_IN_ROOT` needs Linux 5.6, and Nodes with Kubernetes 1.22 have older ones.)

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::error::Error;
use crate::args::MachineArgs;

/// As Linux has it: <https://man7.org/linux/man-pages/man7/path_resolution.7.html>.
const MAX_LINKS: usize = 40;

impl MachineArgs {
    /// Where this process finds a path of the machine. If the path itself is a link, it is that of the link.
    pub(super) fn real(&self, path: &Path) -> Result<PathBuf, Error> {
        resolve(&self.rootfs, path, false).map_err(|source| Error::io(path, source))
    }

    /// Where this process finds a path of the machine; if it is a link, what it leads to.
    pub(super) fn followed(&self, path: &Path) -> Result<PathBuf, Error> {
        resolve(&self.rootfs, path, true).map_err(|source| Error::io(path, source))
    }
}

fn resolve(rootfs: &Path, path: &Path, follows_last: bool) -> io::Result<PathBuf> {
    // Without links; below the root.
    let mut found = PathBuf::new();
    let mut left = names(path);
    let mut links = 0;

    while let Some(name) = left.pop() {
        if name == ".." {
            found.pop();
            continue;
        }
        found.push(name);
        if left.is_empty() && !follows_last {
            break;
        }

        let place = rootfs.join(&found);
        match fs::symlink_metadata(&place) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(ErrorKind::TooManyLinks.into());
                }
                let target = fs::read_link(&place)?;
                match target.is_absolute() {
                    true => found.clear(),
                    false => drop(found.pop()),
                }
                left.extend(names(&target));
            }
            // A name that does not exist leads nowhere.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }

    Ok(rootfs.join(found))
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_path_and_no_link_leads_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("disk");
        fs::create_dir_all(root.join("etc/kubernetes")).unwrap();
        fs::create_dir_all(root.join("big/kubelet")).unwrap();
        fs::create_dir_all(root.join("var/lib")).unwrap();
        symlink("/big/kubelet", root.join("var/lib/kubelet")).unwrap();
        symlink("../../../../../../host", root.join("etc/up")).unwrap();
        symlink("kubernetes", root.join("etc/k")).unwrap();
        symlink("/etc/a", root.join("etc/b")).unwrap();
        symlink("/etc/b", root.join("etc/a")).unwrap();

        for (path, expected) in [
            ("/etc/kubernetes/x", Some("etc/kubernetes/x")),
            ("/etc/./k/x", Some("etc/kubernetes/x")),
            ("/etc/k", Some("etc/k")),
            ("/etc/k/../k", Some("etc/k")),
            ("/var/lib/kubelet/config.yaml", Some("big/kubelet/config.yaml")),
            ("/a/../../../host/cron.d/job", Some("host/cron.d/job")),
            ("/etc/up/cron.d", Some("host/cron.d")),
            ("/absent/x/y", Some("absent/x/y")),
            ("/etc/a/x", None),
        ] {
            let real = resolve(&root, Path::new(path), false).ok();
            assert_eq!(real, expected.map(|expected| root.join(expected)), "{path}");
        }
        let followed = resolve(&root, Path::new("/var/lib/kubelet"), true).unwrap();
        assert_eq!(followed, root.join("big/kubelet"));
    }
}

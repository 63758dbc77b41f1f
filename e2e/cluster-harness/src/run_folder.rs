//! The folder of a run: it goes with a run that went well, and stays for whoever looks why one did not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A process that was killed a moment ago may still write a file, which makes its folder hard to remove.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// A folder for one run, removed when it is dropped. A panic keeps it and tells where it is.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    kept: AtomicBool,
}

impl RunFolder {
    /// A new one in the system's folder for temporary files, whose name begins with `prefix`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(prefix: &str) -> std::io::Result<Self> {
        Ok(Self {
            path: tempfile::Builder::new().prefix(prefix).tempdir()?.keep(),
            kept: AtomicBool::new(false),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it stay, and says where it is. etcd's data goes when the folder is dropped: 128 MB that nobody reads.
    pub fn keep(&self) -> &Path {
        self.kept.store(true, Ordering::Relaxed);
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.kept.load(Ordering::Relaxed) {
            eprintln!("logs: {}", self.keep().display());
        }
        if self.kept.load(Ordering::Relaxed) {
            remove(&self.path.join("etcd/data"));
        } else {
            remove(&self.path);
        }
    }
}

fn remove(folder: &Path) {
    for _ in 0..TRIES {
        if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    eprintln!("{} cannot be removed", folder.display());
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn with_data() -> RunFolder {
        let folder = RunFolder::new("outrigger-folder-test-").expect("a folder");
        std::fs::create_dir_all(folder.path().join("etcd/data/member")).expect("a folder");
        std::fs::write(folder.path().join("etcd/etcd.log"), "log").expect("written");
        folder
    }

    #[test]
    fn a_good_run_leaves_nothing_behind() {
        let folder = with_data();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_kept_or_panics_leaves_its_logs_without_etcds_data() {
        for panics in [false, true] {
            let folder = with_data();
            let path = folder.path().to_owned();
            let ended = catch_unwind(AssertUnwindSafe(move || {
                let folder = folder;
                assert!(!panics, "on purpose");
                folder.keep();
            }));
            assert_eq!(ended.is_err(), panics);
            assert!(path.join("etcd/etcd.log").exists() && !path.join("etcd/data").exists());
            std::fs::remove_dir_all(path).expect("removed");
        }
    }

    #[test]
    fn a_folder_that_is_still_written_to_goes_all_the_same() {
        let folder = with_data();
        let path = folder.path().to_owned();
        let data = path.join("etcd/data");
        let writer = std::thread::spawn(move || {
            let begun = std::time::Instant::now();
            for number in 0.. {
                if begun.elapsed() > Duration::from_millis(300) {
                    return;
                }
                let _ = std::fs::write(data.join(number.to_string()), "");
            }
        });
        drop(folder);
        writer.join().expect("it ends");
        assert!(!path.exists());
    }
}

//! The programs of this workspace that tests start, and flags of cloud controller managers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use outrigger_cluster_harness::repository;

const BUILD: &str = "run `cargo build --workspace` (or `make binaries`; for benches `make binaries-bench`)";

/// Binaries of this workspace, beside the program that runs.
#[derive(Debug, Clone)]
pub struct Binaries {
    pub manager: PathBuf,
    pub webhook: PathBuf,
}

impl Binaries {
    /// Finds them in the folder of the running program, or its parent (a test runs in `deps`).
    ///
    /// # Errors
    /// As [`Binaries::one`].
    pub fn find() -> Result<Self> {
        Ok(Self {
            manager: Self::one("outrigger-manager")?,
            webhook: Self::one("outrigger-webhook")?,
        })
    }

    /// Finds one of any name there.
    ///
    /// # Errors
    /// When it is not built, or is older than its sources.
    pub fn one(name: &str) -> Result<PathBuf> {
        let running = std::env::current_exe().context("where this program is")?;
        let mut folders = running.ancestors().skip(1).take(2);
        let program = folders
            .find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
            .with_context(|| format!("{name} is not built: {BUILD}"))?;

        check_age(&program, &repository::root())?;
        Ok(program)
    }
}

/// Refuses a program that cargo would build anew, by the sources of all workspace members that cargo lists beside it:
/// <https://doc.rust-lang.org/cargo/reference/build-cache.html#dep-info-files>.
///
/// Clones may share a target folder, and the last build writes the list. Another clone's program passes where it has
/// the same sources.
fn check_age(program: &Path, workspace: &Path) -> Result<()> {
    let list = program.with_extension("d");
    let text = std::fs::read_to_string(&list).with_context(|| format!("reading {}: {BUILD}", list.display()))?;
    let sources = sources(&text);
    ensure!(!sources.is_empty(), "{} lists no source: {BUILD}", list.display());

    let built = program.metadata().and_then(|file| file.modified())?;
    let program = program.display();
    for source in sources {
        let own = if source.starts_with(workspace) {
            source
        } else {
            counterpart(&source, workspace)
                .with_context(|| format!("{program} was built in another clone from other sources: {BUILD}"))?
        };

        let changed = own.metadata().and_then(|file| file.modified());
        let own = own.display();
        let changed = changed.with_context(|| format!("{program} was built from {own}: {BUILD}"))?;
        ensure!(changed <= built, "{program} is older than {own}: {BUILD}");
    }

    Ok(())
}

/// The file of this clone with the path and the content of another clone's source. Of a clone that is gone the path
/// counts.
fn counterpart(source: &Path, root: &Path) -> Option<PathBuf> {
    let ends = (1..source.iter().count()).map(|skipped| source.iter().skip(skipped).collect::<PathBuf>());
    let own = ends.map(|end| root.join(end)).find(|file| file.is_file())?;

    let is_same = std::fs::read(source).map_or(true, |content| std::fs::read(&own).is_ok_and(|own| own == content));
    is_same.then_some(own)
}

/// The files after `TARGET:`. A space in a name follows a backslash.
fn sources(list: &str) -> Vec<PathBuf> {
    let files = list.split_once(": ").map_or("", |(_, files)| files);
    let files = files.replace("\\ ", "\0");
    let names = files.split_whitespace().map(|name| name.replace('\0', " "));
    names.map(PathBuf::from).collect()
}

/// The flags of a cloud controller manager that runs beside no other, ours or the incumbent, for one cluster and one
/// cloud config, without routes and without an HTTPS port.
pub fn manager_flags(cloud_config: &Path, kubeconfig: &Path) -> [String; 7] {
    let kubeconfig = kubeconfig.display();
    [
        "--cloud-provider=aws".to_owned(),
        format!("--cloud-config={}", cloud_config.display()),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--configure-cloud-routes=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::check_age;

    struct Program {
        folder: tempfile::TempDir,
        program: PathBuf,
    }

    impl Program {
        /// A program and its two sources, which are older.
        fn built() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path();
            let program = root.join("outrigger-manager");
            let sources = ["main.rs", "with space.rs"].map(|name| root.join(name));
            let names = sources
                .each_ref()
                .map(|source| source.display().to_string().replace(' ', "\\ "));
            let list = format!("{}: {} {}\n", program.display(), names[0], names[1]);

            fs::write(program.with_extension("d"), list).expect("written");
            for file in sources.iter().chain([&program]) {
                fs::write(file, "").expect("written");
            }
            let built = Self { folder, program };
            sources.iter().for_each(|source| built.date(source, 10));
            built.date(&built.program, 5);

            built
        }

        fn date(&self, file: &Path, seconds_ago: u64) {
            let now = self.folder.path().metadata().and_then(|folder| folder.modified());
            let time = now.expect("a time") - Duration::from_secs(seconds_ago);
            let file = File::options().write(true).open(file).expect("opened");
            file.set_modified(time).expect("dated");
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn refusal(&self, root: &Path) -> String {
            let refused = check_age(&self.program, root).expect_err("refused");
            let message = format!("{refused:#}");
            assert!(message.contains("make binaries"), "{message}");
            message
        }
    }

    #[test]
    fn a_program_newer_than_its_sources_passes() {
        let built = Program::built();
        check_age(&built.program, built.folder.path()).expect("it is fresh");
    }

    #[test]
    fn a_program_older_than_one_source_is_refused_by_name() {
        for name in ["main.rs", "with space.rs"] {
            let built = Program::built();
            built.date(&built.path(name), 0);
            let message = built.refusal(built.folder.path());
            assert!(message.contains("is older than") && message.contains(name), "{message}");
        }
    }

    #[test]
    fn a_program_without_a_source_or_without_a_list_is_refused() {
        let built = Program::built();
        let root = built.folder.path();
        fs::remove_file(built.path("main.rs")).expect("removed");
        assert!(built.refusal(root).contains("main.rs"));

        fs::write(built.path("outrigger-manager.d"), "outrigger-manager:\n").expect("written");
        assert!(built.refusal(root).contains("lists no source"));

        fs::remove_file(built.path("outrigger-manager.d")).expect("removed");
        assert!(built.refusal(root).contains("outrigger-manager.d"));
    }

    #[test]
    fn another_clones_program_passes_with_the_same_sources_only() {
        let (built, other) = (Program::built(), Program::built());
        let root = other.folder.path();
        check_age(&built.program, root).expect("the same sources");

        other.date(&other.path("main.rs"), 0);
        assert!(built.refusal(root).contains("is older than"));

        fs::write(other.path("main.rs"), "fn main() {}").expect("written");
        other.date(&other.path("main.rs"), 10);
        assert!(built.refusal(root).contains("from other sources"));

        fs::remove_file(other.path("main.rs")).expect("removed");
        assert!(built.refusal(root).contains("from other sources"));
    }
}

//! The packages of the workspace, from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name in `Cargo.toml`.
    pub name: String,
    /// The root files of its library, programs, integration tests and benchmarks.
    pub roots: Vec<Root>,
    /// The packages of the workspace on which it depends, those of its tests included.
    pub dependencies: BTreeSet<String>,
    /// All packages on which its library and its programs depend.
    pub needs: BTreeSet<String>,
}

/// The root file of a library, a program, an integration test or a benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The file below the root of the project.
    pub file: PathBuf,
    /// The name by which other files import it; programs and tests have one of their own.
    pub name: String,
    /// Whether it is only built for tests and benchmarks.
    pub is_test: bool,
}

/// Reads the packages of the workspace at `root`, sorted by name.
///
/// # Errors
/// When cargo does not run, or prints something unexpected.
pub fn read(root: &Path) -> Result<Vec<Package>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--format-version=1", "--offline"]);

    let output = cargo.current_dir(root).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }

    let metadata: Value = serde_json::from_slice(&output.stdout).context("the output of cargo metadata")?;
    let listed = list(&metadata, "packages")?;
    let names: BTreeSet<&str> = listed.iter().filter_map(|package| package["name"].as_str()).collect();

    let packages = listed.iter().map(|package| parse(package, root, &names));
    let mut packages = packages.collect::<Result<Vec<_>>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));

    Ok(packages)
}

fn parse(package: &Value, root: &Path, names: &BTreeSet<&str>) -> Result<Package> {
    let mut roots = Vec::new();
    for target in list(package, "targets")? {
        let kinds = list(target, "kind")?;
        let is = |kind: &str| kinds.iter().any(|of| of == kind);
        if is("custom-build") {
            continue;
        }

        let name = text(target, "name")?.replace('-', "_");
        roots.push(Root {
            file: below(root, text(target, "src_path")?)?,
            // A program may have the name of the library beside it.
            name: if is("lib") {
                name
            } else {
                format!("{name} ({})", kinds[0].as_str().unwrap_or_default())
            },
            is_test: is("test") || is("bench"),
        });
    }

    let (mut dependencies, mut needs) = (BTreeSet::new(), BTreeSet::new());
    for dependency in list(package, "dependencies")? {
        let name = text(dependency, "name")?;
        if names.contains(name) {
            dependencies.insert(name.to_owned());
        }
        if dependency["kind"] != "dev" {
            needs.insert(name.to_owned());
        }
    }

    Ok(Package {
        name: text(package, "name")?.to_owned(),
        roots,
        dependencies,
        needs,
    })
}

fn below(root: &Path, path: &str) -> Result<PathBuf> {
    let relative = Path::new(path).strip_prefix(root);
    let relative = relative.with_context(|| format!("{path} is not below {}", root.display()))?;
    Ok(relative.to_owned())
}

fn text<'a>(of: &'a Value, key: &str) -> Result<&'a str> {
    let text = of[key].as_str();
    text.with_context(|| format!("cargo metadata has no text {key:?}"))
}

fn list<'a>(of: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    let list = of[key].as_array();
    list.with_context(|| format!("cargo metadata has no list {key:?}"))
}

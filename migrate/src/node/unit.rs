//! The unit of the kubelet with its drop-ins, as systemd reads them.
//!
//! Folders and masks: <https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html#Description>. A file of
//! an earlier folder masks files of its name in later ones; drop-ins apply in the order of their names; an empty
//! assignment resets a list.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use outrigger_shared::limited_file;

use super::error::Error;
use super::words::{self, Text};
use crate::args::MachineArgs;

/// Folders with units and drop-ins, the most important first.
const FOLDERS: [&str; 7] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The unit that kubeadm's packages install, for a machine without one.
/// <https://github.com/kubernetes/release/blob/v0.16.9/cmd/krel/templates/latest/kubeadm/10-kubeadm.conf>
const DEFAULT: &str = "\
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
";

/// Where a setting is: a file, and the number of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub path: PathBuf,
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}, line {}", self.path.display(), self.line)
    }
}

/// `Environment=NAME=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub place: Place,
    pub name: String,
    pub value: String,
}

/// `EnvironmentFile=PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EnvironmentFile {
    pub place: Place,
    pub path: PathBuf,
    /// With `-` before the path: the file may be absent.
    pub is_optional: bool,
}

/// `ExecStart=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub place: Place,
    /// Program and arguments, before variables are replaced.
    pub words: Vec<String>,
    /// False with the prefix `:`.
    pub has_variables: bool,
}

/// The settings of all files together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Service {
    pub variables: Vec<Variable>,
    pub files: Vec<EnvironmentFile>,
    pub commands: Vec<Command>,
    /// `UnsetEnvironment=` and `PassEnvironment=`, with the names.
    pub other: Vec<(Place, String)>,
}

/// Reads the unit of the kubelet.
///
/// # Errors
/// When a file cannot be read, or a setting is not certain.
pub(super) fn read(machine: &MachineArgs) -> Result<Service, Error> {
    let mut service = Service::default();
    let files = files(machine)?;
    if files.is_empty() {
        service.apply(Path::new("kubelet.service"), DEFAULT)?;
    }
    for (path, text) in files {
        service.apply(&path, &text)?;
    }

    Ok(service)
}

/// The unit and its drop-ins, in the order in which they apply.
fn files(machine: &MachineArgs) -> Result<Vec<(PathBuf, String)>, Error> {
    let folders = FOLDERS.map(Path::new);
    let mut files = Vec::new();
    for path in folders.map(|folder| folder.join("kubelet.service")) {
        if let Some(text) = text(machine, &path)? {
            files.push((path, text));
            break;
        }
    }

    // The first folder with a name wins. Drop-ins of all services are the least important.
    let mut drop_ins: BTreeMap<String, PathBuf> = BTreeMap::new();
    for name in ["kubelet.service.d", "service.d"] {
        for folder in folders.map(|folder| folder.join(name)) {
            for file in names(machine, &folder)? {
                let path = folder.join(&file);
                drop_ins.entry(file).or_insert(path);
            }
        }
    }
    for path in drop_ins.into_values() {
        let text = text(machine, &path)?;
        files.extend(text.map(|text| (path, text)));
    }

    Ok(files)
}

fn names(machine: &MachineArgs, folder: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(machine.followed(folder)?) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(folder, error)),
    };

    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| Error::io(folder, error))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if name.ends_with(".conf") && !name.starts_with('.') {
            names.push(name);
        }
    }

    Ok(names)
}

/// The text of a file; empty if it masks another one, as a link to `/dev/null`; none if there is no file.
pub(super) fn text(machine: &MachineArgs, path: &Path) -> Result<Option<String>, Error> {
    let real = machine.followed(path)?;
    if real == machine.rootfs.join("dev/null") {
        return Ok(Some(String::new()));
    }

    match limited_file::read_text(&real) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| Error::io(path, error)),
    }
}

/// A line of the section `[Service]`, with the lines that continue it.
struct Setting {
    line: usize,
    key: String,
    value: String,
}

fn settings(text: &str) -> Vec<Setting> {
    let (mut settings, mut section) = (Vec::new(), String::new());
    let mut lines = text.lines().zip(1..);
    while let Some((first, line)) = lines.next() {
        if is_comment(first) {
            continue;
        }

        let mut whole = first.trim_end().to_owned();
        while let Some(start) = whole.strip_suffix('\\') {
            let next = lines.by_ref().find(|(next, _)| !is_comment(next));
            whole = format!("{start} {}", next.map_or("", |(next, _)| next.trim_end()));
        }

        let whole = whole.trim();
        if whole.starts_with('[') {
            whole.clone_into(&mut section);
        } else if let Some((key, value)) = whole.split_once('=').filter(|_| section == "[Service]") {
            settings.push(Setting {
                line,
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            });
        }
    }

    settings
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with(['#', ';'])
}

impl Service {
    fn apply(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        for Setting { line, key, value } in settings(text) {
            let place = Place {
                path: path.to_owned(),
                line,
            };
            let failed = |cause: String| Error::Unit {
                cause: format!("{place} has a {key}= that cannot be read ({cause}); write it without that"),
            };
            match key.as_str() {
                "Environment" if value.is_empty() => self.variables.clear(),
                "Environment" => self.variables.extend(variables(&place, &value).map_err(failed)?),
                "EnvironmentFile" if value.is_empty() => self.files.clear(),
                "EnvironmentFile" => self.files.push(environment_file(&place, &value).map_err(failed)?),
                "ExecStart" if value.is_empty() => self.commands.clear(),
                "ExecStart" => self.commands.push(command(&place, &value).map_err(failed)?),
                "UnsetEnvironment" | "PassEnvironment" => self.other.push((place, value)),
                _ => {}
            }
        }

        Ok(())
    }
}

fn variables(place: &Place, value: &str) -> Result<Vec<Variable>, String> {
    let words = words::split(value, Text::Setting)?;
    let variables = words.iter().filter_map(|word| word.split_once('='));
    let variables = variables.map(|(name, value)| Variable {
        place: place.clone(),
        name: name.to_owned(),
        value: value.replace("%%", "%"),
    });
    Ok(variables.collect())
}

fn environment_file(place: &Place, value: &str) -> Result<EnvironmentFile, String> {
    let path = value.strip_prefix('-').unwrap_or(value);
    if let Some(letter) = path.chars().find(|letter| ['*', '?', '[', '%'].contains(letter)) {
        return Err(format!("{letter} in a path"));
    }

    Ok(EnvironmentFile {
        place: place.clone(),
        path: PathBuf::from(path),
        is_optional: value.starts_with('-'),
    })
}

fn command(place: &Place, value: &str) -> Result<Command, String> {
    let rest = value.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let prefix = value.get(..value.len() - rest.len()).unwrap_or_default();
    let mut words = words::split(rest, Text::Setting)?;
    // The second word is only the name that the process shows.
    if prefix.contains('@') && words.len() > 1 {
        words.remove(1);
    }
    if words.iter().any(|word| word == ";") {
        return Err("several commands".to_owned());
    }

    Ok(Command {
        place: place.clone(),
        words: words.iter().map(|word| word.replace("%%", "%")).collect(),
        has_variables: !prefix.contains(':'),
    })
}

//! The command line of the kubelet as systemd makes it, with the place of each flag, and its edit.
//!
//! Variables of `EnvironmentFile=` take precedence over those of `Environment=`, and the last file that sets a variable
//! over the others. `$NAME` as a word of its own is replaced by the words of the value, `${NAME}` inside a word by the
//! value as it is.
//! <https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#EnvironmentFile=>,
//! <https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines>

use std::path::Path;

use super::env_file::{self, Assignment, Variable};
use super::unit::{Place, Service};
use super::words::{self, Text};

/// kubeadm writes this file again at each upgrade, but only `KUBELET_KUBEADM_ARGS`.
pub(super) const KUBEADM_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";

/// The flags of the kubelet, in the order of its command line.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    pub words: Vec<Word>,
    variables: Vec<Used>,
    place: Place,
}

#[derive(Clone, Debug)]
pub(super) struct Word {
    pub text: String,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// `ExecStart=` itself.
    Command,
    /// A word of a variable, by the number of the variable.
    Variable(usize),
    /// A word of `ExecStart=` that contains variables.
    Mixed(usize),
}

/// A variable that the command line names.
#[derive(Clone, Debug)]
struct Used {
    name: String,
    setter: Setter,
    count: usize,
}

/// The last place that sets a variable.
#[derive(Clone, Debug)]
enum Setter {
    Nothing,
    Unit(Place),
    /// The number of the file in the list of the service.
    File(usize, Assignment),
}

/// The intended words.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// One for each word; none where it is removed.
    pub kept: Vec<Option<String>>,
    pub added: Vec<String>,
}

impl Flags {
    /// The command line with these texts, one for each file of the service.
    ///
    /// # Errors
    /// The reason and the fix, where it cannot be determined.
    pub fn of(service: &Service, texts: &[String]) -> Result<Self, String> {
        let command = match service.commands.as_slice() {
            [only] => only,
            [] => return Err("no unit of the kubelet has ExecStart=; give kubelet.service one".to_owned()),
            [.., last] => {
                return Err(format!(
                    "{} is not the first ExecStart= of the unit, with which systemd does not start it; write an empty \
                     ExecStart= before it",
                    last.place
                ));
            }
        };

        let environment = Environment { service, texts };
        let mut flags = Self {
            words: Vec::new(),
            variables: Vec::new(),
            place: command.place.clone(),
        };
        for word in arguments(&command.words, &command.place)? {
            if command.has_variables {
                flags.expand(word, &environment)?;
            } else {
                flags.push(word.clone(), Origin::Command);
            }
        }

        Ok(flags)
    }

    fn push(&mut self, text: String, origin: Origin) {
        self.words.push(Word { text, origin });
    }

    fn expand(&mut self, word: &str, environment: &Environment<'_>) -> Result<(), String> {
        let name = word.strip_prefix('$').filter(|name| !name.starts_with(['{', '$']));
        if let Some(name) = name {
            let (number, value) = self.variable(name, environment)?;
            for text in words::split(&value, Text::Variable)? {
                self.push(text, Origin::Variable(number));
            }
            return Ok(());
        }

        let (mut text, mut rest, mut origin) = (String::new(), word, Origin::Command);
        while let Some((before, behind)) = rest.split_once('$') {
            text.push_str(before);
            let name = behind.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            if let Some((name, behind)) = name {
                let (number, value) = self.variable(name, environment)?;
                origin = Origin::Mixed(number);
                text.push_str(&value);
                rest = behind;
            } else {
                // Two dollar signs are one; another one stands for itself.
                rest = behind.strip_prefix('$').unwrap_or(behind);
                text.push('$');
            }
        }
        self.push(text + rest, origin);

        Ok(())
    }

    /// The number and the value of a variable; an unset one is empty.
    fn variable(&mut self, name: &str, environment: &Environment<'_>) -> Result<(usize, String), String> {
        let (setter, value) = environment.find(name)?;
        let known = self.variables.iter().position(|used| used.name == name);
        let number = known.unwrap_or(self.variables.len());
        if known.is_none() {
            self.variables.push(Used {
                name: name.to_owned(),
                setter,
                count: 0,
            });
        }
        if let Some(used) = self.variables.get_mut(number) {
            used.count += 1;
        }

        Ok((number, value))
    }

    /// The numbers of the files that set a variable of the command line.
    pub fn files(&self) -> impl Iterator<Item = usize> {
        self.variables.iter().filter_map(|used| match used.setter {
            Setter::File(file, _) => Some(file),
            Setter::Nothing | Setter::Unit(_) => None,
        })
    }

    /// The texts of the files after a change.
    ///
    /// # Errors
    /// For each place that is not edited, the reason and the fix.
    pub fn edited(&self, service: &Service, texts: &[String], change: &Change) -> Result<Vec<String>, Vec<String>> {
        let mut obstacles = Vec::new();
        for (word, kept) in self.words.iter().zip(&change.kept) {
            let is_changed = kept.as_ref() != Some(&word.text);
            obstacles.extend(is_changed.then(|| self.obstacle(word, service)).flatten());
        }
        let target = (!change.added.is_empty()).then(|| self.target(service, texts));
        if target == Some(None) {
            let added = change.added.join(" ");
            obstacles.push(format!(
                "no variable of an environment file can get {added}; set KUBELET_EXTRA_ARGS={added} in {}",
                own_file(service).map_or("an EnvironmentFile= of the unit".into(), |path| path
                    .display()
                    .to_string())
            ));
        }
        if !obstacles.is_empty() {
            obstacles.dedup();
            return Err(obstacles);
        }

        let edited = self.written(service, texts, change, target.flatten());
        let edited = edited.map_err(|obstacle| vec![obstacle])?;
        self.verify(service, &edited, change, target.flatten())?;
        Ok(edited)
    }

    /// Why a word is not changed.
    fn obstacle(&self, word: &Word, service: &Service) -> Option<String> {
        let own = own_file(service).map_or("an EnvironmentFile= of the unit".into(), |path| {
            path.display().to_string()
        });
        let place = &self.place;
        let flag = flag_name(&word.text);
        match word.origin {
            Origin::Variable(number) => {
                let used = self.variables.get(number)?;
                (used.count > 1).then(|| {
                    format!(
                        "{place} has the variable {} more than once, so its {flag} is not edited; keep it once",
                        used.name
                    )
                })
            }
            Origin::Mixed(number) => {
                let used = self.variables.get(number)?;
                Some(format!(
                    "{place} makes {flag} of the variable {} ({}), which is not edited; move the flag to \
                     KUBELET_EXTRA_ARGS in {own}",
                    used.name,
                    used.setter.place(service)
                ))
            }
            Origin::Command => Some(format!(
                "{place} has {flag} in ExecStart=, which is not edited; move the flag to KUBELET_EXTRA_ARGS in {own}, and \
                 run systemctl daemon-reload"
            )),
        }
    }

    /// The variable that gets added flags: kubeadm creates its file on every machine.
    fn target(&self, service: &Service, texts: &[String]) -> Option<usize> {
        let can_have = |used: &Used| match &used.setter {
            Setter::File(file, assignment) if used.count == 1 => texts
                .get(*file)
                .is_some_and(|text| Variable::of(text, assignment).is_ok()),
            _ => false,
        };
        let is_kubeadms = |used: &Used| match used.setter {
            Setter::File(file, _) => service
                .files
                .get(file)
                .is_some_and(|file| file.path == Path::new(KUBEADM_FLAGS)),
            _ => false,
        };
        let numbers = || (0..).zip(&self.variables).filter(|(_, used)| can_have(used));
        let first = numbers()
            .find(|(_, used)| is_kubeadms(used))
            .or_else(|| numbers().next());
        first.map(|(number, _)| number)
    }

    fn written(
        &self,
        service: &Service,
        texts: &[String],
        change: &Change,
        target: Option<usize>,
    ) -> Result<Vec<String>, String> {
        let mut edits = Vec::new();
        let mut edited = texts.to_vec();
        for (number, used) in (0..).zip(&self.variables) {
            let added = if target == Some(number) {
                change.added.as_slice()
            } else {
                &[]
            };
            let own = self.words.iter().zip(&change.kept);
            let own = own.filter(|(word, _)| word.origin == Origin::Variable(number));
            let (words, kept): (Vec<&str>, Vec<Option<String>>) =
                own.map(|(word, kept)| (word.text.as_str(), kept.clone())).unzip();
            let is_same = words
                .iter()
                .zip(&kept)
                .all(|(word, kept)| kept.as_deref() == Some(word));
            if is_same && added.is_empty() {
                continue;
            }

            match &used.setter {
                Setter::File(file, assignment) => {
                    let text = texts.get(*file).map_or("", String::as_str);
                    let value = Variable::of(text, assignment);
                    let value = value.map_err(|cause| format!("{}: {cause}", used.setter.place(service)))?;
                    edits.push((*file, value.with(&kept, added)));
                }
                Setter::Unit(_) => {
                    let (file, line) = overriding(used, service, kept.into_iter().flatten())?;
                    if let Some(text) = edited.get_mut(file) {
                        append(text, &line);
                    }
                }
                Setter::Nothing => {}
            }
        }

        // The last ones first, so that the others keep their places.
        edits.sort_by_key(|(_, (place, _))| std::cmp::Reverse(place.start));
        for (file, (place, value)) in edits {
            if let Some(text) = edited.get_mut(file) {
                text.replace_range(place, &value);
            }
        }

        Ok(edited)
    }

    /// Reads the command line again.
    fn verify(
        &self,
        service: &Service,
        edited: &[String],
        change: &Change,
        target: Option<usize>,
    ) -> Result<(), Vec<String>> {
        let mut expected = Vec::new();
        let last = self
            .words
            .iter()
            .rposition(|word| target.is_some_and(|number| word.origin == Origin::Variable(number)));
        for (number, kept) in (0..).zip(&change.kept) {
            expected.extend(kept.clone());
            if last == Some(number) {
                expected.extend(change.added.iter().cloned());
            }
        }

        let found = Self::of(service, edited).map(|flags| flags.words);
        let found = found.map(|words| words.into_iter().map(|word| word.text).collect::<Vec<_>>());
        let is_same = match &found {
            // An empty variable gets the added flags between others.
            Ok(found) if last.is_none() && target.is_some() => {
                let mut found = found.clone();
                found.retain(|word| !change.added.contains(word));
                found == expected
            }
            Ok(found) => *found == expected,
            Err(_) => false,
        };
        if is_same {
            return Ok(());
        }
        Err(vec![format!(
            "the flags of {} would not be as intended after an edit of the environment files; write each variable once, in \
             one line",
            self.place
        )])
    }
}

/// The environment of the process.
struct Environment<'a> {
    service: &'a Service,
    texts: &'a [String],
}

impl Environment<'_> {
    fn find(&self, name: &str) -> Result<(Setter, String), String> {
        for (place, names) in &self.service.other {
            if names
                .split_whitespace()
                .any(|other| other.split('=').next() == Some(name))
            {
                return Err(format!(
                    "{place} removes or passes the variable {name}, so its value cannot be determined; remove that name"
                ));
            }
        }

        for (file, text) in self.texts.iter().enumerate().rev() {
            let assignments = env_file::assignments(text).into_iter();
            if let Some(found) = assignments.rev().find(|assignment| assignment.name == name) {
                let value = found.value.clone();
                return Ok((Setter::File(file, found), value));
            }
        }

        let in_unit = self
            .service
            .variables
            .iter()
            .rev()
            .find(|variable| variable.name == name);
        Ok(in_unit.map_or((Setter::Nothing, String::new()), |variable| {
            (Setter::Unit(variable.place.clone()), variable.value.clone())
        }))
    }
}

impl Setter {
    fn place(&self, service: &Service) -> String {
        match self {
            Self::Nothing => "set nowhere".to_owned(),
            Self::Unit(place) => place.to_string(),
            Self::File(file, _) => {
                let file = service.files.get(*file);
                file.map_or_else(String::new, |file| file.path.display().to_string())
            }
        }
    }
}

/// The arguments of a command that starts the kubelet.
fn arguments<'a>(words: &'a [String], place: &Place) -> Result<&'a [String], String> {
    let name = |word: &String| {
        Path::new(word)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    match words {
        [program, rest @ ..] if name(program).as_deref() == Some("kubelet") => Ok(rest),
        [program, kubelet, rest @ ..] if name(program).as_deref() == Some("hyperkube") && kubelet == "kubelet" => {
            Ok(rest)
        }
        _ => Err(format!(
            "{place} does not start the kubelet itself but {}, so its flags cannot be determined; start the kubelet in \
             ExecStart=, or set --cloud-provider=external in that program by hand and run the command with --component for \
             the others",
            words.first().map_or("nothing", String::as_str)
        )),
    }
}

/// The last file for the operator's flags.
fn own_file(service: &Service) -> Option<&Path> {
    own_file_number(service)
        .and_then(|number| service.files.get(number))
        .map(|file| file.path.as_path())
}

fn own_file_number(service: &Service) -> Option<usize> {
    service
        .files
        .iter()
        .rposition(|file| file.path != Path::new(KUBEADM_FLAGS))
}

/// A line that sets a variable of `Environment=` again, in a file that takes precedence.
fn overriding(used: &Used, service: &Service, words: impl Iterator<Item = String>) -> Result<(usize, String), String> {
    let Used { name, setter, .. } = used;
    let place = setter.place(service);
    let Some(file) = own_file_number(service) else {
        return Err(format!(
            "{place} sets flags in {name}, and the unit has no EnvironmentFile= for other values; add \
             EnvironmentFile=-/etc/default/kubelet to the drop-in, and run systemctl daemon-reload"
        ));
    };

    let words: Vec<String> = words.collect();
    if words
        .iter()
        .any(|word| word.is_empty() || word.contains(['"', '\'', '\\', '$', '`']) || word.contains(words::is_space))
    {
        return Err(format!(
            "{place} sets flags with quotes or spaces in {name}, which is not copied; write {name} into {} by hand",
            own_file(service).unwrap_or(Path::new("")).display()
        ));
    }

    Ok((file, format!("{name}=\"{}\"\n", words.join(" "))))
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

fn flag_name(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

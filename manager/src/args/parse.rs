//! A command line against the table, with the rules of Go's pflag.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::table::{self, Flag, Kind};
use super::value::{self, BadValue};
use crate::suggest;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Text(String),
    Int(i64),
    Float(f64),
    Duration(Duration),
    /// Of a list flag, or of one value for each occurrence.
    List(Vec<String>),
    Map(BTreeMap<String, String>),
}

#[derive(Debug, Default)]
pub struct CommandLine {
    values: BTreeMap<&'static str, Value>,
    set: BTreeSet<&'static str>,
    errors: Vec<String>,
}

impl CommandLine {
    /// Reads the arguments after the program's name. Everything wrong is collected, not only the first.
    pub fn read(arguments: &[String]) -> Self {
        let mut line = Self::default();
        for flag in table::all() {
            line.store(flag, flag.default, true);
        }

        let mut rest = arguments.iter().map(String::as_str);
        while let Some(argument) = rest.next() {
            if argument == "--" {
                rest.by_ref().for_each(|extra| line.positional(extra));
            } else if let Some(long) = argument.strip_prefix("--") {
                line.long(long, &mut rest);
            } else if argument.len() > 1 && argument.starts_with('-') {
                line.short(argument, &mut rest);
            } else {
                line.positional(argument);
            }
        }

        line
    }

    fn positional(&mut self, argument: &str) {
        self.errors.push(format!(
            "unexpected argument {argument:?}: this program takes flags only"
        ));
    }

    fn long<'a>(&mut self, body: &str, rest: &mut impl Iterator<Item = &'a str>) {
        let (name, given) = match body.split_once('=') {
            Some((name, given)) => (name, Some(given)),
            None => (body, None),
        };
        let Some(flag) = table::find(name) else {
            let hint = suggest::hint(name, table::all().map(|flag| flag.name), "--");
            self.errors.push(format!("unknown flag: --{name}{hint}"));
            return;
        };

        match given.or_else(|| bare(flag)).or_else(|| rest.next()) {
            Some(text) => self.store(flag, text, false),
            None => self.errors.push(format!("flag needs an argument: --{name}")),
        }
    }

    /// `-v 2`, `-v=2`, `-v2`, `-hv2`.
    fn short<'a>(&mut self, argument: &str, rest: &mut impl Iterator<Item = &'a str>) {
        let mut letters = argument[1..].chars();
        while let Some(letter) = letters.next() {
            let Some(flag) = table::find_short(letter) else {
                let name = argument.trim_start_matches('-').split('=').next().unwrap_or_default();
                let known =
                    table::find(name).map_or_else(String::new, |flag| format!("; did you mean --{}?", flag.name));
                self.errors
                    .push(format!("unknown shorthand flag: {letter:?} in {argument}{known}"));
                return;
            };

            let tail = letters.as_str();
            let attached = match tail.strip_prefix('=') {
                Some(value) => Some(value),
                None if bare(flag).is_none() && !tail.is_empty() => Some(tail),
                None => None,
            };

            match attached.or_else(|| bare(flag)).or_else(|| rest.next()) {
                Some(text) => self.store(flag, text, false),
                None => self
                    .errors
                    .push(format!("flag needs an argument: {letter:?} in {argument}")),
            }

            if attached.is_some() {
                return;
            }
        }
    }

    /// Sets a flag; a list or a map grows with each occurrence, the first of which replaces the default.
    fn store(&mut self, flag: Flag, text: &str, default: bool) {
        let again = self.set.contains(flag.name);
        match typed(flag, text, default) {
            Ok(new) => {
                let merged = match (self.values.remove(flag.name), new) {
                    (Some(Value::List(mut old)), Value::List(new)) if again => {
                        old.extend(new);
                        Value::List(old)
                    }
                    (Some(Value::Map(mut old)), Value::Map(new)) if again => {
                        old.extend(new);
                        Value::Map(old)
                    }
                    (_, new) => new,
                };
                self.values.insert(flag.name, merged);
            }
            Err(problem) => {
                self.errors
                    .push(format!("invalid argument {text:?} for --{}: {problem}", flag.name));
            }
        }

        if !default {
            self.set.insert(flag.name);
        }
    }

    pub fn set(&self) -> &BTreeSet<&'static str> {
        &self.set
    }

    /// Records a problem found by a later check, to be reported with the others.
    pub fn fail(&mut self, problem: String) {
        self.errors.push(problem);
    }

    /// Everything wrong so far; the list is empty afterwards.
    pub fn take_errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub fn bool(&mut self, name: &'static str) -> bool {
        match self.values.get(name) {
            Some(Value::Bool(on)) => *on,
            _ => self.disagreement(name),
        }
    }

    pub fn text(&mut self, name: &'static str) -> String {
        match self.values.get(name) {
            Some(Value::Text(text)) => text.clone(),
            _ => self.disagreement(name),
        }
    }

    /// A text flag's value; `None` when empty.
    pub fn some_text(&mut self, name: &'static str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// A number flag's value, which the table's bounds made fit.
    pub fn int<T: TryFrom<i64> + Default>(&mut self, name: &'static str) -> T {
        let number = match self.values.get(name) {
            Some(Value::Int(number)) => T::try_from(*number).ok(),
            _ => None,
        };
        number.unwrap_or_else(|| self.disagreement(name))
    }

    pub fn float(&mut self, name: &'static str) -> f64 {
        match self.values.get(name) {
            Some(Value::Float(number)) => *number,
            _ => self.disagreement(name),
        }
    }

    pub fn duration(&mut self, name: &'static str) -> Duration {
        match self.values.get(name) {
            Some(Value::Duration(duration)) => *duration,
            _ => self.disagreement(name),
        }
    }

    pub fn list(&mut self, name: &'static str) -> Vec<String> {
        match self.values.get(name) {
            Some(Value::List(list)) => list.clone(),
            _ => self.disagreement(name),
        }
    }

    pub fn map(&mut self, name: &'static str) -> BTreeMap<String, String> {
        match self.values.get(name) {
            Some(Value::Map(map)) => map.clone(),
            _ => self.disagreement(name),
        }
    }

    /// Reading a flag that the table lacks, or with another type, is a defect: it becomes an error in every run, never
    /// a silent default.
    fn disagreement<T: Default>(&mut self, name: &'static str) -> T {
        self.errors
            .push(format!("--{name}: the table of flags and its reader disagree"));
        T::default()
    }
}

/// The value of a flag without `=`; `None` if the next argument is its value.
fn bare(flag: Flag) -> Option<&'static str> {
    matches!(flag.kind, Kind::Bool | Kind::Version).then_some("true")
}

fn typed(flag: Flag, text: &str, default: bool) -> Result<Value, BadValue> {
    Ok(match flag.kind {
        Kind::Bool => Value::Bool(value::boolean(text)?),
        Kind::Text | Kind::Version => Value::Text(text.to_owned()),
        Kind::Int { min, max } => Value::Int(value::bounded(value::integer(text)?, min, max)?),
        Kind::Float => Value::Float(value::at_least_zero(value::float(text)?)?),
        Kind::Duration => Value::Duration(value::duration(text)?),
        Kind::List => Value::List(value::list(text)?),
        Kind::Repeated => Value::List(if default { Vec::new() } else { vec![text.to_owned()] }),
        Kind::Map => Value::Map(value::pairs(text)?),
        Kind::BoolMap => Value::Map(value::booleans(text)?),
    })
}

//! `--controllers`: which controllers run.

use outrigger_shared::controller::Controller;

use crate::suggest;

/// The controllers of this binary, in the order of the help.
pub const KNOWN: [Controller; 6] = Controller::ALL;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    entries: Vec<(Wanted, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    All,
    One(Controller),
}

impl Selection {
    pub fn none() -> Self {
        Self { entries: Vec::new() }
    }

    /// Reads the list: a name or an alias enables, a leading `-` disables, `*` enables all that are on by default.
    ///
    /// # Errors
    /// One message for each name that no controller has.
    pub fn read(names: &[String]) -> Result<Self, Vec<String>> {
        let mut entries = Vec::new();
        let mut errors = Vec::new();
        for name in names.iter().map(|name| name.trim()) {
            let (bare, on) = name.strip_prefix('-').map_or((name, true), |bare| (bare, false));
            match (bare, Controller::parse(bare)) {
                ("*", _) if on => entries.push((Wanted::All, on)),
                (_, Some(controller)) => entries.push((Wanted::One(controller), on)),
                _ => errors.push(unknown(bare)),
            }
        }

        if errors.is_empty() {
            Ok(Self { entries })
        } else {
            Err(errors)
        }
    }

    /// Whether the controller runs: the first entry that names it decides, then `*`; a controller that is off by
    /// default needs to be named.
    pub fn enabled(&self, controller: Controller) -> bool {
        let named = self
            .entries
            .iter()
            .find(|(wanted, _)| *wanted == Wanted::One(controller))
            .map(|(_, on)| *on);
        named.unwrap_or_else(|| on_by_default(controller) && self.entries.contains(&(Wanted::All, true)))
    }
}

/// Tagging needs its inputs, and on AWS node IPAM belongs to kube-controller-manager: both only run when named.
fn on_by_default(controller: Controller) -> bool {
    !matches!(controller, Controller::Tagging | Controller::NodeIpam)
}

fn unknown(name: &str) -> String {
    let spellings = KNOWN.iter().flat_map(|controller| controller.aliases().iter().copied());
    let hint = suggest::hint(name, spellings, "");
    let known: Vec<_> = KNOWN.iter().map(|controller| controller.canonical_name()).collect();
    format!(
        "--controllers: {name:?} is not in the list of known controllers{hint} (known: {})",
        known.join(", ")
    )
}

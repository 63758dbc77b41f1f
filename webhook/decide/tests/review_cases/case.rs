//! One review, and what must come of it.

use outrigger_shared::migration::Phase;

/// The phase of every migration in the file, and whether it is Prepared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MigrationState {
    InTree,
    Prepare,
    /// Migrate before the evidence is there.
    NotPrepared,
    Migrate,
    Complete,
}

impl MigrationState {
    pub fn phase(self) -> Phase {
        match self {
            Self::InTree => Phase::InTree,
            Self::Prepare => Phase::Prepare,
            Self::NotPrepared | Self::Migrate => Phase::Migrate,
            Self::Complete => Phase::Complete,
        }
    }
}

/// A part of what must come of a review.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expectation {
    NotOurs,
    Unchanged,
    Changed,
    Audited,
    Refused,
    /// A warning has this text.
    Warns(&'static str),
    /// No warning has it; the empty text stands for any warning.
    Silent(&'static str),
    /// A reason has this text.
    Because(&'static str),
    /// A line `/pointer: value` of the object, as it is stored then, has this text.
    Has(&'static str),
    /// None has it.
    Lacks(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The file; `#1` names its second object.
    pub object: &'static str,
    pub migrations: &'static str,
    pub at: MigrationState,
    /// The file of the object that is stored.
    pub over: Option<&'static str>,
    /// The object gets the label that the migrations select by.
    pub labelled: bool,
    pub expectations: &'static [Expectation],
}

pub(super) const fn row(
    object: &'static str,
    migrations: &'static str,
    at: MigrationState,
    expectations: &'static [Expectation],
) -> Case {
    Case {
        object,
        migrations,
        at,
        over: None,
        labelled: false,
        expectations,
    }
}

pub(super) const fn update(
    object: &'static str,
    over: &'static str,
    migrations: &'static str,
    at: MigrationState,
    expectations: &'static [Expectation],
) -> Case {
    Case {
        over: Some(over),
        ..row(object, migrations, at, expectations)
    }
}

impl Case {
    pub const fn labelled(self) -> Self {
        Self { labelled: true, ..self }
    }
}

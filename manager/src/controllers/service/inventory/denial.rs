//! A denied read that the controller can do without. It is reported once per process: the role is the same for all
//! Services.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outrigger_aws::Error;

#[derive(Debug, Default)]
pub struct Denial {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Allowed,
    /// It was denied, with this message, and no Event was emitted.
    Unreported(String),
    /// The Event was emitted.
    Reported,
}

impl Denial {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a denial.
    pub fn note(&self, error: &Error) -> bool {
        let mut state = self.state();
        let first = matches!(*state, State::Allowed);
        if first {
            *state = State::Unreported(error.to_string());
        }
        first
    }

    /// The message of the first denial, if it was not returned before.
    pub fn take_unreported(&self) -> Option<String> {
        let mut state = self.state();
        if !matches!(*state, State::Unreported(_)) {
            return None;
        }

        match std::mem::replace(&mut *state, State::Reported) {
            State::Unreported(message) => Some(message),
            State::Allowed | State::Reported => None,
        }
    }
}

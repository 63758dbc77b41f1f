//! The next change of the Secret, from its content, the registrations and the time.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use outrigger_certs::{Authority, IssueError, Validity, bundle};

use super::settings::Settings;
use super::state::{Leaf, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A CA and a serving certificate: there is none, or the CA has expired.
    Create,
    /// Another serving certificate of the same CA.
    Renew,
    /// The next CA, for the registrations; its key signs nothing yet.
    PrepareCa,
    /// The next CA replaces the present one, with a serving certificate of its own.
    ReplaceCa,
}

/// The step that is due. `trusted` tells whether the certificates of a CA may be served; see
/// [`Trust::settled`].
pub fn step(state: Option<&State>, trusted: impl Fn(&Authority) -> bool, now: Timestamp) -> Option<Step> {
    let Some(state) = state else {
        return Some(Step::Create);
    };

    let current = state.current.validity();
    let next = state.next.as_ref().filter(|next| now < next.validity().not_after);
    if now >= current.not_after {
        return Some(next.map_or(Step::Create, |_| Step::ReplaceCa));
    }
    if next.is_some_and(trusted) {
        return Some(Step::ReplaceCa);
    }
    if next.is_none() && now >= current.renewal() {
        return Some(Step::PrepareCa);
    }

    let is_due = |leaf: &Leaf| now >= leaf.validity.renewal() && leaf.validity.not_after < end(current);
    state.leaf.as_ref().is_none_or(is_due).then_some(Step::Renew)
}

/// The content of the Secret after a step.
///
/// # Errors
/// [`IssueError`] if a name is no DNS name or IP address, or signing fails.
pub fn perform(step: Step, state: Option<State>, settings: &Settings, now: Timestamp) -> Result<State, IssueError> {
    let (current, next, other_names) = match (step, state) {
        (Step::Create, _) | (_, None) => (new_authority(settings, now)?, None, Vec::new()),
        (Step::Renew, Some(state)) => (state.current, state.next, state.other_names),
        (Step::PrepareCa, Some(state)) => {
            let next = Some(new_authority(settings, now)?);
            return Ok(State { next, ..state });
        }
        (Step::ReplaceCa, Some(state)) => (
            state.next.map_or_else(|| new_authority(settings, now), Ok)?,
            None,
            Vec::new(),
        ),
    };

    let leaf = Some(issue(&current, &other_names, settings, now)?);
    Ok(State {
        current,
        next,
        leaf,
        other_names: Vec::new(),
    })
}

/// The certificate that a replica serves, and the CAs that API servers accept.
#[derive(Debug, Clone, Copy)]
pub struct Serving<'a> {
    /// The CA of the certificate that is served.
    pub ca: &'a str,
    /// Whether that certificate is valid now.
    pub is_valid: bool,
    /// `caBundle` of every entry; `None` if a registration cannot be read.
    pub bundles: Option<&'a [String]>,
}

impl Serving<'_> {
    /// Whether a certificate of `next_ca` replaces the served one. `is_settled` tells whether API servers accept it.
    ///
    /// A CA that is not in the registrations yet appears if the Secret was deleted. Its certificate waits as long as the
    /// served one is valid and some registration lacks the new CA, or all have the CA of the served one.
    pub fn may_change_to(&self, next_ca: &str, is_settled: bool) -> bool {
        let all_hold = |bundles: &[String], ca| bundles.iter().all(|bundle| bundle::contains(bundle, ca));
        let is_old_ca_gone = self
            .bundles
            .is_some_and(|bundles| all_hold(bundles, next_ca) && !all_hold(bundles, self.ca));
        self.ca == next_ca || is_settled || !self.is_valid || is_old_ca_gone
    }
}

/// The CAs that all registrations hold, and since when this process has observed that.
///
/// A new process starts without observations. That only defers the replacement of a CA.
#[derive(Debug, Default)]
pub struct Trust {
    since: HashMap<String, Timestamp>,
}

impl Trust {
    /// Records which of the `authorities` every one of `bundles` holds. `None` if a registration cannot be read.
    pub fn observe(&mut self, authorities: &[&str], bundles: Option<&[String]>, now: Timestamp) {
        let is_held = |authority: &str| {
            bundles.is_some_and(|bundles| bundles.iter().all(|bundle| bundle::contains(bundle, authority)))
        };
        let held: Vec<&str> = authorities.iter().copied().filter(|one| is_held(one)).collect();

        self.since.retain(|authority, _| held.contains(&authority.as_str()));
        for authority in held {
            self.since.entry(authority.to_owned()).or_insert(now);
        }
    }

    /// Whether all registrations have held the CA for `settle`, so that every API server uses it.
    pub fn settled(&self, authority: &str, settle: Duration, now: Timestamp) -> bool {
        self.since
            .get(authority)
            .is_some_and(|since| now.duration_since(*since).unsigned_abs() >= settle && now >= *since)
    }
}

fn new_authority(settings: &Settings, now: Timestamp) -> Result<Authority, IssueError> {
    // Each CA has another name, so that a bundle stays readable.
    let name = format!("outrigger-webhook-ca {now:.0}");
    Authority::new(&name, Validity::starting(now, settings.ca_lifetime))
}

fn issue(ca: &Authority, other_names: &[String], settings: &Settings, now: Timestamp) -> Result<Leaf, IssueError> {
    let others = other_names.iter().filter(|name| !settings.names.contains(name));
    let names: Vec<&str> = settings.names.iter().chain(others).map(String::as_str).collect();
    let mut validity = Validity::starting(now, settings.certificate_lifetime);
    validity.not_after = validity.not_after.min(end(ca.validity()));

    let issued = ca.issue(&names, validity)?;
    Ok(Leaf { issued, validity })
}

/// The end of a CA as its certificate states it: in whole seconds.
fn end(ca: Validity) -> Timestamp {
    Timestamp::from_second(ca.not_after.as_second()).unwrap_or(ca.not_after)
}

//! Both ensured after they went apart: AWS is the same, but for what v1.37.0 left behind.

use serde_json::{Value, json};

use super::super::super::compare::Problem;
use super::super::super::outcome::Event;
use super::targets::is_of_targets;
use super::{Both, good, known, problem};

impl Both<'_> {
    pub(super) fn of_ends(&self, index: usize) -> Vec<Problem> {
        let (theirs, account) = self.accounts(index);
        let (Some(there), Some(step)) = (self.theirs.get(index), self.ours.get(index)) else {
            return Vec::new();
        };

        let mut found = Vec::new();
        if there.service != step.service {
            found.push(problem(step, "service", "is another one", json!(step.service)));
        }

        for (object, fields) in &account {
            for (name, value) in fields {
                let field = format!("aws/{object}/{name}");
                let there = theirs.get(object).and_then(|fields| fields.get(name));
                let wanted = is_of_targets(&field) && self.has_wanted_targets(index, Some(value));
                if !wanted && !good::alike(&field, there, Some(value)) {
                    let what = format!("after a failure v1.37.0 has {}, ours", json!(there));
                    found.push(problem(step, &field, &what, value.clone()));
                }
            }
        }

        let ends = self.ours.iter().take(index + 1).flat_map(|outcome| &outcome.events);
        let is_end = |event: &&Event| known::ENDS_WELL.contains(&event.reason.as_str());
        if ends
            .rev()
            .find(is_end)
            .is_some_and(|event| event.reason == "DeletedLoadBalancer")
        {
            return found; // of what a failure left, ours finds more
        }

        let missing = theirs.keys().filter(|object| !account.contains_key(*object));
        for object in missing.filter(|object| !object.starts_with("target group ")) {
            found.push(problem(step, &format!("aws/{object}"), "ours has it not", Value::Null));
        }

        found
    }
}

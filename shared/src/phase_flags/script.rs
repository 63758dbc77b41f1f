//! Instructions for the owner of a shell script, which is never rewritten.

use super::{Change, Circumstances, Refusal, changes, flag};
use crate::{command_line::CommandLine, component::Component, migration::Phase, version::KubernetesVersion};

/// A script is never changed; the refusal names the flags that its owner has to write. The API server may do without
/// any flag.
pub(super) fn in_script(
    component: Component,
    line: &CommandLine,
    script: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<Change>, Refusal> {
    let untouched = matches!(
        (component, circumstances.phase),
        (_, Phase::InTree)
            | (Component::KubeApiserver | Component::Kubelet, Phase::Prepare)
            | (Component::CloudControllerManager, Phase::Complete)
    );
    if untouched {
        return Ok(Vec::new());
    }

    let circumstances = &Circumstances {
        own_configuration: circumstances.own_configuration.where_nothing_is_changed(),
        ..*circumstances
    };
    let needed = changes(component, script, circumstances);
    let hides = line.script_hides();

    if component == Component::KubeApiserver && needed.as_ref().is_ok_and(Vec::is_empty) {
        // Its flags become an error in 1.29.
        let is_harmless = circumstances
            .version
            .is_none_or(|version| version < KubernetesVersion::v1(29));
        if hides.is_none() || is_harmless {
            return Ok(Vec::new());
        }
    }

    if let Some(hides) = hides {
        let advice = advice_for_the_process(component, script, needed, circumstances);
        return Err(Refusal::Hidden { hides, advice });
    }

    let advice = match needed {
        Ok(changes) if changes.is_empty() => "nothing seems to be missing".to_owned(),
        Ok(changes) => format!("there, {}", in_words(&changes)),
        Err(refusal) => refusal.to_string(),
    };

    Err(Refusal::Script {
        found: found(script),
        advice,
    })
}

/// The flags that the process needs if it runs with the in-tree provider, which cannot be seen here.
fn advice_for_the_process(
    component: Component,
    script: &CommandLine,
    needed: Result<Vec<Change>, Refusal>,
    circumstances: &Circumstances,
) -> String {
    match needed {
        Ok(changes) if !changes.is_empty() => in_words(&changes),
        Err(refusal) => refusal.to_string(),
        Ok(_) => {
            let mut assumed = script.clone();
            // A script's words are a list that can always be added to.
            let is_set = assumed.set(flag::CLOUD_PROVIDER, super::AWS).is_ok();
            match changes(component, &assumed, circumstances) {
                Ok(changes) if is_set && !changes.is_empty() => {
                    format!("if that has --cloud-provider=aws, {}", in_words(&changes))
                }
                Err(refusal) => format!("if that has --cloud-provider=aws: {refusal}"),
                Ok(_) => "change them by hand".to_owned(),
            }
        }
    }
}

fn in_words(changes: &[Change]) -> String {
    changes.iter().map(Change::in_words).collect::<Vec<_>>().join(", ")
}

fn found(script: &CommandLine) -> String {
    let found = flag::ALL.iter().flat_map(|flag| {
        let values = script.values(*flag).unwrap_or_default();
        values.into_iter().map(|value| format!("--{}={value}", flag.name))
    });
    let found = found.collect::<Vec<_>>();
    if found.is_empty() {
        "none of the flags that a migration changes".to_owned()
    } else {
        found.join(", ")
    }
}

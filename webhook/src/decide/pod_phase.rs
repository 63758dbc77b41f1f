//! The phase that applies to a container, and warnings about its flags.

use outrigger_shared::{
    command_line::{CommandLine, Unreadable},
    component::{self, Certainty, Component, Finding, Form},
    migration::Phase,
    phase_flags::{self, Circumstances},
    version::KubernetesVersion,
};
use serde_json::Value;

use super::Migration;

/// The phase of the migration, or Prepare while it is not Prepared. `old` is the stored Pod or template.
pub(super) fn effective_phase(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    current: &CommandLine,
    original: &CommandLine,
    old: Option<&Value>,
) -> Phase {
    let Migration { spec, prepared, .. } = migration;
    let component = finding.component;
    let current = Form::of_command_line(current);
    let original = Form::of_command_line(original);
    let waits = match (component, &original) {
        // In Migrate it keeps leader migration, in Complete it loses it.
        (Component::CloudControllerManager, _) if spec.phase == Phase::Migrate => return spec.phase,
        // External also without a provider in its original.
        (Component::CloudControllerManager, _) | (Component::Kubelet, Form::NoProvider { .. }) => Form::InTree {
            leader_migration: false,
        },
        (_, form) => form.clone(),
    };

    let stored = old.and_then(|old| stored_form(old, component));
    let stays = has_left(component, &original, &current)
        || stored.is_some_and(|stored| has_left(component, &original, &stored));

    phase_flags::controller_manager_row(spec.phase, &waits, stays, *prepared, spec.downtime)
}

/// Whether the component is external already, so that missing evidence does not turn it back. An API server may have
/// lost its flag.
fn has_left(component: Component, original: &Form, now: &Form) -> bool {
    match (component, now) {
        (Component::CloudControllerManager, _) => false,
        (_, Form::External { .. }) => true,
        (Component::KubeApiserver, Form::NoProvider { .. }) => matches!(original, Form::InTree { .. }),
        _ => false,
    }
}

fn stored_form(old: &Value, component: Component) -> Option<Form> {
    let spec = old.get("spec")?;
    if component == Component::KubeControllerManager {
        return component::controller_manager_form(spec);
    }

    let findings = component::find(spec, old.pointer("/metadata/labels"));
    let finding = findings.iter().find(|finding| finding.component == component)?;
    let line = CommandLine::of_container(finding.container).ok()?;

    Some(Form::of_command_line(&line))
}

/// Warnings about flags before the change.
pub(super) fn warnings(
    migration: &Migration<'_>,
    finding: &Finding<'_>,
    original: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Vec<String>, Unreadable> {
    let Finding { component, name, .. } = *finding;
    let spec = migration.spec;
    let row = circumstances.phase;
    let mut warnings = Vec::new();

    if row < Phase::Migrate {
        warnings.extend(phase_flags::fatal(component, original, circumstances.version)?);
    }

    if row == Phase::Prepare && !spec.downtime {
        let expected = spec.kube_controller_manager_lease.as_str();
        warnings.extend(phase_flags::other_lease(component, original, expected)?);
    }

    let mut warnings: Vec<String> = warnings
        .into_iter()
        .map(|warning| format!("container {name:?}: {warning}"))
        .collect();
    if row != spec.phase && !spec.downtime {
        warnings.push(format!(
            "container {name:?} gets the flags of {row}, as the migration is not Prepared yet; wait for that condition or set spec.downtime"
        ));
    }

    Ok(warnings)
}

/// Why the original would not start any more: its version has no in-tree provider.
pub(super) fn fatal_undoing(
    component: Component,
    current: &CommandLine,
    original: &CommandLine,
    circumstances: &Circumstances,
) -> Result<Option<String>, Unreadable> {
    if circumstances.phase >= Phase::Migrate {
        return Ok(None);
    }
    let fatal = phase_flags::fatal(component, original, circumstances.version)?;
    // If the current flags fail for the same reason, the owner wrote them.
    let is_new = fatal.is_some() && phase_flags::fatal(component, current, circumstances.version)? != fatal;
    Ok(fatal.filter(|_| is_new))
}

/// InTree changes nothing, but warns of flags with which the version does not start.
pub(super) fn fatal_in_tree(migration: &Migration<'_>, finding: &Finding<'_>) -> Option<String> {
    if finding.certainty != Certainty::Recognized {
        return None;
    }

    let line = CommandLine::of_container(finding.container).ok()?;
    let warning = phase_flags::fatal(finding.component, &line, version(migration, finding));
    // A command line that cannot be read is reported from Prepare on.
    let warning = warning.ok().flatten()?;

    Some(format!("container {:?}: {warning}", finding.name))
}

/// A cloud-controller-manager has its own version, independent of the cluster. An image tag that is no version of
/// Kubernetes is ignored.
pub(super) fn version(migration: &Migration<'_>, finding: &Finding<'_>) -> Option<KubernetesVersion> {
    let own = finding.version();
    let cluster = migration.spec.version();
    if finding.component == Component::CloudControllerManager {
        return own;
    }
    own.filter(|own| cluster.is_none_or(|cluster| own.fits_cluster(cluster)))
        .or(cluster)
}

//! Rules that span several flags, and what a flag that was set does not do.

use std::time::Duration;

use outrigger_shared::controller::Controller;

use super::controllers::Selection;
use super::node_ipam;
use super::options::{MigrationCluster, Options};
use super::parse::{CommandLine, Value};
use super::table::{self, Effect, Flag};
use super::{tagging, value};

/// A search for orphaned resources describes all load balancers of the account.
const SHORTEST_SWEEP: Duration = Duration::from_secs(60);

/// A window must hold several passes of the node lifecycle controller.
const SHORTEST_WINDOW: Duration = Duration::from_secs(60);

pub(super) fn problems(options: &Options) -> Vec<String> {
    let mut problems = timing(options);
    problems.extend(migration_conflicts(options));
    problems.extend(cidrs(&options.routes.cluster_cidr));
    if options.allocates_node_cidrs() {
        problems.extend(options.node_ranges().err().unwrap_or_default());
    }

    problems.extend(tagging::problems(options));

    let serving = &options.serving;
    match (&serving.tls_cert_file, &serving.tls_private_key_file) {
        (Some(_), None) => problems.push("--tls-cert-file needs --tls-private-key-file".into()),
        (None, Some(_)) => problems.push("--tls-private-key-file needs --tls-cert-file".into()),
        _ => {}
    }

    if options.migration.cluster.is_some() && options.migration.name.is_none() {
        problems.push("--migration-kubeconfig needs --migration, the name of the object to find there".into());
    }

    if options.migration.cluster == Some(MigrationCluster::InCluster) && options.general.kubeconfig.is_none() {
        problems.push(
            "--migration-kubeconfig=in-cluster needs --kubeconfig of another cluster; remove it if there is only one"
                .into(),
        );
    }

    if options.nodes.node_monitor_period.is_zero() {
        problems.push("--node-monitor-period must be greater than 0".into());
    }

    if options.nodes.node_status_update_frequency.is_zero() {
        problems.push("--node-status-update-frequency must be greater than 0".into());
    }

    let window = options.nodes.deletion_breaker.window;
    if window < SHORTEST_WINDOW {
        problems.push(format!(
            "--node-deletion-breaker-window={} must be at least {}",
            value::go_duration(window),
            value::go_duration(SHORTEST_WINDOW)
        ));
    }

    if options.services.sweep_period < SHORTEST_SWEEP {
        problems.push(format!(
            "--load-balancer-sweep-period={} must be at least {}",
            value::go_duration(options.services.sweep_period),
            value::go_duration(SHORTEST_SWEEP)
        ));
    }

    for path in &options.authentication.always_allow_paths {
        if !path.starts_with('/') || path.trim_end_matches('*').contains('*') {
            problems.push(format!(
                "--authorization-always-allow-paths: {path:?} must start with / and may hold * only at its end"
            ));
        }
    }

    problems
}

/// client-go's rules for the three times of leader election, which it checks only when it elects.
fn timing(options: &Options) -> Vec<String> {
    let election = &options.leader_election;
    if !election.leader_elect {
        return Vec::new();
    }

    let mut problems = Vec::new();
    let (lease, renew, retry) = (election.lease_duration, election.renew_deadline, election.retry_period);
    if lease <= renew {
        problems.push(format!(
            "--leader-elect-lease-duration={} must be greater than --leader-elect-renew-deadline={}",
            value::go_duration(lease),
            value::go_duration(renew)
        ));
    }

    if renew.as_secs_f64() <= retry.as_secs_f64() * 1.2 {
        problems.push(format!(
            "--leader-elect-renew-deadline={} must be greater than 1.2 × --leader-elect-retry-period={}",
            value::go_duration(renew),
            value::go_duration(retry)
        ));
    }

    if lease.as_secs() == 0 || lease.subsec_nanos() != 0 {
        problems.push(format!(
            "--leader-elect-lease-duration={} must be whole seconds, at least 1s: the Lease holds seconds",
            value::go_duration(lease)
        ));
    }

    if retry.is_zero() {
        problems.push("--leader-elect-retry-period must be greater than 0".into());
    }

    for (flag, text) in [
        ("leader-elect-resource-name", &election.resource_name),
        ("leader-elect-resource-namespace", &election.resource_namespace),
    ] {
        if text.is_empty() {
            problems.push(format!("--{flag} cannot be empty"));
        }
    }

    problems
}

/// A migration is driven by two Leases; a command line that takes one of them away contradicts it.
pub(super) fn migration_conflicts(options: &Options) -> Vec<String> {
    if options.migration.name.is_none() {
        return Vec::new();
    }

    let off = [
        ("leader-elect", options.leader_election.leader_elect),
        ("enable-leader-migration", options.migration.enable_leader_migration),
    ];
    off.into_iter()
        .filter(|(flag, on)| !on && options.explicitly_set(flag))
        .map(|(flag, _)| {
            format!("--{flag}=false contradicts --migration, which needs both Leases; remove one of the two flags")
        })
        .collect()
}

fn cidrs(list: &[String]) -> Vec<String> {
    let mut problems: Vec<String> = list
        .iter()
        .filter(|cidr| !is_cidr(cidr))
        .map(|cidr| format!("--cluster-cidr: {cidr:?} is not a CIDR such as 10.0.0.0/16"))
        .collect();

    if list.len() > 2 {
        problems.push(format!("--cluster-cidr: at most two CIDRs, got {}", list.len()));
    }

    if let [one, two] = list
        && one.contains(':') == two.contains(':')
    {
        problems.push("--cluster-cidr: two CIDRs must be of different families".into());
    }

    problems
}

fn is_cidr(text: &str) -> bool {
    text.parse::<ipnet::IpNet>().is_ok()
}

/// Warnings about flags with no or a reduced effect, and about risky values.
pub(super) fn warnings(options: &Options, line: &CommandLine) -> Vec<String> {
    let mut warnings: Vec<String> = table::all()
        .filter(|flag| options.explicitly_set(flag.name))
        .filter_map(|flag| no_effect(flag, line))
        .collect();
    warnings.extend(routes(options));
    warnings.extend(node_ipam::warnings(options));
    warnings.extend(tagging::warnings(options));

    let migration = &options.migration;
    if migration.leader_migration_config.is_some() && !options.leader_migration_effective() {
        warnings
            .push("--leader-migration-config is ignored: it needs --leader-elect and --enable-leader-migration".into());
    }

    if migration.enable_leader_migration && !options.leader_election.leader_elect {
        warnings.push("--enable-leader-migration is ignored: it needs --leader-elect".into());
    }

    if options.leader_election.leader_elect && options.general.controllers == Selection::none() {
        warnings.push("--controllers is empty: no controller will run".into());
    }

    warnings
}

/// The reason why the route controller does not run, or configures IPv4 only.
fn routes(options: &Options) -> Option<String> {
    let routes = &options.routes;
    if !routes.configure_cloud_routes || !options.general.controllers.enabled(Controller::Route) {
        return None;
    }

    let ignored: Vec<&str> = routes
        .cluster_cidr
        .iter()
        .map(String::as_str)
        .filter(|cidr| cidr.contains(':'))
        .collect();
    let flags = "--configure-cloud-routes is true and --cluster-cidr";
    let help = "give an IPv4 range or set --configure-cloud-routes=false";

    match (routes.managed_range(), ignored.as_slice()) {
        (None, []) => Some(format!("the route controller stays off: {flags} is empty; {help}")),
        (None, _) => Some(format!(
            "the route controller stays off: {flags} holds no IPv4 range; {help}"
        )),
        (Some(_), []) => None,
        (Some(_), ignored) => Some(format!(
            "--cluster-cidr: no routes are created for {}: the route controller supports IPv4 only",
            ignored.join(", ")
        )),
    }
}

fn no_effect(flag: Flag, line: &CommandLine) -> Option<String> {
    let name = flag.name;
    match flag.effect {
        Effect::Works => None,
        Effect::NotYet { silent, .. } | Effect::ByDesign { silent, .. }
            if !silent.is_empty() && is(line.value(name), silent) =>
        {
            None
        }
        Effect::NotYet { reason, .. } => Some(format!("--{name} has no effect yet: {reason}")),
        Effect::ByDesign { reason, .. } | Effect::NoEffectUpstream(reason) => {
            Some(format!("--{name} has no effect: {reason}"))
        }
        Effect::Removed(reason) => Some(format!("--{name} was removed upstream and is ignored: {reason}")),
    }
}

fn is(value: Option<&Value>, silent: &str) -> bool {
    match value {
        Some(Value::Bool(on)) => value::boolean(silent) == Ok(*on),
        Some(Value::Int(number)) => value::integer(silent) == Ok(*number),
        Some(Value::Text(text)) => text == silent,
        _ => false,
    }
}

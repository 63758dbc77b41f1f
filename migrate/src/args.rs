//! The commands and their flags.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use outrigger_shared::component::Component;
use outrigger_shared::migration::{Labels, Phase, Profile};
use outrigger_shared::version::KubernetesVersion;

use crate::facts::collect::Kubelets;

/// Migrates a Kubernetes cluster on AWS from the in-tree cloud provider to an external cloud controller manager
///
/// Exit codes: 0 success; 1 invalid input, or a cluster cannot be read; 2 something is refused, or an error was found; 3 not yet:
/// a person has to act first, or the time is over.
#[derive(Debug, Parser)]
#[command(name = "outrigger", version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at a cluster: does something prevent the migration, or is something wrong? Changes nothing, and needs no installation
    ///
    /// The exit code is 2 if an error was found. A check that may not read something is not made, and names the missing right;
    /// with --fail-on=warning the exit code is 2 then, too.
    Check(CheckArgs),
    /// Show where the migration is, what it waits for, and what to do next
    ///
    /// With --wait-for the exit code is 0 when the condition is True, 2 when a person has to act first, and 3 when the
    /// time is over.
    Status(StatusArgs),
    /// Show all steps of the migration: those that are done, and the commands of the next one. Changes nothing, and needs no
    /// installation
    ///
    /// The exit code is 2 if `outrigger check` finds an error or the manager raises an alarm: `outrigger apply` would not begin a
    /// phase then.
    Plan(PlanArgs),
    /// Go to the next phase: set it, print the commands for the machines, and wait until it is reached. Asks first
    ///
    /// It writes only spec.phase of the CloudProviderMigration (and removes an attestation that the API server would refuse) and, for kubeadm, the
    /// annotation outrigger.dev/apply of the ConfigMap kubeadm-config. It changes no machine and nothing at AWS. Without --to
    /// one call is for one phase, and a phase that has begun is finished first. It remembers nothing: after Ctrl-C run it again, also on
    /// another machine. Exit codes: 0 the phase is reached; 2 an error of `outrigger check`, an alarm, a refusal of the API
    /// server, or somebody else changes the phase; 3 you have to act first, you answered no, or the time is over.
    Apply(ApplyArgs),
    /// Go back one phase, up to Kubernetes 1.26: kubelets first, then the control plane. Asks first
    ///
    /// As `outrigger apply`. The exit code is 2 if the condition RollbackPossible is not True.
    Rollback(RollbackArgs),
    /// Show whether the migration went well: owners, load balancers, Nodes and kubelets, from the records of the cluster
    ///
    /// Exit codes: 0 the migration is complete, its owners are proven, and no figure is refuted; 2 a figure is refuted; 3 the
    /// migration is not over, no manager observes it, or its owners are not recorded. A figure without a record says so.
    Verify(VerifyArgs),
    /// Print what `outrigger check` reads of a cluster as one JSON document, without secrets, for --facts or a report of a fault
    Facts(FactsArgs),
    /// Show what the webhook would do to objects in files. Needs no cluster
    ///
    /// The command applies the webhook's own rules to each object. The exit code is 2 if the webhook would refuse to
    /// change an object that a migration selects.
    Mutate(MutateArgs),
    /// Edit kubeadm's files on this machine: static Pods and kubelet flags, which the webhook cannot change
    #[command(subcommand)]
    Node(NodeCommand),
    /// Print the webhook's registration, or replacements for parts of the webhook
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Print the versions of this command, API server, manager, webhook and CustomResourceDefinition
    ///
    /// The exit code is 2 if they do not fit each other.
    Version(VersionArgs),
    /// Print a script by which a shell completes commands and flags: source <(outrigger completion bash)
    Completion(CompletionArgs),
}

/// `outrigger version`.
#[derive(Debug, clap::Args)]
pub struct VersionArgs {
    /// Print only the version of this command, and ask no cluster
    #[arg(long)]
    pub client: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// `outrigger completion`.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell that reads it
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// The cluster, as kubectl names it.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Context of the kubeconfig. `outrigger check` accepts `*` for any text: `prod-*` names several clusters
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Kubeconfig file [default: KUBECONFIG, or the one in the home directory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Seconds that a request waits for its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub request_timeout: u64,
}

/// `outrigger check`.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Kubelets that are asked for their command lines, with your right to get nodes/proxy
    #[arg(long, value_enum, default_value_t)]
    pub kubelets: Kubelets,
    /// Only these checks: codes such as OUT302, or groups: access, installation, control-plane, nodes, load-balancers. May be
    /// repeated
    #[arg(long, value_name = "CODE|GROUP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// The lowest severity for which the exit code is 2
    #[arg(long, value_enum, default_value_t = Severity::Error)]
    pub fail_on: Severity,
    /// Wait until no error is left, at most so many seconds; the exit code is 3 if they are over
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "600", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub wait: Option<u64>,
    /// A document of `outrigger facts` in place of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "kubeconfig", "kubelets", "wait"])]
    pub facts: Option<String>,
    /// Explain a check and end; `all` lists every check
    #[arg(long, value_name = "CODE", exclusive = true)]
    pub explain: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// `outrigger facts`.
#[derive(Debug, clap::Args)]
pub struct FactsArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Kubelets that are asked for their command lines, with your right to get nodes/proxy
    #[arg(long, value_enum, default_value_t)]
    pub kubelets: Kubelets,
}

/// `outrigger status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Name of the CloudProviderMigration [default: the only one]
    pub name: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Wait until this condition is True, with a line for each change
    #[arg(long, value_name = "CONDITION")]
    pub wait_for: Option<String>,
    /// Seconds that --wait-for waits
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub timeout: u64,
    /// Print a line for each change, until the command is ended
    #[arg(long)]
    pub watch: bool,
    /// A document of `outrigger facts` in place of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "kubeconfig", "wait_for", "watch"])]
    pub facts: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// `outrigger verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Name of the CloudProviderMigration [default: the only one]
    pub name: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Also write a page with the owners by time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// A document of `outrigger facts` in place of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "kubeconfig"])]
    pub facts: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// `outrigger plan`.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Name of the CloudProviderMigration [default: the only one]
    pub name: Option<String>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The phase at the end of the plan
    #[arg(long, value_name = "PHASE", value_parser = one_of(Phase::ALL, Phase::as_str), ignore_case = true, default_value = "Complete")]
    pub to: Phase,
    /// A document of `outrigger facts` in place of a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "kubeconfig"])]
    pub facts: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: CheckOutput,
}

/// `outrigger apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// Name of the CloudProviderMigration [default: the only one]
    pub name: Option<String>,
    /// The phase to reach [default: the present one if it is not reached yet, else the next one]. In scripts give it: the same
    /// line never goes further
    #[arg(long, value_name = "PHASE", value_parser = one_of(Phase::ALL, Phase::as_str), ignore_case = true)]
    pub to: Option<Phase>,
    /// Set the phase although these checks find errors. May be repeated
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub accept: Vec<String>,
    #[command(flatten)]
    pub walk: WalkArgs,
}

/// `outrigger rollback`.
#[derive(Debug, clap::Args)]
pub struct RollbackArgs {
    /// Name of the CloudProviderMigration [default: the only one]
    pub name: Option<String>,
    /// The phase to go back to [default: the previous one; Prepare, while the step back to it is not finished]
    #[arg(long, value_name = "PHASE", value_parser = one_of(Phase::ALL, Phase::as_str), ignore_case = true)]
    pub to: Option<Phase>,
    #[command(flatten)]
    pub walk: WalkArgs,
}

/// The flags that `outrigger apply` and `outrigger rollback` have in common.
#[derive(Debug, clap::Args)]
pub struct WalkArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Write without a question
    #[arg(short, long)]
    pub yes: bool,
    /// Show the steps and what is in the way, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Seconds that you may take for one step on the machines [default: no limit on a terminal; otherwise none, and the exit
    /// code is 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub wait: Option<u64>,
    /// Seconds that the manager or the webhook may take for one step; the exit code is 3 after that
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub timeout: u64,
}

/// How much a finding of a check matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Severity {
    /// Something will go wrong later, or looks odd
    Warning,
    /// The migration fails or harms, or the cluster is not as it should be
    Error,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The output of the commands that look at a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckOutput {
    /// Human-readable text
    #[default]
    Text,
    /// The same as JSON, in a versioned format
    Json,
}

/// `outrigger mutate`.
#[derive(Debug, clap::Args)]
pub struct MutateArgs {
    /// YAML or JSON file with the objects; `-` is stdin. May be repeated. Namespaces in the files provide
    /// the labels of namespaces
    #[arg(short, long, value_name = "FILE", required = true)]
    pub filename: Vec<String>,
    /// A file with CloudProviderMigrations, or the name of one in the files. May be repeated. Without it, all
    /// CloudProviderMigrations in the files of --filename apply
    #[arg(long, value_name = "FILE|NAME")]
    pub migration: Vec<String>,
    /// Operation of the admission request [default: create, or update with --old]
    #[arg(long, value_enum)]
    pub operation: Option<Operation>,
    /// The objects as they are stored now, for --operation=update
    #[arg(long, value_name = "FILE")]
    pub old: Option<String>,
    /// Phase of the migrations [default: from their spec]
    #[arg(long, value_parser = phase)]
    pub phase: Option<Phase>,
    /// Value of the condition Prepared [default: from the migration's status]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub prepared: Option<bool>,
    /// Labels of namespaces that are not in the files; kubernetes.io/metadata.name is added
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = labels)]
    pub namespace_labels: Option<Labels>,
    /// Namespace of objects that have none
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Path /mutate/NAME of the webhook: the objects come from the migrated cluster's own API server
    #[arg(long, value_name = "NAME")]
    pub path: Option<String>,
    /// Whether a cloud-controller-manager runs in the cluster of the Nodes [default: unknown]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub manager_ready: Option<bool>,
    /// The webhook's own namespace, in which it changes nothing
    #[arg(long, value_name = "NAMESPACE", default_value = "outrigger-system")]
    pub own_namespace: String,
    /// Output format: text, json with all details, or yaml with the objects as they would be stored
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Print the JSON Patch of each object in the text, too
    #[arg(long)]
    pub patch: bool,
    /// File for the objects as they would be stored, as YAML, in addition to the output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// staticPodPath as kubeadm sets it.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The components whose files are on the machine.
pub const COMPONENTS: [Component; 3] = [
    Component::KubeControllerManager,
    Component::KubeApiserver,
    Component::Kubelet,
];

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Give static Pods and kubelet flags the form of a phase
    ///
    /// The command applies the webhook's rules to the manifests of kube-controller-manager and kube-apiserver, and to
    /// the kubelet's flags. It keeps the original text of each file, and an edit for another phase starts from it.
    Edit(EditArgs),
    /// Restore the files that `outrigger node edit` has changed, byte for byte: their form before the first edit, not that of the
    /// previous phase
    Undo(UndoArgs),
}

/// Which machine, and whether it is changed.
#[derive(Debug, clap::Args)]
pub struct MachineArgs {
    /// Root of the machine's file system. All paths on the machine are relative to it
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub rootfs: PathBuf,
    /// Folder for the original files, outside of the manifest folder
    #[arg(long, value_name = "DIR", default_value = "/etc/kubernetes/outrigger")]
    pub state: PathBuf,
    /// Print the difference and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: NodeOutput,
}

/// `outrigger node edit`.
#[derive(Debug, clap::Args)]
pub struct EditArgs {
    /// A file with the CloudProviderMigration as the cluster has it (kubectl get cloudprovidermigration NAME -o yaml), or `-`
    /// for stdin; with several in the file, add the name of one
    #[arg(long, value_name = "FILE|NAME", required = true)]
    pub migration: Vec<String>,
    /// Phase of the migration [default: from its spec]
    #[arg(long, value_parser = phase)]
    pub phase: Option<Phase>,
    /// Value of the condition Prepared [default: from the migration's status]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub prepared: Option<bool>,
    /// Folder of the static Pods: staticPodPath of the kubelet
    #[arg(long, value_name = "DIR", default_value = MANIFESTS)]
    pub manifests: PathBuf,
    /// Allow a step back: the files on this machine have the form of a later phase
    #[arg(long)]
    pub back: bool,
    /// Change only this component. May be repeated
    #[arg(long, value_parser = one_of(COMPONENTS, Component::as_str))]
    pub component: Vec<Component>,
    #[command(flatten)]
    pub machine: MachineArgs,
}

/// `outrigger node undo`.
#[derive(Debug, clap::Args)]
pub struct UndoArgs {
    /// Also restore files that have changed since the edit; these changes are lost
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub machine: MachineArgs,
}

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Print the objects that make API servers call the webhook, for the profiles of your migrations only
    ///
    /// The output is the registration, the webhook's rights and its NetworkPolicy. The command writes to no cluster:
    /// pipe the output to `kubectl apply --server-side -f -`.
    Register(RegisterArgs),
    /// Print admission policies that do the simple part of the webhook's work in the API server, from Kubernetes 1.34 on
    ///
    /// The output is MutatingAdmissionPolicies with their bindings. They add the uninitialized taint to new Nodes, and
    /// ownership tags. They read the CloudProviderMigration in the cluster at each request, so they follow its phase
    /// and targets. Render them again only for another migration, or with another version of this command.
    RenderPolicies(RenderArgs),
}

/// `outrigger webhook register`.
#[derive(Debug, clap::Args)]
pub struct RegisterArgs {
    /// Profiles of the targets of your migrations, as in spec.targets[].profile
    #[arg(
        long,
        value_name = "PROFILE,...",
        value_delimiter = ',',
        required_unless_present = "tenant",
        ignore_case = true,
        value_parser = one_of(Profile::ALL, Profile::as_str)
    )]
    pub profiles: Vec<Profile>,
    /// The control planes are hosted: their Nodes are in other API servers, which --tenant registers. The NetworkPolicy
    /// lets the webhook reach these API servers at any unprivileged port
    #[arg(long)]
    pub hosted: bool,
    /// Add the ValidatingWebhookConfiguration
    #[arg(long)]
    pub validation: bool,
    /// Whether these objects wait while the webhook is unavailable: Pods of a kube-controller-manager in namespaces with
    /// the label outrigger.dev/control-plane, and control planes and machine configurations of Cluster API. All other
    /// objects never wait
    #[arg(long, value_enum, default_value_t)]
    pub failure_policy: FailurePolicyArg,
    /// Source of the webhook's certificate. cert-manager and the webhook itself (self-signed) set caBundle; with
    /// secret, --ca-bundle gives it
    #[arg(long, value_enum, default_value_t)]
    pub certificates: CertificatesArg,
    /// PEM file with the CA certificates that signed the webhook's certificate
    #[arg(long, value_name = "FILE")]
    pub ca_bundle: Option<PathBuf>,
    /// Source addresses of the API servers; calls from other addresses are blocked. May be repeated [default: every
    /// address may call]
    #[arg(long = "api-server", value_name = "CIDR", value_parser = cidr, conflicts_with = "tenant")]
    pub api_servers: Vec<String>,
    /// The oldest version of the API servers. From 1.28 on, they can skip objects that the webhook never changes
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<KubernetesVersion>,
    /// The webhook's own namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "outrigger-system")]
    pub own_namespace: String,
    /// Print the objects for a tenant's API server instead. NAME is the CloudProviderMigration of the tenant
    #[arg(long, value_name = "NAME", requires = "url", conflicts_with_all = ["profiles", "hosted", "validation"])]
    pub tenant: Option<String>,
    /// Address of the webhook for the tenant's API server, such as https://outrigger-webhook.outrigger-system.svc
    #[arg(long, value_name = "URL", requires = "tenant", value_parser = https)]
    pub url: Option<String>,
}

/// The treatment of objects that may wait for the webhook while it is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailurePolicyArg {
    /// They are refused until the webhook answers
    #[default]
    Fail,
    /// They are stored unchanged
    Ignore,
}

/// The source of the webhook's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CertificatesArg {
    /// A Secret of your own
    #[default]
    Secret,
    CertManager,
    SelfSigned,
}

/// `outrigger webhook render-policies`.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    /// A file with CloudProviderMigrations; `-` is stdin. May be repeated
    #[arg(long, value_name = "FILE", required = true)]
    pub migration: Vec<String>,
    /// Version of the policy API: v1 since Kubernetes 1.36, v1beta1 since 1.34 where it is enabled
    #[arg(long, value_enum, default_value_t = PolicyVersion::V1)]
    pub api_version: PolicyVersion,
    /// The webhook's own namespace, in which nothing is changed
    #[arg(long, value_name = "NAMESPACE", default_value = "outrigger-system")]
    pub own_namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// The objects are new
    Create,
    /// The objects replace those of --old
    Update,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Human-readable text
    Text,
    /// All details, in a versioned format
    Json,
    /// Only the objects
    Yaml,
}

/// The output of `outrigger node`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum NodeOutput {
    /// Human-readable text
    #[default]
    Text,
    /// All details, in a versioned format
    Json,
}

/// Versions of `admissionregistration.k8s.io` that have mutating policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyVersion {
    /// Kubernetes 1.36 and later
    V1,
    /// Kubernetes 1.34 and later, with a feature gate and a runtime configuration
    V1beta1,
}

fn phase(text: &str) -> Result<Phase, String> {
    let found = Phase::ALL
        .into_iter()
        .find(|phase| phase.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("not a phase; one of {}", Phase::ALL.map(Phase::as_str).join(", ")))
}

/// The values by their names, in any case with `ignore_case`. clap names them all in its error, and the nearest one.
fn one_of<T, const N: usize>(all: [T; N], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(name)).try_map(move |text| {
        let found = all.into_iter().find(|one| name(*one).eq_ignore_ascii_case(&text));
        found.ok_or_else(|| format!("{text:?} is not one of the possible values"))
    })
}

fn cidr(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a CIDR block such as 10.0.1.10/32");
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    if length > most {
        return Err(wrong());
    }
    Ok(text.to_owned())
}

/// API servers call webhooks over HTTPS only.
fn https(text: &str) -> Result<String, String> {
    match text.strip_prefix("https://") {
        Some(rest) if !rest.is_empty() && !rest.contains(['?', '#', ' ']) => Ok(text.to_owned()),
        _ => Err(format!(
            "{text:?} is not an address such as https://outrigger-webhook.outrigger-system.svc"
        )),
    }
}

fn labels(text: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| format!("{pair:?} is not KEY=VALUE"))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{key:?} is given twice"));
        }
    }

    Ok(labels)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn profiles_have_the_names_of_the_api() {
        let parse = |profiles: &str| {
            let args = Args::try_parse_from(["outrigger", "webhook", "register", "--profiles", profiles])?;
            let Command::Webhook(WebhookCommand::Register(args)) = args.command else {
                panic!("another command");
            };
            Ok::<_, clap::Error>(args.profiles)
        };
        assert_eq!(
            parse("nodes,KubeadmConfig").unwrap(),
            [Profile::Nodes, Profile::KubeadmConfig]
        );
        let unknown = parse("Nodes,RancherRKE3").unwrap_err().to_string();
        assert!(
            unknown.contains("'RancherRKE2'") || unknown.contains("'RancherRKE1'"),
            "{unknown}"
        );
        assert!(
            Profile::ALL.iter().all(|known| unknown.contains(known.as_str())),
            "{unknown}"
        );
    }

    #[test]
    fn addresses_are_blocks_and_urls_are_https() {
        for right in ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/48"] {
            assert_eq!(cidr(right), Ok(right.to_owned()));
        }
        for wrong in ["10.0.0.1", "10.0.0.0/33", "x/8", "2001:db8::/129", "10.0.0.0/"] {
            assert!(cidr(wrong).is_err(), "{wrong}");
        }
        assert!(https("https://webhook.example.com:8443").is_ok());
        for wrong in ["http://a", "https://", "webhook", "https://a?b"] {
            assert!(https(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_pairs_each_key_once() {
        assert_eq!(labels("a=b,c=").map(|labels| labels.len()), Ok(2));
        assert_eq!(labels(""), Ok(Labels::new()));
        for wrong in ["a", "=b", "a=1,a=2"] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
    }
}

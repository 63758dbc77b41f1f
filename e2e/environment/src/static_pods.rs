//! Old managers as static Pods: a process on each Node, and its mirror Pod in the tenant's kube-system; and old managers that
//! no Pod shows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use outrigger_aws_sim::Caller;
use outrigger_cluster_harness::pods::ProcessSpan;
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::tools::Tool;
use serde_json::json;

use super::{Environment, locked};

const PROGRAM: &str = "kube-controller-manager";
const NAMESPACE: &str = "kube-system";
/// A kubelet's default for a static Pod.
const GRACE: Duration = Duration::from_secs(30);

/// The processes of static Pods, those that ended included.
#[derive(Debug, Default)]
pub(super) struct StaticPods(Mutex<Vec<StaticPod>>);

#[derive(Debug)]
struct StaticPod {
    span: ProcessSpan,
    process: Arc<Process>,
}

impl StaticPods {
    pub(super) fn spans(&self) -> Vec<ProcessSpan> {
        let all = locked(&self.0);
        let ended = |pod: &StaticPod| {
            let exit = pod.process.exit();
            ProcessSpan {
                ended: exit.as_ref().map(|exit| exit.at),
                exit: exit.and_then(|exit| exit.status).map(Into::into),
                ..pod.span.clone()
            }
        };
        all.iter().map(ended).collect()
    }

    /// The latest process of a Pod, and how many it had.
    fn latest(&self, pod: &str) -> (Option<Arc<Process>>, usize) {
        let all = locked(&self.0);
        let of_pod: Vec<_> = all.iter().filter(|known| known.span.pod == pod).collect();
        (of_pod.last().map(|known| Arc::clone(&known.process)), of_pod.len())
    }

    fn add(&self, span: ProcessSpan, process: Process) {
        let process = Arc::new(process);
        locked(&self.0).push(StaticPod { span, process });
    }
}

impl Environment {
    /// Writes the manifest of the old manager on the Node of an instance, with these flags, as the kubelet runs it: the
    /// process of the old manifest ends first.
    pub(crate) async fn roll_static_manager(&self, instance: usize, flags: &[String]) -> Result<()> {
        let machine = self.account.instances.get(instance).context("no such instance")?;
        let (node, address) = (&machine.private_dns_name, &machine.private_ip);
        let pod = format!("{PROGRAM}-{node}");

        let (running, count) = self.static_pods.latest(&pod);
        if let Some(running) = running {
            running.stop(GRACE).await?;
            self.delete_mirror_pod(&pod).await?;
        }

        let argv = [vec![PROGRAM.to_owned()], flags.to_vec()].concat();
        self.start_static(&pod, node, count, &argv)?;
        let pods = Api::namespaced(self.tenant_admin.clone(), NAMESPACE);
        self.create_mirror_pod(&pods, &pod, node, address, &argv).await
    }

    /// Removes the manifest on the Node of an instance: the process and its mirror Pod are gone.
    pub(crate) async fn end_static_manager(&self, instance: usize) -> Result<()> {
        let machine = self.account.instances.get(instance).context("no such instance")?;
        self.static_manager(instance)?.stop(GRACE).await?;
        self.delete_mirror_pod(&format!("{PROGRAM}-{}", machine.private_dns_name))
            .await
    }

    /// The latest process of the static Pod on the Node of an instance.
    pub(crate) fn static_manager(&self, instance: usize) -> Result<Arc<Process>> {
        let machine = self.account.instances.get(instance).context("no such instance")?;
        let (running, _) = self
            .static_pods
            .latest(&format!("{PROGRAM}-{}", machine.private_dns_name));
        running.context("no static Pod on this Node")
    }

    /// Labels the Node of an instance as kubeadm labels a control plane. No kubelet may set this label with
    /// NodeRestriction.
    pub(crate) async fn label_control_plane(&self, instance: usize) -> Result<()> {
        let machine = self.account.instances.get(instance).context("no such instance")?;
        let nodes: Api<Node> = Api::all(self.tenant_admin.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}));
        nodes
            .patch(&machine.private_dns_name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Starts an old manager that no Pod shows, on a machine of this host name. Returns its process name.
    pub(crate) fn start_hidden_manager(&self, host: &str, flags: &[String]) -> Result<String> {
        let (_, count) = self.static_pods.latest(host);
        let argv = [vec![PROGRAM.to_owned()], flags.to_vec()].concat();
        self.start_static(host, host, count, &argv)?;
        Ok(format!("{host}~{}", count + 1))
    }

    /// Kills it, and returns when it ended.
    pub(crate) async fn kill_hidden_manager(&self, host: &str) -> Result<Timestamp> {
        let (running, _) = self.static_pods.latest(host);
        let process = running.context("no such process")?;
        process.kill_now().await?;
        Ok(process.exit().map_or_else(Timestamp::now, |exit| exit.at))
    }

    fn start_static(&self, pod: &str, node: &str, count: usize, argv: &[String]) -> Result<()> {
        let name = format!("{pod}~{}", count + 1);
        let caller = Caller::new(&name);
        self.proxy.add_caller(&caller);

        let program = self.tools.path(Tool::ControllerManager126)?;
        let mut launch = Launch::new(&name, program)
            .arguments(argv.iter().skip(1).cloned())
            .environment("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .environment("HOME", self.run.display().to_string())
            .host_name(node);
        for (variable, value) in caller.environment(self.proxy.url()) {
            launch = launch.environment(variable, value);
        }

        let process = Process::start(&launch, &self.run.join("pods"))?;
        let span = ProcessSpan {
            process: name,
            component: PROGRAM.to_owned(),
            namespace: NAMESPACE.to_owned(),
            pod: pod.to_owned(),
            uid: String::new(),
            pid: u32::try_from(process.pid()).unwrap_or_default(),
            program: program.into(),
            argv: argv.to_vec(),
            started: process.started(),
            ended: None,
            exit: None,
        };
        self.static_pods.add(span, process);
        Ok(())
    }

    /// The mirror Pod as a kubelet creates it, for kubeadm's manifest.
    pub(crate) async fn create_mirror_pod(
        &self,
        pods: &Api<Pod>,
        name: &str,
        node: &str,
        address: &str,
        argv: &[String],
    ) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.tenant_admin.clone());
        let owner = nodes.get(node).await?.metadata.uid;
        // A change of the command line changes it, as in a kubelet.
        let mut hasher = DefaultHasher::new();
        argv.hash(&mut hasher);
        let hash = format!("{:032x}", hasher.finish());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "labels": {"component": PROGRAM, "tier": "control-plane"},
                "annotations": {
                    "kubernetes.io/config.hash": hash, "kubernetes.io/config.mirror": hash,
                    "kubernetes.io/config.source": "file",
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner, "controller": true},
                ],
            },
            "spec": {
                "nodeName": node, "hostNetwork": true, "priorityClassName": "system-node-critical",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": PROGRAM, "image": "registry.k8s.io/kube-controller-manager:v1.26.13", "command": argv,
                }],
            },
        });

        pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        let status = json!({"status": {"phase": "Running", "hostIP": address, "podIP": address}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    async fn delete_mirror_pod(&self, name: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.tenant_admin.clone(), NAMESPACE);
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }
}

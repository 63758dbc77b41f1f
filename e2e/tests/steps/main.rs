//! `outrigger plan`, `outrigger apply` and `outrigger rollback` on a real API server. The test writes what webhook and manager
//! would write; `make demo` runs them with both.

#![allow(clippy::panic, reason = "test helpers")]

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use outrigger_cluster_harness::cluster::{ApiServer, ApiServerOptions, Etcd, User, Version};
use outrigger_cluster_harness::tools::{Tool, Tools};
use outrigger_cluster_harness::wait;
use outrigger_environment::{Binaries, manifests};
use outrigger_shared::migration::{CloudProviderMigration, Phase};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_does_the_steps_of_one_phase_and_rollback_goes_back() {
    if let Err(error) = run().await {
        panic!("{error:#}");
    }
}

async fn run() -> Result<()> {
    let tools = Tools::load(&[Tool::Etcd, Version::V1_26.api_server()]).await?;
    let folder = tempfile::tempdir()?;
    let etcd = Etcd::start(&tools, folder.path()).await?;
    let options = ApiServerOptions::new("cluster", Version::V1_26, "127.121.0.0/16");
    let server = ApiServer::start(&tools, folder.path(), &etcd, &options).await?;
    let cluster = Cluster {
        admin: server.client(&User::admin(), "steps-test/1").await?,
        config: server.kubeconfig(&User::admin())?,
        viewer: server.kubeconfig(&User::new("nobody"))?,
    };

    cluster.fill().await?;
    cluster.before_the_object().await?;
    cluster.nothing_is_written_without_a_word().await?;
    cluster.an_error_of_check_keeps_the_phase().await?;
    cluster.prepare().await?;
    cluster.migrate().await?;
    cluster.back().await
}

struct Cluster {
    admin: Client,
    config: PathBuf,
    /// Of a user without rights.
    viewer: PathBuf,
}

/// The words of manager and webhook about the spec of now.
struct Said {
    is_ready: bool,
    objects_applied: bool,
    rollback_possible: bool,
    alarm: bool,
    owner: &'static str,
    /// In a dry run of the manager.
    changes: u32,
}

const READY: Said = Said {
    is_ready: true,
    objects_applied: true,
    rollback_possible: true,
    alarm: false,
    owner: "kube-controller-manager",
    changes: 0,
};

const WAITING: Said = Said {
    is_ready: false,
    ..READY
};

impl Cluster {
    /// A control plane of one machine of kubeadm, and a worker.
    async fn fill(&self) -> Result<()> {
        let crd = std::fs::read_to_string(manifests::folder().join("base/crd.yaml"))?;
        let mut objects = vec![serde_saphyr::from_str(&crd)?];
        for (name, role, id) in [
            ("cp-1", json!({"node-role.kubernetes.io/control-plane": ""}), 1),
            ("worker-1", json!({}), 2),
        ] {
            let mut labels = role;
            labels["kubernetes.io/hostname"] = json!(name);
            let provider = format!("aws:///eu-central-1a/i-0123456789abcdef{id}");
            let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"});
            objects.push(json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": provider},
            }));
            objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": []},
            }));
        }
        objects.push(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"},
            "spec": {"holderIdentity": "cp-1_x", "leaseDurationSeconds": 15, "renewTime": micro_time()},
        }));
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "namespace": "kube-system"}, "data": {"ClusterConfiguration": "{}"},
        }));
        // It matches nothing, so the API server never calls it.
        objects.push(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "outrigger"},
            "webhooks": [{
                "name": "nodes.outrigger.dev", "clientConfig": {"url": "https://127.0.0.1:1/mutate", "caBundle": "eA=="},
                "rules": [], "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            }],
        }));
        manifests::apply(&self.admin, &objects).await?;

        let nodes: Api<Node> = Api::all(self.admin.clone());
        let ready = json!({"status": {
            "conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.26.13"},
        }});
        for name in ["cp-1", "worker-1"] {
            nodes
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&ready))
                .await?;
        }
        self.control_plane(&["--cloud-provider=aws"]).await
    }

    /// A kube-controller-manager with these flags, in place of the one before.
    async fn control_plane(&self, flags: &[&str]) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), "kube-system");
        let name = "kube-controller-manager-cp-1";
        let now = DeleteParams::default().grace_period(0);
        if pods.get_opt(name).await?.is_some() {
            pods.delete(name, &now).await?;
        }
        let command = [&["kube-controller-manager"], flags].concat();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "kube-system", "annotations": {"kubernetes.io/config.mirror": "x"},
            },
            "spec": {
                "nodeName": "cp-1", "hostNetwork": true,
                "containers": [{
                    "name": "kube-controller-manager", "image": "registry.k8s.io/kube-controller-manager:v1.26.13",
                    "command": command,
                }],
            },
        });
        manifests::apply(&self.admin, &[pod]).await?;
        let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        pods.patch_status(name, &PatchParams::default(), &ready).await?;
        Ok(())
    }

    fn migrations(&self) -> Api<CloudProviderMigration> {
        Api::all(self.admin.clone())
    }

    async fn phase(&self) -> Result<Phase> {
        Ok(self.migrations().get("cluster").await?.spec.phase)
    }

    async fn patch(&self, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.migrations()
            .patch("cluster", &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    async fn say(&self, said: &Said) -> Result<()> {
        let object = self.migrations().get("cluster").await?;
        let (generation, phase) = (object.metadata.generation, object.spec.phase);
        let condition = |type_: &str, is_true: bool| {
            let status = if is_true { "True" } else { "False" };
            json!({
                "type": type_, "status": status, "reason": "Because", "message": format!("{type_} is {status}"),
                "lastTransitionTime": seconds(), "observedGeneration": generation,
            })
        };
        let missing = json!({
            "code": "Unguarded", "observation": "cp-1 is not as the phase asks for", "consequence": "the manager waits",
            "fix": "change it",
        });
        let status = json!({"status": {
            "observedGeneration": generation,
            "phase": phase,
            "observedBy": {"identity": "cp-1_a", "time": seconds()},
            "conditions": [
                condition("Ready", said.is_ready), condition("ObjectsApplied", said.objects_applied),
                condition("RollbackPossible", said.rollback_possible), condition("AdoptionClean", said.changes == 0),
            ],
            "adoption": {"time": seconds(), "services": 1, "nodes": 2, "changes": said.changes},
            "missing": if said.is_ready { json!([]) } else { json!([missing]) },
            "controllers": [{"name": "service-lb-controller", "owner": said.owner}],
            "history": [{"time": micro_time(), "phase": phase, "alarm": said.alarm}],
        }});
        self.migrations()
            .patch_status("cluster", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(Binaries::one("outrigger")?);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.config)
            .kill_on_drop(true);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    fn start(&self, arguments: &[&str]) -> Result<Child> {
        Ok(self.command(arguments)?.spawn()?)
    }

    /// Runs to the end, which has this exit code; what it printed.
    async fn ends(&self, arguments: &[&str], code: i32) -> Result<String> {
        seen(self.command(arguments)?.output().await?, code)
    }

    async fn becomes(&self, phase: Phase) -> Result<()> {
        let entered = async || self.phase().await.is_ok_and(|found| found == phase);
        wait::until(&format!("phase {phase}"), SOON, entered).await?;
        Ok(())
    }

    async fn before_the_object(&self) -> Result<()> {
        let text = self.ends(&["apply", "--yes"], 3).await?;
        ensure!(
            text.contains("install.md") && text.contains("you have to do install"),
            "{text}"
        );
        let text = self.ends(&["rollback", "--yes"], 1).await?;
        ensure!(text.contains("there is no CloudProviderMigration"), "{text}");

        let object = json!({
            "apiVersion": "outrigger.dev/v1alpha1", "kind": "CloudProviderMigration", "metadata": {"name": "cluster"},
            "spec": {"clusterID": "cluster", "kubernetesVersion": "1.26", "targets": [
                {"profile": "Nodes"},
                {"profile": "KubeadmConfig", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
            ]},
        });
        manifests::apply(&self.admin, &[object]).await?;
        self.say(&READY).await
    }

    async fn nothing_is_written_without_a_word(&self) -> Result<()> {
        let text = self.ends(&["apply"], 3).await?;
        ensure!(
            text.contains("next  prepare/phase") && text.contains("add --yes"),
            "{text}"
        );
        ensure!(text.contains("migration  cluster: InTree → Prepare"), "{text}");
        self.an_answer_on_a_terminal_is_asked_for().await?;
        let text = self.ends(&["apply", "--dry-run"], 0).await?;
        ensure!(text.contains("next: outrigger apply cluster --to=Prepare"), "{text}");
        ensure!(self.phase().await? == Phase::InTree, "{text}");
        let mut command = self.command(&["apply", "--yes"])?;
        let text = seen(command.env("KUBECONFIG", &self.viewer).output().await?, 1)?;
        ensure!(text.contains("forbidden") || text.contains("cannot be read"), "{text}");
        let text = self.ends(&["rollback", "--yes"], 1).await?;
        ensure!(text.contains("the first phase"), "{text}");

        Ok(())
    }

    /// With a pseudo-terminal of Python's.
    async fn an_answer_on_a_terminal_is_asked_for(&self) -> Result<()> {
        const SPAWN: &str = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        let program = Binaries::one("outrigger")?;
        let mut child = Command::new("python3")
            .args(["-c", SPAWN])
            .arg(program)
            .arg("apply")
            .env("KUBECONFIG", &self.config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut answer = child.stdin.take().context("stdin")?;
        answer.write_all(b"n\n").await?;
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await??;
        let text = seen(output, 3)?;
        ensure!(
            text.contains("Set phase Prepare? [y/N]") && text.contains("nothing was written"),
            "{text}"
        );
        Ok(())
    }

    async fn an_error_of_check_keeps_the_phase(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.admin.clone());
        let label = async |name: &str| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}}));
            nodes.patch("worker-1", &PatchParams::default(), &patch).await.map(drop)
        };
        label("another").await?;
        for verb in [&["plan"][..], &["apply", "--yes"], &["apply", "--dry-run"]] {
            let text = self.ends(verb, 2).await?;
            ensure!(text.contains("OUT402"), "{text}");
        }
        ensure!(self.phase().await? == Phase::InTree, "it went on in spite of an error");

        let text = self
            .ends(&["apply", "--yes", "--accept=OUT402", "--timeout=1"], 3)
            .await?;
        ensure!(self.phase().await? == Phase::Prepare, "{text}");
        label("worker-1").await?;
        Ok(())
    }

    /// The command before this one has written the phase, and was ended. Another one goes on, beside a third one.
    async fn prepare(&self) -> Result<()> {
        let annotated = async || {
            let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), "kube-system");
            let map = maps.get("kubeadm-config").await.ok();
            let annotations = map.and_then(|map| map.metadata.annotations).unwrap_or_default();
            annotations
                .get("outrigger.dev/apply")
                .is_some_and(|value| value == "cluster/Prepare")
        };
        ensure!(annotated().await, "kubeadm-config has no annotation");
        self.say(&WAITING).await?;
        let text = self.ends(&["apply", "--yes"], 3).await?;
        let go_on = "you have to do prepare/control-plane; then go on with: outrigger apply cluster --to=Prepare\n";
        for part in [
            "you     prepare/control-plane",
            "outrigger node edit",
            "waits for: cp-1 is not",
            "fix: change it",
            go_on,
        ] {
            ensure!(text.contains(part), "{part:?} is not in\n{text}");
        }

        let mut killed = self.start(&["apply", "--yes", "--wait=60"])?;
        let both = [
            self.start(&["apply", "--yes", "--wait=60"])?,
            self.start(&["apply", "--yes", "--wait=60"])?,
        ];
        tokio::time::sleep(Duration::from_secs(1)).await;
        killed.kill().await?;
        self.control_plane(&["--cloud-provider=aws", "--enable-leader-migration"])
            .await?;
        self.say(&READY).await?;
        for child in both {
            let text = seen(child.wait_with_output().await?, 0)?;
            ensure!(
                text.contains("done    prepare/ready") && text.contains("Prepare is reached"),
                "{text}"
            );
        }
        ensure!(self.phase().await? == Phase::Prepare, "one call is for one phase");

        Ok(())
    }

    async fn migrate(&self) -> Result<()> {
        self.say(&Said { changes: 1, ..READY }).await?;
        let text = self.ends(&["apply", "--yes"], 2).await?;
        ensure!(text.contains("phase Migrate was not set:\n    OUT214"), "{text}");
        ensure!(self.phase().await? == Phase::Prepare, "it went on in spite of a change");
        self.say(&READY).await?;

        // Something else, as a GitOps tool, sets the phase back.
        let applying = self.start(&["apply", "--yes", "--wait=60"])?;
        self.becomes(Phase::Migrate).await?;
        self.patch(&json!({"phase": "Prepare"})).await?;
        self.say(&READY).await?;
        let text = seen(applying.wait_with_output().await?, 2)?;
        ensure!(text.contains("the phase was Migrate, and is Prepare now"), "{text}");

        let applying = self.start(&["apply", "--yes", "--wait=60"])?;
        self.becomes(Phase::Migrate).await?;
        self.control_plane(&["--cloud-provider=external"]).await?;
        self.say(&Said { alarm: true, ..WAITING }).await?;
        let text = seen(applying.wait_with_output().await?, 2)?;
        ensure!(text.contains("alarm: cp-1 is not as the phase asks for"), "{text}");

        self.say(&WAITING).await?;
        let text = self.ends(&["apply", "--yes", "--timeout=1"], 3).await?;
        ensure!(text.contains("migrate/ready was not reached in 1 s"), "{text}");
        let applying = self.start(&["apply", "--yes", "--to=Complete"])?;
        let owned = Said {
            owner: "cloud-controller-manager",
            ..READY
        };
        self.say(&owned).await?;
        self.becomes(Phase::Complete).await?;
        self.say(&Said {
            is_ready: false,
            ..owned
        })
        .await?;
        let text = seen(applying.wait_with_output().await?, 3)?;
        ensure!(text.contains("you have to do complete/machines"), "{text}");
        let text = self.ends(&["apply", "--yes", "--to=Prepare"], 1).await?;
        ensure!(text.contains("outrigger rollback --dry-run"), "{text}");

        Ok(())
    }

    async fn back(&self) -> Result<()> {
        let owned = Said {
            owner: "cloud-controller-manager",
            ..READY
        };
        // The way back is most needed in an alarm; its step is a person's here.
        let impossible = Said {
            rollback_possible: false,
            alarm: true,
            ..owned
        };
        self.say(&impossible).await?;
        let text = self.ends(&["rollback", "--yes"], 2).await?;
        ensure!(
            text.contains("phase Migrate was not set:\n    RollbackPossible is False"),
            "{text}"
        );

        self.say(&Said { alarm: true, ..owned }).await?;
        let going = self.start(&["rollback", "--yes"])?;
        self.becomes(Phase::Migrate).await?;
        self.say(&owned).await?;
        let text = seen(going.wait_with_output().await?, 0)?;
        ensure!(text.contains("Migrate is reached"), "{text}");

        let going = self.start(&["rollback", "--yes"])?;
        self.becomes(Phase::Prepare).await?;
        self.say(&Said {
            is_ready: false,
            ..owned
        })
        .await?;
        let text = seen(going.wait_with_output().await?, 3)?;
        let go_on = "you have to do prepare/control-plane; then go on with: outrigger rollback cluster --to=Prepare\n";
        ensure!(text.contains(go_on), "{text}");

        // Ready as soon as one of them owns: the tool looks at all.
        self.say(&READY).await?;
        let text = self.ends(&["rollback", "--yes", "--to=Prepare"], 3).await?;
        ensure!(text.contains("prepare/control-plane"), "{text}");
        self.control_plane(&["--cloud-provider=aws", "--enable-leader-migration"])
            .await?;
        self.ends(&["rollback", "--yes", "--to=Prepare"], 0).await?;

        self.say(&owned).await?;
        let text = self.ends(&["rollback", "--yes", "--to=InTree"], 2).await?;
        ensure!(text.contains("the API server refused to set phase InTree"), "{text}");
        self.say(&READY).await?;
        self.patch(&json!({"attestation": {"phase": "Prepare"}})).await?;
        self.say(&READY).await?;
        let going = self.start(&["rollback", "--yes"])?;
        self.becomes(Phase::InTree).await?;
        self.say(&READY).await?;
        let text = seen(going.wait_with_output().await?, 3)?;
        ensure!(text.contains("outrigger node undo"), "{text}");
        let spec = self.migrations().get("cluster").await?.spec;
        ensure!(spec.attestation.is_none(), "{spec:?}");
        self.control_plane(&["--cloud-provider=aws"]).await?;
        let text = self.ends(&["rollback", "--yes", "--to=InTree"], 0).await?;
        ensure!(text.contains("Uninstall after a way back"), "{text}");

        Ok(())
    }
}

fn seen(output: Output, code: i32) -> Result<String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).context("text");
    let (out, err) = (text(output.stdout)?, text(output.stderr)?);
    let seen = format!("{out}{err}");
    ensure!(
        output.status.code() == Some(code),
        "{}, not {code}:\n{seen}",
        output.status
    );
    Ok(seen)
}

fn seconds() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

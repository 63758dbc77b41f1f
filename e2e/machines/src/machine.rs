//! One machine: a disk, which is a folder, and the processes that run while it is on.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use outrigger_cluster_harness::process::{Launch, Process};
use outrigger_cluster_harness::wait::until;
use serde_json::json;

use crate::command::succeeded;
use crate::fleet::PAUSE;
use crate::kubeadm::SERVICE;
use crate::{HOST, cgroups, network};

const SCRIPT: &str = include_str!("machine.sh");
/// The kubelet writes these. They are the host's: no namespace has its own.
pub(crate) const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];
/// The instance metadata service of EC2.
const METADATA: &str = "169.254.169.254";
/// For containerd, beside other work at idle priority.
const START: Duration = Duration::from_secs(120);
/// For containers that are asked to end.
const GRACE: Duration = Duration::from_secs(30);

/// The files that a machine runs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// The folder of the unpacked packages.
    pub(crate) packages: PathBuf,
    pub(crate) kubelet: PathBuf,
}

#[derive(Debug)]
pub struct Machine {
    name: String,
    number: u8,
    home: PathBuf,
    cgroup: String,
    programs: Programs,
    routes: String,
    /// Connections to the Service `kubernetes` lead to this API server after the next start.
    pub(crate) api_server: String,
    /// The address of the simulated instance metadata service, if there is one.
    metadata: String,
    power: Option<Process>,
}

impl Machine {
    /// Writes the disk of machine `number` of `count`.
    pub(crate) fn new(number: u8, count: u8, run: &Path, cgroup: &str, programs: Programs) -> Result<Self> {
        let folder = format!("machine{number}");
        let others = (1..=count).filter(|other| *other != number);
        let routes = others.map(|other| format!("{} {}\n", network::pods(other), network::address(other)));
        let machine = Self {
            home: run.join(&folder),
            cgroup: format!("{cgroup}/{folder}"),
            programs,
            number,
            routes: routes.collect(),
            api_server: format!("{}:6443", network::address(number)),
            name: network::name(number),
            metadata: String::new(),
            power: None,
        };
        machine.write_disk(count)?;
        Ok(machine)
    }

    /// The name of the Node, which is the host name of the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address in the network of the run.
    pub fn address(&self) -> Ipv4Addr {
        network::address(self.number)
    }

    /// The file of this absolute path of the machine, if it is below `/etc`, `/opt` or `/var`.
    pub fn file(&self, path: &str) -> PathBuf {
        self.home.join("disk").join(path.trim_start_matches('/'))
    }

    /// The path of its cgroup, which all its processes are in.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Leads connections to the instance metadata service to this address, now and after each start.
    ///
    /// # Errors
    /// When the machine is off.
    pub async fn lead_metadata_to(&mut self, address: String) -> Result<()> {
        for chain in ["PREROUTING", "OUTPUT"] {
            let rule = format!("-t nat -A {chain} -d {METADATA} -p tcp --dport 80 -j DNAT --to-destination {address}");
            self.iptables(&rule).await?;
        }
        self.metadata = address;
        Ok(())
    }

    pub(crate) async fn iptables(&self, rule: &str) -> Result<()> {
        let words: Vec<&str> = rule.split(' ').collect();
        self.run("iptables", &words).await.map(drop)
    }

    /// Writes a file of the machine, which appears complete or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.file(path);
        let folder = file.parent().context("a file in no folder")?;
        fs::create_dir_all(folder)?;
        // The kubelet reads every file of its folder for manifests, except those whose name begins with a dot.
        let new = folder.join(format!(".{}", self.name));
        fs::write(&new, content)
            .and_then(|()| fs::rename(&new, &file))
            .with_context(|| file.display().to_string())
    }

    /// Copies a program of the host to this path of the machine.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn install(&self, program: &Path, path: &str) -> Result<()> {
        let file = self.file(path);
        fs::create_dir_all(file.parent().context("a program in no folder")?)?;
        // It keeps its mode.
        fs::copy(program, &file)
            .map(drop)
            .with_context(|| format!("{} as {}", program.display(), file.display()))
    }

    /// Switches the machine on, and waits for containerd.
    ///
    /// # Errors
    /// When it is on already, or containerd does not start.
    pub async fn start(&mut self) -> Result<()> {
        ensure!(self.power.is_none(), "{} is on", self.name);
        let system = format!("{}/system", self.cgroup);
        cgroups::create(&system)?;
        let root = self.home.join("root");
        fs::create_dir_all(&root)?;
        let script = self.home.join("machine.sh");
        fs::write(&script, SCRIPT)?;

        let launch = Launch::new(&self.name, "unshare")
            .arguments("--net --mount --pid --uts --ipc --fork --kill-child bash".split(' '))
            .arguments([script.display().to_string()])
            .environment("PATH", std::env::var("PATH").unwrap_or_default())
            .environment("CGROUP_PROCS", cgroups::entrance(&system).display().to_string())
            .environment("ROOT", root.display().to_string())
            .environment("DISK", self.home.join("disk").display().to_string())
            .environment("PACKAGES", self.programs.packages.display().to_string())
            .environment("PROGRAMS", self.programs.kubelet.display().to_string())
            .environment("SYSCTLS", SYSCTLS.join(" "))
            .environment("NAME", &self.name)
            .environment("ADDRESS", self.address().to_string())
            .environment("GATEWAY", HOST.to_string())
            .environment("ROUTES", &self.routes)
            .environment("SERVICE", SERVICE)
            .environment("API_SERVER", &self.api_server)
            .environment("METADATA", METADATA)
            .environment("METADATA_SERVER", &self.metadata);
        let power = Process::start(&launch, &self.home)?;
        power
            .ready("process 1", START, || async { init(power.pid()).map(drop) })
            .await?;
        self.power = Some(power);
        network::connect(self.number, self.init()?)?;

        self.serves_containers().await
    }

    async fn serves_containers(&self) -> Result<()> {
        let power = self.power.as_ref().context("the machine is off")?;
        let version = || async {
            let version = self.run("ctr", &["version"]).await;
            version.map(drop).map_err(|error| format!("{error:#}"))
        };
        Ok(power.ready("answer of containerd", START, version).await?)
    }

    /// Runs a program in the machine, and returns its standard output.
    ///
    /// # Errors
    /// When the machine is off or the program fails.
    pub async fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_with(Stdio::null(), program, arguments).await
    }

    async fn run_with(&self, input: Stdio, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &self.init()?.to_string(), "--", program]);
        command.args(arguments).stdin(input);
        command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output()
            .await?;
        succeeded(&format!("{}: {program} {}", self.name, arguments.join(" ")), &output)
    }

    pub(crate) async fn import(&self, archive: &Path) -> Result<()> {
        let file = File::open(archive).with_context(|| archive.display().to_string())?;
        let arguments = ["--namespace=k8s.io", "images", "import", "-"];
        self.run_with(file.into(), "ctr", &arguments).await.map(drop)
    }

    /// Asks the kubelet and the containers to end, and switches the machine off.
    ///
    /// # Errors
    /// When it is off, or a process does not end.
    pub async fn stop(&mut self) -> Result<()> {
        self.run("touch", &["/run/off"]).await?;
        if self.file("/var/lib/kubelet/config.yaml").exists() {
            self.run("sh", &["-c", "kill \"$(cat /run/kubelet.pid)\""]).await?;
        }
        let containers = format!("{}/kubepods", self.cgroup);
        cgroups::signal(&containers, Signal::SIGTERM)?;
        let ended = async || cgroups::processes(&containers).map(|left| left.is_empty());
        if let Err(error) = until("the end of the containers", GRACE, ended).await {
            eprintln!("{}: {error}", self.name);
        }
        self.cut_power().await
    }

    /// Ends every process of the machine at once, containers included. The disk stays.
    ///
    /// # Errors
    /// When a process does not end.
    pub async fn cut_power(&mut self) -> Result<()> {
        if let Some(power) = self.power.take() {
            power.kill_now().await?;
        }
        let cgroup = self.cgroup.clone();
        tokio::task::spawn_blocking(move || cgroups::remove(&cgroup)).await?
    }

    /// Process 1 of the machine, as the host numbers it.
    fn init(&self) -> Result<i32> {
        let power = self.power.as_ref();
        let power = power.with_context(|| format!("{} is off", self.name))?;
        init(power.pid()).map_err(anyhow::Error::msg)
    }

    fn write_disk(&self, count: u8) -> Result<()> {
        for folder in [
            "etc/kubernetes/manifests",
            "opt",
            "var/lib/kubelet",
            "var/log",
            "var/tmp",
        ] {
            let folder = self.file(folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }

        let names = (1..=count).map(|number| format!("{} {}\n", network::address(number), network::name(number)));
        self.write(
            "/etc/hosts",
            format!("127.0.0.1 localhost\n{}", names.collect::<String>()),
        )?;
        self.write("/etc/hostname", format!("{}\n", self.name))?;
        self.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")?;
        self.write("/etc/group", "root:x:0:\n")?;
        self.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")?;
        // There is no DNS, but the kubelet wants to read the file.
        self.write("/etc/resolv.conf", "")?;
        self.write("/etc/containerd/config.toml", containerd())?;

        let network = json!({"cniVersion": "0.4.0", "name": "machines", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network::pods(self.number)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }]});
        self.write("/etc/cni/net.d/10-bridge.conflist", network.to_string())
    }
}

/// The only child of `unshare`.
fn init(unshare: i32) -> Result<i32, String> {
    let path = format!("/proc/{unshare}/task/{unshare}/children");
    let children = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    children.trim().parse().map_err(|_| format!("{path} is {children:?}"))
}

/// Without `restrict_oom_score_adj` runc tries to lower a score, which needs `CAP_SYS_RESOURCE`.
fn containerd() -> String {
    format!(
        r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

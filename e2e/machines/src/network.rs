//! The network of a run: a namespace with a bridge. The host's own network does not change.
//!
//! Machine N has the address 172.31.0.(10+N) and the Pod addresses 10.244.N.0/24. 172.31.0.1 is the harness: connections
//! to it reach the servers that listen on loopback in this namespace. The addresses are in the first subnet of a default
//! VPC (<https://docs.aws.amazon.com/vpc/latest/userguide/default-vpc-components.html>), so a simulated AWS can have
//! instances with them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};

use crate::command::{output, run};

/// The address of the harness for machines and Pods.
pub const HOST: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 1);

const BRIDGE: &str = "machines";

/// Moves the calling thread into a new network. Threads and processes that it starts later are in it too.
pub(crate) fn enter() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace")?;
    run("ip", "link set lo up")?;
    run("ip", &format!("link add {BRIDGE} type bridge"))?;
    run("ip", &format!("address add {HOST}/24 dev {BRIDGE}"))?;
    run("ip", &format!("link set {BRIDGE} up"))?;

    // Else the kernel drops packets to loopback addresses that come from the bridge.
    let setting = format!("/proc/sys/net/ipv4/conf/{BRIDGE}/route_localnet");
    std::fs::write(&setting, "1").with_context(|| setting)
}

/// Leads connections to [`HOST`] to loopback. `packages` is the folder of the unpacked packages.
pub(crate) fn publish_loopback(packages: &Path) -> Result<()> {
    let libraries = libraries(packages)?;
    let rule = format!("-t nat -A PREROUTING -i {BRIDGE} -d {HOST} -p tcp -j DNAT --to-destination 127.0.0.1");
    let mut iptables = Command::new(packages.join("usr/sbin/iptables-nft"));
    iptables
        .args(rule.split_whitespace())
        .env("LD_LIBRARY_PATH", &libraries)
        .env("XTABLES_LIBDIR", libraries.join("xtables"));
    output(&mut iptables).map(drop)
}

/// `usr/lib/x86_64-linux-gnu`, or the folder of another architecture.
fn libraries(packages: &Path) -> Result<std::path::PathBuf> {
    let folders = std::fs::read_dir(packages.join("usr/lib")).context("the libraries of the packages")?;
    let mut folders = folders.flatten().map(|entry| entry.path());
    folders
        .find(|folder| folder.join("xtables").is_dir())
        .with_context(|| format!("{} has no library of iptables", packages.display()))
}

/// Connects a machine, given by the process ID of its process 1.
pub(crate) fn connect(number: u8, process: i32) -> Result<()> {
    let end = format!("machine{number}");
    // The kernel removes the link of the machine's former network at some time after its processes have ended.
    let _ = run("ip", &format!("link delete {end}"));
    run(
        "ip",
        &format!("link add {end} type veth peer name eth0 netns {process}"),
    )?;
    run("ip", &format!("link set {end} master {BRIDGE} up"))?;
    let route = format!("route replace {} via {}", pods(number), address(number));
    run("ip", &route).map(drop)
}

pub(crate) fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 31, 0, 10 + number)
}

/// The private DNS name that an instance with this address has in us-east-1:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/hostname-types.html>
pub(crate) fn name(number: u8) -> String {
    format!("ip-{}.ec2.internal", address(number).to_string().replace('.', "-"))
}

/// The range of the Pods of a machine.
pub(crate) fn pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

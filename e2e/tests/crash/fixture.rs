//! One manager without leader election, the Service that it works on, and what there is of it at AWS and in Kubernetes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use outrigger_aws_sim::query::Parameters;
use outrigger_aws_sim::{Call, Fault, FaultHandle, Instance, When};
use outrigger_cluster_harness::kubelets::Kubelet;
use outrigger_e2e::single_cluster::{Manager, Options, SingleCluster, differences, node_of};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::change::Edit;

/// Much longer than anything takes here.
pub const LIMIT: Duration = Duration::from_secs(60);
/// A manager that has asked nothing of AWS for so long has nothing more to do, after an undisturbed change of which it
/// has emitted the last Event.
const QUIET: Duration = Duration::from_millis(1300);
/// The same without this Event. A busy machine does not run a manager for seconds.
const QUIET_WITHOUT_EVENT: Duration = Duration::from_secs(8);
/// The last Events of changes.
const LAST: [&str; 3] = ["EnsuredLoadBalancer", "UpdatedLoadBalancer", "DeletedLoadBalancer"];
/// The same, where the end is known.
const STILL: Duration = Duration::from_millis(200);
/// Between two looks at AWS.
const LOOK: Duration = Duration::from_millis(40);
/// So many that one that leaves is no sudden loss, which the manager would look at twice.
const INSTANCES: usize = 7;
/// A security group that is not the manager's.
pub const GIVEN_GROUP: &str = "given";

/// Everything that stands. Fields drop in order.
pub struct Fixture {
    manager: Manager,
    managers: usize,
    kubelets: Vec<Kubelet>,
    spare: Instance,
    services: Api<Service>,
    nodes: Api<Node>,
    cluster: SingleCluster,
    /// ID of [`GIVEN_GROUP`].
    pub given_group: String,
    /// The one Service.
    pub service: &'static str,
}

impl Fixture {
    /// Starts everything, with a Node for each instance but one, and the first manager.
    pub async fn start(service: &'static str, service_range: &'static str) -> Self {
        let options = Options {
            name: "outrigger-crash-",
            service_range,
            instances: INSTANCES,
            global: &["NLBSecurityGroupMode = Managed"],
        };
        let cluster = SingleCluster::start(&options).await.expect("a tenant");
        let (spare, machines) = cluster.account.instances.split_last().expect("instances");
        let mut kubelets = Vec::new();
        for machine in machines {
            let kubelet = Kubelet::start(&cluster.kube_config, node_of(machine)).await;
            kubelets.push(kubelet.expect("joins"));
        }
        let manager = start_manager(&cluster, 1);
        Self {
            manager,
            managers: 1,
            kubelets,
            spare: spare.clone(),
            services: Api::default_namespaced(cluster.client.clone()),
            nodes: Api::all(cluster.client.clone()),
            given_group: make_group(&cluster).await,
            cluster,
            service,
        }
    }

    /// Kills the manager and tells its name.
    pub async fn kill_manager(&self) -> String {
        self.manager.kill().await.expect("killed");
        self.manager.name().to_owned()
    }

    /// Starts the next manager, in the place of one that was killed.
    pub fn restart_manager(&mut self) {
        self.managers += 1;
        self.manager = start_manager(&self.cluster, self.managers);
    }

    /// Holds the `nth` write of the manager that runs, counted from now.
    pub fn hold_write(&self, nth: usize, when: When) -> FaultHandle {
        let writes = Fault::on_writes().hold(when).by(self.manager.name());
        self.cluster.proxy.add_fault(writes.from(nth).times(1))
    }

    /// Holds the next call of an action by the manager that runs.
    pub fn hold_next(&self, action: &str) -> FaultHandle {
        let calls = Fault::on(action).hold(When::BeforeForwarding).by(self.manager.name());
        self.cluster.proxy.add_fault(calls.times(1))
    }

    /// A place in the record of AWS calls to count from.
    pub fn mark(&self) -> u64 {
        self.cluster.proxy.mark()
    }

    /// The AWS calls from there on.
    pub fn calls_since(&self, mark: u64) -> Vec<Call> {
        self.cluster.proxy.calls_since(mark)
    }

    /// Waits for a recorded AWS call.
    pub async fn wait_for<T>(&self, what: &str, look: impl FnMut(&[Call]) -> Option<T>) -> T {
        let found = self.cluster.proxy.wait_for(what, LIMIT, look).await;
        found.expect("seen")
    }

    /// Does to the cluster what a user, or the cluster itself, would do.
    pub async fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Create(service) => {
                let service = serde_json::from_value(service.clone()).expect("a Service");
                let created = self.services.create(&PostParams::default(), &service).await;
                created.expect("created");
            }
            Edit::Delete => {
                let deleted = self.services.delete(self.service, &DeleteParams::default()).await;
                deleted.expect("deleted");
            }
            Edit::Patch(patch) => {
                let params = PatchParams::default();
                let patched = self.services.patch(self.service, &params, &Patch::Merge(patch)).await;
                patched.expect("patched");
            }
            Edit::Join => {
                let kubelet = Kubelet::start(&self.cluster.kube_config, node_of(&self.spare)).await;
                self.kubelets.push(kubelet.expect("joins"));
            }
            Edit::Leave => {
                let name = &self.spare.private_dns_name;
                self.kubelets.retain(|kubelet| kubelet.name() != name);
                let deleted = self.nodes.delete(name, &DeleteParams::default()).await;
                deleted.expect("deleted");
            }
        }
    }

    /// The state of the whole account, and the fields of the Service that the manager writes.
    pub async fn state(&self) -> Value {
        let service = self.services.get_opt(self.service).await.expect("readable");
        self.cluster.read_account(service.as_slice()).await.expect("an account")
    }

    /// How many Events there are that end a change.
    pub async fn last_events(&self) -> i32 {
        let events = self.cluster.service_events().await.expect("Events");
        let last = events.iter().filter(|event| LAST.contains(&event.reason.as_str()));
        last.map(|event| event.count).sum()
    }

    /// Waits until an undisturbed change is over, before which there were so many [`Fixture::last_events`].
    pub async fn quiet(&self, mark: u64, events: i32) {
        let deadline = Instant::now() + QUIET_WITHOUT_EVENT;
        while self.last_events().await == events && Instant::now() < deadline {
            sleep(STILL).await;
        }
        let more = self.last_events().await > events;
        let long = if more { QUIET } else { QUIET_WITHOUT_EVENT };
        self.silence(mark, long, Call::is_write).await;
    }

    /// Waits until everything is as `end` says and the manager, which has been at it since `mark`, has nothing more to
    /// do.
    pub async fn reach(&self, end: &Value, mark: u64, what: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.silence(mark, STILL, |_| true).await;
            let calls = self.mark();
            let state = self.state().await;
            if state == *end && self.mark() == calls {
                return;
            }
            if Instant::now() >= deadline {
                let lines = differences(end, &state).join("\n");
                panic!("{what}: {lines}\nthe manager says:\n{}", self.manager.log_tail());
            }
            sleep(LOOK).await;
        }
    }

    /// Waits until the manager that runs has called AWS at least once in a way that `counts`, and not again for `long`.
    async fn silence(&self, mark: u64, long: Duration, counts: impl Fn(&Call) -> bool) {
        let deadline = Instant::now() + LIMIT;
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let calls = self.calls_since(mark);
            let mut own = calls.iter().filter(|call| call.caller == self.manager.name());
            if calls.len() != seen || calls.iter().any(|call| call.outcome.is_none()) {
                (seen, since) = (calls.len(), Instant::now());
            }
            if since.elapsed() >= long && own.any(&counts) {
                return;
            }
            self.manager.alive().expect("it runs");
            let log = || self.manager.log_tail();
            assert!(Instant::now() < deadline, "it asks nothing, or never stops:\n{}", log());
            sleep(LOOK).await;
        }
    }

    /// Takes away what names the group that is not the manager's: rules that name a group of others are theirs.
    pub async fn forget_given_group(&self) {
        let group = &self.cluster.account.security_group_id;
        let rule = [
            ("GroupId", group.as_str()),
            ("IpPermissions.1.IpProtocol", "-1"),
            ("IpPermissions.1.Groups.1.GroupId", &self.given_group),
        ];
        let revoked = call(&self.cluster, "RevokeSecurityGroupIngress", &rule).await;
        if let Err(error) = revoked {
            assert!(error.to_string().contains("InvalidPermission.NotFound"), "{error}");
        }
    }
}

fn start_manager(cluster: &SingleCluster, number: usize) -> Manager {
    // Of AWS's budget it may take everything: with less its reads are paced so far apart that it seems to be at rest.
    let flags = [
        "--leader-elect=false",
        "--controllers=service-lb-controller",
        "--aws-api-budget-share=1",
    ];
    let manager = cluster.manager(&format!("outrigger-manager-{number}"), &flags);
    manager.expect("the manager starts")
}

async fn make_group(cluster: &SingleCluster) -> String {
    let group = [
        ("GroupName", GIVEN_GROUP),
        ("GroupDescription", "made by hand"),
        ("VpcId", &cluster.account.vpc_id),
    ];
    let made = call(cluster, "CreateSecurityGroup", &group).await.expect("made");
    made.find("groupId").expect("an ID").text.clone()
}

async fn call(
    cluster: &SingleCluster,
    action: &str,
    parameters: &[(&str, &str)],
) -> Result<outrigger_aws_sim::xml::Element, outrigger_aws_sim::AwsError> {
    let parameters: Parameters = parameters.iter().copied().collect();
    cluster
        .proxy
        .ask(&outrigger_aws_sim::Service::Ec2, action, parameters)
        .await
}

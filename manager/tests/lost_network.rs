//! The bytes of a write are not delivered after a network failed for longer than the permit to write.
//!
//! The test takes the link down in a network namespace of its own. It is skipped where the kernel allows none.

#![allow(
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outrigger_aws::{Tags, Unobserved};
use outrigger_manager::args::{self, Options, Request};
use outrigger_manager::identity::{Cloud, Cluster};
use outrigger_manager::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const IN_NAMESPACE: &str = "OUTRIGGER_TEST_IN_NETWORK_NAMESPACE";
const SERVER: &str = "127.0.0.1:8080";
/// The time between the end of the permit and the next holder, by the flags below.
const USER_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection without the limit above lasts for a quarter of an hour.
const LIMIT: Duration = Duration::from_secs(30);
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1s",
    "--leader-elect-retry-period=500ms",
];

/// The arguments of `unshare` that give a program a network of its own; `None` where the kernel allows none.
fn network_namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--net"], &["--net", "--user", "--map-root-user"]];
    ways.into_iter().find(|arguments| {
        let mut command = Command::new("unshare");
        command.args(*arguments).args(["ip", "link", "set", "lo", "up"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn set_link(state: &str) {
    let changed = Command::new("ip").args(["link", "set", "lo", state]).status();
    assert!(changed.unwrap().success());
}

#[test]
fn a_write_in_a_failed_network_is_not_delivered_after_the_permit() {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        return runtime.unwrap().block_on(in_namespace());
    }

    let Some(namespace) = network_namespace() else {
        eprintln!("skipped: `unshare --net` or `ip` cannot be used here");
        return;
    };
    let output = Command::new("unshare")
        .args(namespace)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_write_in_a_failed_network_is_not_delivered_after_the_permit",
            "--nocapture",
        ])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env(IN_NAMESPACE, "1")
        .env("AWS_REGION", "eu-central-1")
        .env("AWS_ENDPOINT_URL", format!("http://{SERVER}"))
        .env("AWS_ACCESS_KEY_ID", "a")
        .env("AWS_SECRET_ACCESS_KEY", "b")
        .env("AWS_MAX_ATTEMPTS", "1")
        .output();
    let output = output.unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

/// The two clients of a manager with these flags.
#[derive(Clone)]
struct Clients {
    name: &'static str,
    aws: outrigger_aws::Clients,
    api: kube::Client,
}

impl Clients {
    async fn of(name: &'static str, flags: &[&str]) -> Self {
        let address = format!("--master=http://{SERVER}");
        let common = ["--cloud-provider=aws", "--vpc-id=vpc-1", "--cluster-id=c", &address];
        let options = options(&[&common, flags].concat());
        let cloud = Cloud::connect(&options, Arc::new(Unobserved)).await.unwrap();
        let cluster = Cluster::of(&options, Metrics::new().rest_client()).await.unwrap();
        Self {
            name,
            aws: cloud.clients,
            api: cluster.client("test").unwrap(),
        }
    }

    async fn write_to_aws(self, number: u32) -> bool {
        let tags = Tags::from([(format!("aws-{}-{number}", self.name), String::new())]);
        self.aws.ec2.create_tags(&["i-1".into()], &tags).await.is_ok()
    }

    async fn write_to_api(self, number: u32) -> bool {
        let request = http::Request::post("/api/v1").body(format!("api-{}-{number}.", self.name).into_bytes());
        self.api.request_text(request.unwrap()).await.is_ok()
    }

    /// Opens the connections.
    async fn first(&self) {
        assert!(self.clone().write_to_aws(1).await && self.clone().write_to_api(1).await);
    }
}

fn options(arguments: &[&str]) -> Options {
    let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    match args::parse(&arguments) {
        Ok(Request::Run(options)) => *options,
        Ok(Request::Print(text)) => panic!("{text}"),
        Err(error) => panic!("{error:?}"),
    }
}

/// AWS and API server. Keeps the requests.
async fn serve(received: Arc<Mutex<String>>) {
    let listener = TcpListener::bind(SERVER).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream, Arc::clone(&received)));
        }
    });
}

async fn answer_all(mut stream: TcpStream, received: Arc<Mutex<String>>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut request = String::new();
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let part = String::from_utf8_lossy(&buffer[..length]).into_owned();
        received.lock().unwrap().push_str(&part);
        request.push_str(&part);
        if !is_whole(&request) {
            continue;
        }
        let body = if request.starts_with("POST /api") {
            "{}"
        } else {
            "<CreateTagsResponse><return>true</return></CreateTagsResponse>"
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        request.clear();
    }
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    body.len() >= length.map_or(0, |length| length.trim().parse().unwrap())
}

async fn in_namespace() {
    set_link("up");
    let received = Arc::<Mutex<String>>::default();
    serve(Arc::clone(&received)).await;
    let has_received = |text: &str| received.lock().unwrap().contains(text);

    let leader = Clients::of("leader", &ELECTION).await;
    let control = Clients::of("control", &["--leader-elect=false"]).await;
    let dropped = Clients::of("dropped", &["--leader-elect=false"]).await;
    for clients in [&leader, &control, &dropped] {
        clients.first().await;
    }
    assert!(has_received("aws-leader-1") && has_received("api-dropped-1"));

    set_link("down");
    let down = Instant::now();
    let led = tokio::spawn(leader.clone().write_to_aws(2));
    let led_api = tokio::spawn(leader.write_to_api(2));
    tokio::spawn(control.clone().write_to_aws(2));
    tokio::spawn(control.write_to_api(2));
    let soon = USER_TIMEOUT / 5;
    let _ = tokio::join!(
        timeout(soon, dropped.clone().write_to_aws(2)),
        timeout(soon, dropped.write_to_api(2))
    );
    sleep(2 * USER_TIMEOUT).await;
    while !led.is_finished() || !led_api.is_finished() {
        assert!(down.elapsed() < LIMIT, "the connections end");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!led.await.unwrap() && !led_api.await.unwrap(), "nothing was answered");

    set_link("up");
    while !has_received("aws-control-2") || !has_received("api-control-2") {
        assert!(
            down.elapsed() < 2 * LIMIT,
            "the kernel sends the bytes of the control again"
        );
        sleep(Duration::from_millis(50)).await;
    }
    // All bytes were sent within this time of each other.
    sleep(USER_TIMEOUT).await;
    for late in ["aws-leader-2", "api-leader-2", "aws-dropped-2", "api-dropped-2"] {
        assert!(!has_received(late), "{late} was delivered {:?} later", down.elapsed());
    }
}

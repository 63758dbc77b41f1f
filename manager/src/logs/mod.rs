//! Logs on stderr: text, or JSON with `--logging-format=json`. `RUST_LOG` wins over `--v` at the start; what is PUT to
//! `/debug/flags/v` wins over both. [`log_limits`] holds for each of them.

mod json;

use outrigger_shared::log_limits;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::args::Logs;

/// How much is logged, changeable while the process runs. Clones share it.
#[derive(Clone)]
pub struct Verbosity(reload::Handle<EnvFilter, Registry>);

impl Verbosity {
    /// Logs as with this value of `--v` from now on.
    ///
    /// # Errors
    /// A text when logging has ended, which is when the process ends.
    pub fn set(&self, level: u32) -> Result<(), String> {
        self.0
            .reload(EnvFilter::new(directives(level)))
            .map_err(|error| error.to_string())
    }

    /// A handle that changes nothing that is seen: for tests of what is around it. The second value keeps it alive.
    pub fn detached() -> (Self, impl Send + Sync + 'static) {
        let (layer, handle) = reload::Layer::new(EnvFilter::new(directives(0)));
        (Self(handle), layer)
    }
}

pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }

    text
}

/// Which levels of which crates a value of `--v` shows.
fn directives(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info,kube_runtime=error,kube_client=error",
        4..=5 => {
            "info,kube_runtime=error,outrigger=debug,outrigger_manager=debug,outrigger_leader=debug,outrigger_aws=debug"
        }
        _ => "debug",
    }
}

/// The most that any filter can show: never what is sent on a connection, as there are tokens and signatures in it.
fn limits() -> Targets {
    Targets::new()
        .with_default(LevelFilter::DEBUG)
        .with_target(log_limits::OWN, LevelFilter::TRACE)
        .with_targets(log_limits::CONNECTIONS.map(|target| (target, LevelFilter::INFO)))
        .with_targets(log_limits::SILENT.map(|target| (target, LevelFilter::OFF)))
}

/// Starts logging for the whole process. A second call does nothing: it happens in tests.
pub fn start(options: Logs) -> Verbosity {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives(options.verbosity)));
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter).with(limits());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let _ = if options.json {
        log_panics();
        registry
            .with(lines.fmt_fields(JsonFields::new()).event_format(json::Klog))
            .try_init()
    } else {
        registry.with(lines.with_ansi(false)).try_init()
    };

    Verbosity(handle)
}

/// A panic is a line like any other for a machine that reads the log.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(
            place,
            error = panic.payload_as_str().unwrap_or("no message"),
            "panicked: this is a bug"
        );
    }));
}

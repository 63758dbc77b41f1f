//! One JSON object a line, with the field names of Kubernetes' own JSON logs: `ts` (milliseconds since 1970), `caller`,
//! `msg`, `v` (not on errors), `err`; then the event's own fields. `level` is an addition: Kubernetes' logs do not mark
//! warnings.

use std::error::Error;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Names that a line has anyway. A field of such a name gets an underscore.
const RESERVED: [&str; 5] = ["ts", "level", "v", "caller", "msg"];

#[derive(Debug)]
pub(super) struct Klog;

impl<S> FormatEvent<S, JsonFields> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let Some(text) = extensions.get::<FormattedFields<JsonFields>>() else {
                continue;
            };

            // The same library wrote it, so that it is an object.
            if let Ok(Value::Object(of_span)) = serde_json::from_str(&text.fields) {
                of_span.into_iter().for_each(|(name, value)| fields.put(&name, value));
            }
        }

        event.record(&mut fields);
        writeln!(writer, "{}", line(Timestamp::now(), event.metadata(), &fields))
    }
}

fn line(now: Timestamp, metadata: &Metadata<'_>, fields: &Fields) -> String {
    let micros = now.as_microsecond();
    let mut line = format!("{{\"ts\":{}.{:03}", micros / 1000, micros % 1000);
    let mut put = |name: &str, value: &Value| {
        line.push(',');
        line.push_str(&Value::from(name).to_string());
        line.push(':');
        line.push_str(&value.to_string());
    };
    let level = *metadata.level();
    put("level", &json!(level.as_str().to_ascii_lowercase()));
    match level {
        Level::ERROR => {}
        Level::TRACE => put("v", &json!(6)),
        Level::DEBUG => put("v", &json!(4)),
        _ => put("v", &json!(0)),
    }

    put("caller", &json!(caller(metadata)));
    put("msg", &json!(fields.message));
    fields.others.iter().for_each(|(name, value)| put(name, value));
    line.push('}');

    line
}

/// File and line, or the target if a library does not give them.
fn caller(metadata: &Metadata<'_>) -> String {
    match (metadata.file(), metadata.line()) {
        (Some(file), Some(line)) => {
            let mut parts = file.rsplit('/');
            let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{folder}/{name}:{line}")
        }
        _ => metadata.target().to_owned(),
    }
}

#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, name: &str, value: Value) {
        match name {
            "message" => self.message = value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            "error" => drop(self.others.insert("err".into(), value)),
            name if RESERVED.contains(&name) => drop(self.others.insert(format!("{name}_"), value)),
            name => drop(self.others.insert(name.into(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    /// The whole chain of causes.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field.name(), super::with_causes(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Buffer {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn lines(log: impl FnOnce()) -> Vec<Value> {
        let buffer = Buffer::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(buffer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Klog);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn an_event_has_kubernetes_names_and_the_fields_of_its_spans() {
        let lines = lines(|| {
            let span = tracing::info_span!("reconcile", controller = "service", v = 7);
            let _inside = span.enter();
            tracing::warn!(node = "n\"1", count = 3_u64, "two\nlines");
        });
        let line = &lines[0];
        let now = Timestamp::now().as_millisecond() as f64;
        assert!((line["ts"].as_f64().unwrap() - now).abs() < 60_000.0, "{line}");
        assert_eq!(line["msg"], "two\nlines");
        assert_eq!((&line["v"], &line["v_"]), (&json!(0), &json!(7)));
        assert_eq!((&line["level"], &line["node"]), (&json!("warn"), &json!("n\"1")));
        assert_eq!((&line["controller"], &line["count"]), (&json!("service"), &json!(3)));
        assert!(line["caller"].as_str().unwrap().starts_with("logs/json.rs:"), "{line}");
    }

    #[test]
    fn an_error_has_its_chain_and_no_verbosity() {
        let inner = io::Error::other("disk full");
        let outer = serde_json::Error::io(inner);
        let lines = lines(|| {
            tracing::error!(error = &outer as &dyn Error, "ending");
            tracing::debug!("fine");
        });
        assert!(lines[0]["err"].as_str().unwrap().contains("disk full"), "{}", lines[0]);
        assert!(lines[0].get("v").is_none() && lines[0].get("error").is_none());
        assert_eq!(lines[1]["v"], 4);
    }
}

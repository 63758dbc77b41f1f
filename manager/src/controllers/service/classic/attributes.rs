//! The attributes of a classic load balancer.

use outrigger_aws::elb::{AccessLog, Attributes};

use super::super::annotations::Annotations;
use super::super::error::Invalid;

/// Seconds after which AWS, and both providers, close an idle connection by default.
const IDLE_TIMEOUT: i32 = 60;

/// What the annotations ask for. What AWS gives a new load balancer is the same without any annotation.
///
/// # Errors
/// When an annotation is no boolean or no number.
pub fn wanted(annotations: Annotations<'_>) -> Result<Attributes, Invalid> {
    let text = |suffix| annotations.filled(suffix).map(str::to_owned);
    // In the in-tree provider's order, which decides which of several wrong values is told.
    let emit_interval = annotations.integer("access-log-emit-interval")?;
    let logs = annotations.flag("access-log-enabled")?;
    let draining = annotations.flag("connection-draining-enabled")?;
    let draining_timeout = annotations.integer("connection-draining-timeout")?;
    let idle_timeout = annotations.integer("connection-idle-timeout")?;
    let cross_zone = annotations.flag("cross-zone-load-balancing-enabled")?;
    Ok(Attributes {
        cross_zone: Some(cross_zone.unwrap_or(false)),
        access_log: Some(AccessLog {
            enabled: logs.unwrap_or(false),
            emit_interval,
            bucket: text("access-log-s3-bucket-name"),
            prefix: text("access-log-s3-bucket-prefix"),
        }),
        connection_draining: Some(draining.unwrap_or(false)),
        connection_draining_timeout: draining_timeout,
        idle_timeout: Some(idle_timeout.unwrap_or(IDLE_TIMEOUT)),
    })
}

/// The names of the wanted attributes that AWS does not have so. Fields that nobody asked for do not count: AWS
/// answers with more than was ever set, and a comparison of the whole would find a difference for ever. The
/// details of logs and of draining count only while these are on.
#[must_use]
pub fn differences(wanted: &Attributes, actual: &Attributes) -> Vec<&'static str> {
    let mut differ = Vec::new();
    let mut compare = |name, same: bool| {
        if !same {
            differ.push(name);
        }
    };
    compare(
        "cross-zone",
        met(wanted.cross_zone.as_ref(), actual.cross_zone.as_ref()),
    );
    compare(
        "idle time-out",
        met(wanted.idle_timeout.as_ref(), actual.idle_timeout.as_ref()),
    );
    compare(
        "connection draining",
        met(wanted.connection_draining.as_ref(), actual.connection_draining.as_ref()),
    );
    let draining = wanted.connection_draining == Some(true);
    let timeouts = (
        wanted.connection_draining_timeout.as_ref(),
        actual.connection_draining_timeout.as_ref(),
    );
    compare("connection draining time-out", !draining || met(timeouts.0, timeouts.1));
    let default = AccessLog::default();
    let (log, now) = (
        wanted.access_log.as_ref().unwrap_or(&default),
        actual.access_log.as_ref().unwrap_or(&default),
    );
    compare("access log", log.enabled == now.enabled);
    compare(
        "access log details",
        !log.enabled
            || (met(log.emit_interval.as_ref(), now.emit_interval.as_ref())
                && met(log.bucket.as_ref(), now.bucket.as_ref())
                && met(log.prefix.as_ref(), now.prefix.as_ref())),
    );
    differ
}

/// Whether a wish is met; no wish is always met.
fn met<T: PartialEq>(wanted: Option<&T>, actual: Option<&T>) -> bool {
    wanted.is_none() || wanted == actual
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_aws() -> Attributes {
        Attributes {
            cross_zone: Some(false),
            access_log: Some(AccessLog {
                emit_interval: Some(60),
                ..AccessLog::default()
            }),
            connection_draining: Some(false),
            connection_draining_timeout: Some(300),
            idle_timeout: Some(60),
        }
    }

    #[test]
    fn what_aws_adds_by_itself_is_no_difference() {
        let service = k8s_openapi::api::core::v1::Service::default();
        let mut wanted = wanted(Annotations::of(&service)).unwrap();
        let mut actual = of_aws();
        assert_eq!(differences(&wanted, &actual), Vec::<&str>::new());
        (wanted.connection_draining, actual.connection_draining) = (Some(true), Some(true));
        wanted.access_log = Some(AccessLog {
            enabled: true,
            bucket: Some("logs".into()),
            ..AccessLog::default()
        });
        actual.access_log = Some(AccessLog {
            emit_interval: Some(60),
            ..wanted.access_log.clone().unwrap()
        });
        assert_eq!(
            differences(&wanted, &actual),
            Vec::<&str>::new(),
            "time-out and interval were not asked for"
        );
    }

    #[test]
    fn each_wish_that_is_not_met_is_named() {
        let wanted = Attributes {
            cross_zone: Some(true),
            access_log: Some(AccessLog {
                enabled: true,
                bucket: Some("logs".into()),
                ..AccessLog::default()
            }),
            connection_draining: Some(true),
            connection_draining_timeout: Some(60),
            idle_timeout: Some(30),
        };
        assert_eq!(differences(&wanted, &of_aws()).len(), 6);
        assert_eq!(differences(&wanted, &wanted), Vec::<&str>::new());
    }
}

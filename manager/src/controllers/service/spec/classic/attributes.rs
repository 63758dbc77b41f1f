//! The attributes of a classic load balancer.

use outrigger_aws::elb::{AccessLog, Attributes};

use super::super::super::error::Invalid;
use super::super::annotations::Annotations;

/// Seconds after which AWS, and both providers, close an idle connection by default.
const IDLE_TIMEOUT: i32 = 60;
/// Seconds for which connections drain, and minutes between two access logs, by default at AWS. The in-tree provider
/// does not send them at a sync, so that they return when an annotation is removed.
const DRAINING_TIMEOUT: i32 = 300;
const EMIT_INTERVAL: i32 = 60;

/// The requested attributes. Without any annotation they are those of a new load balancer. Fails when an annotation is
/// no boolean or no number.
pub fn wanted(annotations: Annotations<'_>) -> Result<Attributes, Invalid> {
    let text = |suffix| annotations.filled(suffix).map(str::to_owned);
    // In the in-tree provider's order, which decides which of several wrong values is reported.
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
        connection_draining_timeout: draining_timeout.or((draining == Some(true)).then_some(DRAINING_TIMEOUT)),
        idle_timeout: Some(idle_timeout.unwrap_or(IDLE_TIMEOUT)),
    })
}

/// The names of the wanted attributes that differ at AWS. Fields that are not requested do not count: AWS returns more
/// than was ever set, and a comparison of the whole would always find a difference. The details of logs and of draining
/// count only while these are on.
pub fn differences(wanted: &Attributes, actual: &Attributes) -> Vec<&'static str> {
    let draining = wanted.connection_draining == Some(true);
    let (log, now) = (wanted.access_log.clone(), actual.access_log.clone());
    let (log, now) = (log.unwrap_or_default(), now.unwrap_or_default());
    let details = |log: &AccessLog| {
        let (bucket, prefix) = (log.bucket.clone(), log.prefix.clone());
        let interval = log.emit_interval.unwrap_or(EMIT_INTERVAL);
        (bucket.unwrap_or_default(), prefix.unwrap_or_default(), interval)
    };

    let timeout = met(wanted.connection_draining_timeout, actual.connection_draining_timeout);
    let compared = [
        ("cross-zone", met(wanted.cross_zone, actual.cross_zone)),
        ("idle time-out", met(wanted.idle_timeout, actual.idle_timeout)),
        (
            "connection draining",
            met(wanted.connection_draining, actual.connection_draining),
        ),
        ("connection draining time-out", !draining || timeout),
        ("access log", log.enabled == now.enabled),
        ("access log details", !log.enabled || details(&log) == details(&now)),
    ];

    let differ = compared.into_iter().filter(|(_, same)| !same);
    differ.map(|(name, _)| name).collect()
}

/// Whether AWS has the wanted value, or none is wanted.
fn met<T: PartialEq>(wanted: Option<T>, actual: Option<T>) -> bool {
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
    fn details_of_what_is_off_are_no_difference() {
        let of = |timeout, interval| Attributes {
            connection_draining_timeout: Some(timeout),
            access_log: Some(AccessLog {
                emit_interval: Some(interval),
                ..AccessLog::default()
            }),
            ..of_aws()
        };
        assert_eq!(differences(&of(120, 5), &of(300, 60)), Vec::<&str>::new());
    }

    #[test]
    fn details_whose_annotations_are_taken_off_are_as_aws_has_them_by_default() {
        let annotated = |more: &[(&str, &str)]| {
            let on = [("access-log-enabled", "true"), ("connection-draining-enabled", "true")];
            let all = on.iter().chain(more);
            let key = |suffix: &str| format!("service.beta.kubernetes.io/aws-load-balancer-{suffix}");
            let mut service = k8s_openapi::api::core::v1::Service::default();
            let all = all.map(|(suffix, value)| (key(suffix), (*value).to_owned()));
            service.metadata.annotations = Some(all.collect());
            wanted(Annotations::of(&service)).unwrap()
        };
        let details = [
            ("connection-draining-timeout", "120", "connection draining time-out"),
            ("access-log-emit-interval", "5", "access log details"),
            ("access-log-s3-bucket-prefix", "a/b", "access log details"),
            ("access-log-s3-bucket-name", "logs", "access log details"),
        ];
        let plain = annotated(&[]);
        for (suffix, value, name) in details {
            let before = annotated(&[(suffix, value)]);
            assert_eq!(differences(&plain, &before), [name], "{suffix} is gone");
            assert_eq!(differences(&before, &before), Vec::<&str>::new());
        }
        let (mut of_aws, mut log) = (of_aws(), plain.access_log.clone().unwrap());
        log.prefix = Some(String::new());
        (of_aws.connection_draining, of_aws.access_log) = (Some(true), Some(log));
        assert_eq!(
            differences(&plain, &of_aws),
            Vec::<&str>::new(),
            "nothing was asked for"
        );
    }

    #[test]
    fn each_attribute_that_differs_is_named() {
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

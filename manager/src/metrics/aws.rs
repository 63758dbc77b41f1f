//! Calls of AWS: under the incumbent's names, and finer under ours.

use outrigger_aws::{Call, CallObserver, Ending, Kind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::buckets;
use super::catalog::Catalog;
use super::text::BareCounter;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    service: String,
    operation: String,
    status_code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    service: String,
    operation: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    service: String,
    operation: String,
    outcome: &'static str,
}

#[derive(Debug, Clone)]
pub(super) struct AwsCalls {
    durations: Family<RequestLabel, Histogram, fn() -> Histogram>,
    errors: Family<RequestLabel, BareCounter>,
    throttled: Family<OperationLabel, Counter>,
    statuses: Family<StatusLabels, Counter>,
    calls: Family<OutcomeLabels, Counter>,
    fine: Family<CallLabels, Histogram, fn() -> Histogram>,
}

impl AwsCalls {
    pub(super) fn registered(catalog: &mut Catalog) -> Self {
        Self {
            durations: catalog.family(
                "cloudprovider_aws_api_request_duration_seconds",
                &["request"],
                "Duration of successful AWS calls, for the requests that aws-cloud-controller-manager measures",
                Family::new_with_constructor(|| Histogram::new(buckets::aws_call())),
            ),
            errors: catalog.labelled(
                "cloudprovider_aws_api_request_errors",
                &["request"],
                "Failed AWS calls, for the requests that aws-cloud-controller-manager measures",
            ),
            throttled: catalog.labelled(
                "cloudprovider_aws_api_throttled_requests",
                &["operation_name"],
                "AWS calls that failed because of throttling",
            ),
            statuses: catalog.labelled(
                "cloudprovider_aws_api_response_status",
                &["service", "operation", "status_code"],
                "AWS calls that failed with an HTTP status of 400 or more",
            ),
            calls: catalog.labelled(
                "outrigger_aws_api_calls",
                &["service", "operation", "outcome"],
                "AWS calls by outcome, without the SDK's retries",
            ),
            fine: catalog.family(
                "outrigger_aws_api_call_duration_seconds",
                &["service", "operation"],
                "Duration of successful and failed AWS calls, including the SDK's retries",
                Family::new_with_constructor(|| Histogram::new(buckets::aws_call_fine())),
            ),
        }
    }
}

/// The requests that the incumbent measures, and its names of them.
fn request(call: &Call<'_>) -> Option<&'static str> {
    if call.service != "EC2" {
        return None;
    }
    Some(match call.operation {
        "DescribeInstances" => "describe_instance",
        "DescribeNetworkInterfaces" => "describe_network_interfaces",
        "DescribeSecurityGroups" => "describe_security_groups",
        "DescribeRouteTables" => "describe_route_tables",
        "CreateTags" => "create_tags",
        "DeleteTags" => "delete_tags",
        _ => return None,
    })
}

fn outcome(ending: &Ending<'_>) -> &'static str {
    match ending {
        Ending::Success => "success",
        Ending::Unanswered => "unanswered",
        Ending::Refused { kind, .. } => match kind {
            Kind::Throttled => "throttled",
            Kind::NotFound => "not_found",
            Kind::AccessDenied => "access_denied",
            Kind::Malformed => "malformed",
            Kind::Conflict => "conflict",
            Kind::AlreadyExists => "already_exists",
            Kind::DependencyViolation => "dependency_violation",
            Kind::QuotaExceeded => "quota_exceeded",
            Kind::Transport | Kind::Other => "refused",
        },
    }
}

impl CallObserver for AwsCalls {
    fn ended(&self, call: &Call<'_>) {
        let (service, operation) = (call.service.to_owned(), call.operation.to_owned());
        let took = call.took.as_secs_f64();
        if let Some(request) = request(call) {
            let label = RequestLabel { request };
            match call.ending {
                Ending::Success => self.durations.get_or_create(&label).observe(took),
                _ => self.errors.get_or_create(&label).inc(),
            }
        }

        if let Ending::Refused { status, code, .. } = call.ending {
            if code == Some("RequestLimitExceeded") {
                let operation_name = operation.clone();
                self.throttled.get_or_create(&OperationLabel { operation_name }).inc();
            }

            let labels = StatusLabels {
                service: service.clone(),
                operation: operation.clone(),
                status_code: status,
            };
            self.statuses.get_or_create(&labels).inc();
        }

        let outcome = outcome(&call.ending);
        let labels = OutcomeLabels {
            service: service.clone(),
            operation: operation.clone(),
            outcome,
        };
        self.calls.get_or_create(&labels).inc();

        self.fine
            .get_or_create(&CallLabels { service, operation })
            .observe(took);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;

    fn text(calls: &[(&str, Ending<'_>)]) -> String {
        let metrics = Metrics::new();
        for (operation, ending) in calls {
            metrics.aws_observer().ended(&Call {
                service: "EC2",
                operation,
                took: Duration::from_millis(40),
                ending: *ending,
            });
        }
        metrics.prometheus().unwrap()
    }

    #[test]
    fn a_success_has_a_duration_and_no_status() {
        let text = text(&[("DescribeInstances", Ending::Success), ("CreateRoute", Ending::Success)]);
        let bucket =
            "cloudprovider_aws_api_request_duration_seconds_bucket{le=\"0.05\",request=\"describe_instance\"} 1";
        assert!(text.contains(bucket), "{text}");
        assert!(!text.contains("request_errors{") && !text.contains("response_status_total{"));
        assert!(
            text.contains(
                "outrigger_aws_api_calls_total{service=\"EC2\",operation=\"CreateRoute\",outcome=\"success\"} 1"
            ),
            "{text}"
        );
        assert_eq!(
            text.matches("request_duration_seconds_count").count(),
            1,
            "CreateRoute has no incumbent's name"
        );
    }

    #[test]
    fn a_throttled_call_is_an_error_a_status_and_throttled() {
        let throttled = |code| Ending::Refused {
            status: 503,
            code: Some(code),
            kind: Kind::Throttled,
        };
        let text = text(&[
            ("DescribeInstances", throttled("RequestLimitExceeded")),
            ("DescribeInstances", throttled("Throttling")),
            ("DescribeInstances", Ending::Unanswered),
        ]);
        for line in [
            "# TYPE cloudprovider_aws_api_request_errors counter",
            "cloudprovider_aws_api_request_errors{request=\"describe_instance\"} 3",
            "cloudprovider_aws_api_throttled_requests_total{operation_name=\"DescribeInstances\"} 1",
            "cloudprovider_aws_api_response_status_total{service=\"EC2\",operation=\"DescribeInstances\",status_code=\"503\"} 2",
            "outrigger_aws_api_calls_total{service=\"EC2\",operation=\"DescribeInstances\",outcome=\"unanswered\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}

//! Answers to calls. Pure.

use outrigger_aws_sim::query::Query;
use outrigger_aws_sim::xml::Element;

use super::account::{Account, ZONES};
use super::instances;

/// One ID for all answers, so that messages with it are the same in every run.
pub(super) const REQUEST_ID: &str = "00000000-0000-4000-8000-000000000000";
/// The namespace of EC2's answers.
const NAMESPACE: &str = "http://ec2.amazonaws.com/doc/2016-11-15/";

/// EC2 refuses a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            code: code.to_owned(),
            message: message.into(),
        }
    }

    /// An action without a script is a fault of the harness, not of the caller.
    pub(super) fn is_unknown_action(&self) -> bool {
        self.code == "InvalidAction"
    }
}

/// An answer of EC2: the children of the response's root element, `requestId` left out.
pub(super) type Answered = Result<Vec<Element>, Refusal>;

pub(super) fn answer(account: &Account, query: &Query) -> Result<Element, Refusal> {
    if let Some(fault) = account.faults.iter().find(|fault| fault.hits(&query.action)) {
        return Err(Refusal {
            status: fault.status,
            code: fault.code.clone(),
            message: fault.message.clone(),
        });
    }

    check_filters(query)?;

    let content = match query.action.as_str() {
        "DescribeInstances" => instances::describe(account, query),
        "DescribeInstanceTopology" => instances::topology(account, query),
        "DescribeNetworkInterfaces" => instances::network_interfaces(account, query),
        "DescribeAvailabilityZones" => Ok(zones()),
        unknown => Err(Refusal::new(
            "InvalidAction",
            format!("The action {unknown} is not valid for this web service."),
        )),
    }?;

    let mut response = Element::parent(&format!("{}Response", query.action), []);
    response.attributes.push(("xmlns".to_owned(), NAMESPACE.to_owned()));
    response.children.push(Element::text("requestId", REQUEST_ID));
    response.children.extend(content);

    Ok(response)
}

/// EC2 refuses unknown names of filters.
pub(super) fn check_names(filters: &[(&str, Vec<&str>)], known: &[&str]) -> Result<(), Refusal> {
    let unknown = filters
        .iter()
        .find(|(name, _)| !(known.contains(name) || known.contains(&"tag-key") && name.starts_with("tag:")));
    unknown.map_or(Ok(()), |(name, _)| {
        let message = format!("The filter '{name}' is invalid");
        Err(Refusal::new("InvalidParameterValue", message))
    })
}

/// EC2 accepts at most 200 values for a filter
/// (<https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html>).
fn check_filters(query: &Query) -> Result<(), Refusal> {
    let filters = query.parameters.filters();
    filters.iter().try_for_each(|(name, values)| {
        let count = values.len();
        if count <= 200 {
            return Ok(());
        }
        let what = "The maximum number of filter values specified on a single call is 200";
        Err(Refusal::new(
            "FilterLimitExceeded",
            format!("{what}; {name} has {count}"),
        ))
    })
}

fn zones() -> Vec<Element> {
    let items = ZONES.iter().map(|(name, id, kind)| {
        item([
            Element::text("zoneName", *name),
            Element::text("zoneId", *id),
            Element::text("zoneType", *kind),
            Element::text("zoneState", "available"),
            Element::text("regionName", outrigger_aws_sim::REGION),
        ])
    });
    vec![Element::parent("availabilityZoneInfo", items)]
}

/// An item of one of EC2's lists.
pub(super) fn item(children: impl IntoIterator<Item = Element>) -> Element {
    Element::parent("item", children)
}

/// An element for a value that may be missing.
pub(super) fn optional(name: &str, value: Option<&String>) -> Option<Element> {
    value.map(|value| Element::text(name, value.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::account::{Account, Fault};
    use super::{Refusal, answer};
    use outrigger_aws_sim::query::Query;

    fn ask(account: &Account, form: &str) -> Result<String, Refusal> {
        answer(account, &Query::parse(form.as_bytes())).map(|answer| answer.document())
    }

    #[test]
    fn a_fault_hits_its_action_and_no_other() {
        let fault = Fault {
            action: "DescribeInstances".into(),
            status: 503,
            code: "RequestLimitExceeded".into(),
            message: "Request limit exceeded.".into(),
        };
        let account = Account {
            faults: vec![fault],
            ..Account::default()
        };
        let refusal = ask(&account, "Action=DescribeInstances").expect_err("refused");
        assert_eq!((refusal.status, refusal.code.as_str()), (503, "RequestLimitExceeded"));
        assert!(
            ask(&account, "Action=DescribeAvailabilityZones")
                .expect("answered")
                .contains("use1-az1")
        );
    }

    #[test]
    fn an_unknown_action_is_not_a_refusal_of_ec2() {
        let account = Account::default();
        assert!(
            ask(&account, "Action=CreateTags")
                .expect_err("unknown")
                .is_unknown_action()
        );
        let filter = ask(
            &account,
            "Action=DescribeInstances&Filter.1.Name=colour&Filter.1.Value.1=red",
        );
        assert_eq!(filter.expect_err("refused").code, "InvalidParameterValue");
    }
}

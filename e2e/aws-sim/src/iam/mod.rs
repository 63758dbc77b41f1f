//! IAM in front of the simulated AWS: each call is evaluated against an identity-based policy. A call that is not
//! allowed is answered as AWS answers, and never reaches moto.
//!
//! ```text
//! call ─▶ requests: action on each resource ─▶ tags of existing resources (moto) ─▶ policy ─▶ forward, or 403
//! ```
//!
//! Not here: resource-based policies, permission boundaries, session policies, `sts:AssumeRole`.

mod condition;
mod policy;
mod requests;
pub mod roles;

use super::gaps::Upstream;
use super::query::Query;
use super::service::Service;
use super::xml::Element;

pub use condition::Keys;
pub use policy::{Policy, PolicyError, Request, Verdict};
use requests::{Needed, Resource, Tags, TagsOf};

/// The caller in AWS's messages.
const PRINCIPAL: &str = "arn:aws:sts::123456789012:assumed-role/cloud-controller-manager/simulated";

/// How AWS answers a call that is not allowed: status, code, message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
}

/// Evaluates a call that has no resources; `Some` where it is not allowed.
pub fn evaluate_read(policy: &Policy, service: &Service, query: &Query) -> Option<Denial> {
    let mut needed = requests::needed(service, query).into_iter();
    needed.find_map(|needed| refused(policy, service, &needed, "*", &Tags::new()))
}

/// Evaluates a call; `Some` where it is not allowed.
pub(super) async fn evaluate<U: Upstream>(
    policy: &Policy,
    moto: &U,
    service: &Service,
    query: &Query,
) -> Option<Denial> {
    for needed in requests::needed(service, query) {
        let (resource, tags) = match &needed.resource {
            Resource::Any => ("*", Tags::new()),
            Resource::New { arn, tags } => (arn.as_str(), tags.clone()),
            Resource::There { arn, tags } => (arn.as_str(), tags_of(moto, tags).await),
        };
        if let Some(denial) = refused(policy, service, &needed, resource, &tags) {
            return Some(denial);
        }
    }
    None
}

fn refused(policy: &Policy, service: &Service, needed: &Needed, resource: &str, tags: &Tags) -> Option<Denial> {
    let request = Request {
        action: needed.action.clone(),
        resource: resource.to_owned(),
        keys: keys(service, needed, tags),
    };
    let verdict = policy.verdict(&request);
    (verdict != Verdict::Allowed).then(|| denial(service, &request, verdict))
}

fn keys(service: &Service, needed: &Needed, resource: &Tags) -> Keys {
    let mut keys = Keys::default();
    keys.add("aws:RequestedRegion", super::REGION);
    for (key, value) in resource {
        keys.add(&format!("aws:ResourceTag/{key}"), value);
        keys.add(&format!("{}:ResourceTag/{key}", service.scope()), value);
    }

    for (key, value) in &needed.request {
        keys.add(&format!("aws:RequestTag/{key}"), value);
        keys.add("aws:TagKeys", key);
    }

    if let Some(action) = &needed.create_action {
        keys.add(&format!("{}:CreateAction", service.scope()), action);
    }

    keys
}

/// Messages: <https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html>; codes:
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html> and
/// <https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/CommonErrors.html>.
fn denial(service: &Service, request: &Request, verdict: Verdict) -> Denial {
    let Request { action, resource, .. } = request;
    let on = match resource.as_str() {
        "*" => String::new(),
        arn => format!(" on resource: {arn}"),
    };
    let because = match verdict {
        Verdict::Denied => "with an explicit deny in an identity-based policy".to_owned(),
        Verdict::Allowed | Verdict::NotAllowed => {
            format!("because no identity-based policy allows the {action} action")
        }
    };
    let message = format!("User: {PRINCIPAL} is not authorized to perform: {action}{on} {because}");
    let (code, message) = match service {
        Service::Ec2 => (
            "UnauthorizedOperation",
            format!("You are not authorized to perform this operation. {message}"),
        ),
        _ => ("AccessDenied", message),
    };
    Denial {
        status: 403,
        code,
        message,
    }
}

/// The tags of a resource as moto has them now; none for a resource that does not exist.
async fn tags_of<U: Upstream>(moto: &U, of: &TagsOf) -> Tags {
    let (service, parameters) = match of {
        TagsOf::Ec2(id) => (
            Service::Ec2,
            vec![("Filter.1.Name", "resource-id"), ("Filter.1.Value.1", id.as_str())],
        ),
        TagsOf::Classic(name) => (Service::Elb, vec![("LoadBalancerNames.member.1", name.as_str())]),
        TagsOf::Network(arn) => (Service::ElbV2, vec![("ResourceArns.member.1", arn.as_str())]),
    };

    let query = Query::new(&service, "DescribeTags", parameters.into_iter().collect());
    let response = moto.ask(&service, &query).await;
    let Ok(answer) = Element::parse(&String::from_utf8_lossy(response.body())) else {
        return Tags::new();
    };

    let (list, key, value) = match service {
        Service::Ec2 => ("tagSet", "key", "value"),
        _ => ("Tags", "Key", "Value"),
    };
    let items = answer.items(list).iter();
    items
        .map(|item| (item.value(key).to_owned(), item.value(value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::gaps::fixture::Script;
    use super::{Denial, Policy, evaluate};
    use crate::query::Query;
    use crate::service::Service;

    const TAGGED: &str = r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*",
        "Condition": {"StringEquals": {"aws:ResourceTag/KubernetesCluster": "c"}}}}"#;

    async fn ask(policy: &str, moto: Script, service: &Service, form: &str) -> Option<Denial> {
        let policy = Policy::parse(policy).expect("a policy");
        let query = Query::parse(form.as_bytes());
        let denial = evaluate(&policy, &moto, service, &query).await;
        assert!(moto.asked().iter().all(|asked| asked.action == "DescribeTags"));
        denial
    }

    #[tokio::test]
    async fn the_tags_of_a_resource_are_those_that_it_has_at_the_moment_of_the_call() {
        let revoke = "Action=RevokeSecurityGroupIngress&GroupId=sg-1";
        let tags = "<R><tagSet><item><key>KubernetesCluster</key><value>c</value></item></tagSet></R>";
        let moto = Script::default().on("DescribeTags", tags);
        assert_eq!(ask(TAGGED, moto, &Service::Ec2, revoke).await, None);
        let moto = Script::default().on("DescribeTags", "<R><tagSet/></R>");
        let denial = ask(TAGGED, moto, &Service::Ec2, revoke).await.expect("denied");
        assert_eq!((denial.status, denial.code), (403, "UnauthorizedOperation"));
        let named = "is not authorized to perform: ec2:RevokeSecurityGroupIngress on resource: \
                     arn:aws:ec2:us-east-1:123456789012:security-group/sg-1 because no identity-based policy allows the \
                     ec2:RevokeSecurityGroupIngress action";
        assert!(denial.message.ends_with(named), "{}", denial.message);
    }

    #[tokio::test]
    async fn tags_of_a_creation_are_request_tags_and_have_to_be_allowed_too() {
        let policy = r#"{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Resource": "*",
            "Action": "elasticloadbalancing:Create*", "Condition": {"StringEquals": {"aws:RequestTag/k": "v"}}}}"#;
        let create = "Action=CreateTargetGroup&Name=a&Tags.member.1.Key=k&Tags.member.1.Value=";
        let other = ask(policy, Script::default(), &Service::ElbV2, &format!("{create}x")).await;
        let other = other.expect("denied").message;
        assert!(
            other.contains("perform: elasticloadbalancing:CreateTargetGroup on"),
            "{other}"
        );
        let tagging = ask(policy, Script::default(), &Service::ElbV2, &format!("{create}v")).await;
        let tagging = tagging.expect("denied");
        assert_eq!(tagging.code, "AccessDenied");
        assert!(tagging.message.contains("elasticloadbalancing:AddTags"), "{tagging:?}");
    }

    #[tokio::test]
    async fn a_read_is_denied_without_a_resource_and_an_explicit_deny_says_so() {
        let none = r#"{"Version": "2012-10-17", "Statement": []}"#;
        let read = "Action=DescribeTags&LoadBalancerNames.member.1=a";
        let denial = ask(none, Script::default(), &Service::Elb, read).await.expect("denied");
        let named = "perform: elasticloadbalancing:DescribeTags because no identity-based policy allows the \
                     elasticloadbalancing:DescribeTags action";
        assert!(denial.message.ends_with(named), "{}", denial.message);
        let deny = r#"{"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}}"#;
        let denial = ask(deny, Script::default(), &Service::Elb, read).await.expect("denied");
        assert!(
            denial
                .message
                .ends_with("with an explicit deny in an identity-based policy")
        );
    }
}

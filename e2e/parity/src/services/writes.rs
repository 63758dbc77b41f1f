//! A call as one line: the action, then its parameters by name, without empty ones. Lists without a meaningful order
//! are sorted. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::names::Names;
use outrigger_aws_sim::Call;
use outrigger_aws_sim::query::Parameters;

/// Lists without a meaningful order. Others, such as subnets and their addresses, stay as sent.
const UNORDERED: [&str; 8] = [
    "Instances",
    "Targets",
    "Attributes",
    "PolicyAttributes",
    "LoadBalancerPorts",
    "Listeners",
    "Tags",
    "Tag",
];

/// Parameters as a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tree {
    Leaf(String),
    List(BTreeMap<u32, Tree>),
    Map(BTreeMap<String, Tree>),
}

/// The line of a call, with the error code if AWS refused it.
pub(super) fn line(call: &Call, names: &Names) -> String {
    let mut line = call.action.clone();
    let Tree::Map(fields) = tree(&call.parameters, names) else {
        return line;
    };

    for (key, value) in &fields {
        if let Some(value) = rendered(key, value) {
            let _ = write!(line, " {key}={value}"); // writing into a String cannot fail
        }
    }

    let refused = call.outcome.as_ref().and_then(|outcome| outcome.error_code.as_ref());
    if let Some(code) = refused {
        let _ = write!(line, " -> {code}");
    }

    line
}

fn tree(parameters: &Parameters, names: &Names) -> Tree {
    let mut root = Tree::Map(BTreeMap::new());
    for (key, value) in parameters.iter() {
        if value.is_empty() || matches!(key, "ClientToken" | "DryRun") {
            continue;
        }
        let path: Vec<&str> = key.split('.').filter(|part| *part != "member").collect();
        put(&mut root, &path, &names.named(value));
    }

    root
}

fn put(tree: &mut Tree, path: &[&str], value: &str) {
    let Some((first, rest)) = path.split_first() else {
        *tree = Tree::Leaf(value.to_owned());
        return;
    };

    let child = match first.parse::<u32>() {
        Ok(number) => {
            if !matches!(tree, Tree::List(_)) {
                *tree = Tree::List(BTreeMap::new());
            }
            let Tree::List(items) = tree else { return };
            items.entry(number).or_insert_with(|| Tree::Map(BTreeMap::new()))
        }
        Err(_) => {
            let Tree::Map(fields) = tree else { return };
            fields
                .entry((*first).to_owned())
                .or_insert_with(|| Tree::Map(BTreeMap::new()))
        }
    };

    put(child, rest, value);
}

/// None for an empty value.
fn rendered(key: &str, value: &Tree) -> Option<String> {
    match value {
        Tree::Leaf(text) => Some(quoted(text)),
        Tree::Map(fields) if fields.is_empty() => None,
        Tree::Map(fields) => {
            let fields = fields
                .iter()
                .filter_map(|(key, value)| Some(format!("{key}={}", rendered(key, value)?)));
            Some(format!("{{{}}}", fields.collect::<Vec<_>>().join(" ")))
        }
        Tree::List(items) if key == "IpPermissions" => {
            let mut rules: Vec<String> = items.values().flat_map(rules).collect();
            rules.sort();
            Some(format!("[{}]", rules.join(", ")))
        }
        Tree::List(items) => {
            let text = |item: &Tree| pair(item).or_else(|| rendered("", item));
            let mut items: Vec<String> = items.values().filter_map(text).collect();
            if UNORDERED.contains(&key) {
                items.sort();
            }

            Some(format!("[{}]", items.join(" ")))
        }
    }
}

/// `key=value` for tags and attributes.
fn pair(item: &Tree) -> Option<String> {
    let Tree::Map(fields) = item else { return None };
    let leaf = |name: &str| match fields.get(name) {
        Some(Tree::Leaf(text)) => Some(text.as_str()),
        _ => None,
    };
    let key = leaf("Key").or_else(|| leaf("AttributeName"))?;
    let value = leaf("Value").or_else(|| leaf("AttributeValue")).unwrap_or_default();

    Some(format!("{key}={}", quoted(value)))
}

/// One line for each source of a permission.
fn rules(permission: &Tree) -> Vec<String> {
    let Tree::Map(fields) = permission else {
        return Vec::new();
    };

    let text = |fields: &BTreeMap<String, Tree>, name: &str| match fields.get(name) {
        Some(Tree::Leaf(text)) => text.clone(),
        _ => String::new(),
    };
    let what = rule(
        &text(fields, "IpProtocol"),
        &text(fields, "FromPort"),
        &text(fields, "ToPort"),
    );
    let sources = [
        ("IpRanges", "CidrIp"),
        ("Ipv6Ranges", "CidrIpv6"),
        ("Groups", "GroupId"),
        ("PrefixListIds", "PrefixListId"),
    ];
    let mut rules = Vec::new();

    for (list, field) in sources {
        let Some(Tree::List(items)) = fields.get(list) else {
            continue;
        };
        for item in items.values() {
            if let Tree::Map(item) = item {
                rules.push(source(&what, &text(item, field), &text(item, "Description")));
            }
        }
    }

    rules
}

/// `tcp 80`, `icmp 3-4`, `all`.
pub(super) fn rule(protocol: &str, from: &str, to: &str) -> String {
    match (protocol, from == to) {
        ("-1", _) => "all".to_owned(),
        (protocol, true) => format!("{protocol} {from}"),
        (protocol, false) => format!("{protocol} {from}-{to}"),
    }
}

/// `tcp 80 from 10.0.0.0/8 "a description"`.
pub(super) fn source(rule: &str, source: &str, description: &str) -> String {
    match description {
        "" => format!("{rule} from {source}"),
        text => format!("{rule} from {source} ({text})"),
    }
}

fn quoted(text: &str) -> String {
    if text.contains(' ') {
        format!("'{text}'")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::{line, rule, source};
    use outrigger_aws_sim::query::Query;
    use outrigger_aws_sim::{Answer, Call, Outcome, Service};

    fn call(form: &str, error_code: Option<&str>) -> Call {
        let query = Query::parse(form.as_bytes());
        Call {
            seq: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            offset: std::time::Duration::ZERO,
            caller: "m".into(),
            service: Service::Ec2,
            version: query.version,
            action: query.action,
            parameters: query.parameters,
            user_agent: String::new(),
            preflight: false,
            outcome: Some(Outcome {
                status: Some(200),
                error_code: error_code.map(str::to_owned),
                answer: Answer::Aws,
                forwarded: true,
                duration: std::time::Duration::ZERO,
            }),
        }
    }

    #[test]
    fn the_line_of_a_call_does_not_depend_on_a_meaningless_order() {
        let mut names = Names::default();
        names.learn("sg-1", "sg:own");
        let one = "Action=A&Version=1&GroupId=sg-1&Tags.member.1.Key=b&Tags.member.1.Value=x+y&Tags.member.2.Key=a&Tags.member.2.Value=&Subnets.member.1=s2&Subnets.member.2=s1&SecurityGroups=&DryRun=false";
        let other = "Action=A&Version=1&Subnets.member.1=s2&Subnets.member.2=s1&Tags.member.1.Key=a&Tags.member.2.Key=b&Tags.member.2.Value=x+y&GroupId=sg-1";
        let expected = "A GroupId=<sg:own> Subnets=[s2 s1] Tags=[a= b='x y']";
        assert_eq!(line(&call(one, None), &names), expected);
        assert_eq!(line(&call(other, None), &names), expected);
        assert_eq!(line(&call("Action=A&Version=1", Some("Denied")), &names), "A -> Denied");
    }

    #[test]
    fn permissions_are_rules_one_for_each_source() {
        let form = "Action=A&Version=1&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort=80&IpPermissions.1.ToPort=80&IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8&IpPermissions.1.IpRanges.2.CidrIp=1.0.0.0/8&IpPermissions.1.IpRanges.2.Description=d&IpPermissions.2.IpProtocol=-1&IpPermissions.2.Groups.1.GroupId=sg-1";
        assert_eq!(
            line(&call(form, None), &Names::default()),
            "A IpPermissions=[all from sg-1, tcp 80 from 1.0.0.0/8 (d), tcp 80 from 10.0.0.0/8]"
        );
        assert_eq!(
            source(&rule("icmp", "3", "4"), "0.0.0.0/0", ""),
            "icmp 3-4 from 0.0.0.0/0"
        );
    }
}

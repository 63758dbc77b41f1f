//! The roles under which the recorded cases are run: three of other projects, and the one that our manual describes.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use outrigger_cluster_harness::repository;

use super::Policy;

/// A role of a cloud controller manager.
#[derive(Debug, Clone)]
pub struct Role {
    /// Its name in `docs/iam.md`.
    pub name: &'static str,
    pub policy: Arc<Policy>,
    /// The cluster's resources carry the tag `KubernetesCluster` besides, and the manager knows so.
    pub legacy_tags: bool,
}

/// Roles of other projects: name, file in `e2e/iam`, whether resources carry `KubernetesCluster`.
const FOREIGN: [(&str, &str, bool); 3] = [
    ("upstream", "upstream.json", false),
    ("kOps", "kops.json", true),
    ("CAPA", "capa.json", false),
];
/// The role that our manual describes.
pub const DOCUMENTED: &str = "documented";
/// Marks around the table of actions in the manual.
const MARKS: (&str, &str) = ("<!-- actions: begin -->", "<!-- actions: end -->");

/// # Errors
/// A file that is missing or cannot be evaluated.
pub fn all() -> Result<Vec<Role>> {
    let mut roles = Vec::new();
    for (name, file, legacy_tags) in FOREIGN {
        let path = repository::root().join("e2e/iam").join(file);
        let context = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(context)?;

        roles.push(Role {
            name,
            policy: Arc::new(Policy::parse(&text).with_context(context)?),
            legacy_tags,
        });
    }

    let actions = documented_actions()?;
    roles.push(Role {
        name: DOCUMENTED,
        policy: Arc::new(Policy::allowing(actions.iter().map(String::as_str))),
        legacy_tags: false,
    });

    Ok(roles)
}

/// The actions of the table in `docs/aws-permissions.md`, sorted.
///
/// # Errors
/// When the page has no such table.
pub fn documented_actions() -> Result<Vec<String>> {
    let path = repository::root().join("docs/aws-permissions.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let table = page.split_once(MARKS.0).and_then(|(_, rest)| rest.split_once(MARKS.1));
    let (table, _) = table.context("docs/aws-permissions.md: the marks of the table of actions are missing")?;
    let is_action = |part: &&str| part.starts_with("ec2:") || part.starts_with("elasticloadbalancing:");
    let mut actions: Vec<String> = table.split('`').filter(is_action).map(str::to_owned).collect();
    actions.sort();
    actions.dedup();
    if actions.is_empty() {
        bail!("docs/aws-permissions.md: the table names no action");
    }

    Ok(actions)
}

#[cfg(test)]
mod tests {
    use super::super::{Keys, Request, Verdict};
    use super::{Role, all, documented_actions};

    fn allows(role: &Role, action: &str, keys: &[(&str, &str)]) -> bool {
        let mut request = Request {
            action: action.into(),
            resource: "arn:aws:ec2:us-east-1:123456789012:security-group/sg-1".into(),
            keys: Keys::default(),
        };
        for (key, value) in keys {
            request.keys.add(key, value);
        }
        role.policy.verdict(&request) == Verdict::Allowed
    }

    #[test]
    fn the_documented_role_allows_every_documented_action_and_no_other() {
        let roles = all().expect("roles");
        let role = roles.last().expect("the documented one");
        let actions = documented_actions().expect("actions");
        assert!(actions.len() > 40, "{actions:?}");
        assert!(actions.iter().all(|action| allows(role, action, &[])));
        assert!(!allows(role, "ec2:RunInstances", &[]));
    }

    #[test]
    fn only_the_documented_role_may_describe_tags_and_replace_routes() {
        for role in all().expect("roles") {
            let documented = role.name == super::DOCUMENTED;
            assert_eq!(allows(&role, "elasticloadbalancing:DescribeTags", &[]), documented);
            assert_eq!(allows(&role, "ec2:ReplaceRoute", &[]), documented);
            assert!(allows(&role, "ec2:DescribeInstances", &[]), "{}", role.name);
        }
    }

    #[test]
    fn the_role_of_kops_writes_only_to_what_has_its_tag() {
        let roles = all().expect("roles");
        let kops = roles.iter().find(|role| role.legacy_tags).expect("kOps");
        let own = [("aws:ResourceTag/KubernetesCluster", "parity")];
        assert!(allows(kops, "ec2:RevokeSecurityGroupIngress", &own));
        assert!(!allows(kops, "ec2:RevokeSecurityGroupIngress", &[]));
        let created = [
            ("aws:RequestTag/KubernetesCluster", "parity"),
            ("ec2:CreateAction", "CreateSecurityGroup"),
        ];
        assert!(allows(kops, "ec2:CreateTags", &created));
        assert!(!allows(kops, "ec2:CreateTags", &created[..1]));
        assert!(allows(kops, "ec2:CreateTags", &own));
    }
}

//! The result of all checks, as text and as JSON.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;

use super::control_plane::is_in_tree;
use super::finding::Detail;
use super::rules::{Group, Rule};
use crate::args::Severity;
use crate::explain::printable;
use crate::facts::{API_VERSION, ClusterFacts, NotRead, Tenant};

/// Most causes of one check that the text names.
const MAX_CAUSES: usize = 4;

/// The width of the first column.
const COLUMN: usize = 15;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// The cluster in a few words.
    summary: String,
    groups: Vec<OfGroup>,
    next: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OfGroup {
    group: String,
    /// Checks that found nothing.
    ok: usize,
    findings: Vec<Finding>,
    not_made: Vec<NotMade>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    code: &'static str,
    severity: &'static str,
    title: &'static str,
    causes: Vec<Cause>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cause {
    text: String,
    fix: String,
}

/// Checks that could not look, for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NotMade {
    codes: Vec<&'static str>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_right: Option<String>,
}

impl Report {
    /// Applies the rules to the facts.
    pub fn of(facts: &ClusterFacts, rules: &[&'static Rule]) -> Self {
        let groups = Group::ALL.into_iter().flat_map(|group| {
            let of_group: Vec<_> = rules.iter().filter(|rule| rule.group == group).collect();
            let own = (!of_group.is_empty()).then(|| of_group_with(facts, group.as_str().to_owned(), &of_group));
            let tenants = match group {
                Group::ControlPlane => of_tenants(facts, &of_group),
                _ => Vec::new(),
            };
            own.into_iter().chain(tenants)
        });
        let mut report = Self {
            api_version: API_VERSION,
            kind: "CheckReport",
            context: facts.context.clone(),
            version: facts.version.known().cloned(),
            summary: summary(facts),
            groups: groups.collect(),
            next: String::new(),
        };
        report.next = report.next_step(facts);

        report
    }

    fn count(&self, severity: Severity) -> usize {
        let findings = self.groups.iter().flat_map(|group| &group.findings);
        findings.filter(|finding| finding.severity == severity.as_str()).count()
    }

    /// A line for each error: its code, its title and its first cause.
    pub fn error_lines(&self) -> Vec<String> {
        let findings = self.groups.iter().flat_map(|group| &group.findings);
        let errors = findings.filter(|finding| finding.severity == Severity::Error.as_str());
        let line = |finding: &Finding| {
            let cause = finding.causes.first().map(|cause| format!(": {}", cause.text));
            format!("{}  {}{}", finding.code, finding.title, cause.unwrap_or_default())
        };
        errors.map(line).collect()
    }

    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    /// Checks that were not made.
    pub fn not_looked_at(&self) -> usize {
        let all = self.groups.iter().flat_map(|group| &group.not_made);
        all.map(|not| not.codes.len()).sum()
    }

    /// `1 error, 2 warnings`, and how many checks were not made.
    fn counts(&self) -> String {
        let number = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let mut parts = Vec::new();
        for (severity, word) in [(Severity::Error, "error"), (Severity::Warning, "warning")] {
            let count = self.count(severity);
            if count > 0 {
                parts.push(number(count, word));
            }
        }
        if parts.is_empty() {
            let made: usize = self.groups.iter().map(|group| group.ok).sum();
            parts.push(format!("no error in {}", number(made, "check")));
        }
        let unseen = self.not_looked_at();
        if unseen > 0 {
            parts.push(format!("{} not made", number(unseen, "check")));
        }

        parts.join(", ")
    }

    /// The cluster in one line, with the codes that were found.
    pub fn line(&self) -> String {
        let findings = self.groups.iter().flat_map(|group| &group.findings);
        let codes: Vec<&str> = findings.map(|finding| finding.code).collect();
        let codes = if codes.is_empty() {
            String::new()
        } else {
            format!("   {}", codes.join(" "))
        };
        format!("{}   {}{codes}", self.summary, self.counts())
    }

    fn next_step(&self, facts: &ClusterFacts) -> String {
        let first = |severity: Severity| {
            let mut findings = self.groups.iter().flat_map(|group| &group.findings);
            findings
                .find(|finding| finding.severity == severity.as_str())
                .map(|finding| finding.code)
        };
        let code = first(Severity::Error).or_else(|| first(Severity::Warning));
        let migrations = facts.migrations.known();
        match (code, migrations.and_then(|all| all.first())) {
            (Some(code), _) => format!("outrigger check --explain {code}"),
            (None, Some(migration)) => format!("outrigger status {}", migration.name),
            (None, None) if is_in_tree(facts).unwrap_or(true) => {
                "the guide of your distribution in docs/guides".to_owned()
            }
            (None, None) => {
                "the cluster is external already: docs/operations/replace.md replaces its manager".to_owned()
            }
        }
    }

    /// # Errors
    /// When `out` fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = self.context.as_deref().map(|name| format!("{}   ", printable(name)));
        writeln!(out, "{}{}\n", name.unwrap_or_default(), printable(&self.summary))?;
        for group in &self.groups {
            group.write_text(out)?;
        }

        writeln!(out, "\n{}", self.counts())?;
        writeln!(out, "next: {}", self.next)
    }
}

/// The checks of a control plane that need nothing of the tenant's own cluster.
const OF_TENANTS: [&str; 8] = [
    "OUT301", "OUT302", "OUT303", "OUT304", "OUT305", "OUT306", "OUT309", "OUT310",
];

/// A group for each control plane that this cluster hosts.
fn of_tenants(facts: &ClusterFacts, rules: &[&&'static Rule]) -> Vec<OfGroup> {
    let rules: Vec<_> = rules
        .iter()
        .copied()
        .filter(|rule| OF_TENANTS.contains(&rule.code))
        .collect();
    let tenants = facts.tenants.known().into_iter().flatten();
    if rules.is_empty() {
        return Vec::new();
    }

    let of_tenant =
        |tenant: &Tenant| of_group_with(&facts.of_tenant(tenant), format!("tenant {}", tenant.migration), &rules);
    tenants.map(of_tenant).collect()
}

fn of_group_with(facts: &ClusterFacts, group: String, rules: &[&&'static Rule]) -> OfGroup {
    let mut of_group = OfGroup {
        group,
        ok: 0,
        findings: Vec::new(),
        not_made: Vec::new(),
    };
    for rule in rules {
        match (rule.find)(facts) {
            Ok(found) if found.is_empty() => of_group.ok += 1,
            Ok(found) => of_group.findings.push(finding(rule, found)),
            Err(why) => of_group.not_looked(rule.code, why),
        }
    }

    of_group
}

fn finding(rule: &Rule, found: Vec<Detail>) -> Finding {
    let causes = found.into_iter().map(|detail| Cause {
        text: detail.text,
        fix: detail.fix.unwrap_or_else(|| rule.fix.to_owned()),
    });
    Finding {
        code: rule.code,
        severity: rule.severity.as_str(),
        title: rule.title,
        causes: causes.collect(),
    }
}

impl OfGroup {
    fn not_looked(&mut self, code: &'static str, NotRead { reason, right }: NotRead) {
        match self.not_made.iter_mut().find(|not| not.reason == reason) {
            Some(not) => not.codes.push(code),
            None => self.not_made.push(NotMade {
                codes: vec![code],
                reason,
                missing_right: right,
            }),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut name = printable(&self.group);
        let mut line = |sign: &str, text: &str| {
            let written = writeln!(out, "{name:<COLUMN$} {sign} {}", printable(text));
            name.clear();
            written
        };
        if self.ok > 0 {
            line("√", &format!("{} ok", self.ok))?;
        }
        for Finding {
            code,
            severity,
            title,
            causes,
        } in &self.findings
        {
            let sign = if *severity == Severity::Error.as_str() {
                "×"
            } else {
                "‼"
            };
            line(sign, &format!("{code}  {title}"))?;
            for cause in causes.iter().take(MAX_CAUSES) {
                line(" ", &format!("        {}", cause.text))?;
            }
            if causes.len() > MAX_CAUSES {
                line(" ", &format!("        and {} more", causes.len() - MAX_CAUSES))?;
            }
            let fixes: BTreeSet<&str> = causes.iter().map(|cause| cause.fix.as_str()).collect();
            for fix in fixes.into_iter().take(MAX_CAUSES) {
                line(" ", &format!("        fix: {fix}"))?;
            }
        }
        for not in &self.not_made {
            let right = not
                .missing_right
                .as_ref()
                .map(|right| format!("; add the right to {right}"));
            let (codes, reason) = (not.codes.join(" "), &not.reason);
            line(
                "–",
                &format!("not made: {reason}{} ({codes})", right.unwrap_or_default()),
            )?;
        }

        Ok(())
    }
}

/// `3 control planes, 47 workers, Kubernetes 1.26.13, in-tree AWS provider, Outrigger not installed`.
fn summary(facts: &ClusterFacts) -> String {
    let version = facts
        .version
        .known()
        .map_or("not read", |version| version.trim_start_matches('v'));
    let mut parts = vec![format!("Kubernetes {version}")];
    if let Some(nodes) = facts.nodes.known() {
        let planes = nodes.iter().filter(|node| node.is_control_plane).count();
        let number = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        parts.push(number(planes, "control plane"));
        parts.push(number(nodes.len() - planes, "worker"));
    }
    if let Some(components) = facts.components.known() {
        let judged = || components.iter().filter_map(|component| component.judgement.as_ref());
        let provider = match (judged().next(), judged().any(|judged| judged.is_in_tree)) {
            (None, _) => "no kube-controller-manager seen",
            (_, true) => "in-tree provider",
            (_, false) => "no in-tree provider",
        };
        parts.push(provider.to_owned());
    }
    match facts.migrations.known().map(Vec::as_slice) {
        Some([]) => parts.push("Outrigger not installed".to_owned()),
        Some(all) => parts.extend(all.iter().map(|one| format!("{} in {}", one.name, one.phase.as_str()))),
        None => {}
    }

    parts.join(", ")
}

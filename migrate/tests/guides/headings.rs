//! One shape for all guides, so that an operator finds the same things in the same place.

use crate::page::Page;

const GUIDES: [&str; 8] = [
    "kubeadm",
    "kops",
    "rke2",
    "rke1",
    "kkp",
    "cluster-api",
    "hosted",
    "downtime",
];

const HEADINGS: [&str; 7] = [
    "For which clusters",
    "Prerequisites",
    "Write the migration",
    "Steps",
    "Go back",
    "Time",
    "Not supported",
];

/// Rows of the table of prerequisites.
const REQUIREMENTS: [&str; 6] = [
    "EBS CSI driver and gates",
    "ECR",
    "Node names",
    "tags, subnets, one security group",
    "AWS permissions",
    "routes",
];

pub fn faults(page: &Page) -> Vec<String> {
    let name = page.path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    if !page.path.starts_with("docs/guides") || !GUIDES.contains(&name) {
        return Vec::new();
    }

    let prose = page.prose();
    let headings: Vec<&str> = prose.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut faults = Vec::new();
    if headings != HEADINGS {
        faults.push(page.fault(format!("the headings are {headings:?}")));
    }
    for requirement in REQUIREMENTS {
        if !prose.contains(&format!("\n| {requirement} |")) {
            faults.push(page.fault(format!("no prerequisite {requirement:?}")));
        }
    }
    if !prose.contains("Check the result") {
        faults.push(page.fault("no step says how to check its result"));
    }
    faults
}

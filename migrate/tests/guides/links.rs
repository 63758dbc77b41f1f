//! Relative links: the file exists, and has the heading.

use crate::page::{self, Page};

pub fn faults(page: &Page) -> Vec<String> {
    let prose = page.prose();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains("://"));
    relative
        .filter_map(|target| of_target(page, target))
        .map(|fault| page.fault(fault))
        .collect()
}

fn of_target(page: &Page, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = page::root().join(page.path.parent().unwrap());
    let path = folder.join(file);
    let text = match file {
        "" => page.text.clone(),
        _ if !path.exists() => return Some(format!("{file} leads nowhere")),
        _ if anchor.is_empty() => return None,
        _ => std::fs::read_to_string(&path).unwrap(),
    };
    let linked = Page {
        path: page.path.clone(),
        text,
    };

    let prose = linked.prose();
    let mut headings = prose.lines().filter(|line| line.starts_with('#'));
    let is_there = headings.any(|heading| slug(heading) == anchor);
    (!is_there).then(|| format!("{file}#{anchor}: there is no such heading"))
}

/// The anchor that GitHub gives to a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

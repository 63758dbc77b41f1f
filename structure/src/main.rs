//! Prints the figures of the project's own sources.

#![allow(clippy::print_stdout, reason = "a program that prints a report")]

use std::path::Path;

use anyhow::{Result, bail};
use outrigger_structure::sources::Sources;
use outrigger_structure::{Imports, duplicates, packages, sizes, sources, words};

/// The service controller, and the file at which the pass for one Service begins.
const SERVICE: &str = "manager/src/controllers/service";
const PASS: &str = "manager/src/controllers/service/reconcile.rs";

fn main() -> Result<()> {
    let root = std::env::current_dir()?;
    match std::env::args().nth(1).as_deref() {
        None => report(&root),
        Some("words") => report_words(&root),
        Some(other) => bail!("unknown argument {other:?}: use none, or \"words\""),
    }
}

/// Prints each place that breaks a rule of language, and fails if there is one.
fn report_words(root: &Path) -> Result<()> {
    let packages = packages::read(root)?;
    let sources = sources::read(root, &packages)?;

    let findings = words::all(root, &sources)?;
    for finding in &findings {
        println!("{}:{}: {}", finding.file.display(), finding.line, finding.text);
    }

    match findings.len() {
        0 => Ok(()),
        count => bail!("places that break a rule of language: {count}"),
    }
}

fn report(root: &Path) -> Result<()> {
    let packages = packages::read(root)?;
    let sources = sources::read(root, &packages)?;
    let imports = Imports::of(&sources);

    let files = || sources.files.iter().filter(|file| !file.is_test);
    let row = |name: &str, lines: &[usize]| {
        println!("{name:<22} {:>6} {:>8}", lines.len(), lines.iter().sum::<usize>());
    };
    println!("package                 files   lines without tests");
    for package in &packages {
        let files = files().filter(|file| file.package == package.name);
        let lines: Vec<usize> = files.map(sizes::lines_without_tests).collect();
        row(&package.name, &lines);
    }

    let lines: Vec<usize> = files().map(sizes::lines_without_tests).collect();
    row("all", &lines);

    let functions: Vec<sizes::Function> = files().flat_map(sizes::functions).collect();
    let sum = |of| sizes::sum(&functions, of);
    println!("\nmedian / 90th percentile / largest");
    println!("lines of a file:     {:?}", sizes::spread(lines));
    let lines = functions.iter().map(|function| function.lines).collect();
    println!("lines of a function: {:?}", sizes::spread(lines));
    let body = sum(|function| function.body);
    println!("\nlines in bodies of functions: {body}");
    let blank = sizes::percent(sum(|function| function.blank), body);
    let comments = sizes::percent(sum(|function| function.comments), body);
    println!("  blank:    {blank:.1} %\n  comments: {comments:.1} %");

    let texts: Vec<&str> = files().map(|file| file.text.as_str()).collect();
    let (least, duplicates) = (duplicates::LEAST, duplicates::lines(&texts));
    println!("\nlines in duplicates of {least} lines or more: {duplicates}");

    let (inside, outside) = network_path(&sources, &imports);
    println!("\nfiles that {PASS} reaches by imports, without those of classic load balancers");
    println!("  of the service controller: {inside}\n  others of the project:     {outside}");

    println!("\nimport cycles");
    for cycle in imports.cycles() {
        let path = |file: &usize| sources.files[*file].path.display().to_string();
        let names: Vec<String> = cycle.iter().map(path).collect();
        println!("{:>4} files: {}", cycle.len(), names.join(" "));
    }

    Ok(())
}

/// How many files of the service controller, and how many others, the pass for a network load balancer may run through.
fn network_path(sources: &Sources, imports: &Imports) -> (usize, usize) {
    let path = |file: usize| sources.files[file].path.to_string_lossy();
    let Some(start) = (0..sources.files.len()).find(|file| path(*file) == PASS) else {
        return (0, 0);
    };

    let reached = imports.chains(start, |file| !path(file).contains("classic"));
    let ends = reached.iter().filter_map(|chain| chain.last());
    let inside = ends.filter(|file| path(**file).starts_with(SERVICE)).count();
    (inside, reached.len() - inside)
}

//! Import cycles.

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use crate::Imports;

/// The cycles of more than one file, each as the sorted indices of its files; the largest one first.
#[must_use]
pub fn of(imports: &Imports) -> Vec<Vec<usize>> {
    let mut graph = DiGraph::<usize, ()>::new();
    let mut nodes = BTreeMap::new();
    for (from, targets) in &imports.files {
        for to in targets {
            let from = *nodes.entry(*from).or_insert_with(|| graph.add_node(*from));
            let to = *nodes.entry(*to).or_insert_with(|| graph.add_node(*to));
            graph.add_edge(from, to, ());
        }
    }

    let mut cycles: Vec<Vec<usize>> = Vec::new();
    for component in tarjan_scc(&graph) {
        if component.len() > 1 {
            let mut files: Vec<usize> = component.iter().map(|node| graph[*node]).collect();
            files.sort_unstable();
            cycles.push(files);
        }
    }

    cycles.sort_by_key(|files| (std::cmp::Reverse(files.len()), files.clone()));

    cycles
}

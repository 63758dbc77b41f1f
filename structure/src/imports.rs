//! Which file imports which, and import cycles.
//!
//! A path is followed to the file that defines its item: a re-export is no definition. Imports of items that are only built for
//! tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemFn, ItemMod, ItemUse};

use crate::sources::{Module, Sources, attributes, is_for_tests};

/// Re-exports of re-exports are followed so far.
const MOST_HOPS: usize = 16;

/// The imports among the source files.
#[derive(Debug, Default)]
pub struct Imports {
    /// For each file the files that it imports, by their indices.
    pub files: BTreeMap<usize, BTreeSet<usize>>,
    /// For each file the paths that lead out of the workspace, in full as far as they are known (`std::fs::read`).
    pub external: BTreeMap<usize, BTreeSet<Vec<String>>>,
}

impl Imports {
    /// The chains of imports that begin at the file: for itself, and for each file that it imports, directly or not, the shortest chain that
    /// leads there. The shorter ones come first. Files for which `follow` is false are left out.
    pub fn chains(&self, file: usize, follow: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
        let mut chains = vec![vec![file]];
        let mut reached = BTreeSet::from([file]);
        let mut next = 0;
        while next < chains.len() {
            let chain = chains[next].clone();
            let last = chain[chain.len() - 1];
            let targets = self.files.get(&last).into_iter().flatten().copied();
            for target in targets.filter(|target| follow(*target) && reached.insert(*target)) {
                chains.push([chain.as_slice(), &[target]].concat());
            }
            next += 1;
        }

        chains
    }

    /// The cycles of more than one file, each as the sorted indices of its files; the largest one first.
    pub fn cycles(&self) -> Vec<Vec<usize>> {
        let mut graph = DiGraph::<usize, ()>::new();
        let mut nodes = BTreeMap::new();
        for (from, targets) in &self.files {
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

    /// Reads the imports of all files.
    pub fn of(sources: &Sources) -> Self {
        let resolver = Resolver::new(sources);
        let mut imports = Self::default();
        for module in &sources.modules {
            let Some(items) = items(sources, module) else { continue };
            let mut found = Paths::default();
            for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
                found.visit_item(item);
            }

            found.0.extend(module.bindings.values().cloned());
            found.0.extend(module.globs.iter().cloned());
            for path in found.0 {
                imports.add(&resolver, module, &path);
            }
        }

        imports
    }

    fn add(&mut self, resolver: &Resolver<'_>, module: &Module, path: &[String]) {
        match resolver.absolute(module, path, MOST_HOPS) {
            Target::File(file) if file != module.file => {
                self.files.entry(module.file).or_default().insert(file);
            }
            Target::File(_) => {}
            Target::External(path) => {
                self.external.entry(module.file).or_default().insert(path);
            }
        }
    }
}

/// The items of a module: those of its file, or of an inline module in it.
fn items<'a>(sources: &'a Sources, module: &Module) -> Option<&'a [Item]> {
    let file_module = sources.modules.iter().find(|other| other.file == module.file)?;
    let mut items = sources.files[module.file].items.as_slice();
    for name in module.path.get(file_module.path.len()..)? {
        let inner = items.iter().find_map(|item| match item {
            Item::Mod(inner) if inner.ident == name => inner.content.as_ref(),
            _ => None,
        });
        items = &inner?.1;
    }

    Some(items)
}

/// Where a path leads.
enum Target {
    File(usize),
    External(Vec<String>),
}

struct Resolver<'a> {
    sources: &'a Sources,
    index: BTreeMap<&'a [String], usize>,
}

impl<'a> Resolver<'a> {
    fn new(sources: &'a Sources) -> Self {
        let modules = sources.modules.iter().enumerate();
        let index = modules.map(|(at, module)| (module.path.as_slice(), at)).collect();
        Self { sources, index }
    }

    fn module(&self, path: &[String]) -> Option<&'a Module> {
        self.index.get(path).map(|at| &self.sources.modules[*at])
    }

    /// A path as it is written in a module.
    fn absolute(&self, module: &Module, path: &[String], hops: usize) -> Target {
        let Some((first, rest)) = path.split_first() else {
            return Target::File(module.file);
        };

        let base = match first.as_str() {
            "crate" => vec![module.path[0].clone()],
            "self" => module.path.clone(),
            "super" => {
                let mut base = module.path.clone();
                base.pop();
                return match self.module(&base) {
                    Some(parent) => self.absolute_in(parent, rest, hops),
                    None => Target::External(path.to_vec()),
                };
            }
            name => {
                let child = [module.path.clone(), vec![name.to_owned()]].concat();
                if self.module(&child).is_some() {
                    child
                } else if let Some(bound) = module.bindings.get(name)
                    && bound != path
                    && hops > 0
                {
                    return self.absolute(module, &[bound, rest].concat(), hops - 1);
                } else if self.module(std::slice::from_ref(first)).is_some() {
                    vec![name.to_owned()]
                } else {
                    return Target::External(path.to_vec());
                }
            }
        };

        self.descend(&base, rest, hops)
    }

    /// The rest of a path that began with `super`.
    fn absolute_in(&self, module: &Module, rest: &[String], hops: usize) -> Target {
        match rest.first().map(String::as_str) {
            Some("super") => self.absolute(module, rest, hops),
            _ => self.descend(&module.path, rest, hops),
        }
    }

    /// From a module down a path, through re-exports.
    fn descend(&self, base: &[String], rest: &[String], hops: usize) -> Target {
        let mut path = base.to_vec();
        for (at, name) in rest.iter().enumerate() {
            path.push(name.clone());
            if self.module(&path).is_some() {
                continue;
            }

            path.pop();
            let Some(module) = self.module(&path) else { break };
            if let Some(bound) = module.bindings.get(name).filter(|_| hops > 0) {
                return self.absolute(module, &[bound, &rest[at + 1..]].concat(), hops - 1);
            }

            break;
        }

        match self.module(&path) {
            Some(module) => Target::File(module.file),
            None => Target::External([path, rest.to_vec()].concat()),
        }
    }
}

/// The paths of items, except for what is only built for tests.
#[derive(Default)]
struct Paths(BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 {
            self.0.insert(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, _: &'ast ItemUse) {}

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

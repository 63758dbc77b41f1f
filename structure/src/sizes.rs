//! Sizes of files and functions, and the share of comments and blank lines.

use proc_macro2::LineColumn;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemMod, TraitItemFn};

use crate::sources::{Source, is_for_tests};

/// The size of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Function {
    /// Its lines, from the signature to the closing brace.
    pub lines: usize,
    /// The lines between the braces of its body.
    pub body: usize,
    /// The blank lines among them.
    pub blank: usize,
    /// The lines among them that are only a comment.
    pub comments: usize,
}

/// The functions of a file that are not only built for tests.
pub fn functions(source: &Source) -> Vec<Function> {
    let mut finder = Finder {
        lines: source.text.lines().collect(),
        found: Vec::new(),
    };
    if !source.is_test {
        source.items.iter().for_each(|item| finder.visit_item(item));
    }

    finder.found
}

/// The lines of a file before its first inline module of tests.
pub fn lines_without_tests(source: &Source) -> usize {
    let all = source.text.lines().count();
    let tests = source.items.iter().find_map(|item| match item {
        syn::Item::Mod(module) if is_for_tests(&module.attrs) && module.content.is_some() => {
            Some(module.span().start().line - 1)
        }
        _ => None,
    });

    tests.unwrap_or(all)
}

/// Median, 90th percentile and largest of some sizes.
pub fn spread(mut sizes: Vec<usize>) -> [usize; 3] {
    sizes.sort_unstable();
    let at = |percent: usize| sizes.get((sizes.len().saturating_sub(1)) * percent / 100).copied();
    [50, 90, 100].map(|percent| at(percent).unwrap_or_default())
}

/// The sum of a size of all functions.
pub fn sum(functions: &[Function], of: fn(&Function) -> usize) -> usize {
    functions.iter().map(of).sum()
}

/// A share in percent.
#[expect(clippy::cast_precision_loss, reason = "lines of a program are few")]
pub fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

struct Finder<'a> {
    lines: Vec<&'a str>,
    found: Vec<Function>,
}

impl Finder<'_> {
    fn add(&mut self, start: LineColumn, block: &Block) {
        let braces = block.brace_token.span;
        let (open, close) = (braces.open().start(), braces.close().end());
        // Lines count from 1; the body is what stands between the lines of the two braces.
        let body = self.lines.get(open.line..close.line.saturating_sub(1));
        let body = body.unwrap_or_default();
        self.found.push(Function {
            lines: close.line + 1 - start.line,
            body: body.len(),
            blank: body.iter().filter(|line| line.trim().is_empty()).count(),
            comments: body.iter().filter(|line| line.trim_start().starts_with("//")).count(),
        });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(item.sig.span().start(), &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(item.sig.span().start(), &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(item.sig.span().start(), block);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

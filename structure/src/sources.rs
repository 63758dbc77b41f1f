//! The modules of a root file, found by its `mod` items as the compiler finds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use syn::{Attribute, Expr, Item, Lit, Meta, MetaNameValue, UseTree};

use crate::packages::{Package, Root};

/// A source file.
pub struct Source {
    /// Its path below the root of the project.
    pub path: PathBuf,
    /// The name of the package that it belongs to.
    pub package: String,
    pub text: String,
    pub items: Vec<Item>,
    /// Whether it is only built for tests.
    pub is_test: bool,
}

/// A module: a file, or an inline module of one. Inline modules that are only built for tests are left out.
#[derive(Debug)]
pub struct Module {
    /// The name of its root, then the names of the modules down to it.
    pub path: Vec<String>,
    /// The index of its file in [`Sources::files`].
    pub file: usize,
    /// The names that its `use` items bind, and the paths as they are written.
    pub bindings: BTreeMap<String, Vec<String>>,
    /// The paths of its `use` items that end with `*`.
    pub globs: Vec<Vec<String>>,
}

/// All source files and modules.
#[derive(Default)]
pub struct Sources {
    pub files: Vec<Source>,
    /// The modules.
    pub modules: Vec<Module>,
}

/// Reads all source files of the packages.
///
/// # Errors
/// When a file cannot be read or parsed, or a `mod` item has no file.
pub fn read(root: &Path, packages: &[Package]) -> Result<Sources> {
    let mut sources = Sources::default();
    for package in packages {
        for target in &package.roots {
            sources.add_root(root, package, target)?;
        }
    }
    Ok(sources)
}

/// Whether an item is only built for tests.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|cfg| cfg.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test")))
}

/// The attributes of an item that may have `cfg(test)`.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Where the files of a module's children are.
#[derive(Clone)]
struct Place<'a> {
    package: &'a Package,
    root: &'a Path,
    is_test: bool,
}

impl Sources {
    fn add_root(&mut self, root: &Path, package: &Package, target: &Root) -> Result<()> {
        let place = Place {
            package,
            root,
            is_test: target.is_test,
        };
        let folder = target.file.parent().map(Path::to_owned).unwrap_or_default();
        self.add_file(&place, &target.file, &folder, vec![target.name.clone()])
    }

    /// A file, and the files of its modules, which are in `folder`.
    fn add_file(&mut self, place: &Place<'_>, path: &Path, folder: &Path, module: Vec<String>) -> Result<()> {
        let text = std::fs::read_to_string(place.root.join(path)).with_context(|| path.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let file = self.files.len();

        self.files.push(Source {
            path: path.to_owned(),
            package: place.package.name.clone(),
            text,
            items: parsed.items.clone(),
            is_test: place.is_test,
        });

        self.add_module(place, &parsed.items, folder, file, module)
    }

    fn add_module(
        &mut self,
        place: &Place<'_>,
        items: &[Item],
        folder: &Path,
        file: usize,
        path: Vec<String>,
    ) -> Result<()> {
        let mut module = Module {
            path: path.clone(),
            file,
            bindings: BTreeMap::new(),
            globs: Vec::new(),
        };

        for item in items {
            if let Item::Use(item) = item
                && !is_for_tests(&item.attrs)
            {
                bind(&item.tree, &mut Vec::new(), &mut module);
            }
        }

        self.modules.push(module);

        for item in items {
            let Item::Mod(item) = item else { continue };
            let name = item.ident.to_string();
            let mut child = path.clone();
            child.push(name.clone());

            let is_test = place.is_test || is_for_tests(&item.attrs);
            match &item.content {
                Some(_) if is_test && !place.is_test => {}
                Some((_, items)) => self.add_module(place, items, &folder.join(&name), file, child)?,
                None => {
                    let flat = folder.join(format!("{name}.rs"));
                    let nested = folder.join(&name).join("mod.rs");
                    let usual = if place.root.join(&flat).exists() { flat } else { nested };
                    // The modules of a file that an attribute names are beside it, as those of a `mod.rs`.
                    let named = path_attribute(&item.attrs).map(|name| self.files[file].path.with_file_name(name));
                    let inner = match &named {
                        Some(named) => named.parent().map(Path::to_owned).unwrap_or_default(),
                        None => folder.join(&name),
                    };
                    let place = Place {
                        is_test,
                        ..place.clone()
                    };
                    self.add_file(&place, &named.unwrap_or(usual), &inner, child)?;
                }
            }
        }

        Ok(())
    }
}

/// The file that `#[path = "..."]` names.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let Meta::NameValue(MetaNameValue {
        value: Expr::Lit(literal),
        ..
    }) = &attribute.meta
    else {
        return None;
    };

    match &literal.lit {
        Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}

fn bind(tree: &UseTree, prefix: &mut Vec<String>, module: &mut Module) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            bind(&path.tree, prefix, module);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = prefix.last() {
                module.bindings.insert(last.clone(), prefix.clone());
            }
        }
        UseTree::Name(name) => {
            let path = [prefix.clone(), vec![name.ident.to_string()]].concat();
            module.bindings.insert(name.ident.to_string(), path);
        }
        UseTree::Rename(rename) => {
            let path = [prefix.clone(), vec![rename.ident.to_string()]].concat();
            // `use Trait as _` binds nothing, but imports.
            let name = match rename.rename.to_string().as_str() {
                "_" => format!("_ {}", path.join("::")),
                name => name.to_owned(),
            };
            module.bindings.insert(name, path);
        }
        UseTree::Glob(_) => module.globs.push(prefix.clone()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| bind(tree, prefix, module)),
    }
}

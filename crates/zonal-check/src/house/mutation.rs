//! Mutations: changes of the source that take a rule away, for a test to find.
//!
//! A mutation names the item that it changes and the lines in it, so it outlives other changes of the file, and a move of the item to
//! another file of its crate:
//!
//! ```text
//! why: a write that lands late takes what was written after it
//! in: --package zonal-fs --lib
//! test: each_block_is_the_last_writers
//! at: zonal-fs Pending::take
//! -match whose == number {
//! +match whose >= number {
//! ```
//!
//! `at` is a crate and an item of its `src`: `Type::function`, `function`, or the name of a type, constant or macro; where no item has the
//! lines, it is a file. Lines that begin with `-` go, those with `+` come in their place, those with a space stay. What goes and stays has
//! to be in one place of the items of that name, and in one only; indents do not count.

use proc_macro2::Span;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// An item of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// `Type::function`, `function`, or the name of a type, constant or macro.
    pub name: String,
    /// Its lines, from 0 on, with those of its attributes and documentation.
    pub lines: Range<usize>,
}

/// The items of a source file, outer ones first; none of a file that does not parse.
pub fn items(text: &str) -> Vec<Item> {
    let mut found = Items::default();
    if let Ok(file) = syn::parse_file(text) {
        found.visit_file(&file);
    }
    found.items
}

#[derive(Default)]
struct Items {
    /// The type or trait whose block this is.
    owner: Option<String>,
    items: Vec<Item>,
}

impl Items {
    fn add(&mut self, name: String, span: Span) {
        let name = self.owner.iter().cloned().chain([name]).collect::<Vec<_>>().join("::");
        self.items.push(Item { name, lines: span.start().line - 1..span.end().line });
    }

    /// The same, with what `inner` adds as its own.
    fn add_block(&mut self, name: String, span: Span, inner: impl FnOnce(&mut Items)) {
        self.add(name.clone(), span);
        let outer = self.owner.replace(name);
        inner(self);
        self.owner = outer;
    }
}

/// The last name of a type's path.
fn name_of(of: &syn::Type) -> Option<String> {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        syn::Type::Reference(reference) => name_of(&reference.elem),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (span, name) = match item {
            syn::Item::Impl(block) => {
                let name = name_of(&block.self_ty).unwrap_or_default();
                return self.add_block(name, item.span(), |inner| visit::visit_item(inner, item));
            }
            syn::Item::Trait(block) => {
                let name = block.ident.to_string();
                return self.add_block(name, item.span(), |inner| visit::visit_item(inner, item));
            }
            syn::Item::Fn(function) => (item.span(), Some(&function.sig.ident)),
            syn::Item::Const(constant) => (item.span(), Some(&constant.ident)),
            syn::Item::Static(constant) => (item.span(), Some(&constant.ident)),
            syn::Item::Struct(of) => (item.span(), Some(&of.ident)),
            syn::Item::Enum(of) => (item.span(), Some(&of.ident)),
            syn::Item::Type(of) => (item.span(), Some(&of.ident)),
            syn::Item::Macro(rules) => (item.span(), rules.ident.as_ref().or(rules.mac.path.get_ident())),
            _ => (item.span(), None),
        };
        if let Some(name) = name {
            self.add(name.to_string(), span);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            syn::ImplItem::Fn(function) => self.add(function.sig.ident.to_string(), item.span()),
            syn::ImplItem::Const(constant) => self.add(constant.ident.to_string(), item.span()),
            _ => {}
        }
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(function) = item {
            self.add(function.sig.ident.to_string(), item.span());
        }
        visit::visit_trait_item(self, item);
    }
}

/// The sources of crates, read once.
#[derive(Debug)]
pub struct Sources {
    root: PathBuf,
    crates: BTreeMap<String, Vec<Source>>,
}

#[derive(Debug)]
struct Source {
    path: PathBuf,
    text: String,
    items: Vec<Item>,
}

impl Sources {
    /// Those of the repository at `root`.
    pub fn of(root: &Path) -> Sources {
        Sources { root: root.to_owned(), crates: BTreeMap::new() }
    }

    /// The files of a crate's `src`.
    fn of_crate(&mut self, name: &str) -> io::Result<&[Source]> {
        if !self.crates.contains_key(name) {
            let mut found = Vec::new();
            read_all(&self.root, &Path::new("crates").join(name).join("src"), &mut found)?;
            self.crates.insert(name.to_owned(), found);
        }
        Ok(&self.crates[name])
    }
}

/// Reads the source files below `path` of `root`.
fn read_all(root: &Path, path: &Path, found: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(path))? {
        let path = path.join(entry?.file_name());
        if root.join(&path).is_dir() {
            read_all(root, &path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(root.join(&path))?;
            found.push(Source { items: items(&text), path, text });
        }
    }
    Ok(())
}

/// Why a mutation cannot be made.
#[derive(thiserror::Error, Debug)]
pub enum MutationError {
    /// A line that is none of a mutation.
    #[error("line {0} of it is neither a header nor a changed line of an item")]
    Line(usize),
    /// A place that changes nothing.
    #[error("it changes nothing at {0}")]
    Nothing(String),
    /// The place is not there.
    #[error("{place} is not there: {error}")]
    NoPlace {
        /// As the mutation says.
        place: String,
        /// From reading it.
        error: io::Error,
    },
    /// No item has this name.
    #[error("nothing is called {0}")]
    NoItem(String),
    /// The lines are not there, or not once.
    #[error("{place} has these lines {count} times: {}", lines.join(" / "))]
    Lines {
        /// As the mutation says.
        place: String,
        /// How often.
        count: usize,
        /// What goes and what stays.
        lines: Vec<String>,
    },
}

/// One place that a mutation changes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Change {
    at: String,
    /// Each with its sign: `-`, `+` or a space.
    lines: Vec<(char, String)>,
}

impl Change {
    /// The lines that are there before, without their indents.
    fn before(&self) -> Vec<&str> {
        self.lines.iter().filter(|(sign, _)| *sign != '+').map(|(_, line)| line.trim()).collect()
    }

    /// Where in `text` the lines before are, within one of `ranges`.
    fn found(&self, text: &str, ranges: &[Range<usize>]) -> Vec<usize> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let before = self.before();
        let is_within =
            |at: &usize| ranges.iter().any(|range| range.contains(at) && at + before.len() <= range.end);
        let has_all = |at: &usize| lines[*at..].starts_with(&before);
        (0..lines.len()).filter(|at| is_within(at) && has_all(at)).collect()
    }

    /// `text` with the change made at line `at`.
    fn made(&self, text: &str, at: usize) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        let all = at..at + self.before().len();
        let mut old = lines[all.clone()].iter().copied();
        let mut new = Vec::new();
        for (sign, line) in &self.lines {
            match sign {
                '+' => new.push(line.as_str()),
                '-' => drop(old.next()),
                _ => new.extend(old.next()),
            }
        }
        lines.splice(all, new);
        lines.join("\n") + "\n"
    }

    /// Where it is to be made: a file and a line of it.
    fn place(&self, sources: &mut Sources) -> Result<(PathBuf, String, usize), MutationError> {
        let no_place = |error| MutationError::NoPlace { place: self.at.clone(), error };
        let (places, named): (Vec<_>, usize) = match self.at.split_once(' ') {
            Some((name, item)) => {
                let mut places = Vec::new();
                let mut all = 0;
                for source in sources.of_crate(name).map_err(no_place)? {
                    let named = source.items.iter().filter(|one| one.name == item);
                    let ranges: Vec<_> = named.map(|one| one.lines.clone()).collect();
                    all += ranges.len();
                    let found = self.found(&source.text, &ranges);
                    places.extend(found.into_iter().map(|at| (source.path.clone(), source.text.clone(), at)));
                }
                (places, all)
            }
            None => {
                let path = PathBuf::from(&self.at);
                let text = fs::read_to_string(sources.root.join(&path)).map_err(no_place)?;
                let all = 0..text.lines().count();
                let found = self.found(&text, &[all]);
                (found.into_iter().map(|at| (path.clone(), text.clone(), at)).collect(), 1)
            }
        };
        if named == 0 {
            return Err(MutationError::NoItem(self.at.clone()));
        }
        let count = places.len();
        let lines = || self.before().into_iter().map(str::to_owned).collect();
        places.into_iter().next().filter(|_| count == 1).ok_or_else(|| MutationError::Lines {
            place: self.at.clone(),
            count,
            lines: lines(),
        })
    }
}

/// A mutation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutation {
    changes: Vec<Change>,
}

impl Mutation {
    /// Reads one; its headers say what `scripts/mutations.sh` asks.
    ///
    /// # Errors
    /// A line that is none of a mutation, or a place without a change.
    pub fn parse(text: &str) -> Result<Mutation, MutationError> {
        let mut changes: Vec<Change> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            match (line.strip_prefix("at: "), line.chars().next(), changes.last_mut()) {
                (Some(at), _, _) => changes.push(Change { at: at.to_owned(), lines: Vec::new() }),
                (None, Some(sign @ ('-' | '+' | ' ')), Some(change)) => {
                    change.lines.push((sign, line[1..].to_owned()));
                }
                (None, _, None) if ["why: ", "in: ", "test: "].iter().any(|name| line.starts_with(name)) => {}
                _ => return Err(MutationError::Line(number + 1)),
            }
        }
        let has_none = |change: &&Change| {
            change.before().is_empty() || change.lines.iter().all(|(sign, _)| *sign == ' ')
        };
        match changes.iter().find(has_none) {
            Some(change) => Err(MutationError::Nothing(change.at.clone())),
            None if changes.is_empty() => Err(MutationError::Nothing("any place".to_owned())),
            None => Ok(Mutation { changes }),
        }
    }

    /// The files that it changes, and what becomes of them.
    ///
    /// # Errors
    /// A place that is not there, or lines that are not there once.
    pub fn made(&self, sources: &mut Sources) -> Result<BTreeMap<PathBuf, String>, MutationError> {
        let mut made: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut places = Vec::new();
        for change in &self.changes {
            places.push((change.place(sources)?, change));
        }
        // From the last line on, so that earlier lines keep their numbers.
        places.sort_by(|((_, _, a), _), ((_, _, b), _)| b.cmp(a));
        for ((path, text, at), change) in places {
            let before = made.get(&path).unwrap_or(&text);
            let changed = change.made(before, at);
            if changed == *before {
                return Err(MutationError::Nothing(change.at.clone()));
            }
            made.insert(path, changed);
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! A module.\n\n/// Waits.\n#[derive(Debug)]\npub struct Pool {\n    left: u32,\n}\n\n\
        impl Pool {\n    fn take(&self) -> u32 {\n        let left = self.left;\n        left - 1\n    }\n\n    \
        fn give(&self) -> u32 {\n        let left = self.left;\n        left + 1\n    }\n}\n\nfn take() -> u32 {\n    2\n}\n";

    /// What becomes of a crate with this text in one file and nothing in another.
    fn made(mutation: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let src = dir.path().join("crates/a/src");
        fs::create_dir_all(&src).unwrap();
        fs::write(src.join("lib.rs"), "mod pool;\n").unwrap();
        fs::write(src.join("pool.rs"), TEXT).unwrap();
        let mutation = Mutation::parse(mutation).map_err(|error| error.to_string())?;
        let made = mutation.made(&mut Sources::of(dir.path())).map_err(|error| error.to_string())?;
        assert_eq!(made.keys().collect::<Vec<_>>(), [Path::new("crates/a/src/pool.rs")]);
        Ok(made.into_values().next().unwrap())
    }

    #[test]
    fn items_have_the_names_of_their_owners_and_all_their_lines() {
        let items = items(TEXT);
        let found: Vec<_> = items.iter().map(|item| (item.name.as_str(), item.lines.clone())).collect();
        let all = [
            ("Pool", 2..7),
            ("Pool", 8..19),
            ("Pool::take", 9..13),
            ("Pool::give", 14..18),
            ("take", 20..23),
        ];
        assert_eq!(found, all);
    }

    #[test]
    fn lines_of_the_item_are_changed_and_no_others() {
        let give = "why: w\nat: a Pool::give\n let left = self.left;\n-left + 1\n+left + 2\n+// end\n";
        assert_eq!(made(give).unwrap(), TEXT.replace("        left + 1\n", "left + 2\n// end\n"));
        let both = "at: a take\n-2\n+3\nat: a Pool\n-left: u32,\n+left: u32, right: u32,\n";
        let changed = TEXT.replace("    2\n", "3\n").replace("    left: u32,", "left: u32, right: u32,");
        assert_eq!(made(both).unwrap(), changed);
        assert_eq!(made("at: crates/a/src/pool.rs\n-2\n").unwrap(), TEXT.replace("    2\n", ""));
    }

    #[test]
    fn mutation_that_cannot_be_made_says_why() {
        let refused = |mutation: &str| made(mutation).unwrap_err();
        assert_eq!(
            refused("at: a Pool\n-let left = self.left;\n"),
            "a Pool has these lines 2 times: let left = self.left;"
        );
        assert_eq!(
            refused("at: a Pool::take\n-left + 1\n"),
            "a Pool::take has these lines 0 times: left + 1"
        );
        assert_eq!(refused("at: a Pool::lost\n-left + 1\n"), "nothing is called a Pool::lost");
        assert_eq!(refused("at: a take\n 2\n"), "it changes nothing at a take");
        assert_eq!(refused("at: a take\n+3\n"), "it changes nothing at a take");
        assert_eq!(refused("at: a take\n-    2\n+    2\n"), "it changes nothing at a take");
        assert_eq!(refused("why: w\n"), "it changes nothing at any place");
        assert_eq!(refused("why: w\n-2\n"), "line 2 of it is neither a header nor a changed line of an item");
        assert!(refused("at: b take\n-2\n").starts_with("b take is not there: "));
    }
}

//! Measures of the source of a crate, without its tests: lengths of functions, comments, methods of a type, circles of modules.

use super::words::{ACTORS, phrases_in, prose, sentences};
use super::{comment_at, indent, name_at};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

/// A function longer than this many lines counts as long.
pub const LONG: usize = 40;

/// A module: its name below the crate (`volume::plugs`, empty for the root) and its text without tests.
#[derive(Debug)]
pub struct Module {
    /// Path within the crate.
    pub name: String,
    /// Source text.
    pub text: String,
}

impl Module {
    /// The module in the file `path`, which is relative to the crate's `src`; `None` for a file of tests.
    pub fn new(path: &str, text: &str) -> Option<Module> {
        let path = path.strip_suffix(".rs")?;
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts.iter().any(|part| ["tests", "bin", "main"].contains(part)) {
            return None;
        }
        if matches!(parts.last(), Some(&"mod" | &"lib")) {
            parts.pop();
        }
        Some(Module { name: parts.join("::"), text: without_tests(text) })
    }
}

/// The lines before a `mod tests` that stands at the end of a file.
fn without_tests(text: &str) -> String {
    let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

/// What is measured of some modules.
#[derive(Default, Debug)]
pub struct Measures {
    /// Lines that are neither empty nor a comment.
    pub code: usize,
    /// Lines in which a comment stands that documents no item.
    pub inline: usize,
    /// Lines in which any comment stands.
    pub comments: usize,
    /// Phrases that do not name the actor, in comments.
    pub actors: usize,
    /// The lengths of all functions in lines, with their names.
    pub functions: Vec<(usize, String)>,
    /// The lengths of all sentences in comments, in words.
    pub sentences: Vec<usize>,
    /// Functions in the blocks of each type, without those of traits.
    pub methods: BTreeMap<String, usize>,
    /// Files.
    pub files: usize,
}

impl AddAssign<&Module> for Measures {
    fn add_assign(&mut self, module: &Module) {
        let lines: Vec<&str> = module.text.lines().collect();
        let words = prose(&module.text, true);
        self.files += 1;
        self.actors += phrases_in(&words).iter().filter(|(_, phrase)| ACTORS.contains(phrase)).count();
        self.sentences.extend(sentences(&module.text, true));
        for line in &lines {
            let comment = comment_at(line);
            let is_documentation =
                comment.is_some_and(|at| line[at..].starts_with("///") || line[at..].starts_with("//!"));
            self.comments += usize::from(comment.is_some());
            self.inline += usize::from(comment.is_some() && !is_documentation);
            self.code += usize::from(!line[..comment.unwrap_or(line.len())].trim().is_empty());
        }
        let mut owner: Option<(usize, String)> = None;
        for (at, line) in lines.iter().enumerate() {
            if owner.as_ref().is_some_and(|(outer, _)| indent(line) == *outer && line.trim() == "}") {
                owner = None;
            }
            if let Some(name) = type_of_block(line) {
                owner = Some((indent(line), name));
            }
            if let Some(name) = function_at(line) {
                self.functions.push((length(&lines[at..]), format!("{}::{name}", module.name)));
                if let Some((_, name)) = &owner {
                    *self.methods.entry(name.clone()).or_default() += 1;
                }
            }
        }
    }
}

impl Measures {
    /// What `modules` measure together.
    pub fn of<'a>(modules: impl IntoIterator<Item = &'a Module>) -> Measures {
        let mut measures = Measures::default();
        modules.into_iter().for_each(|module| measures += module);
        measures.functions.sort();
        measures.sentences.sort();
        measures
    }

    /// The length of a function below which `share` of ten are.
    pub fn function(&self, share: usize) -> usize {
        self.functions.get(self.functions.len() * share / 10).map_or(0, |(lines, _)| *lines)
    }

    /// The length of a sentence below which nine of ten are.
    pub fn sentence(&self) -> usize {
        self.sentences.get(self.sentences.len() * 9 / 10).copied().unwrap_or(0)
    }

    /// Functions longer than [`LONG`].
    pub fn long(&self) -> usize {
        self.functions.iter().filter(|(lines, _)| *lines > LONG).count()
    }

    /// The type with the most methods.
    pub fn largest(&self) -> Option<(&str, usize)> {
        self.methods.iter().max_by_key(|(_, count)| **count).map(|(name, count)| (name.as_str(), *count))
    }
}

/// The name of a function that begins in this line.
fn function_at(line: &str) -> Option<&str> {
    let code = line[..comment_at(line).unwrap_or(line.len())].trim_start();
    let mut words = code.split_whitespace();
    let is_before = |word: &&str| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "crate)", "super)"].contains(word)
    };
    let name = words.find(|word| !is_before(word)).filter(|word| *word == "fn").and_then(|_| words.next())?;
    // A name in a trait has no lines of its own.
    Some(name_at(name)).filter(|_| !code.ends_with(';'))
}

/// Lines of the item that begins in the first line: up to the closing brace of its indent.
fn length(lines: &[&str]) -> usize {
    let outer = indent(lines[0]);
    let has_end = |line: &&str| indent(line) == outer && line.trim_start().starts_with('}');
    if lines[0].ends_with('}') { 1 } else { lines.iter().position(has_end).map_or(1, |at| at + 1) }
}

/// The type whose own methods a block that begins in this line has.
fn type_of_block(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => after_generics(generics),
        None => rest.strip_prefix(' ')?,
    };
    (!rest.contains(" for ") && line.ends_with('{')).then(|| name_at(rest.trim_start()).to_owned())
}

/// What follows the `>` that ends a list of parameters.
fn after_generics(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

/// Circles of a crate's modules at `depth` names below it: the groups of modules that each use all others of the group, directly or
/// through others, with more than one member; the largest first. A module and those below it count as one at its depth.
pub fn circles(modules: &[Module], depth: usize) -> Vec<Vec<String>> {
    let names: BTreeSet<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    let short = |name: &str| name.split("::").take(depth).collect::<Vec<_>>().join("::");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for module in modules.iter().filter(|module| !module.name.is_empty()) {
        let from = short(&module.name);
        let to = used(module).into_iter().filter_map(|path| longest(&path, &names)).map(|name| short(&name));
        uses.entry(from.clone()).or_default().extend(to.filter(|to| !to.is_empty() && *to != from));
    }
    let reached: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|from| (from, reach(from, &uses))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (from, to) in &reached {
        let of_group = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*from));
        let group: Vec<String> = to.iter().filter(of_group).cloned().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    let mut groups: Vec<Vec<String>> = groups.into_iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// All that `from` uses, directly or through others.
fn reach(from: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = left.pop() {
        for next in uses.get(&module).into_iter().flatten() {
            if found.insert(next.clone()) {
                left.push(next.clone());
            }
        }
    }
    found
}

/// The longest beginning of `path` that is a module.
fn longest(path: &str, names: &BTreeSet<&str>) -> Option<String> {
    let parts: Vec<&str> = path.split("::").collect();
    (1..=parts.len()).rev().map(|n| parts[..n].join("::")).find(|name| names.contains(name.as_str()))
}

/// Paths below the crate that a module names, in `use` and elsewhere.
fn used(module: &Module) -> BTreeSet<String> {
    let lines = module.text.lines().map(|line| line[..comment_at(line).unwrap_or(line.len())].trim());
    let code = lines.collect::<Vec<_>>().join(" ");
    let own: Vec<&str> = module.name.split("::").collect();
    let mut found = BTreeSet::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &code[at..];
            let mut base: Vec<&str> = if start == "crate::" { Vec::new() } else { own.clone() };
            while let Some(up) = rest.strip_prefix("super::") {
                base.pop();
                rest = up;
            }
            rest = rest.strip_prefix("crate::").or_else(|| rest.strip_prefix("self::")).unwrap_or(rest);
            found.extend(
                leaves(rest)
                    .into_iter()
                    .map(|leaf| base.iter().copied().chain([leaf.as_str()]).collect::<Vec<_>>().join("::")),
            );
        }
    }
    found
}

/// The paths of a tree of `use` such as `a::{b, c::d}`.
fn leaves(text: &str) -> Vec<String> {
    let head: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
    let rest = &text[head.len()..];
    let head = head.trim_end_matches(':');
    let Some(inner) = rest.strip_prefix('{') else { return vec![head.to_owned()] };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        let is_end = depth == 0 && (c == ',' || c == '}');
        if is_end {
            found.extend(
                leaves(inner[start..at].trim())
                    .iter()
                    .map(|leaf| if head.is_empty() { leaf.clone() } else { format!("{head}::{leaf}") }),
            );
            start = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! A module: PLANTED waits. It is short.\n\
        use crate::b::{C, d::E};\n\
        use super::f::G;\n\
        \n\
        impl<T: Fn() -> u32> Pool<T> {\n    pub(crate) fn take(&self) -> u32 {\n        // Why.\n        1\n    }\n}\n\
        impl Drop for Pool<u32> {\n    fn drop(&mut self) {}\n}\n\
        trait Later {\n    fn later(&self);\n}\n\
        const fn alone() -> u32 {\n    2 // two\n}\n\
        #[cfg(test)]\nmod tests {\n    fn test() {}\n}\n";

    #[test]
    fn module_is_measured_without_its_tests() {
        let module = Module::new("a/x.rs", &TEXT.replace("PLANTED", ACTORS[0])).unwrap();
        let measures = Measures::of([&module]);
        let names: Vec<_> = measures.functions.iter().map(|(lines, name)| (*lines, name.as_str())).collect();
        assert_eq!(names, [(1, "a::x::drop"), (3, "a::x::alone"), (4, "a::x::take")]);
        assert_eq!((measures.comments, measures.inline, measures.code), (3, 2, 16));
        assert_eq!((measures.actors, measures.largest()), (1, Some(("Pool", 1))));
        assert_eq!(used(&module), ["a::f::G", "b::C", "b::d::E"].map(str::to_owned).into());
        assert!(Module::new("a/tests.rs", "").is_none());
        assert_eq!(Module::new("a/mod.rs", "").unwrap().name, "a");
    }

    #[test]
    fn circles_of_modules_are_found_at_each_depth() {
        let modules = [
            ("lib.rs", "use crate::a::A;"),
            ("a/mod.rs", "use crate::b::x::B;"),
            ("a/low.rs", "use super::A;"),
            ("b/x.rs", "use super::y::C;"),
            ("b/y.rs", "use crate::a::low::L; use crate::c::D;"),
            ("c.rs", "pub struct D;"),
        ];
        let modules = modules.map(|(path, text)| Module::new(path, text).unwrap());
        assert_eq!(circles(&modules, 1), [["a", "b"]]);
        assert_eq!(circles(&modules, 2), [["a", "a::low", "b::x", "b::y"]]);
        assert_eq!(circles(&modules[3..], 1), Vec::<Vec<String>>::new());
    }
}

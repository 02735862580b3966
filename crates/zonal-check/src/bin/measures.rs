//! `measures [PATH...]`: a table of the size and shape of each crate's source, without its tests, as docs/HACKING.md has it; with paths, of
//! these files and directories of the repository.

use std::fs;
use std::path::Path;
use zonal_check::house::measures::{Measures, Module, circles};
use zonal_check::program::repository;

fn main() {
    println!(
        "| crate | files | lines of code | functions: middle, 9 of 10 | over 40 lines | the longest | comments | inline | unnamed actors \
         | words a sentence, 9 of 10 | methods of a type | circles of modules | of files |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let asked: Vec<_> = std::env::args().skip(1).collect();
    for path in &asked {
        let mut modules = Vec::new();
        read(&repository().join(path), "", &mut modules);
        row(path, &modules);
    }
    let mut crates: Vec<_> = entries(&repository().join("crates"));
    crates.retain(|path| asked.is_empty() && path.join("src").is_dir());
    let mut all = Vec::new();
    for path in crates {
        let mut modules = Vec::new();
        read(&path.join("src"), "", &mut modules);
        row(&path.file_name().expect("a crate has a name").to_string_lossy(), &modules);
        all.extend(modules);
    }
    if asked.is_empty() {
        row("all", &all);
    }
}

/// What is in a directory, by name.
fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).expect("it is a directory of this repository");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    found.sort();
    found
}

/// The modules at `path`, which is `name` below the crate's `src`.
fn read(path: &Path, name: &str, modules: &mut Vec<Module>) {
    if path.is_dir() {
        for inner in entries(path) {
            let own = inner.file_name().expect("it has a name").to_string_lossy().into_owned();
            read(&inner, &if name.is_empty() { own } else { format!("{name}/{own}") }, modules);
        }
    } else if path.extension().is_some_and(|end| end == "rs") {
        let own = path.file_name().expect("it has a name").to_string_lossy();
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        modules.extend(Module::new(if name.is_empty() { &own } else { name }, &text));
    }
}

fn row(name: &str, modules: &[Module]) {
    let measures = Measures::of(modules);
    let (longest, function) = measures.functions.last().cloned().unwrap_or_default();
    let (of, methods) = measures.largest().unwrap_or(("", 0));
    let largest_circle = |depth| match (name, circles(modules, depth).first()) {
        ("all", _) => "-".to_owned(),
        (_, None) => "none".to_owned(),
        (_, Some(group)) => group.len().to_string(),
    };
    println!(
        "| {name} | {} | {} | {}, {} | {} | {longest} `{function}` | {:.0}% | {:.1}% | {:.1} in 1,000 | {} | {methods} `{of}` | {} | {} |",
        measures.files,
        measures.code,
        measures.function(5),
        measures.function(9),
        measures.long(),
        percent(measures.comments, measures.code + measures.comments - measures.inline),
        percent(measures.inline, measures.code),
        percent(measures.actors, measures.comments) * 10.0,
        measures.sentence(),
        largest_circle(1),
        largest_circle(9),
    );
}

fn percent(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

//! Look-up of option names in the three tables.

use super::engines;
use super::ignored::{IGNORED, Ignored};
use super::options::{Form, Supported, supported};
use super::refused::{REFUSED, Refused};

/// Table that contains an option.
#[derive(Clone, Copy)]
pub enum Table {
    /// A supported option.
    Supported(&'static Supported),
    /// An ignored option.
    Ignored(&'static Ignored),
    /// A refused option.
    Refused(&'static Refused),
}

impl Table {
    /// Form of the option's value. Refused options count as flags, so that their error does not
    /// depend on the next argument.
    pub(super) fn form(&self) -> Form {
        match self {
            Self::Supported(option) => option.form,
            Self::Ignored(option) => option.form,
            Self::Refused(_) => Form::Flag,
        }
    }
}

/// Returns the ignored options by name: the general ones, then those of single engines.
pub fn ignored() -> impl Iterator<Item = &'static Ignored> {
    IGNORED.iter().chain(engines::IGNORED)
}

/// Returns the refused options by name: the general ones, then those of single engines.
pub fn refused() -> impl Iterator<Item = &'static Refused> {
    REFUSED.iter().chain(engines::REFUSED)
}

/// Finds an option by its name or an alias. `None` if fio has no such option either.
pub fn table_of(name: &str) -> Option<Table> {
    let is = |own: &str, aliases: &[&str]| own == name || aliases.contains(&name);
    let find_supported =
        || supported().iter().find(|option| is(option.name, option.aliases)).map(Table::Supported);
    let find_ignored = || ignored().find(|option| is(option.name, option.aliases)).map(Table::Ignored);
    let find_refused = || refused().find(|option| is(option.name, option.aliases)).map(Table::Refused);
    find_supported().or_else(find_ignored).or_else(find_refused)
}

/// Names and aliases of every option, table by table.
fn names() -> impl Iterator<Item = impl Iterator<Item = &'static str>> {
    let supported = supported().iter().map(|option| (option.name, option.aliases));
    let ignored = ignored().map(|option| (option.name, option.aliases));
    let refused = refused().map(|option| (option.name, option.aliases));
    let options = supported.chain(ignored).chain(refused);
    options.map(|(name, aliases)| std::iter::once(name).chain(aliases.iter().copied()))
}

/// Returns the options with this prefix, each by its first matching name.
pub(super) fn beginning_with(beginning: &str) -> impl Iterator<Item = &'static str> {
    names().filter_map(move |mut names| names.find(|name| name.starts_with(beginning)))
}

/// Finds the known name nearest to a misspelt one, if it is near enough.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    /// Longer than any option name. Bounds the quadratic comparison for hostile input.
    const NAME_CHARS_MAX: usize = 64;
    if name.chars().nth(NAME_CHARS_MAX).is_some() {
        return None;
    }
    let name = name.to_ascii_lowercase().replace('-', "_");
    let edits_max = 1 + name.chars().count() / 4;
    names()
        .flatten()
        .map(|known| (strsim::damerau_levenshtein(&name, known), known))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Names and aliases of fio 3.33, one option per line, from `--cmdhelp` and from `--enghelp` of
    /// each engine.
    const FIO: &str = include_str!("../../tests/data/fio-3.33-options.txt");
    const FIO_ENGINES: &str = include_str!("../../tests/data/fio-3.33-engine-options.txt");

    fn own_names() -> BTreeMap<&'static str, Vec<&'static [&'static str]>> {
        let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let supported = supported().iter().map(|option| (option.name, option.aliases));
        let ignored = ignored().map(|option| (option.name, option.aliases));
        let refused = refused().map(|option| (option.name, option.aliases));
        for (name, aliases) in supported.chain(ignored).chain(refused) {
            names.entry(name).or_default().push(aliases);
        }
        names
    }

    #[test]
    fn every_fio_option_is_in_exactly_one_table() {
        let own = own_names();
        let mut listed = 0;
        for line in FIO.lines().chain(FIO_ENGINES.lines()) {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let aliases: Vec<_> = words.collect();
            let entries = own.get(name).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(entries, [aliases.as_slice()], "{name}");
            listed += 1;
        }
        assert_eq!(listed, own.len(), "a table has a name that fio does not know");
    }

    #[test]
    fn list_of_fio_options_is_whole() {
        assert_eq!(FIO.lines().count(), 221);
        assert_eq!(FIO_ENGINES.lines().count(), 56);
    }

    #[test]
    fn nearest_name_is_found_for_a_slip_only() {
        assert_eq!(nearest("io-depth"), Some("iodepth"));
        assert_eq!(nearest("blcksize"), Some("blocksize"));
        assert_eq!(nearest("RW"), Some("rw"));
        assert_eq!(nearest("max-open-zones"), Some("max_open_zones"));
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest(&"x".repeat(9000)), None);
    }
}

//! Merging of sorted rows.

use super::StoreError;
use super::draft::Key;
use super::table::Builder;

/// Change of a row: its value, or that it is gone.
pub(super) type Change = Option<Vec<u8>>;

/// Rows in the order of their keys, and deletions of rows.
pub(super) type Source = Box<dyn Iterator<Item = Result<(Key, Change), StoreError>>>;

/// Rows of several sources. Of those with the same key, that of the first source counts.
pub(super) struct Merged {
    sources: Vec<std::iter::Peekable<Source>>,
    is_descending: bool,
}

impl Merged {
    pub(super) fn new(sources: Vec<Source>) -> Merged {
        Merged { sources: sources.into_iter().map(Iterator::peekable).collect(), is_descending: false }
    }

    /// Merges sources in the opposite order of their keys.
    pub(super) fn descending(sources: Vec<Source>) -> Merged {
        Merged { is_descending: true, ..Merged::new(sources) }
    }
}

impl Iterator for Merged {
    type Item = Result<(Key, Change), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut least: Option<(usize, &Key)> = None;
        let (mut failed, is_descending) = (None, self.is_descending);
        let is_first = |key: &Key, other: &Key| if is_descending { key > other } else { key < other };
        for (n, source) in self.sources.iter_mut().enumerate() {
            match source.peek() {
                Some(Ok((key, _))) if least.is_none_or(|(_, other)| is_first(key, other)) => {
                    least = Some((n, key))
                }
                Some(Err(_)) => failed = Some(n),
                _ => {}
            }
        }
        if let Some(n) = failed {
            return self.sources[n].next();
        }
        let (first, _) = least?;
        let row = self.sources[first].next();
        if let Some(Ok((key, _))) = &row {
            for source in self.sources.iter_mut().skip(first + 1) {
                source.next_if(|other| matches!(other, Ok((other, _)) if other == key));
            }
        }
        row
    }
}

/// First rows of a merge.
#[derive(Default)]
pub(super) struct Taken {
    /// Empty if all rows were gone.
    pub(super) table: Builder,
    /// The last key taken; `None` if all rows were taken.
    pub(super) to: Option<Key>,
}

/// Takes the first rows of `rows`, for a table of at most `pages_max` pages; at least one row. `keeps_deletions` is false if a deletion
/// hides nothing.
///
/// # Errors
/// Those of the sources.
pub(super) fn take(
    rows: &mut std::iter::Peekable<Merged>,
    keeps_deletions: bool,
    pages_max: u32,
) -> Result<Taken, StoreError> {
    let mut taken = Taken::default();
    let mut bytes = 0;
    while let Some(row) = rows.peek() {
        if let Ok((key, value)) = row {
            let is_kept = value.is_some() || keeps_deletions;
            let fits =
                || taken.table.is_empty() || taken.table.pages_with(key, value.as_deref()) <= pages_max;
            // Deletions fill no table, but take as long to read.
            if taken.to.is_some()
                && (is_kept && !fits() || bytes > 2 * pages_max as usize * super::backend::PAGE)
            {
                return Ok(taken);
            }
        }
        let Some(row) = rows.next() else { break };
        let (key, value) = row?;
        if value.is_some() || keeps_deletions {
            taken.table.add(&key, value.as_deref());
        }
        bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        taken.to = Some(key);
    }
    taken.to = None;
    Ok(taken)
}

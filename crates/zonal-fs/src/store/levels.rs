//! Levels: which tables there are, and which are merged next. Nothing here reads or writes.
//!
//! Level 0 has what commits wrote, in *runs*. Tables of one run do not overlap, those of different runs may, and a row of a newer run
//! hides that of an older one. Tables of a deeper level do not overlap. A row of a level hides those of the same key in deeper levels.
//!
//! # Merging in steps
//! A step takes the smallest keys of its inputs, makes one table of them in the next level, and takes these keys away from the inputs:
//! each input is dropped, or *trimmed*, which means that only its keys from one key on count. So a step is short however long the inputs
//! are, and leaves levels like any others.

use super::draft::Key;
use super::pages::Pages;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Size of a level, as a multiple of the level above.
const FACTOR: u64 = 8;

/// Runs in level 0 from which on they are merged.
const RUNS_MAX: usize = 4;

/// Keys from here to there.
pub(super) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Table, as the list of tables has it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) pages: Arc<Pages>,
    /// Pages of the index at either end.
    pub(super) index_pages: u32,
    pub(super) level: u8,
    /// Number of the commit that wrote it, in level 0; newer ones are higher.
    pub(super) run: u64,
    pub(super) first: Key,
    pub(super) last: Key,
    /// Key from which on its rows count; empty if all count.
    pub(super) from: Key,
}

impl Table {
    /// Smallest key that it may have.
    pub(super) fn begin(&self) -> &[u8] {
        self.first.as_slice().max(&self.from)
    }

    fn may_have(&self, key: &[u8]) -> bool {
        key >= self.begin() && key <= &self.last[..]
    }

    /// True if it may have keys in `bounds`.
    fn overlaps(&self, (from, to): Bounds<'_>) -> bool {
        let is_after = match from {
            Bound::Included(from) => &self.last[..] >= from,
            Bound::Excluded(from) => &self.last[..] > from,
            Bound::Unbounded => true,
        };
        let is_before = match to {
            Bound::Included(to) => self.begin() <= to,
            Bound::Excluded(to) => self.begin() < to,
            Bound::Unbounded => true,
        };
        is_after && is_before
    }

    fn bounds(&self) -> Bounds<'_> {
        (Bound::Included(self.begin()), Bound::Included(&self.last))
    }
}

/// Tables at a moment.
#[derive(Clone, Default, Debug)]
pub(super) struct Levels {
    /// Those of level 0 by runs, the newest first, others by keys.
    levels: Vec<Vec<Arc<Table>>>,
}

/// Next merge step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Inputs. A row of one hides those of the same key in later ones.
    pub(super) inputs: Vec<Arc<Table>>,
    /// Level of the result.
    pub(super) level: u8,
    /// True if no deeper level has rows that the inputs hide, so that deletions can be dropped.
    pub(super) is_last: bool,
}

/// Tables overlap that must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Overlap;

impl Levels {
    /// All tables, the newest level first.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.levels.iter().flatten()
    }

    /// Tables that may have `key`. A row in one hides those in later ones.
    pub(super) fn of_key<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<Table>> {
        self.levels.iter().enumerate().flat_map(move |(level, tables)| {
            let tables = match level {
                0 => &tables[..],
                _ => {
                    let at = tables.partition_point(|table| table.begin() <= key);
                    &tables[at.saturating_sub(1)..at]
                }
            };
            tables.iter().filter(move |table| table.may_have(key))
        })
    }

    /// Groups of tables that may have keys in `bounds`. Those of a group follow each other, and a row in one group hides those of the
    /// same key in later ones.
    pub(super) fn within<'a>(&'a self, bounds: Bounds<'a>) -> impl Iterator<Item = &'a [Arc<Table>]> {
        let groups = self.levels.iter().enumerate().flat_map(move |(level, tables)| {
            let (tables, size) = match level {
                0 => (&tables[..], 1),
                _ => {
                    let begin = tables.partition_point(|table| match bounds.0 {
                        Bound::Included(from) => &table.last[..] < from,
                        Bound::Excluded(from) => &table.last[..] <= from,
                        Bound::Unbounded => false,
                    });
                    let count = tables[begin..].partition_point(|table| table.overlaps(bounds));
                    (&tables[begin..begin + count], count.max(1))
                }
            };
            tables.chunks(size)
        });
        groups.filter(move |group| group.iter().any(|table| table.overlaps(bounds)))
    }

    /// Adds a table.
    ///
    /// # Errors
    /// If it overlaps another one of its level, other than 0.
    pub(super) fn add(&mut self, table: Table) -> Result<(), Overlap> {
        let level = usize::from(table.level);
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        let tables = &mut self.levels[level];
        let at = match level {
            0 => tables.partition_point(|other| {
                (Reverse(other.run), &other.first[..]) < (Reverse(table.run), &table.first[..])
            }),
            _ => tables.partition_point(|other| other.begin() < table.begin()),
        };
        let is_apart = |other: Option<&Arc<Table>>| {
            other.is_none_or(|other| other.run != table.run || !other.overlaps(table.bounds()))
        };
        if table.begin() > &table.last[..]
            || !is_apart(at.checked_sub(1).map(|at| &tables[at]))
            || !is_apart(tables.get(at))
        {
            return Err(Overlap);
        }
        tables.insert(at, Arc::new(table));
        Ok(())
    }

    /// Takes the rows up to `to` away from the inputs of `step`; all of them if there is no such key.
    pub(super) fn take_from(&mut self, step: &Step, to: Option<&[u8]>) {
        let is_input =
            |table: &Arc<Table>| step.inputs.iter().any(|input| Arc::ptr_eq(&input.pages, &table.pages));
        for tables in &mut self.levels {
            tables.retain(|table| !is_input(table) || to.is_some_and(|to| &table.last[..] > to));
            for table in tables.iter_mut().filter(|table| is_input(table)) {
                if let Some(to) = to.filter(|to| table.begin() <= *to) {
                    let mut from = Key::from_slice(to);
                    from.push(0);
                    Arc::make_mut(table).from = from;
                }
            }
        }
        while self.levels.last().is_some_and(Vec::is_empty) {
            self.levels.pop();
        }
    }

    fn runs(&self) -> usize {
        let runs: Vec<u64> = self.levels.first().into_iter().flatten().map(|table| table.run).collect();
        runs.chunk_by(|a, b| a == b).count()
    }

    /// The merge that is due if level 1 should have at most `pages` pages. `cursor` is the key up to which deeper levels were merged
    /// last, so that all keys get their turn. The levels in `stuck` cannot be merged.
    pub(super) fn due(&self, pages: u64, cursor: &[u8], stuck: &BTreeSet<u8>) -> Option<Step> {
        let is_stuck = |level: usize| stuck.contains(&(level as u8));
        if !is_stuck(0) && self.levels.first().into_iter().flatten().any(|table| !table.from.is_empty()) {
            return Some(self.merge(0, &[]));
        }
        // Thousandths of what a level should have: the fullest comes first, so that none waits for ever.
        let mut fullest = (if is_stuck(0) { 0 } else { 1000 * self.runs() as u64 / RUNS_MAX as u64 }, 0);
        let mut most = pages.max(1);
        for (level, tables) in self.levels.iter().enumerate().skip(1) {
            let there: u64 = tables.iter().map(|table| table.pages.count()).sum();
            if !is_stuck(level) {
                fullest = fullest.max((1000 * there.saturating_sub(1) / most, level));
            }
            most = most.saturating_mul(FACTOR);
        }
        let (part, level) = fullest;
        (part >= 1000).then(|| self.merge(level, if level == 0 { &[] } else { cursor }))
    }

    /// The next merge on the way to a single level; `None` if there is only one, or it cannot be merged.
    pub(super) fn squeeze(&self, stuck: &BTreeSet<u8>) -> Option<Step> {
        let upper = self.levels.iter().position(|tables| !tables.is_empty())?;
        let is_due = (upper == 0 || upper + 1 < self.levels.len()) && !stuck.contains(&(upper as u8));
        is_due.then(|| self.merge(upper, &[]))
    }

    /// Merges rows of a level into the next: runs of level 0, or the table after `cursor` of a deeper level. Runs whose merge has begun
    /// go on without newer ones, whose small keys would come first again and again.
    fn merge(&self, level: usize, cursor: &[u8]) -> Step {
        let tables = &self.levels[level];
        let mut inputs: Vec<Arc<Table>> = match level {
            0 => {
                let begun = tables.iter().filter(|table| !table.from.is_empty()).map(|table| table.run).max();
                tables.iter().filter(|table| begun.is_none_or(|run| table.run <= run)).cloned().collect()
            }
            _ => {
                let at = tables.partition_point(|table| &table.last[..] <= cursor);
                vec![tables.get(at).unwrap_or(&tables[0]).clone()]
            }
        };
        let from = inputs.iter().map(|table| table.begin()).min().unwrap_or_default().to_vec();
        let to = inputs.iter().map(|table| &table.last[..]).max().unwrap_or_default().to_vec();
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let below = self.levels.get(level + 1).into_iter().flatten();
        inputs.extend(below.filter(|table| table.overlaps(bounds)).cloned());
        let mut deeper = self.levels.iter().skip(level + 2).flatten();
        let is_last = !deeper.any(|table| inputs.iter().any(|input| table.overlaps(input.bounds())));
        Step { inputs, level: level as u8 + 1, is_last }
    }
}

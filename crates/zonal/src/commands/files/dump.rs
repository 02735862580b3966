//! `zonal dump`: structures of a file system, as text and as JSON. [`say`] formats them.

mod say;

use super::{On, drive_to_read, named, waiters};
use crate::exit::{Exit, Failure, OrExit};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use say::Said;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::dump::{self, Row, RowKind};
use zonal_fs::format::Superblock;
use zonal_fs::make::{Access, MakeError, open_rows};
use zonal_fs::scan::{self, Depth, ScanItem};
use zonal_fs::store::Rows;
use zonal_fs::superblocks::{self, Candidate};
use zonal_fs::waiter::Waiters;

/// Show the structures of a file system: superblock, metadata, rows, units
///
/// Without options: the newest copy of the superblock and damaged ones, the location of the
/// metadata, counters, and the number of rows of each kind. Damage is shown as such. Nothing is
/// ever written. With --json, one object per line.
#[derive(Args, Debug)]
pub(crate) struct Dump {
    #[command(flatten)]
    on: On,
    /// Rows of the metadata, all of them or those of one kind
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "all", value_parser = kinds())]
    rows: Option<Kinds>,
    /// Only rows that describe the file with this number
    #[arg(long, value_name = "NUMBER", requires = "rows")]
    inode: Option<u64>,
    /// Units of the zone with this number: headers, pieces, and how much of them is live
    #[arg(long, value_name = "ZONE")]
    zone: Option<u32>,
    /// Verify all data of the zone
    #[arg(long, requires = "zone")]
    data: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Kinds of rows to show.
#[derive(Clone, Copy, Debug)]
enum Kinds {
    All,
    One(RowKind),
}

impl Kinds {
    fn has(self, kind: RowKind) -> bool {
        match self {
            Kinds::All => true,
            Kinds::One(one) => one == kind,
        }
    }
}

/// Parser of a kind.
fn kinds() -> impl TypedValueParser<Value = Kinds> {
    let names = std::iter::once("all").chain(RowKind::ALL.map(RowKind::name));
    PossibleValuesParser::new(names).map(|name| {
        let one = RowKind::ALL.into_iter().find(|kind| kind.name() == name);
        one.map_or(Kinds::All, Kinds::One)
    })
}

/// State of a dump.
struct Look<'a> {
    arguments: &'a Dump,
    drive: Arc<Drive>,
    waiters: Waiters,
    out: &'a mut dyn Write,
}

pub(crate) fn run(arguments: &Dump, out: &mut dyn Write) -> Result<(), Failure> {
    let mut look = Look { arguments, drive: drive_to_read(&arguments.on.device)?, waiters: waiters(), out };
    let waiter = (look.waiters)();
    let report = look.drive.report(&*waiter).map_err(MakeError::from);
    let report = report.map_err(|error| look.named(error)).or_exit(Exit::Device)?;
    let is_whole = arguments.rows.is_none() && arguments.zone.is_none();
    let copies = superblocks::candidates(&look.drive, &*waiter, &report);
    if is_whole {
        look.copies(&copies)?;
    }
    let found = superblocks::find(&look.drive, &*waiter);
    // If the newest copy is damaged, an older one describes the file system.
    let older =
        || copies.iter().filter_map(|copy| copy.found.as_ref().ok()).max_by_key(|copy| copy.anchor.copy);
    let superblock = match (found, older()) {
        (Ok(found), _) => found.copy.superblock,
        (Err(_), Some(copy)) => copy.superblock.clone(),
        (Err(error), None) => {
            look.out.flush()?;
            return Err(look.named(error)).or_exit(Exit::Device);
        }
    };
    let rows = look.rows(&superblock);
    if is_whole {
        look.whole(&rows)?;
    }
    if let Some(zone) = arguments.zone {
        look.zone(&superblock, &rows, zone)?;
    }
    let rows = rows.map_err(|error| {
        let _ = look.out.flush();
        Failure { exit: Exit::Device, error: look.named(error) }
    });
    match (arguments.rows, rows) {
        (Some(kinds), rows) => look.chosen(&rows?, kinds),
        (None, Err(failure)) if is_whole => Err(failure),
        _ => Ok(()),
    }
}

impl Look<'_> {
    fn named(&self, error: MakeError) -> anyhow::Error {
        named(&self.arguments.on.device, error)
    }

    fn say(&mut self, said: &Said) -> Result<(), Failure> {
        match self.arguments.json {
            true => writeln!(self.out, "{}", said.object)?,
            false => writeln!(self.out, "{}", said.text)?,
        }
        Ok(())
    }

    /// Shows the newest copy and damaged ones; as JSON, all of them.
    fn copies(&mut self, copies: &[Candidate]) -> Result<(), Failure> {
        let number = |copy: &Candidate| copy.found.as_ref().ok().map(|found| found.anchor.copy);
        let newest = copies.iter().filter_map(number).max();
        let is_newest = |copy: &&Candidate| newest.is_some() && number(copy) == newest;
        let first = copies.iter().find(is_newest).map(|copy| (copy.zone, copy.block));
        let is_shown = |copy: &&Candidate| {
            copy.found.is_err() || Some((copy.zone, copy.block)) == first || self.arguments.json
        };
        for copy in copies.iter().filter(is_shown) {
            let said = say::superblock(copy);
            self.say(&said)?;
        }
        let twins = copies.iter().filter(is_newest).count().saturating_sub(1);
        let older = copies.iter().filter(|copy| number(copy).is_some()).count().saturating_sub(1 + twins);
        if !self.arguments.json && (twins, older) != (0, 0) {
            writeln!(self.out, "  and {twins} equal copies, {older} older ones")?;
        }
        Ok(())
    }

    fn rows(&self, superblock: &Superblock) -> Result<Rows, MakeError> {
        let metadata = self.arguments.on.metadata.clone();
        open_rows(&self.drive, &self.waiters, metadata, superblock, Access::Verify)
    }

    /// Shows the location of the metadata, and the number of rows.
    fn whole(&mut self, rows: &Result<Rows, MakeError>) -> Result<(), Failure> {
        let waiter = (self.waiters)();
        let place = dump::metadata_location(&self.drive, &*waiter);
        let place = place.map_err(|e| self.named(e)).or_exit(Exit::Device)?;
        for said in say::whereabouts(&place) {
            self.say(&said)?;
        }
        let Ok(rows) = rows else { return Ok(()) };
        let mut kinds: BTreeMap<RowKind, u64> = BTreeMap::new();
        let mut numbers = Vec::new();
        dump::rows(rows, |row| {
            *kinds.entry(row.kind()).or_default() += 1;
            if let Row::Counter(name, number) = row {
                numbers.push((name, number));
            }
        })
        .map_err(|e| self.named(e.into()))?;
        self.say(&say::numbers(&numbers))?;
        let kinds: Vec<_> = kinds.into_iter().map(|(kind, rows)| (kind.name(), rows)).collect();
        self.say(&say::kinds(&kinds))
    }

    fn chosen(&mut self, rows: &Rows, kinds: Kinds) -> Result<(), Failure> {
        let ino = self.arguments.inode;
        let mut result = Ok(());
        dump::rows(rows, |row| {
            if result.is_ok() && kinds.has(row.kind()) && ino.is_none_or(|ino| row.is_of(ino)) {
                result = self.say(&say::row(row.kind().name(), &row));
            }
        })
        .map_err(|e| named(&self.arguments.on.device, e))?;
        result
    }

    fn zone(
        &mut self,
        superblock: &Superblock,
        rows: &Result<Rows, MakeError>,
        zone: u32,
    ) -> Result<(), Failure> {
        let waiter = (self.waiters)();
        let report = self.drive.report(&*waiter).map_err(|e| self.named(e.into())).or_exit(Exit::Device)?;
        let Some(described) = report.get(zone as usize) else {
            return Err(Failure::usage(format!(
                "there is no zone {zone}; the last one is {}",
                report.len() - 1
            )));
        };
        let is_data = zone >= superblock.first_zone;
        self.say(&say::zone(described, is_data))?;
        if !is_data {
            return Ok(());
        }
        let depth = if self.arguments.data { Depth::Data } else { Depth::Headers };
        let mut all = Vec::new();
        scan::zone(&self.drive, &*waiter, &superblock.uuid, described, depth, |found| all.push(found));
        for found in &all {
            let live = match (found, rows) {
                (ScanItem::Unit { block, header, .. }, Ok(rows)) => {
                    dump::live(rows, zone, *block, header).ok()
                }
                _ => None,
            };
            self.say(&say::found(found, live.as_deref()))?;
        }
        Ok(())
    }
}

//! Creation of files under the locks of names, without the core's.
//!
//! # Locks of names
//! A thread that creates a name shares the lock of all names with other creators, and holds the
//! lock of the directory. A thread that changes names or attributes in any other way holds the lock
//! of all names exclusively, then the core's. So only one thread at a time reads and changes the
//! rows of a directory, and its changes are published before the next thread gets the lock.
//!
//! [`Rank`] has the order of all locks.
//!
//! # Space for rows
//! The core accounts for it. While there is plenty, it grants a few files at a time to each thread.
//! It revokes all grants once space is short.

use super::commit::UnflushedUnits;
use super::core::{Core, Shared};
use super::error::FsError;
use super::names::{NewFile, check_name, check_target};
use super::room::Touched;
use super::setattr::PERMISSIONS;
use crate::format::{Attributes, Entry, FILES_END, FileKind, Position, key};
use crate::store::locked::{InOrder, Rank};
use crate::store::{Draft, Row, Sealed, Totals};
use crate::waiter::Wait;
use crate::{STRIPES, spread, stripe};
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::{Mutex, MutexGuard};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Number of directory locks, each shared by several directories.
const DIRECTORIES: usize = 64;

/// State shared by threads that create files.
pub(super) struct Names {
    all: ShardedLock<()>,
    directories: Box<[CachePadded<Directory>]>,
    /// Counts changes of names and attributes other than creations.
    changes: AtomicU64,
    next_ino: AtomicU64,
    /// True once numbers are settled: see [`number`](super::number).
    are_settled: AtomicBool,
    /// Number of this mount: the generation of the files that it creates.
    generation: u32,
    /// Files that threads may create before one of them has to ask the core again.
    grants: [CachePadded<AtomicU32>; STRIPES],
}

/// Files that the threads of one shard may create per grant.
const GRANT: u32 = 16;

/// Maximum number of row changes granted and not yet made. Each file of each shard changes the rows
/// of its name, its position, itself, its target and its directory.
pub(super) const GRANTED_CHANGES_MAX: usize = 5 * GRANT as usize * STRIPES;

/// State shared by the directories of one lock.
#[derive(Default)]
struct Directory {
    lock: Mutex<()>,
    /// Counts created names.
    made: AtomicU64,
}

/// Right to create names in a directory.
pub(super) struct Making<'a> {
    _directory: InOrder<MutexGuard<'a, ()>>,
    _all: InOrder<ShardedLockReadGuard<'a, ()>>,
}

/// Right to change any names and attributes.
pub(super) struct Changing<'a> {
    names: &'a Names,
    _all: InOrder<ShardedLockWriteGuard<'a, ()>>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // The changes have been published: the core's lock is released before this one.
        self.names.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Names {
    pub(super) fn new(next_ino: u64, generation: u32) -> Names {
        Names {
            all: ShardedLock::default(),
            directories: std::iter::repeat_with(CachePadded::default).take(DIRECTORIES).collect(),
            changes: AtomicU64::new(0),
            next_ino: AtomicU64::new(next_ino),
            are_settled: AtomicBool::new(false),
            generation,
            grants: Default::default(),
        }
    }

    /// Lets the threads of the caller's shard create files without the core. The caller holds the
    /// core and has checked that there is space for [`GRANTED_CHANGES_MAX`].
    pub(super) fn grant(&self) {
        self.grants[stripe()].store(GRANT, Ordering::Relaxed);
    }

    /// Uses up the grant for one file.
    fn take_grant(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.grants[stripe()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Revokes unused grants. The caller holds the core.
    pub(super) fn revoke(&self) {
        for grant in self.grants.iter().filter(|grant| grant.load(Ordering::Relaxed) > 0) {
            grant.store(0, Ordering::Relaxed);
        }
    }

    // These locks contain no data, so poisoning is irrelevant.
    fn making(&self, directory: u64) -> Making<'_> {
        let all = InOrder::lock(Rank::Names, || self.all.read().unwrap_or_else(PoisonError::into_inner));
        let lock = &self.directory(directory).lock;
        Making { _directory: InOrder::lock(Rank::Directory, || lock.lock()), _all: all }
    }

    fn directory(&self, ino: u64) -> &Directory {
        &self.directories[spread(ino, DIRECTORIES)]
    }

    pub(super) fn changing(&self) -> Changing<'_> {
        let all = InOrder::lock(Rank::Names, || self.all.write().unwrap_or_else(PoisonError::into_inner));
        Changing { names: self, _all: all }
    }

    /// Version of a directory. It changes with every published change of the directory, before the
    /// lock is released. A thread that holds the lock and finds the version unchanged can rely on
    /// everything that it has read in between.
    pub(super) fn version(&self, directory: u64) -> (u64, u64) {
        (self.directory(directory).made.load(Ordering::SeqCst), self.changes.load(Ordering::SeqCst))
    }

    /// Notes that a name was published.
    fn note_made(&self, directory: u64) {
        self.directory(directory).made.fetch_add(1, Ordering::SeqCst);
    }

    /// True if numbers are durable, as required before creating a file or writing a unit.
    pub(super) fn are_settled(&self) -> bool {
        self.are_settled.load(Ordering::Acquire)
    }

    pub(super) fn settle(&self) {
        self.are_settled.store(true, Ordering::Release);
    }

    /// Returns the number of the next file.
    pub(super) fn next_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }

    /// Takes a number for a new file.
    fn take_ino(&self) -> Result<u64, FsError> {
        let taken = self.next_ino.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < FILES_END).then_some(next + 1)
        });
        taken.map_err(|_| FsError::Exhausted("no number is left for another file"))
    }

    /// Adds the row of a new file with a name at this position to a draft. Returns its number.
    pub(super) fn add(
        &self,
        draft: &mut Draft,
        (parent, position): (u64, Position),
        new: &NewFile,
        now: i64,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<u64, FsError> {
        let ino = self.take_ino()?;
        let mut attributes = Attributes {
            born: self.generation as u16,
            generation: self.generation,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: if new.kind == FileKind::Symlink { new.target.len() as u64 } else { 0 },
            ..Attributes::new(new.kind, new.mode & PERMISSIONS, parent, position, now)
        };
        change(&mut attributes);
        draft.put_new(key::inode(ino), attributes.encode());
        draft.file_made();
        Ok(ino)
    }
}

/// Adds the two rows of a name to a draft.
pub(super) fn put_name(draft: &mut Draft, parent: u64, name: &[u8], entry: Entry) {
    draft.put_new(key::entry(parent, name), entry.encode());
    draft.put_new(key::position(parent, entry.position), name.to_vec());
}

/// Updates the attributes of a directory for a new name. The name's position is the directory's
/// next one, or an earlier one that is unused.
pub(super) fn note_name(directory: &mut Attributes, entry: Entry, now: i64) {
    directory.links = directory.links.saturating_add(u32::from(entry.kind == FileKind::Directory));
    directory.next_position = directory.next_position.max(entry.position.next());
    (directory.mtime, directory.ctime) = (now, now);
}

/// Returns the next position of a directory that accepts names.
pub(super) fn next_position(directory: &Attributes) -> Result<Position, FsError> {
    match directory.next_position {
        _ if directory.links == 0 => Err(FsError::NotFound),
        position if position.is_of_name() => Ok(position),
        _ => Err(FsError::Exhausted("no position is left for another name in the directory")),
    }
}

impl Shared {
    /// Creates a file and calls `then` before another thread can remove it. If the name exists,
    /// calls `there` instead.
    pub(super) fn create_or<R>(
        &self,
        waiter: &dyn Wait,
        (parent, name): (u64, &[u8]),
        new: &NewFile,
        there: impl FnOnce() -> Result<R, FsError>,
        then: impl FnOnce(u64) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        self.settle_numbers(waiter);
        if !self.names.take_grant() {
            self.admit(waiter, Touched::Added)?;
        }
        check_name(name)?;
        let look = || {
            let directory = self.attributes(parent)?;
            Ok::<_, FsError>((directory, self.entry(parent, name)?))
        };
        let version = self.names.version(parent);
        let seen = look();
        let _making = self.names.making(parent);
        let (mut directory, entry) = if self.names.version(parent) == version { seen? } else { look()? };
        if directory.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if entry.is_some() {
            return there();
        }
        let position = next_position(&directory)?;
        if new.kind == FileKind::Symlink {
            check_target(&new.target)?;
        }
        let (now, mut draft) = (waiter.wall(), Draft::default());
        let ino = self.names.add(&mut draft, (parent, position), new, now, |_| {})?;
        if new.kind == FileKind::Symlink {
            draft.put(key::target(ino), new.target.clone());
        }
        let entry = Entry { ino, kind: new.kind, position };
        put_name(&mut draft, parent, name, entry);
        note_name(&mut directory, entry, now);
        draft.put(key::inode(parent), directory.encode());
        self.reader.publish(draft);
        // Another thread may have opened the directory meanwhile, or be about to.
        self.nodes.note_published(parent, directory);
        self.names.note_made(parent);
        then(ino)
    }

    /// Creates a file.
    pub(super) fn create(
        &self,
        waiter: &dyn Wait,
        place: (u64, &[u8]),
        new: &NewFile,
    ) -> Result<u64, FsError> {
        self.create_or(waiter, place, new, || Err(FsError::Exists), Ok)
    }
}

impl Core {
    /// Seals the rows for a commit, together with the counters.
    pub(super) fn seal(&mut self) -> Result<Option<(Sealed, UnflushedUnits)>, FsError> {
        self.note_accounts()?;
        let Core { rows, names, files, space, next_sequence, unflushed, .. } = self;
        let blocks = space.lock().blocks_to_lend();
        unflushed.retain_live(&space.lock());
        let sealed = rows.seal_with(blocks, |totals: Totals| {
            let number = |name, number: u64| -> Row { (key::counter(name), number.to_le_bytes().to_vec()) };
            // Greater than all file numbers in the layer.
            let mut counters = vec![number("ino", names.next_ino())];
            counters.extend(files.rows(totals, *next_sequence));
            counters
        });
        Ok(sealed.map(|sealed| (sealed, std::mem::take(unflushed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_the_threads_makes_as_many_files_as_were_granted_and_none_after_that_was_taken_back() {
        let names = Names::new(1, 1);
        assert!(!names.take_grant(), "nothing is granted from the begin");
        names.grant();
        // A second grant does not add up.
        names.grant();
        assert_eq!((0..2 * GRANT).filter(|_| names.take_grant()).count(), GRANT as usize);
        names.grant();
        names.revoke();
        assert!(!names.take_grant());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod model;

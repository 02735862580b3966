//! Files that are made, with the locks of names and without the core's.
//!
//! # The locks of names
//! A thread that makes a name shares the lock of all names with others that do, and has the lock of the directory. A thread that changes
//! names or attributes in any other way has the lock of all names alone, and then the core's. So a directory's rows are read and changed
//! by one thread at a time, and its changes are published before the next thread comes.
//!
//! [`Rank`] has the order of all locks.
//!
//! # Room for their rows
//! The core knows it. Where there is plenty, it grants a thread some files at a time, and takes that back from all threads once there is
//! plenty no more.

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

/// Locks of directories, which share them.
const DIRECTORIES: usize = 64;

/// What threads that make files have in common.
pub(super) struct Names {
    all: ShardedLock<()>,
    directories: Box<[CachePadded<Directory>]>,
    /// How often anything but the making of a name was done.
    changes: AtomicU64,
    next_ino: AtomicU64,
    /// Numbers are settled: see [`number`](super::number).
    are_settled: AtomicBool,
    /// Which opening of the file system this is: the generation of files that it makes.
    generation: u32,
    /// Files that threads may make before one of them asks the core for room again.
    grants: [CachePadded<AtomicU32>; STRIPES],
}

/// Files that a part of the threads may make after one look at the core.
const GRANT: u32 = 16;

/// Changes of rows that are granted at most, and not made yet: those of a file's name and position, its own, its target, and its
/// directory's, for each file of each part.
pub(super) const GRANTED_CHANGES_MAX: usize = 5 * GRANT as usize * STRIPES;

/// What the directories of one part share.
#[derive(Default)]
struct Directory {
    lock: Mutex<()>,
    /// How often a name was made.
    made: AtomicU64,
}

/// The right to make names in a directory.
pub(super) struct Making<'a> {
    _directory: InOrder<MutexGuard<'a, ()>>,
    _all: InOrder<ShardedLockReadGuard<'a, ()>>,
}

/// The right to change any names and attributes.
pub(super) struct Changing<'a> {
    names: &'a Names,
    _all: InOrder<ShardedLockWriteGuard<'a, ()>>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // What was changed is published: the core's lock is left before this one.
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

    /// Lets the threads of the caller's part make files without a look at the core. For a thread that has it, and has seen that there is
    /// room for [`GRANTED_CHANGES_MAX`].
    pub(super) fn grant(&self) {
        self.grants[stripe()].store(GRANT, Ordering::Relaxed);
    }

    /// Takes what was granted for one file.
    fn take_grant(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.grants[stripe()].fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Takes back what was granted and not used. For a thread that has the core.
    pub(super) fn revoke(&self) {
        for grant in self.grants.iter().filter(|grant| grant.load(Ordering::Relaxed) > 0) {
            grant.store(0, Ordering::Relaxed);
        }
    }

    // The locks guard no data of their own.
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

    /// What changes with all that is published of a directory, and before its lock is left. So a thread that has the lock, and finds this
    /// as it was, knows that what it has read in between is what there is.
    pub(super) fn version(&self, directory: u64) -> (u64, u64) {
        (self.directory(directory).made.load(Ordering::SeqCst), self.changes.load(Ordering::SeqCst))
    }

    /// A name was published.
    fn note_made(&self, directory: u64) {
        self.directory(directory).made.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether numbers are durable, as far as a file that is made, or a unit, needs it.
    pub(super) fn are_settled(&self) -> bool {
        self.are_settled.load(Ordering::Acquire)
    }

    pub(super) fn settle(&self) {
        self.are_settled.store(true, Ordering::Release);
    }

    /// The number that the next file gets.
    pub(super) fn next_ino(&self) -> u64 {
        self.next_ino.load(Ordering::Relaxed)
    }

    /// A number for a new file.
    fn take_ino(&self) -> Result<u64, FsError> {
        let taken = self.next_ino.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < FILES_END).then_some(next + 1)
        });
        taken.map_err(|_| FsError::Exhausted("no number is left for another file"))
    }

    /// Puts the row of a file that is to have a name at this position into a draft; its number.
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

/// Puts the two rows of a name into a draft.
pub(super) fn put_name(draft: &mut Draft, parent: u64, name: &[u8], entry: Entry) {
    draft.put_new(key::entry(parent, name), entry.encode());
    draft.put_new(key::position(parent, entry.position), name.to_vec());
}

/// Notes a name in the attributes of its directory. Its position is the directory's next one or an earlier one, which no name has.
pub(super) fn note_name(directory: &mut Attributes, entry: Entry, now: i64) {
    directory.links = directory.links.saturating_add(u32::from(entry.kind == FileKind::Directory));
    directory.next_position = directory.next_position.max(entry.position.next());
    (directory.mtime, directory.ctime) = (now, now);
}

/// The next position of a directory that takes names.
pub(super) fn next_position(directory: &Attributes) -> Result<Position, FsError> {
    match directory.next_position {
        _ if directory.links == 0 => Err(FsError::NotFound),
        position if position.is_of_name() => Ok(position),
        _ => Err(FsError::Exhausted("no position is left for another name in the directory")),
    }
}

impl Shared {
    /// Makes a file, and does `then` with it before another thread can remove it. If there is one of this name, does `there` instead.
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
        // A thread may have opened the directory meanwhile, or be about to.
        self.nodes.note_published(parent, directory);
        self.names.note_made(parent);
        then(ino)
    }

    /// Makes a file.
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
    /// Seals the rows for a commit, with the counters.
    pub(super) fn seal(&mut self) -> Result<Option<Sealed>, FsError> {
        self.note_accounts()?;
        let Core { rows, names, files, next_sequence, .. } = self;
        Ok(rows.seal_with(|totals: Totals| {
            let number = |name, number: u64| -> Row { (key::counter(name), number.to_le_bytes().to_vec()) };
            // All numbers of files in the layer are below.
            let mut counters = vec![number("ino", names.next_ino())];
            counters.extend(files.rows(totals, *next_sequence));
            counters
        }))
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
        // Once more is no more.
        names.grant();
        assert_eq!((0..2 * GRANT).filter(|_| names.take_grant()).count(), GRANT as usize);
        names.grant();
        names.revoke();
        assert!(!names.take_grant());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod model;

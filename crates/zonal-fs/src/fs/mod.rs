//! The file system.

mod beginnings;
mod combine;
mod commit;
mod core;
mod create;
mod credit;
mod destroy;
mod errno;
mod error;
mod fetch;
pub(crate) mod files;
mod finish;
mod flight;
mod gc;
pub(crate) mod inspect;
mod known;
mod logged_tails;
mod look;
mod lost_zones;
pub(crate) mod map;
pub(crate) mod mount;
pub(crate) mod names;
mod node;
pub(crate) mod number;
mod open_file;
mod open_or_create;
mod ranges;
mod read;
mod readers;
mod room;
mod scrub;
mod seat;
mod segments;
mod setattr;
mod small_buffers;
mod space;
mod stats;
mod status;
mod turn;
mod unit_sums;
mod units;
mod waiting;
mod write;
mod write_buffer;
mod write_in_place;
mod writers;
mod xattr;

pub use core::MountOptions;
pub use error::{FsError, Lost};
pub use files::FileCounts;
pub use known::FoundFile;
pub use mount::OpenError;
pub use names::{NAME_MAX, NewFile, ROOT, Rename, TARGET_MAX};
pub(crate) use node::attributes;
pub use open_file::OpenFile;
pub use open_or_create::{IfThere, OpenedFile};
pub use ranges::{Seek, ZeroEnd};
pub use read::Target;
pub use scrub::Scrub;
pub use setattr::{Changes, SetIds, SetTime};
pub use stats::{Statistics, Usage};
pub use status::{Activity, OpenZoneStatus, Resets, Status, ZoneCounts};
pub use write::Payload;
pub use write_in_place::IN_PLACE_BLOCKS_MIN;
pub use xattr::{ATTRIBUTE_MAX, SetXattr};

pub use crate::format::SIZE_MAX;
use crate::format::{Attributes, Entry, Position, Superblock};
use crate::make::{self, MakeError, MakeOptions};
use crate::store::Rows;
use crate::waiter::{Wait, Waiters};
use core::Shared;
use mount::Purpose;
use room::Touched;
use segments::Compacted;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use zonal_core::ZoneIndex;
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::device::Device;
use zonal_io::identity::Identity;
use zonal_io::volume::Volume;

/// Mounted file system, shared by cloning. Calls that may have to wait take a [`Wait`].
///
/// When a write returns, its data has been sent, or is in the write buffer of an open file or in a
/// combined unit. It is durable after [`FileSystem::fsync`] or [`FileSystem::sync`]. Dropping the
/// last clone does not sync; the caller has to do that first.
#[derive(Clone)]
pub struct FileSystem(Arc<Shared>);

impl FileSystem {
    /// Writes the rows of a new file system to an empty store.
    ///
    /// # Errors
    /// Errors of the store.
    #[cfg_attr(not(feature = "insides"), doc(hidden))]
    pub fn make(rows: &mut Rows, superblock: &Superblock, waiter: &dyn Wait) -> Result<(), FsError> {
        mount::make(rows, superblock, waiter.wall())
    }

    /// Opens the file system of `superblock` on `volume`, with its metadata in `rows`. `has_data`
    /// is true if the device keeps data.
    ///
    /// # Errors
    /// [`OpenError`]. Files that were unnamed at a power cut may be deleted already; nothing else was
    /// changed.
    #[cfg_attr(not(feature = "insides"), doc(hidden))]
    pub fn open(
        volume: Arc<Volume>,
        rows: Rows,
        superblock: Superblock,
        options: MountOptions,
        has_data: bool,
        waiter: &dyn Wait,
    ) -> Result<FileSystem, OpenError> {
        let shared = mount::open(volume, rows, superblock, options, has_data, waiter, Purpose::Use)?;
        let fs = FileSystem::attached(shared);
        let tails = fs.0.tails_to_restore(waiter)?;
        // Makes room for the tails.
        fs.0.destroy_orphans(Some(waiter))?;
        fs.0.restore_tails(waiter, tails)?;
        Ok(fs)
    }

    /// Opens the file system read-only. Every attempt to change it fails with an error that says
    /// `why`. Zones that contradict the metadata are no error; intact data can still be read.
    ///
    /// # Errors
    /// As for [`FileSystem::open`], with this exception.
    #[cfg_attr(not(feature = "insides"), doc(hidden))]
    pub fn look(
        volume: Arc<Volume>,
        rows: Rows,
        superblock: Superblock,
        options: MountOptions,
        waiter: &dyn Wait,
        why: &str,
    ) -> Result<FileSystem, OpenError> {
        let shared = mount::open(volume, rows, superblock, options, true, waiter, Purpose::Look)?;
        let fs = FileSystem::attached(shared);
        // In memory only, for the count of free blocks. Orphans have no names, so an unreadable one
        // does not disturb an inspection.
        let _ = fs.0.destroy_orphans(None);
        fs.forbid_changes(why);
        Ok(fs)
    }

    fn attached(shared: Shared) -> FileSystem {
        let shared = Arc::new(shared);
        shared.attach_store();
        FileSystem(shared)
    }

    /// Makes a file system with suitable defaults on an empty drive and opens it, for use by
    /// threads, on a volume of its own.
    ///
    /// ```
    /// use zonal_fs::{FileSystem, FileKind, NewFile, Payload, ROOT};
    /// use zonal_io::registry::Registry;
    ///
    /// let fs = FileSystem::format(Registry::default().open("ram:size=256M,zone_size=16M")?)?;
    /// let waiter = fs.waiter();
    /// let file = fs.create(&*waiter, ROOT, b"notes", &NewFile::new(FileKind::File, 0o644))?;
    /// fs.write(&*waiter, file, 0, Payload::Bytes(b"written out of place"))?;
    /// fs.sync(&*waiter)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`MakeError`]; [`MakeError::Volume`] if the device already has a volume,
    /// [`MakeError::InUse`] if the drive contains data. [`make::make`] has options, such as
    /// [overwriting](MakeOptions::with_force) it.
    pub fn format(device: Arc<dyn Device>) -> Result<FileSystem, MakeError> {
        let (drive, waiters) = make::for_threads(device)?;
        let uuid =
            Identity::random().ok_or_else(|| MakeError::Unfit("no random numbers for the UUID".into()))?;
        make::make(&drive, &waiters, uuid.bytes(), &MakeOptions::default())?;
        make::open(&drive, &waiters, None, MountOptions::default())
    }

    /// Opens the file system of a drive, for use by threads, on a volume of its own.
    ///
    /// # Errors
    /// [`MakeError`]; [`MakeError::Volume`] if the device has a volume already. [`make::open`] has
    /// options.
    pub fn mount(device: Arc<dyn Device>) -> Result<FileSystem, MakeError> {
        let (drive, waiters) = make::for_threads(device)?;
        make::open(&drive, &waiters, None, MountOptions::default())
    }

    /// Creates a waiter for the calling thread, on the clock with which the file system was opened.
    ///
    /// # Panics
    /// If it was opened by [`FileSystem::open`] or [`FileSystem::look`]: their callers have
    /// waiters.
    pub fn waiter(&self) -> Box<dyn Wait> {
        self.0.waiters.get().expect("it was opened by a caller with waiters of its own")()
    }

    /// Makes waiters with `waiters` from now on.
    pub(crate) fn with_waiters(self, waiters: &Waiters) -> FileSystem {
        let _ = self.0.waiters.set(waiters.clone());
        self
    }

    /// Returns the parameters with which the file system was made.
    pub fn superblock(&self) -> &Superblock {
        &self.0.superblock
    }

    /// Returns the underlying volume.
    pub fn volume(&self) -> &Arc<Volume> {
        self.0.drive.volume()
    }

    /// Returns the file of this name in a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameTooLong`], as in all calls
    /// by name.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<u64, FsError> {
        self.0.lookup(parent, name)
    }

    /// Returns the file at a path from the root, with names separated by slashes.
    ///
    /// # Errors
    /// As for [`FileSystem::lookup`].
    pub fn resolve(&self, path: &[u8]) -> Result<u64, FsError> {
        self.0.resolve(path)
    }

    /// Creates a file and returns its number.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NameTooLong`], [`FsError::ReadOnly`];
    /// [`FsError::TargetTooLong`] for a symbolic link to more than [`TARGET_MAX`] bytes.
    pub fn create(&self, waiter: &dyn Wait, parent: u64, name: &[u8], new: &NewFile) -> Result<u64, FsError> {
        self.0.create(waiter, (parent, name), new)
    }

    /// Creates an unnamed regular file and opens it. It is deleted when its last handle is closed,
    /// or by a power cut, unless [`link`](FileSystem::link) has given it a name.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for other kinds of files; [`FsError::ReadOnly`].
    pub fn create_unnamed(&self, waiter: &dyn Wait, new: &NewFile) -> Result<OpenFile, FsError> {
        self.0.settle_numbers(waiter);
        let ino = self.change(waiter, Touched::Added, |core| core.create_unnamed(new, waiter.wall()))?;
        Ok(OpenFile::counted(self, ino))
    }

    /// Adds a name to a file, or gives an open unnamed file its first one.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::Exists`]; [`FsError::Write`] if data of an unnamed file
    /// was ever lost.
    pub fn link(&self, waiter: &dyn Wait, ino: u64, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.prefetch_file(ino);
        self.0.prefetch_name(parent, name);
        self.change(waiter, Touched::Added, |core| core.link(ino, parent, name, waiter.wall()))
    }

    /// Links a file, atomically replacing the file of that name. An unnamed file is linked after
    /// its data has been written, so a commit contains the name with all of the data or not at all.
    ///
    /// To replace many files, call [`OpenFile::send`] for each after its last write and then link
    /// them: the first link waits for most of the data.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`] if either is a directory; [`FsError::Write`] if data of an unnamed
    /// file was ever lost, even if a sync has reported that. Nothing was changed then.
    pub fn link_over(&self, waiter: &dyn Wait, ino: u64, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.complete_unnamed(waiter, ino)?;
        self.0.prefetch_file(ino);
        self.0.prefetch_deletion(parent, name);
        self.change(waiter, Touched::Added, |core| core.link_over(ino, parent, name, waiter.wall()))
    }

    /// Removes a name. A file without names is deleted once all its handles are closed and no
    /// caller references it.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    pub fn unlink(&self, waiter: &dyn Wait, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.prefetch_deletion(parent, name);
        self.change(waiter, Touched::Changed, |core| core.unlink(parent, name, waiter.wall()))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`].
    pub fn rmdir(&self, waiter: &dyn Wait, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.prefetch_deletion(parent, name);
        self.change(waiter, Touched::Changed, |core| core.rmdir(parent, name, waiter.wall()))
    }

    /// Moves a file to another name.
    ///
    /// # Errors
    /// The error that prevents it; nothing was changed then.
    pub fn rename(
        &self,
        waiter: &dyn Wait,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: Rename,
    ) -> Result<(), FsError> {
        self.0.prefetch_rename(from, to);
        self.change(waiter, Touched::Added, |core| core.rename(from, to, how, waiter.wall()))
    }

    /// Like [`FileSystem::lookup`], and adds a reference of the caller to the file.
    ///
    /// A referenced file outlives its last name, like an open file, but has no write buffer.
    ///
    /// # Errors
    /// As for [`FileSystem::lookup`].
    pub fn lookup_known(&self, parent: u64, name: &[u8]) -> Result<FoundFile, FsError> {
        self.0.lookup_known(parent, name)
    }

    /// Adds a reference of the caller to a file and returns its attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn know(&self, ino: u64) -> Result<Attributes, FsError> {
        self.0.know(ino)
    }

    /// Like [`FileSystem::create`], and adds a reference of the caller before another thread can
    /// remove the file.
    ///
    /// # Errors
    /// As for [`FileSystem::create`].
    pub fn create_known(
        &self,
        waiter: &dyn Wait,
        parent: u64,
        name: &[u8],
        new: &NewFile,
    ) -> Result<FoundFile, FsError> {
        self.0.create_known(waiter, (parent, name), new)
    }

    /// Drops `times` references of the caller, at most as many as it has. A file that is neither
    /// named nor open is destroyed with its last reference.
    ///
    /// # Errors
    /// If the file cannot be destroyed because its rows are damaged.
    pub fn forget(&self, waiter: &dyn Wait, ino: u64, times: u64) -> Result<(), FsError> {
        self.0.forget(waiter, ino, times)
    }

    /// Calls `show` for the names of a directory after `after`, in byte order, until it breaks.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    pub fn list(
        &self,
        ino: u64,
        after: Option<&[u8]>,
        show: impl FnMut(&[u8], Entry) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.0.list(ino, after, show)
    }

    /// Calls `show` for the names of a directory after a position, in order of their positions,
    /// until it breaks.
    ///
    /// A caller can stop after any name and resume after its position later, even after a remount.
    /// A name that exists the whole time is then shown once; a name created or removed meanwhile,
    /// once or not at all. [`Position::START`] precedes all names.
    ///
    /// # Errors
    /// [`FsError::NotDirectory`].
    pub fn list_from(
        &self,
        ino: u64,
        after: Position,
        show: impl FnMut(Position, &[u8], Entry) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.0.list_from(ino, after, show)
    }

    /// Returns the path of a file from the root, by its first name; `None` if it has no name, or if
    /// a directory on the path is unreadable.
    pub fn path(&self, ino: u64) -> Option<Vec<u8>> {
        self.0.path(ino).filter(|path| ino == ROOT || !path.is_empty())
    }

    /// Returns the attributes of a file. The size includes writes in flight, the block count only
    /// completed ones.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn attributes(&self, ino: u64) -> Result<Attributes, FsError> {
        self.0.attributes(ino)
    }

    /// Returns the number of a file's written blocks that are in memory or in flight and thus not
    /// yet in [`Attributes::blocks`]. Their completion leaves that count unchanged if they
    /// overwrite existing blocks.
    pub fn waiting_blocks(&self, ino: u64) -> u64 {
        self.0.waiting_blocks(ino)
    }

    /// Changes several attributes atomically and returns the new ones. The change time is always
    /// set. If the size cannot be changed, nothing is.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Invalid`] for an unknown lifetime; with a size, those of
    /// [`FileSystem::truncate`].
    pub fn set_attributes(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        changes: &Changes,
    ) -> Result<Attributes, FsError> {
        self.0.set_attributes(waiter, ino, changes)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for other kinds of files.
    pub fn target(&self, ino: u64) -> Result<Vec<u8>, FsError> {
        self.0.target(ino)
    }

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::AttributeName`].
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, FsError> {
        xattr::check_name(name)?;
        self.0.attribute(ino, name)
    }

    /// Returns the names of all extended attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn xattrs(&self, ino: u64) -> Result<Vec<Vec<u8>>, FsError> {
        self.0.list_attributes(ino)
    }

    /// Returns true if any file may have an extended attribute of this name: one was found, or
    /// there are more than `rows_max` attributes, of which no more are searched.
    ///
    /// # Errors
    /// If the attributes cannot be read.
    pub fn may_have_xattr(&self, name: &[u8], rows_max: usize) -> Result<bool, FsError> {
        self.0.may_have_attribute(name, rows_max)
    }

    /// Sets an extended attribute, which may already exist.
    ///
    /// # Errors
    /// As for [`FileSystem::set_xattr_if`].
    pub fn set_xattr(&self, waiter: &dyn Wait, ino: u64, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.set_xattr_if(waiter, ino, (name, value), SetXattr::Always)
    }

    /// Atomically sets the value of an extended attribute, provided that the attribute exists or
    /// not as required by `when`.
    ///
    /// # Errors
    /// [`FsError::AttributeName`] unless the name has 1 to 255 bytes,
    /// [`FsError::AttributeTooLarge`] above [`ATTRIBUTE_MAX`] bytes; [`FsError::AttributeExists`],
    /// [`FsError::NoAttribute`].
    pub fn set_xattr_if(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        (name, value): (&[u8], &[u8]),
        when: SetXattr,
    ) -> Result<(), FsError> {
        xattr::check(name, value)?;
        self.0.prefetch_attribute(ino, name);
        self.change(waiter, Touched::Added, |core| {
            core.set_attribute(ino, (name, value), when, waiter.wall())
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::AttributeName`].
    pub fn remove_xattr(&self, waiter: &dyn Wait, ino: u64, name: &[u8]) -> Result<(), FsError> {
        xattr::check_name(name)?;
        self.0.prefetch_attribute(ino, name);
        self.change(waiter, Touched::Changed, |core| core.remove_attribute(ino, name, waiter.wall()))
    }

    /// Opens a file, which then exists until its last handle is closed, even without names.
    /// Sequential writes are collected into whole units.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn open_file(&self, ino: u64) -> Result<OpenFile, FsError> {
        let mut guard = self.0.lock_with_file(ino);
        let core = &mut *guard;
        core.nodes.get(&core.rows, ino)?.handles += 1;
        drop(guard);
        Ok(OpenFile::counted(self, ino))
    }

    /// Announces the future path of a file, which the headers of its units contain until the next
    /// sync instead of the present one. This only helps a rebuild.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn announce(&self, ino: u64, path: &[u8]) -> Result<(), FsError> {
        let mut core = self.0.lock_with_file(ino);
        let core = &mut *core;
        core.nodes.get(&core.rows, ino)?.announced = Some(path.to_vec());
        Ok(())
    }

    /// Writes at `offset` and returns the number of bytes written, which is less than requested
    /// only if space is short. Clears set-id bits, as [`SetIds::Clear`] does. A write of no bytes
    /// changes nothing.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`], [`FsError::ReadOnly`];
    /// [`FsError::IsDirectory`], and [`FsError::Invalid`] for other kinds of files without data.
    pub fn write(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
    ) -> Result<u64, FsError> {
        self.0.write(waiter, ino, offset, payload, SetIds::Clear)
    }

    /// Like [`FileSystem::write`], but clears set-id bits or not as the caller chooses.
    ///
    /// # Errors
    /// As for [`FileSystem::write`].
    pub fn write_with(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        self.0.write(waiter, ino, offset, payload, set_ids)
    }

    /// Writes the `length` bytes of `buf` from [`HEADER_BYTES`](crate::format::HEADER_BYTES) on.
    /// Long writes of whole blocks pass `buf` itself to the drive and replace it by another one of
    /// `pool`, which must have buffers of the same length. The bytes are ignored if the device
    /// keeps no data.
    ///
    /// # Errors
    /// As for [`FileSystem::write`].
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn write_in_place(
        &self,
        waiter: &dyn Wait,
        (ino, offset): (u64, u64),
        (buf, length): (&mut IoBuf, usize),
        pool: &BufferPool,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        self.0.write_in_place(waiter, (ino, offset), (buf, length), pool, set_ids)
    }

    /// Reads `length` bytes from `offset` on, or up to the end of the file, and passes them to
    /// `show` in place, without copying, as a list of pieces. Holes are pieces of zeroes.
    ///
    /// # Errors
    /// As for [`FileSystem::read`]; `show` is not called then.
    pub fn read_in_place<R>(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        length: u64,
        show: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, FsError> {
        self.0.read_in_place(waiter, ino, offset, length, show)
    }

    /// Reads from `offset` on into `target`, up to the end of the file. Returns the number of bytes
    /// read; later bytes of `target` remain unchanged.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], and [`FsError::Invalid`] for other kinds of files without data.
    /// [`FsError::Read`], [`FsError::Unit`], [`FsError::Checksum`]: a read never returns data other
    /// than was written. After a data error `target` is zeroed, because some data may have been
    /// copied before its checksum proved wrong.
    pub fn read(&self, waiter: &dyn Wait, ino: u64, offset: u64, target: Target<'_>) -> Result<u64, FsError> {
        self.0.read(waiter, ino, offset, target)
    }

    /// Sets the size of a file like `ftruncate`: the times of the last change are set and set-id
    /// bits cleared even if the size stays the same. [`FileSystem::set_attributes`] changes a size
    /// like `truncate`, together with other attributes.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::NoSpace`] for the block at the new end.
    pub fn truncate(&self, waiter: &dyn Wait, ino: u64, size: u64) -> Result<(), FsError> {
        self.0.truncate(waiter, ino, size)
    }

    /// Replaces a range of a file by a hole, without changing its size. Clears set-id bits.
    ///
    /// # Errors
    /// As for [`FileSystem::zero_range`].
    pub fn punch(&self, waiter: &dyn Wait, ino: u64, range: Range<u64>) -> Result<(), FsError> {
        self.0.zero_range(waiter, ino, range, ZeroEnd::Keep, SetIds::Clear)
    }

    /// Makes a range of a file read as zeroes and frees its space. A range beyond the end extends
    /// the file if `end` says so. No space is reserved for it.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::TooLarge`] if the file would be;
    /// [`FsError::NoSpace`] for the blocks at the edges.
    pub fn zero_range(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        range: Range<u64>,
        end: ZeroEnd,
        set_ids: SetIds,
    ) -> Result<(), FsError> {
        self.0.zero_range(waiter, ino, range, end, set_ids)
    }

    /// Returns the offset of the first data or hole at or after `offset`. Data in memory and in
    /// flight counts. Holes have a granularity of 4096 bytes, and the end of the file is a hole.
    ///
    /// # Errors
    /// [`FsError::NothingThere`] if `offset` is not before the end, or if no data follows it.
    pub fn seek(&self, ino: u64, offset: u64, what: Seek) -> Result<u64, FsError> {
        self.0.seek(ino, offset, what)
    }

    /// Copies `length` bytes from an offset in one file to another file, or within one file.
    /// Returns the number of bytes, which is lower if the source ends early or if an error occurs
    /// after some have been copied. Holes stay holes.
    ///
    /// Not atomic: other callers may see a partial copy, and may change the source meanwhile.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for overlapping ranges of one file; those of [`FileSystem::read`] and
    /// [`FileSystem::write`].
    pub fn copy_range(
        &self,
        waiter: &dyn Wait,
        from: (u64, u64),
        to: (u64, u64),
        length: u64,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        self.0.copy_range(waiter, from, to, length, set_ids)
    }

    /// Makes a file and its name durable, and reports lost data once.
    ///
    /// # Errors
    /// [`FsError::Write`], [`FsError::ReadOnly`].
    pub fn fsync(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.0.fsync(waiter, ino)
    }

    /// Makes everything durable, and reports the first data loss since the last call.
    ///
    /// # Errors
    /// [`FsError::Write`], [`FsError::ReadOnly`].
    pub fn sync(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.0.sync(waiter)
    }

    /// Syncs, and records the last metadata batch in the superblock, like dropping the last clone.
    /// For a process that exits while another thread may still hold a clone.
    ///
    /// # Errors
    /// As for [`FileSystem::sync`].
    pub fn finish(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let synced = self.0.sync(waiter);
        if let Some(log) = self.0.backend().log() {
            // On failure the state is that of a crash.
            let _ = log.name_batch();
        }
        synced
    }

    /// Resubmits failed units to other zones, and sends old write buffers. Then does a step towards
    /// free zones, if one is due: a reset, a commit, or garbage collection. Returns true if it did.
    ///
    /// Writers that wait for space do these steps themselves; steps ahead of need shorten the wait.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`].
    pub fn background_step(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.0.resend(waiter);
        self.0.send_old(waiter)?;
        let did = self.0.background_step(waiter)?;
        if !did {
            if self.0.compact_store(COMPACTED_MAX)? == Compacted::Done {
                return Ok(true);
            }
            self.0.name_batch_if_idle(waiter);
        }
        Ok(did)
    }

    /// Collects the best victim even if space is not short. Returns true if it did a step.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`].
    pub fn collect(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.0.collect_one(waiter)
    }

    /// Returns the statistics since the mount.
    pub fn statistics(&self) -> Statistics {
        self.0.lock().all_statistics()
    }

    /// Returns the statistics and resets them to zero.
    pub fn take_statistics(&self) -> Statistics {
        let mut core = self.0.lock();
        let all = core.all_statistics();
        core.statistics = Statistics::default();
        all
    }

    /// Returns the space usage.
    pub fn usage(&self) -> Usage {
        self.0.lock().usage()
    }

    /// Returns the number of files, and how many more can be created. The count is exact. If a
    /// program that keeps no count was the last to change the file system, the first call reads the
    /// rows of all files.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn files(&self) -> Result<FileCounts, FsError> {
        self.0.files()
    }

    /// Returns the status, for other programs.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Refuses all further changes with an error that says why.
    pub fn forbid_changes(&self, why: &str) {
        self.0.lock().make_read_only_because(why.to_owned());
    }

    /// Number of resets of a zone since the file system was made.
    pub fn resets(&self, zone: ZoneIndex) -> u32 {
        self.0.space.lock().book.resets(zone)
    }

    /// True if nothing is in flight to the drive.
    pub fn is_quiet(&self) -> bool {
        let core = self.0.lock();
        let units = core.units.lock();
        units.is_empty()
            && !units.has_failed()
            && !core.write_buffers.has_taken()
            && !core.combined.has_taken()
    }

    /// Checks the accounts against each other, while nothing is in flight.
    ///
    /// # Panics
    /// If they are inconsistent, which is a bug.
    pub fn check(&self) {
        self.0.lock().space.lock().check();
    }

    fn change<R>(
        &self,
        waiter: &dyn Wait,
        touched: Touched,
        change: impl FnOnce(&mut core::Core) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        self.0.admit(waiter, touched)?;
        let (result, gone) = {
            let _names = self.0.names.changing();
            let mut core = self.0.lock();
            core.check_writable()?;
            (change(&mut core), core.deleted.mark())
        };
        match self.0.free_deleted(gone, Some(waiter)) {
            // The change was made, and the next mount frees the rest.
            Err(FsError::ReadOnly(_)) => result,
            freed => freed.and(result),
        }
    }
}

/// Maximum number of metadata pages compacted in the background, while commits wait for some tenths
/// of a second. Larger metadata is compacted at unmount, and before a write fails for lack of
/// space.
const COMPACTED_MAX: u64 = 8192;

const fn is_shared_by_threads<T: Send + Sync>() {}
const _: () = is_shared_by_threads::<FileSystem>();

//! The file system itself.

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
use crate::store::{Compacted, Rows};
use crate::waiter::{Wait, Waiters};
use core::Shared;
use mount::Purpose;
use room::Touched;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use zonal_core::ZoneIndex;
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::device::Device;
use zonal_io::identity::Identity;
use zonal_io::volume::Volume;

/// A mounted file system, shared by cloning. Every call that may have to wait is given a [`Wait`].
///
/// When the call returns, what was written has been sent, is in the write buffer of an open file, or waits in a unit for more. It is
/// durable after
/// [`FileSystem::fsync`] or [`FileSystem::sync`]. Dropping the last clone makes nothing durable: the caller syncs first.
#[derive(Clone)]
pub struct FileSystem(Arc<Shared>);

impl FileSystem {
    /// Writes the rows of a new file system into an empty database.
    ///
    /// # Errors
    /// The database's.
    #[cfg_attr(not(feature = "insides"), doc(hidden))]
    pub fn make(rows: &mut Rows, superblock: &Superblock, waiter: &dyn Wait) -> Result<(), FsError> {
        mount::make(rows, superblock, waiter.wall())
    }

    /// Opens the file system of `superblock` on `volume`, whose metadata are `rows`. `has_data`: whether the device keeps what
    /// it is given.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed.
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
        Ok(FileSystem::attached(shared))
    }

    /// Opens it to be looked at: it takes no changes, and each attempt gets an error that says `why`. Zones that contradict the metadata
    /// are no error: what can be read and verified, can be.
    ///
    /// # Errors
    /// As [`FileSystem::open`], apart from that.
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
        fs.forbid_changes(why);
        Ok(fs)
    }

    fn attached(shared: Shared) -> FileSystem {
        let shared = Arc::new(shared);
        shared.attach_store();
        FileSystem(shared)
    }

    /// Makes a file system on a drive that has no data, with what suits the drive, and opens it: for threads, on a volume of its own.
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
    /// [`MakeError`]; [`MakeError::Volume`] if the device has a volume already, [`MakeError::InUse`] if there is data on the drive. [`make::make`] has options, one of which is to
    /// [overwrite](MakeOptions::with_force) what is there.
    pub fn format(device: Arc<dyn Device>) -> Result<FileSystem, MakeError> {
        let (drive, waiters) = make::for_threads(device)?;
        let uuid =
            Identity::random().ok_or_else(|| MakeError::Unfit("no random numbers for its UUID".into()))?;
        make::make(&drive, &waiters, uuid.bytes(), &MakeOptions::default())?;
        make::open(&drive, &waiters, None, MountOptions::default())
    }

    /// Opens the file system of a drive: for threads, on a volume of its own.
    ///
    /// # Errors
    /// [`MakeError`]; [`MakeError::Volume`] if the device has a volume already. [`make::open`] has options.
    pub fn mount(device: Arc<dyn Device>) -> Result<FileSystem, MakeError> {
        let (drive, waiters) = make::for_threads(device)?;
        make::open(&drive, &waiters, None, MountOptions::default())
    }

    /// A waiter for the calling thread, in the time in which the file system was opened.
    ///
    /// # Panics
    /// If it was opened by [`FileSystem::open`] or [`FileSystem::look`], whose callers have waiters of their own.
    pub fn waiter(&self) -> Box<dyn Wait> {
        self.0.waiters.get().expect("it was opened by a caller with waiters of its own")()
    }

    /// The file system makes waiters with `waiters` from now on.
    pub(crate) fn with_waiters(self, waiters: &Waiters) -> FileSystem {
        let _ = self.0.waiters.set(waiters.clone());
        self
    }

    /// What it was made with.
    pub fn superblock(&self) -> &Superblock {
        &self.0.superblock
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Arc<Volume> {
        self.0.drive.volume()
    }

    /// The file of this name in a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDirectory`], [`FsError::NameTooLong`]; so for all calls with names.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<u64, FsError> {
        self.0.lookup(parent, name)
    }

    /// The file at a path from the root, names separated by slashes.
    ///
    /// # Errors
    /// As [`FileSystem::lookup`].
    pub fn resolve(&self, path: &[u8]) -> Result<u64, FsError> {
        self.0.resolve(path)
    }

    /// Makes a file, and returns its number.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NameTooLong`], [`FsError::ReadOnly`]; [`FsError::TargetTooLong`] for a symbolic link that
    /// points to more than [`TARGET_MAX`] bytes.
    pub fn create(&self, waiter: &dyn Wait, parent: u64, name: &[u8], new: &NewFile) -> Result<u64, FsError> {
        self.0.create(waiter, (parent, name), new)
    }

    /// Makes a regular file without a name, and opens it. It is gone when its last handle is, or after a cut, unless
    /// [`link`](FileSystem::link) has given it a name.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for another kind of file; [`FsError::ReadOnly`].
    pub fn create_unnamed(&self, waiter: &dyn Wait, new: &NewFile) -> Result<OpenFile, FsError> {
        self.0.settle_numbers(waiter);
        let ino = self.change(waiter, Touched::Added, |core| core.create_unnamed(new, waiter.wall()))?;
        Ok(OpenFile::counted(self, ino))
    }

    /// Gives a file another name, or a first one while it is open.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], [`FsError::Exists`].
    pub fn link(&self, waiter: &dyn Wait, ino: u64, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.look_at_file(ino);
        self.0.look_at_name(parent, name);
        self.change(waiter, Touched::Added, |core| core.link(ino, parent, name, waiter.wall()))
    }

    /// Links a file, atomically replacing the file that has the name. An unnamed file is linked after its data has been written, so a commit
    /// contains the name with all of the data or not at all.
    ///
    /// To replace many files, call [`OpenFile::send`] for each after its last write and then link them: the first link waits for most of the
    /// data.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`] for either; [`FsError::Write`] if data of a file without a name was lost. Nothing was changed then.
    pub fn link_over(&self, waiter: &dyn Wait, ino: u64, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.complete_unnamed(waiter, ino)?;
        self.0.look_at_file(ino);
        self.0.look_at_end(parent, name);
        self.change(waiter, Touched::Added, |core| core.link_over(ino, parent, name, waiter.wall()))
    }

    /// Removes a name. The file goes with its last name, once all of its handles are gone and no caller knows it.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`].
    pub fn unlink(&self, waiter: &dyn Wait, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.look_at_end(parent, name);
        self.change(waiter, Touched::Changed, |core| core.unlink(parent, name, waiter.wall()))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FsError::NotEmpty`].
    pub fn rmdir(&self, waiter: &dyn Wait, parent: u64, name: &[u8]) -> Result<(), FsError> {
        self.0.look_at_end(parent, name);
        self.change(waiter, Touched::Changed, |core| core.rmdir(parent, name, waiter.wall()))
    }

    /// Gives a file another name in place of the one it has.
    ///
    /// # Errors
    /// What is in the way; nothing was changed then.
    pub fn rename(
        &self,
        waiter: &dyn Wait,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        how: Rename,
    ) -> Result<(), FsError> {
        self.0.look_at_rename(from, to);
        self.change(waiter, Touched::Added, |core| core.rename(from, to, how, waiter.wall()))
    }

    /// The same as [`FileSystem::lookup`], and counts that the caller knows the file once more.
    ///
    /// A file that is known stays when it has lost its names, as an open file does. Unlike that, it has no write buffer.
    ///
    /// # Errors
    /// As [`FileSystem::lookup`].
    pub fn lookup_known(&self, parent: u64, name: &[u8]) -> Result<FoundFile, FsError> {
        self.0.lookup_known(parent, name)
    }

    /// Counts that the caller knows a file once more, and returns its attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn know(&self, ino: u64) -> Result<Attributes, FsError> {
        self.0.know(ino)
    }

    /// The same as [`FileSystem::create`], and counts that the caller knows the file, before another can remove it.
    ///
    /// # Errors
    /// As [`FileSystem::create`].
    pub fn create_known(
        &self,
        waiter: &dyn Wait,
        parent: u64,
        name: &[u8],
        new: &NewFile,
    ) -> Result<FoundFile, FsError> {
        self.0.create_known(waiter, (parent, name), new)
    }

    /// Takes back that the caller was told of a file, `times` times; at most as often as it was. A file that has no name and is not
    /// open is destroyed when it is known no more.
    ///
    /// # Errors
    /// If the file cannot be destroyed: its rows are damaged.
    pub fn forget(&self, ino: u64, times: u64) -> Result<(), FsError> {
        self.0.forget(ino, times)
    }

    /// Shows the names of a directory after `after`, in order of their bytes, until `show` breaks.
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

    /// Shows the names of a directory after a position, in order of their positions, until `show` breaks.
    ///
    /// A caller can stop after any name and continue after its position later, also when the file system was closed meanwhile. A
    /// name that was there the whole time is then shown once; a name that was made or removed meanwhile, once or not at all.
    /// [`Position::START`] is before all names.
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

    /// The path of a file from the root, by its first name; `None` if it has no name, or if a directory on the path cannot be read.
    pub fn path(&self, ino: u64) -> Option<Vec<u8>> {
        self.0.path(ino).filter(|path| ino == ROOT || !path.is_empty())
    }

    /// Attributes of a file. Its size includes writes in flight, its blocks only completed ones.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn attributes(&self, ino: u64) -> Result<Attributes, FsError> {
        self.0.attributes(ino)
    }

    /// Blocks of a file that were written and are in memory or in flight: [`Attributes::blocks`] does not count them yet. If they take
    /// the place of others, it counts as many when they have arrived as before.
    pub fn waiting_blocks(&self, ino: u64) -> u64 {
        self.0.waiting_blocks(ino)
    }

    /// Changes attributes, all of them in one moment, and returns those that the file has then. The time of the change is always set.
    /// If the size cannot be changed, nothing is.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Invalid`] for a lifetime that there is not; those of [`FileSystem::truncate`] with a size.
    pub fn set_attributes(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        changes: &Changes,
    ) -> Result<Attributes, FsError> {
        self.0.set_attributes(waiter, ino, changes)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// If it is none.
    pub fn target(&self, ino: u64) -> Result<Vec<u8>, FsError> {
        self.0.target(ino)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`], [`FsError::AttributeName`].
    pub fn xattr(&self, ino: u64, name: &[u8]) -> Result<Vec<u8>, FsError> {
        xattr::check_name(name)?;
        self.0.attribute(ino, name)
    }

    /// Names of all extended attributes.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn xattrs(&self, ino: u64) -> Result<Vec<Vec<u8>>, FsError> {
        self.0.list_attributes(ino)
    }

    /// Sets an extended attribute, whether it is there or not.
    ///
    /// # Errors
    /// As [`FileSystem::set_xattr_if`].
    pub fn set_xattr(&self, waiter: &dyn Wait, ino: u64, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.set_xattr_if(waiter, ino, (name, value), SetXattr::Always)
    }

    /// Sets an extended attribute, its name and its value, if it is there or not as `when` says. No other caller comes in between.
    ///
    /// # Errors
    /// [`FsError::AttributeName`] unless the name has 1 to 255 bytes, [`FsError::AttributeTooLarge`] above [`ATTRIBUTE_MAX`] bytes;
    /// [`FsError::AttributeExists`], [`FsError::NoAttribute`].
    pub fn set_xattr_if(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        (name, value): (&[u8], &[u8]),
        when: SetXattr,
    ) -> Result<(), FsError> {
        xattr::check(name, value)?;
        self.0.look_at_attribute(ino, name);
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
        self.0.look_at_attribute(ino, name);
        self.change(waiter, Touched::Changed, |core| core.remove_attribute(ino, name, waiter.wall()))
    }

    /// Opens a file: it stays until all of its handles are gone, whatever happens to its names. Writes that begin where the
    /// last one ended are collected to whole units.
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

    /// Announces the path that a file will have: its units carry this path until the file is synced, instead of the path
    /// that it has. That helps a rebuild, and has no other effect.
    ///
    /// # Errors
    /// [`FsError::NotFound`].
    pub fn announce(&self, ino: u64, path: &[u8]) -> Result<(), FsError> {
        let mut core = self.0.lock_with_file(ino);
        let core = &mut *core;
        core.nodes.get(&core.rows, ino)?.announced = Some(path.to_vec());
        Ok(())
    }

    /// Writes at `offset`, and returns how many bytes were written: fewer than all only if space is short. Set-id bits go, as with
    /// [`SetIds::Clear`]; a write without a byte changes nothing.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::TooLarge`], [`FsError::ReadOnly`]; [`FsError::IsDirectory`], and [`FsError::Invalid`] of other
    /// files without data.
    pub fn write(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
    ) -> Result<u64, FsError> {
        self.0.write(waiter, ino, offset, payload, SetIds::Clear)
    }

    /// The same for a caller that says whether set-id bits go.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
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

    /// Writes the `length` bytes of `buf` that begin at [`HEADER_BYTES`](crate::format::HEADER_BYTES). The drive takes long writes of whole
    /// blocks out of `buf` itself: then another buffer of `pool`, whose buffers are as long, is in its place. Where the device keeps no
    /// data, the bytes do not count.
    ///
    /// # Errors
    /// As [`FileSystem::write`].
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

    /// Reads `length` bytes from `offset` on, or those that there are before the file's end, and shows them as they lie in memory, piece by
    /// piece, holes as zeroes. They are not copied.
    ///
    /// # Errors
    /// As [`FileSystem::read`]; nothing is shown then.
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

    /// Reads from `offset` on, and returns how many bytes there were before the file's end. Bytes of `target` after these stay as they
    /// were.
    ///
    /// # Errors
    /// [`FsError::IsDirectory`], and [`FsError::Invalid`] of other files without data.
    /// [`FsError::Read`], [`FsError::Unit`], [`FsError::Checksum`]: a read never shows anything but what was written. After an error
    /// of the data `target` has zeroes: some of it may have been copied before its checksum was known to be wrong.
    pub fn read(&self, waiter: &dyn Wait, ino: u64, offset: u64, target: Target<'_>) -> Result<u64, FsError> {
        self.0.read(waiter, ino, offset, target)
    }

    /// Makes a file `size` bytes long, as `ftruncate` does: also of a file that is, the times of its last change are set and set-id
    /// bits go. [`FileSystem::set_attributes`] changes a size as `truncate` does, and more.
    ///
    /// # Errors
    /// [`FsError::TooLarge`], [`FsError::NoSpace`] for the block at the new end.
    pub fn truncate(&self, waiter: &dyn Wait, ino: u64, size: u64) -> Result<(), FsError> {
        self.0.truncate(waiter, ino, size)
    }

    /// Makes bytes of a file read as zeroes and frees what they took, without changing its size. Set-id bits go.
    ///
    /// # Errors
    /// As [`FileSystem::zero_range`].
    pub fn punch(&self, waiter: &dyn Wait, ino: u64, range: Range<u64>) -> Result<(), FsError> {
        self.0.zero_range(waiter, ino, range, ZeroEnd::Keep, SetIds::Clear)
    }

    /// Makes bytes of a file read as zeroes and frees what they took. Zeroes after the end of the file make it longer if `end` says so.
    /// No space is reserved for them.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::TooLarge`] for a file that would be; [`FsError::NoSpace`] for the blocks at
    /// the edges.
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

    /// The first byte from `offset` on that is data, or that is a hole. Data in memory and in flight is data. What is a hole is told in
    /// blocks of 4096 bytes. At the end of the file is a hole.
    ///
    /// # Errors
    /// [`FsError::NothingThere`] if `offset` is not before the end, or if no data comes after it.
    pub fn seek(&self, ino: u64, offset: u64, what: Seek) -> Result<u64, FsError> {
        self.0.seek(ino, offset, what)
    }

    /// Copies `length` bytes from a file and an offset in it to another, or within one file, and returns how many. They are fewer if
    /// the source ends before, and if anything fails after the first of them: then those are there. Holes stay holes.
    ///
    /// Another caller may see a part of the copy, and may change the source meanwhile.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for ranges of one file that overlap; those of [`FileSystem::read`] and [`FileSystem::write`].
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

    /// Makes a file durable, with its name, and reports once which of its data was lost.
    ///
    /// # Errors
    /// [`FsError::Write`], [`FsError::ReadOnly`].
    pub fn fsync(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        self.0.fsync(waiter, ino)
    }

    /// Makes everything durable, and reports the first data that was lost since the last call.
    ///
    /// # Errors
    /// [`FsError::Write`], [`FsError::ReadOnly`].
    pub fn sync(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.0.sync(waiter)
    }

    /// Syncs, and names the last metadata batch in the superblock, as dropping the last clone does. For a process that exits while another
    /// thread may still hold a clone.
    ///
    /// # Errors
    /// As [`FileSystem::sync`].
    pub fn finish(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let synced = self.0.sync(waiter);
        if let Some(log) = self.0.backend().log() {
            // A failure leaves the state that a crash would.
            let _ = log.name_batch();
        }
        synced
    }

    /// Sends failed units to other zones, and old write buffers. Then it does one step towards free zones, if one is due: a
    /// reset, a commit, or a collection. Returns whether it did a step.
    ///
    /// Writers that wait for space do these steps themselves; steps ahead of need shorten their wait.
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

    /// Collects the zone that gains most, even if space is not short. Returns whether it did a step.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`].
    pub fn collect(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        self.0.collect_one(waiter)
    }

    /// Counted since it was mounted.
    pub fn statistics(&self) -> Statistics {
        self.0.lock().told_statistics()
    }

    /// The same, and counts from zero again.
    pub fn take_statistics(&self) -> Statistics {
        let mut core = self.0.lock();
        let told = core.told_statistics();
        core.statistics = Statistics::default();
        told
    }

    /// How its space is used.
    pub fn usage(&self) -> Usage {
        self.0.lock().usage()
    }

    /// How many files it has, and may have. The count is exact. A file system that was last changed by a program without a count
    /// is counted by the first call, which reads all rows of files.
    ///
    /// # Errors
    /// The database's.
    pub fn files(&self) -> Result<FileCounts, FsError> {
        self.0.files()
    }

    /// All that it tells of itself, for other programs.
    pub fn status(&self) -> Status {
        self.0.status()
    }

    /// Takes no more changes: each attempt gets an error that says why.
    pub fn forbid_changes(&self, why: &str) {
        self.0.lock().die_of(why.to_owned());
    }

    /// How often a zone was reset since the file system was made.
    pub fn resets(&self, zone: ZoneIndex) -> u32 {
        self.0.space.lock().book.resets(zone)
    }

    /// Whether nothing is in flight to the drive.
    pub fn is_quiet(&self) -> bool {
        let core = self.0.lock();
        let units = core.units.lock();
        units.is_empty()
            && !units.has_failed()
            && !core.write_buffers.has_taken()
            && !core.combined.has_taken()
    }

    /// Compares the accounts with each other, while nothing is in flight.
    ///
    /// # Panics
    /// If they contradict each other: a bug.
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
            core.check_alive()?;
            (change(&mut core), core.gone.mark())
        };
        self.0.free_gone(gone, Some(waiter))?;
        result
    }
}

/// Pages of metadata that are compacted in the background: calls wait meanwhile, some tenths of a second for so many. Larger metadata are
/// compacted when the file system is closed, and before a write finds no space.
const COMPACTED_MAX: u64 = 8192;

const fn is_shared_by_threads<T: Send + Sync>() {}
const _: () = is_shared_by_threads::<FileSystem>();

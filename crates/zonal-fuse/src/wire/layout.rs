//! Structures of the protocol, with the fields of `linux/fuse.h`.
#![allow(missing_docs, reason = "the names of the fields are the kernel's")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $of:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub struct $name { $(pub $field: $of),* }
    )*};
}

structures! {
    /// Start of each request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16,
        padding: u16,
    }

    /// Start of each reply.
    OutHeader { len: u32, error: i32, unique: u64 }

    /// Attributes of a file, in replies.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32,
        flags: u32,
    }

    /// Reply about a file that was looked up or created.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }

    /// Reply to `GETATTR` and `SETATTR`.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }

    /// A time in `STATX`.
    SxTime { sec: i64, nsec: u32, reserved: i32 }

    /// Attributes in the reply to `STATX`.
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime,
        mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }

    /// Request for attributes including the creation time.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }

    /// Reply to `STATX`.
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }

    /// Drops references of the kernel to a file.
    ForgetIn { nlookup: u64 }

    /// One file of a [`BatchForgetIn`].
    ForgetOne { nodeid: u64, nlookup: u64 }

    /// Drops references to several files. This number of [`ForgetOne`] follows.
    BatchForgetIn { count: u32, dummy: u32 }

    /// Creates a file of any kind. Its name follows.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }

    /// Creates a directory. Its name follows.
    MkdirIn { mode: u32, umask: u32 }

    /// Renames a file. Both names follow.
    RenameIn { newdir: u64 }

    /// Renames a file, with flags. Both names follow.
    Rename2In { newdir: u64, flags: u32, padding: u32 }

    /// Adds a name to a file. The name follows.
    LinkIn { oldnodeid: u64 }

    /// Request for attributes.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }

    /// Changes attributes.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }

    /// Opens a file or a directory.
    OpenIn { flags: u32, open_flags: u32 }

    /// Creates and opens a file. Its name follows.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }

    /// Reply with the handle.
    OpenOut { fh: u64, open_flags: u32, padding: u32 }

    /// Closes a handle.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }

    /// Sent for each `close`.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }

    /// Reads a file or a directory.
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }

    /// Writes to a file. The data follows.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }

    /// Reply with the number of bytes written.
    WriteOut { size: u32, padding: u32 }

    /// Reply with the state of the whole file system.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }

    /// Syncs a file.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }

    /// Sets an extended attribute. Its name and value follow.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }

    /// Sets an extended attribute, without extended flags.
    SetxattrCompatIn { size: u32, flags: u32 }

    /// Request for an extended attribute, with its name following, or for all names.
    GetxattrIn { size: u32, padding: u32 }

    /// Reply with the length.
    GetxattrOut { size: u32, padding: u32 }

    /// First request.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }

    /// Reply to the first request.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }

    /// Interrupts a request.
    InterruptIn { unique: u64 }

    /// Punches a hole or writes zeroes.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }

    /// Searches for data or a hole.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }

    /// Reply with the position.
    LseekOut { offset: u64 }

    /// Copies a range from file to file.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }

    /// Reply with the number of bytes copied, in 64 bits.
    CopyFileRangeOut { bytes_copied: u64 }

    /// A directory entry. The name follows.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }

    /// Notifies the kernel that its cached data of a file is invalid.
    NotifyInvalInode { ino: u64, off: i64, len: i64 }
}

const fn size<T>() -> usize {
    size_of::<T>()
}

const _: () = assert!(size::<InHeader>() == 40);
const _: () = assert!(size::<OutHeader>() == 16);
const _: () = assert!(size::<Attr>() == 88);
const _: () = assert!(size::<EntryOut>() == 128);
const _: () = assert!(size::<AttrOut>() == 104);
const _: () = assert!(size::<Statx>() == 256);
const _: () = assert!(size::<StatxOut>() == 288);
const _: () = assert!(size::<StatxIn>() == 24);
const _: () = assert!(size::<GetattrIn>() == 16);
const _: () = assert!(size::<SetattrIn>() == 88);
const _: () = assert!(size::<ReadIn>() == 40);
const _: () = assert!(size::<WriteIn>() == 40);
const _: () = assert!(size::<StatfsOut>() == 80);
const _: () = assert!(size::<InitIn>() == 64);
const _: () = assert!(size::<InitOut>() == 64);
const _: () = assert!(size::<CopyFileRangeIn>() == 56);
const _: () = assert!(size::<FallocateIn>() == 32);
const _: () = assert!(size::<CreateIn>() == 16);
const _: () = assert!(size::<MknodIn>() == 16);
const _: () = assert!(size::<Dirent>() == 24);
const _: () = assert!(size::<SetxattrIn>() == 16);

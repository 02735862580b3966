//! The structures of the protocol, field by field as `linux/fuse.h` has them.
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
    /// This begins each request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16,
        padding: u16,
    }

    /// This begins each answer.
    OutHeader { len: u32, error: i32, unique: u64 }

    /// This has attributes of a file, in answers.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32,
        flags: u32,
    }

    /// This tells of a file that was looked up or made.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }

    /// This answers `GETATTR` and `SETATTR`.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }

    /// This is a time of `STATX`.
    SxTime { sec: i64, nsec: u32, reserved: i32 }

    /// This has attributes, in the answer to `STATX`.
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime,
        mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }

    /// This asks for attributes and the time of birth.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }

    /// This answers `STATX`.
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }

    /// This takes back what the kernel was told of a file.
    ForgetIn { nlookup: u64 }

    /// This does so for one of several files.
    ForgetOne { nodeid: u64, nlookup: u64 }

    /// This says how many [`ForgetOne`] follow.
    BatchForgetIn { count: u32, dummy: u32 }

    /// This makes a file of any kind; its name follows.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }

    /// This makes a directory; its name follows.
    MkdirIn { mode: u32, umask: u32 }

    /// This renames a file; both names follow.
    RenameIn { newdir: u64 }

    /// This does so with flags.
    Rename2In { newdir: u64, flags: u32, padding: u32 }

    /// This gives a file one more name, which follows.
    LinkIn { oldnodeid: u64 }

    /// This asks for attributes.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }

    /// This changes attributes.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }

    /// This opens a file or a directory.
    OpenIn { flags: u32, open_flags: u32 }

    /// This makes a file and opens it; its name follows.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }

    /// This tells the handle.
    OpenOut { fh: u64, open_flags: u32, padding: u32 }

    /// This gives a handle up.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }

    /// This comes with each close.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }

    /// This reads a file or a directory.
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }

    /// This writes to a file; the bytes follow.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }

    /// This tells how much was written.
    WriteOut { size: u32, padding: u32 }

    /// This tells of the whole file system.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }

    /// This makes a file durable.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }

    /// This sets an extended attribute; its name and its value follow.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }

    /// This does so where the kernel has no extended flags.
    SetxattrCompatIn { size: u32, flags: u32 }

    /// This asks for an attribute, whose name follows, or for the names of all.
    GetxattrIn { size: u32, padding: u32 }

    /// This tells how long it is.
    GetxattrOut { size: u32, padding: u32 }

    /// This is the first request.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }

    /// This answers it.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }

    /// This says that a caller has been interrupted.
    InterruptIn { unique: u64 }

    /// This punches holes and writes zeroes.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }

    /// This looks for data or a hole.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }

    /// This tells where it is.
    LseekOut { offset: u64 }

    /// This copies from file to file.
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }

    /// This tells how much was copied, in 64 bits.
    CopyFileRangeOut { bytes_copied: u64 }

    /// This is a name in a directory, which follows.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }

    /// This tells the kernel that what it has cached of a file is not valid.
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

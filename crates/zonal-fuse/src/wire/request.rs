//! Parser of requests.

use super::layout::*;
use super::numbers::opcode;
use std::fmt;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Caller and file.
    pub header: InHeader,
    /// Operation.
    pub operation: Operation<'a>,
}

/// Operation of a request. Unused fields are omitted; [`layout`](super::layout) has all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the kernel's")]
pub enum Operation<'a> {
    Init(InitIn),
    Destroy,
    Interrupt(InterruptIn),
    Lookup {
        name: &'a [u8],
    },
    Forget {
        times: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr(GetattrIn),
    Setattr(SetattrIn),
    Statx(StatxIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        mode: u32,
        rdev: u32,
        umask: u32,
        name: &'a [u8],
    },
    Mkdir {
        mode: u32,
        umask: u32,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        to: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        file: u64,
        name: &'a [u8],
    },
    Open(OpenIn),
    Create {
        asked: CreateIn,
        name: &'a [u8],
    },
    Tmpfile {
        asked: CreateIn,
    },
    Read(ReadIn),
    Write {
        asked: WriteIn,
        bytes: &'a [u8],
    },
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Flush(FlushIn),
    Setxattr {
        flags: u32,
        extended: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    Getxattr {
        size: u32,
        name: &'a [u8],
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Opendir(OpenIn),
    Readdir {
        asked: ReadIn,
        with_entries: bool,
    },
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    CopyFileRange {
        asked: CopyFileRangeIn,
        wide: bool,
    },
    Syncfs,
    /// Any other operation. The reply is `ENOSYS`, after which the kernel does not use it.
    Unknown,
}

/// Files that the kernel forgets at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgets<'a>(&'a [u8]);

impl Forgets<'_> {
    /// Each file, with its number of references.
    pub fn iter(&self) -> impl Iterator<Item = ForgetOne> + '_ {
        self.0
            .chunks_exact(size_of::<ForgetOne>())
            .map(|one| ForgetOne::read_from_bytes(one).expect("its size"))
    }
}

/// Error of a malformed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// Header, if it is complete. Such a request gets an error as its reply.
    pub header: Option<InHeader>,
    /// Problem.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.header {
            Some(header) => {
                write!(f, "request {} with operation {}: {}", header.unique, header.opcode, self.what)
            }
            None => f.write_str(self.what),
        }
    }
}

impl std::error::Error for Malformed {}

/// Rest of a request's body.
struct Body<'a>(&'a [u8]);

const SHORT: &str = "it is truncated";

impl<'a> Body<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, &'static str> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| SHORT)?;
        self.0 = rest;
        Ok(value)
    }

    /// Takes a zero-terminated name.
    fn name(&mut self) -> Result<&'a [u8], &'static str> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or("unterminated name")?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }

    fn bytes(&mut self, count: u32) -> Result<&'a [u8], &'static str> {
        let (bytes, rest) = self.0.split_at_checked(count as usize).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Parses a request read from the kernel's device. `has_setxattr_ext` is true if
/// [`SETXATTR_EXT`](super::numbers::init::SETXATTR_EXT) was negotiated.
///
/// # Errors
/// [`Malformed`] if the request violates the protocol.
pub fn parse(bytes: &[u8], has_setxattr_ext: bool) -> Result<Request<'_>, Malformed> {
    let Ok((header, rest)) = InHeader::read_from_prefix(bytes) else {
        return Err(Malformed { header: None, what: "incomplete header" });
    };
    let malformed = |what| Malformed { header: Some(header), what };
    if header.len as usize != bytes.len() {
        return Err(malformed("its length is not that of the bytes read"));
    }
    // Extensions follow the body.
    let body =
        rest.len().checked_sub(usize::from(header.total_extlen) * 8).ok_or_else(|| malformed(SHORT))?;
    let operation = operation(header.opcode, Body(&rest[..body]), has_setxattr_ext).map_err(malformed)?;
    Ok(Request { header, operation })
}

fn operation(code: u32, mut body: Body<'_>, has_setxattr_ext: bool) -> Result<Operation<'_>, &'static str> {
    Ok(match code {
        opcode::INIT => Operation::Init(init(body.0)?),
        opcode::DESTROY => Operation::Destroy,
        opcode::INTERRUPT => Operation::Interrupt(body.take()?),
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::FORGET => Operation::Forget { times: body.take::<ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => {
            let count = body.take::<BatchForgetIn>()?.count;
            let bytes = count.checked_mul(size_of::<ForgetOne>() as u32).ok_or(SHORT)?;
            Operation::BatchForget(Forgets(body.bytes(bytes)?))
        }
        opcode::GETATTR => Operation::Getattr(body.take()?),
        opcode::SETATTR => Operation::Setattr(body.take()?),
        opcode::STATX => Operation::Statx(body.take()?),
        opcode::READLINK => Operation::Readlink,
        opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
        opcode::MKNOD => {
            let MknodIn { mode, rdev, umask, .. } = body.take()?;
            Operation::Mknod { mode, rdev, umask, name: body.name()? }
        }
        opcode::MKDIR => {
            let MkdirIn { mode, umask } = body.take()?;
            Operation::Mkdir { mode, umask, name: body.name()? }
        }
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::Rmdir { name: body.name()? },
        opcode::RENAME => {
            let to = body.take::<RenameIn>()?.newdir;
            Operation::Rename { name: body.name()?, to, new_name: body.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let Rename2In { newdir: to, flags, .. } = body.take()?;
            Operation::Rename { name: body.name()?, to, new_name: body.name()?, flags }
        }
        opcode::LINK => Operation::Link { file: body.take::<LinkIn>()?.oldnodeid, name: body.name()? },
        opcode::OPEN => Operation::Open(body.take()?),
        opcode::CREATE => Operation::Create { asked: body.take()?, name: body.name()? },
        // The name that follows is meaningless.
        opcode::TMPFILE => Operation::Tmpfile { asked: body.take()? },
        opcode::READ => Operation::Read(body.take()?),
        opcode::WRITE => {
            let asked: WriteIn = body.take()?;
            Operation::Write { asked, bytes: body.bytes(asked.size)? }
        }
        opcode::STATFS => Operation::Statfs,
        opcode::RELEASE => Operation::Release(body.take()?),
        opcode::FSYNC => Operation::Fsync(body.take()?),
        opcode::FLUSH => Operation::Flush(body.take()?),
        opcode::SETXATTR => {
            let SetxattrIn { size, flags, setxattr_flags: extended, .. } = match has_setxattr_ext {
                true => body.take()?,
                false => {
                    let SetxattrCompatIn { size, flags } = body.take()?;
                    SetxattrIn { size, flags, ..SetxattrIn::default() }
                }
            };
            Operation::Setxattr { flags, extended, name: body.name()?, value: body.bytes(size)? }
        }
        opcode::GETXATTR => {
            let size = body.take::<GetxattrIn>()?.size;
            Operation::Getxattr { size, name: body.name()? }
        }
        opcode::LISTXATTR => Operation::Listxattr { size: body.take::<GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::Removexattr { name: body.name()? },
        opcode::OPENDIR => Operation::Opendir(body.take()?),
        opcode::READDIR => Operation::Readdir { asked: body.take()?, with_entries: false },
        opcode::READDIRPLUS => Operation::Readdir { asked: body.take()?, with_entries: true },
        opcode::RELEASEDIR => Operation::Releasedir(body.take()?),
        opcode::FSYNCDIR => Operation::Fsyncdir(body.take()?),
        opcode::FALLOCATE => Operation::Fallocate(body.take()?),
        opcode::LSEEK => Operation::Lseek(body.take()?),
        opcode::COPY_FILE_RANGE => Operation::CopyFileRange { asked: body.take()?, wide: false },
        opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange { asked: body.take()?, wide: true },
        opcode::SYNCFS => Operation::Syncfs,
        _ => Operation::Unknown,
    })
}

/// Parses the first request. Older kernels omit its last fields.
fn init(body: &[u8]) -> Result<InitIn, &'static str> {
    const LEAST: usize = 16;
    if body.len() < LEAST {
        return Err(SHORT);
    }
    let mut whole = [0; size_of::<InitIn>()];
    let length = body.len().min(whole.len());
    whole[..length].copy_from_slice(&body[..length]);
    Ok(InitIn::read_from_bytes(&whole).expect("its size"))
}

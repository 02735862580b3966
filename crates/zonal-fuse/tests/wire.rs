//! The protocol without a kernel: structures have the kernel's layout, and arbitrary bytes are a
//! request or an error.

use proptest::prelude::*;
use zerocopy::IntoBytes;
use zonal_fs::format::{Attributes, FileKind, Position};
use zonal_fuse::wire::dirent::Names;
use zonal_fuse::wire::init::{self, Wanted, negotiate};
use zonal_fuse::wire::layout::*;
use zonal_fuse::wire::numbers::{init as flags, opcode};
use zonal_fuse::wire::reply;
use zonal_fuse::wire::request::{Operation, parse};

/// A request with these bytes after its header.
fn request(code: u32, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader { len, opcode: code, unique: 7, nodeid: 9, uid: 1000, ..InHeader::default() };
    [header.as_bytes(), body].concat()
}

/// Operation of a request, with the extended `SETXATTR` negotiated.
fn asked(bytes: &[u8]) -> Operation<'_> {
    parse(bytes, true).unwrap().operation
}

#[test]
fn kernel_requests_are_parsed() {
    let lookup = request(opcode::LOOKUP, b"name\0");
    assert_eq!(asked(&lookup), Operation::Lookup { name: b"name" });
    let symlink = request(opcode::SYMLINK, b"name\0target\0");
    assert_eq!(asked(&symlink), Operation::Symlink { name: b"name", target: b"target" });
    let rename = Rename2In { newdir: 5, flags: 2, padding: 0 };
    let rename = request(opcode::RENAME2, &[rename.as_bytes(), b"a\0b\0"].concat());
    assert_eq!(asked(&rename), Operation::Rename { name: b"a", to: 5, new_name: b"b", flags: 2 });
    let write = WriteIn { offset: 4096, size: 3, ..WriteIn::default() };
    let bytes = request(opcode::WRITE, &[write.as_bytes(), b"abc"].concat());
    assert_eq!(asked(&bytes), Operation::Write { asked: write, bytes: b"abc" });
    let forgets = BatchForgetIn { count: 2, dummy: 0 };
    let ones = [ForgetOne { nodeid: 3, nlookup: 1 }, ForgetOne { nodeid: 4, nlookup: 2 }];
    let bytes = request(opcode::BATCH_FORGET, &[forgets.as_bytes(), ones.as_bytes()].concat());
    let Operation::BatchForget(forgets) = asked(&bytes) else { panic!("it is another") };
    assert!(forgets.iter().eq(ones));
    assert_eq!(asked(&request(4095, b"")), Operation::Unknown);
}

#[test]
fn attribute_has_the_form_that_was_agreed_upon() {
    let wide = SetxattrIn { size: 5, flags: 1, setxattr_flags: 1, padding: 0 };
    let bytes = request(opcode::SETXATTR, &[wide.as_bytes(), b"user.a\0value"].concat());
    let expected = Operation::Setxattr { flags: 1, extended: 1, name: b"user.a", value: b"value" };
    assert_eq!(asked(&bytes), expected);
    let narrow = SetxattrCompatIn { size: 5, flags: 1 };
    let bytes = request(opcode::SETXATTR, &[narrow.as_bytes(), b"user.a\0value"].concat());
    let expected = Operation::Setxattr { flags: 1, extended: 0, name: b"user.a", value: b"value" };
    assert_eq!(parse(&bytes, false).unwrap().operation, expected);
}

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    let whole = request(opcode::LOOKUP, b"name\0");
    let said = |bytes: &[u8]| parse(bytes, true).unwrap_err().to_string();
    assert_eq!(said(&whole[..10]), "incomplete header");
    assert!(said(&whole[..whole.len() - 1]).contains("its length is not"));
    assert!(said(&request(opcode::LOOKUP, b"name")).contains("operation 1: unterminated name"));
    let write = WriteIn { size: 4, ..WriteIn::default() };
    assert!(said(&request(opcode::WRITE, &[write.as_bytes(), b"abc"].concat())).contains("truncated"));
    let forgets = BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert!(said(&request(opcode::BATCH_FORGET, forgets.as_bytes())).contains("truncated"));
    let mut extended = whole;
    extended[36] = 200;
    assert!(said(&extended).contains("truncated"));
}

#[test]
fn extensions_after_the_body_are_passed_over() {
    let mut bytes = request(opcode::MKDIR, &[MkdirIn { mode: 0o755, umask: 0 }.as_bytes(), b"d\0"].concat());
    bytes.extend_from_slice(&[1; 16]);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[36..38].copy_from_slice(&2u16.to_ne_bytes());
    assert_eq!(asked(&bytes), Operation::Mkdir { mode: 0o755, umask: 0, name: b"d" });
}

const WANTED: Wanted = Wanted { writeback: true, pages: 256, background: 64 };

#[test]
fn kernel_and_daemon_negotiate_common_features() {
    let old =
        InitIn { major: 7, minor: init::MINOR_MIN, flags: flags::MAX_PAGES as u32, ..InitIn::default() };
    let agreed = negotiate(&old, &WANTED).unwrap();
    assert_eq!(
        (agreed.answer.minor, agreed.answer.max_pages, agreed.max_write()),
        (init::MINOR_MIN, 256, 1 << 20)
    );
    assert!(agreed.has(flags::MAX_PAGES) && !agreed.has(flags::WRITEBACK_CACHE));
    let new = InitIn { minor: 99, flags: u32::MAX, flags2: u32::MAX, ..old };
    let agreed = negotiate(&new, &WANTED).unwrap();
    assert_eq!(agreed.answer.minor, init::MINOR);
    assert!(agreed.has(flags::WRITEBACK_CACHE | flags::POSIX_ACL | flags::HANDLE_KILLPRIV_V2));
    let through = Wanted { writeback: false, ..WANTED };
    assert!(!negotiate(&new, &through).unwrap().has(flags::WRITEBACK_CACHE));
    let narrow = InitIn { flags: 0, ..old };
    assert_eq!(negotiate(&narrow, &WANTED).unwrap().max_write(), 32 * 4096);
    for (major, minor) in [(7, init::MINOR_MIN - 1), (6, 40), (8, 0)] {
        let said = negotiate(&InitIn { major, minor, ..old }, &WANTED).unwrap_err();
        assert!(said.contains(&format!("{major}.{minor}")), "{said}");
    }
}

#[test]
fn first_request_of_an_older_kernel_is_shorter() {
    let bytes = request(
        opcode::INIT,
        &InitIn { major: 7, minor: 31, max_readahead: 5, ..InitIn::default() }.as_bytes()[..16],
    );
    let Operation::Init(asked) = asked(&bytes) else { panic!("it is another") };
    assert_eq!((asked.minor, asked.max_readahead, asked.flags2), (31, 5, 0));
}

#[test]
fn names_are_packed_until_no_more_fit() {
    let mut reply = Vec::new();
    let mut names = Names::new(&mut reply, 80);
    let entry = reply::entry(
        1,
        reply::attr(5, &Attributes::new(FileKind::File, 0o644, 1, Position::START, 0)),
        reply::FOR_EVER,
    );
    assert!(names.fits(8, false) && !names.fits(8, true));
    names.put(5, 3, 0o100_644, b"name", None);
    names.put(6, 4, 0o040_755, b"eightby8", None);
    assert!(!names.fits(1, false));
    assert_eq!(reply.len(), 32 + 32);
    let first = Dirent { ino: 5, off: 3, namelen: 4, kind: 8 };
    assert_eq!(reply[..24], *first.as_bytes());
    assert_eq!(reply[24..32], *b"name\0\0\0\0");
    let mut reply = Vec::new();
    Names::new(&mut reply, 4096).put(5, 3, 0o100_644, b"name", Some(&entry));
    assert_eq!(reply.len(), Names::record(4, true));
    assert_eq!(reply[..128], *entry.as_bytes());
}

#[test]
fn device_numbers_are_split_as_the_kernel_does() {
    let mut file = Attributes::new(FileKind::Character, 0o600, 1, Position::START, -1);
    // Major 259, minor 70000, in the kernel's encoding.
    file.rdev = 259 << 8 | (70000 & 0xff) | (70000 & 0xfff00) << 12;
    let out = reply::statx_out(4, &file, reply::FOR_EVER);
    assert_eq!((out.stat.rdev_major, out.stat.rdev_minor), (259, 70000));
    assert_eq!((out.stat.mode, out.stat.btime.sec, out.stat.btime.nsec), (0o020_600, -1, 999_999_999));
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_an_error(code in 0u32..60, body in prop::collection::vec(any::<u8>(), 0..300), extensions in 0u16..4) {
        let mut bytes = request(code, &body);
        bytes[36..38].copy_from_slice(&extensions.to_ne_bytes());
        for has_ext in [true, false] {
            if let Ok(request) = parse(&bytes, has_ext) {
                prop_assert_eq!(request.header.unique, 7);
                if let Operation::BatchForget(forgets) = request.operation {
                    prop_assert!(forgets.iter().count() * 16 <= body.len());
                }
            }
        }
        let _ = parse(&body, true);
    }
}

//! The calls, and a random generator of them.

use super::host::Host;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Index of the file that is a directory. The two before it are regular.
pub const DIRECTORY: usize = 2;

/// Names of extended attributes. The last one is too long.
pub const NAMES: [&str; 5] = [
    "user.a",
    "user.b",
    "user.c",
    // 255 bytes.
    "user.llllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllllll",
    // 256 bytes.
    "user.mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm",
];

/// Condition for setting an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    Create,
    Replace,
}

/// A call on a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub file: usize,
    pub change: Change,
}

/// The change made by a call. A privileged caller keeps set-id bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Write {
        offset: u64,
        length: u64,
        is_privileged: bool,
    },
    Truncate {
        size: u64,
        is_privileged: bool,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Zero {
        offset: u64,
        length: u64,
        keeps_size: bool,
    },
    Copy {
        from: usize,
        from_offset: u64,
        to_offset: u64,
        length: u64,
    },
    Mode(u32),
    Owner {
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// `Some(None)` is the current time.
    Times {
        atime: Option<Option<i64>>,
        mtime: Option<Option<i64>>,
    },
    SetXattr {
        name: usize,
        length: usize,
        when: When,
    },
    RemoveXattr {
        name: usize,
    },
    GetXattr {
        name: usize,
    },
    /// Opens or closes the file in this file system only. While open, it has a write buffer.
    Toggle,
    /// Syncs this file system only.
    Sync,
}

impl Call {
    pub fn file(&self) -> usize {
        self.file
    }

    pub fn random(random: &mut Pcg64Mcg, host: &Host) -> Call {
        let place = |random: &mut Pcg64Mcg| match random.random_range(0..3) {
            0 => random.random_range(0..30u64) * 4096,
            1 => random.random_range(0..100u64) * 700,
            _ => random.random_range(0..120_000),
        };
        let length = |random: &mut Pcg64Mcg| match random.random_range(0..8) {
            0 => 0,
            1 | 2 => 700,
            3 | 4 => random.random_range(1..9u64) * 4096,
            5 => random.random_range(1..5000),
            _ => random.random_range(1..60_000),
        };
        let is_privileged = random.random_bool(0.3);
        let (offset, length) = (place(random), length(random));
        let change = match random.random_range(0..36) {
            0..8 => Change::Write { offset, length, is_privileged },
            8..11 => Change::Truncate { size: offset, is_privileged },
            11..14 => Change::Punch { offset, length },
            14..17 if host.has_zero_range() => {
                Change::Zero { offset, length, keeps_size: random.random_bool(0.5) }
            }
            14..20 => {
                let from = random.random_range(0..2);
                Change::Copy { from, from_offset: offset, to_offset: place(random), length }
            }
            20..23 => {
                let modes = [0o644, 0o755, 0o4755, 0o6755, 0o2745, 0o6711, 0o7777, 0o2644];
                Change::Mode(modes[random.random_range(0..modes.len())])
            }
            23..26 => {
                let (uids, gids) = host.owners();
                let mut one_of =
                    |ids: &[u32]| random.random_bool(0.7).then(|| ids[random.random_range(0..ids.len())]);
                let (uid, gid) = (one_of(&uids), one_of(&gids));
                let uid = if gid.is_none() { Some(uid.unwrap_or(uids[0])) } else { uid };
                Change::Owner { uid, gid }
            }
            26..28 => {
                let mut time = || match random.random_range(0..3) {
                    0 => None,
                    1 => Some(None),
                    _ => Some(Some(random.random_range(1..2_000_000_000i64) * 1_000_000_001)),
                };
                let (atime, mtime) = (time(), time());
                Change::Times { atime, mtime }
            }
            28..34 if host.has_attributes() => {
                let name = random.random_range(0..NAMES.len());
                let when = [When::Always, When::Create, When::Replace][random.random_range(0..3)];
                match random.random_range(0..5) {
                    0 => Change::RemoveXattr { name },
                    1 => Change::GetXattr { name },
                    _ => Change::SetXattr { name, length: [0, 1, 300, 600][random.random_range(0..4)], when },
                }
            }
            28..35 => Change::Toggle,
            _ => Change::Sync,
        };
        let of_data = matches!(
            change,
            Change::Write { .. }
                | Change::Truncate { .. }
                | Change::Punch { .. }
                | Change::Zero { .. }
                | Change::Copy { .. }
                | Change::Toggle
        );
        Call { file: random.random_range(0..if of_data { DIRECTORY } else { DIRECTORY + 1 }), change }
    }
}

//! Extended attributes: bytes that a file has by a name.
//!
//! A name has any bytes; a front keeps the name spaces of Linux apart. The condition of a change is looked at under the lock that the
//! change is made under: of two callers that create one attribute, one is told that it exists.

use super::core::Core;
use super::error::FsError;
use super::names::NAME_MAX;
use crate::format::key;

/// Longest value of an extended attribute, in bytes. With the longest name it fits a page of the database.
///
/// Longer rows would take several pages in a row. Where the place of the metadata is nearly full, and what is free in it is scattered, a
/// commit might find none, although there is room: no count of pages tells before.
pub const ATTRIBUTE_MAX: usize = 3800;

/// When an extended attribute is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetXattr {
    /// Whether it is there or not.
    #[default]
    Always,
    /// If it is not there, as `XATTR_CREATE` asks for.
    Create,
    /// If it is there, as `XATTR_REPLACE` asks for.
    Replace,
}

/// An error if no attribute can have this name.
pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if (1..=NAME_MAX).contains(&name.len()) { Ok(()) } else { Err(FsError::AttributeName) }
}

/// An error if no attribute can have this name or value.
pub(super) fn check(name: &[u8], value: &[u8]) -> Result<(), FsError> {
    check_name(name)?;
    if value.len() <= ATTRIBUTE_MAX { Ok(()) } else { Err(FsError::AttributeTooLarge) }
}

impl Core {
    pub(super) fn set_attribute(
        &mut self,
        ino: u64,
        (name, value): (&[u8], &[u8]),
        when: SetXattr,
        now: i64,
    ) -> Result<(), FsError> {
        self.attributes(ino)?;
        let key = key::attribute(ino, name);
        match when {
            SetXattr::Always => {}
            SetXattr::Create if self.rows.get(&key)?.is_some() => return Err(FsError::AttributeExists),
            SetXattr::Replace if self.rows.get(&key)?.is_none() => return Err(FsError::NoAttribute),
            SetXattr::Create | SetXattr::Replace => {}
        }
        self.update(ino, |file| file.ctime = now)?;
        self.rows.put(key, value.to_vec());
        Ok(())
    }

    pub(super) fn remove_attribute(&mut self, ino: u64, name: &[u8], now: i64) -> Result<(), FsError> {
        let key = key::attribute(ino, name);
        self.attributes(ino)?;
        self.rows.get(&key)?.ok_or(FsError::NoAttribute)?;
        self.update(ino, |file| file.ctime = now)?;
        self.rows.delete(key);
        Ok(())
    }
}

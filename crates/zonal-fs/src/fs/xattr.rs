//! Extended attributes: named byte strings of a file.
//!
//! A name may have any bytes; the front end implements the name spaces of Linux. The condition of a
//! change is checked under the same lock under which the change is made, so of two callers that
//! create one attribute, one gets an error.

use super::core::Core;
use super::error::FsError;
use super::names::NAME_MAX;
use crate::format::key;

/// Maximum length of the value of an extended attribute, in bytes. With the longest name it fits in
/// a page of metadata, so that a table of it fits in the smallest segments.
pub const ATTRIBUTE_MAX: usize = 3800;

/// Condition for setting an extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetXattr {
    /// No condition.
    #[default]
    Always,
    /// The attribute does not exist, as for `XATTR_CREATE`.
    Create,
    /// The attribute exists, as for `XATTR_REPLACE`.
    Replace,
}

/// Returns an error if a name is invalid.
pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if (1..=NAME_MAX).contains(&name.len()) { Ok(()) } else { Err(FsError::AttributeName) }
}

/// Returns an error if a name or value is invalid.
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

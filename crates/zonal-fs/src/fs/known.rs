//! Files referenced by a kernel, apart from open ones.
//!
//! A kernel keeps the number of a file from a lookup and uses it later without another lookup.
//! References are counted: each answer with the number adds one, and `forget` drops any number of
//! them. An unnamed file exists as long as it is referenced or open, and is destroyed afterwards.
//! Only open files have a write buffer, because a kernel references many more files than that.
//!
//! The counts are in memory. An unnamed file that is referenced at unmount or at a crash is
//! destroyed by the next mount, like an open one, by means of its orphan row.

use super::core::{Core, Shared};
use super::error::FsError;
use super::names::NewFile;
use crate::format::Attributes;
use crate::waiter::Wait;
use std::collections::HashMap;

/// File found or created by a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundFile {
    /// File number.
    pub ino: u64,
    /// Attributes at the time of the call.
    pub attributes: Attributes,
}

/// Number of references of each file referenced by a kernel.
#[derive(Default, Debug)]
pub(super) struct KnownFiles(HashMap<u64, u64>);

impl KnownFiles {
    pub(super) fn has(&self, ino: u64) -> bool {
        self.0.contains_key(&ino)
    }

    fn learn(&mut self, ino: u64) {
        let times = self.0.entry(ino).or_default();
        *times = times.saturating_add(1);
    }

    /// True if dropping `times` references drops the last one.
    fn ends_with(&self, ino: u64, times: u64) -> bool {
        self.0.get(&ino).is_some_and(|known| *known <= times)
    }

    fn forget(&mut self, ino: u64, times: u64) {
        if self.ends_with(ino, times) {
            self.0.remove(&ino);
        } else if let Some(known) = self.0.get_mut(&ino) {
            *known -= times;
        }
    }
}

impl Core {
    /// Adds a reference to a file.
    fn know(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        self.known.learn(ino);
        Ok(attributes)
    }

    /// True if an unnamed file has to stay, because it is referenced, open, or being changed.
    pub(super) fn is_used(&mut self, ino: u64) -> bool {
        let is_in_use = self.nodes.here(ino).is_some_and(|node| node.handles > 0 || node.is_held);
        is_in_use || self.known.has(ino)
    }

    /// Drops references. Returns the mark of the queue if the file was queued for deletion.
    fn forget(&mut self, ino: u64, times: u64) -> Result<Option<u64>, FsError> {
        let is_last = self.known.ends_with(ino, times);
        self.known.forget(ino, times);
        if !is_last || self.is_used(ino) {
            return Ok(None);
        }
        match self.attributes(ino) {
            Ok(attributes) if attributes.links == 0 => {
                self.deleted.add_whole(ino);
                Ok(self.deleted.mark())
            }
            Ok(_) | Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Shared {
    pub(super) fn know(&self, ino: u64) -> Result<Attributes, FsError> {
        self.lock_with_file(ino).know(ino)
    }

    /// Looks up a name and adds a reference to its file.
    pub(super) fn lookup_known(&self, parent: u64, name: &[u8]) -> Result<FoundFile, FsError> {
        let mut gone = None;
        loop {
            let ino = self.lookup(parent, name)?;
            match self.know(ino) {
                // Another file may have taken over the name meanwhile, so a file of this name
                // existed all the time.
                Err(FsError::NotFound) if gone != Some(ino) => gone = Some(ino),
                result => return result.map(|attributes| FoundFile { ino, attributes }),
            }
        }
    }

    pub(super) fn create_known(
        &self,
        waiter: &dyn Wait,
        (parent, name): (u64, &[u8]),
        new: &NewFile,
    ) -> Result<FoundFile, FsError> {
        let known = |ino| Ok(FoundFile { ino, attributes: self.lock().know(ino)? });
        self.create_or(waiter, (parent, name), new, || Err(FsError::Exists), known)
    }

    pub(super) fn forget(&self, waiter: &dyn Wait, ino: u64, times: u64) -> Result<(), FsError> {
        let is_last = self.lock().known.ends_with(ino, times);
        let is_nameless = || self.attributes(ino).is_ok_and(|attributes| attributes.links == 0);
        if is_last && is_nameless() {
            self.prefetch_all_of(ino);
        }
        let gone = self.lock().forget(ino, times)?;
        match self.end_deletion(ino, gone, Some(waiter)) {
            // The next mount deletes it.
            Err(FsError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }
}

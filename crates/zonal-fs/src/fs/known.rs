//! Files that a kernel knows, apart from those that are open.
//!
//! A kernel keeps the number of a file that it looked up, and uses it later without another look-up. It counts: each answer that tells
//! it a number is one more, and `forget` takes any of them back. A file without a name stays while it is known or open, and is
//! destroyed when it is neither. Only open files have a write buffer: a kernel knows many more than it has open.
//!
//! The counts are in memory. A file that was known without a name when the file system was closed, or at a cut, is destroyed by the next
//! opening, as an open file is: its row of a nameless file says so.

use super::core::{Core, Shared};
use super::error::FsError;
use super::names::NewFile;
use crate::format::Attributes;
use crate::waiter::Wait;
use std::collections::HashMap;

/// A file that a call has found or made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundFile {
    /// Its number.
    pub ino: u64,
    /// Its attributes at that moment.
    pub attributes: Attributes,
}

/// How often a kernel was told of each file that it knows.
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

    /// Whether the file is known no more once `times` are taken back.
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
    /// Counts a file as known once more.
    fn know(&mut self, ino: u64) -> Result<Attributes, FsError> {
        let attributes = self.attributes(ino)?;
        self.known.learn(ino);
        Ok(attributes)
    }

    /// Whether a file stays without a name: a caller knows it, has it open, or changes its data.
    pub(super) fn is_used(&mut self, ino: u64) -> bool {
        let is_in_use = self.nodes.here(ino).is_some_and(|node| node.handles > 0 || node.is_held);
        is_in_use || self.known.has(ino)
    }

    fn forget(&mut self, ino: u64, times: u64) -> Result<(), FsError> {
        let is_last = self.known.ends_with(ino, times);
        self.known.forget(ino, times);
        if !is_last || self.is_used(ino) {
            return Ok(());
        }
        match self.attributes(ino) {
            Ok(attributes) if attributes.links == 0 => self.destroy(ino),
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Shared {
    pub(super) fn know(&self, ino: u64) -> Result<Attributes, FsError> {
        self.lock_with_file(ino).know(ino)
    }

    /// The file of this name, known once more.
    pub(super) fn lookup_known(&self, parent: u64, name: &[u8]) -> Result<FoundFile, FsError> {
        let mut gone = None;
        loop {
            let ino = self.lookup(parent, name)?;
            match self.know(ino) {
                // Another file may have taken its name meanwhile: then there was one with this name all the time.
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

    pub(super) fn forget(&self, ino: u64, times: u64) -> Result<(), FsError> {
        let is_last = self.lock().known.ends_with(ino, times);
        let is_nameless = || self.attributes(ino).is_ok_and(|attributes| attributes.links == 0);
        if is_last && is_nameless() {
            self.look_at_all_of(ino);
        }
        let gone = {
            let mut core = self.lock();
            core.forget(ino, times)?;
            core.gone.mark()
        };
        self.free_gone(gone, None)
    }
}

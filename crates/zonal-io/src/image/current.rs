//! Current states of an image: the state of each zone after its last acknowledged command, in the
//! file's cache.
//!
//! The operating system's cache survives a killed process. It holds the data of all acknowledged
//! writes, and with the state stored here the next opener finds all of it. This is neither durable
//! nor used after a power cut, which is the task of the [ledger](super::ledger).
//!
//! Owns a region of the file, and the stamp that identifies the cache in which the region is valid.
//! docs/IMAGE.md draws both.
//!
//! # Invariants
//! - A zone's state is stored after the data below its write pointer is in the file, and before the
//!   command completes.
//! - No byte of a zone changes while the stamp makes another opener's states valid, unless this
//!   opener has taken them over.
//! - The stamp records a sync in progress. After a failed sync the states in the cache are no
//!   longer valid.

use crate::image::backing::{Backing, CacheId};
use crate::image::format::{Header, Layout, STAMP_BYTES, Stamp, StampState, current_state, current_word};
use crate::sync::{Arc, Mutex};
use std::io;
use std::sync::OnceLock;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneIndex};

/// Current states of an image; see the module.
pub(crate) struct Current {
    backing: Arc<dyn Backing>,
    layout: Layout,
    creation: [u8; 16],
    /// Cache for which this opener's states are valid; `None` if it stores none.
    cache: Option<CacheId>,
    /// Contents of the region when the image was opened.
    found: Found,
    /// Words of all zones at opening, until the region is taken.
    opened: Mutex<Vec<u64>>,
    /// True if this opener stores states, once decided.
    is_kept: OnceLock<Result<bool, i32>>,
}

/// State of the region when the image was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Empty, or there is no region.
    Nothing,
    /// States from another cache, or damaged ones.
    Foreign,
    /// States from this cache, which were taken over.
    Taken {
        /// The last opener ended during a sync, which may have failed.
        in_sync: bool,
    },
}

impl Current {
    /// Reads the region of the image described by `header`. If it is valid for this cache, `states`
    /// are updated from it.
    pub(crate) fn read(
        backing: Arc<dyn Backing>,
        header: &Header,
        states: &mut [ZoneState],
    ) -> io::Result<Current> {
        let (layout, geometry) = (header.layout(), &header.geometry);
        let cache = if header.has_current() { backing.cache() } else { None };
        let mut found = Found::Nothing;
        if header.has_current() {
            found = find(&*backing, &layout, geometry, &header.creation, cache, states)?;
        }
        let words =
            |(zone, state): (u32, &ZoneState)| current_word(&header.creation, ZoneIndex(zone), *state);
        let opened = if cache.is_some() { (0..).zip(states.iter()).map(words).collect() } else { Vec::new() };
        Ok(Current {
            backing,
            layout,
            creation: header.creation,
            cache,
            found,
            opened: Mutex::new(opened),
            is_kept: OnceLock::new(),
        })
    }

    /// True if states from the region replaced those of the ledger.
    pub(crate) fn is_taken_over(&self) -> bool {
        matches!(self.found, Found::Taken { .. })
    }

    /// True if the last opener ended during a sync and may therefore have lost cached data.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.found == Found::Taken { in_sync: true }
    }

    /// Takes over the region. Has to be called before anything described by the states changes.
    ///
    /// # Errors
    /// Error number of the operating system, if another opener's states are still valid.
    #[inline]
    pub(crate) fn take(&self) -> Result<(), i32> {
        match self.is_kept.get() {
            Some(Ok(_)) => Ok(()),
            _ => self.decide(),
        }
    }

    #[cold]
    fn decide(&self) -> Result<(), i32> {
        let decided = self.is_kept.get_or_init(|| {
            let kept = self.begin();
            self.opened.lock().clear();
            kept.map_err(|e| super::error::errno(&e))
        });
        decided.map(|_| ())
    }

    /// Starts storing states. Returns false if this opener stores none.
    fn begin(&self) -> io::Result<bool> {
        let words = self.layout.current_words();
        if self.is_taken_over() {
            self.backing.map(words);
            return Ok(true);
        }
        if self.found == Found::Foreign {
            self.stamp(None)?;
        }
        let Some(cache) = self.cache else { return Ok(false) };
        let bytes: Vec<u8> = self.opened.lock().iter().flat_map(|word| word.to_le_bytes()).collect();
        // Allocates blocks for the words, if the file system has not done so.
        let written = self.backing.write_at(&bytes, words.start).and_then(|()| self.stamp(Some(cache)));
        if let Err(e) = written {
            eprintln!(
                "zonal: cannot store the zones' states: {e}; unflushed data is lost if this process is killed"
            );
            return self.stamp(None).map(|()| false);
        }
        self.backing.map(words);
        Ok(true)
    }

    fn is_kept(&self) -> bool {
        self.is_taken_over() || matches!(self.is_kept.get(), Some(Ok(true)))
    }

    fn stamp(&self, cache: Option<CacheId>) -> io::Result<()> {
        let stamp = cache.map(|cache| Stamp { state: StampState::Counts, cache, creation: self.creation });
        self.backing.write_at(&Stamp::emit(stamp.as_ref()), self.layout.current_offset)
    }

    /// Stores the state of `zone` after data was written to it. The caller has exclusive access to
    /// the zone.
    ///
    /// # Errors
    /// Those of the operating system.
    #[inline]
    pub(crate) fn wrote(&self, zone: ZoneIndex, state: ZoneState) -> io::Result<()> {
        match self.is_kept() {
            true => self.backing.store(self.layout.current_word(zone), self.word(zone, state)),
            false => Ok(()),
        }
    }

    /// Like [`wrote`](Current::wrote), after other commands. Uses a write: unlike a store, its
    /// failure does not end the mapping, so later writes may succeed.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn changed(&self, zone: ZoneIndex, state: ZoneState) -> io::Result<()> {
        match self.is_kept() {
            true => {
                let word = self.word(zone, state).to_le_bytes();
                self.backing.write_at(&word, self.layout.current_word(zone))
            }
            false => Ok(()),
        }
    }

    fn word(&self, zone: ZoneIndex, state: ZoneState) -> u64 {
        current_word(&self.creation, zone, state)
    }

    /// Syncs the backing, with the stamp recording the sync meanwhile. After a failure the states
    /// are no longer valid.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let is_kept = self.is_kept();
        if is_kept {
            self.set_state(StampState::InSync)?;
        }
        if let Err(e) = self.backing.sync() {
            // If this fails too, the stamp still records a sync in progress.
            let _ = self.close();
            return Err(e);
        }
        if is_kept { self.set_state(StampState::Counts) } else { Ok(()) }
    }

    fn set_state(&self, state: StampState) -> io::Result<()> {
        self.backing.write_at(&(state as u64).to_le_bytes(), self.layout.current_offset)
    }

    /// Invalidates the states, because the ledger is complete, or because the data they describe
    /// may be lost.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.is_kept() { self.stamp(None) } else { Ok(()) }
    }
}

/// Reads the region, and updates `states` from it if they are valid for `cache`.
fn find(
    backing: &dyn Backing,
    layout: &Layout,
    geometry: &Geometry,
    creation: &[u8; 16],
    cache: Option<CacheId>,
    states: &mut [ZoneState],
) -> io::Result<Found> {
    let mut bytes = [0; STAMP_BYTES];
    backing.read_at(&mut bytes, layout.current_offset)?;
    let stamp = match Stamp::parse(&bytes) {
        Ok(None) => return Ok(Found::Nothing),
        Ok(Some(stamp)) if Some(stamp.cache) == cache && stamp.creation == *creation => stamp,
        Ok(Some(_)) | Err(_) => return Ok(Found::Foreign),
    };
    let words = layout.current_words();
    let mut bytes = vec![0; (words.end - words.start) as usize];
    backing.read_at(&mut bytes, words.start)?;
    let current: Option<Vec<ZoneState>> = (0..)
        .zip(bytes.as_chunks::<8>().0)
        .map(|(zone, word)| current_state(geometry, creation, ZoneIndex(zone), u64::from_le_bytes(*word)))
        .collect();
    match current {
        Some(current) => {
            states.copy_from_slice(&current);
            Ok(Found::Taken { in_sync: stamp.state == StampState::InSync })
        }
        // Damaged on the medium: the ledger's states are sound.
        None => Ok(Found::Foreign),
    }
}

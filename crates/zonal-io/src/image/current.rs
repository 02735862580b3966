//! The current states of an image: what each zone has come to by its last acknowledged command, kept in the file's cache.
//!
//! The operating system's cache outlives a process that is killed. It holds the data of every acknowledged write, and
//! here the state that belongs to it, so the next opener finds all of it. Nothing here is durable, and nothing rests on
//! it after a power cut: the [ledger](super::ledger) does that.
//!
//! Owns the region of the file and the stamp that says of which cache it speaks. docs/IMAGE.md draws both.
//!
//! # Invariants
//! - A zone's state is noted after the data below its pointer is in the file, and before the command is answered.
//! - No byte of a zone changes while the stamp says that another opener's states count, unless this opener has taken them over.
//! - While a sync is under way the stamp says so. What a failed sync leaves in the cache counts no more.

use crate::image::backing::{Backing, CacheId};
use crate::image::format::{Header, Layout, STAMP_BYTES, Stamp, StampState, current_state, current_word};
use crate::sync::{Arc, Mutex};
use std::io;
use std::sync::OnceLock;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, ZoneIndex};

/// See the module.
pub(crate) struct Current {
    backing: Arc<dyn Backing>,
    layout: Layout,
    creation: [u8; 16],
    /// The cache that this opener's states speak of; `None` if it keeps none.
    cache: Option<CacheId>,
    /// What was found at opening.
    found: Found,
    /// Every zone's word as it was at opening, until the region is taken.
    opened: Mutex<Vec<u64>>,
    /// Whether the region is this opener's, once that is decided.
    is_kept: OnceLock<Result<bool, i32>>,
}

/// What the region said when the image was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// Nothing, or there is no region.
    Nothing,
    /// States of another cache, or damaged ones.
    Foreign,
    /// States of this cache, which were taken over.
    Taken {
        /// The last opener was in the midst of a sync, which may have failed.
        in_sync: bool,
    },
}

impl Current {
    /// Reads the region of the image that `header` describes. Where it speaks of this cache, `states` become what it says.
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

    /// Whether the states that were found took the place of the ledger's.
    pub(crate) fn is_taken_over(&self) -> bool {
        matches!(self.found, Found::Taken { .. })
    }

    /// Whether the last opener may have lost what it had in the cache: a sync was under way when it ended.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.found == Found::Taken { in_sync: true }
    }

    /// Makes the region this opener's. Call before anything that the states speak of changes.
    ///
    /// # Errors
    /// The number of the operating system's error, if another opener's states still count.
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

    /// Whether this opener keeps states from now on.
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
        // This gives the words their blocks, where the file system has not.
        let written = self.backing.write_at(&bytes, words.start).and_then(|()| self.stamp(Some(cache)));
        if let Err(e) = written {
            eprintln!(
                "zonal: what is not flushed will be lost if this process is killed: noting the zones' states: {e}"
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

    /// Notes the state of `zone` after data was written to it. The caller has the zone for itself.
    ///
    /// # Errors
    /// As the operating system answers.
    #[inline]
    pub(crate) fn wrote(&self, zone: ZoneIndex, state: ZoneState) -> io::Result<()> {
        match self.is_kept() {
            true => self.backing.store(self.layout.current_word(zone), self.word(zone, state)),
            false => Ok(()),
        }
    }

    /// As [`wrote`](Current::wrote), after another command. A failure of this write ends no mapping: later writes may succeed.
    ///
    /// # Errors
    /// As the operating system answers.
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

    /// Syncs the backing. While it does, the stamp says so; after a failure the states count no more.
    ///
    /// # Errors
    /// As the operating system answers.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let is_kept = self.is_kept();
        if is_kept {
            self.set_state(StampState::InSync)?;
        }
        if let Err(e) = self.backing.sync() {
            // If this fails too, the stamp still says that a sync was under way.
            let _ = self.close();
            return Err(e);
        }
        if is_kept { self.set_state(StampState::Counts) } else { Ok(()) }
    }

    fn set_state(&self, state: StampState) -> io::Result<()> {
        self.backing.write_at(&(state as u64).to_le_bytes(), self.layout.current_offset)
    }

    /// Notes that the states count no more: the ledger says all, or what they speak of may be lost.
    ///
    /// # Errors
    /// As the operating system answers.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.is_kept() { self.stamp(None) } else { Ok(()) }
    }
}

/// Reads the region, and takes `states` from it if they count for `cache`.
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
        // Damage of the medium: what the ledger has is sound.
        None => Ok(Found::Foreign),
    }
}

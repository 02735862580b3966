//! In-memory backing that loses unsynced writes when its power is cut.
//!
//! For tests of everything above a [`Backing`]. Reads see a cache, and a sync moves pending
//! operations to the medium. A power cut keeps the medium and an arbitrary part of the pending
//! operations, which may be lost, reordered, or torn at 512 bytes. Cuts and failures are placed by
//! call number, counting calls that modify or sync. All random decisions follow from a seed. A
//! process can be killed as well: the cache survives, and only that process can do nothing more.
//!
//! A failed sync behaves as on Linux: some pending data reaches the medium, and the rest never will
//! although reads still return it. Nothing is pending any more.

use super::{Backing, CacheId};
use crate::sync::{Arc, Mutex};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::ops::Range;

/// Unit of bytes written or lost together.
const TEAR: usize = 512;
const PAGE: usize = 4096;

/// Twin of a file; see the module.
pub struct CutBacking {
    state: Mutex<TwinState>,
}

struct TwinState {
    len: u64,
    cache: Sparse,
    medium: Sparse,
    pending: Vec<Unsynced>,
    random: Random,
    calls: u64,
    cut_at: Option<u64>,
    fail_at: Vec<u64>,
    is_on: bool,
    kill_at: Option<u64>,
    is_killed: bool,
    /// True if a sync failed in which the process was killed.
    is_doubtful: bool,
    boot: u64,
    unsyncable: Range<u64>,
}

#[derive(Clone)]
enum Unsynced {
    Write { at: u64, bytes: Vec<u8> },
    Zero { at: u64, len: u64 },
}

/// Outcome of a call.
enum Verdict {
    Proceed,
    Fail,
    PowerOff,
    /// The process is killed in this call, which may or may not be executed.
    Killed,
}

impl CutBacking {
    /// Empty backing with random decisions from `seed`.
    pub fn new(seed: u64) -> CutBacking {
        CutBacking { state: Mutex::new(TwinState::new(0, Sparse::default(), seed)) }
    }

    /// Backing with the durable contents `bytes`.
    pub fn with_bytes(bytes: &[u8], seed: u64) -> CutBacking {
        let mut medium = Sparse::default();
        medium.write(0, bytes);
        CutBacking { state: Mutex::new(TwinState::new(bytes.len() as u64, medium, seed)) }
    }

    /// Number of calls so far that modified or synced anything.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// True if the power is on and the process was not killed.
    pub fn is_on(&self) -> bool {
        let state = self.state.lock();
        state.is_on && !state.is_killed
    }

    /// True if the process was killed.
    pub fn is_killed(&self) -> bool {
        self.state.lock().is_killed
    }

    /// Kills the process during call number `call`, counted from 0. That call may or may not be
    /// executed, and a sync may also fail. It returns an error, and later calls do nothing until
    /// [`revive`](CutBacking::revive).
    pub fn kill_at(&self, call: u64) {
        self.state.lock().kill_at = Some(call);
    }

    /// Kills the process now.
    pub fn kill(&self) {
        self.state.lock().is_killed = true;
    }

    /// Starts another process with the present cache. Returns true if a sync failed without the
    /// killed process noticing.
    pub fn revive(&self) -> bool {
        let mut state = self.state.lock();
        (state.is_killed, state.kill_at) = (false, None);
        std::mem::take(&mut state.is_doubtful)
    }

    /// Cuts the power during call number `call`, counted from 0: that call and all later ones fail.
    pub fn cut_at(&self, call: u64) {
        self.state.lock().cut_at = Some(call);
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.state.lock().is_on = false;
    }

    /// Makes call number `call`, counted from 0, fail with EIO. Later calls are not affected.
    pub fn fail_at(&self, call: u64) {
        self.state.lock().fail_at.push(call);
    }

    /// Cancels all cuts, kills and failures that have not happened.
    pub fn spare(&self) {
        let mut state = self.state.lock();
        (state.cut_at, state.kill_at) = (None, None);
        state.fail_at.clear();
    }

    /// Makes syncs lie: operations that begin in `range` stay pending. For canaries that a checker
    /// has to detect.
    pub fn ignore_syncs_of(&self, range: Range<u64>) {
        self.state.lock().unsyncable = range;
    }

    /// Contents after power returns: the medium and an arbitrary part of the pending operations,
    /// all of it durable.
    pub fn restart(&self, seed: u64) -> CutBacking {
        let state = self.state.lock();
        let mut random = Random(seed);
        let mut medium = state.medium.clone();
        let mut pending: Vec<&Unsynced> = state.pending.iter().collect();
        if random.one_in(2) {
            random.shuffle(&mut pending);
        }
        // Some cuts lose almost everything, some almost nothing: bugs show at both extremes.
        let keep = random.below(5);
        for operation in pending {
            medium.apply_part(operation, Fate::draw(&mut random, keep), &mut random);
        }
        let mut next = TwinState::new(state.len, medium, random.next());
        next.unsyncable = state.unsyncable.clone();
        CutBacking { state: Mutex::new(next) }
    }

    /// All bytes as seen by a reader.
    pub fn bytes(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = vec![0; state.len as usize];
        state.cache.read(0, &mut bytes);
        bytes
    }
}

impl TwinState {
    fn new(len: u64, medium: Sparse, seed: u64) -> TwinState {
        TwinState {
            len,
            cache: medium.clone(),
            medium,
            pending: Vec::new(),
            random: Random(seed),
            calls: 0,
            cut_at: None,
            fail_at: Vec::new(),
            is_on: true,
            kill_at: None,
            is_killed: false,
            is_doubtful: false,
            boot: Random(seed ^ 0xB007).next(),
            unsyncable: 0..0,
        }
    }

    fn verdict(&mut self) -> Verdict {
        if !self.is_on || self.is_killed {
            return Verdict::PowerOff;
        }
        let call = self.calls;
        self.calls += 1;
        if self.cut_at.is_some_and(|at| call >= at) {
            self.is_on = false;
            return Verdict::PowerOff;
        }
        if self.kill_at.is_some_and(|at| call >= at) {
            self.is_killed = true;
            return Verdict::Killed;
        }
        if self.fail_at.contains(&call) { Verdict::Fail } else { Verdict::Proceed }
    }

    fn change(&mut self, operation: Unsynced) -> io::Result<()> {
        let (at, len) = operation.range();
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::FBIG.into());
        }
        let was_on = self.is_on && !self.is_killed;
        match self.verdict() {
            Verdict::Proceed => {
                self.apply(operation);
                Ok(())
            }
            Verdict::Killed => {
                if self.random.one_in(2) {
                    self.apply(operation);
                }
                Err(Errno::IO.into())
            }
            Verdict::Fail => {
                // Execute part of it.
                if let Some(part) = operation.head(self.random.below(len / TEAR as u64 + 1) * TEAR as u64) {
                    self.apply(part);
                }
                Err(Errno::IO.into())
            }
            Verdict::PowerOff => {
                // The call during which power is cut may be executed to any extent.
                if was_on {
                    self.pending.push(operation);
                }
                Err(Errno::IO.into())
            }
        }
    }

    fn apply(&mut self, operation: Unsynced) {
        self.cache.apply(&operation);
        self.pending.push(operation);
    }

    /// Stores do not count as calls: no cut, failure or kill is placed in them.
    fn store(&mut self, at: u64, word: u64) -> io::Result<()> {
        if !self.is_on || self.is_killed {
            return Err(Errno::IO.into());
        }
        self.apply(Unsynced::Write { at, bytes: word.to_le_bytes().to_vec() });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.verdict() {
            Verdict::Proceed => {
                self.synced();
                return Ok(());
            }
            Verdict::Fail => self.sync_fails(),
            Verdict::Killed => match self.random.below(3) {
                0 => self.synced(),
                1 => {
                    self.is_doubtful = true;
                    self.sync_fails();
                }
                _ => {}
            },
            Verdict::PowerOff => {}
        }
        Err(Errno::IO.into())
    }

    fn synced(&mut self) {
        let (kept, synced) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|op| self.unsyncable.contains(&op.range().0));
        self.pending = kept;
        synced.iter().for_each(|op: &Unsynced| self.medium.apply(op));
    }

    fn sync_fails(&mut self) {
        for operation in std::mem::take(&mut self.pending) {
            let fate = Fate::draw(&mut self.random, 2);
            self.medium.apply_part(&operation, fate, &mut self.random);
        }
    }
}

impl Backing for CutBacking {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state.lock().len = len;
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let state = self.state.lock();
        if !state.is_on || state.is_killed {
            return Err(Errno::IO.into());
        }
        if at.checked_add(buf.len() as u64).is_none_or(|end| end > state.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.cache.read(at, buf);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.state.lock().change(Unsynced::Write { at, bytes: buf.to_vec() })
    }

    fn write_vectored_at(&self, pieces: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let bytes = pieces.iter().flat_map(|p| p.iter().copied()).collect();
        self.state.lock().change(Unsynced::Write { at, bytes })
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.state.lock().change(Unsynced::Zero { at, len })
    }

    fn discard(&self, at: u64, len: u64) {
        // Discarded data may read as zeroes or unchanged; readers must not depend on either.
        let mut state = self.state.lock();
        if !state.random.one_in(3) {
            let _ = state.change(Unsynced::Zero { at, len });
        }
    }

    fn cache(&self) -> Option<CacheId> {
        Some(CacheId([self.state.lock().boot, 0, 0, 0, 0]))
    }

    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.state.lock().store(at, word)
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().sync()
    }
}

/// A call that modifies or syncs, as reported by [`Watched`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Write or zeroing at this offset.
    Write(u64),
    /// Discard.
    Discard,
    /// A sync.
    Sync,
}

/// Twin that calls a function in the calling thread before each [`Call`]: to wait, to intervene, or
/// to count.
pub struct Watched<F> {
    twin: Arc<CutBacking>,
    before: F,
}

impl<F: Fn(Call) + Send + Sync> Watched<F> {
    /// Wraps `twin`, calling `before` before each call.
    pub const fn new(twin: Arc<CutBacking>, before: F) -> Watched<F> {
        Watched { twin, before }
    }
}

impl<F: Fn(Call) + Send + Sync> Backing for Watched<F> {
    fn len(&self) -> io::Result<u64> {
        self.twin.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.twin.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.twin.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        (self.before)(Call::Write(at));
        self.twin.write_at(buf, at)
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        (self.before)(Call::Write(at));
        self.twin.zero(at, len)
    }

    fn discard(&self, at: u64, len: u64) {
        (self.before)(Call::Discard);
        self.twin.discard(at, len);
    }

    fn cache(&self) -> Option<CacheId> {
        self.twin.cache()
    }

    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.twin.store(at, word)
    }

    fn sync(&self) -> io::Result<()> {
        (self.before)(Call::Sync);
        self.twin.sync()
    }
}

impl Unsynced {
    fn range(&self) -> (u64, u64) {
        match self {
            Unsynced::Write { at, bytes } => (*at, bytes.len() as u64),
            Unsynced::Zero { at, len } => (*at, *len),
        }
    }

    /// First `len` bytes of the operation, if any.
    fn head(&self, len: u64) -> Option<Unsynced> {
        let len = len.min(self.range().1);
        (len > 0).then(|| match self {
            Unsynced::Write { at, bytes } => {
                Unsynced::Write { at: *at, bytes: bytes[..len as usize].to_vec() }
            }
            Unsynced::Zero { at, .. } => Unsynced::Zero { at: *at, len },
        })
    }
}

/// Effect of a cut on one operation.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Head,
    Tail,
    Scattered,
}

impl Fate {
    /// Keeps `keep` of 4 operations whole; the others meet each of the other fates with equal
    /// probability.
    fn draw(random: &mut Random, keep: u64) -> Fate {
        if random.below(4) < keep {
            return Fate::Kept;
        }
        match random.below(4) {
            0 => Fate::Head,
            1 => Fate::Tail,
            2 => Fate::Scattered,
            _ => Fate::Lost,
        }
    }
}

/// Sparse bytes, zero where nothing was written.
#[derive(Clone, Default)]
struct Sparse(BTreeMap<u64, Box<[u8; PAGE]>>);

impl Sparse {
    fn read(&self, at: u64, buf: &mut [u8]) {
        for_pages(at, buf.len() as u64, |page, offset, done, n| match self.0.get(&page) {
            Some(bytes) => buf[done..done + n].copy_from_slice(&bytes[offset..offset + n]),
            None => buf[done..done + n].fill(0),
        });
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        for_pages(at, bytes.len() as u64, |page, offset, done, n| {
            let page = self.0.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            page[offset..offset + n].copy_from_slice(&bytes[done..done + n]);
        });
    }

    fn zero(&mut self, at: u64, len: u64) {
        for_pages(at, len, |page, offset, _, n| {
            if n == PAGE {
                self.0.remove(&page);
            } else if let Some(bytes) = self.0.get_mut(&page) {
                bytes[offset..offset + n].fill(0);
            }
        });
    }

    fn apply(&mut self, operation: &Unsynced) {
        match operation {
            Unsynced::Write { at, bytes } => self.write(*at, bytes),
            Unsynced::Zero { at, len } => self.zero(*at, *len),
        }
    }

    fn apply_part(&mut self, operation: &Unsynced, fate: Fate, random: &mut Random) {
        let (at, len) = operation.range();
        // Operations tear at multiples of 512 in the file, wherever they begin.
        let first = at / TEAR as u64;
        let sectors = (at + len).div_ceil(TEAR as u64) - first;
        let split = random.below(sectors + 1);
        let survives = |i: u64, random: &mut Random| match fate {
            Fate::Lost => false,
            Fate::Kept => true,
            Fate::Head => i < split,
            Fate::Tail => i >= split,
            Fate::Scattered => random.one_in(2),
        };
        for i in 0..sectors {
            if !survives(i, random) {
                continue;
            }
            let from = ((first + i) * TEAR as u64).max(at);
            let to = ((first + i + 1) * TEAR as u64).min(at + len);
            match operation {
                Unsynced::Write { bytes, .. } => {
                    self.write(from, &bytes[(from - at) as usize..(to - at) as usize]);
                }
                Unsynced::Zero { .. } => self.zero(from, to - from),
            }
        }
    }
}

/// Calls `each` for every page of a range with the page, the offset in the page, the bytes before
/// it, and the bytes in it.
fn for_pages(at: u64, len: u64, mut each: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < len {
        let (page, offset) = ((at + done) / PAGE as u64, (at + done) % PAGE as u64);
        let n = (PAGE as u64 - offset).min(len - done);
        each(page, offset as usize, done as usize, n as usize);
        done += n;
    }
}

/// SplitMix64: small, accepts any seed, and good enough for placing faults.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Random number below `n`, which has to be small compared with 2^64.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twin(seed: u64) -> CutBacking {
        let twin = CutBacking::new(seed);
        twin.set_len(1 << 20).unwrap();
        twin
    }

    fn sector(backing: &CutBacking, at: u64) -> u8 {
        let mut byte = [0];
        backing.read_at(&mut byte, at).unwrap();
        byte[0]
    }

    #[test]
    fn synced_survives_every_cut() {
        for seed in 0..50 {
            let twin = twin(seed);
            twin.write_at(&[1; 4096], 512).unwrap();
            twin.sync().unwrap();
            twin.write_at(&[2; 1024], 8192).unwrap();
            let after = twin.restart(seed);
            assert!((0..8).all(|s| sector(&after, 512 + s * 512) == 1));
        }
    }

    #[test]
    fn unsynced_is_kept_lost_and_torn() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..1000 {
            let twin = twin(seed);
            twin.write_at(&[1; 2048], 0).unwrap();
            let after = twin.restart(seed);
            seen.insert((0..4).map(|s| sector(&after, s * 512)).collect::<Vec<_>>());
        }
        assert_eq!(seen.len(), 16, "every subset of four sectors comes up");
    }

    #[test]
    fn overlapping_writes_survive_in_either_order() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let twin = twin(seed);
            twin.write_at(&[1; 512], 0).unwrap();
            twin.write_at(&[2; 512], 0).unwrap();
            seen.insert(sector(&twin.restart(seed), 0));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn cut_in_the_midst_fails_that_call_and_all_later_ones() {
        let twin = twin(1);
        twin.cut_at(1);
        twin.write_at(&[1; 512], 0).unwrap();
        assert!(twin.sync().is_err());
        assert!(twin.write_at(&[1; 512], 0).is_err());
        assert!(twin.read_at(&mut [0], 0).is_err());
        assert!(twin.restart(1).read_at(&mut [0], 0).is_ok());
    }

    #[test]
    fn kill_keeps_the_cache_and_stops_the_process() {
        let twin = twin(1);
        twin.write_at(&[1; 512], 0).unwrap();
        let cache = twin.cache();
        twin.kill();
        assert!(twin.store(8, 7).is_err() && twin.write_at(&[2; 512], 0).is_err() && twin.sync().is_err());
        assert!(!twin.revive());
        assert_eq!((sector(&twin, 0), twin.cache()), (1, cache));
        assert_ne!(twin.restart(1).cache(), cache);
    }

    #[test]
    fn failed_sync_drops_dirty_data_that_reads_still_return() {
        let mut lost = 0;
        for seed in 0..100 {
            let twin = twin(seed);
            twin.fail_at(1);
            twin.write_at(&[1; 512], 0).unwrap();
            assert!(twin.sync().is_err());
            assert_eq!(sector(&twin, 0), 1);
            twin.sync().unwrap();
            lost += u32::from(sector(&twin.restart(seed), 0) == 0);
        }
        assert!((10..90).contains(&lost), "{lost} of 100");
    }

    #[test]
    fn ignored_syncs_leave_the_range_pending() {
        let survived = (0..100).filter(|&seed| {
            let twin = twin(seed);
            twin.ignore_syncs_of(0..4096);
            twin.write_at(&[1; 512], 0).unwrap();
            twin.write_at(&[1; 512], 4096).unwrap();
            twin.sync().unwrap();
            let after = twin.restart(seed);
            assert_eq!(sector(&after, 4096), 1);
            sector(&after, 0) == 1
        });
        assert!((10..90).contains(&survived.count()));
    }
}

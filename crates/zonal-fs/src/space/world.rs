//! All parts of space management together, with a minimal file system and drive: files of numbered
//! blocks, writes that end in any order, commits, a collector, and power cuts. After every step the
//! parts are consistent, every live or committed block is in its zone, and no writer waits for
//! ever.

use super::cost::Need;
use super::credits::{Answer, Credits, Drive, Refusal, Reservation, Reserve, Ticket, Urgency};
use super::load::ZoneAtMount;
use super::open::{OpenLimits, OpenZones, Packing, PlacementRequest, open_limit, plan_mount};
use super::zone::{Pin, ZoneState};
use super::zones::ZoneBook;
use super::{Choice, Lifetime, Owner, ZoneOrder, check, needs_gc, pressure};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use zonal_core::{ZoneCondition, ZoneIndex};

/// Size of a unit in blocks, header included.
const UNIT: u32 = 5;

/// Maximum number of collector steps that a writer may wait.
const PATIENCE: u32 = 10_000;

/// Location of a file's block, with a unique number of the written version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BlockAt {
    zone: ZoneIndex,
    id: u64,
}

/// Blocks of all files, by file and block number.
type Map = BTreeMap<(u8, u64), BlockAt>;

/// A block in flight to a zone.
#[derive(Clone, Copy, Debug)]
struct Carried {
    at: (u8, u64),
    id: u64,
    /// Source, if this is a copy.
    copy: Option<BlockAt>,
}

#[derive(Debug)]
struct UnitWrite {
    zone: ZoneIndex,
    carried: Vec<Carried>,
}

struct SpaceModel {
    book: ZoneBook,
    open: OpenZones,
    credits: Credits,
    map: Map,
    durable: Map,
    committed: u64,
    /// Readable blocks of each zone.
    contents: Vec<BTreeSet<u64>>,
    flights: Vec<UnitWrite>,
    ids: u64,
    capacity: u32,
}

#[derive(Clone, Debug)]
enum Call {
    Write { file: u8, block: u64, blocks: u32, urgency: Urgency, fails: bool },
    Delete { file: u8, from: u64, blocks: u64 },
    End(usize),
    Commit,
    BackgroundStep,
    PowerCut,
}

fn call() -> impl Strategy<Value = Call> {
    let urgency = prop_oneof![5 => Just(Urgency::Wait), 1 => Just(Urgency::NoWait)];
    let fails = prop_oneof![19 => Just(false), 1 => Just(true)];
    prop_oneof![
        20 => (0..4u8, 0..60u64, 1..UNIT, urgency, fails)
            .prop_map(|(file, block, blocks, urgency, fails)| Call::Write { file, block, blocks, urgency, fails }),
        3 => (0..4u8, 0..60u64, 1..40u64).prop_map(|(file, from, blocks)| Call::Delete { file, from, blocks }),
        12 => (0..8usize).prop_map(Call::End),
        2 => Just(Call::Commit),
        2 => Just(Call::BackgroundStep),
        1 => Just(Call::PowerCut),
    ]
}

fn found(capacity: u32, pointer: u32, used: u32) -> ZoneAtMount {
    let condition = match pointer {
        0 => ZoneCondition::Empty,
        _ if pointer == capacity => ZoneCondition::Full,
        _ => ZoneCondition::Closed,
    };
    ZoneAtMount::Data { capacity, pointer, condition, used }
}

impl SpaceModel {
    fn new(zones: u32, capacity: u32) -> SpaceModel {
        let found = (0..zones).map(|_| found(capacity, 0, 0));
        let book = ZoneBook::load(UNIT, found).expect("a new drive");
        let limit = open_limit(OpenLimits { option: Some(4), device: None, zones }).expect("enough zones");
        let credits = super::initial_credits(&book, reserve(&book));
        let contents = vec![BTreeSet::new(); zones as usize];
        let (map, durable) = (Map::new(), Map::new());
        let open = OpenZones::new(limit);
        SpaceModel {
            book,
            open,
            credits,
            map,
            durable,
            committed: 0,
            contents,
            flights: Vec::new(),
            ids: 0,
            capacity,
        }
    }

    fn step(&mut self, call: Call) {
        match call {
            Call::Write { file, block, blocks, urgency, fails } => {
                let at = (block..block + u64::from(blocks)).map(|block| (file, block)).collect();
                self.write(at, urgency, fails);
            }
            Call::Delete { file, from, blocks } => {
                let range = (file, from)..(file, from + blocks);
                let gone: Vec<_> = self.map.range(range).map(|(at, _)| *at).collect();
                gone.into_iter().for_each(|at| self.free(at));
            }
            Call::End(place) => drop(self.end(place)),
            Call::Commit => self.commit(),
            Call::BackgroundStep => drop(self.background_step()),
            Call::PowerCut => self.power_cut(),
        }
    }

    fn write(&mut self, mut at: Vec<(u8, u64)>, urgency: Urgency, fails: bool) {
        while !at.is_empty() {
            let blocks = at.len() as u64;
            let need = Need { extents: blocks, available: blocks + 1 };
            let Some(mut reservation) = self.reserve(need, urgency) else { return };
            let request =
                PlacementRequest::User { cached: None, hint: Lifetime::NotSet, packing: Packing::Spread };
            let (zone, room) = self.place_patiently(request, at.len() as u32);
            let now: Vec<_> = at.drain(..room as usize).collect();
            let spent = Need { extents: u64::from(room), available: u64::from(room) + 1 };
            self.credits.spend(&mut reservation, spent).expect("reserved");
            self.credits.give_back(reservation);
            let carried = now.into_iter().map(|at| Carried { at, id: self.next_id(), copy: None }).collect();
            self.fly(zone, carried, fails);
        }
    }

    fn next_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Sends a unit to the device, or lets it fail at once.
    fn fly(&mut self, zone: ZoneIndex, carried: Vec<Carried>, fails: bool) {
        if !fails {
            self.flights.push(UnitWrite { zone, carried });
            return;
        }
        self.credits.freed(carried.len() as u64);
        self.book.end(zone, carried.len() as u32 + 1, 0).expect("it was handed out");
        self.close(zone);
    }

    fn reserve(&mut self, need: Need, urgency: Urgency) -> Option<Reservation> {
        match self.credits.reserve(need, urgency) {
            Ok(reservation) => Some(reservation),
            Err(Refusal::Queued(ticket)) => self.wait(ticket),
            Err(Refusal::WouldWait) => None,
            Err(Refusal::NoSpace) => {
                let exhausted = self.credits.user().extents < need.extents;
                assert!(exhausted || self.credits.user().available < need.available);
                None
            }
        }
    }

    /// Waits in line, and collects meanwhile.
    fn wait(&mut self, mut ticket: Ticket) -> Option<Reservation> {
        for _ in 0..PATIENCE {
            match self.credits.state(ticket) {
                Answer::Granted(reservation) => return Some(reservation),
                Answer::NoSpace => return None,
                Answer::Waiting(again) => ticket = again,
            }
            let _ = self.background_step() || self.end(0);
            self.check();
        }
        panic!("a writer waits for ever: {:?}", self.credits);
    }

    fn place_patiently(&mut self, request: PlacementRequest, blocks: u32) -> (ZoneIndex, u32) {
        for _ in 0..PATIENCE {
            match self.place(request, blocks) {
                Some(placed) => return placed,
                None => assert!(self.end(0) || self.background_step(), "no zone for {request:?}"),
            }
        }
        panic!("there is credit and no room for {request:?}");
    }

    /// Chooses a zone, and allocates there as many of `blocks` data blocks as fit one unit.
    fn place(&mut self, request: PlacementRequest, blocks: u32) -> Option<(ZoneIndex, u32)> {
        loop {
            let zone = match self.open.choose(request, self.book.count(ZoneState::Free)) {
                Choice::Zone(opened) => opened.zone,
                Choice::OpenNew => {
                    let zone = self.book.take_free(ZoneOrder::LowestIndex).expect("one is free");
                    let owner = if request == PlacementRequest::Gc { Owner::Gc } else { Owner::User };
                    self.open.open(zone, Lifetime::NotSet, owner).zone
                }
                Choice::Wait => return None,
            };
            let unit = (blocks + 1).min(self.book.zone(zone).expect("it is open").available());
            if unit >= 2 {
                self.book.allocate(zone, unit).expect("there is room");
                self.check_zone(zone);
                return Some((zone, unit - 1));
            }
            self.close(zone);
        }
    }

    fn close(&mut self, zone: ZoneIndex) {
        if self.book.zone(zone).expect("it is there").state == ZoneState::Open {
            let lost = self.book.close(zone).expect("it is open");
            self.credits.lost(lost);
        }
        self.check_zone(zone);
    }

    fn check_zone(&mut self, zone: ZoneIndex) {
        let account = *self.book.zone(zone).expect("it is there");
        if account.state != ZoneState::Open {
            self.open.filled(zone);
            if account.written == account.allocated {
                self.open.remove(zone);
            }
        }
    }

    fn free(&mut self, at: (u8, u64)) {
        if let Some(old) = self.map.remove(&at) {
            self.book.free(old.zone, 1, self.committed + 1).expect("it was live");
            self.credits.freed(1);
        }
    }

    /// Ends a write in flight by its index. Returns false if there is none.
    fn end(&mut self, place: usize) -> bool {
        if place >= self.flights.len() {
            return false;
        }
        let UnitWrite { zone, carried } = self.flights.remove(place);
        self.contents[zone.0 as usize].extend(carried.iter().map(|c| c.id));
        let blocks = carried.len() as u32 + 1;
        // A later write of the block may have ended earlier. The newest one is valid.
        let counts = |c: &&Carried| match c.copy {
            Some(from) => self.map.get(&c.at) == Some(&from),
            None => self.map.get(&c.at).is_none_or(|there| there.id < c.id),
        };
        let live: Vec<Carried> = carried.iter().filter(counts).copied().collect();
        self.book.end(zone, blocks, live.len() as u32).expect("it was handed out");
        for c in &live {
            self.free(c.at);
            self.map.insert(c.at, BlockAt { zone, id: c.id });
        }
        self.credits.freed((carried.len() - live.len()) as u64);
        for from in carried.iter().filter_map(|c| c.copy) {
            self.book.unpin(from.zone, Pin::Copy).expect("it was pinned");
        }
        self.check_zone(zone);
        true
    }

    fn commit(&mut self) {
        self.durable = self.map.clone();
        self.committed += 1;
    }

    /// One step of the collector. Returns false if there was nothing to do.
    fn background_step(&mut self) -> bool {
        let due = self.book.dead_zones(self.committed).next();
        if let Some(zone) = due {
            self.book.begin_reset(zone, self.committed).expect("it is due");
            self.contents[zone.0 as usize].clear();
            let blocks = self.book.end_reset(zone).expect("it is being reset");
            self.credits.made_available(blocks.into());
            return true;
        }
        let has_dead = self.book.commit_wanted().is_some_and(|commit| commit > self.committed);
        if has_dead {
            self.commit();
            return true;
        }
        let copies = self.flights.iter().position(|f| f.carried.iter().any(|c| c.copy.is_some()));
        if let Some(place) = copies {
            return self.end(place);
        }
        let reason = needs_gc(pressure(&self.book, &self.open, &self.credits, 0));
        let Some(victim) = reason.and_then(|_| self.book.victim()) else {
            self.credits.gc_is_idle(self.book.is_reclaimable());
            return false;
        };
        self.credits.gc_runs(super::pace_mark(&self.book, &self.open, &self.credits));
        self.collect(victim);
        true
    }

    /// Copies all live blocks of `victim`.
    fn collect(&mut self, victim: ZoneIndex) {
        let live: Vec<_> = self.map.iter().filter(|(_, p)| p.zone == victim).map(|(a, p)| (*a, *p)).collect();
        // Held until all copies are sent, so that the victim is not reset if its last blocks are
        // freed meanwhile.
        self.book.pin(victim, Pin::Copy).expect("it is full");
        let mut left = &live[..];
        while !left.is_empty() {
            let blocks = left.len().min(UNIT as usize - 1) as u32;
            let need = Need { extents: u64::from(blocks), available: u64::from(blocks) + 1 };
            let mut pool = self.credits.reserve(need, Urgency::Gc).expect("the pool is there for it");
            let (zone, room) = self.place_patiently(PlacementRequest::Gc, blocks);
            let spent = Need { extents: u64::from(room), available: u64::from(room) + 1 };
            self.credits.spend(&mut pool, spent).expect("reserved");
            self.credits.give_back(pool);
            let (now, later) = left.split_at(room as usize);
            left = later;
            now.iter().for_each(|_| self.book.pin(victim, Pin::Copy).expect("it is full"));
            let copy = |&(at, from): &((u8, u64), BlockAt)| Carried { at, id: from.id, copy: Some(from) };
            self.fly(zone, now.iter().map(copy).collect(), false);
        }
        self.book.unpin(victim, Pin::Copy).expect("it was pinned");
    }

    /// Power cut: writes in flight are lost, with the space they took, and so are uncommitted
    /// changes.
    fn power_cut(&mut self) {
        self.flights.clear();
        self.map = self.durable.clone();
        let used = |zone: ZoneIndex| self.map.values().filter(|p| p.zone == zone).count() as u32;
        let pointer = |z: &super::zone::Zone| match z.state {
            ZoneState::Full | ZoneState::Dead => z.capacity,
            _ => z.allocated,
        };
        let zones = self.book.iter().map(|(zone, z)| found(self.capacity, pointer(z), used(zone)));
        self.book = ZoneBook::load(UNIT, zones).expect("what is durable does not contradict the drive");
        let is_open = |z: &(ZoneIndex, &super::zone::Zone)| z.1.state == ZoneState::Open;
        let partial: Vec<_> = self.book.iter().filter(is_open).map(|(zone, z)| (zone, z.allocated)).collect();
        let plan = plan_mount(partial.iter().copied(), self.open.max(), self.book.count(ZoneState::Free));
        for &zone in &plan.finish {
            self.book.close(zone).expect("it is open");
        }
        let kept = partial.into_iter().map(|z| z.0).filter(|zone| !plan.finish.contains(zone));
        self.open = OpenZones::new(self.open.max());
        self.open.remount(kept, plan.steal);
        self.credits = super::initial_credits(&self.book, reserve(&self.book));
    }

    fn check(&self) {
        check(&self.book, &self.open, &self.credits);
        for (at, place) in self.map.iter().chain(&self.durable) {
            let has = self.contents[place.zone.0 as usize].contains(&place.id);
            assert!(has, "{at:?} is not at {place:?}");
        }
        for (zone, account) in self.book.iter() {
            let live = self.map.values().filter(|p| p.zone == zone).count();
            assert_eq!(account.used as usize, live, "zone {zone}");
        }
    }
}

fn reserve(book: &ZoneBook) -> Reserve {
    let zone_blocks = book.zone_blocks();
    let zones = u64::from(book.len());
    Reserve::of(Drive { zones, zone_blocks, zone_data: book.data_blocks(zone_blocks), option: 0 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn files_keep_their_blocks_and_writers_are_answered(
        zones in 5..11u32,
        capacity in 10..41u32,
        calls in prop::collection::vec(call(), 0..400),
    ) {
        let mut world = SpaceModel::new(zones, capacity);
        for call in calls {
            world.step(call);
            world.check();
        }
    }
}

//! The scheduler compared with a list that is searched from end to end each time.

use super::*;
use proptest::prelude::*;

const ZONES: u32 = 4;

#[derive(Clone, Debug)]
struct Waiting {
    direction: Direction,
    start: u64,
    end: u64,
    zone: Option<u32>,
    mergeable: bool,
    arrival: usize,
    deadline: u64,
    tokens: Vec<u32>,
}

struct Naive {
    options: Options,
    rotational: bool,
    waiting: Vec<Waiting>,
    arrivals: usize,
    last: Direction,
    latest: [u64; 2],
    batching: u32,
    starved: u32,
}

impl Naive {
    fn new(options: Options, rotational: bool) -> Naive {
        Naive {
            options,
            rotational,
            waiting: Vec::new(),
            arrivals: 0,
            last: Direction::Write,
            latest: [0; 2],
            batching: 0,
            starved: 0,
        }
    }

    fn insert(&mut self, now: u64, request: &Request<u32>) {
        let expire = match request.direction {
            Direction::Read => self.options.read_expire,
            Direction::Write => self.options.write_expire,
        };
        self.arrivals += 1;
        let new = Waiting {
            direction: request.direction,
            start: request.sector.0,
            end: request.sector.0 + request.sectors.0,
            zone: request.zone.map(|z| z.0),
            mergeable: request.mergeable,
            arrival: self.arrivals,
            deadline: now + expire.0,
            tokens: vec![request.token],
        };
        let (start, end) = (new.start, new.end);
        let before = self.sorted(new.direction).into_iter().rfind(|w| w.start <= start);
        if let Some(before) = before.filter(|w| w.end == start && mergeable(w, &new)) {
            let joined = self.join(before, new);
            let behind = self.sorted(joined.direction).into_iter().find(|w| w.start == end);
            let behind = behind.filter(|b| mergeable(&joined, b));
            let joined = behind.map_or(joined.clone(), |behind| self.join(joined, behind));
            return self.waiting.push(joined);
        }
        let behind = self.sorted(new.direction).into_iter().find(|w| w.start == end);
        let behind = behind.filter(|b| self.options.front_merges && mergeable(&new, b));
        let joined = behind.map_or(new.clone(), |behind| self.join(new, behind));
        self.waiting.push(joined);
    }

    /// Removes both and merges them.
    fn join(&mut self, a: Waiting, b: Waiting) -> Waiting {
        self.waiting.retain(|w| w.arrival != a.arrival && w.arrival != b.arrival);
        let older = if a.arrival < b.arrival { &a } else { &b };
        let (arrival, deadline) = (older.arrival, older.deadline);
        Waiting { end: b.end, arrival, deadline, tokens: [a.tokens.clone(), b.tokens].concat(), ..a }
    }

    fn sorted(&self, direction: Direction) -> Vec<Waiting> {
        let mut list: Vec<_> = self.waiting.iter().filter(|w| w.direction == direction).cloned().collect();
        list.sort_by_key(|w| (w.start, w.arrival));
        list
    }

    fn aged(&self, direction: Direction) -> Vec<Waiting> {
        let mut list = self.sorted(direction);
        list.sort_by_key(|w| w.arrival);
        list
    }

    fn next(&self, direction: Direction, locked: &BTreeSet<u32>) -> Option<Waiting> {
        let mut list = self.sorted(direction);
        list.retain(|w| w.start >= self.latest[direction as usize]);
        while let Some(first) = list.first().cloned() {
            if !first.zone.is_some_and(|z| locked.contains(&z)) {
                return Some(first);
            }
            list.remove(0);
            let mut end = first.end;
            while self.rotational && list.first().is_some_and(|w| w.start == end) {
                end = list.remove(0).end;
            }
        }
        None
    }

    fn oldest(&self, direction: Direction, locked: &BTreeSet<u32>) -> Option<Waiting> {
        let sorted = self.sorted(direction);
        for old in self.aged(direction) {
            let lowest = sorted.iter().position(|w| w.zone.is_some() && w.zone == old.zone);
            let index =
                lowest.unwrap_or_else(|| sorted.iter().position(|w| w.arrival == old.arrival).unwrap());
            let candidate = &sorted[index];
            let is_locked = candidate.zone.is_some_and(|z| locked.contains(&z));
            let continues = index > 0 && sorted[index - 1].end == candidate.start;
            let in_run = direction == Direction::Write && self.rotational && continues;
            if !is_locked && !in_run {
                return Some(candidate.clone());
            }
        }
        None
    }

    fn dispatch(&mut self, now: u64, locked: &BTreeSet<u32>) -> Option<Waiting> {
        if self.batching < self.options.fifo_batch
            && let Some(next) = self.next(self.last, locked)
        {
            return Some(self.take(next));
        }
        let reads = !self.aged(Direction::Read).is_empty();
        let write_could = self.oldest(Direction::Write, locked).is_some();
        let mut direction = Direction::Write;
        if reads && !(write_could && self.starved >= self.options.writes_starved) {
            direction = Direction::Read;
            self.starved += u32::from(write_could);
        } else if !self.waiting.is_empty() {
            self.starved = 0;
        }
        let expired = self.aged(direction).first().is_some_and(|w| w.deadline <= now);
        let next = self.next(direction, locked).filter(|_| !expired);
        let chosen = next.or_else(|| self.oldest(direction, locked))?;
        (self.last, self.batching) = (direction, 0);
        Some(self.take(chosen))
    }

    fn take(&mut self, chosen: Waiting) -> Waiting {
        self.waiting.retain(|w| w.arrival != chosen.arrival);
        let place = chosen.zone.map_or(chosen.start, |z| u64::from(z) * ZONE_SIZE);
        self.latest[chosen.direction as usize] = place;
        self.batching += 1;
        chosen
    }

    fn remove_zone(&mut self, zone: u32) -> Vec<u32> {
        let gone = self.sorted(Direction::Write).into_iter().filter(|w| w.zone == Some(zone));
        let tokens = gone.flat_map(|w| w.tokens).collect();
        self.waiting.retain(|w| w.zone != Some(zone));
        tokens
    }
}

fn mergeable(a: &Waiting, b: &Waiting) -> bool {
    a.mergeable && b.mergeable && a.zone == b.zone && (b.end - b.start) + (a.end - a.start) <= 16
}

#[derive(Clone, Debug)]
enum SchedulerEvent {
    Insert(RequestKind, u64, u64),
    Dispatch,
    Unlock(u32),
    Drop(u32),
    Later(u64),
}

fn kind() -> impl Strategy<Value = RequestKind> {
    prop_oneof![4 => Just(RequestKind::Read), 6 => Just(RequestKind::Write), 1 => Just(RequestKind::Anywhere), 1 => Just(RequestKind::Alone)]
}

fn event() -> impl Strategy<Value = SchedulerEvent> {
    // Few addresses, so that requests touch and overlap.
    let place =
        (0..ZONES, 0..12u64).prop_map(|(zone, n)| u64::from(zone) * ZONE_SIZE + n * 8 + (n > 9) as u64 * 4);
    prop_oneof![
        8 => (kind(), place, 1..3u64).prop_map(|(kind, at, n)| {
            let sectors = (n * 8).min(ZONE_SIZE - at % ZONE_SIZE);
            // Zone 0 is conventional.
            let at = match kind {
                RequestKind::Anywhere => at % ZONE_SIZE,
                RequestKind::Write | RequestKind::Alone if at < ZONE_SIZE => at + ZONE_SIZE,
                _ => at,
            };
            SchedulerEvent::Insert(kind, at, sectors)
        }),
        7 => Just(SchedulerEvent::Dispatch),
        3 => (0..ZONES).prop_map(SchedulerEvent::Unlock),
        1 => (1..ZONES).prop_map(SchedulerEvent::Drop),
        1 => (0..2000u64).prop_map(SchedulerEvent::Later),
    ]
}

pub(super) fn options() -> impl Strategy<Value = Options> {
    (0..5u32, 0..4u32, any::<bool>()).prop_map(|(fifo_batch, writes_starved, front_merges)| Options {
        fifo_batch,
        writes_starved,
        front_merges,
        ..Options::default()
    })
}

proptest! {
    #[test]
    fn scheduler_does_what_the_naive_one_does(
        options in options(),
        rotational: bool,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut rig: SchedulerRig<u32> = SchedulerRig::new(options, rotational);
        let mut naive = Naive::new(options, rotational);
        let (mut came, mut left) = (0, Vec::new());
        for event in events {
            match event {
                SchedulerEvent::Insert(kind, sector, sectors) => {
                    let before = naive.waiting.len();
                    naive.insert(rig.now * MS, &kind.request(sector, sectors, came));
                    let inserted = rig.insert(kind, sector, sectors, came);
                    prop_assert_eq!(inserted == Inserted::Queued, naive.waiting.len() == before + 1);
                    came += 1;
                }
                SchedulerEvent::Dispatch => {
                    let expected = naive.dispatch(rig.now * MS, &rig.locked);
                    let dispatched = rig.dispatch();
                    let ours = dispatched.map(|d| {
                        let zone = d.zone.map(|z| z.0);
                        let end = d.sector.0 + d.sectors.0;
                        (d.direction, d.sector.0, end, zone, d.parts.into_iter().collect::<Vec<_>>())
                    });
                    let theirs = expected.map(|w| (w.direction, w.start, w.end, w.zone, w.tokens));
                    prop_assert_eq!(&ours, &theirs);
                    if let Some((_, _, _, zone, tokens)) = ours {
                        left.extend(tokens);
                        rig.locked.extend(zone);
                    }
                }
                SchedulerEvent::Unlock(zone) => drop(rig.locked.remove(&zone)),
                SchedulerEvent::Drop(zone) => {
                    let has_writes = rig.scheduler.has_writes(ZoneIndex(zone));
                    let tokens = rig.scheduler.remove_zone(ZoneIndex(zone));
                    prop_assert_eq!(has_writes, !tokens.is_empty());
                    prop_assert_eq!(&tokens, &naive.remove_zone(zone));
                    left.extend(tokens);
                }
                SchedulerEvent::Later(ms) => rig.now += ms,
            }
            prop_assert_eq!(rig.scheduler.check(), Ok(()));
            prop_assert_eq!(rig.scheduler.len(), naive.waiting.len());
            let deadlines = [Direction::Read, Direction::Write].map(|d| naive.aged(d).first().map(|w| w.deadline));
            let first = deadlines.into_iter().flatten().min().map(Nanos);
            prop_assert_eq!(rig.scheduler.next_deadline(), first);
        }
        rig.locked.clear();
        left.extend(std::iter::from_fn(|| rig.dispatch()).flat_map(|d| d.parts));
        left.sort_unstable();
        prop_assert_eq!(left, (0..came).collect::<Vec<_>>(), "each request leaves once");
        prop_assert!(rig.scheduler.is_empty());
    }
}

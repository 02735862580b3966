//! The budget compared with a model that scans all zones each time, and its guarantees to waiting
//! zones.

use super::*;
use proptest::prelude::*;

const ZONES: u32 = 9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Nothing,
    Active,
    Open,
}

#[derive(Clone, Debug)]
struct Zone {
    class: usize,
    level: Level,
    explicit: bool,
    stuck: bool,
    writes: u32,
    /// Sectors written at the last observation.
    written: u32,
    /// Level before a grant that is not used yet.
    promised: Option<Level>,
    /// Being closed (false) or finished (true) on behalf of a class.
    leaving: Option<(bool, usize)>,
    nearly_full: bool,
    used: u64,
    waits: Option<u64>,
    passed: u32,
}

impl Zone {
    fn new() -> Zone {
        Zone {
            class: 0,
            level: Level::Nothing,
            explicit: false,
            stuck: false,
            writes: 0,
            written: 0,
            promised: None,
            leaving: None,
            nearly_full: false,
            used: 0,
            waits: None,
            passed: 0,
        }
    }

    fn busy(&self) -> bool {
        self.writes > 0 || self.promised.is_some()
    }

    fn in_line(&self) -> bool {
        self.waits.is_some() && self.leaving.is_none()
    }

    fn idle(&self) -> bool {
        !self.busy() && !self.explicit && !self.stuck && self.leaving.is_none() && self.waits.is_none()
    }

    fn open(&self) -> bool {
        self.level == Level::Open
    }

    fn active(&self) -> bool {
        self.level != Level::Nothing
    }
}

struct Naive {
    limits: Limits,
    policy: Policy,
    minimums: Vec<u32>,
    zones: Vec<Zone>,
    woken: Vec<u32>,
    clock: u64,
}

impl Naive {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn room(&self, max: u32, class: usize, holds: impl Fn(&Zone) -> bool) -> bool {
        let held = |c| self.zones.iter().filter(|z| z.class == c && holds(z)).count() as u32;
        let others = (0..self.minimums.len()).filter(|&c| c != class);
        max == 0 || held(class) + others.map(|c| held(c).max(self.minimums[c])).sum::<u32>() < max
    }

    /// `Some(true)` if an active slot is missing, `Some(false)` if an open one is.
    fn lack(&self, zone: usize, at_best: bool) -> Option<bool> {
        let z = &self.zones[zone];
        let gone = |z: &Zone, of_active: bool| {
            let leaves = z.leaving.is_some_and(|(finishing, _)| finishing || !of_active);
            at_best && (z.busy() || leaves)
        };
        let active = self.room(self.limits.active_max, z.class, |z| z.active() && !gone(z, true));
        let open = self.room(self.limits.open_max, z.class, |z| z.open() && !gone(z, false));
        match z.level {
            Level::Open => None,
            Level::Nothing if !active => Some(true),
            _ if !open => Some(false),
            _ => None,
        }
    }

    fn line(&self, class: usize) -> Vec<usize> {
        let mut line: Vec<usize> = (0..self.zones.len())
            .filter(|&z| self.zones[z].class == class && self.zones[z].in_line())
            .collect();
        line.sort_by_key(|&z| self.zones[z].waits);
        line
    }

    /// Zones of a class eligible to be served: those with no zone of the same kind ahead, and that
    /// would overtake no zone for the second time.
    fn heads(&self, class: usize) -> Vec<usize> {
        let line = self.line(class);
        let may = |&(n, &zone): &(usize, &usize)| {
            let mut before = line[..n].iter().map(|&z| &self.zones[z]);
            let level = self.zones[zone].level;
            before.all(|b| b.level != level && (level == Level::Nothing || b.passed == 0))
        };
        line.iter().enumerate().filter(may).map(|(_, &zone)| zone).collect()
    }

    fn classes(&self) -> std::ops::Range<usize> {
        0..self.minimums.len()
    }

    fn grant(&mut self) {
        loop {
            let heads: Vec<usize> = self.classes().flat_map(|class| self.heads(class)).collect();
            let fits = heads.into_iter().filter(|&z| self.lack(z, false).is_none());
            let Some(zone) = fits.min_by_key(|&z| self.zones[z].waits) else { return };
            let (class, arrival) = (self.zones[zone].class, self.zones[zone].waits);
            let passes = self
                .line(class)
                .iter()
                .any(|&z| self.zones[z].level == Level::Nothing && self.zones[z].waits < arrival);
            let used = self.tick();
            for z in self.zones.iter_mut().filter(|z| passes && z.class == class && z.waits < arrival) {
                z.passed += u32::from(z.waits.is_some());
            }
            let z = &mut self.zones[zone];
            (z.promised, z.level, z.waits, z.used, z.passed) = (Some(z.level), Level::Open, None, used, 0);
            self.woken.push(zone as u32);
        }
    }

    fn leave_line(&mut self, zone: usize) {
        (self.zones[zone].waits, self.zones[zone].passed) = (None, 0);
    }

    fn acquire(&mut self, zone: usize, class: usize) -> Acquired {
        let z = &mut self.zones[zone];
        if z.waits.is_some() {
            return Acquired::Wait;
        }
        if z.open() && z.leaving.is_none() {
            if !z.busy() {
                z.promised = Some(Level::Open);
            }
            return Acquired::Granted;
        }
        if !z.active() {
            z.class = class;
        }
        let class = z.class;
        self.woken.retain(|&w| w as usize != zone);
        self.zones[zone].waits = Some(self.tick());
        self.grant();
        if self.zones[zone].waits.is_none() {
            self.woken.retain(|&w| w as usize != zone);
            return Acquired::Granted;
        }
        if self.policy == Policy::Fail || self.stuck(class) == Some(zone) {
            return Acquired::Fail(self.refuse(zone));
        }
        Acquired::Wait
    }

    fn stuck(&self, class: usize) -> Option<usize> {
        let zone = *self.line(class).first()?;
        let is_stuck = self.lack(zone, true).is_some() && self.victim(zone).is_none();
        is_stuck.then_some(zone)
    }

    fn refuse(&mut self, zone: usize) -> Refusal {
        let lacks_active = self.lack(zone, false) == Some(true);
        let holds = |z: &Zone| z.open() || z.active() && lacks_active;
        let holders = (0..ZONES).filter(|&z| holds(&self.zones[z as usize])).map(ZoneIndex).collect();
        self.leave_line(zone);
        self.grant();
        Refusal { zone: ZoneIndex(zone as u32), holders }
    }

    fn victim(&self, zone: usize) -> Option<(usize, bool)> {
        let active = self.lack(zone, false)?;
        let class = self.zones[zone].class;
        let spare = |c: usize| {
            let stays = |z: &&Zone| match (active, z.leaving) {
                (true, leaving) => z.active() && leaving.is_none_or(|(finishing, _)| !finishing),
                (false, leaving) => z.open() && leaving.is_none(),
            };
            let stay = self.zones.iter().filter(|z| z.class == c).filter(stays).count() as u32;
            c == class || stay > self.minimums[c]
        };
        let oldest = |may: &dyn Fn(&Zone) -> bool| {
            let candidates = (0..self.zones.len()).filter(|&z| self.zones[z].idle() && may(&self.zones[z]));
            candidates.filter(|&z| spare(self.zones[z].class)).min_by_key(|&z| self.zones[z].used)
        };
        let may_close = matches!(self.policy, Policy::Close | Policy::Finish);
        let may_finish = self.policy == Policy::Finish;
        let close = oldest(&|z| may_close && z.open()).map(|z| (z, false));
        let finish_open = oldest(&|z| may_finish && z.open() && z.nearly_full).map(|z| (z, true));
        let finish_closed =
            oldest(&|z| may_finish && z.level == Level::Active && z.nearly_full).map(|z| (z, true));
        if active { finish_closed.or(finish_open) } else { close.or(finish_open) }
    }

    fn next(&mut self) -> Option<BudgetStep> {
        if !self.woken.is_empty() {
            return Some(wake(self.woken.remove(0)));
        }
        let asked = |c| self.zones.iter().filter(|z| z.leaving.is_some_and(|(_, by)| by == c)).count();
        let wanting = self.classes().filter(|&c| asked(c) < self.line(c).len());
        let wanted = wanting.filter_map(|c| {
            self.heads(c).into_iter().find_map(|z| Some((self.zones[z].waits, c, self.victim(z)?)))
        });
        let (_, class, (victim, finishing)) = wanted.min_by_key(|w| w.0)?;
        self.zones[victim].leaving = Some((finishing, class));
        Some(if finishing { finish(victim as u32) } else { close(victim as u32) })
    }

    fn expire(&mut self) -> Option<Refusal> {
        let zone = self.classes().find_map(|class| self.stuck(class))?;
        Some(self.refuse(zone))
    }

    fn set_condition(&mut self, zone: usize, condition: ZoneCondition, written: u32) {
        let used = self.tick();
        let z = &mut self.zones[zone];
        let wanted = z.waits.is_some() || z.promised.is_some();
        let lost = z.promised.is_some() && !condition.is_open();
        if z.waits.is_none() && !z.active() {
            z.class = 0;
        }
        z.level = match condition {
            c if c.is_open() => Level::Open,
            ZoneCondition::Closed => Level::Active,
            _ => Level::Nothing,
        };
        (z.explicit, z.leaving, z.used) = (condition == ZoneCondition::ExpOpen, None, used);
        (z.stuck, z.written) = (false, if z.active() { written } else { 0 });
        z.nearly_full = z.written * 20 > CAPACITY * 19;
        z.promised = (wanted && z.open()).then_some(Level::Open);
        if lost {
            self.woken.retain(|&w| w as usize != zone);
        }
        if self.zones[zone].waits.is_some() && (condition.is_open() || condition == ZoneCondition::Full) {
            self.leave_line(zone);
            self.woken.push(zone as u32);
        }
        self.grant();
    }

    fn look(&mut self, zone: usize, seen: Activity, written: u32) -> bool {
        let z = &self.zones[zone];
        if !z.open() || z.leaving.is_some() {
            return z.leaving.is_some();
        }
        let moved = z.written != written;
        let busy = seen == Activity::Busy || moved;
        if busy && (moved || z.writes != 1 || z.promised.is_some() || z.stuck != (seen == Activity::Stuck)) {
            self.zones[zone].used = self.tick();
        }
        let z = &mut self.zones[zone];
        (z.writes, z.stuck, z.written) = (busy.into(), seen == Activity::Stuck, written);
        z.nearly_full = written * 20 > CAPACITY * 19;
        if busy {
            z.promised = None;
        }
        busy
    }

    fn cancel(&mut self, zone: usize) {
        self.leave_line(zone);
        self.woken.retain(|&w| w as usize != zone);
        let z = &mut self.zones[zone];
        z.level = z.promised.take().unwrap_or(z.level);
        z.stuck &= z.active();
        self.grant();
    }
}

#[derive(Clone, Copy, Debug)]
enum BudgetEvent {
    Acquire(u32, u8),
    Start(u32),
    End(u32, u32),
    Became(u32, ZoneCondition, u32),
    Cancel(u32),
    /// Observation of a zone whose writes are not reported.
    Look(u32, Activity, u32),
    Quiet(u32),
    Steps,
    Expire,
}

fn event() -> impl Strategy<Value = BudgetEvent> {
    let zone = || 0..ZONES;
    let written = || prop_oneof![Just(10u32), Just(95), Just(96), Just(100)];
    let condition = prop_oneof![
        3 => Just(ZoneCondition::Full),
        3 => Just(ZoneCondition::Closed),
        2 => Just(ZoneCondition::Empty),
        1 => Just(ZoneCondition::ImpOpen),
        1 => Just(ZoneCondition::ExpOpen),
    ];
    let seen = prop_oneof![2 => Just(Activity::Busy), 3 => Just(Activity::Idle), 1 => Just(Activity::Stuck)];
    prop_oneof![
        8 => (zone(), 0..2u8).prop_map(|(z, c)| BudgetEvent::Acquire(z, c)),
        6 => zone().prop_map(BudgetEvent::Start),
        6 => (zone(), written()).prop_map(|(z, w)| BudgetEvent::End(z, w)),
        4 => (zone(), condition, written()).prop_map(|(z, c, w)| BudgetEvent::Became(z, c, w)),
        1 => zone().prop_map(BudgetEvent::Cancel),
        6 => (zone(), seen, written()).prop_map(|(z, s, w)| BudgetEvent::Look(z, s, w)),
        2 => zone().prop_map(BudgetEvent::Quiet),
        6 => Just(BudgetEvent::Steps),
        1 => Just(BudgetEvent::Expire),
    ]
}

fn setting() -> impl Strategy<Value = (Limits, Options)> {
    let policy = prop::sample::select(Policy::ALL.to_vec());
    let minimums = prop_oneof![2 => Just(vec![0, 0]), 1 => Just(vec![1, 1]), 1 => Just(vec![0, 2])];
    (0..5u32, 0..6u32, policy, minimums)
        .prop_map(|(open_max, active_max, policy, minimums)| {
            (Limits { open_max, active_max }, Options { policy, minimums, ..Options::default() })
        })
        .prop_filter("a drive's limits, and minimums within them", |(limits, options)| {
            let ordered = limits.active_max == 0 || limits.open_max <= limits.active_max;
            ordered && Budget::new(*limits, options.clone()).is_ok()
        })
}

fn pair(limits: Limits, options: &Options) -> (Budget, Naive) {
    let budget = Budget::new(limits, options.clone()).unwrap();
    let zones = vec![Zone::new(); ZONES as usize];
    let (policy, minimums) = (options.policy, options.minimums.clone());
    (budget, Naive { limits, policy, minimums, zones, woken: Vec::new(), clock: 0 })
}

/// Applies the event to both if the rules allow it, and compares the results.
fn apply(ours: &mut Budget, naive: &mut Naive, event: BudgetEvent) -> Result<(), TestCaseError> {
    let may_start = |z: &Zone| z.open() && z.leaving.is_none();
    match event {
        BudgetEvent::Acquire(zone, class) => {
            let theirs = naive.acquire(zone as usize, class.into());
            prop_assert_eq!(ours.acquire(ZoneIndex(zone), WriterClass(class), Nanos(0)), theirs);
        }
        BudgetEvent::Start(zone) if may_start(&naive.zones[zone as usize]) => {
            ours.write_started(ZoneIndex(zone));
            let used = naive.tick();
            let z = &mut naive.zones[zone as usize];
            (z.writes, z.promised, z.used) = (z.writes + 1, None, used);
        }
        BudgetEvent::End(zone, written) if naive.zones[zone as usize].writes > 0 => {
            ours.write_ended(ZoneIndex(zone), fill(written));
            let used = naive.tick();
            let z = &mut naive.zones[zone as usize];
            (z.writes, z.nearly_full, z.used) = (z.writes - 1, written * 20 > CAPACITY * 19, used);
            z.written = written;
            if written == CAPACITY && z.writes == 0 {
                return apply(ours, naive, BudgetEvent::Became(zone, ZoneCondition::Full, written));
            }
        }
        BudgetEvent::Became(zone, condition, written)
            if naive.zones[zone as usize].writes == 0 || condition.is_open() =>
        {
            ours.set_condition(ZoneIndex(zone), condition, fill(written));
            naive.set_condition(zone as usize, condition, written);
        }
        BudgetEvent::Cancel(zone) => {
            ours.cancel(ZoneIndex(zone));
            naive.cancel(zone as usize);
        }
        BudgetEvent::Look(zone, seen, written) => {
            let theirs = naive.look(zone as usize, seen, written);
            prop_assert_eq!(ours.observe(ZoneIndex(zone), seen, fill(written)), theirs);
        }
        BudgetEvent::Quiet(zone) => {
            ours.quiet(ZoneIndex(zone));
            naive.zones[zone as usize].writes = 0;
        }
        BudgetEvent::Steps => {
            for _ in 0..2 * ZONES {
                let theirs = naive.next();
                prop_assert_eq!(ours.next(), theirs);
            }
        }
        BudgetEvent::Expire => {
            for _ in 0..2 * ZONES {
                let theirs = naive.expire();
                prop_assert_eq!(ours.expire(Nanos(0)), theirs);
            }
        }
        BudgetEvent::Start(_) | BudgetEvent::End(..) | BudgetEvent::Became(..) => {}
    }
    Ok(())
}

fn compare(ours: &Budget, naive: &Naive) -> Result<(), TestCaseError> {
    prop_assert_eq!(ours.check(), Ok(()));
    let holders: Vec<_> = ours.holders().map(|h| (h.zone.0, h.class.index(), h.open, h.writes)).collect();
    let theirs = (0..ZONES).zip(&naive.zones).filter(|(_, z)| z.active());
    let theirs: Vec<_> = theirs.map(|(n, z)| (n, z.class, z.open(), z.writes)).collect();
    prop_assert_eq!(holders, theirs);
    let waiting: Vec<_> = ours.waiting().map(|w| (w.zone.0, w.class.index())).collect();
    let theirs = (0..ZONES).zip(&naive.zones).filter(|(_, z)| z.waits.is_some());
    let theirs: Vec<_> = theirs.map(|(n, z)| (n, z.class)).collect();
    prop_assert_eq!(waiting, theirs);
    Ok(())
}

proptest! {
    #[test]
    fn budget_does_what_the_naive_one_does(
        (limits, options) in setting(),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let (mut ours, mut naive) = pair(limits, &options);
        for event in events {
            apply(&mut ours, &mut naive, event)?;
            compare(&ours, &naive)?;
            prop_assert!(naive.zones.iter().all(|z| z.passed <= 1), "passed twice: {:?}", naive.zones);
        }
    }

    /// Unless zones were opened by others, held and reserved slots together fit the limits, so a
    /// class below its minimum is served at once.
    #[test]
    fn held_and_kept_slots_fit_the_limits(
        (limits, options) in setting(),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let (mut ours, mut naive) = pair(limits, &options);
        for event in events {
            if let BudgetEvent::Became(zone, condition, _) = event {
                let from = naive.zones[zone as usize].level;
                let is_taken = condition.is_open() && from != Level::Open;
                let is_adopted = condition.is_active() && from == Level::Nothing;
                if is_taken || is_adopted {
                    continue;
                }
            }
            apply(&mut ours, &mut naive, event)?;
            let kept = |held: fn(&Zone) -> bool| -> u32 {
                let held = |c| naive.zones.iter().filter(|z| z.class == c && held(z)).count() as u32;
                naive.classes().map(|c| held(c).max(naive.minimums[c])).sum()
            };
            prop_assert!(limits.open_max == 0 || kept(Zone::open) <= limits.open_max);
            prop_assert!(limits.active_max == 0 || kept(Zone::active) <= limits.active_max);
        }
    }

    /// Under the waiting policies, no zone waits forever as long as zones are filled. Without
    /// minimums, because a class may wait for slots that others never release.
    #[test]
    fn everyone_who_waits_is_served_if_what_is_written_gets_full(
        (limits, options) in setting(),
        asks in prop::collection::vec((0..ZONES, 0..2u8), 1..60),
    ) {
        let (mut b, _) = pair(limits, &Options { minimums: vec![0, 0], ..options.clone() });
        for (zone, class) in asks {
            let zone = ZoneIndex(zone);
            match b.acquire(zone, WriterClass(class), Nanos(0)) {
                Acquired::Granted => b.write_started(zone),
                Acquired::Wait => {}
                Acquired::Fail(_) => prop_assert_eq!(options.policy, Policy::Fail),
            }
        }
        for _ in 0..ZONES {
            prop_assert_eq!(b.expire(Nanos(0)), None);
            let waiting = b.waiting().count();
            let Some(Holder { zone, writes, .. }) = b.holders().next() else { break };
            for _ in 0..writes {
                b.write_ended(zone, fill(CAPACITY));
            }
            b.set_condition(zone, ZoneCondition::Full, fill(CAPACITY));
            prop_assert!(waiting == 0 || b.waiting().count() < waiting, "a slot came free for no zone");
            while let Some(step) = b.next() {
                let BudgetStep::Wake(zone) = step else { return Err(TestCaseError::fail("no zone is idle")) };
                b.write_started(zone);
            }
        }
        prop_assert_eq!((b.active(), b.waiting().count()), (0, 0));
    }
}

//! Rules: which commands something happens to, how often, and what.
//!
//! Pure: no device, no lock, no time but as a length. What is drawn by chance comes from a generator of the rule's own,
//! so that a rule decides the same whatever other rules stand beside it.

use crate::device::Command;
use crate::fault::Degraded;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::ops::RangeInclusive;
use zonal_core::{DeviceError, Geometry, Nanos, Op, ZoneIndex};

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ops(u16);

impl Ops {
    /// Every operation.
    pub const ANY: Ops = Ops::of(&[
        Op::Read,
        Op::Write,
        Op::WriteZeroes,
        Op::Append,
        Op::Flush,
        Op::ZoneReset,
        Op::ZoneFinish,
        Op::ZoneOpen,
        Op::ZoneClose,
        Op::ResetAll,
        Op::Report,
        Op::Verify,
        Op::ZoneOffline,
        Op::Discard,
    ]);
    /// What moves a sequential zone's pointer by carrying data.
    pub const WRITES: Ops = Ops::of(&[Op::Write, Op::WriteZeroes, Op::Append]);
    /// What reads or writes sectors of the medium.
    pub const DATA: Ops = Ops(Ops::WRITES.0 | Ops::of(&[Op::Read, Op::Verify]).0);
    /// What names one zone and carries no data.
    pub const MANAGEMENT: Ops =
        Ops::of(&[Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose, Op::ZoneOffline]);

    /// These.
    pub const fn of(ops: &[Op]) -> Ops {
        let mut set = 0;
        let mut n = 0;
        while n < ops.len() {
            set |= 1 << ops[n] as u8;
            n += 1;
        }
        Ops(set)
    }

    /// Whether `op` is one of them.
    pub const fn contains(self, op: Op) -> bool {
        self.0 & (1 << op as u8) != 0
    }

    /// Those of either.
    pub const fn or(self, other: Ops) -> Ops {
        Ops(self.0 | other.0)
    }

    /// Those of both.
    pub const fn and(self, other: Ops) -> Ops {
        Ops(self.0 & other.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Where on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulePlace {
    /// Anywhere, and commands without a place.
    Anywhere,
    /// In one of these zones. A report is in all zones that it asks for.
    Zones(RangeInclusive<u32>),
    /// In one of these sectors. An append and a zone command are at their zone's start.
    Sectors(RangeInclusive<u64>),
}

impl RulePlace {
    fn holds(&self, geometry: &Geometry, command: &Command) -> bool {
        let has_place = !matches!(command.op, Op::Flush | Op::ResetAll);
        let first = command.sector.0;
        match self {
            RulePlace::Anywhere => true,
            _ if !has_place || first >= geometry.sectors().0 => false,
            RulePlace::Zones(zones) => {
                let at = geometry.zone_of(command.sector).0;
                let more = if command.op == Op::Report { command.sectors.saturating_sub(1) } else { 0 };
                at <= *zones.end() && at.saturating_add(more) >= *zones.start()
            }
            RulePlace::Sectors(sectors) => {
                let has_length = Ops::DATA.contains(command.op) || command.op == Op::Discard;
                let more = if has_length { command.sectors.saturating_sub(1) } else { 0 };
                first <= *sectors.end() && first.saturating_add(more.into()) >= *sectors.start()
            }
        }
    }
}

/// When a command that was given up is carried out after all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// So long after its time-out was reported, unless it is settled before.
    After(Nanos),
    /// Right after the next report of its zone has been answered: too late for the host to see, unless it settled first.
    AfterReport,
    /// While it is being settled.
    AtSettle,
}

/// Whether a command that times out is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// It never is.
    Never,
    /// It was, and only its answer is lost.
    Before,
    /// It is, after the time-out was reported. Commands that change nothing never are.
    Late(Late),
}

/// What becomes of commands in flight when power is cut, and of those that come before it is back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// They end with [`DeviceError::Gone`].
    Fail,
    /// They never end.
    Lose,
}

/// What is reordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reordered {
    /// The commands, before they reach the device.
    Execution,
    /// Their answers.
    Completion,
}

/// What happens to a command.
///
/// Where the wrapped device refuses a command that would have been carried out, its refusal is the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Answered with this error, not carried out.
    Refuse(DeviceError),
    /// Carried out, and then answered with this error.
    Fail(DeviceError),
    /// The first `blocks` blocks are carried out, or a number by chance if none is given, and then the answer is this
    /// error.
    Torn {
        /// Logical blocks.
        blocks: Option<u32>,
        /// The answer.
        error: DeviceError,
    },
    /// A write that is acknowledged and moves the pointer, with bytes that end up nowhere: its blocks keep what lay there before.
    Lost,
    /// As [`Effect::Lost`], with bytes that overwrite as many other written blocks of the device, chosen by chance.
    Misdirected,
    /// The queue is full: nothing happens, and the host tries again.
    Busy,
    /// Answered with [`DeviceError::TimedOut`] after this time.
    TimeOut {
        /// From submission to the answer.
        after: Nanos,
        /// Whether it is carried out.
        carried: Carried,
    },
    /// This command and the next ones, `commands` in all, are answered with [`DeviceError::UnitAttention`] and not
    /// carried out, whatever they are.
    Attention {
        /// Number of commands, at least 1.
        commands: u32,
    },
    /// The command's zone falls, then the command meets it as it is.
    Degrade(Degraded),
    /// Power is cut before the command is carried out.
    PowerCut(InFlight),
    /// Not answered before this time has passed since submission.
    Delay(Nanos),
    /// Gathered until there are `window` of the rule's commands of a queue, or the first has waited for `hold`; then
    /// all continue in an order by chance.
    Reorder {
        /// What.
        what: Reordered,
        /// Number of commands, at least 2.
        window: u32,
        /// Longest wait.
        hold: Nanos,
    },
}

impl Effect {
    /// The operations that it can happen to.
    pub const fn ops(&self) -> Ops {
        match self {
            Effect::Torn { .. } => Ops::DATA,
            Effect::Lost | Effect::Misdirected => Ops::WRITES,
            Effect::Degrade(_) => Ops::DATA.or(Ops::MANAGEMENT),
            _ => Ops::ANY,
        }
    }

    /// Word for one that only a device with [`crate::device::Insight::misplaces`] can be asked for.
    pub(super) const fn misplaces(&self) -> Option<&'static str> {
        match self {
            Effect::Lost => Some("lost"),
            Effect::Misdirected => Some("misdirected"),
            _ => None,
        }
    }

    /// Whether it is about when a command is carried out and answered, rather than how: a command can meet one effect of
    /// either sort.
    pub const fn is_timing(&self) -> bool {
        matches!(self, Effect::Delay(_) | Effect::Reorder { .. })
    }
}

/// What happens to which commands, and how often.
///
/// ```
/// use zonal_core::{DeviceError, Op, ZoneIndex};
/// use zonal_io::fault::{Effect, Ops, Rule};
/// let third_write = Rule::new(Effect::Torn { blocks: Some(2), error: DeviceError::Medium })
///     .on(Ops::of(&[Op::Write]))
///     .zones(ZoneIndex(4)..=ZoneIndex(6))
///     .nth(3);
/// # let _ = third_write;
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    pub(super) ops: Ops,
    pub(super) place: RulePlace,
    pub(super) skip: u64,
    pub(super) every: u64,
    pub(super) count: u64,
    pub(super) rate: f64,
    pub(super) effect: Effect,
}

impl Rule {
    /// `effect` happens to every command that it can happen to.
    pub fn new(effect: Effect) -> Rule {
        let (ops, place) = (effect.ops(), RulePlace::Anywhere);
        Rule { ops, place, skip: 0, every: 1, count: u64::MAX, rate: 1.0, effect }
    }

    /// Only to these, and of them to those that it can happen to.
    pub fn on(mut self, ops: Ops) -> Rule {
        self.ops = ops.and(self.effect.ops());
        self
    }

    /// Only in this place.
    pub fn at(mut self, place: RulePlace) -> Rule {
        self.place = place;
        self
    }

    /// Only in these zones.
    pub fn zones(self, zones: RangeInclusive<ZoneIndex>) -> Rule {
        self.at(RulePlace::Zones(zones.start().0..=zones.end().0))
    }

    /// Only in this zone.
    pub fn zone(self, zone: ZoneIndex) -> Rule {
        self.zones(zone..=zone)
    }

    /// Not to the first `skip` that the rule is about.
    pub fn after(mut self, skip: u64) -> Rule {
        self.skip = skip;
        self
    }

    /// To the `nth` that the rule is about, from 1, and to no other.
    pub fn nth(self, nth: u64) -> Rule {
        self.after(nth.saturating_sub(1)).times(1)
    }

    /// To every `n`th of them, at least 1.
    pub fn every(mut self, n: u64) -> Rule {
        self.every = n.max(1);
        self
    }

    /// At most `count` times.
    pub fn times(mut self, count: u64) -> Rule {
        self.count = count;
        self
    }

    /// To each with this probability.
    pub fn rate(mut self, rate: f64) -> Rule {
        self.rate = rate;
        self
    }

    pub(super) fn takes(&self, geometry: &Geometry, command: &Command) -> bool {
        self.ops.contains(command.op) && self.place.holds(geometry, command)
    }
}

/// What a rule has seen and done, and its chance.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    seen: u64,
    pub(super) fired: u64,
    seed: u64,
    windows: u64,
    random: Pcg64Mcg,
}

impl Tally {
    /// For the rule with number `index`, of a plan with this seed.
    pub(super) fn new(seed: u64, index: u64) -> Tally {
        // An odd multiplier keeps the rules of one plan apart; the generator's own seeding mixes.
        let seed = seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Tally { seen: 0, fired: 0, seed, windows: 0, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Counts a command that `rule` is about; whether its effect happens.
    pub(super) fn fires(&mut self, rule: &Rule) -> bool {
        self.seen += 1;
        let is_in_turn = self.seen > rule.skip && (self.seen - rule.skip).is_multiple_of(rule.every);
        // Chance is drawn only where it decides, so that a seed's course does not depend on what cannot happen.
        let fires = is_in_turn && self.fired < rule.count && (rule.rate >= 1.0 || self.chance() < rule.rate);
        self.fired += u64::from(fires);
        fires
    }

    /// A number from 0 up to, but not, 1.
    fn chance(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        (self.draw() >> 11) as f64 * STEP
    }

    /// 64 bits.
    fn draw(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// A number up to, but not, `n`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        // The bias of a 64-bit product is 2^-32: nothing that a test could see.
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u32
    }

    /// A seed for the next window. Not drawn from what decides about commands: when a window opens may depend on time.
    pub(super) fn window_seed(&mut self) -> u64 {
        self.windows += 1;
        self.seed.rotate_left(32) ^ self.windows
    }

    /// Whether the rule can do nothing any more.
    pub(super) fn is_spent(&self, rule: &Rule) -> bool {
        self.fired >= rule.count
    }
}

/// Puts `things` into an order by chance that is not the one they have, if there are two.
pub(super) fn shuffle<T>(seed: u64, things: &mut [T]) {
    let mut random = Tally::new(seed, 0);
    let mut has_moved = false;
    for last in (1..things.len()).rev() {
        let other = random.below(last as u32 + 1) as usize;
        has_moved |= other != last;
        things.swap(last, other);
    }
    if !has_moved {
        things.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sector, Sectors};

    fn geometry() -> Geometry {
        Geometry::new(Sectors(8 * 64), Sectors(64), Sectors(0), 1).unwrap()
    }

    fn command(op: Op, sector: u64, sectors: u32) -> Command {
        Command::new(op, Sector(sector), sectors)
    }

    fn pattern(rule: &Rule, seed: u64, length: usize) -> String {
        let mut tally = Tally::new(seed, 0);
        (0..length).map(|_| if tally.fires(rule) { 'x' } else { '.' }).collect()
    }

    #[test]
    fn rule_fires_as_often_as_it_says() {
        let rule = || Rule::new(Effect::Busy);
        assert_eq!(pattern(&rule(), 0, 4), "xxxx");
        assert_eq!(pattern(&rule().nth(3), 0, 5), "..x..");
        assert_eq!(pattern(&rule().every(3), 0, 7), "..x..x.");
        assert_eq!(pattern(&rule().after(2).times(2), 0, 6), "..xx..");
        assert_eq!(pattern(&rule().after(1).every(2).times(2), 0, 8), "..x.x...");
        assert_eq!(pattern(&rule().rate(0.0), 0, 4), "....");
    }

    #[test]
    fn chance_is_the_seeds_and_comes_near_its_rate() {
        let rule = Rule::new(Effect::Busy).rate(0.25);
        assert_eq!(pattern(&rule, 7, 64), pattern(&rule, 7, 64));
        assert_ne!(pattern(&rule, 7, 64), pattern(&rule, 8, 64));
        let fired = pattern(&rule, 1, 10_000).matches('x').count();
        assert!((2300..2700).contains(&fired), "{fired}");
    }

    #[test]
    fn rule_is_about_its_operations_and_places() {
        let g = geometry();
        let zone = Rule::new(Effect::Busy).zone(ZoneIndex(3));
        assert!(zone.takes(&g, &command(Op::Write, 3 * 64 + 63, 8)));
        assert!(!zone.takes(&g, &command(Op::Write, 4 * 64, 8)));
        assert!(!zone.takes(&g, &command(Op::Flush, 0, 0)));
        assert!(zone.takes(&g, &command(Op::Report, 0, 4)));
        assert!(!zone.takes(&g, &command(Op::Report, 0, 3)));
        let sectors = Rule::new(Effect::Busy).at(RulePlace::Sectors(10..=20));
        assert!(sectors.takes(&g, &command(Op::Read, 8, 3)));
        assert!(!sectors.takes(&g, &command(Op::Read, 8, 2)));
        assert!(!sectors.takes(&g, &command(Op::Read, 21, 8)));
        assert!(!sectors.takes(&g, &command(Op::Read, u64::MAX, u32::MAX)));
        let torn = Rule::new(Effect::Torn { blocks: None, error: DeviceError::Medium }).on(Ops::ANY);
        assert!(torn.takes(&g, &command(Op::Append, 64, 8)));
        assert!(!torn.takes(&g, &command(Op::ZoneReset, 64, 0)));
    }

    #[test]
    fn shuffled_things_are_all_there_and_not_as_they_were() {
        for seed in 0..200 {
            for n in 2..7 {
                let mut things: Vec<u32> = (0..n).collect();
                shuffle(seed, &mut things);
                assert!(!things.is_sorted(), "{seed} {n}");
                things.sort_unstable();
                assert!(things.into_iter().eq(0..n));
            }
        }
    }
}

//! Rules: which commands are affected, how often, and by which fault.
//!
//! Pure: no device, no lock, and time only as a duration. Each rule has its own random generator,
//! so it decides independently of all other rules.

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
    /// All operations.
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
    /// Operations that carry data and move a sequential zone's write pointer.
    pub const WRITES: Ops = Ops::of(&[Op::Write, Op::WriteZeroes, Op::Append]);
    /// Operations that read or write sectors of the medium.
    pub const DATA: Ops = Ops(Ops::WRITES.0 | Ops::of(&[Op::Read, Op::Verify]).0);
    /// Operations on a single zone without data.
    pub const MANAGEMENT: Ops =
        Ops::of(&[Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose, Op::ZoneOffline]);

    /// Set of these operations.
    pub const fn of(ops: &[Op]) -> Ops {
        let mut set = 0;
        let mut n = 0;
        while n < ops.len() {
            set |= 1 << ops[n] as u8;
            n += 1;
        }
        Ops(set)
    }

    /// True if `op` is in the set.
    pub const fn contains(self, op: Op) -> bool {
        self.0 & (1 << op as u8) != 0
    }

    /// Union.
    pub const fn or(self, other: Ops) -> Ops {
        Ops(self.0 | other.0)
    }

    /// Intersection.
    pub const fn and(self, other: Ops) -> Ops {
        Ops(self.0 & other.0)
    }

    /// True if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Location on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RulePlace {
    /// Anywhere, including commands without a location.
    Anywhere,
    /// In one of these zones. A report counts for all zones that it requests.
    Zones(RangeInclusive<u32>),
    /// In one of these sectors. Appends and zone commands count as the start of their zone.
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

/// Time at which a timed-out command is executed after all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// This long after its time-out was reported, unless it is settled before.
    After(Nanos),
    /// Right after the next report of its zone was answered. The host does not notice, unless it
    /// settles first.
    AfterReport,
    /// While it is being settled.
    AtSettle,
}

/// Execution of a command that times out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// Never executed.
    Never,
    /// Executed before the time-out; only the answer is lost.
    Before,
    /// Executed after the time-out was reported. Commands that modify nothing are never executed
    /// late.
    Late(Late),
}

/// Fate of commands in flight when power is cut, and of those submitted before it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// They end with [`DeviceError::Gone`].
    Fail,
    /// They never complete.
    Lose,
}

/// Subject of reordering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reordered {
    /// Commands, before they reach the device.
    Execution,
    /// Their answers.
    Completion,
}

/// Fault injected into a command.
///
/// If the wrapped device refuses a command that is to be executed, its error is the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Fails with this error without being executed.
    Refuse(DeviceError),
    /// Is executed, then fails with this error.
    Fail(DeviceError),
    /// Executes the first `blocks` blocks, or a random number if none is given, then fails with
    /// this error.
    Torn {
        /// Number of logical blocks.
        blocks: Option<u32>,
        /// Error.
        error: DeviceError,
    },
    /// Acknowledges a write and moves the write pointer without storing the data: its blocks keep
    /// their previous contents.
    Lost,
    /// Like [`Effect::Lost`], but the data overwrites as many other written blocks of the device,
    /// chosen at random.
    Misdirected,
    /// Queue full: not executed, and resubmitted by the host.
    Busy,
    /// Fails with [`DeviceError::TimedOut`] after this time.
    TimeOut {
        /// Time from submission to the answer.
        after: Nanos,
        /// Execution, if any.
        carried: Carried,
    },
    /// This and the next commands, `commands` in total, fail with [`DeviceError::UnitAttention`]
    /// without being executed, whatever their operation.
    Attention {
        /// Number of commands, at least 1.
        commands: u32,
    },
    /// Degrades the command's zone before executing the command.
    Degrade(Degraded),
    /// Power is cut before the command is executed.
    PowerCut(InFlight),
    /// Answered no earlier than this time after submission.
    Delay(Nanos),
    /// Held until there are `window` matching commands of a queue, or the first has waited for
    /// `hold`; then all proceed in random order.
    Reorder {
        /// Commands or answers.
        what: Reordered,
        /// Number of commands, at least 2.
        window: u32,
        /// Maximum wait.
        hold: Nanos,
    },
}

impl Effect {
    /// Operations that it applies to.
    pub const fn ops(&self) -> Ops {
        match self {
            Effect::Torn { .. } => Ops::DATA,
            Effect::Lost | Effect::Misdirected => Ops::WRITES,
            Effect::Degrade(_) => Ops::DATA.or(Ops::MANAGEMENT),
            _ => Ops::ANY,
        }
    }

    /// Name of an effect that needs a device with [`crate::device::Insight::misplaces`].
    pub(super) const fn misplaces(&self) -> Option<&'static str> {
        match self {
            Effect::Lost => Some("lost"),
            Effect::Misdirected => Some("misdirected"),
            _ => None,
        }
    }

    /// True for effects on the timing of a command or its answer, false for those on its outcome. A
    /// command can have one effect of each kind.
    pub const fn is_timing(&self) -> bool {
        matches!(self, Effect::Delay(_) | Effect::Reorder { .. })
    }
}

/// A fault, the commands that it applies to, and its frequency.
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
    /// Applies `effect` to every command that it can affect.
    pub fn new(effect: Effect) -> Rule {
        let (ops, place) = (effect.ops(), RulePlace::Anywhere);
        Rule { ops, place, skip: 0, every: 1, count: u64::MAX, rate: 1.0, effect }
    }

    /// Restricts the rule to these operations, as far as the effect applies to them.
    pub fn on(mut self, ops: Ops) -> Rule {
        self.ops = ops.and(self.effect.ops());
        self
    }

    /// Restricts the rule to this location.
    pub fn at(mut self, place: RulePlace) -> Rule {
        self.place = place;
        self
    }

    /// Restricts the rule to these zones.
    pub fn zones(self, zones: RangeInclusive<ZoneIndex>) -> Rule {
        self.at(RulePlace::Zones(zones.start().0..=zones.end().0))
    }

    /// Restricts the rule to this zone.
    pub fn zone(self, zone: ZoneIndex) -> Rule {
        self.zones(zone..=zone)
    }

    /// Skips the first `skip` matching commands.
    pub fn after(mut self, skip: u64) -> Rule {
        self.skip = skip;
        self
    }

    /// Applies only to the `nth` matching command, from 1.
    pub fn nth(self, nth: u64) -> Rule {
        self.after(nth.saturating_sub(1)).times(1)
    }

    /// Applies to every `n`th matching command; `n` is at least 1.
    pub fn every(mut self, n: u64) -> Rule {
        self.every = n.max(1);
        self
    }

    /// Applies at most `count` times.
    pub fn times(mut self, count: u64) -> Rule {
        self.count = count;
        self
    }

    /// Applies to each matching command with this probability.
    pub fn rate(mut self, rate: f64) -> Rule {
        self.rate = rate;
        self
    }

    pub(super) fn takes(&self, geometry: &Geometry, command: &Command) -> bool {
        self.ops.contains(command.op) && self.place.holds(geometry, command)
    }
}

/// Counters and random generator of a rule.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    seen: u64,
    pub(super) fired: u64,
    seed: u64,
    windows: u64,
    random: Pcg64Mcg,
}

impl Tally {
    /// Tally of the rule with index `index`, in a plan with this seed.
    pub(super) fn new(seed: u64, index: u64) -> Tally {
        // The odd multiplier gives the rules of a plan different seeds; the generator mixes them
        // further.
        let seed = seed ^ index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Tally { seen: 0, fired: 0, seed, windows: 0, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Counts a command that matches `rule`. Returns true if the rule fires.
    pub(super) fn fires(&mut self, rule: &Rule) -> bool {
        self.seen += 1;
        let is_in_turn = self.seen > rule.skip && (self.seen - rule.skip).is_multiple_of(rule.every);
        // Random numbers are drawn only if they decide, so the course of a seed does not depend on
        // impossible cases.
        let fires = is_in_turn && self.fired < rule.count && (rule.rate >= 1.0 || self.chance() < rule.rate);
        self.fired += u64::from(fires);
        fires
    }

    /// Random number from 0 to 1, excluding 1.
    fn chance(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        (self.draw() >> 11) as f64 * STEP
    }

    /// 64 random bits.
    fn draw(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Random number below `n`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        // The bias of a 64-bit product is 2^-32, which no test can notice.
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u32
    }

    /// Seed of the next window. Separate from the draws that decide about commands, because the
    /// opening of a window may depend on time.
    pub(super) fn window_seed(&mut self) -> u64 {
        self.windows += 1;
        self.seed.rotate_left(32) ^ self.windows
    }

    /// True if the rule cannot fire any more.
    pub(super) fn is_spent(&self, rule: &Rule) -> bool {
        self.fired >= rule.count
    }
}

/// Shuffles `things` into a random order, different from the present one if there are at least two.
pub fn shuffle<T>(seed: u64, things: &mut [T]) {
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
    fn rule_fires_at_its_configured_occurrences() {
        let rule = || Rule::new(Effect::Busy);
        assert_eq!(pattern(&rule(), 0, 4), "xxxx");
        assert_eq!(pattern(&rule().nth(3), 0, 5), "..x..");
        assert_eq!(pattern(&rule().every(3), 0, 7), "..x..x.");
        assert_eq!(pattern(&rule().after(2).times(2), 0, 6), "..xx..");
        assert_eq!(pattern(&rule().after(1).every(2).times(2), 0, 8), "..x.x...");
        assert_eq!(pattern(&rule().rate(0.0), 0, 4), "....");
    }

    #[test]
    fn fault_pattern_depends_on_the_seed_and_approximates_the_rate() {
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
    fn shuffle_keeps_all_items_and_changes_their_order() {
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

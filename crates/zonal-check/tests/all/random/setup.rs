//! Choices made by a seed: a drive, its faults, the modes, and the number of requests in flight.

use crate::draw::{DELAY, HOLD, one_of, plan};
use crate::random::face::Face;
use rand::{Rng, RngExt};
use zonal_core::budget::Policy;
use zonal_core::{DeviceError, Nanos, Op, Personality, ZoneError};
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::fault::{Carried, Degraded, Effect, Late, Ops, Plan, Rule, Settling};
use zonal_io::volume::{
    BudgetOptions, CLASSES, ParkOptions, Qd1Quantum, SchedulerKind, VolumeOptions, WriteMode,
};

/// Sectors of a zone.
pub const ZONE: u64 = 128;

/// Delay until a command is reported as timed out.
const TIME_OUT: Nanos = Nanos(100_000);

/// Misbehaviour of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// None.
    Sound,
    /// Writes are refused without being executed. Every properly placed request must succeed.
    Refusing,
    /// Some writes fail permanently. Writes placed behind them must fail accordingly.
    Losing,
    /// All faults.
    Wild,
    /// All faults, more often, and [`crate::random::interfere`] between requests.
    Interfered,
}

/// Profiles, repeated by weight.
const PROFILES: [Profile; 6] =
    [Profile::Sound, Profile::Refusing, Profile::Losing, Profile::Wild, Profile::Wild, Profile::Wild];

/// Choices made by a seed. See the module.
#[derive(Clone, Debug)]
pub struct Setup {
    pub profile: Profile,
    pub device: EmulatedOptions,
    pub plan: Plan,
    pub options: VolumeOptions,
    /// Modes to switch between.
    pub modes: Vec<WriteMode>,
    /// Each submitter's view of the drive.
    pub faces: Vec<Face>,
    /// Maximum number of requests in flight per submitter.
    pub depth: usize,
    /// True if completion functions submit requests.
    pub successors: bool,
    /// Longest step of the clock.
    pub step: u64,
}

/// Two or three writes.
const SMALL_QUANTUM: Qd1Quantum = Qd1Quantum { bytes: 16 << 10, time: Nanos(50_000) };

impl Setup {
    /// Draws a setup from `rng`.
    pub fn draw(rng: &mut impl Rng) -> Setup {
        let profile = one_of(rng, &PROFILES);
        Setup::draw_of(rng, profile)
    }

    /// Draws a setup with interference.
    pub fn draw_interfered(rng: &mut impl Rng) -> Setup {
        let drawn = Setup::draw_of(rng, Profile::Interfered);
        let zones = (drawn.device.size / drawn.device.zone_size) as u32;
        let whole = Face { kind: Face::part(rng, zones).kind, ..Face::volume(zones) };
        let parts = [whole, Face::part(rng, zones), Face::part(rng, zones)];
        let faces = [Face::volume(zones)].into_iter().chain(parts).collect();
        let (window, nr_requests) = (one_of(rng, &[1, 2, 255]), one_of(rng, &[1, 2, 256]));
        let options = drawn.options.with_window(window).with_nr_requests(nr_requests);
        Setup { faces, options, depth: one_of(rng, &[16, 40, 1000]), ..drawn }
    }

    fn draw_of(rng: &mut impl Rng, profile: Profile) -> Setup {
        let device = draw_device(rng, profile);
        let modes = draw_modes(rng, profile, device.zone_append_max_sectors > 0);
        let options = VolumeOptions::default()
            .with_mode(one_of(rng, &modes))
            .with_merge(rng.random_ratio(3, 4))
            .with_qd1_quantum(one_of(rng, &[Qd1Quantum::NONE, Qd1Quantum::default(), SMALL_QUANTUM]))
            .with_nr_requests(one_of(rng, &[4, 16, 64]))
            .with_scheduler(one_of(rng, &SchedulerKind::ALL))
            .with_window(one_of(rng, &[2, 32]))
            .with_force(true)
            .with_budget(draw_budget(rng))
            .with_park(draw_park(rng));
        let plan = draw_plan(rng, profile);
        let (submitters, depth) = (rng.random_range(1..=4), one_of(rng, &[1, 4, 16, 40]));
        let step = one_of(rng, &[1_000, 100_000]);
        let successors = rng.random_ratio(1, 3);
        let zones = (device.size / device.zone_size) as u32;
        let faces = vec![Face::volume(zones); submitters];
        Setup { profile, device, plan, options, modes, faces, depth, successors, step }
    }
}

impl Setup {
    /// True if anything may fail.
    pub fn is_wild(&self) -> bool {
        matches!(self.profile, Profile::Wild | Profile::Interfered)
    }

    /// True if the whole run is in mode `direct`.
    pub fn is_direct(&self) -> bool {
        self.modes == [WriteMode::Direct]
    }

    /// Longest life of a request while the device responds, in virtual time: as if everything that
    /// can be in flight with it were executed first, one command after the other, each with the
    /// longest latency.
    pub fn age_max(&self) -> Nanos {
        // Commands of the request itself: four pieces of the longest request, and for each the
        // rounds of recovery with their reports and read-backs.
        const OWN: u64 = 24;
        // A request without a slot retries only when no request that may free one is in flight, so
        // others could overtake it without limit if there were no end of them. It becomes 1 once
        // slots are granted in turn.
        let turns = if self.device.zone_max_open > 0 { 10 } else { 1 };
        let under_way = (self.faces.len() * self.depth) as u64 * if self.successors { 2 } else { 1 };
        Nanos((under_way + OWN) * self.slowest_command() * turns + self.pauses())
    }

    /// Longest time for everything to end once no more requests are submitted.
    pub fn drain_max(&self) -> u64 {
        if self.profile == Profile::Interfered { 20_000_000_000 } else { 1_000_000_000 }
    }

    /// Pauses before the retries of a report, a read-back or a read that the device refuses each
    /// time but the last.
    fn pauses(&self) -> u64 {
        const ALL_PAUSES: u64 = 102_200_000;
        if self.plan.rules.is_empty() { 0 } else { ALL_PAUSES }
    }

    /// Longest time from the issue of a command until its fate is known and a poll has seen it.
    fn slowest_command(&self) -> u64 {
        let Settling::After(settling) = self.plan.settling else { unreachable!("see draw_plan") };
        let waits = [DELAY, TIME_OUT, HOLD, settling, Nanos(self.device.completion_nsec)];
        // The clock may overshoot each of them by at most one step.
        waits.iter().map(|w| w.0).sum::<u64>() + 2 * self.step
    }
}

fn draw_budget(rng: &mut impl Rng) -> Option<BudgetOptions> {
    let grace = Nanos(one_of(rng, &[0, 0, 30_000]));
    let policy = one_of(rng, &Policy::ALL);
    let mut minimums = [0; CLASSES];
    minimums[1] = one_of(rng, &[0, 0, 1]);
    rng.random_ratio(4, 5)
        .then_some(BudgetOptions::default().with_policy(policy).with_grace(grace).with_minimums(minimums))
}

fn draw_park(rng: &mut impl Rng) -> Option<ParkOptions> {
    let options = ParkOptions::default()
        .with_sectors_max(one_of(rng, &[8, 40, 2048]))
        .with_time(Nanos(one_of(rng, &[0, 5_000, 200_000])));
    rng.random_ratio(1, 2).then_some(options)
}

fn draw_device(rng: &mut impl Rng, profile: Profile) -> EmulatedOptions {
    let zones = rng.random_range(3..=7);
    let open = match profile {
        Profile::Wild => one_of(rng, &[0, 0, 2]),
        Profile::Interfered => one_of(rng, &[0, 1, 2, 3]),
        _ => 0,
    };
    EmulatedOptions::default()
        .with_size(zones * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_zone_capacity(one_of(rng, &[0, 96 * 512]))
        .with_zone_nr_conv(rng.random_range(0..=1))
        .with_zone_max_open(open)
        .with_zone_max_active(open * one_of(rng, &[0, 1, 2]))
        .with_zone_append_max_sectors(one_of(rng, &[0, 8, u32::MAX]))
        .with_max_sectors(one_of(rng, &[8, 32]))
        .with_write_zeroes_max_sectors(one_of(rng, &[0, 6, u32::MAX]))
        .with_complete(one_of(rng, &[CompleteMode::Poll, CompleteMode::Poll, CompleteMode::Inline]))
        .with_completion_nsec(one_of(rng, &[0, 0, 20_000]))
        .with_hw_queue_depth(one_of(rng, &[1, 2, 8]))
        .with_submit_queues(one_of(rng, &[1, 2, 16]))
        .with_preserves_write_order(rng.random_ratio(1, 2))
        .with_personality(one_of(rng, &[Personality::Zns, Personality::Zbc]))
}

/// Some modes to switch between, or `zone-lock` alone, because its scheduler deserves runs of its
/// own. Mode `direct` cannot be left either, and guarantees no order, so it is used only where
/// anything may fail.
fn draw_modes(rng: &mut impl Rng, profile: Profile, append: bool) -> Vec<WriteMode> {
    if profile == Profile::Wild && rng.random_ratio(1, 12) {
        return vec![WriteMode::Direct];
    }
    if rng.random_ratio(1, 6) {
        return vec![WriteMode::ZoneLock];
    }
    let mut modes = vec![WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined];
    if append {
        modes.push(WriteMode::Append);
    }
    let kept = rng.random_range(1..=modes.len());
    while modes.len() > kept {
        modes.swap_remove(rng.random_range(0..modes.len()));
    }
    modes
}

fn draw_plan(rng: &mut impl Rng, profile: Profile) -> Plan {
    let rules = match profile {
        Profile::Sound => Vec::new(),
        Profile::Refusing => refusals(),
        Profile::Losing => losses(),
        Profile::Wild => damage(rng),
        Profile::Interfered => storm(rng),
    };
    if profile == Profile::Interfered && rules.is_empty() {
        return Plan::default();
    }
    plan(rng, rules, profile != Profile::Sound)
}

/// None of the refused commands is executed. A write gives up only if it is refused repeatedly by
/// bad luck, and that is reported.
fn refusals() -> Vec<Rule> {
    let refuse = |error| Rule::new(Effect::Refuse(error)).on(Ops::WRITES).rate(0.01);
    vec![
        refuse(DeviceError::Busy),
        refuse(DeviceError::UnitAttention),
        refuse(DeviceError::Zone(ZoneError::InvalidWrite)),
        refuse(DeviceError::Zone(ZoneError::TooManyOpen)),
        refuse(DeviceError::Zone(ZoneError::TooManyActive)),
        Rule::new(Effect::Busy).rate(0.05),
    ]
}

/// Like refusals, but some are permanent.
fn losses() -> Vec<Rule> {
    let mut rules = refusals();
    rules.push(Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::WRITES).rate(0.01));
    rules
}

fn damage(rng: &mut impl Rng) -> Vec<Rule> {
    let mut rules = refusals();
    let time_out = |carried| Effect::TimeOut { after: TIME_OUT, carried };
    let torn = |error| Effect::Torn { blocks: None, error };
    let effects = [
        Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::DATA),
        Rule::new(Effect::Fail(DeviceError::Medium)),
        Rule::new(Effect::Fail(DeviceError::Aborted)),
        Rule::new(torn(DeviceError::Medium)),
        Rule::new(torn(DeviceError::Aborted)),
        Rule::new(torn(DeviceError::Os(5))),
        Rule::new(time_out(Carried::Never)),
        Rule::new(time_out(Carried::Before)),
        Rule::new(time_out(Carried::Late(Late::AtSettle))),
        Rule::new(time_out(Carried::Late(Late::AfterReport))),
        Rule::new(time_out(Carried::Late(Late::After(Nanos(60_000))))),
        Rule::new(Effect::Attention { commands: 3 }),
        Rule::new(Effect::Refuse(DeviceError::Medium)).on(Ops::of(&[Op::Report])),
        Rule::new(Effect::Refuse(DeviceError::UnitAttention)).on(Ops::MANAGEMENT),
    ];
    for rule in effects {
        if rng.random_ratio(1, 2) {
            rules.push(rule.rate(one_of(rng, &[0.003, 0.02])));
        }
    }
    for worn in [Degraded::ReadOnly, Degraded::Offline] {
        if rng.random_ratio(1, 6) {
            rules.push(Rule::new(Effect::Degrade(worn)).on(Ops::WRITES).rate(0.002).times(1));
        }
    }
    rules
}

/// All kinds of faults, often; one run in six has none.
fn storm(rng: &mut impl Rng) -> Vec<Rule> {
    if rng.random_ratio(1, 6) {
        return Vec::new();
    }
    let mut rules = damage(rng);
    rules.retain(|_| rng.random_ratio(1, 3));
    for rule in &mut rules {
        *rule = rule.clone().rate(one_of(rng, &[0.005, 0.02, 0.02, 0.1, 0.3]));
    }
    rules
}

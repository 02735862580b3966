//! Choices made by a seed: a drive, its faults, its hosts, and the pace of the clock.

use crate::draw::{one_of, plan};
use rand::{Rng, RngExt};
use zonal_core::{DeviceError, Nanos, ZoneError};
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::fault::{Carried, Effect, Late, Ops, Plan, Rule};
use zonal_io::volume::WriteMode;

/// Bytes of a zone.
pub const ZONE: u64 = 128 << 10;

/// Zones written and reset by a single queue. They are the first sequential ones.
pub const OWN_ZONES: u32 = 2;

const TIME_OUT: Nanos = Nanos(100_000);

/// Misbehaviour of the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// None. A correctly placed command must succeed.
    Sound,
    /// Commands are refused for a while, without being executed.
    Refusing,
    /// All faults: media errors, torn commands, time-outs, late execution.
    Wild,
}

/// Choices made by a seed. See the module.
#[derive(Clone, Debug)]
pub struct Setup {
    pub profile: Profile,
    pub device: EmulatedOptions,
    pub plan: Plan,
    pub mode: Option<WriteMode>,
    pub hosts: usize,
    /// I/O queues of a host.
    pub queues: u16,
    pub has_digests: bool,
    /// True if hosts use flow control of the submission queue.
    pub has_flow_control: bool,
    /// Longest step of the clock.
    pub step: u64,
    /// True if connections are lost and controllers reset.
    pub has_losses: bool,
}

impl Setup {
    /// Draws a setup from `rng`.
    pub fn draw(rng: &mut impl Rng) -> Setup {
        let profile = one_of(rng, &[Profile::Sound, Profile::Refusing, Profile::Wild]);
        let device = draw_device(rng);
        let mut modes = vec![None, Some(WriteMode::PerZone), Some(WriteMode::Qd1)];
        if device.zone_append_max_sectors > 0 {
            modes.push(Some(WriteMode::Append));
        }
        Setup {
            profile,
            plan: draw_plan(rng, profile),
            mode: one_of(rng, &modes),
            device,
            hosts: rng.random_range(2..=3),
            queues: rng.random_range(1..=2),
            has_digests: rng.random_ratio(1, 4),
            has_flow_control: rng.random_ratio(1, 2),
            step: one_of(rng, &[1_000, 100_000]),
            has_losses: rng.random_ratio(3, 4),
        }
    }

    /// True if the drive limits open zones.
    pub fn has_limits(&self) -> bool {
        self.device.zone_max_open > 0
    }
}

fn draw_device(rng: &mut impl Rng) -> EmulatedOptions {
    let blocksize = one_of(rng, &[512, 4096]);
    let open = one_of(rng, &[0, 0, 3]);
    EmulatedOptions::default()
        .with_size(rng.random_range(5..=9) * ZONE)
        .with_zone_size(ZONE)
        .with_zone_capacity(one_of(rng, &[0, 96 << 10]))
        .with_zone_nr_conv(rng.random_range(0..=1))
        .with_zone_max_open(open)
        .with_zone_max_active(open * one_of(rng, &[1, 2]))
        .with_zone_append_max_sectors(one_of(rng, &[0, 64, u32::MAX]))
        .with_blocksize(blocksize)
        .with_max_sectors(one_of(rng, &[64, 2048]))
        .with_write_zeroes_max_sectors(one_of(rng, &[0, 64, u32::MAX]))
        .with_complete(one_of(rng, &[CompleteMode::Poll, CompleteMode::Poll, CompleteMode::Inline]))
        .with_completion_nsec(one_of(rng, &[0, 20_000]))
        .with_hw_queue_depth(one_of(rng, &[1, 2, 8, 64]))
        .with_submit_queues(one_of(rng, &[1, 2]))
        .with_fua(rng.random_ratio(1, 2))
        .with_preserves_write_order(rng.random_ratio(1, 3))
}

fn draw_plan(rng: &mut impl Rng, profile: Profile) -> Plan {
    let rules = match profile {
        Profile::Sound => Vec::new(),
        Profile::Refusing => refusals(),
        Profile::Wild => damage(rng),
    };
    plan(rng, rules, profile != Profile::Sound)
}

fn refusals() -> Vec<Rule> {
    let refuse = |error| Rule::new(Effect::Refuse(error)).on(Ops::WRITES).rate(0.01);
    vec![
        refuse(DeviceError::Busy),
        refuse(DeviceError::UnitAttention),
        refuse(DeviceError::Zone(ZoneError::InvalidWrite)),
        Rule::new(Effect::Busy).rate(0.05),
    ]
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
        Rule::new(time_out(Carried::Never)),
        Rule::new(time_out(Carried::Before)),
        Rule::new(time_out(Carried::Late(Late::AtSettle))),
        Rule::new(Effect::Attention { commands: 3 }),
        Rule::new(Effect::Refuse(DeviceError::UnitAttention)).on(Ops::MANAGEMENT),
    ];
    for rule in effects {
        if rng.random_ratio(1, 2) {
            rules.push(rule.rate(one_of(rng, &[0.003, 0.02])));
        }
    }
    rules
}

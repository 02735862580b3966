//! Zones under test, each command checked against the rules of the personality: its answer, and
//! what the device reports afterwards.

use super::data::Shadow;
use super::host::{Broken, Host, Memory, Order, done, payload};
use super::{Errors, Options};
use crate::changes::ZoneSetting;
use crate::device::{CommandResult, DeviceInfo, Output};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use zonal_core::device::{Limits, Resources, ZoneAction, ZoneEvent, ZoneState, step};
use zonal_core::{
    DeviceError, Op, SECTOR_BYTES, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex,
    ZoneType,
};

/// Zones that the checks write to: a conventional one, some sequential ones, and the last one.
const SEQUENTIAL: u32 = 6;

/// State after a command, and the offset of an append; or the error.
type Expected = Result<(ZoneState, Option<u32>), DeviceError>;

pub(super) struct Zones<'h, 'd> {
    pub host: &'h Host<'d>,
    pub info: &'d DeviceInfo,
    errors: Errors,
    allows_more: bool,
    refuses_more: bool,
    limits: Limits,
    /// The zones under test with their states. All others are empty, or cannot be written.
    states: Vec<(ZoneIndex, ZoneState)>,
    pub chance: Pcg64Mcg,
    seed: u64,
}

impl<'h, 'd> Zones<'h, 'd> {
    /// Empties the device, and takes a few of its zones.
    pub fn new(host: &'h Host<'d>, options: &Options) -> Result<Zones<'h, 'd>, Broken> {
        let info = host.device.info();
        let conventional = info.geometry.conventional_zones();
        let first = (conventional > 0).then_some(ZoneIndex(conventional.saturating_sub(1)));
        let last = info.geometry.zones();
        let sequential =
            (conventional..last.min(conventional + SEQUENTIAL)).chain(Some(last - 1)).map(ZoneIndex);
        let mut chosen: Vec<ZoneIndex> = first.into_iter().chain(sequential).collect();
        chosen.dedup();
        Zones::of(host, options, &chosen)
    }

    /// Empties the device, and takes these zones.
    pub fn of(host: &'h Host<'d>, options: &Options, chosen: &[ZoneIndex]) -> Result<Zones<'h, 'd>, Broken> {
        let info = host.device.info();
        let limits = Limits::new(&info.geometry, info.open_max, info.active_max);
        let limits = limits.map_err(|error| format!("the limits of the device: {error}"))?;
        let mut zones = Zones {
            host,
            info,
            errors: options.errors,
            allows_more: options.allows_more,
            refuses_more: options.refuses_more,
            limits,
            states: Vec::new(),
            chance: Pcg64Mcg::seed_from_u64(options.seed),
            seed: options.seed,
        };
        zones.empty()?;
        for &zone in chosen {
            let found = host.zone(zone)?;
            let state = match found.condition {
                ZoneCondition::NotWp => ZoneState::CONVENTIONAL,
                ZoneCondition::Empty => ZoneState::EMPTY,
                // Nothing can be tried there.
                ZoneCondition::ReadOnly | ZoneCondition::Offline => continue,
                other => return Err(format!("zone {zone} is {other} after a reset of all zones")),
            };
            zones.states.push((zone, state));
        }
        Ok(zones)
    }

    fn empty(&self) -> Result<(), Broken> {
        done(&self.host.simple(Op::ResetAll, Sector(0), 0)?, "reset of all zones")
    }

    pub fn chosen(&self) -> Vec<ZoneIndex> {
        self.states.iter().map(|&(zone, _)| zone).collect()
    }

    pub fn sequential(&self) -> Vec<ZoneIndex> {
        self.chosen().into_iter().filter(|&zone| !self.info.geometry.is_conventional(zone)).collect()
    }

    /// First sequential zone under test.
    pub fn first(&self) -> Result<ZoneIndex, Broken> {
        self.sequential().first().copied().ok_or_else(|| "no sequential zone can be written".into())
    }

    /// Sequential zones under test that can be written to in turn, without that the device closes
    /// any.
    pub fn shadows(&self) -> Result<Vec<Shadow>, Broken> {
        self.first()?;
        let limits = [self.limits.open_max, self.limits.active_max].into_iter().filter(|&max| max > 0);
        let most = limits.min().map_or(usize::MAX, |max| max as usize);
        Ok(self.sequential().into_iter().take(most).map(|zone| Shadow::of(self.info, zone)).collect())
    }

    pub fn state(&self, zone: ZoneIndex) -> ZoneState {
        self.states.iter().find(|&&(its, _)| its == zone).expect("a zone under test").1
    }

    fn set(&mut self, zone: ZoneIndex, state: ZoneState) {
        self.states.iter_mut().find(|(its, _)| *its == zone).expect("a zone under test").1 = state;
    }

    pub fn capacity(&self, zone: ZoneIndex) -> u32 {
        self.info.geometry.capacity_of(zone)
    }

    pub fn block(&self) -> u32 {
        self.info.block_sectors
    }

    /// Sectors of a small write.
    pub fn some_sectors(&mut self) -> u32 {
        let blocks_max = (self.info.command_sectors_max / self.block()).clamp(1, 16);
        (1 + self.chance.next_u64() as u32 % blocks_max) * self.block()
    }

    pub fn payload(&mut self, sectors: u32) -> (Vec<u8>, Memory) {
        self.seed += 1;
        let bytes = payload(sectors as usize * SECTOR_BYTES as usize, self.seed);
        let memory = Memory::holding(&bytes, &mut self.chance);
        (bytes, memory)
    }

    fn resources(&self) -> Resources {
        let mut resources = Resources::new(self.limits);
        for &(zone, state) in &self.states {
            resources.moved(zone, ZoneCondition::Empty, state.condition);
        }
        resources
    }

    /// The answer that the rules demand, and the state that follows.
    fn expected(&self, zone: ZoneIndex, event: ZoneEvent) -> Expected {
        let transition = step(self.info.personality, self.capacity(zone), self.state(zone), event)?;
        self.resources().admit(transition.needs)?;
        Ok((transition.state, transition.placed))
    }

    /// The same without limits.
    fn permitted(&self, zone: ZoneIndex, event: ZoneEvent) -> Expected {
        let transition = step(self.info.personality, self.capacity(zone), self.state(zone), event)?;
        Ok((transition.state, transition.placed))
    }

    /// Runs a command of one zone, and checks its answer and all zones under test.
    pub fn act(&mut self, zone: ZoneIndex, op: Op, offset: u32, sectors: u32) -> Result<(), Broken> {
        let start = self.info.geometry.start_of(zone);
        let event = match op {
            Op::Write | Op::WriteZeroes => ZoneEvent::Write { offset, sectors },
            Op::Append => ZoneEvent::Append { sectors },
            _ => ZoneAction::of(op).expect("a command of zones").event(),
        };
        let is_known = match op {
            Op::Append => self.info.append_sectors_max > 0,
            Op::WriteZeroes => self.info.write_zeroes_sectors_max > 0,
            _ => ZoneAction::of(op).is_none_or(|action| action.is_in(self.info.personality)),
        };
        let lies_within =
            self.info.geometry.contains(start + Sectors(offset.into()), Sectors(sectors.into()));
        let expected = match (is_known, lies_within || !op.has_range()) {
            (false, _) => Err(DeviceError::Unsupported),
            (true, false) => Err(DeviceError::OutOfRange),
            (true, true) => self.expected(zone, event),
        };
        let memory = match op {
            Op::Write | Op::Append => self.payload(sectors).1,
            _ => Memory::none(),
        };
        let order = Order::new(op, start + Sectors(offset.into()), sectors).with(memory);
        let (answer, _) = self.host.run(order)?;
        let what = format!(
            "{} of {sectors} sectors at offset {offset} of zone {zone}, which is {:?}",
            op.name(),
            self.state(zone)
        );
        let expected = match expected {
            Err(DeviceError::Zone(ZoneError::TooManyActive | ZoneError::TooManyOpen))
                if self.allows_more && answer.is_ok() =>
            {
                self.permitted(zone, event)
            }
            expected => expected,
        };
        let expected = expected.map(|(state, placed)| {
            let output = match (op, placed) {
                (Op::Append, Some(placed)) => Output::Appended(start + Sectors(placed.into())),
                _ => Output::Done,
            };
            (state, output)
        });
        match (&expected, &answer) {
            (Ok((state, output)), Ok(got)) if output == got => self.set(zone, *state),
            (Err(error), Err(got)) if self.errors.agree(*error, *got) => {}
            (Ok(_), Err(DeviceError::Zone(ZoneError::TooManyActive | ZoneError::TooManyOpen)))
                if self.refuses_more => {}
            (Ok((_, output)), _) => return Err(format!("{what}: answered {answer:?}, not Ok({output:?})")),
            (Err(error), _) => return Err(format!("{what}: answered {answer:?}, not Err({error:?})")),
        }
        self.look().map_err(|broken| format!("after {what}, answered {answer:?}: {broken}"))
    }

    /// Sets a zone to a condition, as a failing head does.
    pub fn fail(&mut self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), Broken> {
        let expected = self.expected(zone, to.event()).map(|(state, ..)| state);
        let answer = self.host.device.set_zone(zone, to);
        match (expected, answer) {
            (Ok(state), Ok(())) => self.set(zone, state),
            (Err(_), Err(_)) => {}
            (expected, answer) => {
                return Err(format!("set_zone of zone {zone} to {to}: {answer:?}, not {expected:?}"));
            }
        }
        self.look().map_err(|broken| format!("after set_zone of zone {zone} to {to}: {broken}"))
    }

    /// Resets all zones, and checks those under test.
    pub fn reset_all(&mut self) -> Result<(), Broken> {
        self.empty()?;
        for (_, state) in &mut self.states {
            if !matches!(
                state.condition,
                ZoneCondition::NotWp | ZoneCondition::ReadOnly | ZoneCondition::Offline
            ) {
                *state = ZoneState::EMPTY;
            }
        }
        self.look().map_err(|broken| format!("after a reset of all zones: {broken}"))
    }

    /// Compares what the device reports with the expected states. The device may close implicitly
    /// open zones of its own accord, and no others.
    pub fn look(&mut self) -> Result<(), Broken> {
        for n in 0..self.states.len() {
            let (zone, state) = self.states[n];
            let found = self.host.zone(zone)?;
            let closed = step(self.info.personality, self.capacity(zone), state, ZoneEvent::ImplicitClose);
            let states = std::iter::once(state).chain(closed.map(|transition| transition.state));
            let found_state = states.into_iter().find(|state| self.shows(zone, *state, &found));
            self.states[n].1 =
                found_state.ok_or_else(|| format!("zone {zone} is {found:?}, not {state:?}"))?;
        }
        let open = self.states.iter().filter(|(_, state)| state.condition.is_open()).count();
        let active = self.states.iter().filter(|(_, state)| state.condition.is_active()).count();
        let is_over = |count: usize, max: u32| max > 0 && count > max as usize;
        if !self.allows_more
            && (is_over(open, self.limits.open_max) || is_over(active, self.limits.active_max))
        {
            let limits = self.limits;
            return Err(format!(
                "{open} zones are open and {active} active, with {limits:?} (a device may allow more with the option allows_more)"
            ));
        }
        Ok(())
    }

    /// True if the descriptor is that of a zone in this state.
    fn shows(&self, zone: ZoneIndex, state: ZoneState, found: &ZoneDescriptor) -> bool {
        found.condition == state.condition
            && check_descriptor(self.info, zone, found).is_ok()
            && found.write_pointer.is_none_or(|pointer| pointer.0 - found.start.0 == u64::from(state.written))
    }
}

impl Errors {
    fn agree(self, expected: DeviceError, got: DeviceError) -> bool {
        self == Errors::Any || expected == got
    }
}

/// Checks the parts of a descriptor that the geometry determines, and its pointer.
pub(super) fn check_descriptor(
    info: &DeviceInfo,
    zone: ZoneIndex,
    found: &ZoneDescriptor,
) -> Result<(), Broken> {
    let geometry = &info.geometry;
    let zone_type = match geometry.is_conventional(zone) {
        true => ZoneType::Conventional,
        false => ZoneType::SequentialWriteRequired,
    };
    let (start, capacity) = (geometry.start_of(zone), Sectors(geometry.capacity_of(zone).into()));
    let has_place =
        found.zone == zone && found.start == start && found.size.0 == u64::from(geometry.size_of(zone));
    let is_conventional = found.condition == ZoneCondition::NotWp;
    let has_type = found.zone_type == zone_type
        && (is_conventional == (zone_type == ZoneType::Conventional)
            || found.condition == ZoneCondition::Offline
            || found.condition == ZoneCondition::ReadOnly);
    let has_pointer = match (found.condition, found.write_pointer) {
        (ZoneCondition::Empty, pointer) => pointer == Some(start),
        (condition, Some(pointer)) => condition.is_active() && (start..start + capacity).contains(&pointer),
        (condition, None) => !condition.is_active(),
    };
    match has_place && has_type && found.capacity == capacity && has_pointer {
        true => Ok(()),
        false => Err(format!("zone {zone} is described as {found:?}")),
    }
}

/// Reports give every zone once, in order, from the zone that contains the sector.
pub(super) fn reports(host: &Host<'_>) -> Result<(), Broken> {
    let info = host.device.info();
    let geometry = &info.geometry;
    let total = geometry.zones();
    let report = |sector, zones| -> Result<CommandResult, Broken> { host.simple(Op::Report, sector, zones) };
    let mut seen = 0;
    while seen < total {
        let Ok(Output::Zones(zones)) = report(geometry.start_of(ZoneIndex(seen)), total)? else {
            return Err(format!("no report from zone {seen} on"));
        };
        if zones.is_empty() {
            return Err(format!("an empty report from zone {seen} on, of {total}"));
        }
        for found in &zones {
            check_descriptor(info, ZoneIndex(seen), found)?;
            seen += 1;
        }
    }
    for (zone, offset, zones) in [(0, 0, 1), (total / 2, 1, 2), (total - 1, 1, 5)] {
        let sector = geometry.start_of(ZoneIndex(zone)) + Sectors(offset * u64::from(info.block_sectors));
        let Ok(Output::Zones(found)) = report(sector, zones)? else {
            return Err(format!("no report of {zones} zones at {sector}"));
        };
        let first = found.first().map(|found| found.zone);
        if first != Some(ZoneIndex(zone)) || found.len() as u32 != zones.min(total - zone) {
            return Err(format!(
                "a report of {zones} zones at {sector}, in zone {zone}: {} zones from {first:?}",
                found.len()
            ));
        }
    }
    match report(Sector(geometry.sectors().0), 1)? {
        Err(_) => Ok(()),
        Ok(found) => Err(format!("a report from the end of the device: {found:?}")),
    }
}

/// Random commands, one at a time.
pub(super) fn management(host: &Host<'_>, options: &Options) -> Result<(), Broken> {
    let mut zones = Zones::new(host, options)?;
    let chosen = zones.chosen();
    if chosen.is_empty() {
        return Err("no zone can be written".into());
    }
    let can_fail =
        matches!(host.device.set_zone(chosen[0], ZoneSetting::Restored), Ok(()) | Err(DeviceError::Zone(_)));
    for _ in 0..options.steps {
        let zone = chosen[zones.chance.next_u64() as usize % chosen.len()];
        let (state, capacity, block) = (zones.state(zone), zones.capacity(zone), zones.block());
        let sectors = zones.some_sectors();
        let aligned = |sectors: u32| sectors / block * block;
        match zones.chance.next_u64() % 100 {
            0..30 => zones.act(zone, Op::Write, state.written.min(capacity - block), sectors)?,
            30..34 => {
                let offset = aligned((zones.chance.next_u64() % u64::from(capacity)) as u32);
                zones.act(zone, Op::Write, offset, sectors)?;
            }
            34..44 => {
                let most = aligned(zones.info.append_sectors_max).max(block);
                zones.act(zone, Op::Append, 0, sectors.min(most))?;
            }
            44..48 => {
                let most = aligned(zones.info.write_zeroes_sectors_max).max(block);
                zones.act(zone, Op::WriteZeroes, state.written.min(capacity - block), sectors.min(most))?;
            }
            48..60 => zones.act(zone, Op::ZoneOpen, 0, 0)?,
            60..71 => zones.act(zone, Op::ZoneClose, 0, 0)?,
            71..79 => zones.act(zone, Op::ZoneFinish, 0, 0)?,
            79..91 => zones.act(zone, Op::ZoneReset, 0, 0)?,
            91..94 => zones.act(zone, Op::ZoneOffline, 0, 0)?,
            94 => zones.reset_all()?,
            n if can_fail => {
                let to = [
                    ZoneSetting::ReadOnly,
                    ZoneSetting::Restored,
                    ZoneSetting::Restored,
                    ZoneSetting::Offline,
                    ZoneSetting::Restored,
                ];
                zones.fail(zone, to[n as usize - 95])?;
            }
            _ => {}
        }
    }
    restore(&mut zones)
}

/// Makes all zones under test writable again.
pub(super) fn restore(zones: &mut Zones<'_, '_>) -> Result<(), Broken> {
    zones.reset_all()?;
    for zone in zones.sequential() {
        if matches!(zones.state(zone).condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) {
            zones.fail(zone, ZoneSetting::Restored)?;
        }
    }
    zones.reset_all()
}

/// A zone fills up to its capacity and no further.
pub(super) fn capacity(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    let mut zones = Zones::new(host, options)?;
    let sequential = zones.sequential();
    let (first, last) = (sequential.first(), sequential.last());
    for zone in first.into_iter().chain(last).copied() {
        zones.act(zone, Op::ZoneReset, 0, 0)?;
        let (capacity, block) = (zones.capacity(zone), zones.block());
        let most = zones.info.command_sectors_max / block * block;
        if capacity.div_ceil(most) > WRITES_MAX {
            return Ok(Some(format!("more than {WRITES_MAX} writes would fill a zone")));
        }
        let append_most = zones.info.append_sectors_max / block * block;
        let mut appends = false;
        while zones.state(zone).written + most < capacity {
            let offset = zones.state(zone).written;
            match appends {
                true => zones.act(zone, Op::Append, 0, append_most.min(most))?,
                false => zones.act(zone, Op::Write, offset, most)?,
            }
            appends = !appends && append_most > 0;
        }
        let offset = zones.state(zone).written;
        if most > capacity - offset {
            zones.act(zone, Op::Write, offset, capacity - offset + block)?;
        }
        zones.act(zone, Op::Write, offset, capacity - offset)?;
        zones.act(zone, Op::Write, capacity - block, block)?;
        zones.act(zone, Op::Append, 0, block)?;
        zones.act(zone, Op::ZoneReset, 0, 0)?;
    }
    zones.reset_all()?;
    Ok(None)
}

/// Writes to fill a zone beyond which it is left out.
const WRITES_MAX: u32 = 512;

/// More zones than the limits allow are opened, implicitly and explicitly.
pub(super) fn limits(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    let info = host.device.info();
    let most = info.open_max.max(info.active_max);
    if most == 0 {
        return Ok(Some("the device has no limit of open or active zones".into()));
    }
    let conventional = info.geometry.conventional_zones();
    let wanted = most + 2;
    if info.geometry.sequential_zones() < wanted || wanted > ZONES_MAX {
        return Ok(Some(format!(
            "{} sequential zones for limits of {most}",
            info.geometry.sequential_zones()
        )));
    }
    let chosen: Vec<ZoneIndex> = (conventional..conventional + wanted).map(ZoneIndex).collect();
    let mut zones = Zones::of(host, options, &chosen)?;
    let (chosen, block) = (zones.chosen(), zones.block());
    for op in [Op::Write, Op::ZoneOpen] {
        for &zone in &chosen {
            let sectors = if op == Op::Write { block } else { 0 };
            zones.act(zone, op, 0, sectors)?;
        }
        for op in [Op::ZoneClose, Op::ZoneFinish, Op::ZoneOpen] {
            zones.act(chosen[0], op, 0, 0)?;
            zones.act(chosen[chosen.len() - 1], Op::ZoneOpen, 0, 0)?;
        }
        zones.reset_all()?;
    }
    Ok(None)
}

/// Zones beyond which limits are not tried.
const ZONES_MAX: u32 = 512;

/// Commands that no zone's state allows.
pub(super) fn refusals(host: &Host<'_>, options: &Options) -> Result<(), Broken> {
    let mut zones = Zones::new(host, options)?;
    let info = zones.info;
    let block = info.block_sectors;
    let zone = zones.first()?;
    zones.act(zone, Op::Write, 0, block)?;
    let start = info.geometry.start_of(zone);
    let (behind, end) = (start + Sectors(block.into()), Sector(info.geometry.sectors().0));
    let mut wrong = vec![
        (Op::Write, behind, 0, DeviceError::InvalidField),
        (Op::Read, start, 0, DeviceError::InvalidField),
        (Op::Write, behind, info.command_sectors_max + block, DeviceError::InvalidField),
        (Op::Read, start, info.command_sectors_max + block, DeviceError::InvalidField),
        (Op::Read, end, block, DeviceError::OutOfRange),
        (Op::Write, end, block, DeviceError::OutOfRange),
        (Op::ZoneReset, end, 0, DeviceError::OutOfRange),
        (Op::ZoneReset, behind, 0, DeviceError::InvalidField),
        (Op::ZoneFinish, behind, 0, DeviceError::InvalidField),
    ];
    if block > 1 {
        wrong.push((Op::Write, start + Sectors(1), block, DeviceError::InvalidField));
        wrong.push((Op::Read, start, block - 1, DeviceError::InvalidField));
    }
    match info.append_sectors_max {
        0 => wrong.push((Op::Append, start, block, DeviceError::Unsupported)),
        most => {
            wrong.push((Op::Append, behind, block, DeviceError::InvalidField));
            wrong.push((Op::Append, start, most / block * block + block, DeviceError::InvalidField));
        }
    }
    match info.verify_sectors_max {
        0 => wrong.push((Op::Verify, start, block, DeviceError::Unsupported)),
        _ => wrong.push((Op::Verify, end, block, DeviceError::OutOfRange)),
    }
    for (op, sector, sectors, error) in wrong {
        let memory = match op {
            Op::Read => Memory::blank(sectors as usize * SECTOR_BYTES as usize, &mut zones.chance),
            Op::Write | Op::Append => zones.payload(sectors).1,
            _ => Memory::none(),
        };
        let (answer, _) = host.run(Order::new(op, sector, sectors).with(memory))?;
        let what = format!(
            "{} of {sectors} sectors at {sector}, in zones of {}",
            op.name(),
            info.geometry.zone_size().0
        );
        match answer {
            Err(got) if zones.errors.agree(error, got) => {}
            other => return Err(format!("{what}: answered {other:?}, not Err({error:?})")),
        }
        zones.look().map_err(|broken| format!("after {what}: {broken}"))?;
    }
    zones.reset_all()
}

//! The transitions of one zone.

use super::rules::Rules;
use super::state::ZoneState;
use crate::error::ZoneError;
use crate::zone::{Personality, ZoneCondition};

/// What happens to a zone. Offsets are in sectors from the zone's start, lengths in sectors and at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ZoneEvent {
    /// A positional write that takes effect at once.
    Write {
        /// Where it begins.
        offset: u32,
        /// Its length.
        sectors: u32,
    },
    /// A write wherever the pointer is. The zone is full as soon as the last of its room is given away.
    Append {
        /// Its length.
        sectors: u32,
    },
    /// The begin of a positional write whose data is still to come.
    BeginWrite {
        /// Where it begins.
        offset: u32,
        /// Its length.
        sectors: u32,
    },
    /// The data of a begun write has arrived.
    EndWrite,
    /// The data of a begun or appended write did not arrive. The pointer returns to where it began, unless another was
    /// placed after it: then the range stays as a hole of unspecified content.
    FailWrite {
        /// Where it began.
        offset: u32,
        /// Its length.
        sectors: u32,
    },
    /// Open command.
    Open,
    /// Close command.
    Close,
    /// Finish command.
    Finish,
    /// Reset command.
    Reset,
    /// The medium falls to read-only.
    SetReadOnly,
    /// The medium falls to offline.
    SetOffline,
    /// Offline command.
    Offline,
    /// What made the zone read-only or offline is mended.
    Restore,
    /// The device closes an implicitly open zone to make room for another one.
    ImplicitClose,
    /// Loss and return of power, with every acknowledged write kept.
    Restart,
}

/// Resources a transition has to find before it may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Needs {
    /// None.
    #[default]
    Nothing,
    /// An open one: the zone is active already.
    Open,
    /// An active one: the zone will not be open.
    Active,
    /// An active one, then an open one.
    ActiveAndOpen,
}

/// Outcome of an event that the zone accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// State after it.
    pub state: ZoneState,
    /// Where a write or append lands, in sectors from the zone's start.
    pub placed: Option<u32>,
    /// What has to be free for it to happen.
    pub needs: Needs,
}

impl Transition {
    const fn to(condition: ZoneCondition, written: u32) -> Transition {
        Transition { state: ZoneState { condition, written }, placed: None, needs: Needs::Nothing }
    }

    const fn stay(state: ZoneState) -> Transition {
        Transition { state, placed: None, needs: Needs::Nothing }
    }
}

/// What `event` does to a zone of `capacity` sectors in `state`.
///
/// Resources are not known here: where [`Transition::needs`] asks for some, the caller has to find them before it stores the
/// new state, as [`super::Resources`] does.
///
/// # Errors
/// [`ZoneError`], in the order given in the [module](super); the state is unchanged.
#[inline]
pub fn step(
    personality: Personality,
    capacity: u32,
    state: ZoneState,
    event: ZoneEvent,
) -> Result<Transition, ZoneError> {
    if state.condition == ZoneCondition::NotWp {
        return conventional(capacity, state, event);
    }
    let rules = Rules::of(personality);
    match event {
        ZoneEvent::Write { offset, sectors } => write(capacity, state, offset, sectors),
        ZoneEvent::Append { sectors } => append(capacity, state, sectors),
        ZoneEvent::BeginWrite { offset, sectors } => begin_write(capacity, state, offset, sectors),
        ZoneEvent::EndWrite => Ok(Transition::stay(filled(capacity, state))),
        ZoneEvent::FailWrite { offset, sectors } => Ok(fail_write(rules, state, offset, sectors)),
        ZoneEvent::Open => open(rules, state),
        ZoneEvent::Close => close(rules, state),
        ZoneEvent::Finish => finish(rules, state),
        ZoneEvent::Reset => reset(state),
        ZoneEvent::SetReadOnly => set_read_only(state),
        ZoneEvent::SetOffline => Ok(Transition::to(ZoneCondition::Offline, 0)),
        ZoneEvent::Offline => offline(rules, state),
        ZoneEvent::Restore => Ok(restore(capacity, state)),
        ZoneEvent::ImplicitClose => implicit_close(rules, state),
        ZoneEvent::Restart => Ok(Transition::stay(restart(capacity, state))),
    }
}

/// [`ZoneEvent::Write`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn write(capacity: u32, state: ZoneState, offset: u32, sectors: u32) -> Result<Transition, ZoneError> {
    let mut step = begin_write(capacity, state, offset, sectors)?;
    step.state = filled(capacity, step.state);
    Ok(step)
}

/// [`ZoneEvent::Append`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn append(capacity: u32, state: ZoneState, sectors: u32) -> Result<Transition, ZoneError> {
    write(capacity, state, state.written, sectors)
}

/// [`ZoneEvent::BeginWrite`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn begin_write(
    capacity: u32,
    state: ZoneState,
    offset: u32,
    sectors: u32,
) -> Result<Transition, ZoneError> {
    // Nearly every write finds its zone open.
    let (condition, needs) = match state.condition.is_open() {
        true => (state.condition, Needs::Nothing),
        false => (ZoneCondition::ImpOpen, opening(state.condition)?),
    };
    if state.written >= capacity {
        // The last write is still in flight; nothing else fits.
        return Err(ZoneError::Full);
    }
    if offset != state.written {
        return Err(ZoneError::InvalidWrite);
    }
    if sectors > capacity - offset {
        return Err(ZoneError::Boundary);
    }
    let state = ZoneState { condition, written: offset + sectors };
    Ok(Transition { state, placed: Some(offset), needs })
}

/// What a write needs to open a zone that is not open.
fn opening(condition: ZoneCondition) -> Result<Needs, ZoneError> {
    match condition {
        ZoneCondition::Empty => Ok(Needs::ActiveAndOpen),
        ZoneCondition::Closed => Ok(Needs::Open),
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => Ok(Needs::Nothing),
        ZoneCondition::Full => Err(ZoneError::Full),
        ZoneCondition::ReadOnly => Err(ZoneError::ReadOnly),
        ZoneCondition::Offline => Err(ZoneError::Offline),
        ZoneCondition::NotWp => Err(ZoneError::Conventional),
    }
}

/// An active zone whose pointer has come to its capacity is full.
#[inline]
fn filled(capacity: u32, state: ZoneState) -> ZoneState {
    if state.condition.is_active() && state.written >= capacity {
        ZoneState::full(state.written)
    } else {
        state
    }
}

fn fail_write(rules: Rules, state: ZoneState, offset: u32, sectors: u32) -> Transition {
    let has_pointer = state.written != 0;
    if !has_pointer || u64::from(state.written) != u64::from(offset) + u64::from(sectors) {
        return Transition::stay(state);
    }
    match state.condition {
        // Evicted while its first write was in flight.
        ZoneCondition::Closed if offset == 0 && rules.evict_unwritten_empties => {
            Transition::stay(ZoneState::EMPTY)
        }
        condition => Transition::to(condition, offset),
    }
}

fn open(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    let needs = match state.condition {
        ZoneCondition::Empty => Needs::ActiveAndOpen,
        ZoneCondition::Closed => Needs::Open,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => Needs::Nothing,
        ZoneCondition::Full if rules.open_full_succeeds => return Ok(Transition::stay(state)),
        _ => return Err(ZoneError::InvalidTransition),
    };
    Ok(Transition { needs, ..Transition::to(ZoneCondition::ExpOpen, state.written) })
}

fn close(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => {
            Ok(Transition::stay(closed(rules.close_unwritten_empties, state.written)))
        }
        ZoneCondition::Closed => Ok(Transition::stay(state)),
        ZoneCondition::Empty | ZoneCondition::Full if rules.close_idle_succeeds => {
            Ok(Transition::stay(state))
        }
        _ => Err(ZoneError::InvalidTransition),
    }
}

fn closed(unwritten_empties: bool, written: u32) -> ZoneState {
    if written == 0 && unwritten_empties {
        ZoneState::EMPTY
    } else {
        ZoneState { condition: ZoneCondition::Closed, written }
    }
}

fn finish(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    let needs = match state.condition {
        ZoneCondition::Empty if rules.finish_needs_resources => Needs::ActiveAndOpen,
        ZoneCondition::Closed if rules.finish_needs_resources => Needs::Open,
        ZoneCondition::Empty | ZoneCondition::Closed => Needs::Nothing,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Full => Needs::Nothing,
        _ => return Err(ZoneError::InvalidTransition),
    };
    Ok(Transition { needs, ..Transition::to(ZoneCondition::Full, state.written) })
}

fn reset(state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ReadOnly | ZoneCondition::Offline => Err(ZoneError::InvalidTransition),
        _ => Ok(Transition::stay(ZoneState::EMPTY)),
    }
}

fn set_read_only(state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::Offline => Err(ZoneError::InvalidTransition),
        _ => Ok(Transition::to(ZoneCondition::ReadOnly, state.written)),
    }
}

fn offline(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ReadOnly if rules.has_offline_command => Ok(Transition::to(ZoneCondition::Offline, 0)),
        ZoneCondition::Offline if rules.has_offline_command => Ok(Transition::stay(state)),
        _ => Err(ZoneError::InvalidTransition),
    }
}

/// A read-only zone kept its data and its pointer, an offline one has neither. Whether the zone was finished before its
/// end is not kept: then it takes writes again where its data ends.
fn restore(capacity: u32, state: ZoneState) -> Transition {
    match (state.condition, state.written) {
        (ZoneCondition::ReadOnly, 0) | (ZoneCondition::Offline, _) => Transition::stay(ZoneState::EMPTY),
        (ZoneCondition::ReadOnly, written) if written >= capacity => {
            Transition::stay(ZoneState::full(written))
        }
        (ZoneCondition::ReadOnly, written) => {
            Transition { needs: Needs::Active, ..Transition::to(ZoneCondition::Closed, written) }
        }
        _ => Transition::stay(state),
    }
}

fn implicit_close(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ImpOpen => Ok(Transition::stay(closed(rules.evict_unwritten_empties, state.written))),
        _ => Err(ZoneError::InvalidTransition),
    }
}

/// Open conditions do not survive a restart, and a zone with nothing written comes back empty.
fn restart(capacity: u32, state: ZoneState) -> ZoneState {
    match state.condition {
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => {
            filled(capacity, closed(true, state.written))
        }
        _ => state,
    }
}

/// A conventional zone has one state: it takes writes anywhere and knows no zone command.
fn conventional(capacity: u32, state: ZoneState, event: ZoneEvent) -> Result<Transition, ZoneError> {
    match event {
        ZoneEvent::Write { offset, sectors } | ZoneEvent::BeginWrite { offset, sectors } => {
            let fits = u64::from(offset) + u64::from(sectors) <= u64::from(capacity);
            let step = Transition { placed: Some(offset), ..Transition::stay(state) };
            if fits { Ok(step) } else { Err(ZoneError::Boundary) }
        }
        ZoneEvent::EndWrite | ZoneEvent::FailWrite { .. } | ZoneEvent::Restart => Ok(Transition::stay(state)),
        _ => Err(ZoneError::Conventional),
    }
}

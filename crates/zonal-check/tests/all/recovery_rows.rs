//! Every row of recovery's table in docs/WRITE-PATH.md, in every mode with plugs, while each command of recovery's own is refused
//! once, refused for good, delayed for long, or lost.
//!
//! A scene is a failed request with one more after it. What the table promises of the failed one is checked to the
//! letter; of all requests, that each ends once and that the bytes of the zone agree with what was said.

use std::sync::Arc;
use zonal_check::rig::{DONE, End, Rig, tags};
use zonal_check::script::{Answer, Script, Seen, info};
use zonal_core::{DeviceError, Nanos, Op, RequestError, ZoneCondition, ZoneError, ZoneIndex};
use zonal_io::device::{DeviceInfo, Output, Settled};
use zonal_io::volume::{VolumeOptions, WriteMode};

/// The modes with plugs.
const MODES: [WriteMode; 5] =
    [WriteMode::PerZone, WriteMode::Append, WriteMode::Pipelined, WriteMode::Qd1, WriteMode::ZoneLock];

const ZONE: u32 = 1;
/// A zone that nothing ails.
const OTHER: u32 = 2;
/// Where the request is that fails, and how long it is.
const AT: u32 = 4;
const SECTORS: u32 = 8;
/// What of it lands if it is torn.
const PART: u32 = 3;
/// Longer than all retries, and than any writer would be patient.
const LONG: Nanos = Nanos(3_600_000_000_000);
/// Tries of a command of recovery's own.
const TRIES: u32 = 11;

/// What of the failed request is in the zone, whatever the device says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Written {
    Nothing,
    Part,
    All,
    /// The pointer has passed it, and other bytes are there.
    Others,
}

/// What the table says in its last column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    Succeeds,
    FateUnknown,
    /// It fails with the device's error; an append says what it has left.
    Fails,
}

/// A row of the table: the device's errors, where the pointer is, and what follows.
struct Row {
    errors: &'static [DeviceError],
    written: Written,
    promise: Promise,
}

const NOT_EXECUTED: &[DeviceError] =
    &[DeviceError::Busy, DeviceError::UnitAttention, DeviceError::Zone(ZoneError::InvalidWrite)];
const NO_SLOT: &[DeviceError] =
    &[DeviceError::Zone(ZoneError::TooManyOpen), DeviceError::Zone(ZoneError::TooManyActive)];
const MAYBE: &[DeviceError] = &[DeviceError::Aborted, DeviceError::Gone, DeviceError::TimedOut];
const MEDIUM: &[DeviceError] = &[DeviceError::Medium];
const FOR_GOOD: &[DeviceError] = &[DeviceError::InvalidField, DeviceError::Zone(ZoneError::Boundary)];

const ROWS: [Row; 17] = [
    Row { errors: NOT_EXECUTED, written: Written::Nothing, promise: Promise::Succeeds },
    Row { errors: NO_SLOT, written: Written::Nothing, promise: Promise::Succeeds },
    Row { errors: MAYBE, written: Written::Nothing, promise: Promise::Succeeds },
    Row { errors: NOT_EXECUTED, written: Written::Part, promise: Promise::Succeeds },
    Row { errors: NO_SLOT, written: Written::Part, promise: Promise::Succeeds },
    Row { errors: MAYBE, written: Written::Part, promise: Promise::Succeeds },
    Row { errors: NOT_EXECUTED, written: Written::All, promise: Promise::Succeeds },
    Row { errors: NO_SLOT, written: Written::All, promise: Promise::Succeeds },
    Row { errors: MAYBE, written: Written::All, promise: Promise::Succeeds },
    Row { errors: NOT_EXECUTED, written: Written::Others, promise: Promise::FateUnknown },
    Row { errors: NO_SLOT, written: Written::Others, promise: Promise::FateUnknown },
    Row { errors: MAYBE, written: Written::Others, promise: Promise::FateUnknown },
    Row { errors: MEDIUM, written: Written::Nothing, promise: Promise::Fails },
    Row { errors: MEDIUM, written: Written::Part, promise: Promise::Fails },
    Row { errors: MEDIUM, written: Written::All, promise: Promise::Fails },
    Row { errors: FOR_GOOD, written: Written::Nothing, promise: Promise::Fails },
    Row { errors: FOR_GOOD, written: Written::All, promise: Promise::Fails },
];

/// A command of recovery's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    Report,
    ReadBack,
    Settle,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// The device answers this number of tries in a row with this error. [`DeviceError::TimedOut`]: they are lost.
    Refused(DeviceError, u32),
    /// It is answered after [`LONG`].
    Delayed,
}

/// Errors after which a command that changes nothing is tried again.
const PASSING: [DeviceError; 4] =
    [DeviceError::Busy, DeviceError::UnitAttention, DeviceError::Aborted, DeviceError::TimedOut];
/// Errors after which it is not.
const LASTING: [DeviceError; 3] = [DeviceError::Medium, DeviceError::Gone, DeviceError::InvalidField];

fn troubles(own: Own) -> Vec<Trouble> {
    let passing = |times| PASSING.map(|error| Trouble::Refused(error, times));
    let lasting = LASTING.map(|error| Trouble::Refused(error, 1));
    match own {
        Own::Settle => [&lasting[..], &[Trouble::Delayed]].concat(),
        _ => [&passing(1)[..], &passing(TRIES - 1), &passing(TRIES), &lasting, &[Trouble::Delayed]].concat(),
    }
}

impl Trouble {
    /// Whether recovery gets what it asked for in the end.
    fn passes(self) -> bool {
        match self {
            Trouble::Refused(error, times) => times < TRIES && PASSING.contains(&error),
            Trouble::Delayed => true,
        }
    }
}

/// One failure under one trouble.
struct Scene {
    rig: Rig,
    mode: WriteMode,
    error: DeviceError,
    written: Written,
    own: Own,
    trouble: Trouble,
    is_append: bool,
    /// Answers that the trouble has given.
    troubled: u32,
    /// What was submitted to [`ZONE`]: its number and its length.
    submitted: Vec<(u64, u32)>,
}

impl Scene {
    fn describe(&self) -> String {
        let Scene { mode, error, written, own, trouble, is_append, .. } = self;
        format!("{mode}, append: {is_append}, {error:?}, {written:?}, {own:?}: {trouble:?}")
    }

    fn submit(&mut self, at: u32, sectors: u32) -> u64 {
        let token = match self.is_append {
            true => self.rig.append(ZONE, sectors),
            false => self.rig.write(ZONE, at, sectors),
        };
        self.submitted.push((token, sectors));
        token
    }

    /// Whether the later request is executed before the failed one is: native appends that come late lie in another
    /// order than that of their issue, and are not found.
    fn comes_late_behind_another(&self) -> bool {
        let is_native = self.is_append && self.mode == WriteMode::Append;
        is_native && self.error == DeviceError::TimedOut && self.written == Written::All
    }

    /// Lets the request fail that is the oldest at the device.
    fn fail(&self) {
        let id = self.rig.script.pending()[0].id;
        let script = &self.rig.script;
        let is_late = self.error == DeviceError::TimedOut;
        match self.written {
            Written::All if is_late => script.finish(id, Answer::Late),
            Written::Nothing if is_late => {
                script.finish(id, Answer::Late);
                script.forget_late();
            }
            Written::Nothing => script.finish(id, Answer::Refuse(self.error)),
            Written::Part => script.finish(id, Answer::Torn(PART, self.error)),
            Written::All => script.finish(id, Answer::Torn(SECTORS, self.error)),
            Written::Others => {
                script.set_zone(ZONE, ZoneCondition::ImpOpen, AT + SECTORS);
                script.finish(id, Answer::Refuse(self.error));
            }
        }
    }

    /// Whether this is the command that is in for trouble.
    fn is_troubled(&self, seen: &Seen) -> bool {
        match self.own {
            Own::Report => seen.resync,
            Own::ReadBack => seen.op == Op::Read,
            Own::Settle => false,
        }
    }

    /// Nothing of the zone goes out while recovery waits, and the other zone is served.
    fn wait_long(&self) {
        let before = self.in_zone();
        self.rig.pass(LONG);
        let other = self.rig.write(OTHER, self.rig.script.zone(OTHER).1, 2);
        self.rig.rest();
        let place = self.rig.script.pending().iter().position(|s| s.zone == ZoneIndex(OTHER));
        self.rig.finish(
            place.unwrap_or_else(|| panic!("{}: the other zone waits", self.describe())),
            Answer::Obey,
        );
        assert_eq!(self.rig.end(other), Some(DONE), "{}", self.describe());
        assert_eq!(self.in_zone(), before, "{}: something goes out meanwhile", self.describe());
    }

    /// Commands that the zone has got so far.
    fn in_zone(&self) -> usize {
        self.rig.script.log().iter().filter(|s| s.zone == ZoneIndex(ZONE)).count()
    }

    fn settle_late(&mut self) {
        self.troubled += 1;
        match self.trouble {
            Trouble::Refused(error, _) => self.rig.script.settle_with(Settled::Never(error)),
            Trouble::Delayed => {
                // What is in flight ends first.
                self.rig.rest();
                while !self.rig.script.pending().is_empty() {
                    self.rig.step(Answer::Obey);
                }
                self.wait_long();
                let due = Nanos(self.rig.now().0 + LONG.0);
                self.rig.script.settle_with(Settled::NotYet(Some(due)));
                assert_eq!(self.rig.poll(), Some(due), "{}: it is asked again in time", self.describe());
                self.rig.script.settle_with(Settled::Yes);
                self.rig.pass(LONG);
            }
        }
    }

    /// Plays it, until nothing is left to do. Returns how the failed request ended.
    fn play(&mut self) -> End {
        let first = self.rig.write(ZONE, 0, AT);
        self.rig.settle();
        self.submitted.push((first, AT));
        let failed = self.submit(AT, SECTORS);
        let behind = self.submit(AT + SECTORS, 4);
        if self.own == Own::Settle {
            self.rig.script.settle_with(Settled::NotYet(None));
        }
        self.fail();
        if self.own == Own::Settle {
            self.settle_late();
        }
        self.rig.rest();
        for _ in 0..1000 {
            let Some(next) = self.rig.script.pending().first().cloned() else { break };
            if !self.is_troubled(&next) {
                self.rig.step(Answer::Obey);
                continue;
            }
            match self.trouble {
                Trouble::Refused(error, times) if self.troubled < times => {
                    self.rig.step(Answer::Refuse(error));
                }
                Trouble::Delayed if self.troubled == 0 => {
                    self.wait_long();
                    self.rig.step(Answer::Obey);
                }
                _ => {
                    self.rig.step(Answer::Obey);
                    continue;
                }
            }
            self.troubled += 1;
        }
        assert!(self.rig.script.pending().is_empty(), "{}: the device is asked for ever", self.describe());
        assert!(self.rig.end(behind).is_some(), "{}: the request behind has not ended", self.describe());
        self.rig.end(failed).unwrap_or_else(|| panic!("{}: the request has not ended", self.describe()))
    }

    /// What the table says of the failed request, if recovery gets its answers or if it does not.
    fn check_end(&self, promise: Promise, end: &End) {
        let is_maybe = MAYBE.contains(&self.error);
        let promise = match (self.trouble.passes(), self.own) {
            (true, _) if self.comes_late_behind_another() => Promise::FateUnknown,
            (true, _) => promise,
            // Nothing is known of the zone. What the device has said of the request still is.
            (false, Own::Report | Own::Settle) if is_maybe => Promise::FateUnknown,
            (false, Own::Report | Own::Settle) => Promise::Fails,
            // A torn native append cannot be found: what of it is there is not said.
            (false, Own::ReadBack) if promise == Promise::Fails => Promise::Fails,
            (false, Own::ReadBack) => Promise::FateUnknown,
        };
        let Scene { error, .. } = *self;
        let passed = match (self.own, self.written) {
            (Own::ReadBack, Written::Part) => PART,
            _ => SECTORS,
        };
        let is_it = match (promise, end) {
            (Promise::Succeeds, Ok(Output::Appended(_))) => self.is_append,
            (Promise::Succeeds, Ok(Output::Done)) => !self.is_append,
            (
                Promise::FateUnknown,
                &Err(RequestError::FateUnknown { zone, offset, write_pointer, error: e }),
            ) => zone == ZoneIndex(ZONE) && offset == AT && write_pointer >= AT + passed && e == error,
            (Promise::Fails, &Err(RequestError::TornAppend { zone, offset, sectors, error: e })) => {
                let written = if self.written == Written::Part { PART } else { SECTORS };
                let is_known = self.is_append && self.written != Written::Nothing && self.trouble.passes();
                is_known
                    && error == DeviceError::Medium
                    && (zone, offset, sectors, e) == (ZoneIndex(ZONE), AT, written, error)
            }
            (Promise::Fails, &Err(RequestError::Device(e))) => {
                let says_more = self.is_append
                    && error == DeviceError::Medium
                    && self.written != Written::Nothing
                    && self.trouble.passes();
                e == error && !says_more
            }
            _ => false,
        };
        assert!(is_it, "{}: {promise:?}, but {end:?}", self.describe());
    }

    /// The bytes of the zone agree with what was said of each request, and no request is there twice.
    fn check_bytes(&self) {
        let (_, pointer) = self.rig.script.zone(ZONE);
        let there = tags(&self.rig.script.bytes(self.rig.sector(ZONE, 0), pointer));
        for &(token, sectors) in &self.submitted {
            let end =
                self.rig.end(token).unwrap_or_else(|| panic!("{}: {token} has not ended", self.describe()));
            let is_whole =
                |at: u32| (0..sectors).all(|n| there.get((at + n) as usize) == Some(&(token, u64::from(n))));
            let copies: Vec<u32> = (0..pointer).filter(|&at| is_whole(at)).collect();
            assert!(copies.len() <= 1, "{}: {token} is at {copies:?}", self.describe());
            match end {
                Ok(Output::Appended(sector)) => {
                    let at = (sector.0 - self.rig.sector(ZONE, 0).0) as u32;
                    assert_eq!(copies, [at], "{}: {token}", self.describe());
                }
                Ok(_) => assert_eq!(copies.len(), 1, "{}: {token} is not there", self.describe()),
                Err(_) => {}
            }
        }
    }

    /// The zone takes an append and a write after all that, unless the device cannot settle it; another zone does in any case.
    fn check_service(&mut self) {
        let is_left_alone = self.own == Own::Settle && !self.trouble.passes();
        let append = self.rig.append(ZONE, 2);
        self.rig.settle();
        let at = self.rig.script.zone(ZONE).1;
        let write = self.rig.write(ZONE, at, 2);
        let other = self.rig.write(OTHER, self.rig.script.zone(OTHER).1, 2);
        self.rig.settle();
        let ends = [append, write].map(|token| self.rig.end(token));
        if let (true, Trouble::Refused(error, _)) = (is_left_alone, self.trouble) {
            assert_eq!(ends, [Some(Err(error.into())), Some(Err(error.into()))], "{}", self.describe());
        } else {
            let address = Output::Appended(self.rig.sector(ZONE, at - 2));
            assert_eq!(ends, [Some(Ok(address)), Some(DONE)], "{}", self.describe());
            self.rig.assert_written(ZONE, at - 2, 2, append);
            self.rig.assert_written(ZONE, at, 2, write);
            let plug = self.rig.plug(ZONE);
            assert!(plug.is_none_or(|p| p.flags == 0 && p.pending == 0), "{}", self.describe());
        }
        assert_eq!(self.rig.end(other), Some(DONE), "{}", self.describe());
    }
}

fn scene(
    mode: WriteMode,
    error: DeviceError,
    written: Written,
    own: Own,
    trouble: Trouble,
    is_append: bool,
) -> Scene {
    let info = DeviceInfo { keeps_order: mode == WriteMode::Pipelined, ..info() };
    let options = VolumeOptions::default().with_mode(mode).with_merge(false).without_park();
    let rig = Rig::on(Arc::new(Script::new(info)), options);
    Scene { rig, mode, error, written, own, trouble, is_append, troubled: 0, submitted: Vec::new() }
}

/// Plays all scenes in which this command of recovery's own is in trouble. Returns how many met it.
fn play_all(own: Own) -> u32 {
    let mut met = 0;
    for row in ROWS {
        for &error in row.errors {
            if own == Own::Settle && error != DeviceError::TimedOut {
                continue;
            }
            for (trouble, mode, is_append) in troubles(own).into_iter().flat_map(|trouble| {
                MODES.into_iter().flat_map(move |mode| [(trouble, mode, false), (trouble, mode, true)])
            }) {
                let mut scene = scene(mode, error, row.written, own, trouble, is_append);
                let end = scene.play();
                if scene.troubled == 0 {
                    // Without a command of this kind there is nothing to be in trouble.
                    assert_eq!(own, Own::ReadBack, "{}", scene.describe());
                    continue;
                }
                met += 1;
                scene.check_end(row.promise, &end);
                scene.check_bytes();
                scene.check_service();
            }
        }
    }
    met
}

#[test]
fn report_of_recovery_is_refused_delayed_or_lost_and_every_row_holds() {
    let errors: usize = ROWS.iter().map(|row| row.errors.len()).sum();
    assert_eq!(play_all(Own::Report) as usize, errors * troubles(Own::Report).len() * MODES.len() * 2);
}

#[test]
fn read_back_of_recovery_is_refused_delayed_or_lost_and_every_row_holds() {
    assert!(play_all(Own::ReadBack) > 2000);
}

#[test]
fn settling_of_recovery_is_refused_or_delayed_and_every_row_holds() {
    assert_eq!(play_all(Own::Settle) as usize, 4 * troubles(Own::Settle).len() * MODES.len() * 2);
}

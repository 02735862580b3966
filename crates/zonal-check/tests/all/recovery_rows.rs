//! Every row of the recovery table in docs/WRITE-PATH.md, in every mode with plugs, while each
//! command of recovery itself is refused once, refused permanently, delayed for long, or lost.
//!
//! A scene is a failed request followed by another one. The result of the failed request is checked
//! exactly against the table; all requests must end once, and the bytes of the zone must agree with
//! their results.

use std::sync::Arc;
use zonal_check::rig::{DONE, End, Rig, tags};
use zonal_check::script::{Answer, Script, Seen, info};
use zonal_core::{DeviceError, Nanos, Op, RequestError, ZoneCondition, ZoneError, ZoneIndex};
use zonal_io::device::{DeviceInfo, Output, Settled};
use zonal_io::volume::{VolumeOptions, WriteMode};

/// Modes with plugs.
const MODES: [WriteMode; 5] =
    [WriteMode::PerZone, WriteMode::Append, WriteMode::Pipelined, WriteMode::Qd1, WriteMode::ZoneLock];

const ZONE: u32 = 1;
/// A zone without failures.
const OTHER: u32 = 2;
/// Offset and length of the failing request.
const AT: u32 = 4;
const SECTORS: u32 = 8;
/// Sectors of it that are written if it is torn.
const PART: u32 = 3;
/// Longer than all retries, and than any writer would wait.
const LONG: Nanos = Nanos(3_600_000_000_000);
/// Tries of one of recovery's commands.
const TRIES: u32 = 11;

/// Part of the failed request that is in the zone, regardless of the device's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Written {
    Nothing,
    Part,
    All,
    /// The write pointer is beyond it, but the data is that of others.
    Others,
}

/// Last column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promise {
    Succeeds,
    FateUnknown,
    /// It fails with the device's error; an append reports what it has left.
    Fails,
}

/// A row of the table: errors of the device, position of the write pointer, and result.
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

/// A command of recovery itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Own {
    Report,
    ReadBack,
    Settle,
}

/// Disturbance of that command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// The device answers this number of consecutive tries with this error. With
    /// [`DeviceError::TimedOut`] they are lost.
    Refused(DeviceError, u32),
    /// It is answered after [`LONG`].
    Delayed,
}

/// Errors after which a command that changes nothing is retried.
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
    /// True if recovery gets an answer in the end.
    fn passes(self) -> bool {
        match self {
            Trouble::Refused(error, times) => times < TRIES && PASSING.contains(&error),
            Trouble::Delayed => true,
        }
    }
}

/// One failure with one disturbance.
struct Scene {
    rig: Rig,
    mode: WriteMode,
    error: DeviceError,
    written: Written,
    own: Own,
    trouble: Trouble,
    is_append: bool,
    /// Number of disturbed answers so far.
    troubled: u32,
    /// Number and length of each request submitted to [`ZONE`].
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

    /// True if the later request is executed before the failed one. Native appends that are
    /// executed late are not in the order of their issue, and are not found.
    fn comes_late_behind_another(&self) -> bool {
        let is_native = self.is_append && self.mode == WriteMode::Append;
        is_native && self.error == DeviceError::TimedOut && self.written == Written::All
    }

    /// Makes the oldest request at the device fail.
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

    /// True if this command is to be disturbed.
    fn is_troubled(&self, seen: &Seen) -> bool {
        match self.own {
            Own::Report => seen.resync,
            Own::ReadBack => seen.op == Op::Read,
            Own::Settle => false,
        }
    }

    /// While recovery waits, no command of the zone is issued, and the other zone is served.
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

    /// Commands that the zone has received so far.
    fn in_zone(&self) -> usize {
        self.rig.script.log().iter().filter(|s| s.zone == ZoneIndex(ZONE)).count()
    }

    fn settle_late(&mut self) {
        self.troubled += 1;
        match self.trouble {
            Trouble::Refused(error, _) => self.rig.script.settle_with(Settled::Never(error)),
            Trouble::Delayed => {
                // Commands in flight complete first.
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

    /// Plays the scene until nothing is left to do. Returns the result of the failed request.
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

    /// Checks the result of the failed request against the table, depending on whether recovery
    /// gets its answers.
    fn check_end(&self, promise: Promise, end: &End) {
        let is_maybe = MAYBE.contains(&self.error);
        let promise = match (self.trouble.passes(), self.own) {
            (true, _) if self.comes_late_behind_another() => Promise::FateUnknown,
            (true, _) => promise,
            // The state of the zone is unknown, but the device's answer to the request is not.
            (false, Own::Report | Own::Settle) if is_maybe => Promise::FateUnknown,
            (false, Own::Report | Own::Settle) => Promise::Fails,
            // A torn native append cannot be found, so the remaining part is not reported.
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

    /// The bytes of the zone agree with the result of each request, and no request is there twice.
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

    /// Afterwards the zone accepts an append and a write, unless the device cannot settle it;
    /// another zone does in any case.
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

/// Plays all scenes in which this command of recovery is disturbed. Returns the number of scenes
/// that have such a command.
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
                    // A scene without such a command cannot be disturbed.
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

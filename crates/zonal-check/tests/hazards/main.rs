//! Known mistakes of write paths to zoned devices, with at least one test for each that can be
//! reproduced here.
//!
//! A test is named after its number in docs/HAZARDS.md: `h` for mistakes known from elsewhere, `u`
//! for our own.

mod admission;
mod append;
mod budget;
mod busy;
mod chains;
mod delivery;
mod errors;
mod lifecycle;
mod management;
mod order;
mod park;
mod pipelined;
mod pointer;
mod progress;
mod qd1;
mod recovery;
mod scheduler;
mod table;
mod torn;
mod zone_lock;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use zonal_check::rig::{DONE, End, Rig, payload};
use zonal_check::script::{self, Answer, CAPACITY, Script, Style, ZONE};
use zonal_core::{
    DeviceError, Geometry, Op, RequestError, Sector, Sectors, ZoneCondition, ZoneError, ZoneIndex,
};
use zonal_io::device::{DeviceInfo, Output};
use zonal_io::volume::{Request, SchedulerKind, VolumeOptions, WriteMode};

/// Modes that send writes through plugs.
const PLUGGED: [WriteMode; 2] = [WriteMode::PerZone, WriteMode::Append];

/// Longest time of a scene, in case a mistake makes it hang. It normally takes milliseconds.
const SCENE_MAX: Duration = Duration::from_secs(20);

const MEDIUM: Answer = Answer::Refuse(DeviceError::Medium);

fn refused(error: RequestError) -> End {
    Err(error)
}

fn full(zone: u32) -> End {
    Err(RequestError::ZoneFull { zone: ZoneIndex(zone) })
}

fn aborted(zone: u32) -> End {
    Err(RequestError::Aborted { zone: ZoneIndex(zone) })
}

fn misplaced(zone: u32, write_pointer: u32, offset: u32) -> End {
    Err(RequestError::NotAtWritePointer { zone: ZoneIndex(zone), write_pointer, offset })
}

fn lost(zone: u32, lost_at: u32, offset: u32) -> End {
    Err(RequestError::PredecessorLost { zone: ZoneIndex(zone), lost_at, offset })
}

fn failed(error: DeviceError) -> End {
    Err(RequestError::Device(error))
}

fn appended(rig: &Rig, zone: u32, offset: u32) -> End {
    Ok(Output::Appended(rig.sector(zone, offset)))
}

/// [`script::info`] with zones that are writable to their end, so that a write may continue into
/// the next.
fn whole_zones() -> DeviceInfo {
    let geometry = Geometry::new(Sectors(8 * ZONE), Sectors(ZONE), Sectors(0), 1).unwrap();
    DeviceInfo { geometry, ..script::info() }
}

/// Runs a scene on a thread of its own, and fails if it does not end: a hanging call could not be
/// detected otherwise.
fn ends(scene: impl FnOnce() + Send + 'static) {
    let (over, end) = mpsc::channel();
    let player = std::thread::spawn(move || {
        scene();
        over.send(()).unwrap();
    });
    match end.recv_timeout(SCENE_MAX) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the scene does not end"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(player.join().unwrap_err()),
    }
}

/// A rig without merging or parking.
fn unmerged(info: DeviceInfo, mode: WriteMode) -> Rig {
    Rig::on(
        Arc::new(Script::new(info)),
        VolumeOptions::default().with_mode(mode).with_merge(false).without_park(),
    )
}

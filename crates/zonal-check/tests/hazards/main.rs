//! Known mistakes of write paths to zoned devices, one test or more for each that can be made here.
//!
//! A test is named after its number in docs/HAZARDS.md: `h` for those that others have met, `u` for our own.

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
use zonal_io::volume::{Request, VolumeOptions, WriteMode};

/// The modes that put writes through plugs.
const PLUGGED: [WriteMode; 2] = [WriteMode::PerZone, WriteMode::Append];

/// Longest that a scene may take that a mistake keeps from ending: it takes milliseconds.
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

/// [`script::info`] with zones that can be written to their end, so that a write may continue into the next.
fn whole_zones() -> DeviceInfo {
    let geometry = Geometry::new(Sectors(8 * ZONE), Sectors(ZONE), Sectors(0), 1).unwrap();
    DeviceInfo { geometry, ..script::info() }
}

/// Plays a scene on a thread of its own, and fails if it does not end: a call that does not return leaves nothing to count.
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

/// A rig that does not merge, nor park.
fn unmerged(info: DeviceInfo, mode: WriteMode) -> Rig {
    Rig::on(
        Arc::new(Script::new(info)),
        VolumeOptions::default().with_mode(mode).with_merge(false).without_park(),
    )
}

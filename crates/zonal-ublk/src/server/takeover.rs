//! Devices left over by killed servers: those of the same drive are taken over, those of drives
//! that no longer exist are deleted.

use crate::control::{Control, UblkError, devices, disk, open_character_device};
use crate::wire::{self, DeviceFacts, Parameters, device_state};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zonal_io::device::DeviceInfo;
use zonal_io::image::CacheId;

/// Mark of a device for a drive without identity, which ends with its server.
const WITHOUT_IDENTITY: u64 = u64::from_be_bytes(*b"\0zonal-u");

/// Time for the kernel to quiesce the device of a killed server.
const QUIESCED_WITHIN: Duration = Duration::from_secs(30);

/// Retry interval.
const PAUSE: Duration = Duration::from_millis(20);

/// Mark of a drive in its device. Derived from identity and file, because a copy of the file is
/// another drive with an equal identity.
pub(super) fn mark_of(drive: &DeviceInfo) -> u64 {
    let Some(identity) = drive.identity else { return WITHOUT_IDENTITY };
    let number = u128::from_be_bytes(identity.bytes());
    let file = drive.cache.map_or([0; 5], |CacheId(file)| file);
    file.iter().fold((number >> 64) as u64 ^ number as u64, |mark, part| mark.rotate_left(13) ^ part)
}

/// Finds a device with this mark and without a server. Deletes those whose drives ended with their
/// servers.
pub(super) fn find(
    control: &mut Control,
    mark: u64,
    parameters: &Parameters,
) -> Result<Option<DeviceFacts>, UblkError> {
    for device in devices().map_err(UblkError::refused("the list of devices"))? {
        // It may be gone, or have another owner.
        let Ok(facts) = control.facts(device) else { continue };
        let is_dead = facts.state == device_state::DEAD;
        // A server that is still starting does not have a disk either.
        let is_left = is_dead && !is_alive(facts.pid) && !is_open(device);
        if is_left && [mark, WITHOUT_IDENTITY].contains(&facts.mark) {
            let _ = control.delete(device);
            continue;
        }
        if facts.mark != mark || mark == WITHOUT_IDENTITY || !waits_for_a_server(&facts) {
            continue;
        }
        let there = control.parameters(device).map_err(UblkError::refused("its parameters"))?;
        if !is_same(&there, parameters) {
            return Err(UblkError::Changed(disk(device)));
        }
        return Ok(Some(facts));
    }
    Ok(None)
}

/// Compares parameters, except those filled in by the kernel.
fn is_same(there: &Parameters, parameters: &Parameters) -> bool {
    let wanted = |of: &Parameters| Parameters { len: 0, types: 0, numbers: [0; 4], reserved: [0; 6], ..*of };
    wanted(there) == wanted(parameters)
}

/// True if a server has the device open, as the kernel allows only one opener.
fn is_open(device: u32) -> bool {
    open_character_device(device).is_err_and(|error| is(&error, Errno::BUSY))
}

/// True if the disk exists without a server. The process number of a killed server may have been
/// reused, so it is ignored once the kernel has quiesced the device.
fn waits_for_a_server(facts: &DeviceFacts) -> bool {
    match facts.state {
        device_state::DEAD => false,
        device_state::QUIESCED => true,
        _ => !is_alive(facts.pid),
    }
}

/// True if a process with this number is running. Zombies do not count.
fn is_alive(pid: i32) -> bool {
    let there = if pid > 0 { Pid::from_raw(pid) } else { None };
    let is_there = there.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH));
    is_there && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_zombie(&stat))
}

/// The state follows the name, which may contain any characters.
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}

/// Starts the recovery of a device once the kernel has quiesced it. Before 6.16, the kernel refuses
/// this if a server was killed during its own recovery; the device is then ready for new queues
/// without it.
pub(super) fn begin(control: &mut Control, device: u32) -> Result<(), UblkError> {
    let until = Instant::now() + QUIESCED_WITHIN;
    loop {
        match control.order(wire::control::START_RECOVERY, device, 0) {
            Err(error) if is(&error, Errno::BUSY) && Instant::now() < until => sleep(PAUSE),
            Err(error) if is(&error, Errno::INVAL) && is_quiesced(control, device) => return Ok(()),
            ended => return ended.map_err(UblkError::refused("the device of a killed server")),
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

fn is_quiesced(control: &mut Control, device: u32) -> bool {
    control.facts(device).is_ok_and(|facts| facts.state == device_state::QUIESCED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use zonal_io::registry::Registry;

    #[test]
    fn drives_without_identity_drives_with_one_and_copies_have_their_own_marks() {
        let memory = Registry::default().open("ram:size=16M,zone_size=4M").unwrap();
        let of = |identity: &str, cache| {
            mark_of(&DeviceInfo { identity: Some(identity.parse().unwrap()), cache, ..memory.info().clone() })
        };
        let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let first = of(uuid, None);
        assert_ne!(first, of("67e55044-10b1-426f-9247-bb680e5fe0c9", None));
        let file = |device, inode| of(uuid, Some(CacheId([7, 8, device, inode, 0])));
        assert_eq!(file(1, 2), file(1, 2));
        assert!(file(1, 2) != file(1, 3) && file(1, 2) != file(2, 2) && file(1, 2) != file(2, 1));
        assert_eq!(mark_of(memory.info()), WITHOUT_IDENTITY);
    }

    #[test]
    fn device_is_the_same_whatever_the_kernel_fills_in() {
        let one = Parameters { sectors: 8, ..Parameters::default() };
        assert!(is_same(&Parameters { types: 7, numbers: [1; 4], ..one }, &one));
        assert!(!is_same(&Parameters { open_max: 1, ..one }, &one));
    }

    #[test]
    fn disk_waits_for_a_server_once_the_kernel_has_its_requests_back() {
        const LIVE: u16 = 1;
        let of = |state, pid| waits_for_a_server(&DeviceFacts { state, pid, ..DeviceFacts::default() });
        let own = std::process::id() as i32;
        assert!(of(device_state::QUIESCED, own), "a number that another process has");
        assert!(!of(LIVE, own) && of(LIVE, -1));
        assert!(!of(device_state::DEAD, own) && !of(device_state::DEAD, -1));
    }

    #[test]
    fn process_is_alive_until_it_has_ended() {
        assert!(is_alive(std::process::id() as i32));
        assert!(!is_alive(-1) && !is_alive(0));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id() as i32;
        waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert!(!is_alive(number), "its parent has not asked for it");
        child.wait().unwrap();
        assert!(!is_alive(number));
        assert!(is_zombie("7 (a) R (b)) Z 1 2") && !is_zombie("7 (a) Z) S 1 2") && !is_zombie("7"));
    }
}

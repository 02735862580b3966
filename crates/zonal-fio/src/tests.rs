//! Tests of the C interface, used in the same way as by the engine.

use super::*;
use std::ffi::CString;

fn open(name: &str) -> Result<*mut Device, String> {
    let name = CString::new(name).unwrap();
    let mut message = [0 as c_char; 64];
    // SAFETY: the name is a C string, the mode and options are null, and the message has room for
    // 64 bytes.
    let device = unsafe {
        zonal_fio_open(name.as_ptr(), std::ptr::null(), std::ptr::null(), message.as_mut_ptr(), 64)
    };
    match device.is_null() {
        false => Ok(device),
        // SAFETY: a failure stores a C string.
        true => Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_str().unwrap().to_owned()),
    }
}

const ZONE: u64 = 1 << 20;

#[test]
fn name_that_is_wrong_leaves_as_much_of_the_message_as_fits() {
    let message = open("null:sise=1").unwrap_err();
    assert_eq!(message.len(), 63);
    assert!(message.starts_with(r#"device name "null:sise=1", at "sise""#), "{message}");
}

#[test]
fn written_data_is_read_back_with_inline_and_queued_completion() {
    for (name, answer) in
        [("ram:size=8M,zone_size=1M", 0), ("ram:size=8M,zone_size=1M,complete=poll", QUEUED)]
    {
        let device = open(name).unwrap();
        let (mut written, mut read) = (vec![7u8; 8192], vec![0u8; 8192]);
        let mut events = [FioEvent { token: 0, error: 0, reserved: 0 }; 4];
        // SAFETY: device, job and lane are used on this thread and freed once, and the buffers
        // outlive the requests.
        unsafe {
            assert_eq!(zonal_fio_info(device), Info { size: 8 * ZONE, block_size: 512, open_max: 0 });
            let job = zonal_fio_job_new(4);
            let lane = zonal_fio_lane_new(job, device);
            assert_eq!(zonal_fio_queue(lane, WRITE, ZONE, written.as_mut_ptr(), 8192, 1), answer, "{name}");
            if answer == QUEUED {
                assert_eq!(zonal_fio_events(job, 1, 4, u64::MAX, events.as_mut_ptr()), 1);
                assert_eq!(events[0], FioEvent { token: 1, error: 0, reserved: 0 });
            }
            assert_eq!(zonal_fio_queue(lane, READ, ZONE, read.as_mut_ptr(), 8192, 2), answer);
            if answer == QUEUED {
                assert_eq!(zonal_fio_events(job, 1, 4, u64::MAX, events.as_mut_ptr()), 1);
            }
            assert_eq!(read, written);
            let mut zones = [Zone::default_for_tests(); 2];
            assert_eq!(zonal_fio_report(device, ZONE, zones.as_mut_ptr(), 2), 2);
            assert_eq!((zones[0].start, zones[0].write_pointer), (ZONE, ZONE + 8192));
            assert_eq!(zonal_fio_reset(device, ZONE, ZONE), 0);
            assert_eq!(zonal_fio_report(device, ZONE, zones.as_mut_ptr(), 1), 1);
            assert_eq!(zones[0].write_pointer, ZONE);
            zonal_fio_job_free(job);
            zonal_fio_close(device);
        }
    }
}

#[test]
fn wrong_requests_end_with_their_number() {
    let device = open("null:size=8M,zone_size=1M").unwrap();
    let mut buffer = vec![0u8; 4096];
    // SAFETY: as above.
    unsafe {
        let job = zonal_fio_job_new(1);
        let lane = zonal_fio_lane_new(job, device);
        let mut write = |offset, len| zonal_fio_queue(lane, WRITE, offset, buffer.as_mut_ptr(), len, 1);
        assert_eq!(write(4096, 4096), -5, "not at the pointer");
        assert_eq!(write(0, 100), -22, "no whole sector");
        assert_eq!(write(8 * ZONE, 4096), -28, "past the end");
        assert_eq!(write(0, 1 << 32), -22, "longer than a buffer can be");
        assert_eq!(zonal_fio_queue(lane, FLUSH, 0, std::ptr::null_mut(), 0, 2), 0);
        zonal_fio_job_free(job);
        zonal_fio_close(device);
    }
}

#[test]
fn job_that_ends_waits_for_its_requests() {
    let device = open("null:size=8M,zone_size=1M,complete=poll,completion_nsec=2000000").unwrap();
    let mut buffer = vec![0u8; 4096];
    let begin = std::time::Instant::now();
    // SAFETY: as above.
    unsafe {
        let job = zonal_fio_job_new(1);
        let lane = zonal_fio_lane_new(job, device);
        assert_eq!(zonal_fio_queue(lane, WRITE, 0, buffer.as_mut_ptr(), 4096, 1), QUEUED);
        let mut events = [FioEvent { token: 0, error: 0, reserved: 0 }; 1];
        assert_eq!(zonal_fio_events(job, 0, 1, u64::MAX, events.as_mut_ptr()), 0);
        assert_eq!(zonal_fio_events(job, 1, 1, 1000, events.as_mut_ptr()), 0);
        zonal_fio_job_free(job);
        zonal_fio_close(device);
    }
    assert!(begin.elapsed().as_micros() >= 1900, "{:?}", begin.elapsed());
}

impl Zone {
    fn default_for_tests() -> Zone {
        Zone { start: 0, write_pointer: 0, size: 0, capacity: 0, kind: 0, condition: 0 }
    }
}

//! Cost of a server with an idle guest. Measured, so these tests run one at a time.

#[path = "all/front.rs"]
#[allow(dead_code)]
mod front;
#[path = "all/guest.rs"]
#[allow(dead_code)]
mod guest;

use front::FrontEnd;
use guest::{DATA, DEVICE, Driver, Guest, disk, read};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zonal_io::clock::Clock;
use zonal_vhost::server::{VhostListener, VhostOptions, VhostServer};

static ALONE: Mutex<()> = Mutex::new(());

/// CPU time of the server's threads.
fn served() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_server = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("vhost-scsi-"))
    });
    let ran = |task: std::path::PathBuf| -> u64 {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(of_server.map(ran).sum())
}

/// Share of a core used by the server's threads during this time. Counts CPU time, not waiting for
/// a processor.
fn share(time: Duration) -> f64 {
    let (since, before) = (Instant::now(), served());
    std::thread::sleep(time);
    let ran = served() - before;
    assert!(served() > Duration::ZERO, "the threads have another name");
    ran.as_secs_f64() / since.elapsed().as_secs_f64()
}

fn with_server(options: VhostOptions, test: impl FnOnce(&std::path::Path)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vhost");
    let listener = VhostListener::bind(&path).unwrap();
    let has_to_end = Arc::new(AtomicBool::new(false));
    let server = VhostServer::start(disk(DEVICE), listener, Clock::start(), options, has_to_end).unwrap();
    test(&path);
    server.end();
    server.join().unwrap();
}

#[test]
fn server_with_idle_guest_or_none_uses_no_processor() {
    with_server(VhostOptions::default().with_threads(2_usize), |path| {
        let without = share(Duration::from_secs(2));
        let guest = Guest::new();
        let mut front = FrontEnd::connect(path);
        front.begin(&guest);
        let mut drivers: Vec<Driver> = (0..6).map(|number| Driver::new(&guest, number)).collect();
        (0..).zip(&drivers).for_each(|(number, driver)| front.start(number, driver, 0));
        for driver in &mut drivers[2..] {
            driver.command(1, &read(0, 1), &[], &[(DATA, 4096)]);
            driver.kick();
            driver.answer();
        }
        let with = share(Duration::from_secs(4));
        // A front end that disconnected with unread data.
        front.send(zonal_vhost::wire::message::request::GET_FEATURES, 0, &[], &[]);
        drop(front);
        let after = share(Duration::from_secs(2));
        println!("{:.3} % {:.3} % {:.3} % of a core", without * 100.0, with * 100.0, after * 100.0);
        assert!(without < 0.01 && with < 0.01 && after < 0.01, "{without} {with} {after}");
    });
}

/// Canary of the test above.
#[test]
fn server_that_polls_is_seen_to_use_a_processor() {
    with_server(VhostOptions::default().with_polls(true), |_| {
        let share = share(Duration::from_secs(1));
        println!("{:.2} % of a core", share * 100.0);
        assert!(share > 0.05, "{share}");
    });
}

//! The server of an image is killed while Linux writes to it, and restarted. `kills.py` defines
//! which data must survive.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::guest::{self, Guest};
use zonal_check::program;
use zonal_check::program::served::Served;

const ROUNDS: u32 = 20;

/// Longest time until the writers of a round start, including a reconnection and a check of all
/// blocks.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(300);

/// Waits for a file; `false` if the guest has ended first.
fn comes(file: &Path, guest_has_ended: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + BEGIN_TIME_MAX;
    while !file.exists() {
        if guest_has_ended() {
            return false;
        }
        assert!(Instant::now() < deadline, "{} does not come", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Kills the server in each round of the guest's writers, and restarts it. Returns the last server
/// and the number of kills.
fn kill<S>(share: &Path, guest: &JoinHandle<Vec<String>>, mut served: S, start: impl Fn() -> S) -> (S, u32) {
    let mut chance = Pcg64Mcg::seed_from_u64(0);
    let mut kills = 0;
    for round in 0..ROUNDS {
        let file = |name: &str| share.join(format!("{name}-{round}"));
        if !comes(&file("writing"), || guest.is_finished()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(chance.random_range(0..2000)));
        fs::write(file("killing"), "").unwrap();
        // SIGKILL.
        drop(served);
        kills += 1;
        served = start();
        fs::write(file("restarted"), "").unwrap();
    }
    (served, kills)
}

/// Output lines of the guest.
pub struct Found(Vec<String>);

impl Found {
    /// Value of this key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    }

    /// Numeric value of this key.
    pub fn number(&self, key: &str) -> u64 {
        self.fact(key).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {key}"))
    }

    /// Asserts that the writers of `rounds` rounds had writes at risk, and that everything was
    /// checked.
    pub fn of(lines: Vec<String>, rounds: u32) -> Found {
        eprintln!("{}", lines.join("\n"));
        let found = Found(lines);
        assert_eq!((found.fact("ended"), found.fact("messages")), (Some("0"), None));
        assert!(found.number("flushed") > 20 * u64::from(rounds), "writes that were flushed");
        assert!(found.number("acknowledged") > found.number("flushed"), "writes that were not");
        assert!(found.number("checked") > found.number("acknowledged"), "blocks that were looked at");
        found
    }
}

/// A directory for the guest with the writers, and one with an image.
fn directories(create: &str) -> (TempDir, TempDir) {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share());
    program::run(dir.path(), create).done();
    fs::copy(guest::scripts().join("kills.py"), share.path().join("kills.py")).unwrap();
    (dir, share)
}

#[test]
#[ignore = "minutes"]
fn killed_server_loses_nothing_that_was_answered() {
    let (dir, share) = directories("create d --size 128M --zone-size 4M --zone-capacity 3M --zone-nr-conv 2");
    let served = Served::start(dir.path(), "d");
    let (port, nqn) = (served.address.port(), served.nqn.clone());
    let guest = Guest::script("kills.sh", 1800).share(share.path());
    let guest = guest.set("PORT", port).set("NQN", &nqn).set("ROUNDS", ROUNDS);
    let guest = std::thread::spawn(move || guest.lines());
    let (served, kills) = kill(share.path(), &guest, served, || {
        let served = Served::start_at(dir.path(), "d", port);
        assert_eq!(served.nqn, nqn, "the same drive");
        served
    });
    let found = Found::of(guest.join().expect("the guest's lines"), ROUNDS);
    assert_eq!((found.fact("connected"), found.fact("disconnected")), (Some("ok"), Some("disconnected 1 ")));
    assert_eq!(kills, ROUNDS);
    assert!(found.number("resets") > 0, "zones that were reset");
    assert_eq!(served.terminate(), Some(0));
    program::run(dir.path(), "report d --json").done();
}

/// Requests in flight of a guest's SCSI disk are recorded in the front end's memory, from which the
/// next server takes them. The QEMU of the guest's distribution reconnects; that of this machine
/// may be too old.
#[test]
#[ignore = "minutes"]
fn killed_server_of_a_scsi_disk_loses_nothing_that_was_answered() {
    let (dir, share) = directories(
        "create d --size 128M --zone-size 4M --zone-nr-conv 2 --uuid 67e55044-10b1-426f-9247-bb680e5fe0c8",
    );
    let socket = dir.path().join("socket");
    let start = || guest::scsi_disk(dir.path(), "d", &socket);
    let served = start();
    let guest =
        Guest::script("kills.sh", 1800).share(share.path()).newest_qemu().reconnecting_disk(1024, &socket);
    let guest = guest.set("SCSI", "67e5504410b1426f9247bb680e5fe0c8").set("ROUNDS", ROUNDS);
    let guest = std::thread::spawn(move || guest.lines());
    let (served, kills) = kill(share.path(), &guest, served, start);
    let found = Found::of(guest.join().expect("the guest's lines"), ROUNDS);
    assert_eq!((found.fact("disk"), kills), (Some("/dev/sda"), ROUNDS));
    assert_eq!(found.number("unanswered"), 0, "requests that failed");
    assert_eq!(served.terminate(), Some(0));
    program::run(dir.path(), "report d --json").done();
}

//! The server of an image killed while Linux writes to it, and started again: `kills.py` says what must still be there.

use crate::machine::{self, Guest, Served};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use zonal_check::program;

const ROUNDS: u32 = 20;

/// Longest time for the writers of a round to begin, what went before included: a reconnection and the look at all blocks.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(300);

/// Waits for a file; `false` if the guest has ended before.
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

#[test]
#[ignore = "minutes"]
fn killed_server_loses_nothing_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    program::run(dir.path(), "create d --size 128M --zone-size 4M --zone-capacity 3M --zone-nr-conv 2")
        .done();
    let share = machine::share();
    fs::copy(machine::scripts().join("kills.py"), share.path().join("kills.py")).unwrap();
    let mut served = Served::start(dir.path(), "d");
    let (port, nqn) = (served.port, served.nqn.clone());
    let guest = Guest::script("kills.sh", 1800).share(share.path());
    let guest = guest.set("PORT", port).set("NQN", &nqn).set("ROUNDS", ROUNDS);
    let guest = std::thread::spawn(move || guest.lines());

    let mut chance = Pcg64Mcg::seed_from_u64(0);
    let mut kills = 0;
    for round in 0..ROUNDS {
        let file = |name: &str| share.path().join(format!("{name}-{round}"));
        if !comes(&file("writing"), || guest.is_finished()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(chance.random_range(0..2000)));
        fs::write(file("killing"), "").unwrap();
        // SIGKILL.
        drop(served);
        kills += 1;
        served = Served::start_at(dir.path(), "d", port);
        assert_eq!(served.nqn, nqn, "the same drive");
        fs::write(file("restarted"), "").unwrap();
    }
    let lines = guest.join().expect("the guest's lines");
    eprintln!("kills {kills}\n{}", lines.join("\n"));
    let fact = |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    assert_eq!(
        (fact("connected"), fact("ended"), fact("disconnected")),
        (Some("ok"), Some("0"), Some("disconnected 1 "))
    );
    assert_eq!(fact("messages"), None, "the kernel found something wrong");
    assert_eq!(kills, ROUNDS);
    let number = |key: &str| {
        fact(key).and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {key}"))
    };
    // Every round must have had writes to lose.
    assert!(number("flushed") > 20 * u64::from(ROUNDS), "writes that were flushed");
    assert!(number("acknowledged") > number("flushed"), "writes that were not");
    assert!(number("checked") > number("acknowledged"), "blocks that were looked at");
    assert!(number("resets") > 0, "zones that were reset");
    assert_eq!(served.terminate(), Some(0));
    program::run(dir.path(), "report d --json").done();
}

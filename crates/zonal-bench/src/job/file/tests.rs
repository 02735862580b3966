use super::*;
use crate::job::{Direction, Pattern};

fn parse(text: &str) -> Result<JobFile, JobError> {
    JobFile::parse(text, "t")
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn global_applies_to_the_jobs_after_it_only() {
    let text =
        "[global]\nbs=4k\nname=everyone\n[a]\n[global]\nbs=8k\nrw=write\n[b]\nrw=read\n[a]\nname=zzz\n";
    let file = parse(text).unwrap();
    let write = Pattern { direction: Direction::Write, random: false };
    let read = Pattern { direction: Direction::Read, random: false };
    let seen: Vec<_> =
        file.specs().map(|job| (job.name.as_str(), job.block_size.read, job.pattern)).collect();
    // As in fio, a name in [global] has no effect on jobs, and section names may repeat.
    assert_eq!(seen, [("a", 4096, read), ("b", 8192, read), ("zzz", 8192, write)]);
}

#[test]
fn unknown_option_is_an_error_with_place_and_nearest_name() {
    assert_eq!(message("[a]\n\nblcksize=4k\n"), "t:3: unknown option `blcksize`, did you mean `blocksize`?");
    assert_eq!(message("[a]\nfrobnicate=1\n"), "t:2: unknown option `frobnicate`");
    assert_eq!(message("[a]\n=1\n"), "t:2: unknown option ``");
    assert_eq!(message("[a]\nRW=read\n"), "t:2: unknown option `RW`, did you mean `rw`?");
}

#[test]
fn unsupported_option_is_refused_with_a_reason_unless_at_its_default() {
    assert_eq!(
        message("[a]\nflow=8\n"),
        "t:2: `flow` is a fio option that is not supported here: jobs do not balance their rates"
    );
    assert!(matches!(parse("[a]\nzero_buffers\n"), Err(JobError::Refused { .. })));
    let quiet = "[a]\nflow=0\nzoneskip=0\nnrfiles=1\nsync=none\nstartdelay=0\niodepth_batch=1\n";
    assert_eq!(parse(quiet).unwrap().jobs()[0].spec, parse("[a]\n").unwrap().jobs()[0].spec);
}

#[test]
fn ignored_options_are_listed_with_reasons() {
    let file = parse("[global]\ndirect=1\n[a]\nioengine=libaio\nthread\nrefill_buffers=0\n").unwrap();
    let seen: Vec<_> = file.ignored().iter().map(|used| format!("{} {}", used.origin, used.name)).collect();
    assert_eq!(seen, ["t:2 direct", "t:4 ioengine", "t:5 thread", "t:6 refill_buffers"]);
    assert!(message("[a]\nioengine=cpuio\n").contains("does not read or write a device"));
}

#[test]
fn value_error_shows_option_value_and_problem() {
    assert_eq!(message("[a]\niodepth=0\n"), "t:2: iodepth=0: out of range, from 1 to 65536");
    assert_eq!(
        message("[a]\nrw=wr\n"),
        "t:2: rw=wr: not one of read, write, randread, randwrite, rw, readwrite, randrw"
    );
    assert_eq!(message("[a]\nsize=\n"), "t:2: `size` needs a value");
    assert_eq!(message("[a]\ndirect\n"), "t:2: `direct` needs a value");
    assert_eq!(
        message("[a]\nrw=trim\n"),
        "t:2: rw=trim: known to fio, not supported here: there is no trim; zones are reset instead"
    );
    assert_eq!(
        message("[a]\nbs=4ki\n"),
        "t:2: bs=4ki: ambiguous: fio reads this as a power of two, and its manual as a power of ten: 4ki; write 4k or 4kib"
    );
}

#[test]
fn blank_before_a_number_with_suffix_is_refused() {
    for line in ["bs= 8k", "size = 10%", "runtime= 2m", "bs\t=\t8k"] {
        let error = parse(&format!("[a]\n{line}\n")).unwrap_err();
        let ambiguous = matches!(error, JobError::Value { problem: ValueError::Ambiguous { .. }, .. });
        assert!(ambiguous, "{line}: {error}");
    }
    for line in ["bs= 8192", "rw = write", "filename = /dev/sda", "zone_reset_threshold= 0.5", "bs =8k"] {
        parse(&format!("[a]\n{line}\n")).unwrap();
    }
}

#[test]
fn job_that_cannot_end_or_has_no_zones_is_refused() {
    assert_eq!(message("[a]\ntime_based\n"), "t:1: job `a` is time_based but has no runtime");
    parse("[a]\ntime_based\nruntime=1\n").unwrap();
    assert_eq!(message("[a]\nio_size=5z\n"), "t:1: job `a` has io_size in zones, which needs zonemode=zbd");
    parse("[global]\nsize=5z\n[a]\nzonemode=zbd\n").unwrap();
    assert_eq!(message("[global]\nbs=4k\n"), "t: no job is defined");
    assert_eq!(message(""), "t: no job is defined");
}

#[test]
fn override_wins_everywhere_and_is_recorded() {
    let text =
        "[global]\nfilename=/dev/sda\n[one]\n[two]\nfilename=/dev/sdb\n[three]\nfilename=image.zonal\n";
    let mut file = parse(text).unwrap();
    file.override_option("filename", "/dev/sdz").unwrap();
    file.override_option("filename", "image.zonal").unwrap();
    file.override_option("timeout", "5").unwrap();
    assert!(file.specs().all(|job| job.filename.as_deref() == Some("image.zonal")));
    let changes: Vec<_> = file.changes().iter().map(ToString::to_string).collect();
    assert_eq!(
        changes,
        [
            "t [global] filename=/dev/sda -> image.zonal",
            "t [two] filename=/dev/sdb -> image.zonal",
            "t [one] runtime=(not given) -> 5",
            "t [two] runtime=(not given) -> 5",
            "t [three] runtime=(not given) -> 5",
        ]
    );
}

#[test]
fn override_that_fails_changes_nothing() {
    let mut file = parse("[a]\nbs=4k\nzonemode=zbd\nsize=10z\n").unwrap();
    file.override_option("bs", "8k").unwrap();
    let before = file.clone();
    for (name, value) in [
        ("bs", "x"),
        ("zonemode", "none"),
        ("flow", "0"),
        ("direct", "1"),
        ("bsx", "1"),
        ("bs", ""),
        ("filename", "a;b"),
    ] {
        assert!(file.override_option(name, value).is_err(), "{name}={value}");
        assert!(file.specs().eq(before.specs()) && file.changes() == before.changes(), "{name}={value}");
    }
    assert_eq!(file.jobs()[0].spec.block_size.read, 8192);
}

#[test]
fn every_invalid_option_is_reported_once() {
    let errors =
        message("[global]\nfoo=1\n[a]\nrw=write\nbs=x\ntime_based\n[b]\nflow=1\nsize=10z\n[c]\ntime_based\n");
    let places: Vec<&str> = errors.split("; ").filter_map(|error| error.split(": ").next()).collect();
    // Jobs without an invalid option of their own are checked as a whole, too.
    assert_eq!(places, ["t:2", "t:5", "t:8", "t:10"], "{errors}");
    let mut file = parse("[a]\nrw=write\n[b]\nrw=read\n").unwrap();
    let error = file.override_option("bs", "x").unwrap_err();
    assert!(matches!(error, JobError::Value { .. }), "{error}");
}

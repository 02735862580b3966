//! Origin of the data on a report page: the command line, and the profiles of the device.

use zonal_bench::job::{Direction, JobSpec, Pattern};
use zonal_bench::{About, ModeReport};
use zonal_io::volume::{WriteMode, size_text};
use zonal_sim::{Aspect, Profile, Standing, Workload};

/// Command line of this process, and the profiles in the name of its device.
pub(super) fn about(device: &str) -> About {
    let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy()));
    let profiles: Vec<String> = device.split('+').filter_map(profile).collect();
    let profile = (!profiles.is_empty()).then(|| profiles.join("\n"));
    About { command: words.collect::<Vec<_>>().join(" "), profile }
}

/// Text of the profile in a part of a device's name, followed by the values that the name changes.
fn profile(part: &str) -> Option<String> {
    let profile = part.strip_prefix("sim:").or_else(|| part.strip_prefix("timing:"))?;
    let mut words = profile.split(',');
    let text = zonal_sim::Profile::text(words.next().unwrap_or_default()).ok()?;
    let changes: Vec<String> = words.map(|change| format!("# given: {change}\n")).collect();
    Some(format!("{}\n{}", text.trim_end(), changes.concat()))
}

/// Requests of a run, to be compared with those that a profile was calibrated for.
pub(crate) enum Requests<'a> {
    /// Of jobs on zones, in a write mode.
    Jobs(WriteMode, Vec<&'a JobSpec>),
    /// Of jobs on files.
    Files,
    /// Of a trace.
    Trace,
}

impl Requests<'_> {
    /// Requests of the jobs of a benchmark.
    pub(crate) fn of(mode: &ModeReport) -> Requests<'_> {
        match mode.files {
            Some(_) => Requests::Files,
            None => Requests::Jobs(mode.mode, mode.jobs.iter().map(|job| &*job.spec).collect()),
        }
    }
}

/// Reliability of the results with each profile in a device's name: a line on the profile, and one
/// if the run is outside of what it was calibrated for.
pub(crate) fn standings(device: &str, requests: &Requests<'_>) -> Vec<String> {
    device.split(['+', '[', ']']).filter_map(|part| standing(part, requests)).flatten().collect()
}

fn standing(part: &str, requests: &Requests<'_>) -> Option<Vec<String>> {
    let timing = part.strip_prefix("timing:");
    let words: Vec<&str> = part.strip_prefix("sim:").or(timing)?.split(',').collect();
    let changes = words.iter().skip(1).filter_map(|word| word.split_once('='));
    let changes: Vec<_> = changes.filter(|(key, _)| !zonal_sim::NAME_OPTIONS.contains(key)).collect();
    let profile = Profile::open(words[0], &changes).ok()?;
    let say = |line: String| format!("profile {}: {line}", profile.name);
    let standing = profile.standing();
    if !matches!(standing, Standing::Calibrated { .. }) {
        return Some(vec![say(standing.to_string())]);
    }
    if timing.is_some() {
        // The zones are those of the device below, not of the drive that the profile was fitted to.
        let range = "calibrated on a different drive: each figure is one of a range";
        return Some(vec![say(range.to_owned())]);
    }
    let rtt_us = words.iter().find_map(|word| word.strip_prefix("rtt_us="));
    let is_distant = |word: &&str| word.parse::<f64>().is_ok_and(|rtt_us| rtt_us > 0.0);
    let distance = rtt_us.filter(is_distant).map(|rtt_us| format!("rtt_us={rtt_us}"));
    let outside: Vec<String> = outside(&profile, requests).into_iter().chain(distance).collect();
    let guess = (!outside.is_empty())
        .then(|| say(format!("not calibrated for {}: the figures are guesses", outside.join(", "))));
    Some([say(standing.to_string())].into_iter().chain(guess).collect())
}

/// Describes the aspects of a run that the profile was not calibrated for.
fn outside(profile: &Profile, requests: &Requests<'_>) -> Vec<String> {
    if profile.calibrated_runs.is_empty() {
        return Vec::new();
    }
    let (mode, specs) = match requests {
        Requests::Jobs(mode, specs) => (*mode, specs),
        Requests::Files => return vec!["jobs on files".to_owned()],
        Requests::Trace => return vec!["the requests of a trace".to_owned()],
    };
    let mut all: Vec<String> = Vec::new();
    for workload in specs.iter().map(|spec| workload(spec, mode)) {
        for aspect in profile.outside(&workload) {
            let words = match aspect {
                Aspect::Rw => format!("rw={}", workload.rw),
                Aspect::Mode => format!("mode {}", workload.mode),
                Aspect::BlockSize => format!("bs={}", sizes(workload.block_bytes)),
                Aspect::Depth => format!("iodepth={}", workload.depth),
            };
            if !all.contains(&words) {
                all.push(words);
            }
        }
    }
    all
}

fn sizes([least, most]: [u64; 2]) -> String {
    if least == most { size_text(least) } else { format!("{}-{}", size_text(least), size_text(most)) }
}

fn workload(spec: &JobSpec, mode: WriteMode) -> Workload<'static> {
    let Pattern { direction, random } = spec.pattern;
    let (least, most) = (spec.block_min(), spec.block_max());
    let (rw, [least, most]) = match (direction, random) {
        (Direction::Read, false) => ("read", [least.read, most.read]),
        (Direction::Read, true) => ("randread", [least.read, most.read]),
        (Direction::Write, false) => ("write", [least.write, most.write]),
        (Direction::Write, true) => ("randwrite", [least.write, most.write]),
        (Direction::Mixed { .. }, random) => {
            (if random { "randrw" } else { "rw" }, [least.read.min(least.write), most.read.max(most.write)])
        }
    };
    Workload { rw, mode, block_bytes: [least.into(), most.into()], depth: spec.iodepth }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use zonal_bench::job::JobFile;

    #[test]
    fn profile_of_a_simulated_device_is_shown_with_its_overrides() {
        let about = about("trace:+timing:smr-hdd-30t,policy=fifo+null:size=1G");
        let profile = about.profile.unwrap();
        assert!(profile.starts_with("name = \"smr-hdd-30t\"\n"), "{profile}");
        assert!(profile.ends_with("# given: policy=fifo\n"), "{profile}");
        assert!(super::about("null:size=1G").profile.is_none());
    }

    #[test]
    fn profile_on_another_drive_is_called_a_range() {
        let of = |device: &str| standings(device, &Requests::Jobs(WriteMode::Qd1, Vec::new())).join("; ");
        assert!(
            of("sim:smr-hdd-30t,checked=zone")
                .starts_with("profile smr-hdd-30t: calibrated for writes of 1 MiB, ")
        );
        assert!(of("sim:smr-hdd-30t,size=1T").contains("another size: each figure is one of a range"));
        assert!(
            of("concat:[null:][sim:ufs-zoned]").ends_with("not calibrated: each figure is one of a range")
        );
        assert!(of("trace:+timing:smr-hdd-30t+null:size=1G").contains("each figure is one of a range"));
        assert_eq!(of("null:size=1G"), "");
    }

    #[test]
    fn run_outside_of_the_calibration_is_called_a_guess() {
        let guess = |device: &str, mode, arguments: &str| {
            let jobs = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
            let lines = standings(device, &Requests::Jobs(mode, jobs.specs().collect()));
            assert!(lines[0].contains(": calibrated for "), "{lines:?}");
            lines.get(1).cloned().unwrap_or_default()
        };
        let disk = |arguments: &str| guess("sim:smr-hdd-30t", WriteMode::Qd1, arguments);
        let said = |what: &str, name: &str| {
            format!("profile {name}: not calibrated for {what}: the figures are guesses")
        };
        assert_eq!(disk("--name=a --rw=write --bs=1M --iodepth=8"), "");
        assert_eq!(disk("--name=a --rw=randwrite --bs=1M --iodepth=32"), "");
        let distant = |rtt_us| {
            let device = format!("sim:smr-hdd-30t,rtt_us={rtt_us}");
            guess(&device, WriteMode::Qd1, "--name=a --rw=write --bs=1M --iodepth=8")
        };
        assert_eq!([distant(0), distant(100)], [String::new(), said("rtt_us=100", "smr-hdd-30t")]);
        assert_eq!(disk("--name=a --rw=write --bs=4k"), said("bs=4K", "smr-hdd-30t"));
        assert_eq!(
            disk("--name=a --rw=write --bsrange=64k-1M --iodepth=200 --name=b --rw=randread --bs=1M"),
            said("bs=64K-1M, iodepth=200, rw=randread", "smr-hdd-30t")
        );
        let ssd = |mode, arguments: &str| guess("sim:zns-1t", mode, arguments);
        assert_eq!(ssd(WriteMode::Append, "--name=a --rw=randread --bs=4k"), "");
        assert_eq!(
            ssd(WriteMode::Pipelined, "--name=a --rw=write --bs=4k"),
            said("mode pipelined", "zns-1t")
        );
        assert_eq!(ssd(WriteMode::PerZone, "--name=a --rw=rw --bs=4k"), said("rw=rw", "zns-1t"));
        let far = guess("sim:zns-1t,rtt_us=50", WriteMode::PerZone, "--name=a --rw=write --bs=4k");
        assert_eq!(far, said("rtt_us=50", "zns-1t"));
        for (requests, what) in
            [(Requests::Trace, "the requests of a trace"), (Requests::Files, "jobs on files")]
        {
            assert_eq!(standings("sim:zns-1t", &requests)[1], said(what, "zns-1t"));
            assert_eq!(standings("sim:ufs-zoned", &requests).len(), 1, "all of its figures are guesses");
        }
    }

    #[test]
    fn quoted_words_round_trip_through_a_shell() {
        let words =
            ["plain", "--name=a b", "", "it's", "</script>", "a\nb", "$HOME `x` \\ \"", "*", "ä", "~"];
        for word in words {
            let output =
                Command::new("sh").args(["-c", &format!("printf %s {}", quoted(word))]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
        assert_eq!(quoted("--device=null:size=64G"), "--device=null:size=64G");
    }
}

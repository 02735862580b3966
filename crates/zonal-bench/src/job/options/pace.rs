//! Options that limit the pace of a job, parsed into a [`Pace`](crate::job::Pace).

use super::blocks::{parse_directions, show_directions};
use crate::job::blocks::PerDirection;
use crate::job::draft::Draft;
use crate::job::error::ValueError;
use crate::job::pace::{RATE_CYCLE, RateProcess, ThinkBlocks};
use crate::job::spec::JobSpec;
use crate::job::value::{
    parse_int, parse_micros, parse_micros_bare, parse_u32_in, parse_word, show_int, show_time,
};
use std::time::Duration;

type Set = fn(&mut Draft, &str) -> Result<(), ValueError>;
type Show = fn(&JobSpec) -> Option<String>;

/// A rate with parts for reads and writes; 0 is unlimited.
macro_rules! rate {
    ($field:ident, $parse:expr) => {
        (
            |draft, text| {
                let found = parse_directions(text, "a rate", $parse)?;
                let field = &mut draft.spec.pace.$field;
                field.read = found.read.unwrap_or(field.read);
                field.write = found.write.unwrap_or(field.write);
                Ok(())
            },
            |spec| {
                let PerDirection { read, write } = spec.pace.$field;
                let show = |rate| show_int(u64::from(rate));
                (read != 0 || write != 0).then(|| show_directions(show(read), show(write)))
            },
        )
    };
}

/// A time; zero means none.
macro_rules! time {
    ($field:ident, $parse:expr) => {
        (
            |draft, text| {
                draft.spec.pace.$field = $parse(text)?;
                Ok(())
            },
            |spec| (!spec.pace.$field.is_zero()).then(|| show_time(spec.pace.$field)),
        )
    };
}

/// fio keeps these in 32 bits.
fn parse_count(text: &str) -> Result<u32, ValueError> {
    parse_u32_in(text, 0, u32::MAX.into())
}

fn in_32_bits(micros: u64) -> Result<Duration, ValueError> {
    match u32::try_from(micros) {
        Ok(_) => Ok(Duration::from_micros(micros)),
        Err(_) => Err(ValueError::OutOfRange { min: 0, max: u32::MAX.into() }),
    }
}

pub(super) const RATE: (Set, Show) = rate!(rate, parse_int);
pub(super) const RATE_IOPS: (Set, Show) = rate!(rate_iops, parse_count);
pub(super) const RATE_MIN: (Set, Show) = rate!(rate_min, parse_int);
pub(super) const RATE_IOPS_MIN: (Set, Show) = rate!(rate_iops_min, parse_count);
pub(super) const RATE_PROCESS: (Set, Show) = (
    |draft, text| {
        let words = [("linear", RateProcess::Linear), ("poisson", RateProcess::Poisson)];
        draft.spec.pace.rate_process = parse_word(text, "linear, poisson", &words)?;
        Ok(())
    },
    |spec| (spec.pace.rate_process == RateProcess::Poisson).then(|| "poisson".to_owned()),
);
pub(super) const RATE_CYCLE_MS: (Set, Show) = (
    |draft, text| {
        draft.spec.pace.rate_cycle = Duration::from_millis(parse_count(text)?.into());
        Ok(())
    },
    |spec| (spec.pace.rate_cycle != RATE_CYCLE).then(|| spec.pace.rate_cycle.as_millis().to_string()),
);
pub(super) const THINKTIME: (Set, Show) =
    time!(thinktime, |text| parse_micros_bare(text).and_then(in_32_bits));
pub(super) const THINKTIME_SPIN: (Set, Show) =
    time!(thinktime_spin, |text| parse_micros_bare(text).and_then(in_32_bits));
pub(super) const THINKTIME_IOTIME: (Set, Show) =
    time!(thinktime_iotime, |text| parse_micros(text).and_then(in_32_bits));
pub(super) const RAMP_TIME: (Set, Show) =
    time!(ramp_time, |text| parse_micros(text).map(Duration::from_micros));
pub(super) const THINKTIME_BLOCKS: (Set, Show) = (
    |draft, text| {
        draft.spec.pace.thinktime_blocks = Some(parse_count(text)?);
        Ok(())
    },
    |spec| spec.pace.thinktime_blocks.map(|blocks| blocks.to_string()),
);
pub(super) const THINKTIME_BLOCKS_TYPE: (Set, Show) = (
    |draft, text| {
        let words = [("complete", ThinkBlocks::Complete), ("issue", ThinkBlocks::Issue)];
        draft.spec.pace.thinktime_blocks_type = parse_word(text, "complete, issue", &words)?;
        Ok(())
    },
    |spec| (spec.pace.thinktime_blocks_type == ThinkBlocks::Issue).then(|| "issue".to_owned()),
);

#[cfg(test)]
mod tests {
    use crate::job::{JobFile, JobSpec, Pace, PerDirection, RateProcess, ThinkBlocks};
    use std::time::Duration;

    fn spec(options: &str) -> Result<JobSpec, String> {
        let arguments = format!("--name=j {options}");
        let file = JobFile::parse_inline(arguments.split_whitespace()).map_err(|error| error.to_string())?;
        let again = JobFile::parse(&file.to_canonical(), "t").unwrap();
        assert!(again.specs().eq(file.specs()), "{}", file.to_canonical());
        Ok(file.jobs()[0].spec.clone())
    }

    fn pace(options: &str) -> Pace {
        spec(options).unwrap().pace
    }

    #[test]
    fn rates_are_per_direction() {
        let pair = |read, write| PerDirection { read, write };
        assert_eq!(pace("--rate=1m").rate, pair(1 << 20, 1 << 20));
        assert_eq!(pace("--rate=1m,500k").rate, pair(1 << 20, 500 << 10));
        assert_eq!(pace("--rate=,500k").rate, pair(0, 500 << 10));
        assert_eq!(pace("--rate=1m --rate=,500k").rate, pair(1 << 20, 500 << 10));
        assert_eq!(pace("--rate=1m, --ratemin=1k,2k,3k").rate_min, pair(1024, 2048));
        assert_eq!(pace("--rate_iops=100,7").rate_iops, PerDirection { read: 100, write: 7 });
        assert_eq!(pace("--rate=0 --rate_iops=0").rate, pair(0, 0));
        for text in ["--rate=fast", "--rate_iops=5g", "--rate=1,2,3,4", "--rate=,", "--rate=-1"] {
            assert!(spec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_that_contradict_each_other_are_refused() {
        for (text, problem) in [
            ("--rate=1m --rate_iops=5", "rate and rate_iops exclude each other"),
            ("--rate=1m, --rate_iops=,5", "rate and rate_iops exclude each other"),
            ("--rate_min=1m --rate_iops_min=5", "rate_min and rate_iops_min exclude each other"),
            ("--rate=1m --rate_min=2m", "above the rate"),
            ("--rate_iops=,5 --rate_iops_min=,6", "above the rate"),
        ] {
            let error = spec(text).unwrap_err();
            assert!(error.contains(problem) && error.starts_with("command line: job `j`"), "{error}");
        }
        assert!(spec("--rate_min=1m").is_ok() && spec("--rate_iops=5 --rate_min=1m").is_ok());
    }

    #[test]
    fn bare_times_have_their_own_units() {
        let found = pace("--thinktime=5 --thinktime_spin=2 --thinktime_iotime=3 --ramp_time=4");
        assert_eq!(found.thinktime, Duration::from_micros(5));
        assert_eq!(found.thinktime_spin, Duration::from_micros(2));
        assert_eq!(found.thinktime_iotime, Duration::from_secs(3));
        assert_eq!(found.ramp_time, Duration::from_secs(4));
        let found = pace("--thinktime=5ms --thinktime_iotime=300ms --ramp_time=1m");
        assert_eq!(found.thinktime, Duration::from_millis(5));
        assert_eq!(found.thinktime_iotime, Duration::from_millis(300));
        assert_eq!(found.ramp_time, Duration::from_secs(60));
        assert!(spec("--thinktime=2h").is_err() && spec("--thinktime=5sec").is_err());
    }

    #[test]
    fn words_and_counts_are_fios() {
        let found = pace("--rate_process=poisson --thinktime_blocks_type=issue --thinktime_blocks=4k");
        assert_eq!(found.rate_process, RateProcess::Poisson);
        assert_eq!(found.thinktime_blocks_type, ThinkBlocks::Issue);
        assert_eq!(found.thinktime_blocks, Some(4096));
        assert_eq!(pace("--ratecycle=250").rate_cycle, Duration::from_millis(250));
        assert!(spec("--rate_process=uniform").is_err() && spec("--thinktime_blocks_type=begin").is_err());
    }
}

use super::*;
use crate::job::spec::{BlockSize, Extent};

fn apply(settings: &[(&str, &str)]) -> Result<JobSpec, ValueError> {
    let mut draft = Draft::default();
    for (name, value) in settings {
        let option =
            SUPPORTED.iter().find(|option| option.name == *name || option.aliases.contains(name)).unwrap();
        (option.apply)(&mut draft, value)?;
    }
    Ok(draft.spec)
}

#[test]
fn rw_words_are_fios() {
    let rows = [
        ("read", Direction::Read, false),
        ("write", Direction::Write, false),
        ("randread", Direction::Read, true),
        ("randwrite", Direction::Write, true),
        ("rw", Direction::Mixed { read_percent: 50 }, false),
        ("readwrite", Direction::Mixed { read_percent: 50 }, false),
        ("randrw", Direction::Mixed { read_percent: 50 }, true),
    ];
    for (word, direction, random) in rows {
        assert_eq!(apply(&[("rw", word)]).unwrap().pattern, Pattern { direction, random }, "{word}");
    }
}

#[test]
fn rw_that_is_not_supported_is_refused() {
    for word in ["trim", "randtrim", "trimwrite", "randtrimwrite", "write:8", "randread:4k", "rw:", "trim:8"]
    {
        assert!(matches!(apply(&[("rw", word)]), Err(ValueError::Refused { .. })), "{word}");
    }
    for word in ["WRITE", "wr", "'write'", "", "nonsense:8"] {
        assert!(matches!(apply(&[("rw", word)]), Err(ValueError::UnknownWord { .. })), "{word}");
    }
}

#[test]
fn read_write_mix_is_independent_of_option_order() {
    let mixed = |settings: &[(&str, &str)]| match apply(settings).unwrap().pattern.direction {
        Direction::Mixed { read_percent } => read_percent,
        other => panic!("{other:?}"),
    };
    assert_eq!(mixed(&[("rwmixread", "70"), ("rw", "rw")]), 70);
    assert_eq!(mixed(&[("rw", "randrw"), ("rwmixread", "70")]), 70);
    assert_eq!(mixed(&[("rw", "rw"), ("rwmixread", "30"), ("rwmixwrite", "40")]), 60);
    assert_eq!(mixed(&[("rw", "rw"), ("rwmixwrite", "40"), ("rwmixread", "30")]), 30);
    assert_eq!(apply(&[("rwmixread", "70"), ("rw", "read")]).unwrap().pattern.direction, Direction::Read);
    assert!(apply(&[("rwmixread", "101")]).is_err());
}

/// Read and write sizes after a global `bs=8k`, as printed by fio 3.33.
#[test]
fn bs_with_commas_matches_fio() {
    let k = |read: u32, write: u32| BlockSize { read: read << 10, write: write << 10 };
    let rows = [
        ("4k", k(4, 4)),
        ("4k,16k", k(4, 16)),
        (",64k", k(8, 64)),
        ("4k,", k(4, 8)),
        ("4k,16k,", k(4, 16)),
        (",16k,", k(8, 16)),
        ("4k,,16k", k(4, 8)),
    ];
    for (text, expected) in rows {
        assert_eq!(apply(&[("bs", "8k"), ("bs", text)]).unwrap().block_size, expected, "{text}");
    }
    for text in ["0", "", ",", ",,", "4k-8k", "4k,8k:16k", "4k,8k,16k,32k", "2g", "10%", "1z"] {
        assert!(apply(&[("bs", text)]).is_err(), "{text}");
    }
}

#[test]
fn verify_takes_crc32c_only() {
    assert_eq!(apply(&[("verify", "crc32c")]).unwrap().verify, Verify::Crc32c);
    assert_eq!(apply(&[("verify", "crc32c"), ("verify", "0")]).unwrap().verify, Verify::None);
    for method in FIO_VERIFY_METHODS {
        assert!(matches!(apply(&[("verify", method)]), Err(ValueError::Refused { .. })), "{method}");
    }
    assert!(matches!(apply(&[("verify", "crc33")]), Err(ValueError::UnknownWord { .. })));
}

#[test]
fn filename_is_one_device() {
    let rows = [
        ("/dev/sda", "/dev/sda"),
        ("null:size=1T,zone_size=256M", "null:size=1T,zone_size=256M"),
        ("nvme-tcp://127.0.0.1:4420/nqn.2014-08.org:x", "nvme-tcp://127.0.0.1:4420/nqn.2014-08.org:x"),
        ("0000\\:01\\:00.0", "0000:01:00.0"),
        ("./a\\:b", "./a:b"),
    ];
    for (text, name) in rows {
        let spec = apply(&[("filename", text)]).unwrap();
        assert_eq!(spec.filename.as_deref(), Some(name), "{text}");
        assert_eq!(apply(&[("filename", &show_filename(name))]).unwrap().filename, spec.filename, "{text}");
    }
    for text in ["/dev/sda:/dev/sdb", "./a:b", "0000:01", "a.img:b.img"] {
        assert!(matches!(apply(&[("filename", text)]), Err(ValueError::Refused { .. })), "{text}");
    }
}

#[test]
fn filename_with_backslashes_survives_printing() {
    for text in ["a\\\\:b", "null:a\\\\:b", "null\\:x", "a\\", "\\:", "null:\\", "x:y\\:z", "a\\:\\:b"] {
        let Ok(spec) = apply(&[("filename", text)]) else { continue };
        let shown = show_filename(spec.filename.as_deref().unwrap());
        assert_eq!(apply(&[("filename", &shown)]).unwrap().filename, spec.filename, "{text} {shown}");
    }
}

#[test]
fn zero_turns_an_optional_limit_off() {
    let spec =
        apply(&[("runtime", "2"), ("runtime", "0"), ("max_open_zones", "0"), ("zonesize", "0")]).unwrap();
    assert_eq!((spec.runtime, spec.max_open_zones, spec.zonesize), (None, None, None));
    assert_eq!(apply(&[("randseed", "0")]).unwrap().randseed, Some(0));
    assert!(apply(&[("max_open_zones", "5000")]).is_err());
    assert!(apply(&[("numjobs", "0")]).is_err() && apply(&[("iodepth", "0")]).is_err());
}

#[test]
fn zonemode_strided_is_refused() {
    assert_eq!(apply(&[("zonemode", "zbd")]).unwrap().zonemode, ZoneMode::Zbd);
    assert!(matches!(apply(&[("zonemode", "strided")]), Err(ValueError::Refused { .. })));
}

#[test]
fn percentiles_are_sorted() {
    assert_eq!(apply(&[("percentile_list", "99:50:99.9")]).unwrap().percentile_list, [50.0, 99.0, 99.9]);
    let many = vec!["1"; PERCENTILES_MAX + 1].join(":");
    assert_eq!(apply(&[("percentile_list", &many)]), Err(ValueError::TooMany { max: PERCENTILES_MAX }));
}

#[test]
fn lengths_and_offsets_take_percent_and_zones() {
    let spec =
        apply(&[("size", "10z"), ("io_limit", "50%"), ("fileoffset", "2z"), ("offset_increment", "1%")])
            .unwrap();
    assert_eq!(spec.size, Extent::Zones(10));
    assert_eq!(spec.io_size, Extent::Percent(50));
    assert_eq!(spec.offset, Extent::Zones(2));
    assert_eq!(spec.offset_increment, Extent::Percent(1));
}

#[test]
fn default_job_shows_no_option() {
    let shown: Vec<_> =
        SUPPORTED.iter().filter(|option| (option.show)(&JobSpec::default()).is_some()).collect();
    assert!(shown.is_empty(), "{:?}", shown.iter().map(|option| option.name).collect::<Vec<_>>());
}

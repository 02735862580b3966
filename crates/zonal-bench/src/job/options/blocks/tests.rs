use crate::job::{BlockMix, JobFile, JobSpec, ValueError};

fn spec(options: &str) -> Result<JobSpec, String> {
    let arguments = format!("--name=j {options}");
    let file = JobFile::parse_inline(arguments.split_whitespace()).map_err(|error| error.to_string())?;
    Ok(file.jobs()[0].spec.clone())
}

fn range(min: u32, max: u32) -> Option<BlockMix> {
    Some(BlockMix::Range { min: min << 10, max: max << 10 })
}

/// Sizes in KiB and shares of a split.
fn shares(mix: &Option<BlockMix>) -> Vec<(u32, u8)> {
    match mix {
        Some(BlockMix::Split(shares)) => shares.iter().map(|s| (s.bytes >> 10, s.percent)).collect(),
        other => panic!("{other:?}"),
    }
}

/// Ranges of reads and writes after a global `bsrange=8k-16k`, as printed by fio 3.33.
#[test]
fn bsrange_with_commas_matches_fio() {
    let rows = [
        ("4k-64k", range(4, 64), range(4, 64)),
        ("4k:64k", range(4, 64), range(4, 64)),
        ("64k-4k", range(4, 64), range(4, 64)),
        ("4k-64k,8k-32k", range(4, 64), range(8, 32)),
        (",4k-32k", range(8, 16), range(4, 32)),
        ("4k-32k,", range(4, 32), range(8, 16)),
        ("4k-4k", range(4, 4), range(4, 4)),
    ];
    for (text, read, write) in rows {
        let mix = spec(&format!("--bsrange=8k-16k --blocksize_range={text}")).unwrap().block_mix;
        assert_eq!((mix.read, mix.write), (read, write), "{text}");
    }
}

#[test]
fn bsrange_that_is_no_range_is_refused() {
    for text in ["4k", "0-4k", "4k-", "-4k", ",", "4k-8k-16k", "4k-2g", "4k-8k,,,", "4k-8%", "a-b"] {
        assert!(spec(&format!("--bsrange={text}")).is_err(), "{text}");
    }
}

#[test]
fn bssplit_shares_are_sorted_and_the_unnamed_divide_the_rest() {
    let rows: [(&str, &[(u32, u8)]); 9] = [
        ("4k/10:64k/50:32k/40", &[(4, 10), (32, 40), (64, 50)]),
        ("4k/60:8k/40", &[(8, 40), (4, 60)]),
        ("4k/50:1k/:32k/", &[(1, 25), (32, 25), (4, 50)]),
        ("4k:8k:16k", &[(4, 33), (8, 33), (16, 33)]),
        ("4k/0:8k/100", &[(4, 0), (8, 100)]),
        ("4k/98:8k:16k:32k", &[(8, 0), (16, 0), (32, 0), (4, 98)]),
        ("4k", &[(4, 100)]),
        ("4k/30:8k/30", &[(4, 30), (8, 30)]),
        ("4k/007:8k", &[(4, 7), (8, 93)]),
    ];
    for (text, expected) in rows {
        assert_eq!(shares(&spec(&format!("--bssplit={text}")).unwrap().block_mix.write), expected, "{text}");
    }
}

#[test]
fn bssplit_gives_each_direction_its_own() {
    let mix = |text: &str| spec(text).unwrap().block_mix;
    let both = mix("--bssplit=2k/50:4k/50,4k/90:8k/10");
    assert_eq!(shares(&both.read), [(2, 50), (4, 50)]);
    assert_eq!(shares(&both.write), [(8, 10), (4, 90)]);
    let trims = mix("--bssplit=2k/50:4k/50,4k/90:8k/10,1k");
    assert_eq!(trims, both);
    let writes = mix("--bssplit=,4k/90:8k/10");
    assert!(writes.read.is_none());
    assert_eq!(shares(&writes.write), [(8, 10), (4, 90)]);
    let reads = mix("--bssplit=4k:8k,");
    assert!(reads.write.is_none() && reads.read.is_some());
}

#[test]
fn bssplit_that_cannot_be_meant_is_refused() {
    for text in
        ["4k/60:8k/60", "4k/101", "4k/x", "4k/-1", "/50", ":", "4k::8k", "4k/50:", "4k/5.5", "0/50", ","]
    {
        assert!(spec(&format!("--bssplit={text}")).is_err(), "{text}");
    }
    let error = spec("--bssplit=4k/60:8k/60").unwrap_err();
    let message = "command line: bssplit=4k/60:8k/60: the percentages add up to 120, more than 100";
    assert_eq!(error, message);
    let many = vec!["4k"; crate::job::BLOCK_SHARES_MAX + 1].join(":");
    assert!(
        spec(&format!("--bssplit={many}"))
            .unwrap_err()
            .contains(&ValueError::TooMany { max: 64 }.to_string())
    );
}

/// fio rounds such a size down and draws one size instead of two.
#[test]
fn bssplit_of_no_multiple_of_its_smallest_is_refused() {
    let error = spec("--bssplit=,6k/50:10k/50").unwrap_err();
    assert_eq!(
        error,
        "command line: bssplit=,6k/50:10k/50: ambiguous: fio reads this as 6k instead of 10k; write multiples of its \
         smallest size, 6k"
    );
    assert!(spec("--bssplit=8k/50:20k/50").unwrap_err().contains("16k instead of 20k"));
    // Each direction has its own smallest size.
    spec("--bssplit=6k/50:18k/50,10k").unwrap();
}

/// fio draws from the earlier option, whatever the later one says.
#[test]
fn option_that_fio_would_not_obey_is_refused() {
    for text in ["--bsrange=4k-8k --bs=4k", "--bssplit=4k:8k --bs=,4k", "--bssplit=4k:8k --bsrange=4k-8k"] {
        assert!(spec(text).unwrap_err().contains("ambiguous"), "{text}");
    }
    let spec = spec("--bs=16k --bsrange=,4k-8k --bssplit=,8k:16k").unwrap();
    assert_eq!((spec.block_min().read, spec.block_max().read), (16 << 10, 16 << 10));
    assert_eq!((spec.block_min().write, spec.block_max().write), (8 << 10, 16 << 10));
}

#[test]
fn drawn_sizes_print_to_the_same() {
    for text in [
        "--bsrange=4k-64k",
        "--bsrange=,512-64k",
        "--bsrange=4k-8k,",
        "--bssplit=4k/10:64k/50:32k/40",
        "--bssplit=4k:8k,16k/98:1k:2k:3k",
        "--bssplit=,4k",
        "--bsrange=4k-8k, --bssplit=,4k:8k",
    ] {
        let arguments = format!("--name=j {text}");
        let file = JobFile::parse_inline(arguments.split_whitespace()).unwrap();
        let printed = file.to_canonical();
        assert!(JobFile::parse(&printed, "t").unwrap().specs().eq(file.specs()), "{printed}");
    }
}

use proptest::prelude::*;

use super::*;

/// Text and bytes. Each row was compared with the output of fio 3.33 under `--parse-only
/// --debug=parse`.
const SIZES: &[(&str, u64)] = &[
    ("0", 0),
    ("0b", 0),
    ("1", 1),
    ("512", 512),
    ("010", 10),
    ("4b", 4),
    ("4B", 4),
    ("4k", 4096),
    ("4K", 4096),
    ("+4k", 4096),
    ("4kb", 4096),
    ("4kB", 4096),
    ("4kib", 4000),
    ("4KiB", 4000),
    ("4m", 4_194_304),
    ("2GB", 2_147_483_648),
    ("2Gb", 2_147_483_648),
    ("256M", 268_435_456),
    ("1g", 1_073_741_824),
    ("1t", 1_099_511_627_776),
    ("1p", 1_125_899_906_842_624),
    ("0x10", 16),
    ("140660178944", 140_660_178_944),
    ("9223372036854775807", 9_223_372_036_854_775_807),
];

/// Text and microseconds, compared in the same way.
const TIMES: &[(&str, u64)] = &[
    ("0", 0),
    ("2", 2_000_000),
    ("2s", 2_000_000),
    ("2S", 2_000_000),
    ("2m", 120_000_000),
    ("2M", 120_000_000),
    ("2h", 7_200_000_000),
    ("2d", 172_800_000_000),
    ("2ms", 2_000),
    ("2msec", 2_000),
    ("2us", 2),
    ("2usec", 2),
    ("500us", 500),
    ("180", 180_000_000),
];

#[test]
fn int_matches_fio() {
    for (text, bytes) in SIZES {
        assert_eq!(parse_int(text), Ok(*bytes), "{text}");
    }
}

#[test]
fn time_matches_fio() {
    for (text, micros) in TIMES {
        assert_eq!(parse_micros(text), Ok(*micros), "{text}");
    }
}

#[test]
fn int_that_fio_misreads_is_refused() {
    // fio reads these as 1, 16, 12, 1, 1024, 4096, 4096, 0 and 2^64-1 bytes.
    for text in
        ["1.5k", "0x10k", "12 k", "1x", "1kk", "4kbb", "4kbi", "0x", "-1", "4k-8k", "", "k", "4é", "٤k"]
    {
        assert!(matches!(parse_int(text), Err(ValueError::Malformed { .. })), "{text}");
    }
    for text in ["4ki", "4Mi", "1gi", "1ti", "1pi"] {
        assert!(matches!(parse_int(text), Err(ValueError::Ambiguous { .. })), "{text}");
    }
    for text in ["(1+2)", "4k*2", "(4k)"] {
        assert_eq!(parse_int(text), Err(ValueError::Arithmetic), "{text}");
    }
    for text in ["9223372036854775808", "18446744073709551616", "20000p", "0xffffffffffffffff", "9000p"] {
        assert_eq!(parse_int(text), Err(ValueError::Overflow), "{text}");
    }
}

#[test]
fn time_that_fio_misreads_is_refused() {
    // fio reads these as 2, 2, 5, 1, 1 microseconds and 1 second.
    assert!(matches!(parse_micros("2sec"), Err(ValueError::Ambiguous { .. })));
    for text in ["2x", "5ns", "1m30s", "1.5s", "1.5", "2 s"] {
        assert!(matches!(parse_micros(text), Err(ValueError::Malformed { .. })), "{text}");
    }
    assert!(matches!(parse_micros("9999999d"), Err(ValueError::OutOfRange { .. })));
}

#[test]
fn extent_takes_bytes_percent_and_zones() {
    assert_eq!(parse_extent("10z"), Ok(Extent::Zones(10)));
    assert_eq!(parse_extent("0Z"), Ok(Extent::Zones(0)));
    assert_eq!(parse_extent("5%"), Ok(Extent::Percent(5)));
    assert_eq!(parse_extent("10G"), Ok(Extent::Bytes(10 << 30)));
    for text in ["0x1z", "z", "%", "5%x", "5zk", "1.5%", "4 %", "-5%", "+1z"] {
        assert!(matches!(parse_extent(text), Err(ValueError::Malformed { .. })), "{text}");
    }
    for text in ["0%", "101%", "256%"] {
        assert_eq!(parse_extent(text), Err(ValueError::OutOfRange { min: 1, max: 100 }), "{text}");
    }
}

#[test]
fn length_zero_means_the_whole_range() {
    assert_eq!(parse_length("0"), Ok(Extent::Fill));
    assert!(parse_length("0z").is_err());
}

#[test]
fn bool_takes_digits_only() {
    assert_eq!(parse_bool("1"), Ok(true));
    assert_eq!(parse_bool("0"), Ok(false));
    for text in ["2", "yes", "true", "-1", ""] {
        assert!(parse_bool(text).is_err(), "{text}");
    }
}

#[test]
fn float_is_a_plain_decimal_in_range() {
    assert_eq!(parse_float(".5", 0.0, 1.0), Ok(0.5));
    assert_eq!(parse_float("1.1", 0.0, 1.0), Err(ValueError::FloatOutOfRange { min: 0.0, max: 1.0 }));
    for text in ["nan", "inf", "1e-3", "-0.5", "", ".", "1.2.3"] {
        assert!(parse_float(text, 0.0, 1.0).is_err(), "{text}");
    }
    assert_eq!(parse_floats("50:99.9", 0.0, 100.0, 2), Ok(vec![50.0, 99.9]));
    assert_eq!(parse_floats("1:2:3", 0.0, 100.0, 2), Err(ValueError::TooMany { max: 2 }));
}

proptest! {
    #[test]
    fn int_survives_printing(number in 0..=NUMBER_MAX, shift in 0_u32..63) {
        for number in [number, (number >> shift) << shift] {
            prop_assert_eq!(parse_int(&show_int(number)), Ok(number));
        }
    }

    #[test]
    fn time_survives_printing(micros in 0..=RUNTIME_MICROS_MAX) {
        for micros in [micros, micros - micros % 1_000_000] {
            prop_assert_eq!(parse_micros(&show_time(Duration::from_micros(micros))), Ok(micros));
        }
    }

    #[test]
    fn extent_survives_printing(number in 1..=NUMBER_MAX, percent in 1_u16..=100) {
        for extent in [Extent::Bytes(number), Extent::Zones(number), Extent::Percent(percent), Extent::Fill] {
            prop_assert_eq!(parse_length(&show_extent(extent)), Ok(extent));
        }
    }

    #[test]
    fn floats_survive_printing(numbers in prop::collection::vec(0.0_f64..=100.0, 1..20)) {
        prop_assert_eq!(parse_floats(&show_floats(&numbers), 0.0, 100.0, 20), Ok(numbers));
    }

    #[test]
    fn any_text_parses_or_fails(text in "\\PC{0,24}") {
        let _ = parse_int(&text);
        let _ = parse_micros(&text);
        let _ = parse_extent(&text);
        let _ = parse_floats(&text, 0.0, 100.0, 20);
    }

    #[test]
    fn number_like_text_parses_or_fails(text in "[-+]?(0x)?[0-9a-f]{0,22}[kmgtpz%ib ]{0,3}") {
        if let Ok(number) = parse_int(&text) {
            prop_assert_eq!(parse_int(&show_int(number)), Ok(number));
        }
        let _ = parse_micros(&text);
        let _ = parse_extent(&text);
    }
}

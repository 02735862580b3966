use super::*;

/// Requests of 8 sectors that complete at these times.
fn series(times: impl IntoIterator<Item = u64>) -> FlowSeries {
    let mut series = FlowSeries::default();
    for at in times {
        let bucket = series.at(Nanos(at));
        (bucket.ios, bucket.bytes) = (bucket.ios + 1, bucket.bytes + 4096);
    }
    series
}

fn total(flow: &Flow) -> (u64, u64) {
    (flow.ios.iter().sum(), flow.bytes.iter().sum())
}

#[test]
fn many_requests_keep_their_points() {
    let flow = flow(&series((0..1_000_000).map(|n| n * 2000)), usize::MAX);
    assert!(flow.t.len() > 200, "{}", flow.t.len());
    assert_eq!(total(&flow), (1_000_000, 4_096_000_000));
}

#[test]
fn few_requests_get_wide_points_and_none_is_lost() {
    let flow = flow(&series((0..1000).map(|n| n * 10_000_000)), usize::MAX);
    assert!((32..=64).contains(&flow.t.len()), "{}", flow.t.len());
    assert_eq!(total(&flow).0, 1000);
    let rates = flow.ios.iter().zip(&flow.seconds).map(|(ios, seconds)| *ios as f64 / seconds);
    // All points except the two ends, which need not hold whole gaps.
    for rate in rates.skip(1).take(flow.t.len() - 2) {
        assert!((90.0..=110.0).contains(&rate), "{rate}");
    }
}

#[test]
fn run_shorter_than_a_second_has_few_wide_points_also_if_it_begins_late() {
    for begin in [0, 50_000_000] {
        // Bursts of 100 requests, each followed by a pause of the same length.
        let bursts = (0..300u64).flat_map(|n| (0..100).map(move |m| begin + n * 100_000 + m * 500));
        let flow = flow(&series(bursts), usize::MAX);
        assert!((8..=SHORT_POINTS).contains(&flow.t.len()), "{begin}: {}", flow.t.len());
        assert_eq!(total(&flow).0, 30_000);
        let rates = flow.ios.iter().zip(&flow.seconds).map(|(ios, seconds)| *ios as f64 / seconds);
        // All points but the two ends, which need not hold whole bursts.
        for rate in rates.skip(1).take(flow.t.len() - 2) {
            assert!((900_000.0..=1_100_000.0).contains(&rate), "{begin}: {rate}");
        }
    }
}

#[test]
fn handful_of_requests_is_one_point_with_their_mean() {
    let mut series = series([10_300_000, 12_200_000, 14_100_000]);
    series.at(Nanos(10_300_000)).nanos_max = 10_300_000;
    let flow = flow(&series, usize::MAX);
    assert_eq!((flow.t.len(), &flow.ios), (1, &vec![3]));
    // From the start of the first request to the completion of the last.
    assert!((flow.seconds[0] - 0.0141).abs() < 1e-6, "{:?}", flow.seconds);
}

#[test]
fn one_job_among_many_has_fewer_points() {
    let flow = flow(&series((0..1_000_000).map(|n| n * 1000)), COARSE_POINTS);
    assert!(flow.t.len() <= COARSE_POINTS);
    assert_eq!(total(&flow).0, 1_000_000);
}

#[test]
fn series_that_begins_late_has_no_points_before() {
    let flow = flow(&series((0..100_000).map(|n| 1_000_000_000 + n * 1000)), usize::MAX);
    assert!(flow.t[0] >= 0.99, "{}", flow.t[0]);
    assert_eq!(total(&flow).0, 100_000);
}

#[test]
fn short_piece_at_the_end_is_no_point_of_its_own() {
    let whole: u64 = 100 << 16;
    let flow = flow(&series((0..whole).step_by(1000).chain([whole + 10; 50])), usize::MAX);
    let shortest = flow.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(shortest >= 65_536e-9 / 2.0, "{shortest}");
    assert_eq!(total(&flow).0, whole.div_ceil(1000) + 50);
}

#[test]
fn curve_rises_to_the_maximum() {
    let mut latency = Latency::new();
    (1..=10_000).for_each(|n| latency.record(n * 100));
    let points = curve_points(&latency);
    assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{points:?}");
    let at = |x: f64| points.iter().find(|point| (point.0 - x).abs() < 1e-6).unwrap().1 as f64;
    // 90 and 99 percent.
    assert!((at(1.0) / 900_000.0 - 1.0).abs() < 0.02 && (at(2.0) / 990_000.0 - 1.0).abs() < 0.02);
    assert_eq!(points.last().unwrap().1, 1_000_000);
}

#[test]
fn curve_of_one_request_has_two_points() {
    let mut latency = Latency::new();
    latency.record(700);
    let points = curve_points(&latency);
    assert_eq!((points.len(), points[0].1, points[1].1), (2, 700, 700));
}

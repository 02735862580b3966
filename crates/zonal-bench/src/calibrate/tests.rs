//! Tests of calibration: zones used, and recovery of known profiles. Whole drives with hidden
//! profiles are in the tests of the whole tree.

use super::*;
use zonal_sim::profile::TimingValues;

fn disk(changes: &[(&str, &str)]) -> Profile {
    Profile::open("smr-hdd-30t", changes).unwrap()
}

fn info(profile: &Profile) -> DeviceInfo {
    profile.simulated("x").unwrap().info().clone()
}

#[test]
fn runs_of_a_disk_write_different_zones() {
    for changes in [
        &[("size", "30T")][..],
        &[("size", "30T"), ("zone_max_open", "16"), ("zone_max_active", "0")],
        &[("size", "70G")],
        &[("size", "300G"), ("zone_nr_conv", "100")],
    ] {
        let profile = disk(changes);
        let info = info(&profile);
        let runs = Runs::new(&info, &profile).unwrap();
        let of_each: usize = runs
            .list()
            .iter()
            .map(|run| {
                let zones = Runs::zones(&runs.only(&[runs.position(run.name).unwrap()]));
                zones.0.len()
            })
            .sum();
        // Two runs on many zones share theirs.
        let many = runs.list()[runs.position("many-4K").unwrap()].places[0].zones as usize;
        assert_eq!(runs.zones().0.len(), of_each - many);
        assert!(runs.zones().0.iter().all(|&z| !info.geometry.is_conventional(z)));
        assert!(runs.zones().0.last().unwrap().0 < info.geometry.zones());
    }
}

/// Rates of the runs on two zones at increasing distances.
fn rates_apart(changes: &[(&str, &str)]) -> Vec<f64> {
    let profile = disk(changes);
    let device = profile.simulated("x").unwrap();
    let runs = Runs::new(device.info(), &profile).unwrap();
    let is_apart = |at: &usize| runs.list()[*at].name.starts_with("apart-");
    let which: Vec<usize> = (0..runs.list().len()).filter(is_apart).collect();
    let outcomes = measure(&device, &runs.only(&which)).unwrap();
    outcomes.iter().map(Outcome::megabytes_a_second).collect()
}

#[test]
fn zones_far_apart_tell_visits_that_pay_for_their_moves() {
    let (paid, short) = (rates_apart(&[]), rates_apart(&[("dwell", "0.1")]));
    assert_eq!((paid.len(), rates_apart(&[("size", "300G")]).len()), (6, 0));
    let (near, far) = (paid[0] / short[0], paid[5] / short[5]);
    assert!((0.97..1.03).contains(&near) && far > 1.4, "{paid:?} and {short:?} MB/s");
}

#[test]
fn small_drives_and_other_kinds_are_refused() {
    let profile = disk(&[("size", "8G")]);
    let error = Runs::new(&info(&profile), &profile).unwrap_err().to_string();
    assert!(error.contains("need 275 sequential zones, but the drive has 32"), "{error}");
    let flash = Profile::open("zns-1t", &[]).unwrap();
    let error = Runs::new(&info(&flash), &profile).unwrap_err().to_string();
    assert_eq!(error, "profile smr-hdd-30t is for a disk, but the drive is flash");
}

#[test]
fn zones_are_displayed_as_ranges() {
    let zones = ZonesUsed([3, 4, 5, 9, 11, 12].map(zonal_core::ZoneIndex).to_vec());
    assert_eq!(zones.to_string(), "3-5, 9, 11-12");
}

#[test]
fn measured_runs_leave_their_zones_empty_and_are_the_same_again() {
    let profile = disk(&[("size", "70G")]);
    let device = profile.simulated("x").unwrap();
    let runs = Runs::new(device.info(), &profile).unwrap();
    let first = measure(&device, &runs).unwrap();
    assert_eq!(runs.zones_with_data(&*device).unwrap().0, []);
    let other = profile.simulated("y").unwrap();
    assert_eq!(first, measure(&other, &runs).unwrap());
    assert!(first.iter().all(|o| o.seconds > 0.0 && o.flushing > 0.0 && o.flushing < o.seconds), "{first:?}");
}

#[test]
fn flash_drive_is_found_again() {
    let hidden = Profile::open(
        "zns-1t",
        &[("drive_us", "24"), ("drive_mb_s", "2100"), ("zone_us", "40"), ("zone_mb_s", "800")],
    )
    .unwrap();
    let base = Profile::open("zns-1t", &[]).unwrap();
    let device = hidden.simulated("x").unwrap();
    let runs = Runs::new(device.info(), &base).unwrap();
    let measured = measure(&device, &runs).unwrap();
    let found = fit(device.info(), &base, &runs, &measured, SIMULATED_MAX, &mut |_| ()).unwrap();
    let worst = found.residuals.iter().map(|r| r.error().abs()).fold(0.0, f64::max);
    // Link and die are not fitted, so a run in which they matter stays off by a percent.
    assert!(worst < 0.02, "{:?}", found.residuals);
    let TimingValues::Flash(values) = &found.profile.timing else { panic!("it is flash") };
    assert!((values.drive_us.value / 24.0 - 1.0).abs() < 0.05, "{values:?}");
    assert!((values.zone_mb_s.value / 800.0 - 1.0).abs() < 0.05, "{values:?}");
}

#[test]
fn fit_that_leaves_a_run_beyond_10_percent_is_not_called_calibrated() {
    let base = Profile::open("zns-1t", &[]).unwrap();
    let device = base.simulated("hidden").unwrap();
    let runs = Runs::new(device.info(), &base).unwrap();
    let measured = measure(&device, &runs).unwrap();
    let fitted = |measured: &[Outcome]| fit(device.info(), &base, &runs, measured, 60, &mut |_| ()).unwrap();
    let worst =
        |found: &Calibrated| found.residuals.iter().map(|r| r.error().abs() * 100.0).fold(0.0, f64::max);
    let good = fitted(&measured);
    assert!(good.profile.calibrated && worst(&good) < 10.0, "{:?}", good.profile.worst_residual_percent);
    assert!((good.profile.worst_residual_percent.unwrap() - worst(&good)).abs() < 0.06);
    // A drive that takes three times as long in one run as in the others, which no values of the
    // model explain.
    let mut odd = measured.clone();
    odd[1].seconds *= 3.0;
    let found = fitted(&odd);
    assert!(!found.profile.calibrated && worst(&found) > 10.0, "{:?}", found.profile.worst_residual_percent);
    let standing = found.profile.standing().to_string();
    assert!(standing.starts_with("fitted, but with a residual of"), "{standing}");
}

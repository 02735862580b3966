//! The page written by `zonal bench --report`, opened in headless Chromium: it renders without an
//! error, fetches nothing, and agrees with the JSON.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use zonal_check::program::{self, plain};

const ALL_MODES: &str = "direct,zone-lock,per-zone,qd1,pipelined,append";

/// Enough zones to leave some in every condition, with order preserved so that all modes run.
const DEVICE: &str = "null:size=4G,zone_size=16M,zone_capacity=15M,zone_nr_conv=8,preserves_write_order=1";

/// Name of the installed browser.
fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        program::skip("chromium is not installed; scripts/setup.sh installs it");
    }
    found
}

/// Page with its results.
struct Run {
    directory: TempDir,
    page: PathBuf,
    json: Value,
}

fn bench(arguments: &[&str]) -> Run {
    bench_on(DEVICE, arguments)
}

fn bench_on(device: &str, arguments: &[&str]) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let output = plain()
        .args(["bench", "--device", device, "--report", "page.html", "--json", "results.json"])
        .args(arguments)
        .current_dir(directory.path())
        .env("ZONAL_RUNTIME_DIR", directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = fs::read_to_string(directory.path().join("results.json")).unwrap();
    let page = directory.path().join("page.html");
    Run { json: serde_json::from_str(&json).unwrap(), page, directory }
}

fn open(browser: &str, page: &Path, arguments: &[&str]) -> Output {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        // The page is trusted, and the sandbox does not start as root.
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--window-size=1366,2000",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// DOM of a page after rendering. Its console must be empty.
fn opened(browser: &str, page: &Path) -> String {
    let output = open(browser, page, &["--dump-dom"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let console: Vec<_> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(console, [""; 0]);
    String::from_utf8(output.stdout).unwrap()
}

/// Text between the first occurrences of two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} behind {before}")).0
}

/// Drawing record of the page's script.
fn drawn(dom: &str) -> Value {
    assert_eq!(between(dom, "<body data-status=\"", "\""), "drawn");
    serde_json::from_str(between(dom, "<output id=\"drawn\" hidden=\"\">", "</output>")).unwrap()
}

/// Numbers in the row of one job and direction, in column order; `None` for a dash.
fn cells(dom: &str, job: usize, dir: &str) -> Vec<Option<f64>> {
    let row = between(dom, &format!("<tr data-job=\"{job}\" data-dir=\"{dir}\""), "</tr>");
    let numbers = row.split("<td>").skip(1).map(|cell| match cell.contains("<data") {
        true => Some(between(cell, "value=\"", "\"").parse().unwrap()),
        false => None,
    });
    numbers.collect()
}

/// Corresponding numbers from the JSON.
fn expected(json: &Value, job: usize, dir: &str) -> Vec<Option<f64>> {
    let report = &json["jobs"][job][dir];
    let clat = |key: &str| {
        let is_measured = report["clat_ns"]["N"].as_u64().unwrap() > 0;
        is_measured.then(|| report["clat_ns"].pointer(key).unwrap().as_f64().unwrap())
    };
    let mode = &json["jobs"][job]["zonal"]["write_mode"];
    let mode = json["zonal"]["modes"].as_array().unwrap().iter().find(|m| &m["write_mode"] == mode).unwrap();
    let mut numbers: Vec<_> =
        ["total_ios", "io_bytes", "iops", "bw_bytes"].map(|key| report[key].as_f64()).to_vec();
    let percentiles = ["50.000000", "99.000000", "99.900000"].map(|p| format!("/percentile/{p}"));
    numbers.push(clat("/mean"));
    numbers.extend(percentiles.iter().map(|key| clat(key)));
    numbers.push(clat("/max"));
    numbers.push(mode["commands_per_write"].as_f64().filter(|_| dir == "write"));
    numbers
}

/// True if numbers are equal except for the last digit, which this reader of JSON does not always
/// get right.
fn are_same(cells: &[Option<f64>], expected: &[Option<f64>]) -> bool {
    let is_same = |pair: (&Option<f64>, &Option<f64>)| match pair {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * b.abs(),
        (a, b) => a == b,
    };
    cells.len() == expected.len() && cells.iter().zip(expected).all(is_same)
}

/// The JSON in the page, its tables and its charts agree with the output of `--json`.
fn check_numbers(run: &Run, dom: &str) {
    let inside: Value =
        serde_json::from_str(between(dom, "<script type=\"application/json\" id=\"results\">", "</script>"))
            .unwrap();
    assert_eq!(inside, run.json);
    let jobs = run.json["jobs"].as_array().unwrap();
    let mut sums = vec![[0u64; 2]; run.json["zonal"]["modes"].as_array().unwrap().len()];
    let mut rows = 0;
    for (n, job) in jobs.iter().enumerate() {
        for (dir, name) in ["read", "write"].into_iter().enumerate() {
            let ios = job[name]["total_ios"].as_u64().unwrap();
            sums[n * run.json["zonal"]["modes"].as_array().unwrap().len() / jobs.len()][dir] += ios;
            if ios > 0 {
                let (cells, expected) = (cells(dom, n, name), expected(&run.json, n, name));
                assert!(are_same(&cells, &expected), "job {n}, {name}: {cells:?} for {expected:?}");
                rows += 1;
            }
        }
    }
    assert!(rows >= jobs.len());
    let charts: Vec<[u64; 2]> = drawn(dom)["sums"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mode| ["read", "write"].map(|dir| mode[dir]["ios"].as_u64().unwrap()))
        .collect();
    assert_eq!(charts, sums);
}

#[test]
fn page_of_one_mode_and_one_job_draws_all_charts_and_matches_the_json() {
    let Some(browser) = browser() else { return };
    let run = bench(&[
        "--write-mode=per-zone",
        "--name=seq",
        "--rw=write",
        "--zonemode=zbd",
        "--bs=16k",
        "--iodepth=8",
        "--offset=8z",
        "--size=6z",
        "--io_size=83m",
    ]);
    let dom = opened(browser, &run.page);
    check_numbers(&run, &dom);
    let drawn = drawn(&dom);
    for (chart, series) in
        [("throughput", 1), ("latency", 3), ("percentiles", 1), ("positions", 1), ("zones", 256)]
    {
        assert_eq!(drawn["drawn"][chart], series, "{chart}");
    }
    // No comparison of a single mode, and no selection of a single job.
    assert!(!dom.contains("side by side") && !dom.contains("<select"));
    assert_eq!(drawn["fetched"], 0);
}

#[test]
fn page_of_six_modes_and_sixteen_jobs_matches_the_json() {
    let Some(browser) = browser() else { return };
    let run = bench(&[
        "--write-mode",
        ALL_MODES,
        "--name=mix",
        "--rw=randrw",
        "--zonemode=zbd",
        "--bs=4k",
        "--iodepth=4",
        "--numjobs=16",
        "--offset=8z",
        "--size=48z",
        "--max_open_zones=32",
        "--io_size=512k",
    ]);
    let dom = opened(browser, &run.page);
    check_numbers(&run, &dom);
    let drawn = drawn(&dom);
    assert_eq!(
        (drawn["drawn"]["throughput"].as_u64(), drawn["drawn"]["percentiles"].as_u64()),
        (Some(12), Some(12))
    );
    assert!(dom.contains("Write modes side by side"));
    let options = between(&dom, "<select", "</select>").matches("<option").count();
    assert_eq!(options, 2 + 16);
}

#[test]
fn names_from_outside_stay_text() {
    let Some(browser) = browser() else { return };
    let name = "</script><script>document.title='taken'</script><img src=x onerror=fail()>& &lt \u{2028}'\"";
    let run = bench(&[
        &format!("--name={name}"),
        "--description=</script><!--<script>",
        "--rw=write",
        "--zonemode=zbd",
        "--bs=64k",
        "--offset=8z",
        "--size=1z",
        "--numjobs=2",
    ]);
    let dom = opened(browser, &run.page);
    check_numbers(&run, &dom);
    assert_eq!(drawn(&dom)["fetched"], 0);
    assert!(between(&dom, "<title>", "</title>").starts_with("zonal bench on null:"), "the title is taken");
    assert!(!dom.contains("<img"), "a name became an element");
    let scripts = |text: &str| text.matches("<script").count();
    let page = fs::read_to_string(&run.page).unwrap();
    assert_eq!((scripts(&page), page.matches("</script").count()), (4, 4));
    assert!(
        run.json["jobs"][0]["jobname"].as_str().unwrap().contains("</script>"),
        "the name did not arrive"
    );
}

/// Checks that the head of a disk moves to zones that jobs write and read, and is drawn with their
/// positions in a bounded number of points.
fn check_head(positions: &Value, dom: &str) {
    let positions = positions.as_array().unwrap();
    let names: Vec<_> = positions.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "write", "head"]);
    let numbers = |of: &Value, key: &str| -> Vec<f64> {
        of[key].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
    };
    let places = numbers(&positions[2], "last");
    assert!((10..=512).contains(&places.len()), "{} points", places.len());
    let written = numbers(&positions[1], "max").into_iter().fold(0.0, f64::max);
    assert!(places.iter().all(|place| (0.0..=written + 1.0).contains(place)), "up to {written}: {places:?}");
    assert!(places.windows(2).any(|two| (two[0] - two[1]).abs() > 1.0), "it never goes to another zone");
    assert_eq!(drawn(dom)["drawn"]["positions"], 3);
}

/// Two rounds in two modes take seconds of the disk's virtual time.
#[test]
fn page_of_a_simulated_drive_is_in_its_time_with_its_profile_and_the_same_each_time() {
    let Some(browser) = browser() else { return };
    let run = || {
        bench_on(
            "sim:smr-hdd-30t,policy=fifo",
            &[
                "--write-mode=per-zone,qd1",
                "--name=first",
                "--rw=randwrite",
                "--zonemode=zbd",
                "--bs=1m",
                "--iodepth=8",
                "--size=1000z",
                "--max_open_zones=8",
                "--io_size=256m",
                "--name=second",
                "--stonewall",
                "--rw=read",
                "--zonemode=zbd",
                "--read_beyond_wp=1",
                "--bs=1m",
                "--size=1z",
            ],
        )
    };
    let (run, again) = (run(), run());
    let series = |run: &Run| {
        let page = fs::read_to_string(&run.page).unwrap();
        between(&page, "<script type=\"application/json\" id=\"series\">", "</script>").to_owned()
    };
    assert_eq!(series(&run), series(&again));
    let dom = opened(browser, &run.page);
    check_numbers(&run, &dom);
    assert!(dom.contains("in virtual time") && dom.contains("# given: policy=fifo"));
    let series: Value = serde_json::from_str(&series(&run)).unwrap();
    check_head(&series["modes"][0]["positions"], &dom);
    for (n, mode) in series["modes"].as_array().unwrap().iter().enumerate() {
        let times = |entry: usize| mode["entries"][entry]["dirs"][0]["flow"]["t"].as_array().unwrap();
        let (first, second) = (times(1), times(2));
        assert!(
            second[0].as_f64() >= first[first.len() - 1].as_f64(),
            "the second round is behind the first"
        );
        let runtime = |job: usize| run.json["jobs"][2 * n + job]["job_runtime"].as_f64().unwrap() / 1000.0;
        let (end, all) = (second[second.len() - 1].as_f64().unwrap(), runtime(0) + runtime(1));
        assert!(end <= all * 1.01 && end >= all * 0.9, "{end} of {all} s");
    }
}

/// Result of `script` in the page, shown in a frame of `width` pixels: the browser's own window has
/// a minimum width of 500.
fn measured(browser: &str, run: &Run, width: u32, script: &str) -> Value {
    let page = fs::read_to_string(&run.page).unwrap();
    let page = serde_json::to_string(&page).unwrap().replace('<', "\\u003c");
    let around = format!(
        "<!doctype html><iframe id=frame style=\"border: 0; width: {width}px; height: 900px\"></iframe><output id=measured></output>
         <script>
         const frame = document.getElementById('frame');
         frame.onload = () => {{
           const page = frame.contentDocument;
           const of = () => {{ {script} }};
           document.getElementById('measured').textContent = JSON.stringify(of());
         }};
         frame.srcdoc = {page};
         </script>"
    );
    let path = run.directory.path().join(format!("frame-{width}.html"));
    fs::write(&path, around).unwrap();
    let dom = String::from_utf8(open(browser, &path, &["--dump-dom"]).stdout).unwrap();
    serde_json::from_str(between(&dom, "<output id=\"measured\">", "</output>")).unwrap()
}

/// Measures the cells of the summary: visible, not overlapping, and not wider than the window.
const CELLS: &str = "
    const rows = [...page.querySelector('table.runs').tBodies[0].rows];
    const boxes = rows.map(row => [...row.cells].map(cell => cell.getBoundingClientRect()));
    const all = boxes.flat().filter(box => box.width > 0);
    const meet = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 1 < b.bottom && b.top + 1 < a.bottom;
    return {
      modes: new Set(rows.map(row => row.cells[2].textContent.trim())).size,
      hidden: boxes.flatMap(row => row.slice(2)).filter(box => box.width < 3 || box.height < 3).length,
      left: Math.min(...all.map(box => box.left)), right: Math.max(...all.map(box => box.right)),
      meeting: all.filter((a, n) => all.slice(n + 1, n + 40).some(b => meet(a, b))).length,
      wider: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      ratios: [...page.querySelectorAll('table.ratios tbody tr:first-child data')].filter(cell => {
        const box = cell.getBoundingClientRect();
        return box.width > 0 && box.right <= page.documentElement.clientWidth;
      }).length,
      status: page.body.dataset.status,
    };";

#[test]
fn summary_of_six_modes_is_whole_on_a_phone_and_on_a_screen() {
    let Some(browser) = browser() else { return };
    let run = bench(&[
        "--write-mode",
        ALL_MODES,
        "--name=with-a-rather-long-name-of-a-job",
        "--rw=randrw",
        "--zonemode=zbd",
        "--bs=64k",
        "--iodepth=8",
        "--offset=8z",
        "--size=16z",
        "--max_open_zones=16",
        "--io_size=8m",
    ]);
    for width in [390, 880, 1400] {
        let found = measured(browser, &run, width, CELLS);
        assert_eq!(found["status"], "drawn", "{found}");
        assert_eq!((&found["modes"], &found["ratios"]), (&6.into(), &6.into()), "{width}: {found}");
        assert_eq!((&found["hidden"], &found["meeting"]), (&0.into(), &0.into()), "{width}: {found}");
        assert!(found["wider"].as_i64().unwrap() <= 0, "{width}: {found}");
        let within =
            found["left"].as_f64().unwrap() >= 0.0 && found["right"].as_f64().unwrap() <= f64::from(width);
        assert!(within, "{width}: {found}");
    }
}

/// Selects zones among a hundred thousand by number, by keyboard, by clicking and by dragging.
#[test]
fn map_of_a_large_disk_can_be_zoomed_to_single_zones_and_back() {
    let Some(browser) = browser() else { return };
    let run = bench_on(
        "sim:smr-hdd-30t",
        &[
            "--name=w",
            "--rw=write",
            "--zonemode=zbd",
            "--bs=1m",
            "--offset=37204z",
            "--size=2z",
            "--io_size=384m",
        ],
    );
    let bytes = fs::metadata(&run.page).unwrap().len();
    assert!(bytes < 250_000, "{bytes} bytes");
    let steps = "
        const map = page.querySelector('canvas.map');
        const part = () => page.querySelector('.zoom > span').textContent;
        const zone = () => page.querySelector('.zone-at').textContent;
        const key = name => map.dispatchEvent(new frame.contentWindow.KeyboardEvent('keydown', { key: name }));
        const at = (type, x, y) => {
          const box = map.getBoundingClientRect();
          map.dispatchEvent(new frame.contentWindow.PointerEvent(type, { clientX: box.left + x, clientY: box.top + y, button: 0 }));
        };
        const seen = [];
        const see = () => seen.push([part(), zone()]);
        see();
        const find = page.querySelector('.zoom input');
        find.value = 37204;
        find.dispatchEvent(new Event('change'));
        see();
        key('ArrowRight');
        see();
        key('Escape');
        see();
        at('pointerdown', 1, 1); at('pointerup', 1, 1);
        see();
        at('pointermove', 2, 2);
        const tip = page.getElementById('tip').textContent;
        key('Escape');
        at('pointerdown', 1, 1); at('pointermove', 101, 1); at('pointerup', 101, 1);
        see();
        return { seen, tip };";
    let found = measured(browser, &run, 1200, steps);
    let seen: Vec<(&str, &str)> = found["seen"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
        .collect();
    assert_eq!(seen[0], ("click or drag on the map to zoom in", ""));
    assert_eq!(seen[1].0, "zones 37,076 to 37,331");
    assert!(
        seen[1].1.starts_with("zone 37,204: full, 100% written; starts at 9.08 TiB; sector "),
        "{seen:?}"
    );
    let half = "zone 37,205: implicitly open, 50% written; about 128 MiB of 256 MiB; starts at ";
    assert!(seen[2].1.starts_with(half), "{seen:?}");
    assert_eq!(seen[3].0, seen[0].0);
    assert_eq!(seen[4], ("zones 0 to 6,984", "zone 0: empty; starts at 0 B; sector 0"));
    assert!(found["tip"].as_str().unwrap().starts_with("zone 0"), "{found}");
    // The squares of the unzoomed map are two pixels wide at this width.
    assert_eq!(seen[5].0, "zones 0 to 50");
}

#[test]
fn chart_notes_too_few_requests_and_smoothing() {
    let Some(browser) = browser() else { return };
    let job = ["--name=few", "--rw=write", "--zonemode=zbd", "--bs=1m", "--iodepth=1"];
    let note = |io_size: &str| {
        let run = bench_on("sim:smr-hdd-30t", &[&job[..], &[io_size]].concat());
        let dom = opened(browser, &run.page);
        check_numbers(&run, &dom);
        between(&dom, "<p class=\"figure-note\">", "</p>").to_owned()
    };
    let few = note("--io_size=3m");
    assert!(few.starts_with("3 requests in ") && few.contains("too few for a curve over time"), "{few}");
    let short = note("--io_size=64m");
    assert!(short.starts_with("Run shorter than a second, smoothed: "), "{short}");
    let long = note("--io_size=2g");
    assert!(long.starts_with("Each point covers "), "{long}");
}

#[test]
fn page_follows_the_preferred_colours() {
    let Some(browser) = browser() else { return };
    let run = bench(&["--name=seq", "--rw=write", "--zonemode=zbd", "--bs=64k", "--offset=8z", "--size=2z"]);
    let picture = |name: &str, scheme: u32| {
        let path = run.directory.path().join(name);
        let (scheme, to) = (
            format!("--blink-settings=preferredColorScheme={scheme}"),
            format!("--screenshot={}", path.display()),
        );
        open(browser, &run.page, &[&scheme, &to]);
        fs::read(path).unwrap()
    };
    let (dark, light) = (picture("dark.png", 0), picture("light.png", 1));
    assert!(dark.len() > 20_000 && light.len() > 20_000, "{} and {} bytes", dark.len(), light.len());
    assert_ne!(dark, light);
}

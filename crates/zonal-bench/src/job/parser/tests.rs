use super::*;
use crate::job::Environment;

fn environment() -> Environment {
    let mut environment =
        Environment { page_bytes: 4096, memory_mib: 24_105, cpus: 2, ..Environment::fixed() };
    for (name, value) in
        [("BS", "64k"), ("A", "1"), ("B", "2k"), ("BAD", "x;y"), ("NEST", "${A}"), ("BLANK", " 8k ")]
    {
        environment.variables.insert(name.to_owned(), value.to_owned());
    }
    environment
}

fn parse(text: &str) -> Result<JobFile, JobError> {
    JobParser::new(environment()).parse_one(text, "t")
}

#[test]
fn variables_and_keywords_are_replaced() {
    let text = "[a]\nbs=${BS}\nio_size=${A}${B}\nsize=$pagesize\nnumjobs=$ncpus\noffset=$mb_memory\n\
                description=$HOME ${open\niodepth=${A}\n";
    let file = parse(text).unwrap();
    let job = &file.jobs()[0].spec;
    assert_eq!(job.block_size.read, 65_536);
    assert_eq!(job.io_size.bytes(0, 0), Some(12 << 10));
    assert_eq!(job.size.bytes(0, 0), Some(4096));
    assert_eq!(job.numjobs, 2);
    assert_eq!(job.offset.bytes(0, 0), Some(24_105));
    assert_eq!(job.description.as_deref(), Some("$HOME ${open"));
    assert_eq!(parse("[a]\nbs=${BLANK}\n").unwrap().jobs()[0].spec.block_size.write, 8192);
}

#[test]
fn variable_that_is_not_set_or_not_printable_is_an_error() {
    let error = parse("[a]\nbs=4k\nrw=${FIO_RW}\n").unwrap_err();
    assert_eq!(error.to_string(), "t:3: the environment variable `FIO_RW` is not set");
    for name in ["BAD", "NEST"] {
        let error = parse(&format!("[a]\ndescription=${{{name}}}\n")).unwrap_err();
        assert!(matches!(error, JobError::Unprintable { .. }), "{name}: {error}");
    }
    let error = parse("[a]\nsize=$pagesize*2\n").unwrap_err();
    assert!(error.to_string().contains("arithmetic"), "{error}");
}

#[test]
fn section_that_is_not_selected_is_not_even_checked() {
    let text = "[global]\nbs=8k\n[default]\n[override]\nrw=${FIO_RW}\nnonsense=1\n";
    let mut parser = JobParser::new(environment());
    parser.only_sections(["default"]);
    parser.file(text, "t").unwrap();
    let file = parser.finish().unwrap();
    assert_eq!(file.specs().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["default"]);

    let mut parser = JobParser::new(environment());
    parser.only_sections(["nowhere"]);
    parser.file(text, "t").unwrap();
    assert_eq!(parser.finish().unwrap_err().to_string(), "there is no section [nowhere]");
}

/// Expected values as printed by fio 3.33 for the same files.
#[test]
fn second_file_starts_from_defaults_and_waits() {
    let mut parser = JobParser::new(environment());
    parser.file("[global]\nbs=16k\nrw=write\n[x]\nsize=32k\n", "one").unwrap();
    parser.file("[dropped]\n[y]\nsize=32k\n[z]\n", "two").unwrap();
    parser.only_sections(["x", "y", "z"]);
    let file = parser.finish().unwrap();
    let seen: Vec<_> =
        file.specs().map(|job| (job.name.as_str(), job.block_size.read, job.stonewall)).collect();
    assert_eq!(seen, [("x", 16_384, false), ("y", 4096, true), ("z", 4096, false)]);
}

#[test]
fn options_before_a_file_are_its_defaults() {
    let run = |text: &str| {
        let mut parser = JobParser::new(environment());
        assert_eq!(parser.command_line(["--bs=32k", "t"]).unwrap(), ["t"]);
        parser.file(text, "t").unwrap();
        parser.finish().unwrap().jobs()[0].spec.block_size.read
    };
    assert_eq!(run("[a]\n"), 32_768);
    assert_eq!(run("[a]\nbs=2k\n"), 2048);
    assert_eq!(run("[global]\nbs=4k\n[a]\n"), 4096);

    let mut parser = JobParser::new(environment());
    assert_eq!(parser.command_line(["--bs=32k", "t", "u"]).unwrap_err(), JobError::OptionsBeforeFiles);
    let error = parser.command_line(["--wite-mode", "qd1", "t"]).unwrap_err();
    assert!(matches!(error, JobError::Unknown { ref name, .. } if name == "wite-mode"), "{error}");
}

#[test]
fn limits_hold() {
    let sections = "[a]\n".repeat(SECTIONS_MAX + 1);
    assert!(matches!(parse(&sections), Err(JobError::TooMany { limit: Limit::Sections, .. })));
    let settings = format!("[a]\n{}", "rw=read\n".repeat(SETTINGS_MAX + 1));
    assert!(matches!(parse(&settings), Err(JobError::TooMany { limit: Limit::Settings, .. })));
    let workers = "[a]\nnumjobs=1024\n".repeat(5);
    assert!(matches!(parse(&workers), Err(JobError::TooMany { limit: Limit::Workers, .. })));
    assert_eq!(parse(&"[a]\nnumjobs=1024\n".repeat(4)).unwrap().jobs().len(), 4);
}

#[test]
fn bytes_that_are_not_utf8_are_an_error() {
    let error = JobParser::new(environment()).parse_one_bytes(b"[a]\nname=\xff", "t").unwrap_err();
    assert_eq!(error.to_string(), "t: not UTF-8 at byte 9");
}

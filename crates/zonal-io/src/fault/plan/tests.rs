use super::*;
use crate::fault::Degraded;
use crate::fault::rule::{Carried, Effect, InFlight, Late, Reordered};
use proptest::prelude::*;
use zonal_core::{DeviceError, ZoneError, ZoneIndex};

fn parse(text: &str) -> Plan {
    Plan::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Parses `[[rule]]` with these lines as a single rule.
fn rule(lines: &str) -> Rule {
    let mut plan = parse(&format!("[[rule]]\n{lines}"));
    assert_eq!(plan.rules.len(), 1);
    plan.rules.remove(0)
}

/// Line, column and message of the error.
fn wrong(text: &str) -> (usize, usize, String) {
    let error = Plan::parse(text).err().unwrap_or_else(|| panic!("is fine: {text}"));
    assert!(text.get(error.place()).is_some());
    (error.line(), error.column(), error.to_string())
}

fn complains(text: &str, line: usize, column: usize, about: &str) {
    let (at_line, at_column, message) = wrong(text);
    assert_eq!((at_line, at_column), (line, column), "{message}");
    assert!(message.contains(about), "{message}");
}

#[test]
fn every_fault_is_parsed_with_its_parameters() {
    let ms = |n: u64| Nanos(n * 1_000_000);
    let cases = [
        ("fault = 'refuse'", Effect::Refuse(DeviceError::Medium)),
        ("fault = 'refuse'\nerror = 'too-many-open'", Effect::Refuse(ZoneError::TooManyOpen.into())),
        ("fault = 'refuse'\nerrno = 28", Effect::Refuse(DeviceError::Os(28))),
        ("fault = 'fail'\nerror = 'aborted'", Effect::Fail(DeviceError::Aborted)),
        ("fault = 'torn'", Effect::Torn { blocks: None, error: DeviceError::Medium }),
        (
            "fault = 'torn'\nblocks = 0x2\nerror = 'busy'",
            Effect::Torn { blocks: Some(2), error: DeviceError::Busy },
        ),
        ("fault = 'lost'", Effect::Lost),
        ("fault = 'misdirected'", Effect::Misdirected),
        ("fault = 'busy'", Effect::Busy),
        ("fault = 'time-out'", Effect::TimeOut { after: TIME_OUT, carried: Carried::Never }),
        (
            "fault = 'time-out'\ntime = '5ms'\nexecuted = 'before'",
            Effect::TimeOut { after: ms(5), carried: Carried::Before },
        ),
        (
            "fault = 'time-out'\ntime = 5\nexecuted = 'late'",
            Effect::TimeOut { after: Nanos(5), carried: Carried::Late(Late::AtSettle) },
        ),
        (
            "fault = 'time-out'\nexecuted = 'late'\nlate = 'report'",
            Effect::TimeOut { after: TIME_OUT, carried: Carried::Late(Late::AfterReport) },
        ),
        (
            "fault = 'time-out'\nexecuted = 'late'\nlate = '2ms'",
            Effect::TimeOut { after: TIME_OUT, carried: Carried::Late(Late::After(ms(2))) },
        ),
        ("fault = 'attention'", Effect::Attention { commands: 1 }),
        ("fault = 'attention'\ncommands = 8", Effect::Attention { commands: 8 }),
        ("fault = 'read-only'", Effect::Degrade(Degraded::ReadOnly)),
        ("fault = 'offline'", Effect::Degrade(Degraded::Offline)),
        ("fault = 'power-cut'", Effect::PowerCut(InFlight::Fail)),
        ("fault = 'power-cut'\nin_flight = 'lose'", Effect::PowerCut(InFlight::Lose)),
        ("fault = 'delay'\ntime = '1us'", Effect::Delay(Nanos(1000))),
        (
            "fault = 'reorder'\nwindow = 4\nhold = '1ms'",
            Effect::Reorder { what: Reordered::Execution, window: 4, hold: ms(1) },
        ),
        (
            "fault = 'reorder'\nwhat = 'completion'\nwindow = 2\nhold = 9",
            Effect::Reorder { what: Reordered::Completion, window: 2, hold: Nanos(9) },
        ),
    ];
    for (lines, effect) in cases {
        assert_eq!(rule(lines), Rule::new(effect), "{lines}");
    }
}

#[test]
fn every_selector_is_read() {
    let busy = || Rule::new(Effect::Busy);
    let cases = [
        ("on = 'write'", busy().on(Ops::of(&[Op::Write]))),
        ("on = ['append', 'management']", busy().on(Ops::of(&[Op::Append]).or(Ops::MANAGEMENT))),
        ("zones = 3", busy().zone(ZoneIndex(3))),
        ("zones = '3-5'", busy().zones(ZoneIndex(3)..=ZoneIndex(5))),
        ("zones = '3-'", busy().zones(ZoneIndex(3)..=ZoneIndex(u32::MAX))),
        ("nth = 3", busy().nth(3)),
        ("skip = 10\nevery = 2\ncount = 5", busy().after(10).every(2).times(5)),
        ("rate = 0.5", busy().rate(0.5)),
        ("rate = '1/4'", busy().rate(0.25)),
        ("rate = 1", busy()),
    ];
    for (lines, expected) in cases {
        assert_eq!(rule(&format!("fault = 'busy'\n{lines}")), expected, "{lines}");
    }
    // Operations that a fault does not apply to are removed from a group.
    assert_eq!(rule("fault = 'torn'\non = 'any'").ops, Ops::DATA);
}

#[test]
fn settings_of_the_device_are_read() {
    let plan = parse(
        "seed = 9\nsettle = '3ms'\nbad_blocks = ['+8-15', '-10-11']\nbad_blocks_once = true\n\
         bad_blocks_partial_io = true\n[device]\nwrite_zeroes = false\nappend = false\nkeeps_order = true",
    );
    assert_eq!(plan.seed, 9);
    assert_eq!(plan.settling, Settling::After(Nanos(3_000_000)));
    assert_eq!(plan.bad_blocks.ranges(), [(8, 9), (12, 15)]);
    assert!(plan.bad_blocks.once && plan.bad_blocks.partial_io);
    assert_eq!(plan.hidden(), Ops::of(&[Op::WriteZeroes, Op::Append]));
    assert_eq!(plan.keeps_order, Some(true));
    assert_eq!(parse("settle = 'never'").settling, Settling::Never);
    assert_eq!(parse(""), Plan::default());
    // The plan's time-out applies to its rules and rates.
    let plan = parse("time_out = '2s'\n[rates]\ntime-out = 0.5\n[[rule]]\nfault = 'time-out'");
    let expected = Effect::TimeOut { after: Nanos(2_000_000_000), carried: Carried::Never };
    assert!(plan.rules.iter().all(|r| r.effect == expected));
    assert_eq!(plan.rules.len(), 2);
}

#[test]
fn every_kind_has_a_rate() {
    for kind in &RATES {
        let plan = parse(&format!("[rates]\n{} = 0.125", kind.name));
        assert_eq!(plan.rules, [kind.rule(0.125, TIME_OUT)]);
    }
}

#[test]
fn plan_errors_name_line_and_column() {
    complains("seed = ", 1, 8, "string");
    complains("seed = -1", 1, 8, "between 0 and");
    complains("seed = 'x'", 1, 8, "has to be a whole number, not string");
    complains("sead = 1", 1, 1, "did you mean `seed`?");
    complains("seed = 1\nseed = 2", 2, 1, "duplicate");
    complains("[[rule]]\non = 'write'", 1, 1, "needs `fault`");
    complains("[[rule]]\nfault = 'tron'", 2, 9, "did you mean `torn`?");
    complains("[[rule]]\nfault = 'busy'\n  on = 'wirte'", 3, 8, "did you mean `write`?");
    complains("[[rule]]\nfault = 'busy'\non = ['read', 3]", 3, 15, "has to be a text");
    complains("[[rule]]\nfault = 'torn'\non = 'flush'", 3, 6, "only to other operations: data");
    complains("[[rule]]\nfault = 'lost'\non = 'read'", 3, 6, "only to other operations: writes");
    complains("[[rule]]\nfault = 'offline'\non = 'flush'", 3, 6, "data and management");
    complains("[[rule]]\nfault = 'busy'\nblocks = 3", 3, 1, "no such key");
    complains("[[rule]]\nfault = 'delay'", 1, 1, "needs `time`");
    complains("[[rule]]\nfault = 'delay'\ntime = '5 ms'", 3, 8, "not a time");
    complains("[[rule]]\nfault = 'delay'\ntime = 1.5", 3, 8, "has to be a time");
    complains("[[rule]]\nfault = 'reorder'\nwindow = 1\nhold = 1", 3, 10, "between 2 and");
    complains("[[rule]]\nfault = 'reorder'\nwindow = 3", 1, 1, "needs `hold`");
    complains("[[rule]]\nfault = 'refuse'\nerror = 'mediun'", 3, 9, "did you mean `medium`?");
    complains("[[rule]]\nfault = 'refuse'\nerror = 'medium'\nerrno = 5", 3, 9, "cannot be combined");
    complains("[[rule]]\nfault = 'time-out'\nlate = '1ms'", 3, 8, "executed = \"late\"");
    complains("[[rule]]\nfault = 'busy'\nzones = 1\nsectors = 2", 4, 11, "cannot be combined");
    complains("[[rule]]\nfault = 'busy'\nnth = 1\nevery = 2", 4, 9, "cannot be combined");
    complains("[[rule]]\nfault = 'busy'\nnth = 0", 3, 7, "between 1 and");
    complains("[[rule]]\nfault = 'busy'\nzones = '5-3'", 3, 9, "not a range");
    complains("[[rule]]\nfault = 'busy'\nzones = '0-4294967296'", 3, 9, "between 0 and 4294967295");
    complains("[[rule]]\nfault = 'busy'\nrate = 1.5", 3, 8, "not a rate");
    complains("rule = 3", 1, 8, "has to be a table");
    complains("[rates]\ntron = 0.5", 2, 1, "did you mean `torn`?");
    complains("bad_blocks = ['+1-2', '3-4']", 1, 23, "starts with + to add");
    complains("# é\nbad_blocks = [\n  'é'\n]", 3, 3, "starts with +");
    complains("[device]\nwrite_zeros = false", 2, 1, "did you mean `write_zeroes`?");
    complains(&"#".repeat(TEXT_MAX + 1), 1, TEXT_MAX + 1, "at most 1048576");
    complains(&"[[rule]]\nfault='busy'\n".repeat(RULES_MAX + 1), 2 * RULES_MAX + 1, 1, "at most 4096");
}

/// Example plans in the tests, and their names in the documentation.
#[test]
fn example_plans_are_plans() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fault");
    let mut plans = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!parse(&text).rules.is_empty());
        plans += 1;
    }
    assert!(plans > 0);
}

#[test]
fn plans_of_the_documentation_are_plans() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FAULT.md"));
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 5);
    for block in blocks {
        parse(block);
    }
    for kind in &RATES {
        assert!(page.contains(&format!("`{}`", kind.name)), "{}", kind.name);
    }
    for error in DeviceError::all() {
        assert!(page.contains(&format!("`{}`", error.word())), "{}", error.word());
    }
}

/// Entry point of the fuzzer: any text is a plan, or an error with a location in it.
fn answer(text: &str) {
    if let Err(error) = Plan::parse(text) {
        assert!(text.get(error.place()).is_some());
        assert!(!error.to_string().is_empty());
        assert!(error.line() <= text.matches('\n').count() + 1);
    }
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "(?s).{0,80}") {
        answer(&text);
    }

    #[test]
    fn text_that_looks_like_a_plan_is_answered(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "seed", "rule", "rates", "device", "bad_blocks", "fault", "on", "zones", "sectors", "nth", "every",
                "rate", "time", "window", "hold", "error", "errno", "late", "executed", "settle", "'torn'", "'busy'",
                "'time-out'", "'reorder'", "'write'", "'late'", "'1-'", "'+1-2'", "'5ms'", "'é'", "[[rule]]\n", "[rates]\n",
                "[", "]", "{", "}", "=", "=", "=", ",", ".", "\n", "\n", "\n", "1", "-1", "0.5", "nan", "true",
                "99999999999999999999", "\"\"\"", "'''", "#", "\u{0}", "1979-05-27",
            ]),
            0..40,
        ),
    ) {
        answer(&words.concat());
    }

    #[test]
    fn keys_of_a_rule_with_any_values_are_answered(
        lines in prop::collection::vec(
            (
                prop::sample::select(vec![
                    "fault", "on", "zones", "sectors", "skip", "nth", "every", "count", "rate", "error", "errno", "blocks",
                    "time", "executed", "late", "commands", "in_flight", "what", "window", "hold",
                ]),
                prop::sample::select(vec![
                    "'torn'", "'reorder'", "'time-out'", "'busy'", "'late'", "'any'", "'7-9'", "'9-7'", "'1ms'", "0", "1", "2",
                    "18446744073709551615", "-1", "0.5", "[]", "[[]]", "{}", "true", "'medium'", "''",
                ]),
            ),
            0..8,
        ),
    ) {
        let text: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        answer(&format!("[[rule]]\n{text}"));
    }
}

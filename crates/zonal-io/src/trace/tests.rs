use super::*;
use crate::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use crate::registry::Registry;
use proptest::prelude::*;

fn options() -> EmulatedOptions {
    EmulatedOptions { size: 8 * 64 * 512, zone_size: 64 * 512, hw_queue_depth: 4, ..Default::default() }
}

fn traced(options: &EmulatedOptions) -> (Trace, TraceLog) {
    Trace::to_memory(Arc::new(Emulated::new("null", options, Null).unwrap()))
}

fn polled() -> EmulatedOptions {
    EmulatedOptions { complete: CompleteMode::Poll, ..options() }
}

fn command(op: Op, sector: u64, sectors: u32) -> Command {
    Command::new(op, Sector(sector), sectors)
}

/// Submits a command; returns the result and the token if the context was not taken.
fn submit(device: &dyn Device, time: u64, command: Command, token: u64) -> (Submitted, Option<u64>) {
    let mut context = Some(Context::token(token));
    let submitted = device.submit(Nanos(time), 0, &command, &mut context);
    (submitted, context.map(Context::into_token))
}

fn poll(device: &dyn Device, time: u64, budget: usize) -> Vec<u64> {
    let mut tokens = Vec::new();
    device.poll(Nanos(time), 0, budget, &mut |c| tokens.push(c.context.into_token()));
    tokens
}

fn lines(log: &TraceLog) -> Vec<String> {
    log.records().iter().map(Record::to_string).collect()
}

#[test]
fn inline_command_leaves_two_records_and_its_context_with_the_caller() {
    let (d, log) = traced(&options());
    let (submitted, context) = submit(&d, 5, command(Op::Write, 64, 8), 7);
    assert!(matches!(submitted, Submitted::Done(Ok(Output::Done))));
    assert_eq!(context, Some(7));
    submit(&d, 6, command(Op::Write, 64, 8), 8);
    submit(&d, 7, command(Op::Append, 64, 8), 9);
    submit(&d, 8, command(Op::Flush, 0, 0), 10);
    let expected = [
        "5 submit 0 write 64 8 1 -",
        "5 complete 0 write 64 8 0 ok",
        "6 submit 0 write 64 8 1 -",
        "6 complete 0 write 64 8 0 invalid-write",
        "7 submit 0 append 64 8 1 -",
        "7 complete 0 append 64 8 0 ok@72",
        "8 submit 0 flush 0 0 0 -",
        "8 complete 0 flush 0 0 0 ok",
    ];
    assert_eq!(lines(&log), expected);
}

#[test]
fn polled_commands_count_until_they_are_handed_out() {
    let (d, log) = traced(&polled());
    for (token, sector) in [(1, 64), (2, 128), (3, 64)] {
        let (submitted, context) = submit(&d, 0, command(Op::Read, sector, 8), token);
        assert!(matches!(submitted, Submitted::Accepted));
        assert_eq!(context, None);
    }
    assert_eq!(poll(&d, 9, 2), [1, 2]);
    assert_eq!(poll(&d, 10, 2), [3]);
    let counts: Vec<_> = log.records().iter().map(|r| r.in_flight).collect();
    assert_eq!(counts, [1, 1, 2, 1, 0, 0]);
    assert_eq!(log.max_in_flight(|_| true, |r| r.sector), 2);
    assert_eq!(log.max_in_flight(|_| true, |_| ()), 3);
    assert_eq!(log.commands(Op::Read), 3);
}

#[test]
fn busy_command_is_taken_back() {
    let (d, log) = traced(&polled());
    for token in 0..4 {
        submit(&d, 0, command(Op::Read, 64, 8), token);
    }
    let (submitted, context) = submit(&d, 1, command(Op::Read, 64, 8), 4);
    assert!(matches!(submitted, Submitted::Busy));
    assert_eq!(context, Some(4));
    assert_eq!(lines(&log)[5], "1 complete 0 read 64 8 4 busy");
    assert_eq!(log.commands(Op::Read), 4);
    assert_eq!(poll(&d, 2, 9).len(), 4);
}

#[test]
fn command_beyond_the_device_counts_in_no_zone() {
    let (d, log) = traced(&options());
    submit(&d, 0, command(Op::Read, u64::MAX, 8), 0);
    assert_eq!(lines(&log)[1], format!("0 complete 0 read {} 8 0 out-of-range", u64::MAX));
}

#[test]
fn named_trace_writes_a_file_and_does_not_replace_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out.txt");
    let name = format!("trace:file={}+null:size=1M,zone_size=64k", file.display());
    let device = Registry::default().open(&name).unwrap();
    assert_eq!(device.info().name, name);
    submit(&*device, 3, command(Op::Write, 128, 8), 0);
    drop(device);
    let text = std::fs::read_to_string(&file).unwrap();
    let expected = format!("{HEADER}\n3 submit 0 write 128 8 1 -\n3 complete 0 write 128 8 0 ok\n");
    assert_eq!(text, expected);
    let error = Registry::default().open(&name).err().unwrap();
    assert!(error.to_string().contains("exists"), "{error}");
    let again = name.replace('+', ",overwrite+");
    drop(Registry::default().open(&again).unwrap());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{HEADER}\n"));
}

#[test]
fn trace_without_a_file_is_refused() {
    let error = Registry::default().open("trace+null").err().unwrap();
    assert!(error.to_string().contains("file="), "{error}");
}

#[test]
fn full_disk_ends_the_trace_and_not_the_work() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let null = Arc::new(Emulated::new("null", &options(), Null).unwrap());
    let d = Trace::to_writer(null, Box::new(Full(HEADER.len() + 30))).unwrap();
    assert!(d.finish().is_ok());
    for i in 0..3 {
        let (submitted, _) = submit(&d, 0, command(Op::Write, 64 + i * 8, 8), 0);
        assert!(matches!(submitted, Submitted::Done(Ok(_))));
    }
    assert_eq!(d.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn threads_that_wait_for_their_answers_are_counted_exactly() {
    let (d, log) = traced(&EmulatedOptions { hw_queue_depth: 64, ..polled() });
    // Completed writes of each zone, counted after the poll has returned.
    let ended: [std::sync::atomic::AtomicU64; 4] = Default::default();
    std::thread::scope(|s| {
        for zone in 0..4u64 {
            let (d, ended) = (&d, &ended);
            s.spawn(move || {
                for i in 0..8 {
                    submit(d, 0, command(Op::Write, zone * 64 + i * 8, 8), zone);
                    // The completion may be returned to another thread.
                    while ended[zone as usize].load(std::sync::atomic::Ordering::Acquire) == i {
                        for token in poll(d, 0, 9) {
                            ended[token as usize].fetch_add(1, std::sync::atomic::Ordering::Release);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(log.max_in_flight(|r| r.op.is_write(), |r| r.sector.0 / 64), 1);
    assert!(log.records().iter().all(|r| r.in_flight <= 1 && !matches!(r.event, TraceEvent::Failed(_))));
    assert_eq!(log.commands(Op::Write), 32);
}

proptest! {
    /// Compares the records with a count kept by the test.
    #[test]
    fn counts_are_what_was_submitted_and_not_handed_out(
        steps in prop::collection::vec(prop_oneof![(0..8u64).prop_map(Some), Just(None)], 1..80),
    ) {
        let (d, log) = traced(&polled());
        let mut flying: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Some(zone) => {
                    let (submitted, _) = submit(&d, 0, command(Op::Read, zone * 64, 8), zone);
                    if matches!(submitted, Submitted::Accepted) {
                        flying.push(zone);
                    }
                    let last = log.records().pop().unwrap();
                    prop_assert_eq!(last.in_flight as usize, flying.iter().filter(|&&z| z == zone).count());
                }
                None => {
                    let out = poll(&d, 0, 1);
                    let zone = (!flying.is_empty()).then(|| flying.remove(0));
                    prop_assert_eq!(out.first().copied(), zone);
                }
            }
        }
    }
}

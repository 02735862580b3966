//! Faults below a volume, above an image, a trace and other faults, by name, and with many threads.

use super::*;
use crate::buffer::IoBuf;
use crate::sync::AtomicU64;
use crate::trace::Trace;
use crate::volume::Completion;
use crate::volume::{Request, Volume, VolumeOptions, WriteMode};
use zonal_core::RequestError;

#[test]
fn wrapped_wrappers_each_do_their_part() {
    let inner =
        Fault::new(ram(&polled()), Plan::of(1, [Rule::new(Effect::Fail(DeviceError::Aborted)).nth(2)]));
    let (traced, log) = Trace::to_memory(Arc::new(inner));
    let device = Fault::new(Arc::new(traced), Plan::of(2, [refuse(DeviceError::Medium).nth(2)]));
    assert_eq!(write(&device, START, 2, 1), Ok(()));
    assert_eq!(write(&device, START + 2, 2, 1), Err(DeviceError::Medium));
    assert_eq!(write(&device, START + 2, 2, 1), Err(DeviceError::Aborted));
    assert_eq!(write(&device, START + 4, 2, 1), Ok(()));
    assert_eq!(log.commands(Op::Write), 3);
}

#[test]
fn outer_wrapper_asks_the_inner_one_to_settle() {
    let plan = Plan { settling: Settling::Never, ..Plan::of(1, [refuse(DeviceError::TimedOut).nth(1)]) };
    let (traced, _) = Trace::to_memory(Arc::new(Fault::new(ram(&options()), plan)));
    let device = Fault::new(Arc::new(traced), Plan::of(1, [refuse(DeviceError::TimedOut).nth(2)]));
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::TimedOut));
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::TimedOut));
    assert_eq!(device.settle(Nanos(0), ZoneIndex(1)), Settled::Never(DeviceError::Aborted));
    assert_eq!(device.settle(Nanos(0), ZoneIndex(2)), Settled::Yes);
}

#[test]
fn name_gives_plan_seed_and_rates() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.toml");
    std::fs::write(&file, "seed = 3\n[device]\nappend = false\n[[rule]]\nfault = 'busy'\nnth = 1").unwrap();
    let name = format!("fault:plan={},seed=9,medium=1,reorder=1/3+ram:size=1M,zone_size=64k", file.display());
    let device = Registry::default().open(&name).unwrap();
    assert_eq!((device.info().name.as_str(), device.info().append_sectors_max), (name.as_str(), 0));
    assert_eq!(write(&*device, 0, 2, 1), Err(DeviceError::Medium));
    let twice = "fault:torn=0.5+fault+null:size=1M,zone_size=64k";
    assert!(Registry::default().open(twice).is_ok());
}

#[test]
fn errors_in_fault_names_and_plans_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.toml");
    std::fs::write(&file, "seed = 1\n[[rule]]\nfault = 'tron'").unwrap();
    for (name, about) in [
        (format!("fault:plan={}+null", file.display()), "line 3, column 9, at `'tron'`"),
        (format!("fault:plan={}.missing+null", file.display()), "No such file"),
        ("fault:torn=2+null".to_owned(), "torn=2 is not a rate"),
        ("fault:tron=1+null".to_owned(), "did you mean \"torn\"?"),
        ("fault:seed=x+null".to_owned(), "not a whole number"),
        ("fault:seed=1".to_owned(), "needs a device to wrap"),
    ] {
        let error = Registry::default().open(&name).err().unwrap();
        assert!(error.to_string().contains(about), "{error}");
    }
}

#[test]
fn rules_end_and_the_device_is_itself_again() {
    let device = faulty(refuse(DeviceError::Medium).times(1));
    assert!(!device.is_transparent());
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::Medium));
    assert_eq!(write(&device, START, 2, 1), Ok(()));
    assert!(device.is_transparent());
    device.inject(refuse(DeviceError::Medium));
    assert_eq!(write(&device, START + 2, 2, 1), Err(DeviceError::Medium));
    device.clear_rules();
    assert_eq!(write(&device, START + 2, 2, 1), Ok(()));
    assert!(device.is_transparent());
}

/// Results of a volume's requests, by token.
type Ends = Arc<Mutex<Vec<(u64, Result<Output, RequestError>)>>>;

fn volume(device: Arc<dyn Device>, mode: WriteMode) -> (Arc<Volume>, Ends, crate::volume::Channel) {
    let options = VolumeOptions { mode: Some(mode), ..VolumeOptions::default() };
    let volume = Arc::new(Volume::open(device, options).unwrap());
    let ends = Ends::default();
    let noted = ends.clone();
    let channel = volume.channel(move |c: Completion| noted.lock().push((c.token, c.result)));
    (volume, ends, channel)
}

fn filled(sectors: u32, fill: u8) -> IoBuf {
    let mut buf = IoBuf::zeroed(sectors * 512);
    buf.fill(fill);
    buf
}

#[test]
fn volume_over_faults_ends_each_request_once_and_keeps_acknowledged_data() {
    let plan = Plan::parse(
        "seed = 11\n[rates]\nmedium = 0.05\ntorn = 0.05\nfailed = 0.05\nbusy = 0.2\nattention = 0.05\n\
         [[rule]]\non = 'writes'\nfault = 'delay'\ntime = 50",
    )
    .unwrap();
    let device = Arc::new(Fault::new(ram(&polled()), plan));
    device.clear_rules();
    let (volume, ends, channel) = volume(device.clone(), WriteMode::PerZone);
    device.change(|state| state.rules.iter_mut().for_each(|(rule, _)| rule.count = u64::MAX));
    let mut now = 0;
    let mut submitted = 0u64;
    for round in 0..24u64 {
        for zone in 1..8u64 {
            let request = Request::append(Sector(zone * START), 2, filled(2, (round * 8 + zone) as u8));
            volume.submit(Nanos(now), &channel, request.token(submitted));
            submitted += 1;
        }
        for _ in 0..4 {
            now += 25;
            volume.poll(Nanos(now));
        }
    }
    while ends.lock().len() < submitted as usize {
        now += 25;
        volume.poll(Nanos(now));
        assert!(now < 1_000_000, "stuck at {} of {submitted}", ends.lock().len());
    }
    device.clear_rules();
    let ends = ends.lock();
    let mut tokens: Vec<u64> = ends.iter().map(|e| e.0).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..submitted), "each once");
    let appended = ends.iter().filter_map(|(token, result)| match result {
        Ok(Output::Appended(at)) => Some((*token, at.0)),
        _ => None,
    });
    let mut kept = 0;
    for (token, at) in appended {
        let fill = ((token / 7) * 8 + 1 + token % 7) as u8;
        assert_eq!(fills(&*device, at, 2), Ok(vec![fill; 2]), "request {token}");
        kept += 1;
    }
    assert!(kept > submitted / 2 && kept < submitted, "{kept} of {submitted}");
}

#[test]
fn volume_continues_after_the_garbage_of_a_torn_write() {
    let torn = Rule::new(Effect::Torn { blocks: Some(1), error: DeviceError::Medium });
    let device = Arc::new(faulty(torn.on(Ops::WRITES).nth(2)));
    let (volume, ends, channel) = volume(device.clone(), WriteMode::PerZone);
    for token in 1..4 {
        let request = Request::append(Sector(START), 4, filled(4, token as u8)).token(token);
        volume.submit(Nanos(0), &channel, request);
    }
    let zone = ZoneIndex(1);
    let expected = [
        (1, Ok(Output::Appended(Sector(START)))),
        (2, Err(RequestError::TornAppend { zone, offset: 4, sectors: 2, error: DeviceError::Medium })),
        (3, Ok(Output::Appended(Sector(START + 6)))),
    ];
    assert_eq!(*ends.lock(), expected);
    assert_eq!(fills(&*device, START, 10), Ok(vec![1, 1, 1, 1, 2, 2, 3, 3, 3, 3]));
}

#[test]
fn volume_continues_after_power_is_restored() {
    let device = Arc::new(Fault::new(ram(&polled()), Plan::default()));
    let (volume, ends, channel) = volume(device.clone(), WriteMode::PerZone);
    let submit = |token: u64| {
        let request = Request::append(Sector(START), 2, filled(2, token as u8));
        volume.submit(Nanos(0), &channel, request.token(token));
    };
    // Passed straight through: the device has it, the wrapper does not.
    submit(1);
    device.power_cut(InFlight::Fail);
    for _ in 0..8 {
        volume.poll(Nanos(0));
    }
    let (zone, error) = (ZoneIndex(1), DeviceError::Gone);
    let unknown = RequestError::FateUnknown { zone, offset: 0, write_pointer: 2, error };
    assert_eq!(*ends.lock(), [(1, Err(unknown))], "it could not even be asked where the zone stands");
    device.restore();
    submit(2);
    for _ in 0..8 {
        volume.poll(Nanos(0));
    }
    assert_eq!(ends.lock()[1], (2, Ok(Output::Appended(Sector(START + 2)))));
}

#[test]
fn image_under_faults_keeps_acknowledged_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let size = |bytes| Some(bytes);
    let image = crate::image::ImageOptions {
        size: size(8 * 64 * 512),
        zone_size: size(64 * 512),
        zone_nr_conv: Some(1),
        blocksize: Some(1024),
        ..Default::default()
    };
    image.create(&path).unwrap();
    let name = format!("fault+image:{}", path.display());
    let open = |rule: Option<Rule>| {
        let inner = Registry::default().open(&format!("image:{}", path.display())).unwrap();
        Fault::new(inner, Plan::of(1, rule)).named(&name)
    };
    let torn = Rule::new(Effect::Torn { blocks: Some(1), error: DeviceError::Medium });
    let device = open(Some(torn.on(Ops::WRITES).nth(2)));
    assert_eq!(write(&device, START, 4, 1), Ok(()));
    assert_eq!(write(&device, START + 4, 4, 2), Err(DeviceError::Medium));
    let (_, written) = shape(&device, 1);
    let written = written.unwrap();
    assert_eq!(written, 6, "a block of the torn write");
    assert_eq!(act(&device, Op::Flush, 0), Ok(()));
    drop(device);
    let device = open(None);
    assert_eq!(shape(&device, 1), (ZoneCondition::Closed, Some(written)));
    let mut expected = vec![1; 4];
    expected.resize(written as usize, 2);
    assert_eq!(fills(&device, START, written as u32), Ok(expected));
}

#[test]
fn threads_get_each_answer_once() {
    let text = "seed = 4\n[rates]\nmedium = 0.1\nbusy = 0.1\nreorder = 0.2\ntime-out = 0.05\nfailed = 0.1";
    let device =
        Fault::new(ram(&EmulatedOptions { hw_queue_depth: 4, ..polled() }), Plan::parse(text).unwrap());
    let (answered, submitted) = (AtomicU64::new(0), AtomicU64::new(0));
    const EACH: u64 = 2000;
    let time = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (device, answered, submitted, time) = (&device, &answered, &submitted, &time);
            s.spawn(move || {
                let mut left = EACH;
                while left > 0 {
                    let op = if left.is_multiple_of(16) { Op::ZoneReset } else { Op::WriteZeroes };
                    let sectors = if op == Op::WriteZeroes { 2 } else { 0 };
                    let command = command(op, (1 + thread) * START, sectors);
                    let now = Nanos(time.fetch_add(1000, Ordering::Relaxed));
                    let mut context = Some(Context::token(thread));
                    match device.submit(now, 0, &command, &mut context) {
                        Submitted::Busy => {}
                        Submitted::Accepted => left -= 1,
                        Submitted::Done(_) => {
                            left -= 1;
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    device.poll(now, 0, 8, &mut |_| {
                        answered.fetch_add(1, Ordering::Relaxed);
                    });
                }
                submitted.fetch_add(EACH, Ordering::Relaxed);
            });
        }
    });
    let mut rounds = 0;
    while answered.load(Ordering::Relaxed) < submitted.load(Ordering::Relaxed) {
        device.poll(Nanos(u64::MAX - 1), 0, usize::MAX, &mut |_| {
            answered.fetch_add(1, Ordering::Relaxed);
        });
        rounds += 1;
        assert!(rounds < 10_000, "answers are missing");
    }
    assert_eq!(answered.into_inner(), 4 * EACH);
    assert_eq!(device.poll(Nanos(u64::MAX), 0, 9, &mut |_| panic!("answered twice")), None);
}

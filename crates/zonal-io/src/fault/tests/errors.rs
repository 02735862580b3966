//! Errors with and without execution, torn commands, full queues, unit attentions, bad blocks.

use super::*;

#[test]
fn every_operation_can_be_refused_with_every_error() {
    let ops = [
        (Op::Read, 2),
        (Op::Write, 2),
        (Op::WriteZeroes, 2),
        (Op::Append, 2),
        (Op::Flush, 0),
        (Op::ZoneReset, 0),
        (Op::ZoneFinish, 0),
        (Op::ZoneOpen, 0),
        (Op::ZoneClose, 0),
        (Op::ResetAll, 0),
        (Op::Report, 1),
    ];
    for error in DeviceError::all().chain([DeviceError::Os(28)]) {
        for (op, sectors) in ops {
            for device in both(refuse(error).on(Ops::of(&[op])).times(1)) {
                assert_eq!(run(&device, op, START, sectors, 1), Err(error), "{op:?}");
                assert_eq!(device.fired(RuleId(0)), 1);
                assert_eq!(
                    shape(&*device.inner, 1),
                    (ZoneCondition::Empty, Some(0)),
                    "{op:?} was carried out"
                );
            }
        }
    }
}

#[test]
fn failed_write_was_carried_out() {
    for device in both(Rule::new(Effect::Fail(DeviceError::Aborted)).on(Ops::WRITES).nth(1)) {
        assert_eq!(write(&device, START, 4, 7), Err(DeviceError::Aborted));
        assert_eq!(shape(&device, 1), (ZoneCondition::ImpOpen, Some(4)));
        assert_eq!(fills(&device, START, 4), Ok(vec![7; 4]));
    }
}

#[test]
fn failed_command_that_the_device_refuses_has_the_devices_error() {
    for device in both(Rule::new(Effect::Fail(DeviceError::Medium)).on(Ops::WRITES)) {
        assert_eq!(write(&device, START + 8, 4, 7), Err(ZoneError::InvalidWrite.into()));
    }
}

#[test]
fn torn_write_leaves_its_first_blocks() {
    let torn = |blocks| Rule::new(Effect::Torn { blocks: Some(blocks), error: DeviceError::Medium }).nth(1);
    for (blocks, sectors) in [(0, 0), (1, 2), (3, 6), (99, 8)] {
        for device in both(torn(blocks).on(Ops::of(&[Op::Write]))) {
            assert_eq!(write(&device, START, 8, 7), Err(DeviceError::Medium));
            assert_eq!(shape(&device, 1).1, Some(sectors));
            assert_eq!(write(&device, START + sectors, 2, 8), Ok(()));
            let mut expected = vec![7; sectors as usize];
            expected.extend([8, 8]);
            assert_eq!(fills(&device, START, sectors as u32 + 2), Ok(expected));
        }
    }
}

#[test]
fn torn_command_of_several_pieces_is_torn_inside_one() {
    let device = faulty(Rule::new(Effect::Torn { blocks: Some(2), error: DeviceError::Medium }).nth(1));
    let mut bytes = [[1u8; 1024], [2; 1024], [3; 1024]];
    let pieces = bytes.each_mut().map(|b| Segment::new(b.as_mut_ptr(), b.len()));
    let split =
        [Segment::new(pieces[0].as_ptr(), 1024 + 512), Segment::new(bytes[1][512..].as_mut_ptr(), 1536)];
    // SAFETY: the array is contiguous; it and the list outlive the command, because this waits for
    // its completion.
    let data = unsafe { Data::many(&raw const split) };
    let result = run_alone(&device, &Command { data, ..command(Op::Write, START, 6) });
    assert_eq!(result, Err(DeviceError::Medium));
    assert_eq!(fills(&device, START, 6), Ok(vec![1, 1, 2, 2, 0, 0]));
}

#[test]
fn torn_append_and_torn_zeroes_leave_garbage_below_the_pointer() {
    let torn = Rule::new(Effect::Torn { blocks: Some(1), error: DeviceError::Medium });
    for device in both(torn.on(Ops::WRITES).times(2)) {
        assert_eq!(append(&device, START, 8, 7), Err(DeviceError::Medium));
        assert_eq!(run(&device, Op::WriteZeroes, START + 2, 8, 0), Err(DeviceError::Medium));
        assert_eq!(append(&device, START, 2, 9), Ok(START + 4));
        assert_eq!(fills(&device, START, 6), Ok(vec![7, 7, 0, 0, 9, 9]));
    }
}

#[test]
fn torn_by_chance_is_never_whole_and_not_always_alike() {
    let device = faulty(Rule::new(Effect::Torn { blocks: None, error: DeviceError::Medium }).on(Ops::WRITES));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..50 {
        assert_eq!(write(&device, START, 8, 7), Err(DeviceError::Medium));
        seen.insert(shape(&device, 1).1.unwrap());
        act(&device, Op::ZoneReset, START).unwrap();
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 2, 4, 6]);
}

#[test]
fn busy_queue_leaves_the_command_with_the_host_and_uncounted() {
    let device = faulty(Rule::new(Effect::Busy).times(2));
    let medium = device.inject(refuse(DeviceError::Medium).on(Ops::of(&[Op::Write])).nth(2));
    let mut host = Host::new(&device);
    for _ in 0..2 {
        assert!(matches!(host.submit(0, 1, Op::Write, START, 2), Submitted::Busy));
    }
    assert!(matches!(host.submit(0, 1, Op::Write, START, 2), Submitted::Done(DONE)));
    assert_eq!((device.fired(RuleId(0)), device.fired(medium)), (2, 0));
    let second = host.submit(0, 2, Op::Write, START + 2, 2);
    assert!(matches!(second, Submitted::Done(Err(DeviceError::Medium))), "{second:?}");
}

#[test]
fn second_rule_applies_once_the_first_is_exhausted() {
    let device = faulty(refuse(DeviceError::Medium).times(1));
    let second = device.inject(refuse(DeviceError::Aborted).times(1));
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::Medium));
    assert_eq!(device.fired(second), 0);
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::Aborted));
    assert_eq!(write(&device, START, 2, 1), Ok(()));
}

#[test]
fn command_that_the_wrapped_device_finds_busy_has_not_been_seen() {
    let inner = ram(&EmulatedOptions { hw_queue_depth: 1, ..polled() });
    let device = Fault::new(inner, Plan::of(1, [Rule::new(Effect::Fail(DeviceError::Medium)).nth(2)]));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    for _ in 0..3 {
        assert!(matches!(host.submit(0, 2, Op::Write, 2 * START, 2), Submitted::Busy));
    }
    assert_eq!(host.poll(0).0, [(1, DONE)]);
    host.pends(0, 2, Op::Write, 2 * START, 2);
    assert_eq!(host.poll(0).0, [(2, Err(DeviceError::Medium))]);
}

#[test]
fn unit_attention_rejects_the_next_commands_whatever_they_are() {
    for device in both(Rule::new(Effect::Attention { commands: 3 }).on(Ops::WRITES).nth(2)) {
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        assert_eq!(write(&device, START + 2, 2, 2), Err(DeviceError::UnitAttention));
        assert_eq!(act(&device, Op::Report, START), Err(DeviceError::UnitAttention));
        assert_eq!(act(&device, Op::ZoneReset, START), Err(DeviceError::UnitAttention));
        assert_eq!(shape(&device, 1).1, Some(2));
        assert_eq!(write(&device, START + 2, 2, 2), Ok(()));
    }
}

#[test]
fn unit_attention_on_one_of_several_writes_misplaces_those_behind_it() {
    let inner = ram(&EmulatedOptions { preserves_write_order: true, ..polled() });
    let device = Fault::new(inner, Plan::of(1, [Rule::new(Effect::Attention { commands: 1 }).nth(2)]));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    let second = host.submit(0, 2, Op::Write, START + 2, 2);
    assert!(matches!(second, Submitted::Done(Err(DeviceError::UnitAttention))));
    host.pends(0, 3, Op::Write, START + 4, 2);
    assert_eq!(host.poll(0).0, [(1, DONE), (3, Err(ZoneError::InvalidWrite.into()))]);
}

#[test]
fn features_hidden_by_the_plan_are_unsupported_and_not_announced() {
    let plan = Plan { without_append: true, without_write_zeroes: true, ..Plan::default() };
    let device = Fault::new(ram(&options()), plan);
    assert_eq!((device.info().append_sectors_max, device.info().write_zeroes_sectors_max), (0, 0));
    assert_eq!(append(&device, START, 2, 1), Err(DeviceError::Unsupported));
    assert_eq!(run(&device, Op::WriteZeroes, START, 2, 0), Err(DeviceError::Unsupported));
    assert_eq!(write(&device, START, 2, 1), Ok(()));
}

#[test]
fn write_zeroes_unsupported_at_run_time_is_announced_all_the_same() {
    let device = faulty(refuse(DeviceError::Unsupported).on(Ops::of(&[Op::WriteZeroes])));
    assert!(device.info().write_zeroes_sectors_max > 0);
    assert_eq!(run(&device, Op::WriteZeroes, START, 2, 0), Err(DeviceError::Unsupported));
}

fn bad(changes: &[&str], once: bool, partial_io: bool) -> [Fault; 2] {
    let mut blocks = BadBlocks::default();
    (blocks.once, blocks.partial_io) = (once, partial_io);
    changes.iter().for_each(|c| blocks.change(c.parse().unwrap()));
    [options(), polled()].map(|o| {
        let plan = Plan { bad_blocks: blocks.clone(), ..Plan::default() };
        Fault::new(ram(&o), plan)
    })
}

#[test]
fn bad_blocks_fail_reads_and_writes_that_touch_them() {
    for device in bad(&["+69-70"], false, false) {
        assert_eq!(write(&device, START, 4, 1), Ok(()));
        assert_eq!(write(&device, START + 4, 4, 1), Err(DeviceError::Medium));
        assert_eq!(shape(&device, 1).1, Some(4));
        assert_eq!(fills(&device, START, 6), Err(DeviceError::Medium));
        assert_eq!(fills(&device, START, 4), Ok(vec![1; 4]));
        device.change_bad_blocks("-69-70".parse().unwrap());
        assert_eq!(write(&device, START + 4, 4, 1), Ok(()));
    }
}

#[test]
fn bad_blocks_with_partial_io_let_whole_blocks_before_them_through() {
    // The block with the first bad sector starts one sector earlier.
    for device in bad(&["+69-70"], false, true) {
        assert_eq!(write(&device, START, 8, 1), Err(DeviceError::Medium));
        assert_eq!(shape(&device, 1).1, Some(4));
        assert_eq!(fills(&device, START, 4), Ok(vec![1; 4]));
        assert_eq!(write(&device, START + 4, 4, 1), Err(DeviceError::Medium));
        assert_eq!(shape(&device, 1).1, Some(4));
    }
}

#[test]
fn bad_blocks_once_are_good_after_their_first_hit() {
    for device in bad(&["+69-70", "+80-81"], true, true) {
        assert_eq!(write(&device, START, 8, 1), Err(DeviceError::Medium));
        assert_eq!(device.bad_blocks(), [(80, 81)]);
        assert_eq!(write(&device, START + 4, 4, 1), Ok(()));
    }
}

#[test]
fn append_onto_bad_blocks_is_written_and_fails() {
    for device in bad(&["+66-66"], true, false) {
        assert_eq!(append(&device, START, 2, 1), Ok(START));
        assert_eq!(append(&device, START, 2, 2), Err(DeviceError::Medium));
        assert_eq!(append(&device, START, 2, 3), Ok(START + 4));
    }
}

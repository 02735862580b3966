//! Delays and reordering.

use super::*;
use std::time::Duration;

fn reorder(what: Reordered, window: u32, hold: u64) -> Rule {
    Rule::new(Effect::Reorder { what, window, hold: Nanos(hold) }).on(Ops::WRITES)
}

#[test]
fn delayed_commands_of_an_inline_device_are_in_flight_together() {
    let device = faulty(Rule::new(Effect::Delay(Nanos(100))));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    host.pends(30, 2, Op::Write, START + 2, 2);
    assert_eq!(host.poll(99), (vec![], Some(100)));
    assert_eq!(host.poll(100), (vec![(1, DONE)], Some(130)));
    assert_eq!(host.poll(200), (vec![(2, DONE)], None));
}

#[test]
fn delay_combines_with_another_fault() {
    let device = faulty(Rule::new(Effect::Delay(Nanos(100))));
    device.inject(refuse(DeviceError::Medium).nth(2));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    host.pends(0, 2, Op::Write, START + 2, 2);
    assert_eq!(host.poll(100).0, [(1, DONE), (2, Err(DeviceError::Medium))]);
}

#[test]
fn delay_is_counted_from_submission_over_a_polled_device_too() {
    let inner = ram(&EmulatedOptions { completion_nsec: 40, ..options() });
    let device = Fault::new(inner, Plan::of(1, [Rule::new(Effect::Delay(Nanos(100)))]));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    assert_eq!(host.poll(0), (vec![], Some(40)));
    assert_eq!(host.poll(40), (vec![], Some(100)));
    assert_eq!(host.poll(100), (vec![(1, DONE)], None));
}

#[test]
fn budget_of_a_poll_is_kept() {
    let device = faulty(Rule::new(Effect::Delay(Nanos(1))));
    let mut host = Host::new(&device);
    (0..3).for_each(|n| host.pends(0, n, Op::Read, START, 2));
    let mut out = 0;
    assert_eq!(device.poll(Nanos(1), 0, 2, &mut |_| out += 1), Some(Nanos(1)));
    assert_eq!(out, 2);
}

#[test]
fn reordered_execution_misplaces_writes_of_one_zone() {
    for options in [options(), EmulatedOptions { preserves_write_order: true, ..polled() }] {
        let rule = reorder(Reordered::Execution, 4, 1000);
        let device = Fault::new(ram(&options), Plan::of(1, [rule]));
        let mut host = Host::new(&device);
        for n in 0..4 {
            host.pends(0, n, Op::Write, START + 2 * n, 2);
        }
        let mut answers = host.poll(0).0;
        answers.extend(host.poll(0).0);
        assert_eq!(answers.len(), 4);
        assert_ne!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(answers.iter().any(|a| a.1 == Err(ZoneError::InvalidWrite.into())), "{answers:?}");
    }
}

#[test]
fn reordered_appends_land_in_another_order_with_their_own_bytes() {
    let device = faulty(reorder(Reordered::Execution, 4, 1000));
    let mut host = Host::new(&device);
    (1..5).for_each(|n| host.pends(0, n, Op::Append, START, 2));
    let mut places = Vec::new();
    for (token, result) in host.poll(0).0 {
        let Ok(Output::Appended(at)) = result else { panic!("{result:?}") };
        assert_eq!(fills(&device, at.0, 2), Ok(vec![token as u8; 2]));
        places.push((token, at.0));
    }
    places.sort_unstable();
    assert!(!places.is_sorted_by_key(|p| p.1), "{places:?}");
}

#[test]
fn reordered_answers_are_those_of_commands_in_order() {
    for options in [options(), EmulatedOptions { preserves_write_order: true, ..polled() }] {
        let rule = reorder(Reordered::Completion, 4, 1000);
        let device = Fault::new(ram(&options), Plan::of(1, [rule]));
        let mut host = Host::new(&device);
        (0..4).for_each(|n| host.pends(0, n, Op::Write, START + 2 * n, 2));
        let answers = host.poll(0).0;
        assert!(answers.iter().all(|a| a.1 == DONE) && answers.len() == 4, "{answers:?}");
        assert_ne!(answers.iter().map(|a| a.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}

#[test]
fn window_that_does_not_fill_opens_after_its_time() {
    for what in [Reordered::Execution, Reordered::Completion] {
        let device = faulty(reorder(what, 4, 1000));
        let mut host = Host::new(&device);
        host.pends(0, 1, Op::Write, START, 2);
        host.pends(10, 2, Op::Write, 2 * START, 2);
        assert_eq!(host.poll(999), (vec![], Some(1000)));
        assert_eq!(host.tokens(1000), [2, 1]);
    }
}

#[test]
fn poll_that_opens_a_reorder_window_returns_the_due_time() {
    let inner = ram(&EmulatedOptions { completion_nsec: 30, ..options() });
    let device = Fault::new(inner, Plan::of(1, [reorder(Reordered::Execution, 4, 100)]));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Write, START, 2);
    let (answers, due) = host.poll(100);
    assert!(answers.is_empty() && due.is_some_and(|d| d <= 130), "{due:?}");
    assert_eq!(host.poll(100), (vec![], Some(130)));
    assert_eq!(host.tokens(130), [1]);
}

#[test]
fn window_larger_than_the_wrapped_queue_is_carried_out_all_the_same() {
    let inner = ram(&EmulatedOptions { hw_queue_depth: 2, ..polled() });
    let device = Fault::new(inner, Plan::of(1, [reorder(Reordered::Execution, 6, 1000)]));
    let mut host = Host::new(&device);
    (1..7).for_each(|n| host.pends(0, n, Op::Append, START, 2));
    // The command that met a full queue keeps the host's next command waiting.
    assert!(matches!(host.submit(0, 9, Op::Read, START, 2), Submitted::Busy));
    let mut tokens = Vec::new();
    while tokens.len() < 6 {
        let (answers, due) = host.poll(0);
        assert!(!answers.is_empty() || due.is_some(), "stuck with {tokens:?}");
        tokens.extend(answers.into_iter().map(|a| a.0));
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6]);
    assert_eq!(shape(&*device.inner, 1).1, Some(12));
}

#[test]
fn wait_returns_when_something_was_put_back_for_later() {
    let device = faulty(Rule::new(Effect::Delay(Nanos(5))));
    Host::new(&device).pends(0, 1, Op::Read, START, 2);
    // Returns at once, because no poll has seen it.
    device.wait(0, Duration::from_secs(3600));
    let due = device.poll(Nanos(0), 0, 1, &mut |_| panic!("not due"));
    assert_eq!(due, Some(Nanos(5)), "from here on its deadline is known");
}

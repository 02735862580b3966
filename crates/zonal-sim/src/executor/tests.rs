use super::*;
use crate::Profile;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Op, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::control::Errands;
use zonal_io::volume::{Channel, Request, Volume, VolumeOptions, WriteMode};

type Said = Rc<RefCell<Vec<String>>>;

/// A host that only stops the clock at given times.
#[derive(Default)]
struct Plain {
    over: Vec<usize>,
    looks: Vec<Nanos>,
    look_every: Option<u64>,
    event: Option<Nanos>,
    has_room: Rc<Cell<bool>>,
    only_time_ends: bool,
}

impl Host for Plain {
    type Condition = ();
    type Outcome = ();

    fn may_be_met(&self, _: usize, (): ()) -> bool {
        self.has_room.get()
    }

    fn ends_by_time_alone(&self, _: usize) -> bool {
        self.only_time_ends
    }

    fn task_ended(&mut self, task: usize, (): (), _: Nanos) -> Resume {
        self.over.push(task);
        Resume::Ready
    }

    fn alarms(&self) -> Alarms {
        let looks = self.looks.len() as u64 + 1;
        Alarms {
            event: self.event,
            look: self.look_every.map_or(Nanos(u64::MAX), |every| Nanos(every * looks)),
        }
    }

    fn time_is(&mut self, now: Nanos) -> Resume {
        if self.alarms().look <= now {
            self.looks.push(now);
        }
        match self.event.take_if(|event| *event <= now) {
            Some(_) => Resume::All,
            None => Resume::Ready,
        }
    }
}

fn volume() -> Arc<Volume> {
    let device = Profile::open("smr-hdd-30t", &[("size", "10G")]).unwrap().simulated("disk").unwrap();
    let options = VolumeOptions::default().with_mode(WriteMode::PerZone);
    Arc::new(Volume::open(device, options).unwrap())
}

fn timeline() -> Timeline {
    Timeline::new(volume())
}

fn task(name: &str, work: impl FnOnce(&Processor<'_, ()>) + 'static) -> Task<(), ()> {
    Task::new(name, work).unwrap()
}

fn run(timeline: &Timeline, tasks: Vec<Task<(), ()>>, host: &mut Plain) -> Result<(), Stopped> {
    let signals = Signals::new(tasks.len());
    Executor::new(timeline, tasks, signals, host).run()
}

/// A channel that wakes `task` and counts completions.
fn waking(volume: &Volume, signals: &Signals, task: usize) -> (Channel, Arc<AtomicU64>) {
    let (wakes, ended) = (signals.wakes.clone(), Arc::new(AtomicU64::new(0)));
    let count = ended.clone();
    let channel = volume.channel(move |completion| {
        assert!(completion.result.is_ok(), "{:?}", completion.result);
        count.fetch_add(1, Ordering::Relaxed);
        wakes.wake(task);
    });
    (channel, ended)
}

fn write(at: u64) -> Request {
    Request::write(Sector(at), 8, IoBuf::zeroed(4096))
}

#[test]
fn wakes_are_delivered_in_order_and_once() {
    let wakes = Wakes::new(3);
    for round in 0..10 {
        [2, 0, 2, 1, 0].into_iter().for_each(|task| wakes.wake(task));
        assert_eq!(wakes.take(), Some(2), "round {round}");
        // A task may be woken again once it is taken, and is last then.
        wakes.wake(2);
        let rest: Vec<usize> = std::iter::from_fn(|| wakes.take()).collect();
        assert_eq!(rest, [0, 1, 2], "round {round}");
        wakes.wake(round % 3);
        assert_eq!((wakes.take(), wakes.take()), (Some(round % 3), None));
    }
}

#[test]
fn timers_fire_in_time_order() {
    let timeline = timeline();
    let said = Said::default();
    let tasks = [("a", [30, 40]), ("b", [10, 40]), ("c", [20, 50])].map(|(name, times)| {
        let (said, clock) = (said.clone(), timeline.clock().clone());
        task(name, move |processor| {
            for time in times {
                processor.leave(Pause::Until(Nanos(time)));
                said.borrow_mut().push(format!("{name}{}", clock.now().0));
            }
        })
    });
    let mut host = Plain { look_every: Some(15), ..Plain::default() };
    run(&timeline, tasks.into(), &mut host).unwrap();
    assert_eq!(*said.borrow(), ["b10", "c20", "a30", "a40", "b40", "c50"]);
    assert_eq!(host.looks, [15, 30, 45].map(Nanos), "the clock stops where the host looks");
    assert_eq!(host.over, [0, 1, 2]);
}

#[test]
fn task_is_resumed_when_its_request_is_answered_and_not_before() {
    let timeline = timeline();
    let signals = Signals::new(2);
    let resumed = Rc::new(Cell::new(0));
    let tasks = (0..2).map(|n| {
        let (volume, signals, clock) = (timeline.volume().clone(), signals.clone(), timeline.clock().clone());
        let resumed = resumed.clone();
        task("w", move |processor| {
            let (channel, ended) = waking(&volume, &signals, n);
            for at in 0..3 {
                volume.submit(clock.now(), &channel, write(n as u64 * (1 << 19) + at * 8));
                processor.leave(Pause::Answer);
                resumed.set(resumed.get() + 1);
                assert_eq!(ended.load(Ordering::Relaxed), at + 1);
            }
        })
    });
    let tasks = tasks.collect();
    Executor::new(&timeline, tasks, signals.clone(), &mut Plain::default()).run().unwrap();
    assert_eq!(resumed.get(), 6, "each answer resumes one task once");
    assert!(timeline.now() > Nanos(0));
}

#[test]
fn waiting_task_is_resumed_when_the_host_sees_its_condition_met() {
    let timeline = timeline();
    let host = Plain::default();
    let (room, looks) = (host.has_room.clone(), Rc::new(Cell::new(0)));
    let signals = Signals::new(2);
    let (waits, gives) = ((room.clone(), looks.clone()), (room, signals.clone()));
    let tasks = vec![
        task("waits", move |processor| {
            while !waits.0.get() {
                waits.1.set(waits.1.get() + 1);
                processor.leave(Pause::Or(()));
            }
        }),
        task("gives", move |processor| {
            for time in 1..100 {
                gives.1.events.increment();
                processor.leave(Pause::Until(Nanos(time)));
            }
            gives.0.set(true);
        }),
    ];
    let mut host = host;
    Executor::new(&timeline, tasks, signals, &mut host).run().unwrap();
    assert_eq!(looks.get(), 1, "what happened was not what it waits for");
    assert_eq!(host.over, [1, 0]);
}

#[test]
fn tasks_that_got_on_look_after_those_that_did_not() {
    let timeline = timeline();
    let signals = Signals::new(3);
    let (rooms, said) = (Rc::new(Cell::new(2)), Said::default());
    let tasks = ["a", "b", "c"].map(|name| {
        let (signals, rooms, said) = (signals.clone(), rooms.clone(), said.clone());
        task(name, move |processor| {
            for _ in 0..2 {
                processor.leave(Pause::Look);
                while rooms.get() == 0 {
                    rooms.set(2);
                    processor.leave(Pause::Look);
                }
                rooms.set(rooms.get() - 1);
                said.borrow_mut().push(name.to_owned());
                signals.events.increment();
            }
        })
    });
    Executor::new(&timeline, tasks.into(), signals, &mut Plain::default()).run().unwrap();
    assert_eq!(said.borrow().concat(), "abcabc");
}

#[test]
fn tasks_that_nothing_can_wake_are_named() {
    let timeline = timeline();
    let mut host = Plain { look_every: Some(1000), ..Plain::default() };
    let tasks = vec![
        task("deaf", |processor| processor.leave(Pause::Answer)),
        task("hopeful", |processor| processor.leave(Pause::Or(()))),
        task("watchful", |processor| {
            loop {
                processor.leave(Pause::Look);
            }
        }),
        task("done", |processor| processor.leave(Pause::Until(Nanos(5000)))),
    ];
    let stopped = run(&timeline, tasks, &mut host).unwrap_err();
    let waits = ["deaf waits for its requests", "hopeful waits for another job", "watchful waits"];
    assert_eq!((stopped.why, stopped.at), (Halt::Deadlock, Duration::from_nanos(5000)));
    assert_eq!(stopped.tasks, waits);
    assert_eq!(host.looks.len(), 5, "to look is no reason to continue");
}

#[test]
fn endless_run_is_an_error_with_its_reason() {
    let endless = |tasks, mut host: Plain| match run(&timeline(), tasks, &mut host).unwrap_err() {
        Stopped { why: Halt::Endless(why), .. } => why,
        stopped => panic!("{stopped:?}"),
    };
    let turns = || {
        vec![task("t", |processor| {
            loop {
                processor.leave(Pause::Turn);
            }
        })]
    };
    let host = Plain { only_time_ends: true, ..Plain::default() };
    assert!(endless(turns(), host).contains("no time passes"));
    let late = vec![task("t", |processor| processor.leave(Pause::Until(Nanos(u64::MAX))))];
    assert!(endless(late, Plain::default()).contains("a year"));
}

#[test]
fn event_of_the_host_resumes_all_tasks() {
    let timeline = timeline();
    let mut host = Plain { event: Some(Nanos(700)), ..Plain::default() };
    let tasks = vec![
        task("a", |processor| processor.leave(Pause::Answer)),
        task("b", |processor| processor.leave(Pause::Or(()))),
    ];
    run(&timeline, tasks, &mut host).unwrap();
    assert_eq!((timeline.now(), host.over), (Nanos(700), vec![0, 1]));
}

#[test]
fn errands_are_done_between_polls_and_a_switch_takes_effect_in_the_time_of_the_run() {
    let errands = Errands::default();
    let timeline = timeline().with_errands(&errands);
    let signals = Signals::new(1);
    let (volume, inside) = (timeline.volume().clone(), Arc::new(AtomicU64::new(0)));
    let (seen, clock, wakes) = (inside.clone(), timeline.clock().clone(), signals.clone());
    let posted = errands.clone();
    let work = move |processor: &Processor<'_, ()>| {
        let (channel, _) = waking(&volume, &wakes, 0);
        for at in 0..100 {
            volume.submit(clock.now(), &channel, write(at * 8));
            if at == 50 {
                let (switched, seen, clock) = (volume.clone(), seen.clone(), clock.clone());
                posted.post(move || {
                    seen.store(clock.now().0, Ordering::Relaxed);
                    switched.set_options(&"mode=qd1".parse().unwrap()).unwrap();
                });
                assert_eq!(volume.mode().0, WriteMode::PerZone, "not in the midst of a task");
            }
            processor.leave(Pause::Answer);
        }
    };
    Executor::new(&timeline, vec![task("w", work)], signals, &mut Plain::default()).run().unwrap();
    assert_eq!(timeline.volume().mode().0, WriteMode::Qd1);
    let switched = inside.load(Ordering::Relaxed);
    assert!(switched > 0 && switched < timeline.now().0, "{switched} of {:?}", timeline.now());
}

#[test]
fn no_other_task_runs_while_one_waits_in_a_section() {
    let timeline = timeline();
    let signals = Signals::new(2);
    let (volume, ended) = (timeline.volume().clone(), Arc::new(AtomicU64::new(0)));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (other, has_ended, times) = (timeline.clock().clone(), ended.clone(), seen.clone());
    let clock = timeline.clock().clone();
    let tasks = vec![
        task("a", move |processor| {
            let count = ended.clone();
            let channel = volume.channel(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
            let section = Section::new(clock);
            for at in 0..10 {
                volume.submit(section.now(), &channel, write(at * 8));
                while ended.load(Ordering::Relaxed) <= at {
                    section.wait(&volume).unwrap();
                }
                section.done();
            }
            processor.leave(Pause::Turn);
        }),
        task("b", move |processor| {
            while has_ended.load(Ordering::Relaxed) < 10 {
                times.borrow_mut().push(other.now());
                processor.leave(Pause::Until(Nanos(1)));
            }
            times.borrow_mut().push(other.now());
        }),
    ];
    let mut host = Plain { look_every: Some(1), ..Plain::default() };
    Executor::new(&timeline, tasks, signals, &mut host).run().unwrap();
    let seen = seen.take();
    assert_eq!(seen, [timeline.now()], "it comes after the section, late or not");
    assert_eq!(host.looks, [timeline.now()], "the host learns what the time is then");
}

#[test]
fn section_that_cannot_end_reports_a_deadlock() {
    let (timeline, polls) = (timeline(), Cell::new(0));
    let section = Section::new(timeline.clock().clone());
    let halt = loop {
        polls.set(polls.get() + 1);
        assert!(polls.get() < 1 << 20, "it does not end");
        if let Err(halt) = section.wait(timeline.volume()) {
            break halt;
        }
    };
    assert_eq!(halt, Halt::Deadlock);
}

#[test]
fn request_of_a_caller_without_tasks_takes_its_time() {
    let timeline = timeline();
    timeline.call(write(0)).unwrap();
    let written = timeline.now();
    assert!(written > Nanos(0));
    timeline.call(Request::zone(Op::ZoneReset, Sector(0))).unwrap();
    assert!(timeline.now() > written);
}

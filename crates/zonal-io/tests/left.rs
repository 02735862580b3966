//! Deadlines, rings and commands left behind by a thread are not lost on the others.
//!
//! Threads here sleep for [`LONG`], unless they are woken or have a deadline. A loss thus costs
//! seconds, while everything else takes milliseconds. Callers of `Volume::call` check by themselves
//! after 100 ms or after a second; the bounds there are shorter.

mod held;

use held::{Answer, FAR, Held, LONG, PATIENCE, Release, ZONE, on_queue};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, scope, sleep};
use std::time::{Duration, Instant};
use zonal_core::plug::ParkOptions;
use zonal_core::{Nanos, RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::{Device, Output};
use zonal_io::fault::{Fault, Plan};
use zonal_io::linear::Linear;
use zonal_io::registry::Registry;
use zonal_io::volume::{Completion, Request, Volume, VolumeOptions, WriteMode};

/// Bound for an event that is not lost, on a busy machine.
const SOON: Duration = Duration::from_secs(1);

/// Bound where a thread checks by itself after a second.
const SOONER: Duration = Duration::from_millis(500);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn nanos(time: Duration) -> Nanos {
    Nanos(time.as_nanos() as u64)
}

fn options() -> VolumeOptions {
    VolumeOptions::default().with_mode(WriteMode::PerZone)
}

/// Parks writes ahead of the write pointer for this time.
fn parking(time: Duration) -> VolumeOptions {
    options().with_park(ParkOptions::default().with_time(nanos(time)))
}

fn over(device: Arc<dyn Device>, options: VolumeOptions) -> Arc<Volume> {
    Arc::new(Volume::open(device, options).unwrap())
}

/// Creates a volume over a drive with these queues and this handling of commands, and a clock.
fn held(queues: usize, answer: Answer, options: VolumeOptions) -> (Arc<Held>, Arc<Volume>, Clock) {
    let drive = Held::new(queues, answer);
    (drive.clone(), over(drive, options), Clock::start())
}

fn start(zone: u64) -> Sector {
    Sector(zone * ZONE)
}

fn write(zone: u64, at: u64) -> Request {
    Request::write(Sector(zone * ZONE + at), 8, IoBuf::zeroed(8 * 512))
}

fn read(zone: u64) -> Request {
    Request::read(start(zone), 8, IoBuf::zeroed(8 * 512))
}

fn until(due: Nanos, clock: Clock) -> Duration {
    Duration::from_nanos(due.0.saturating_sub(clock.now().0))
}

type Ended = mpsc::Receiver<Completion>;

/// Submits `request` on the calling thread, without waiting.
fn submit(volume: &Volume, clock: Clock, request: Request) -> Ended {
    let (sender, ended) = mpsc::channel();
    let channel = volume.channel(move |completion| drop(sender.send(completion)));
    volume.submit(clock.now(), &channel, request);
    ended
}

/// Like [`submit`], on a thread of this queue, which ends without a poll.
fn leave(volume: &Volume, clock: Clock, queue: usize, request: Request) -> Ended {
    let mut ended = None;
    on_queue(volume, clock, queue, || ended = Some(submit(volume, clock, request)));
    ended.unwrap()
}

/// Waits for a completion that has to arrive before a sleeping thread checks by itself.
#[track_caller]
fn end_soon(ended: &Ended) -> Result<Output, RequestError> {
    ended.recv_timeout(SOON).expect("a sleeping thread hears of it").result
}

#[track_caller]
fn done_soon(ended: &Ended) {
    end_soon(ended).unwrap();
}

/// Thread that follows the contract of `news` with an event loop: it arms, polls, sleeps.
struct Sleeper {
    is_over: Arc<AtomicBool>,
    /// True while it sleeps without a deadline.
    is_idle: Arc<AtomicBool>,
    volume: Arc<Volume>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sleeper {
    /// Starts a thread of this queue. Returns once it sleeps.
    fn start(volume: &Arc<Volume>, clock: Clock, queue: usize) -> Sleeper {
        let sleeper = Sleeper::begin(volume, clock, queue);
        sleeper.settle();
        sleeper
    }

    fn begin(volume: &Arc<Volume>, clock: Clock, queue: usize) -> Sleeper {
        let [is_over, is_idle] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (volume, is_over, is_idle) = (volume.clone(), is_over.clone(), is_idle.clone());
            move || on_queue(&volume, clock, queue, || attend(&volume, clock, &is_over, &is_idle))
        });
        Sleeper { is_over, is_idle, volume: volume.clone(), thread: Some(thread) }
    }

    /// Waits until the thread sleeps without a deadline.
    fn settle(&self) {
        let begin = Instant::now();
        while !self.is_idle.load(Ordering::Acquire) {
            assert!(begin.elapsed() < PATIENCE, "the thread does not come to sleep");
            sleep(Duration::from_micros(100));
        }
    }
}

fn attend(volume: &Volume, clock: Clock, is_over: &AtomicBool, is_idle: &AtomicBool) {
    let mut news = volume.news().unwrap();
    while !is_over.load(Ordering::Acquire) {
        news.arm();
        let due = volume.poll(clock.now());
        let left = due.map_or(LONG, |due| until(due, clock));
        if !left.is_zero() && !is_over.load(Ordering::Acquire) {
            is_idle.store(due.is_none(), Ordering::Release);
            news.sleep(left.min(LONG));
            is_idle.store(false, Ordering::Release);
        }
        news.disarm();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.volume.device().wakeups().ring_all();
        let _ = self.thread.take().map(|thread| thread.join());
    }
}

/// Repeats a round until one takes less than `bound`. A systematic loss costs time in every round,
/// unlike a busy machine.
#[track_caller]
fn some_round_ends_within(bound: Duration, round: impl Fn() -> Duration) {
    let mut times = Vec::new();
    while times.last().is_none_or(|took| *took >= bound) {
        assert!(times.len() < 10, "{times:?}");
        times.push(round());
    }
}

#[test]
fn due_time_that_a_poller_took_along_wakes_a_sleeper() {
    let (_, volume, clock) = held(1, Answer::After(ms(60)), options());
    assert_eq!(volume.poll(clock.now()), None);
    let mut ended = None;
    on_queue(&volume, clock, 0, || {
        ended = Some(submit(&volume, clock, write(1, 0)));
        assert!(volume.poll(clock.now()).is_some(), "the device tells this thread its time");
    });
    let (begin, ended) = (Instant::now(), ended.unwrap());
    volume.wait(LONG);
    while ended.try_recv().is_err() {
        let due = volume.poll(clock.now());
        volume.wait(due.map_or(LONG, |due| until(due, clock)));
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn due_time_in_a_queue_that_was_left_wakes_a_sleeper() {
    let (_, volume, clock) = held(2, Answer::After(ms(60)), options());
    let sleeper = Sleeper::start(&volume, clock, 0);
    for zone in 0..3 {
        sleeper.settle();
        let mut ended = None;
        on_queue(&volume, clock, 1, || {
            ended = Some(submit(&volume, clock, write(zone, 0)));
            assert!(volume.poll(clock.now()).is_some(), "the device tells this thread its time");
        });
        done_soon(&ended.unwrap());
    }
}

#[test]
fn parked_write_that_was_left_ends_by_a_sleeper() {
    let (_, volume, clock) = held(2, Answer::AtOnce, parking(ms(30)));
    let sleeper = Sleeper::start(&volume, clock, 0);
    for queue in [0, 1] {
        sleeper.settle();
        let ended = end_soon(&leave(&volume, clock, queue, write(queue as u64, 8)));
        assert!(matches!(ended, Err(RequestError::PredecessorMissing { .. })), "{ended:?}");
    }
}

#[test]
fn parked_write_of_a_caller_without_the_watch_ends_in_time() {
    some_round_ends_within(ms(70), || {
        let (drive, volume, clock) = held(1, Answer::After(FAR), parking(ms(20)));
        scope(|threads| {
            let _release = Release(&drive);
            threads.spawn(|| volume.call(&clock, write(1, 0)));
            drive.await_sleeper();
            let begin = Instant::now();
            let ended = volume.call(&clock, write(2, 8)).result;
            assert!(matches!(ended, Err(RequestError::PredecessorMissing { .. })), "{ended:?}");
            begin.elapsed()
        })
    });
}

/// The thread with the watch has polled the device but has not returned when the other one submits.
#[test]
fn deadline_set_while_the_watch_polls_is_met() {
    some_round_ends_within(ms(80), || {
        let (drive, volume, clock) = held(1, Answer::After(FAR), options());
        let ((sender, entered), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        scope(|threads| {
            let _release = Release(&drive);
            threads.spawn(|| volume.call(&clock, write(1, 0)));
            drive.await_sleeper();
            drive.after_look(move || {
                sender.send(()).unwrap();
                let _ = released.recv_timeout(PATIENCE);
            });
            entered.recv_timeout(PATIENCE).unwrap();
            drive.set(Answer::After(ms(40)));
            let other = threads.spawn(|| {
                let begin = Instant::now();
                volume.call(&clock, write(2, 0)).result.unwrap();
                begin.elapsed()
            });
            sleep(ms(20));
            release.send(()).unwrap();
            other.join().unwrap()
        })
    });
}

#[test]
fn deadline_is_kept_while_the_watch_is_in_a_completion() {
    let (drive, volume, clock) = held(1, Answer::After(FAR), parking(ms(30)));
    let ((sender, entered), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let (holder, released) = (Arc::new(OnceLock::new()), std::sync::Mutex::new(released));
    let channel = volume.channel({
        let holder = holder.clone();
        move |_| {
            sender.send(()).unwrap();
            if holder.get() == Some(&thread::current().id()) {
                let _ = released.lock().unwrap().recv_timeout(PATIENCE);
            }
        }
    });
    scope(|threads| {
        let _release = Release(&drive);
        holder.set(threads.spawn(|| volume.call(&clock, write(1, 0))).thread().id()).unwrap();
        drive.await_sleeper();
        volume.submit(clock.now(), &channel, write(2, 0));
        let other = threads.spawn(|| {
            let begin = Instant::now();
            let ended = volume.call(&clock, write(3, 8)).result;
            assert!(matches!(ended, Err(RequestError::PredecessorMissing { .. })), "{ended:?}");
            begin.elapsed()
        });
        sleep(ms(10));
        drive.answer(start(2));
        entered.recv_timeout(PATIENCE).unwrap();
        let took = other.join();
        release.send(()).unwrap();
        let took = took.unwrap();
        assert!(took < SOONER, "{took:?}");
    });
}

#[test]
fn queue_left_with_commands_is_looked_at_by_each_sleeper() {
    let (_, volume, clock) = held(3, Answer::After(ms(0)), options());
    let mut zones = 0..200;
    let mut leave_some = |sleepers: &[&Sleeper]| {
        for zone in zones.by_ref().take(5) {
            sleepers.iter().for_each(|sleeper| sleeper.settle());
            done_soon(&leave(&volume, clock, 1, write(zone, 0)));
        }
    };
    let first = Sleeper::start(&volume, clock, 0);
    leave_some(&[&first]);
    let second = Sleeper::start(&volume, clock, 2);
    leave_some(&[&first, &second]);
    drop(first);
    leave_some(&[&second]);
}

/// A poll checks one queue of other threads. The next one, after arming, checks the other queue.
#[test]
fn command_left_between_two_polls_is_found_after_arming() {
    let (_, volume, clock) = held(3, Answer::After(ms(0)), options());
    on_queue(&volume, clock, 0, || {
        let mut news = volume.news().unwrap();
        for zone in 0..8 {
            (0..zone % 4).for_each(|_| _ = volume.poll(clock.now()));
            // No thread sleeps, so the ring wakes none.
            let ended = leave(&volume, clock, 1 + zone as usize / 4, write(zone, 0));
            let begin = Instant::now();
            news.arm();
            loop {
                let due = volume.poll(clock.now());
                if ended.try_recv().is_ok() {
                    break;
                }
                let due = due.expect("the thread has not looked at the command and would sleep");
                assert!(begin.elapsed() < SOON, "the thread does not find the command");
                news.sleep(until(due, clock));
            }
            news.disarm();
        }
    });
}

/// The thread is armed when another queue rings, finds its own request complete, and does not poll
/// again.
#[test]
fn ring_that_a_leaving_thread_was_given_wakes_another() {
    let (_, volume, clock) = held(3, Answer::After(ms(0)), options());
    let sleeper = Sleeper::start(&volume, clock, 2);
    on_queue(&volume, clock, 0, || {
        sleeper.settle();
        let mut ended = None;
        volume.wait_unless(LONG, || {
            ended = Some(leave(&volume, clock, 1, write(1, 0)));
            true
        });
        done_soon(&ended.unwrap());
    });
}

/// The other thread's poll has covered the ring of its own write and has the deadline. It does not
/// return.
#[test]
fn ring_that_a_poll_of_another_queue_heard_is_heard() {
    let (_, volume, clock) = held(2, Answer::AtOnce, parking(FAR));
    on_queue(&volume, clock, 0, || {
        while volume.poll(clock.now()).is_some() {}
        on_queue(&volume, clock, 1, || {
            submit(&volume, clock, write(1, 8));
            volume.poll(clock.now());
        });
        let begin = Instant::now();
        volume.wait(LONG);
        assert!(begin.elapsed() < SOON, "the thread sleeps past the deadline of the parked write");
    });
}

#[test]
fn park_time_that_is_shortened_wakes_a_sleeper() {
    let (_, volume, clock) = held(1, Answer::AtOnce, parking(ms(1_000_000)));
    let _sleeper = Sleeper::start(&volume, clock, 0);
    let ended = leave(&volume, clock, 0, write(1, 8));
    assert!(ended.recv_timeout(ms(20)).is_err(), "it waits for its predecessor");
    volume.set_options(&"park=1M,10ms".parse().unwrap()).unwrap();
    let ended = end_soon(&ended);
    assert!(matches!(ended, Err(RequestError::PredecessorMissing { .. })), "{ended:?}");
}

#[test]
fn tags_that_are_added_wake_a_sleeper_for_the_waiting_reads() {
    let options = options().with_mode(WriteMode::ZoneLock).with_nr_requests(1);
    let (drive, volume, clock) = held(1, Answer::ByHand, options);
    let _sleeper = Sleeper::start(&volume, clock, 0);
    let ends = [1, 2, 3].map(|zone| leave(&volume, clock, 0, read(zone)));
    assert_eq!(drive.sent().len(), 1, "there is one tag");
    drive.set(Answer::AtOnce);
    let begin = Instant::now();
    volume.set_options(&"nr_requests=8".parse().unwrap()).unwrap();
    ends[1..].iter().for_each(done_soon);
    assert!(begin.elapsed() < SOON);
}

#[test]
fn command_turned_away_is_sent_again_by_a_sleeper() {
    let (drive, volume, clock) = held(2, Answer::NoRoom, options());
    let sleeper = Sleeper::start(&volume, clock, 0);
    for queue in [0, 1] {
        drive.set(Answer::NoRoom);
        sleeper.settle();
        let ended = leave(&volume, clock, queue, write(queue as u64, 0));
        assert!(ended.recv_timeout(ms(20)).is_err(), "there is no room");
        // Without a ring: the drive has no news of an empty queue.
        drive.set(Answer::AtOnce);
        done_soon(&ended);
    }
}

/// A poll is resubmitting the command when its channel is cancelled.
#[test]
fn command_offered_during_a_cancel_is_not_sent_again() {
    for request in [read(1), write(1, 0)] {
        let (drive, volume, clock) = held(1, Answer::NoRoom, options());
        let (sender, ended) = mpsc::channel();
        let channel = volume.channel(move |completion| drop(sender.send(completion.result)));
        volume.submit(clock.now(), &channel, request);
        let ((sender, entered), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        drive.at_submit(move || {
            sender.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
        });
        scope(|threads| {
            threads.spawn(|| volume.poll(clock.now()));
            entered.recv_timeout(PATIENCE).unwrap();
            volume.cancel(clock.now(), &channel);
            release.send(()).unwrap();
        });
        volume.poll(clock.now());
        assert_eq!(ended.try_recv(), Ok(Err(RequestError::Cancelled)), "by the next poll");
        drive.set(Answer::AtOnce);
        (0..10).for_each(|_| _ = volume.poll(clock.now()));
        assert_eq!(drive.sent(), []);
    }
}

/// A poll is checking the parked writes and ends one of them; its completion function is still
/// running while another thread polls.
#[test]
fn look_at_parked_writes_does_not_hide_their_deadline() {
    let (_, volume, _) = held(1, Answer::AtOnce, parking(ms(100)));
    let ((ask, asked), (answer, answered)) = (mpsc::channel(), mpsc::channel());
    let answered = std::sync::Mutex::new(answered);
    let (sender, told) = mpsc::channel();
    let channel = volume.channel(move |_| {
        ask.send(()).unwrap();
        sender.send(answered.lock().unwrap().recv_timeout(PATIENCE).unwrap()).unwrap();
    });
    volume.submit(nanos(ms(0)), &channel, write(1, 8));
    volume.submit(nanos(ms(50)), &channel, write(3, 8));
    scope(|threads| {
        let volume = &volume;
        threads.spawn(move || {
            let _ = asked.recv_timeout(PATIENCE);
            let _ = answer.send(volume.poll(nanos(ms(100))));
        });
        assert_eq!(volume.poll(nanos(ms(100))), Some(nanos(ms(100))));
    });
    let told: Option<Nanos> = told.try_recv().expect("a parked write has ended");
    assert!(told.is_some_and(|due| due <= nanos(ms(150))), "{told:?}");
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Work of a thread when it drops its thread-locals.
struct Last(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|work| work());
    }
}

/// Runs `work` on an exiting thread that has given back its number. Returns the receiver of the
/// result.
fn at_the_end<T: Send + 'static>(
    volume: &Arc<Volume>,
    clock: Clock,
    work: impl FnOnce(&Volume) -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (sender, ended) = mpsc::channel();
    let volume = volume.clone();
    thread::spawn(move || {
        let at_end = volume.clone();
        let work = move || drop(sender.send(work(&at_end)));
        // Thread-locals are dropped in reverse order of their first use: the number, then this.
        LAST.with_borrow_mut(|last| *last = Some(Last(Some(Box::new(work)))));
        volume.report(&clock, Sector(0), 1).unwrap();
    });
    ended
}

#[test]
fn caller_that_ends_is_woken_for_its_completion() {
    let (drive, volume, clock) = held(1, Answer::After(FAR), options());
    scope(|threads| {
        let _release = Release(&drive);
        threads.spawn(|| volume.call(&clock, write(1, 0)));
        drive.await_sleeper();
        let ending = [2, 3, 4]
            .map(|zone| at_the_end(&volume, clock, move |volume| volume.call(&clock, write(zone, 0)).result));
        drive.await_sent(4);
        sleep(ms(20));
        for (zone, ended) in [4, 3, 2].into_iter().zip(ending.iter().rev()) {
            drive.answer(start(zone));
            ended.recv_timeout(SOONER).expect("the thread is woken").unwrap();
        }
    });
}

/// The device has stored the completion but has not rung when another thread takes it.
#[test]
fn thread_that_ends_is_woken_by_the_one_with_its_completion() {
    let (drive, volume, clock) = held(2, Answer::ByHand, options());
    let asleep = drive.bedtime();
    let ended = at_the_end(&volume, clock, move |volume| {
        let ended = submit(volume, clock, write(2, 0));
        let mut has_come = None;
        volume.poll(clock.now());
        volume.wait_unless(LONG, || {
            has_come = ended.try_recv().ok();
            has_come.is_some()
        });
        has_come.or(ended.try_recv().ok()).map(|completion| completion.result)
    });
    asleep.recv_timeout(PATIENCE).expect("the thread comes to sleep");
    sleep(ms(20));
    drive.publish(start(2));
    (0..200).for_each(|_| {
        volume.poll(clock.now());
        sleep(Duration::from_micros(100));
    });
    let ended = ended.recv_timeout(SOON).expect("the thread is woken");
    assert!(matches!(ended, Some(Ok(_))), "{ended:?}");
}

/// The zone has a write at the device that bypassed the scheduler and is not completed by a poll.
fn pass_over(end: impl FnOnce(&Arc<Volume>, Clock, &mpsc::Sender<()>)) {
    let options = options().with_mode(WriteMode::ZoneLock);
    let (drive, volume, clock) = held(1, Answer::AtOnce, options);
    let ((sender, entered), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    drive.at_submit(move || {
        sender.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    });
    scope(|threads| {
        let first = threads.spawn(|| submit(&volume, clock, write(1, 0).nowait()));
        entered.recv_timeout(PATIENCE).unwrap();
        end(&volume, clock, &release);
        done_soon(&first.join().unwrap());
    });
}

#[test]
fn zone_passed_over_is_looked_at_soon() {
    pass_over(|volume, clock, release| {
        let ended = submit(volume, clock, write(1, 8));
        let _sleeper = Sleeper::begin(volume, clock, 0);
        sleep(ms(20));
        release.send(()).unwrap();
        done_soon(&ended);
    });
}

#[test]
fn zone_passed_over_for_a_thread_that_left_wakes_a_sleeper() {
    pass_over(|volume, clock, release| {
        let _sleeper = Sleeper::start(volume, clock, 0);
        let ended = leave(volume, clock, 0, write(1, 8));
        release.send(()).unwrap();
        done_soon(&ended);
    });
}

#[test]
fn watch_of_a_caller_that_ends_first_is_handed_on() {
    let (drive, volume, clock) = held(1, Answer::After(FAR), options());
    scope(|threads| {
        let _release = Release(&drive);
        let (sender, ended) = mpsc::channel();
        for zone in 0..5 {
            let (sender, volume) = (sender.clone(), &volume);
            threads.spawn(move || {
                volume.call(&clock, write(zone, 0)).result.unwrap();
                sender.send(zone)
            });
            drive.await_sent(zone as usize + 1);
            if zone == 0 {
                drive.await_sleeper();
            }
        }
        sleep(ms(20));
        for zone in 0..5 {
            drive.answer(start(zone));
            assert_eq!(ended.recv_timeout(SOONER), Ok(zone));
        }
    });
}

#[test]
fn hundred_callers_of_a_polled_drive_end_in_time() {
    let name = "null:size=128M,zone_size=1M,complete=poll,completion_nsec=1500000,hw_queue_depth=256";
    let volume = over(Registry::default().open(name).unwrap(), options());
    let (clock, late) = (Clock::start(), AtomicUsize::new(0));
    scope(|threads| {
        for zone in 0..100 {
            let (volume, late) = (&volume, &late);
            threads.spawn(move || {
                for n in 0..20 {
                    let begin = Instant::now();
                    volume.call(&clock, write(zone, 8 * n)).result.unwrap();
                    late.fetch_add(usize::from(begin.elapsed() > SOONER), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(late.load(Ordering::Relaxed), 0);
}

/// Stacked devices pass on a ring, even if the command's queue has no sleeper.
#[test]
fn ring_of_a_device_inside_wakes_a_sleeper_at_a_volume() {
    let clock = Clock::start();
    let drives = [0, 1].map(|_| Held::new(2, Answer::ByHand));
    let both: Arc<dyn Device> = Arc::new(Linear::concat(drives.clone().map(|drive| drive as _)).unwrap());
    let faulty: Arc<dyn Device> = Arc::new(Fault::new(both, Plan::parse("seed = 1").unwrap()));
    let volume = over(Arc::new(Linear::range(faulty, 200..300).unwrap()), options());
    let sleeper = Sleeper::start(&volume, clock, 0);
    for queue in [0, 1] {
        // The range has 56 zones of the first drive, followed by those of the second.
        for (drive, zone, inside) in [(0, 20 + queue, 220 + queue), (1, 70 + queue, 14 + queue)] {
            sleeper.settle();
            let ended = leave(&volume, clock, queue as usize, write(zone, 0));
            drives[drive].answer(start(inside));
            done_soon(&ended);
        }
    }
}

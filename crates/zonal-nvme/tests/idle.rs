//! Cost of an idle server. Measured, so these tests run one at a time.

mod host;

use host::{Digests, NQN, Queue, Socket, sqe, target};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zonal_io::clock::Clock;
use zonal_nvme::connection::MEMORY_MAX;
use zonal_nvme::server::{Server, ServerOptions};
use zonal_nvme::wire::{Sqe, io};

static ALONE: Mutex<()> = Mutex::new(());

fn serve(device: &str) -> Server {
    serve_with(device, ServerOptions::default().with_threads(2).with_polls(false))
}

fn serve_with(device: &str, options: ServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let has_to_end = Arc::new(AtomicBool::new(false));
    Server::start(target(device), listener, Clock::start(), options, has_to_end).unwrap()
}

fn admin(address: SocketAddr) -> Queue<Socket> {
    Queue::admin_over(Socket::connect(address), Digests::default(), NQN)
}

/// CPU time of the server's threads.
fn served() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let of_server = tasks.filter(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("nvme-tcp-"))
    });
    let ran = |task: std::path::PathBuf| -> u64 {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(of_server.map(ran).sum())
}

/// Share of a core used by the server's threads during this time. Counts CPU time, not waiting for
/// a processor, so other load matters little.
fn share(time: Duration) -> f64 {
    let (since, before) = (Instant::now(), served());
    std::thread::sleep(time);
    let ran = served() - before;
    assert!(served() > Duration::ZERO, "the threads have another name");
    ran.as_secs_f64() / since.elapsed().as_secs_f64()
}

/// Waits until the kernel accepts no more output of the server. Returns the unsent bytes.
fn settled(server: &Server) -> usize {
    let unsent = || server.connections().iter().map(|connection| connection.unsent).sum::<usize>();
    let (mut last, mut times) = (0, 0);
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(100));
        let now = unsent();
        times = if now == last && now > 0 { times + 1 } else { 0 };
        last = now;
        if times == 5 {
            return last;
        }
    }
    panic!("it is not at rest: {last} bytes")
}

#[test]
fn server_with_64_idle_connections_uses_no_processor() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = serve("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let admin = admin(server.address());
    let mut queues: Vec<_> = (1..64).map(|qid| admin.io(qid)).collect();
    let read = queues[0].with_room(sqe(io::READ, 1, [0; 6]), 4096);
    assert!(queues.iter_mut().all(|queue| queue.call(read, &[]).status == 0));
    assert_eq!(server.connections().len(), 64);
    let share = share(Duration::from_secs(10));
    println!("{:.2} % of a core", share * 100.0);
    assert!(share < 0.01, "{share}");
    drop((queues, admin));
    server.end();
    server.join().unwrap();
}

/// Canary of the test above. On a busy machine a thread gets only a small share of a core.
#[test]
fn server_that_polls_is_seen_to_use_a_processor() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = serve_with(
        "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096",
        ServerOptions::default().with_threads(2).with_polls(true),
    );
    let share = share(Duration::from_secs(1));
    println!("{:.2} % of a core", share * 100.0);
    assert!(share > 0.05, "{share}");
    server.end();
    server.join().unwrap();
}

/// It requests 31 MB and reads nothing: the server produces a bounded part of that, and sleeps.
#[test]
fn client_that_takes_no_answers_costs_bounded_memory_and_no_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = serve("null:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let admin = admin(server.address());
    let mut queue = admin.io(1);
    let read = queue.with_room(sqe(io::READ, 1, [0, 0, 255, 0, 0, 0]), 1 << 20);
    let commands: Vec<u16> = (0..31).map(|_| queue.submit(read, &[])).collect();
    let unsent = settled(&server);
    let share = share(Duration::from_secs(4));
    println!("{:.2} % of a core", share * 100.0);
    assert!(share < 0.01, "{share}");
    assert!(unsent > 0 && unsent <= MEMORY_MAX + (64 << 10), "{unsent}");
    // From here on it reads.
    for cid in commands {
        assert_eq!(queue.wait(cid).data.len(), 1 << 20);
    }
    let _unanswered: Vec<u16> = (0..31).map(|_| queue.submit(read, &[])).collect();
    settled(&server);
    queue.link.stream.shutdown(Shutdown::Write).unwrap();
    let since = Instant::now();
    while server.connections().len() > 1 {
        assert!(since.elapsed() < Duration::from_secs(20), "its connection stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop((queue, admin));
    server.end();
    server.join().unwrap();
}

fn transfer(opcode: u8, lba: u32) -> Sqe {
    let mut command = sqe(opcode, 1, [lba, 0, 7, 0, 0, 0]);
    command.data.len = 32768.into();
    command
}

fn wait_until_empty(server: &Server) {
    let since = Instant::now();
    while !server.connections().is_empty() {
        assert!(since.elapsed() < Duration::from_secs(20), "connections stay");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn thousand_connects_and_disconnects_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = serve("ram:size=64M,zone_size=4M,complete=poll,blocksize=4096");
    let address = server.address();
    let connect = |n: u64| {
        let admin = admin(address);
        let mut queue = admin.io(1);
        if n.is_multiple_of(3) {
            // It leaves in the middle of a command.
            queue.submit(transfer(io::WRITE, n as u32 % 16 * 1024), &[7; 32768]);
        } else {
            assert_eq!(queue.call(transfer(io::READ, 0), &[]).status, 0);
        }
    };
    (0..100).for_each(connect);
    wait_until_empty(&server);
    let before = Process::now();
    (0..1000).for_each(connect);
    wait_until_empty(&server);
    let after = Process::now();
    assert_eq!(after.descriptors, before.descriptors);
    assert!(after.bytes < before.bytes + (4 << 20), "{before:?} {after:?}");
    server.end();
    server.join().unwrap();
}

/// Resources of this process.
#[derive(Debug)]
struct Process {
    descriptors: usize,
    /// Resident memory.
    bytes: usize,
}

impl Process {
    fn now() -> Process {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        Process { descriptors, bytes: pages * 4096 }
    }
}

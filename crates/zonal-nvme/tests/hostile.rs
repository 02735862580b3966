//! Misbehaving clients over sockets. Measures their cost for the server and for other hosts, so
//! these tests run one at a time.

mod host;

use host::{Digests, NQN, Queue, Socket, sqe, target, target_of};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_io::clock::Clock;
use zonal_io::device::{Command, Context, Device, Submitted, Wrapper};
use zonal_io::registry::Registry;
use zonal_nvme::connection::{CONNECT_MAX, MEMORY_MAX};
use zonal_nvme::server::{CLOSING_MAX, Server, ServerOptions};
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{Sqe, io, term};

const RAM: &str = "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096";
const NULL: &str = "null:size=64M,zone_size=4M,complete=poll,blocksize=4096";
const ZONE: u32 = 1024;

/// Tolerance for deadlines on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

/// Limits for the response time of a well-behaved host: median and maximum.
const MEDIAN_MAX: Duration = Duration::from_millis(50);
const LONGEST_MAX: Duration = Duration::from_secs(3);

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve_target(target: Arc<Target>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ServerOptions::default().with_threads(2).with_polls(false);
    Server::start(target, listener, Clock::start(), options, Arc::new(AtomicBool::new(false))).unwrap()
}

fn serve(device: &str) -> Server {
    serve_target(target(device))
}

fn end(server: Server) {
    server.end();
    server.join().unwrap();
}

fn admin(address: SocketAddr) -> Queue<Socket> {
    Queue::admin_over(Socket::connect(address), Digests::default(), NQN)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(CONNECT_MAX + SLACK)).unwrap();
    stream
}

fn transfer(opcode: u8, lba: u32, blocks: u32) -> Sqe {
    let mut command = sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * 4096).into();
    command
}

fn icreq() -> [u8; 128] {
    let mut bytes = [0; 128];
    (bytes[2], bytes[4]) = (128, 128);
    bytes
}

/// Reads until the server closes the connection. Returns the data and the time taken.
fn rest(stream: &mut TcpStream) -> (Vec<u8>, Duration) {
    let since = Instant::now();
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is not closed: {error}"),
    }
    (bytes, since.elapsed())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < CONNECT_MAX + SLACK, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// CPU time of the server's threads.
fn served() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_of_server = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("nvme-tcp-"))
    };
    let ran = |task: std::path::PathBuf| -> u64 {
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.filter(is_of_server).map(ran).sum())
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Host that reads and verifies one block repeatedly until stopped.
struct Neighbour {
    has_to_end: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Duration>>,
}

impl Neighbour {
    fn start(address: SocketAddr) -> Neighbour {
        let has_to_end = Arc::new(AtomicBool::new(false));
        let flag = has_to_end.clone();
        let thread = std::thread::spawn(move || {
            let admin = admin(address);
            let mut queue = admin.io(1);
            let data = vec![5; 4096];
            assert_eq!(queue.call(transfer(io::WRITE, 15 * ZONE, 1), &data).status, 0);
            let mut times = Vec::new();
            while !flag.load(Ordering::Relaxed) {
                let since = Instant::now();
                assert_eq!(queue.call(transfer(io::READ, 15 * ZONE, 1), &[]).data, data);
                times.push(since.elapsed());
            }
            times
        });
        Neighbour { has_to_end, thread }
    }

    /// Stops it, and checks its response times.
    fn end(self, beside: &str) {
        self.has_to_end.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().expect("the neighbour is served");
        times.sort();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!("beside {beside}: {} reads, median {median:?}, longest {longest:?}", times.len());
        assert!(median < MEDIAN_MAX && longest < LONGEST_MAX, "{median:?} {longest:?}");
    }
}

/// One sends nothing, one sends a byte now and then, one negotiates a connection and then stops.
#[test]
fn clients_without_a_queue_are_closed_in_bounded_time() {
    let _alone = alone();
    let server = serve(RAM);
    let address = server.address();
    let neighbour = Neighbour::start(address);
    let since = Instant::now();
    let mut silent = connect(address);
    let mut slow = connect(address);
    let mut granted = connect(address);
    granted.write_all(&icreq()).unwrap();
    granted.read_exact(&mut [0; 128]).unwrap();
    let drip = slow.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        let sent = |byte: &u8| {
            std::thread::sleep(Duration::from_millis(200));
            (&drip).write_all(&[*byte]).is_ok()
        };
        icreq().iter().take_while(|byte| sent(byte)).count()
    });
    for (name, stream) in [("silent", &mut silent), ("slow", &mut slow), ("granted", &mut granted)] {
        assert!(rest(stream).0.is_empty(), "{name}");
        let took = since.elapsed();
        println!("{name}: closed after {took:?}");
        let bound = CONNECT_MAX - Duration::from_millis(500)..CONNECT_MAX + SLACK;
        assert!(bound.contains(&took), "{name}: {took:?}");
    }
    drop((silent, slow, granted));
    assert!(drip.join().unwrap() < 128);
    neighbour.end("clients that do not connect");
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

/// It keeps sending, and reads late.
#[test]
fn client_that_sends_on_learns_why_it_ends() {
    let _alone = alone();
    let server = serve(RAM);
    for _ in 0..20 {
        let mut stream = connect(server.address());
        stream.write_all(&icreq()).unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(&[0xFF; 300_000]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let _ = stream.write_all(&[0xFF; 300_000]);
        let mut said = [0; 48];
        stream.read_exact(&mut said).unwrap();
        assert_eq!((said[0], said[8]), (3, term::HEADER_FIELD as u8));
    }
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

/// Impossible lengths, and ranges that were not requested.
#[test]
fn units_with_impossible_lengths_are_refused_at_once() {
    let _alone = alone();
    let server = serve(RAM);
    let before = resident();
    let capsule = |len: u32, offset: u8| {
        let mut bytes = vec![4, 0, 72, offset];
        bytes.extend(len.to_le_bytes());
        bytes.resize(72, 0);
        bytes
    };
    let data = |transfer: u16, offset: u32, len: u32| {
        let mut bytes = vec![6, 4, 24, 24];
        bytes.extend((24u32.wrapping_add(len)).to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(transfer.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.resize(24, 0);
        bytes
    };
    let cases = [
        (capsule(u32::MAX, 72), term::DATA_LIMIT),
        (capsule(72 + (1 << 20), 72), term::DATA_LIMIT),
        (capsule(72, 72), term::HEADER_FIELD),
        (capsule(73, 0), term::HEADER_FIELD),
        (capsule(100, 8), term::HEADER_FIELD),
        (data(0, 0, u32::MAX - 24), term::HEADER_FIELD),
        (data(u16::MAX, 0, 512), term::HEADER_FIELD),
    ];
    for (bytes, error) in cases {
        let mut stream = connect(server.address());
        stream.write_all(&icreq()).unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        stream.write_all(&bytes).unwrap();
        let (said, _) = rest(&mut stream);
        assert_eq!((said[0], u16::from_le_bytes([said[8], said[9]])), (3, error), "{bytes:?}");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more");
    end(server);
}

#[test]
fn wrong_digests_end_the_connection_or_the_command() {
    let _alone = alone();
    let server = serve(RAM);
    let digests = Digests { header: true, data: true };
    let admin = Queue::admin_over(Socket::connect(server.address()), digests, NQN);
    let mut queue = admin.io(1);
    let mut write = transfer(io::WRITE, 0, 1);
    write.data.kind = 1;
    let (number, mut bytes) = queue.capsule(write, &[7; 4096]);
    // The data arrives damaged: nothing is written, and the connection stays open.
    bytes[2000] ^= 1;
    queue.send(&bytes);
    assert_eq!(queue.wait(number).status, 0x22);
    assert_eq!(queue.call(write, &[7; 4096]).status, 0, "the pointer has not moved");
    let (_, mut bytes) = queue.capsule(write, &[7; 4096]);
    bytes[20] ^= 1;
    queue.send(&bytes);
    wait_until("its connection stays", || server.connections().len() == 1);
    queue.poll();
    assert_eq!(queue.terminated, Some(term::HEADER_DIGEST));
    drop((queue, admin));
    end(server);
}

/// Each requests 20 MiB and reads nothing, so each ties up the data of one command. Then half of
/// them violate the protocol, and half only shut down their side.
#[test]
fn clients_that_take_nothing_cost_bounded_memory_and_time() {
    const CLIENTS: usize = 24;
    let _alone = alone();
    let server = serve(NULL);
    let address = server.address();
    let before = resident();
    let admins: Vec<_> = (0..CLIENTS).map(|_| admin(address)).collect();
    let mut queues: Vec<_> = admins.iter().map(|admin| admin.io(1)).collect();
    for queue in &mut queues {
        let commands: Vec<u8> =
            (0..20).flat_map(|_| queue.capsule(transfer(io::READ, 0, 256), &[]).1).collect();
        queue.link.stream.write_all(&commands).unwrap();
    }
    wait_until("the server has all of it", || {
        server.connections().iter().filter(|connection| connection.unsent > 0).count() == CLIENTS
    });
    std::thread::sleep(Duration::from_secs(1));
    let grown = resident().saturating_sub(before);
    println!("{CLIENTS} clients that take nothing: {} KiB each", (grown / CLIENTS) >> 10);
    assert!(grown < CLIENTS * MEMORY_MAX / 2, "{grown} bytes");
    let neighbour = Neighbour::start(address);
    let ran = served();
    for (n, queue) in queues.iter_mut().enumerate() {
        match n % 2 {
            0 => queue.link.stream.write_all(&[0xFF; 64]).unwrap(),
            _ => queue.link.stream.shutdown(Shutdown::Write).unwrap(),
        }
    }
    let since = Instant::now();
    wait_until("their connections stay", || server.connections().len() <= CLIENTS + 2);
    let took = since.elapsed();
    println!("closed after {took:?}, for which the server ran {:?}", served() - ran);
    assert!(took < CLOSING_MAX + SLACK, "{took:?}");
    neighbour.end("clients that take nothing");
    drop((queues, admins));
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

/// Drive of 262,144 zones. The host requests a report of all of them in every queue entry, with a
/// buffer of 64 bytes.
#[test]
fn reports_of_many_zones_cost_bounded_memory() {
    let _alone = alone();
    let target = target("null:size=4T,zone_size=16M,complete=poll,blocksize=4096");
    let admin = Queue::admin(&target);
    let mut queue = admin.io(1);
    let mut report = sqe(io::ZONE_MANAGEMENT_RECEIVE, 1, [0, 0, 15, 0, 0, 0]);
    report.data.len = 64.into();
    assert_eq!(queue.call(report, &[]).data[..8], 262_144u64.to_le_bytes());
    let mut close_all = sqe(io::ZONE_MANAGEMENT_SEND, 1, [0, 0, 0, 1 | 1 << 8, 0, 0]);
    close_all.data.len = 0.into();
    let before = resident();
    let commands: Vec<u8> =
        (0..30).flat_map(|n| queue.capsule(if n < 20 { report } else { close_all }, &[]).1).collect();
    queue.link.connection.receive(Nanos(0), &commands);
    let mut most = 0;
    while queue.link.connection.in_flight() > 0 {
        target.volume().poll(Nanos(0));
        most = most.max(resident().saturating_sub(before));
        queue.link.connection.poll(Nanos(0));
    }
    println!("30 reports of 262144 zones: {} KiB at most", most >> 10);
    assert!(most < 64 << 20, "{most} bytes");
    assert_eq!(queue.link.connection.memory(), 0);
}

/// Unread input or the end of input on a connection that is over must not keep waking the server.
#[test]
fn connection_that_is_over_uses_no_processor() {
    let _alone = alone();
    let server = serve(NULL);
    let admin = admin(server.address());
    let mut queue = admin.io(1);
    let commands: Vec<u8> = (0..20).flat_map(|_| queue.capsule(transfer(io::READ, 0, 256), &[]).1).collect();
    queue.link.stream.write_all(&commands).unwrap();
    wait_until("the kernel takes all", || server.connections().iter().any(|c| c.unsent > 0));
    std::thread::sleep(Duration::from_millis(500));
    queue.link.stream.write_all(&[0xFF; 64]).unwrap();
    queue.link.stream.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let ran = served();
    std::thread::sleep(Duration::from_secs(1));
    let ran = served() - ran;
    assert!(ran < Duration::from_millis(100), "{ran:?} of a second");
    drop((queue, admin));
    end(server);
}

#[test]
fn flood_of_connections_keeps_no_host_waiting() {
    let _alone = alone();
    let server = serve(RAM);
    let address = server.address();
    let neighbour = Neighbour::start(address);
    let since = Instant::now();
    let mut held = Vec::new();
    for n in 0..3000u32 {
        let mut stream = TcpStream::connect(address).unwrap();
        match n % 4 {
            0 => held.push(stream),
            1 => drop(stream.write_all(&icreq())),
            2 => drop(stream.write_all(&[0xFF; 128])),
            _ => {}
        }
        if held.len() == 300 {
            held.clear();
        }
    }
    println!("3000 connections in {:?}", since.elapsed());
    neighbour.end("a flood of connections");
    drop(held);
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

#[test]
fn sixty_four_hosts_at_once_are_served() {
    const HOSTS: u32 = 64;
    let _alone = alone();
    let server = serve("ram:size=256M,zone_size=4M,complete=poll,blocksize=4096");
    let address = server.address();
    let since = Instant::now();
    std::thread::scope(|scope| {
        for host in 0..HOSTS {
            scope.spawn(move || {
                let admin = admin(address);
                let mut queue = admin.io(1);
                let data = |n: u32| vec![(host + n) as u8; 16384];
                for n in 0..50 {
                    let lba = host * ZONE + n * 4;
                    assert_eq!(queue.call(transfer(io::WRITE, lba, 4), &data(n)).status, 0);
                }
                for n in 0..50 {
                    let lba = host * ZONE + n * 4;
                    assert_eq!(queue.call(transfer(io::READ, lba, 4), &[]).data, data(n));
                }
            });
        }
    });
    let each = since.elapsed() / (HOSTS * 100);
    println!("64 hosts: {each:?} a command");
    assert!(each < Duration::from_millis(5), "{each:?}");
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

/// Device with a programming error.
struct Defective(Arc<dyn Device>);

impl Wrapper for Defective {
    fn inner(&self) -> &dyn Device {
        &*self.0
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        assert!(command.sector.0 < u64::from(8 * ZONE), "a defect, which this test wants");
        self.0.submit(now, queue, command, context)
    }
}

#[test]
fn server_ends_if_a_thread_panics() {
    let _alone = alone();
    let device = Defective(Registry::default().open(RAM).unwrap());
    let server = serve_target(target_of(Arc::new(device)));
    let admin = admin(server.address());
    let mut queue = admin.io(1);
    queue.submit(transfer(io::READ, 8 * ZONE, 1), &[]);
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(server.join()));
    let error = ended.recv_timeout(SLACK).expect("the server ends").unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

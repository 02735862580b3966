//! A served drive: rate of the target compared with its floor, cost of sleeping, and instructions
//! without sockets.
//!
//! The floor is the same server with the same loop, in which I/O commands succeed without accessing
//! the volume. The host is the queue of zonal-nvme, on sockets that it never sleeps on, with one
//! thread for all queues. Both sides use the congestion control `cubic` where the kernel has it, so
//! that pacing by the machine's default is not measured.

use super::Effort;
use super::instructions::Path;
use super::measure::{Case, Samples, interleave, time};
use super::path::null;
use super::report::{Bound, Report};
use rustix::net::sockopt::set_tcp_congestion;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_io::buffer::BufferPools;
use zonal_io::clock::Clock;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::identity::Identity;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_nvme::connection::Connection;
use zonal_nvme::host::{HostData, HostOptions, HostQueue};
use zonal_nvme::server::{Server, ServerOptions};
use zonal_nvme::subsystem::{Target, TargetOptions};
use zonal_nvme::wire::{Sqe, fabrics, io};

const BLOCK: u32 = 4096;
const DEPTH: u16 = 128;
/// Blocks of the conventional namespace.
const BLOCKS: u64 = 1 << 20;
const ORDINARY: u32 = 2;

/// Operations of an effort for one command over a socket.
const OPERATIONS_A_COMMAND: u64 = 20;
const IDLE_CONNECTIONS: u16 = 64;

/// Memory of a command, on a device that keeps no data.
enum Memory {
    Connect(Vec<u8>),
    Write,
    Read,
    None,
}

static ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];

impl HostData for Memory {
    fn send_len(&self) -> usize {
        match self {
            Memory::Connect(data) => data.len(),
            Memory::Write => BLOCK as usize,
            Memory::Read | Memory::None => 0,
        }
    }

    fn receive_len(&self) -> usize {
        if matches!(self, Memory::Read) { BLOCK as usize } else { 0 }
    }

    fn for_each(&self, range: Range<usize>, take: &mut dyn FnMut(&[u8])) {
        match self {
            Memory::Connect(data) => take(&data[range]),
            _ => take(&ZEROES[range]),
        }
    }

    fn put(&mut self, _: usize, _: &[u8]) {}
}

/// Creates a target with a drive that completes inline: 4 GiB of conventional zones, and as much of
/// sequential ones.
fn target(is_floor: bool) -> Arc<Target> {
    let options = EmulatedOptions::default()
        .with_size(2 * BLOCKS * u64::from(BLOCK))
        .with_zone_nr_conv(16)
        .with_blocksize(BLOCK);
    let volume_options = VolumeOptions::default().without_park().without_budget();
    let volume = Volume::open(null(options), volume_options).expect("an emulated device opens");
    let identity = Identity::from_bytes([7; 16]).expect("not nil");
    let options = TargetOptions::new(identity);
    let target = Target::new(Arc::new(volume), options).expect("the zones fit namespaces");
    Arc::new(if is_floor { target.baseline() } else { target })
}

/// Transport between the host and the target.
trait Wire {
    /// Moves pending bytes in both directions.
    fn turn(&mut self, queue: &mut HostQueue<Memory>);
}

/// A connection without a socket.
struct Direct {
    connection: Connection,
    target: Arc<Target>,
}

impl Wire for Direct {
    fn turn(&mut self, queue: &mut HostQueue<Memory>) {
        let Direct { connection, target } = self;
        while !queue.output().is_empty() {
            connection.receive(Nanos(0), queue.output());
            queue.has_sent(queue.output().len());
        }
        target.volume().poll(Nanos(0));
        connection.poll(Nanos(0));
        let output = connection.output();
        while !output.is_empty() {
            let mut sent = 0;
            for slice in output.slices() {
                queue.receive(&slice).expect("the target keeps to the protocol");
                sent += slice.len();
            }
            output.has_sent(sent);
        }
    }
}

struct Socket {
    stream: TcpStream,
    bytes: Box<[u8]>,
}

impl Socket {
    fn connect(address: SocketAddr) -> Socket {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        // A kernel without cubic keeps its default.
        let _ = set_tcp_congestion(&stream, "cubic");
        stream.set_nonblocking(true).expect("a socket");
        Socket { stream, bytes: vec![0; 256 << 10].into() }
    }
}

impl Wire for Socket {
    fn turn(&mut self, queue: &mut HostQueue<Memory>) {
        while !queue.output().is_empty() {
            match self.stream.write(queue.output()) {
                Ok(len) => queue.has_sent(len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        match self.stream.read(&mut self.bytes) {
            Ok(0) => panic!("the server has closed the connection"),
            Ok(len) => queue.receive(&self.bytes[..len]).expect("the server keeps to the protocol"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A queue of the host on its wire.
struct Queue<W> {
    wire: W,
    queue: HostQueue<Memory>,
    next: u64,
}

impl<W: Wire> Queue<W> {
    fn open(wire: W) -> Queue<W> {
        let mut queue = Queue { wire, queue: HostQueue::new(DEPTH, HostOptions::default()), next: 1 };
        while !queue.queue.is_open() {
            queue.wire.turn(&mut queue.queue);
        }
        queue
    }

    fn call(&mut self, command: Sqe, data: Memory) -> u64 {
        assert!(self.queue.submit(command, data).is_ok(), "the queue is empty");
        loop {
            self.wire.turn(&mut self.queue);
            if let Some(ended) = self.queue.next_ended() {
                assert!(ended.status.is_ok(), "{:?}", ended.status);
                return ended.result;
            }
        }
    }

    /// Connects queue `qid` (Base 6.3), without flow control of the submission queue.
    fn connect(&mut self, nqn: &str, qid: u16, controller: u16) -> u16 {
        let mut data = vec![0; 1024];
        data[..16].fill(9);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[512..530].copy_from_slice(b"nqn.2020-01.a:host");
        let cdw = [u32::from(qid) << 16, u32::from(DEPTH - 1) | 1 << 18, 0, 0, 0, 0];
        let command = Sqe::new(fabrics::OPCODE, fabrics::CONNECT.into(), cdw).with_capsule(1024);
        self.call(command, Memory::Connect(data)) as u16
    }

    /// Opens an admin queue, enables its controller, and returns both queue and number of the
    /// controller.
    fn admin(wire: W, nqn: &str) -> (Queue<W>, u16) {
        let mut admin = Queue::open(wire);
        let controller = admin.connect(nqn, 0, 0xFFFF);
        let cdw = [0, 0x14, 0x0046_0061, 0, 0, 0];
        admin.call(Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), cdw), Memory::None);
        (admin, controller)
    }

    fn send(&mut self, is_read: bool) {
        // Scattered over the namespace: the step has no common factor with the size.
        self.next = (self.next + 40_503) % BLOCKS;
        let cdw = [self.next as u32, 0, 0, 0, 0, 0];
        let sent = match is_read {
            true => self.queue.submit(Sqe::new(io::READ, ORDINARY, cdw).with_data(BLOCK), Memory::Read),
            false => self.queue.submit(Sqe::new(io::WRITE, ORDINARY, cdw).with_capsule(BLOCK), Memory::Write),
        };
        assert!(sent.is_ok(), "a queue takes its depth");
    }
}

/// Runs `count` commands, at queue depth `depth` on each queue.
fn run<W: Wire>(queues: &mut [Queue<W>], is_read: bool, depth: u16, count: u64) {
    let (mut sent, mut ended) = (0, 0);
    while ended < count {
        for queue in &mut *queues {
            while queue.queue.in_flight() < usize::from(depth) && sent < count {
                queue.send(is_read);
                sent += 1;
            }
            queue.wire.turn(&mut queue.queue);
            while let Some(end) = queue.queue.next_ended() {
                assert!(end.status.is_ok(), "{:?}", end.status);
                ended += 1;
            }
        }
    }
}

/// Counted paths of served commands: host and target, without sockets between them.
pub const PATHS: [Path; 2] =
    [("served-read", |n| without_sockets(true, n)), ("served-write", |n| without_sockets(false, n))];

/// Runs `count` commands of 4 KiB through a connection without a socket at queue depth 16, to count
/// their instructions.
fn without_sockets(is_read: bool, count: u64) {
    let target = target(false);
    let pools = Rc::new(BufferPools::new());
    let wire = || {
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        Direct { connection: Connection::new(target.clone(), address, pools.clone()), target: target.clone() }
    };
    let (_admin, controller) = Queue::admin(wire(), target.nqn());
    let mut queue = Queue::open(wire());
    queue.connect(target.nqn(), 1, controller);
    run(&mut [queue], is_read, 16, count);
}

/// A server with one thread, and the queues of its only host.
struct Served {
    server: Option<Server>,
    queues: Vec<Queue<Socket>>,
    _admin: Queue<Socket>,
}

impl Served {
    fn start(is_floor: bool, polls: bool, queues: u16) -> Served {
        let target = target(is_floor);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let _ = set_tcp_congestion(&listener, "cubic");
        let options = ServerOptions::default().with_threads(1).with_polls(polls);
        let has_to_end = Arc::new(AtomicBool::new(false));
        let server = Server::start(target.clone(), listener, Clock::start(), options, has_to_end);
        let server = server.expect("a thread");
        let (admin, controller) = Queue::admin(Socket::connect(server.address()), target.nqn());
        let connect = |qid| {
            let mut queue = Queue::open(Socket::connect(server.address()));
            queue.connect(target.nqn(), qid, controller);
            queue
        };
        Served { queues: (1..=queues).map(connect).collect(), _admin: admin, server: Some(server) }
    }

    /// Nanoseconds per command, at queue depth `depth` over all queues together.
    fn time(&mut self, is_read: bool, depth: u16, count: u64) -> f64 {
        let each = (depth / self.queues.len() as u16).max(1);
        time(count, || run(&mut self.queues, is_read, each, count))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.queues.clear();
        if let Some(server) = self.server.take() {
            server.end();
            server.join().expect("the server ends as it should");
        }
    }
}

/// Measures all rows.
pub(super) fn rows(effort: Effort, report: &mut Report) {
    let count = (effort.operations / OPERATIONS_A_COMMAND).max(500);
    for queues in [1, 16] {
        for is_read in [true, false] {
            beside_floor(effort, report, queues, is_read, count);
        }
    }
    sleeping(effort, report, count / 5);
    idle(effort, report);
}

/// One server at a time: each polls on a core of its own.
fn beside_floor(effort: Effort, report: &mut Report, queues: u16, is_read: bool, count: u64) {
    let round = |is_floor| move || Served::start(is_floor, true, queues).time(is_read, DEPTH, count);
    let mut cases = [Case::new("floor", round(true)), Case::new("volume", round(false))];
    let samples = interleave(effort.rounds, &mut cases);
    let [floor, volume] = &samples[..] else { unreachable!("two cases") };
    let what = if is_read { "reads" } else { "writes" };
    let rate = Samples { rounds: volume.rounds.iter().map(|ns| 1e6 / ns).collect() };
    report.add(
        &format!("served {what} of 4 KiB, depth 128, queues: {queues}"),
        "",
        &rate,
        "k/s",
        Bound::None,
    );
    let share = floor.against(volume, |floor, volume| floor / volume);
    report.add("  their rate", "the same loop without a device", &share, "x", Bound::AtLeast(0.85));
}

fn sleeping(effort: Effort, report: &mut Report, count: u64) {
    let round = |polls| move || Served::start(false, polls, 1).time(true, 1, count);
    let mut cases = [Case::new("polling", round(true)), Case::new("sleeping", round(false))];
    let samples = interleave(effort.rounds, &mut cases);
    let [polling, sleeping] = &samples[..] else { unreachable!("two cases") };
    let polling_us = Samples { rounds: polling.rounds.iter().map(|ns| ns / 1e3).collect() };
    let added = sleeping.against(polling, |sleeping, polling| ((sleeping - polling) / 1e3).max(0.01));
    report.add("served reads of 4 KiB, depth 1, --poll", "", &polling_us, "us", Bound::None);
    report.add("  more without --poll", "--poll", &added, "us", Bound::AtMost(12.0));
}

/// Processor time of the servers' threads.
fn served_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ran = |path: std::path::PathBuf| -> Option<u64> {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        name.starts_with("nvme-tcp-").then(|| stat.split(' ').next()?.parse().ok())?
    };
    Duration::from_nanos(tasks.filter_map(|task| ran(task.path())).sum())
}

fn idle(effort: Effort, report: &mut Report) {
    let mut served = Served::start(false, false, IDLE_CONNECTIONS);
    run(&mut served.queues, true, 1, u64::from(IDLE_CONNECTIONS) * 4);
    let sleep = Duration::from_secs(10).min(Duration::from_millis(effort.operations / 100));
    let (since, before) = (Instant::now(), served_time());
    std::thread::sleep(sleep);
    let ran = served_time().saturating_sub(before).max(Duration::from_nanos(1));
    let share = 100.0 * ran.as_secs_f64() / since.elapsed().as_secs_f64();
    let name = format!("a server with {IDLE_CONNECTIONS} idle connections");
    report.add_one(&name, "", share, "% of a core", Bound::AtMost(1.0));
}

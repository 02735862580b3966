//! Server tests from the client side of its sockets.

use crate::host::{Digests, End, NQN, Queue, Socket, sqe, target};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use zonal_io::clock::Clock;
use zonal_nvme::server::{Server, ServerOptions};
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{Sgl, Sqe, admin, io};

const RAM: &str = "ram:size=64M,zone_size=4M,complete=poll,blocksize=4096";
const ZONE: u32 = 1024;
const BLOCK: u32 = 4096;

fn serve_with(target: &Arc<Target>, options: ServerOptions) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let has_to_end = Arc::new(AtomicBool::new(false));
    Server::start(target.clone(), listener, Clock::start(), options, has_to_end).unwrap()
}

fn serve(device: &str) -> Server {
    serve_with(&target(device), ServerOptions::default().with_threads(2).with_polls(false))
}

fn admin(address: SocketAddr) -> Queue<Socket> {
    Queue::admin_over(Socket::connect(address), Digests::default(), NQN)
}

fn transfer(opcode: u8, lba: u32, blocks: u32) -> Sqe {
    let mut command = sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * BLOCK).into();
    command
}

fn payload(lba: u32, blocks: u32) -> Vec<u8> {
    (0..blocks * BLOCK).map(|n| (n / 11 + lba * 3) as u8).collect()
}

/// Waits for a condition set by another thread.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn end(server: Server) {
    server.end();
    server.join().unwrap();
}

#[test]
fn hosts_with_several_queues_read_back_written_data() {
    for polls in [false, true] {
        let server = serve_with(&target(RAM), ServerOptions::default().with_threads(2).with_polls(polls));
        let address = server.address();
        std::thread::scope(|scope| {
            for host in 0..3u32 {
                scope.spawn(move || {
                    let admin = admin(address);
                    let mut queues = [admin.io(1), admin.io(2)];
                    for n in 0..40 {
                        for (queue, zone) in queues.iter_mut().zip(host * 2..) {
                            let lba = zone * ZONE + n * 17;
                            let end = queue.call(transfer(io::WRITE, lba, 17), &payload(lba, 17));
                            assert_eq!(end, End::default());
                            assert_eq!(queue.call(transfer(io::READ, lba, 17), &[]).data, payload(lba, 17));
                        }
                    }
                });
            }
        });
        wait_until("connections stay", || server.connections().is_empty());
        end(server);
    }
}

/// Commands at the device are answered at shutdown; commands waiting for data from their host are
/// not waited for.
#[test]
fn server_shutdown_completes_commands_at_the_device() {
    let server = serve("ram:size=64M,zone_size=4M,blocksize=4096,completion_nsec=400000000");
    let address = server.address();
    let admin = admin(address);
    let mut queue = admin.io(1);
    let write = |zone| {
        let mut command = transfer(io::WRITE, zone * ZONE, 1);
        command.data.kind = Sgl::IN_CAPSULE;
        command
    };
    let commands: Vec<u16> = (0..8).map(|zone| queue.submit(write(zone), &payload(zone, 1))).collect();
    let unfinished = queue.submit(transfer(io::WRITE, 9 * ZONE, 1), &payload(9, 1));
    wait_until("the server has them", || server.connections().iter().any(|c| c.in_flight == 9));
    let since = Instant::now();
    end(server);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    for cid in commands {
        assert_eq!(queue.wait(cid).status, 0);
    }
    assert_eq!(queue.end(unfinished), None);
    assert!(TcpStream::connect(address).is_err(), "nothing listens there now");
}

/// The admin queue and the command's queue are on two sleeping threads. The device completes
/// nothing meanwhile.
#[test]
fn abort_reaches_a_queue_on_another_thread() {
    let server = serve("ram:size=64M,zone_size=4M,blocksize=4096,completion_nsec=20000000000");
    let mut admin = admin(server.address());
    let mut queue = admin.io(1);
    let write = |lba| {
        let mut command = transfer(io::WRITE, lba, 1);
        command.data.kind = Sgl::IN_CAPSULE;
        command
    };
    let commands: Vec<u16> = (0..4).map(|lba| queue.submit(write(lba), &payload(lba, 1))).collect();
    wait_until("the server has them", || server.connections().iter().any(|c| c.in_flight == 4));
    let since = Instant::now();
    for victim in &commands[1..] {
        let asked = sqe(admin::ABORT, 0, [1 | u32::from(*victim) << 16, 0, 0, 0, 0, 0]);
        assert_eq!(admin.call(asked, &[]), End::default(), "it was aborted");
        assert_eq!(queue.wait(*victim).status, 0x4007);
    }
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!(queue.end(commands[0]), None, "it is at the device");
    // The server does not wait for the device.
    server.end();
}

/// The client does not read its pending output.
#[test]
fn server_that_ends_does_not_wait_for_a_client() {
    let server = serve("null:size=64M,zone_size=4M,blocksize=4096,complete=poll");
    let admin = admin(server.address());
    let mut queue = admin.io(1);
    let read = queue.with_room(transfer(io::READ, 0, 256), 1 << 20);
    let _unanswered: Vec<u16> = (0..31).map(|_| queue.submit(read, &[])).collect();
    wait_until("the kernel takes no more", || server.connections().iter().any(|c| c.unsent > 0));
    let since = Instant::now();
    end(server);
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
}

/// Connections that are silent, stop within a header, or send too much do not delay others.
#[test]
fn clients_that_misbehave_keep_no_other_waiting() {
    let server = serve(RAM);
    let address = server.address();
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(&[0, 0, 128, 0, 128]).unwrap();
    let mut wrong = TcpStream::connect(address).unwrap();
    wrong.write_all(&[0xFF; 4096]).unwrap();
    wrong.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut said = Vec::new();
    match wrong.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let admin = admin(address);
    let mut queue = admin.io(1);
    for n in 0..100 {
        assert_eq!(queue.call(transfer(io::WRITE, n, 1), &payload(n, 1)).status, 0);
    }
    drop((silent, slow, queue, admin));
    wait_until("connections stay", || server.connections().is_empty());
    end(server);
}

/// Timer of a socket in `/proc/net/tcp`: its kind, and the time left in hundredths of a second.
fn timer(local: SocketAddr, remote: SocketAddr) -> Option<(u8, u64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |column: &str| u16::from_str_radix(column.split(':').nth(1)?, 16).ok();
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ports = (port(columns.get(1)?)?, port(columns.get(2)?)?);
        let (kind, left) = columns.get(5)?.split_once(':')?;
        let timer = (kind.parse().ok()?, u64::from_str_radix(left, 16).ok()?);
        (ports == (local.port(), remote.port())).then_some(timer)
    })
}

/// A vanished machine closes nothing. The kernel probes it, even for a host without a keep alive
/// timeout.
#[test]
fn vanished_host_is_probed_by_tcp_keepalive() {
    const KEEP_ALIVE: u8 = 2;
    let server = serve(RAM);
    let host = TcpStream::connect(server.address()).unwrap();
    let own = host.local_addr().unwrap();
    let asks =
        || timer(server.address(), own).is_some_and(|(kind, left)| kind == KEEP_ALIVE && left <= 60_00);
    wait_until("no timer runs", asks);
    end(server);
}

//! `zonal serve` as a program: its output, its exit, and its refusals. Its protocol is tested in
//! zonal-nvme, and with Linux hosts in `tests/guest`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::served::{Fronts, PATIENCE, Served};
use zonal_check::program::{ThreadLimit, command, run, run_limited};
use zonal_core::{DeviceError, Op, RequestError, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::device::Command as DeviceCommand;
use zonal_io::registry::Registry;
use zonal_io::volume::{DeviceEvent, Request, Volume, VolumeOptions, run_alone};

const USAGE: i32 = 2;
const DEVICE: i32 = 4;
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

/// A directory with an image `d` of both kinds of zones.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &format!("create d --size 64M --zone-size 4M --zone-nr-conv 2 --uuid {UUID}")).done();
    dir
}

#[test]
fn serve_prints_one_line_and_exits_with_0_on_a_signal() {
    let dir = drive();
    for signal in ["-TERM", "-INT"] {
        let served = Served::start(dir.path(), "d");
        assert_eq!(served.nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
        assert_eq!(served.namespaces, "nsid=1:zoned,nsid=2:conventional");
        assert!(served.address.ip().is_loopback() && served.address.port() > 0);
        // A silent host does not delay the exit.
        let silent = TcpStream::connect(served.address).unwrap();
        served.signal(signal);
        assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
        drop(silent);
    }
}

#[test]
fn device_without_identity_is_given_one_or_takes_that_of_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(dir.path(), &format!("null:size=64M,zone_size=4M --uuid {UUID}"));
    assert_eq!(served.nqn, format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}"));
    assert_eq!(served.namespaces, "nsid=1:zoned");
    served.signal("-TERM");
    assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
    let nqns = [0, 1].map(|_| {
        let served = Served::start(dir.path(), "null:size=64M,zone_size=4M");
        let nqn = served.nqn.clone();
        let uuid = nqn.rsplit(':').next().unwrap().to_owned();
        served.signal("-TERM");
        let (code, _, err) = served.wait();
        assert_eq!(code, Some(0));
        assert!(err.contains(&format!("--uuid={uuid}")) && err.lines().count() == 1, "{err}");
        nqn
    });
    assert_ne!(nqns[0], nqns[1]);
    let served = Served::start(dir.path(), "null:size=64M,zone_size=4M --nqn nqn.2020-01.example:d");
    assert_eq!(served.nqn, "nqn.2020-01.example:d");
}

#[test]
fn scsi_disk_socket_is_private_and_removed_with_the_server() {
    let dir = drive();
    let socket = dir.path().join("s");
    // A killed server leaves its socket, which the next one replaces.
    drop(UnixListener::bind(&socket).unwrap());
    let served = Fronts::start(dir.path(), "d --vhost-user-scsi s", 1);
    assert_eq!(served.ready, ["ready vhost-user-scsi s"]);
    let meta = socket.symlink_metadata().unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    // A socket in use is not replaced.
    let said = run(dir.path(), &format!("serve ram:size=64M,zone_size=4M --uuid {UUID} --vhost-user-scsi s"));
    let said = said.refused(1);
    assert!(said.contains("a process listens there"), "{said}");
    assert!(UnixStream::connect(&socket).is_ok(), "the first one listens");
    assert_eq!(served.terminate(), Some(0));
    assert!(!socket.exists());

    fs::write(&socket, "data").unwrap();
    let said = run(dir.path(), "serve d --vhost-user-scsi s").refused(1);
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(fs::read(&socket).unwrap(), b"data");
}

/// The ready line goes to a pipe without a reader.
#[test]
fn server_that_cannot_say_that_it_is_ready_leaves_nothing() {
    let dir = drive();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(dir.path(), "serve d --vhost-user-scsi s --listen 127.0.0.1:0");
    let ended = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    // Exit code of a process killed by SIGPIPE.
    assert_eq!(ended.status.code(), Some(128 + 13), "{ended:?}");
    assert!(!dir.path().join("s").exists(), "its socket");
}

/// The threads for hosts start, but the later one for the control socket does not.
#[test]
fn server_without_a_thread_for_its_control_socket_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let user = 55_000 + std::process::id() % 5_000;
    let threads = 1 + std::thread::available_parallelism().unwrap().get() as u32;
    let line = "serve null:size=64M,zone_size=4M --listen 127.0.0.1:0";
    let said = run_limited(dir.path(), line, ThreadLimit { user, threads });
    assert_eq!((said.code, said.out.as_slice()), (Some(1), &b""[..]), "{said:?}");
    assert!(
        said.err.contains(".sock: cannot start a thread: ") && said.err.contains("`ulimit -u`"),
        "{said:?}"
    );
}

#[test]
fn fronts_are_combined_with_a_line_each() {
    let dir = drive();
    let served = Fronts::start(dir.path(), "d --vhost-user-scsi s --listen 127.0.0.1:0", 2);
    assert!(served.ready[0].starts_with("ready nvme-tcp 127.0.0.1:"), "{:?}", served.ready);
    assert_eq!(served.ready[1], "ready vhost-user-scsi s");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn listen_takes_a_name_and_the_line_to_attach_is_printed() {
    let dir = drive();
    let served = Fronts::start(dir.path(), "d --listen localhost:0", 2);
    let words: Vec<&str> = served.ready[0].split(' ').collect();
    let (address, nqn) = (words[2], words[3]);
    let (ip, port) = address.rsplit_once(':').unwrap();
    assert_eq!(
        served.ready[1],
        format!("nvme connect --transport tcp --traddr {ip} --trsvcid {port} --nqn {nqn}")
    );
    assert_eq!(ip, "127.0.0.1");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn impossible_serve_commands_are_refused_in_one_line() {
    let dir = drive();
    let refused = |line: &str, code| run(dir.path(), &format!("serve {line}")).refused(code);
    for address in ["0.0.0.0:0", "192.0.2.1:4420", "[::]:0", "localhost"] {
        let said = refused(&format!("d --listen {address}"), USAGE);
        assert!(said.contains("not an address"), "{said}");
    }
    let said = refused("sim:smr-hdd-30t --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains("virtual time") && said.contains("timing:"), "{said}");
    let said = refused("absent --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains("absent"), "{said}");
    let said = refused("d --listen 127.0.0.1:0 --nqn nonsense", USAGE);
    assert!(said.contains("nonsense"), "{said}");
    let served = Served::start(dir.path(), "d");
    let said = refused(&format!("null: --uuid {UUID} --listen {}", served.address), 1);
    assert!(said.contains(&served.address.to_string()), "{said}");
    let said = refused("d --listen 127.0.0.1:0", DEVICE);
    assert!(said.contains(&served.child.id().to_string()), "the image is in use: {said}");
}

/// A second signal exits at once, without waiting for a slow device.
#[test]
fn second_signal_ends_a_server_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        // A write takes a minute.
        let device = "null:size=64M,zone_size=4M,blocksize=4096,completion_nsec=60000000000";
        let served = Served::start(dir.path(), &format!("{device} --uuid {UUID}"));
        let mut admin = Host::connect(&served, 0);
        let mut queue = Host::connect(&served, admin.controller);
        queue.write();
        let says = || String::from_utf8(run(dir.path(), &format!("stat {device}")).done()).unwrap();
        let since = Instant::now();
        while !says().contains("queue 1 of nqn.2020-01.example:host: 1 commands") {
            assert!(since.elapsed() < PATIENCE, "{}", says());
        }
        served.signal(signal);
        std::thread::sleep(Duration::from_millis(300));
        let since = Instant::now();
        served.signal(signal);
        let (code, out, _) = served.wait();
        assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        assert!(code != Some(0) && out.is_empty(), "{code:?} {out}");
        admin.is_closed();
    }
}

#[test]
fn name_of_an_image_is_the_same_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "create d --size 64M --zone-size 4M").done();
    let names = [0, 1].map(|_| {
        let served = Served::start(dir.path(), "d");
        let name = served.nqn.clone();
        served.signal("-TERM");
        assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
        name
    });
    assert_eq!(names[0], names[1]);
    let info = String::from_utf8(run(dir.path(), "info d --json").done()).unwrap();
    let uuid = names[0].rsplit(':').next().unwrap();
    assert!(info.contains(uuid), "{info}");
}

#[test]
fn default_address_is_the_port_of_the_standard() {
    let dir = drive();
    let help = String::from_utf8(run(dir.path(), "serve --help").done()).unwrap();
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[default: 127.0.0.1:4420 without another front, otherwise none]"), "{help}");
}

#[test]
fn command_line_sets_read_only_export_and_write_mode() {
    let dir = drive();
    let served = Served::start(dir.path(), "d --read-only --write-mode direct");
    let mode = String::from_utf8(run(dir.path(), "mode d").done()).unwrap();
    assert!(mode.contains("direct"), "{mode}");
    let mut admin = Host::connect(&served, 0);
    let mut queue = Host::connect(&served, admin.controller);
    queue.write();
    assert_eq!(queue.status(), 0x4020, "write protected");
    admin.is_open();
}

#[test]
fn polling_server_serves_and_ends_like_others() {
    let dir = drive();
    let served = Served::start(dir.path(), "d --poll");
    let mut admin = Host::connect(&served, 0);
    let mut queue = Host::connect(&served, admin.controller);
    queue.write();
    assert_eq!(queue.status(), 0);
    admin.is_open();
    served.signal("-TERM");
    assert_eq!(served.wait(), (Some(0), String::new(), String::new()));
}

/// Minimal connection of a host (Base 6.3, TCP 3.6.2.2).
struct Host {
    stream: TcpStream,
    controller: u16,
}

impl Host {
    /// Connects a queue: the admin queue of a new controller for 0, otherwise queue 1 of this one.
    fn connect(served: &Served, controller: u16) -> Host {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = [0; 128];
        (request[2], request[4]) = (128, 128);
        stream.write_all(&request).unwrap();
        stream.read_exact(&mut [0; 128]).unwrap();
        let mut host = Host { stream, controller };
        let is_admin = controller == 0;
        let mut data = vec![0; 1024];
        let id = if is_admin { 0xFFFF } else { controller };
        data[16..18].copy_from_slice(&id.to_le_bytes());
        data[256..256 + served.nqn.len()].copy_from_slice(served.nqn.as_bytes());
        data[512..512 + 24].copy_from_slice(b"nqn.2020-01.example:host");
        host.send(0x7F, 1, [u32::from(!is_admin) << 16, 31, 0, 0], &data);
        let (status, result) = host.receive();
        assert_eq!(status, 0);
        host.controller = result as u16;
        if is_admin {
            host.send(0x7F, 0, [0, 0x14, 0x0046_0061, 0], &[]);
            assert_eq!(host.receive().0, 0);
        }
        host
    }

    fn send(&mut self, opcode: u8, nsid: u32, dwords: [u32; 4], data: &[u8]) {
        let mut unit = vec![0; 72];
        (unit[0], unit[2], unit[3]) = (4, 72, if data.is_empty() { 0 } else { 72 });
        unit[4..8].copy_from_slice(&(72 + data.len() as u32).to_le_bytes());
        (unit[8], unit[9]) = (opcode, 0x40);
        unit[12..16].copy_from_slice(&nsid.to_le_bytes());
        unit[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
        unit[47] = if data.is_empty() { 0x5A } else { 0x01 };
        for (n, dword) in dwords.into_iter().enumerate() {
            unit[48 + 4 * n..][..4].copy_from_slice(&dword.to_le_bytes());
        }
        unit.extend_from_slice(data);
        self.stream.write_all(&unit).unwrap();
    }

    /// Status and result of the next completion.
    fn receive(&mut self) -> (u16, u64) {
        let mut unit = [0; 24];
        self.stream.read_exact(&mut unit).unwrap();
        assert_eq!(unit[0], 5, "a completion");
        let status = u16::from_le_bytes([unit[22], unit[23]]) >> 1;
        (status, u64::from_le_bytes(unit[8..16].try_into().unwrap()))
    }

    fn status(&mut self) -> u16 {
        self.receive().0
    }

    /// Sends a write of a block of 4 KiB to block 0.
    fn write(&mut self) {
        self.send(0x01, 1, [0; 4], &[7; 4096]);
    }

    fn is_open(&mut self) {
        self.send(0x18, 0, [0; 4], &[]);
        assert_eq!(self.status(), 0);
    }

    fn is_closed(&mut self) {
        assert!(matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}

#[test]
fn stat_shows_connections_and_their_queues() {
    let dir = drive();
    let served = Served::start(dir.path(), "d");
    let stat =
        |options: &str| String::from_utf8(run(dir.path(), &format!("stat d{options}")).done()).unwrap();
    assert!(stat("").contains("connections    0\n"), "{}", stat(""));
    let silent = TcpStream::connect(served.address).unwrap();
    let mut admin = Host::connect(&served, 0);
    let mut queue = Host::connect(&served, admin.controller);
    queue.write();
    assert_eq!(queue.status(), 0);
    admin.is_open();
    let (text, number) = (stat(""), admin.controller);
    for line in [
        "connections    3\n".to_owned(),
        "  not connected to a queue: 0 commands, 0 bytes to send\n".to_owned(),
        format!("  controller {number} queue 0 of nqn.2020-01.example:host: 0 commands, 0 bytes to send\n"),
        format!("  controller {number} queue 1 of nqn.2020-01.example:host: 0 commands, 0 bytes to send\n"),
    ] {
        assert!(text.contains(&line), "{line}{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&stat(" --json")).unwrap();
    assert_eq!(json["connections"][2]["queue"], 1);
    assert_eq!(json["connections"][2]["host"], "nqn.2020-01.example:host");
    assert!(json["counters"]["requests"].as_u64() > Some(0), "{json}");
    assert!(
        stat(" --metrics").contains("zonal_connections{device=\"image:d\"} 3\n"),
        "{}",
        stat(" --metrics")
    );
    drop((silent, queue, admin));
    let since = Instant::now();
    while !stat("").contains("connections    0\n") {
        assert!(since.elapsed() < PATIENCE);
    }
}

#[test]
fn served_device_is_looked_into_by_other_commands() {
    let dir = drive();
    let served = Served::start(dir.path(), "d");
    for line in ["stat d --json", "plugs d", "info d", "mode d"] {
        let said = run(dir.path(), line);
        assert_eq!(said.code, Some(0), "{line}: {}", said.err);
    }
    let mode = String::from_utf8(run(dir.path(), "mode d --set qd1").done()).unwrap();
    assert!(mode.contains("qd1"), "{mode}");
    let info = String::from_utf8(run(dir.path(), "info d").done()).unwrap();
    assert!(info.contains(UUID) && info.contains("write mode             qd1: "), "{info}");
    served.signal("-TERM");
    assert_eq!(served.wait().0, Some(0));
}

/// The command in a process with a limit on descriptors.
fn with_descriptors(command: &Command, number: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -n {number}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(command.get_current_dir().expect("a directory"));
    limited
}

/// Processor time of a process.
fn ran(process: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let ran = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(tasks.map(ran).sum())
}

/// Sends an initialization request. True if the server answers it, false if it has closed the
/// connection.
fn is_granted(mut stream: &TcpStream) -> bool {
    let mut request = [0; 128];
    (request[2], request[4]) = (128, 128);
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let _ = stream.write_all(&request);
    stream.read_exact(&mut [0; 128]).is_ok()
}

/// With 128 descriptors the server's own limit of 64 connections applies. With 24 the kernel
/// refuses some before that.
#[test]
#[ignore = "it measures processor time, and waits for replies that do not come"]
fn excess_connections_are_refused() {
    for (descriptors, most) in [(128, 64), (24, 16)] {
        let dir = tempfile::tempdir().unwrap();
        let line = format!("serve null:size=64M,zone_size=4M --uuid {UUID} --listen 127.0.0.1:0");
        let served = Served::start_as(with_descriptors(&command(dir.path(), &line), descriptors), "null:");
        let streams: Vec<_> = (0..100).map(|_| TcpStream::connect(served.address).unwrap()).collect();
        let granted: Vec<bool> = streams.iter().take(most + 10).map(is_granted).collect();
        let number = granted.iter().filter(|granted| **granted).count();
        assert!(number >= 8 && number <= most, "{number} of {granted:?}");
        let before = ran(served.child.id());
        std::thread::sleep(Duration::from_secs(1));
        let ran = ran(served.child.id()) - before;
        assert!(ran < Duration::from_millis(100), "{ran:?} of a second");
        drop(streams);
        let deadline = Instant::now() + PATIENCE;
        while !is_granted(&TcpStream::connect(served.address).unwrap()) {
            assert!(Instant::now() < deadline, "it takes no new ones");
        }
        served.signal("-TERM");
        assert_eq!(served.wait().0, Some(0));
    }
}

#[test]
fn served_drive_is_a_device_of_the_other_commands() {
    let dir = drive();
    let served = Served::start(dir.path(), "d");
    let device = served.device();
    let done = |line: &str| String::from_utf8(run(dir.path(), line).done()).unwrap();
    let info = done(&format!("info {device}"));
    assert!(info.contains(UUID) && info.contains("14, of which 0 conventional"), "{info}");
    done(&format!("finish {device} --offset 0 --count 2"));
    let zones = done(&format!("report {device}"));
    assert_eq!((zones.lines().count(), zones.matches("(fu)").count()), (14, 2), "{zones}");
    done(&format!("reset {device} --all"));
    assert_eq!(done(&format!("report {device}")).matches("(em)").count(), 14);
    assert!(done(&format!("info {device},nsid=2")).contains("1, of which 1 conventional"));
    let said = run(dir.path(), &format!("info {device},nsid=3")).refused(DEVICE);
    assert!(said.contains("there is no namespace 3"), "{said}");
}

/// Writes inside and outside of capsules, on several queues, read back by the benchmark.
#[test]
fn random_load_on_a_served_drive_is_verified() {
    let dir = drive();
    for (served_with, options) in [("", ",submit_queues=2"), ("--poll", ",header_digest=1,data_digest=1")] {
        let served = Served::start(dir.path(), &format!("d {served_with}"));
        let device = served.device() + options;
        let load = "--randseed=7 --rw=randwrite --zonemode=zbd --verify=crc32c --iodepth=16 --io_size=8M";
        let jobs = "--name=short --bs=4k --size=6z --name=long --bs=64k --offset=6z --size=6z";
        let said = run(dir.path(), &format!("bench --device {device} {load} {jobs}"));
        let out = String::from_utf8(said.out).unwrap();
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{out}");
        assert!(out.contains("read back, 0 bad"), "{out}");
    }
}

/// After the server is killed, commands in flight end, and so do all later ones.
#[test]
fn commands_in_flight_at_a_killed_server_have_an_unknown_fate() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "null:size=64M,zone_size=4M,completion_nsec=1500000000";
    let mut served = Served::start(dir.path(), &format!("{slow} --uuid {UUID}"));
    let mut registry = Registry::default();
    zonal_nvme::host::register(&mut registry);
    let device = registry.open(&(served.device() + ",submit_queues=2")).unwrap();
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    let events = volume.events();
    let clock = Clock::start();
    let inbox = volume.inbox();
    for zone in 0..4u64 {
        let buf = IoBuf::zeroed(4096);
        volume.submit(clock.now(), inbox.channel(), Request::write(Sector(zone * 8192), 8, buf));
    }
    volume.poll(clock.now());
    served.child.kill().unwrap();
    let since = Instant::now();
    let mut ends = Vec::new();
    while ends.len() < 4 {
        assert!(since.elapsed() < PATIENCE, "{} have ended", ends.len());
        volume.poll(clock.now());
        ends.extend(std::iter::from_fn(|| inbox.take()));
        volume.wait(Duration::from_millis(1));
    }
    for end in ends {
        let error = end.result.unwrap_err();
        assert!(matches!(error, RequestError::FateUnknown { error: DeviceError::Gone, .. }), "{error:?}");
    }
    let run = |op| run_alone(&*device, &DeviceCommand::new(op, Sector(0), 1));
    for op in [Op::Flush, Op::ZoneReset, Op::Report] {
        assert_eq!(run(op), Err(DeviceError::Gone), "{op:?}");
    }
    assert_eq!(events.next(), Some(DeviceEvent::Gone));
}

use super::client::list_in;
use super::place::{SocketState, file_name, pid_of, private_directory, probe};
use super::server::StatusSources;
use super::*;
use crate::buffer::IoBuf;
use crate::device::Device;
use crate::emulated::{Emulated, EmulatedOptions, Null};
use crate::sync::Arc;
use crate::volume::{Condition, DeviceEvent, Request, Volume, VolumeOptions, WriteMode};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zonal_core::{Nanos, Sector, ZoneCondition, ZoneIndex};

const ZONE_SECTORS: u64 = 2048;

/// Volume on a null device of 16 zones, the first two conventional.
fn volume() -> Arc<Volume> {
    let options =
        EmulatedOptions { size: 16 << 20, zone_size: 1 << 20, zone_nr_conv: 2, ..Default::default() };
    let device: Arc<dyn Device> = Arc::new(Emulated::new("null:size=16M", &options, Null).unwrap());
    Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())
}

fn write(volume: &Volume, zone: u64, sectors: u32) {
    let channel = volume.channel(|c| assert!(c.result.is_ok(), "{:?}", c.result));
    let request = Request::write(Sector(zone * ZONE_SECTORS), sectors, IoBuf::zeroed(sectors * 512));
    volume.submit(Nanos(0), &channel, request);
}

/// Sends these bytes and returns the answers line by line until the socket closes.
fn say(path: &Path, bytes: &[u8]) -> Vec<String> {
    let mut stream = UnixStream::connect(path).unwrap();
    // The server may close the connection while the flood is still being sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    BufReader::new(stream).lines().map_while(Result::ok).collect()
}

#[test]
fn plugs_of_written_zones_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    write(&volume, 3, 8);
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    let plugs = plugs(server.path()).unwrap();
    assert_eq!(plugs, volume.plugs());
    assert_eq!(plugs.len(), 1);
    assert_eq!((plugs[0].zone, plugs[0].write_pointer, plugs[0].condition), (3, 8, Condition::Active));
    assert_eq!(
        plugs[0].to_string(),
        "Zone no: 3, flags: 0x0, ref: 1, cond: ACTIVE, wp ofst: 8, pending BIO: 0"
    );
}

#[test]
fn stat_and_info_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    write(&volume, 3, 8);
    let counted = stat(server.path()).unwrap();
    assert_eq!((counted.requests, counted.sectors), (1, 8));
    let facts = info(server.path()).unwrap();
    assert_eq!(facts, VolumeFacts::of(&volume));
    assert_eq!(facts.device.name, "null:size=16M");
    assert_eq!((facts.mode.as_str(), facts.pid), ("append", std::process::id()));
    assert_eq!((facts.device.zones, facts.device.zone_nr_conv, facts.device.zone_size), (16, 2, 1 << 20));
}

#[test]
fn control_server_forwards_status_of_layers_above_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let without =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    assert_eq!(files(without.path()).unwrap(), None);
    assert_eq!(connections(without.path()).unwrap(), None);
    let query = ScrubQuery { order: ScrubOrder::Look, share: 25, from: 0 };
    assert_eq!(scrub(without.path(), query).unwrap(), None);
    let used = Arc::new(AtomicU64::new(1));
    let told = used.clone();
    let tell = Arc::new(move || serde_json::json!({ "used": told.load(Ordering::Relaxed) }));
    let list = Arc::new(|| serde_json::json!([{ "queue": 1 }]));
    let scrubs = Arc::new(|query: ScrubQuery| serde_json::json!({ "share": query.share }));
    let sources = StatusSources { files: Some(tell), connections: Some(list), scrub: Some(scrubs) };
    let with = ControlServer::start_in(dir.path(), volume(), sources, Errands::default()).unwrap();
    used.store(7, Ordering::Relaxed);
    assert_eq!(files(with.path()).unwrap(), Some(serde_json::json!({ "used": 7 })));
    assert_eq!(connections(with.path()).unwrap(), Some(serde_json::json!([{ "queue": 1 }])));
    assert_eq!(scrub(with.path(), query).unwrap(), Some(serde_json::json!({ "share": 25 })));
}

#[test]
fn socket_is_its_owners_only() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let meta = std::fs::symlink_metadata(server.path()).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.mode() & 0o777, 0o600);
}

#[test]
fn directory_is_made_closed_and_refused_when_open() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("zonal");
    private_directory(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    private_directory(&path).unwrap();

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = private_directory(&path).unwrap_err().to_string();
    assert!(error.ends_with("mode 0755 gives other users access"), "{error}");

    let link = base.path().join("link");
    std::os::unix::fs::symlink(base.path(), &link).unwrap();
    assert!(matches!(private_directory(&link), Err(ControlError::Directory { .. })));
    let file = base.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(private_directory(&file), Err(ControlError::Directory { .. })));
}

#[test]
fn bad_lines_yield_errors_and_the_next_request_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let mut input: Vec<u8> = Vec::new();
    let bad: [&[u8]; 7] =
        [b"", b"plugs", b"{}", br#"{"request":"reset"}"#, b"[[[[", b"\xff\xfe\0", br#"{"request":7}"#];
    for line in bad {
        input.extend_from_slice(line);
        input.push(b'\n');
    }
    input.extend_from_slice(b"{\"request\":\"stat\"}\n");
    let answers = say(server.path(), &input);
    assert_eq!(answers.len(), bad.len() + 1);
    for (line, answer) in bad.iter().zip(&answers) {
        assert!(answer.starts_with(r#"{"error":""#), "{line:?}: {answer}");
    }
    assert!(answers.last().unwrap().starts_with(r#"{"stat":{"requests":0"#));
}

#[test]
fn endless_line_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let answers = say(server.path(), &vec![b'['; 1 << 20]);
    // The error line can be lost, because the connection is reset while the client is still
    // sending.
    assert!(answers.len() <= 1, "{answers:?}");
    assert!(answers.iter().all(|a| a.contains("at most 4096 bytes")), "{answers:?}");
    stat(server.path()).unwrap();
}

#[test]
fn silent_clients_keep_no_other_waiting_and_are_closed_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let begin = Instant::now();
    let mut silent: Vec<UnixStream> = (0..30).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    // Half a line is not a query.
    silent.iter_mut().step_by(2).for_each(|client| client.write_all(b"{\"request\":").unwrap());
    stat(server.path()).unwrap();
    assert!(begin.elapsed() < CONNECTION_TIME_MAX / 4, "{:?}", begin.elapsed());
    for client in &mut silent {
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it was not hung up on");
    }
    assert!(begin.elapsed() >= CONNECTION_TIME_MAX / 2, "they had no time to ask");
}

/// The clients send as many queries as the server accepts, and read nothing.
#[test]
fn clients_that_take_no_answers_keep_no_other_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let questions = b"{\"request\":\"info\"}\n".repeat(100);
    let stuck: Vec<UnixStream> = (0..8)
        .map(|_| {
            let client = UnixStream::connect(server.path()).unwrap();
            client.set_nonblocking(true).unwrap();
            while (&client).write(&questions).is_ok() {}
            client
        })
        .collect();
    let begin = Instant::now();
    stat(server.path()).unwrap();
    assert!(begin.elapsed() < CONNECTION_TIME_MAX / 2, "{:?}", begin.elapsed());
    drop(stuck);
}

#[test]
fn one_client_too_many_takes_the_place_of_the_one_that_is_silent_for_longest() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let begin = Instant::now();
    let mut silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    stat(server.path()).unwrap();
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0);
    assert!(begin.elapsed() < CONNECTION_TIME_MAX / 2, "{:?}", begin.elapsed());
    // The youngest client has not timed out yet.
    let youngest = silent.last_mut().unwrap();
    youngest.write_all(b"{\"request\":\"stat\"}\n").unwrap();
    assert_eq!(youngest.read(&mut [0]).unwrap(), 1);
}

#[test]
fn drop_does_not_wait_for_a_client_and_removes_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    let path = server.path().to_owned();
    let _silent = UnixStream::connect(&path).unwrap();
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < CONNECTION_TIME_MAX / 2);
    assert!(!path.exists());
    assert_eq!(Arc::strong_count(&volume), 1);
    assert!(matches!(stat(&path), Err(ControlError::Io { .. })));
}

#[test]
fn servers_of_one_process_and_device_get_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    let a = ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
        .unwrap();
    let b =
        ControlServer::start_in(dir.path(), volume, StatusSources::default(), Errands::default()).unwrap();
    assert_ne!(a.path(), b.path());
    let found = list_in(dir.path()).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|e| e.pid == std::process::id()));
}

/// Socket left behind by a dead process: bound, but not listening.
fn leave_behind(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
}

/// Above the largest process ID of Linux.
const NO_PROCESS: u32 = 0x7fff_fff0;

#[test]
fn sockets_left_behind_are_removed_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let stale = dir.path().join(file_name(NO_PROCESS, "null", 0));
    leave_behind(&stale);
    // Process 1 is alive: its socket may be between creation and the first `listen`.
    let young = dir.path().join(file_name(1, "null", 0));
    leave_behind(&young);
    let file = dir.path().join(file_name(NO_PROCESS, "file", 0));
    std::fs::write(&file, "kept").unwrap();
    assert_eq!(list_in(dir.path()).unwrap(), []);
    assert!(!stale.exists() && young.exists() && file.exists());
}

#[test]
fn start_at_replaces_a_stale_socket_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine");
    leave_behind(&path);
    let server = ControlServer::start_at(&path, volume()).unwrap();
    assert!(matches!(ControlServer::start_at(&path, volume()), Err(ControlError::InUse { .. })));
    stat(server.path()).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    assert!(matches!(ControlServer::start_at(&file, volume()), Err(ControlError::InUse { .. })));
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    let long = dir.path().join("x".repeat(200));
    assert!(matches!(ControlServer::start_at(&long, volume()), Err(ControlError::Io { .. })));
}

#[test]
fn answers_that_are_none_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    for (answer, expected) in [
        (&b""[..], "cannot read the answer: incomplete line"),
        (b"hello\n", "cannot read the answer: expected value"),
        (b"{\"stat\":{}}\n", "cannot read the answer: missing field"),
        (b"{\"plugs\":[]}\n", "unexpected answer: plugs"),
        (b"{\"error\":\"no\"}\n", "request refused: no"),
    ] {
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(answer).unwrap();
        });
        let error = stat(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn file_names_tell_the_process_and_stay_short() {
    let name = file_name(4711, "image:/var/lib/some where/with/a/long/path.zonal", 0);
    assert_eq!(name, "4711-image__var_lib_some_where_with_a.sock");
    assert_eq!(pid_of(&name), Some(4711));
    assert_eq!(pid_of(&file_name(4711, "x", 3)), Some(4711));
    assert_eq!(pid_of("README"), None);
    assert_eq!(probe(Path::new("/nonexistent/1-x.sock")), SocketState::Nothing);
}

#[test]
fn queries_are_spelled_as_documented() {
    for (query, text) in [
        (Query::Plugs, r#"{"request":"plugs"}"#),
        (Query::Stat, r#"{"request":"stat"}"#),
        (Query::Info, r#"{"request":"info"}"#),
        (Query::Set { options: "window=3".to_owned() }, r#"{"request":"set","options":"window=3"}"#),
    ] {
        assert_eq!(serde_json::to_string(&query).unwrap(), text);
    }
}

#[test]
fn mode_switch_is_pending_while_writes_are_in_flight() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmulatedOptions {
        size: 16 << 20,
        zone_size: 1 << 20,
        complete: crate::emulated::CompleteMode::Poll,
        ..Default::default()
    };
    let device: Arc<dyn Device> = Arc::new(Emulated::new("null:size=16M", &options, Null).unwrap());
    let options = VolumeOptions { mode: Some(WriteMode::Qd1), ..Default::default() };
    let volume = Arc::new(Volume::open(device, options).unwrap());
    // No thread polls, so this write stays in flight.
    write(&volume, 2, 8);
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    let facts = set_options(server.path(), &"mode=per-zone".parse().unwrap()).unwrap();
    assert_eq!((facts.mode.as_str(), facts.pending.as_deref()), ("qd1", Some("per-zone")));
    volume.poll(Nanos(1 << 30));
    assert_eq!((volume.mode().0, info(server.path()).unwrap().pending), (WriteMode::PerZone, None));
}

#[test]
fn requested_mode_is_active_when_the_reply_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    let facts = set_options(server.path(), &"mode=qd1".parse().unwrap()).unwrap();
    assert_eq!((facts.mode.as_str(), facts.reason.as_str()), ("qd1", "set while running"));
    assert_eq!(volume.mode().0, WriteMode::Qd1);
    for (asked, answer) in
        [("direct", "open volume"), ("no-such", "unknown write mode"), ("pipelined", "order")]
    {
        let line = format!("{{\"request\":\"set\",\"options\":\"mode={asked}\"}}\n");
        let said = say(server.path(), line.as_bytes());
        assert!(said.len() == 1 && said[0].contains("error") && said[0].contains(answer), "{said:?}");
    }
    assert_eq!(volume.mode().0, WriteMode::Qd1);
    set_options(server.path(), &"mode=pipelined force=yes".parse().unwrap()).unwrap();
    assert_eq!(volume.mode().0, WriteMode::Pipelined);
}

#[test]
fn zones_are_set_and_the_first_that_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume();
    let events = volume.events();
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), Errands::default())
            .unwrap();
    set_zones(server.path(), 4..=5, ZoneSetting::ReadOnly).unwrap();
    while volume.poll(Nanos(0)).is_some() {}
    let told: Vec<_> = std::iter::from_fn(|| events.next()).collect();
    let read_only = |zone| DeviceEvent::Zone { zone: ZoneIndex(zone), condition: ZoneCondition::ReadOnly };
    assert_eq!(told, [read_only(4), read_only(5)]);
    let error = set_zones(server.path(), 15..=20, ZoneSetting::Offline).unwrap_err().to_string();
    assert!(
        error.ends_with("zone 16 cannot be set to offline: range lies beyond the device's end"),
        "{error}"
    );
    assert!(events.next().is_none(), "a range beyond the end changes no zone");
    let error = set_zones(server.path(), 0..=0, ZoneSetting::Offline).unwrap_err().to_string();
    assert!(error.ends_with("zone 0 cannot be set to offline: zone is conventional"), "{error}");
    let said = say(server.path(), b"{\"request\":\"zone\",\"first\":1,\"last\":1,\"set\":\"full\"}\n");
    assert!(said.len() == 1 && said[0].contains("error") && said[0].contains("full"), "{said:?}");
}

#[test]
fn bad_blocks_are_changed_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), Errands::default()).unwrap();
    let change = |text: &str| badblocks(server.path(), Some(text.parse().unwrap()));
    assert_eq!(change("+8-15").unwrap(), [(8, 15)]);
    assert_eq!(change("-9-9").unwrap(), [(8, 8), (10, 15)]);
    assert_eq!(badblocks(server.path(), None).unwrap(), [(8, 8), (10, 15)]);
    let error = change("+8-99999999999").unwrap_err().to_string();
    assert!(error.ends_with("range lies beyond the device's end"), "{error}");
    let said = say(server.path(), b"{\"request\":\"badblocks\",\"change\":\"8-9\"}\n");
    assert!(said[0].contains("starts with + to add it"), "{said:?}");
}

#[test]
fn attended_volume_is_asked_and_changed_by_the_thread_that_attends() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, errands) = (volume(), Errands::default());
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), errands.clone())
            .unwrap();
    let guard = errands.attend();
    let path = server.path().to_owned();
    let asker = std::thread::spawn(move || {
        let changed = set_options(&path, &"merge=no".parse().unwrap()).unwrap();
        (changed, stat(&path).unwrap())
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(volume.options().merge && !asker.is_finished(), "it waits for the thread that attends");
    write(&volume, 3, 8);
    while !asker.is_finished() {
        guard.run_pending();
    }
    let (_, counted) = asker.join().unwrap();
    assert_eq!((volume.options().merge, counted.requests), (false, 1));
    drop(guard);
    assert_eq!(stat(server.path()).unwrap().requests, 1, "no thread attends any more");
}

#[test]
fn question_to_a_run_that_ends_is_answered_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let errands = Errands::default();
    let server =
        ControlServer::start_in(dir.path(), volume(), StatusSources::default(), errands.clone()).unwrap();
    let guard = errands.attend();
    let path = server.path().to_owned();
    let asker = std::thread::spawn(move || (stat(&path), info(&path)));
    std::thread::sleep(Duration::from_millis(50));
    drop(guard);
    let (counted, facts) = asker.join().unwrap();
    assert_eq!((counted.unwrap().requests, facts.unwrap().pid), (0, std::process::id()));
}

#[test]
fn control_request_to_an_unresponsive_run_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, errands) = (volume(), Errands::default());
    let server =
        ControlServer::start_in(dir.path(), volume.clone(), StatusSources::default(), errands.clone())
            .unwrap();
    let guard = errands.attend();
    let error = set_options(server.path(), &"merge=no".parse().unwrap()).unwrap_err();
    assert!(error.to_string().contains("does not respond"), "{error}");
    guard.run_pending();
    assert!(volume.options().merge, "what was refused is not done later");
}

//! Attaching: connect, enable the controller, request queues (Base 3.5.1 and 6.3).

use super::commands::{After, Job, Start};
use super::errors::AttachError;
use super::identify::{self, NamespaceFacts};
use super::link::Link;
use super::queue::{Ended, HostOptions};
use crate::wire::{
    ConnectCommand, ConnectData, NQN_MAX, Sqe, admin, cap, cc, csts, event, fabrics, feature, property,
    zero_ended,
};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};
use zonal_core::{DeviceError, Geometry, Op, Sector, Sectors};
use zonal_io::device::{Command, Output};
use zonal_io::identity::Identity;

/// Keep alive timeout in milliseconds.
pub(super) const KEEP_ALIVE_MS: u32 = 15_000;

/// Minimum entries of a queue (Base 3.1.4.1, `MQES`).
const ENTRIES_MIN: u16 = 2;

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// Options for attaching a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AttachOptions {
    /// Address of the controller.
    pub address: SocketAddr,
    /// NQN of the subsystem.
    pub nqn: String,
    /// Namespace; `None` selects the first zoned one, or the first if none is zoned.
    pub nsid: Option<u32>,
    /// Number of I/O queues. The controller may grant fewer.
    pub queues: u16,
    /// Queue depth of an I/O queue, at least 1. The controller may allow less.
    pub depth: u16,
    /// Connection options: digests and PDU size.
    pub host: HostOptions,
    /// True if commands of a queue take effect in the order of submission. No controller reports
    /// this.
    pub keeps_order: bool,
}

impl AttachOptions {
    /// Options for the first zoned namespace of subsystem `nqn`, or its first one if none is zoned,
    /// with one queue of depth 128.
    pub fn new(address: SocketAddr, nqn: impl Into<String>) -> AttachOptions {
        let (nqn, host) = (nqn.into(), HostOptions::default());
        AttachOptions { address, nqn, nsid: None, queues: 1, depth: 128, host, keeps_order: false }
    }
}

zonal_core::setters! {
    AttachOptions
    /// Namespace; `None` selects the first zoned one, or the first if none is zoned.
    with_nsid nsid: impl Into<Option<u32>>;
    /// Number of I/O queues. The controller may grant fewer.
    with_queues queues: u16;
    /// Queue depth of an I/O queue, at least 1.
    with_depth depth: u16;
    /// Connection options: digests and PDU size.
    with_host host: HostOptions;
    /// True if commands of a queue take effect in the order of submission.
    with_keeps_order keeps_order: bool;
}

/// Identity of this host.
struct Host {
    id: [u8; 16],
    nqn: String,
}

/// Admin queue of an enabled controller.
pub(super) type Admin = Link<Vec<u8>>;

/// Attached namespace with the controller's queues.
pub(super) struct Attached {
    pub(super) admin: Admin,
    pub(super) io: Vec<Link<Job>>,
    pub(super) namespace: NamespaceFacts,
}

/// Attaches the namespace selected by `options`. The returned queues are in blocking mode.
pub(super) fn attach(options: &AttachOptions) -> Result<Attached, AttachError> {
    let identity = Identity::random().ok_or(io::Error::from(ErrorKind::WouldBlock))?;
    let host = Host { id: identity.bytes(), nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{identity}") };
    let mut admin: Admin = Link::connect(options.address, ADMIN_ENTRIES, options.host)?;
    let data = host.connect_data(ConnectData::ANY_CONTROLLER, &options.nqn);
    let connected = admin.call(connect(0, ADMIN_ENTRIES), data)?;
    let controller = done("the connection", connected)?.result as u16;
    let depth = enable(&mut admin)?.min(u32::from(options.depth)) as u16;
    let mut namespace = identify::namespace(&mut admin, options.nsid)?;
    ask_for_events(&mut admin, namespace.events)?;
    let granted = ask_for_queues(&mut admin, options.queues)?;
    let mut io = Vec::new();
    for qid in 1..=granted.min(options.queues) {
        let mut link = Link::connect(options.address, depth, options.host)?;
        let data = host.connect_data(controller, &options.nqn);
        done("an I/O queue", link.call(connect(qid, depth.max(ENTRIES_MIN)), Job::from(data))?)?;
        io.push(link);
    }
    if let (true, Some(link)) = (namespace.is_zoned, io.first_mut()) {
        let geometry = namespace.geometry;
        let capacity = capacity(link, &namespace)?;
        namespace.geometry = Geometry::new(geometry.sectors(), geometry.zone_size(), capacity, 0)?;
    }
    Ok(Attached { admin, io, namespace })
}

/// Capacity of the first zone. All zones have the same; namespaces with varying capacity are
/// refused.
fn capacity(link: &mut Link<Job>, namespace: &NamespaceFacts) -> Result<Sectors, AttachError> {
    let command = Command::new(Op::Report, Sector(0), 1);
    let Start::Send(sqe, job) = namespace.start(&command) else {
        return Err(AttachError::Report(DeviceError::Unsupported));
    };
    match namespace.after(link.call(sqe, job)?).1 {
        After::End(Ok(Output::Zones(zones))) if !zones.is_empty() => Ok(zones[0].capacity),
        After::End(Err(error)) => Err(AttachError::Report(error)),
        After::End(Ok(_)) | After::Next(..) => Err(AttachError::Report(DeviceError::InvalidField)),
    }
}

impl Host {
    /// Connect data (Base 6.3).
    fn connect_data(&self, controller: u16, nqn: &str) -> Vec<u8> {
        let data = ConnectData {
            host: self.id,
            cntlid: controller.into(),
            subsystem: zero_ended(&nqn.as_bytes()[..nqn.len().min(NQN_MAX)]),
            host_nqn: zero_ended(&self.nqn),
            ..FromZeros::new_zeroed()
        };
        data.as_bytes().to_vec()
    }
}

/// Connect command (Base 6.3) without submission queue flow control, because the host counts its
/// commands itself.
fn connect(qid: u16, entries: u16) -> Sqe {
    let keep_alive = if qid == 0 { KEEP_ALIVE_MS } else { 0 };
    let mut sqe = Sqe::new(0, 0, [0; 6]).with_capsule(size_of::<ConnectData>() as u32);
    ConnectCommand { format: 0, qid, entries: entries.into(), has_flow_control: false, keep_alive }
        .emit(&mut sqe);
    sqe
}

/// Checks the status of a completed command.
pub(super) fn done<D>(what: &'static str, ended: Ended<D>) -> Result<Ended<D>, AttachError> {
    match ended.status.is_ok() {
        true => Ok(ended),
        false => Err(AttachError::Refused { what, status: ended.status }),
    }
}

fn property(admin: &mut Admin, offset: u32, is_long: bool) -> Result<u64, AttachError> {
    let cdw = [u32::from(is_long), offset, 0, 0, 0, 0];
    let command = Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_GET.into(), cdw);
    Ok(done("a property", admin.call(command, Vec::new())?)?.result)
}

/// Enables the controller (Base 3.5.1). Returns the maximum entries of an I/O queue.
fn enable(admin: &mut Admin) -> Result<u32, AttachError> {
    let cap = property(admin, property::CAP, true)?;
    // Pages of 4 KiB, and all command sets if the controller supports more than NVM.
    let sets = if cap & cap::HAS_SETS != 0 { cc::ALL_SETS } else { 0 };
    let value = cc::SIZES_64_16 | sets | cc::ENABLE;
    let command = Sqe::new(fabrics::OPCODE, fabrics::PROPERTY_SET.into(), [0, property::CC, value, 0, 0, 0]);
    done("to become ready", admin.call(command, Vec::new())?)?;
    // In units of 500 ms.
    let timeout = Duration::from_millis(500 * (cap >> 24 & 0xFF).max(2));
    let since = Instant::now();
    loop {
        match property(admin, property::CSTS, false)? as u32 & (csts::READY | csts::FATAL) {
            csts::READY => return Ok((cap as u32 & 0xFFFF) + 1),
            0 if since.elapsed() < timeout => std::thread::sleep(Duration::from_millis(5)),
            _ => return Err(AttachError::NotReady(timeout.as_secs())),
        }
    }
}

/// Enables the events that the helper handles (Base 5.1.25.1.5), as far as the controller supports
/// them.
fn ask_for_events(admin: &mut Admin, there: u32) -> Result<(), AttachError> {
    let wanted = there & (event::NAMESPACES | event::ZONES);
    if wanted != 0 {
        let command = Sqe::new(admin::SET_FEATURES, 0, [feature::EVENTS.into(), wanted, 0, 0, 0, 0]);
        done("to enable events", admin.call(command, Vec::new())?)?;
    }
    Ok(())
}

/// Requests I/O queues (Base 5.1.25.2.1). Returns the number granted.
fn ask_for_queues(admin: &mut Admin, queues: u16) -> Result<u16, AttachError> {
    let asked = u32::from(queues - 1);
    let command = Sqe::new(admin::SET_FEATURES, 0, [feature::QUEUES.into(), asked | asked << 16, 0, 0, 0, 0]);
    let granted = done("I/O queues", admin.call(command, Vec::new())?)?.result as u32;
    Ok((granted & 0xFFFF).min(granted >> 16).min(u32::from(u16::MAX) - 1) as u16 + 1)
}

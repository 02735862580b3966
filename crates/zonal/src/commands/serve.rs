//! `zonal serve`: a device for kernels, over NVMe/TCP, as a block device of this machine, and as a disk of virtual machines.

use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::write_path::{Record, WritePathAndMode};
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zonal_io::clock::Clock;
use zonal_io::control::{ControlError, ControlServer, Teller};
use zonal_io::identity::Identity;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_nvme::server::{ConnectionFacts, Server, ServerOptions};
use zonal_nvme::subsystem::{Target, TargetOptions};
use zonal_scsi::{Disk, DiskOptions};
use zonal_ublk::server::{UblkOptions, UblkServer};
use zonal_vhost::server::{QueueFacts, VhostListener, VhostOptions, VhostServer};

/// Where hosts connect, if no other front is asked for.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

/// Serve a drive over NVMe/TCP, as a local block device, or to virtual machines
///
/// Over NVMe/TCP, its sequential zones are namespace 1, with the Zoned Namespace command set; its conventional zones, if it has
/// some, are namespace 2. Any Linux attaches it with `nvme connect --transport tcp --traddr ADDR --trsvcid PORT --nqn NQN`.
///
/// With `--ublk` it is a block device of this machine, with conventional zones, attributes and limits as they are: programs and
/// file systems use it as any other zoned disk. It needs the kernel's ublk driver (Linux 6.6 or later), and root. If the drive
/// has an identity, as an image has, its block device outlives this process: after a kill, the same command takes it over, and
/// the programs that use it see no error.
///
/// With `--vhost-user-scsi SOCKET` it is a host-managed zoned SCSI disk of a virtual machine that QEMU runs, with memory that both
/// share: `-m 1G -object memory-backend-memfd,id=mem,size=1G,share=on -numa node,memdev=mem -chardev socket,id=zonal,path=SOCKET
/// -device vhost-user-scsi-pci,chardev=zonal`. The guest's kernel needs nothing of Zonal's.
///
/// Fronts may be combined. Once a front can be used, standard output gets a line: `ready nvme-tcp ADDR:PORT NQN nsid=1:zoned`, with
/// `,nsid=2:conventional` where there are conventional zones, `ready ublk /dev/ublkbN`, or `ready vhost-user-scsi SOCKET`. Ctrl-C, or
/// a signal to terminate, ends it: what is at the device ends, all is flushed, and the exit code is 0. A second one ends it at once.
///
/// The export is the drive and nothing else: a write that does not begin at its zone's pointer fails at once, and the limits of
/// open and active zones are the drive's own. A host may send the writes of a zone at any depth, in order. The server sends them to
/// the drive in its own write mode, which for a drive that turns is `qd1`.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The device: see `zonal help devices`
    device: String,
    /// Where to listen for hosts; port 0 takes a free one. An address of this machine only: there is no authentication [default:
    /// {listen} without another front, otherwise none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Show it as a block device of this machine
    #[arg(long)]
    ublk: bool,
    /// Socket file to which QEMU connects, to have it as a SCSI disk of its virtual machine. It is its owner's alone
    #[arg(long, value_name = "SOCKET")]
    vhost_user_scsi: Option<PathBuf>,
    /// Name of the subsystem over NVMe/TCP [default: nqn.2014-08.org.nvmexpress:uuid:UUID]
    #[arg(long)]
    nqn: Option<String>,
    /// Identity of the drive over NVMe/TCP and SCSI, for a device that has none of its own [default: an image's own, otherwise a new
    /// one]
    #[arg(long)]
    uuid: Option<Identity>,
    /// Let hosts read only, and open the device for reading
    #[arg(long)]
    read_only: bool,
    /// Do not sleep: ask sockets and device all the time, with one core a thread
    #[arg(long)]
    poll: bool,
    #[command(flatten)]
    write_path: WritePathAndMode,
    #[command(flatten)]
    record: Record,
}

/// Resolves the address to listen at, which must be one of this machine only.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let addresses: Vec<SocketAddr> = addresses
        .map_err(|error| format!("not an address and a port, as in localhost:4420: {error}"))?
        .collect();
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    // `localhost` may be ::1 first, where few look for it.
    let v4 = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    match v4 {
        Some(address) if is_local => Ok(*address),
        _ => {
            Err("not an address of the loopback interface, and hosts are not authenticated; forward a port \
                  with ssh to reach it from another machine"
                .to_owned())
        }
    }
}

/// What the fronts of an export share.
struct Export<'a> {
    arguments: &'a Serve,
    volume: Arc<Volume>,
    clock: Clock,
    threads: usize,
    interrupt: Interrupt,
}

pub(crate) fn run(arguments: &Serve, out: &mut dyn Write) -> Result<(), Failure> {
    let is_default = !arguments.ublk && arguments.vhost_user_scsi.is_none();
    let listen = arguments.listen.or(is_default.then_some(LISTEN));
    let interrupt = Interrupt::listen().context("cannot listen to signals")?;
    arguments.record.prepare()?;
    let name = &arguments.device;
    if arguments.ublk {
        zonal_ublk::server::serve_the_kernels_memory();
    }
    let device = devices::open_in_real_time(name, arguments.read_only)?;
    // An export is the drive: what its host does wrong is told to it at once.
    let base = VolumeOptions::default().without_park().without_budget();
    let options = arguments.write_path.options(base, name)?;
    let volume = Volume::open(device, options).map_err(|e| anyhow!("{name}: {e}")).or_exit(Exit::Device)?;
    let volume = Arc::new(arguments.record.of(volume));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let export = Export { arguments, volume, clock: Clock::start(), threads, interrupt };
    let mut fronts = Fronts::default();
    let begun = fronts.begin(&export, listen, out);
    if begun.is_err() {
        export.interrupt.flag().store(true, Ordering::Release);
    }
    // All have ended before an error of one is told.
    let ended = fronts.join();
    if let Some(note) = export.volume.flight_note() {
        eprintln!("zonal: {name}: {note}");
    }
    begun?;
    ended.context("the device could not be left as it should")?;
    Ok(())
}

/// What serves the drive.
#[derive(Default)]
struct Fronts {
    hosts: Option<(Server, Arc<Target>)>,
    machine: Option<VhostServer>,
    disk: Option<UblkServer>,
    control: Option<ControlServer>,
}

impl Fronts {
    /// Begins with what was asked for, and says so. After an error some have begun.
    fn begin(
        &mut self,
        export: &Export<'_>,
        listen: Option<SocketAddr>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let Serve { vhost_user_scsi: socket, ublk, .. } = export.arguments;
        // A block device has none, or the device's own.
        let has_name = listen.is_some() || socket.is_some();
        let identity =
            has_name.then(|| identity(export.arguments, export.volume.info().identity)).transpose()?;
        if let Some((listen, identity)) = listen.zip(identity) {
            self.hosts = Some(export.serve_hosts(listen, identity)?);
        }
        if let Some((socket, identity)) = socket.as_deref().zip(identity) {
            self.machine = Some(export.serve_machine(socket, identity)?);
        }
        if *ublk {
            self.disk = Some(export.show_disk()?);
        }
        self.control = match ControlServer::start_of_export(export.volume.clone(), self.teller()) {
            Ok(control) => Some(control),
            Err(error @ ControlError::Thread { .. }) => return Err(anyhow!(error).into()),
            Err(error) => {
                eprintln!("zonal: no control socket: {error}");
                None
            }
        };
        if let Some((server, target)) = &self.hosts {
            let kind = |is_zoned| if is_zoned { "zoned" } else { "conventional" };
            let namespaces =
                target.namespaces().iter().map(|n| format!("nsid={}:{}", n.nsid(), kind(n.is_zoned())));
            let namespaces = namespaces.collect::<Vec<_>>().join(",");
            writeln!(out, "ready nvme-tcp {} {} {namespaces}", server.address(), target.nqn())?;
        }
        if let Some(disk) = &self.disk {
            writeln!(out, "ready ublk {}", disk.disk())?;
        }
        if let Some(socket) = socket {
            writeln!(out, "ready vhost-user-scsi {}", socket.display())?;
        }
        if let Some((server, target)) = &self.hosts {
            let (address, nqn) = (server.address(), target.nqn());
            let (ip, port) = (address.ip(), address.port());
            writeln!(out, "nvme connect --transport tcp --traddr {ip} --trsvcid {port} --nqn {nqn}")?;
        }
        out.flush()?;
        Ok(())
    }

    /// What the control socket tells of them.
    fn teller(&self) -> Teller {
        let connections = self.hosts.as_ref().map(|(server, _)| server.connections_teller());
        let rings = self.machine.as_ref().map(VhostServer::queues_teller);
        let queues = self.disk.as_ref().map(|disk| (disk.disk(), disk.in_flight_teller()));
        Arc::new(move || {
            let hosts = connections.iter().flat_map(|told| told()).map(|facts| connection_json(&facts));
            let machine = rings.iter().flat_map(|told| told()).map(|facts| ring_json(&facts));
            let kernel = queues.iter().flat_map(|(disk, told)| queues_json(disk, &told()));
            hosts.chain(machine).chain(kernel).collect()
        })
    }

    /// Waits for the end of all.
    fn join(self) -> io::Result<()> {
        let disk = self.disk.map_or(Ok(()), UblkServer::join);
        let machine = self.machine.map_or(Ok(()), VhostServer::join);
        let hosts = self.hosts.map_or(Ok(()), |(server, _)| server.join());
        disk.and(machine).and(hosts)
    }
}

impl Export<'_> {
    /// NVMe/TCP.
    fn serve_hosts(&self, listen: SocketAddr, identity: Identity) -> Result<(Server, Arc<Target>), Failure> {
        let Serve { nqn, read_only, poll, .. } = self.arguments;
        let options = TargetOptions::new(identity).with_nqn(nqn.clone()).with_read_only(*read_only);
        let target = Arc::new(Target::new(self.volume.clone(), options).or_exit(Exit::Usage)?);
        let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen at {listen}"))?;
        allow_descriptors();
        let options = ServerOptions::default().with_threads(self.threads).with_polls(*poll);
        let server = Server::start(target.clone(), listener, self.clock, options, self.interrupt.flag())
            .context("cannot serve")?;
        Ok((server, target))
    }

    /// A SCSI disk of a virtual machine.
    fn serve_machine(&self, socket: &Path, identity: Identity) -> Result<VhostServer, Failure> {
        let Serve { read_only, poll, device, .. } = self.arguments;
        let options = DiskOptions::new(identity).with_read_only(*read_only);
        let disk = Disk::new(self.volume.clone(), options).map_err(|e| anyhow!("{device}: {e}"));
        let disk = Arc::new(disk.or_exit(Exit::Usage)?);
        let listener =
            VhostListener::bind(socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let options = VhostOptions::default().with_threads(self.threads).with_polls(*poll);
        let server = VhostServer::start(disk, listener, self.clock, options, self.interrupt.flag());
        Ok(server.context("cannot serve")?)
    }

    /// A block device of this machine.
    fn show_disk(&self) -> Result<UblkServer, Failure> {
        let Serve { read_only, poll, device, .. } = self.arguments;
        let queues = self.threads.try_into().unwrap_or(u16::MAX);
        let options = UblkOptions::default().with_queues(queues).with_polls(*poll).with_read_only(*read_only);
        let server = UblkServer::start(self.volume.clone(), self.clock, options, self.interrupt.flag());
        server.map_err(|e| anyhow!("{device}: {e}")).or_exit(Exit::Device)
    }
}

/// A connection is a descriptor, and the usual limit of them, 1024, is meant for programs that cannot have more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Without more of them there are fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What `zonal stat` shows of a host's connection.
fn connection_json(facts: &ConnectionFacts) -> serde_json::Value {
    let (controller, queue) = facts.queue.unzip();
    serde_json::json!({
        "front": "nvme-tcp",
        "host": facts.host,
        "controller": controller,
        "queue": queue,
        "in_flight": facts.in_flight,
        "unsent_bytes": facts.unsent,
    })
}

/// What it shows of a virtual machine's ring.
fn ring_json(facts: &QueueFacts) -> serde_json::Value {
    let fault = facts.fault.map(|fault| fault.to_string());
    serde_json::json!({
        "front": "vhost-user-scsi", "queue": facts.number, "in_flight": facts.in_flight, "broken": fault,
    })
}

/// What it shows of the queues of a block device.
fn queues_json(disk: &str, in_flight: &[u32]) -> Vec<serde_json::Value> {
    let json = |(queue, in_flight): (usize, &u32)| serde_json::json!({ "front": "ublk", "disk": disk, "queue": queue, "in_flight": in_flight });
    in_flight.iter().enumerate().map(json).collect()
}

fn identity(arguments: &Serve, own: Option<Identity>) -> Result<Identity, Failure> {
    if let Some(identity) = arguments.uuid.or(own) {
        return Ok(identity);
    }
    let identity = Identity::random().ok_or_else(|| anyhow!("the kernel has no random numbers yet"))?;
    eprintln!(
        "zonal: {} has no identity: it is {identity} until this ends; --uuid={identity} keeps it",
        arguments.device
    );
    Ok(identity)
}

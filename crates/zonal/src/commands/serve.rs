//! `zonal serve`: exports a device over NVMe/TCP, as a block device of this machine, and as a disk
//! of virtual machines.

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
use zonal_io::control::{ControlError, ControlServer, StatusSource};
use zonal_io::identity::Identity;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_nvme::server::{ConnectionFacts, Server, ServerOptions};
use zonal_nvme::subsystem::{Target, TargetOptions};
use zonal_scsi::{Disk, DiskOptions};
use zonal_ublk::server::{UblkOptions, UblkServer};
use zonal_vhost::server::{QueueFacts, VhostListener, VhostOptions, VhostServer};

/// Address for hosts, if no other front is requested.
pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

/// Serve a drive over NVMe/TCP, as a block device, or to virtual machines
///
/// Over NVMe/TCP, the sequential zones are namespace 1, with the Zoned Namespace command set.
/// Conventional zones, if there are any, are namespace 2. A Linux host attaches them with
/// `nvme connect --transport tcp --traddr ADDR --trsvcid PORT --nqn NQN`.
///
/// With `--ublk`, the drive is a block device of this machine, with its conventional zones,
/// attributes and limits: programs and file systems use it like any other zoned disk. This needs
/// root, and the kernel's ublk driver (Linux 6.6 or later). If the drive has an identity, as an
/// image has, its block device survives a killed server: the same command takes it over, and
/// programs that use it see no error.
///
/// With `--vhost-user-scsi SOCKET`, the drive is a host-managed zoned SCSI disk of a virtual
/// machine that QEMU runs, with shared memory:
/// `-m 1G -object memory-backend-memfd,id=mem,size=1G,share=on -numa node,memdev=mem -chardev
/// socket,id=zonal,path=SOCKET -device vhost-user-scsi-pci,chardev=zonal`.
/// The kernel of the guest needs no driver of Zonal.
///
/// Fronts may be combined. When a front is ready, a line on standard output says so:
/// `ready nvme-tcp ADDR:PORT NQN nsid=1:zoned`, with `,nsid=2:conventional` if there are
/// conventional zones, `ready ublk /dev/ublkbN`, or `ready vhost-user-scsi SOCKET`. The
/// `nvme connect` command for NVMe/TCP follows on a line of its own. Ctrl-C or
/// SIGTERM stops the server: the commands at the device complete, everything is flushed, and the
/// exit code is 0. A second signal ends it at once.
///
/// The export behaves like the drive: a write that does not start at the write pointer of its zone
/// fails at once, and the limits of open and active zones are those of the drive. A host may send
/// writes to a zone at any queue depth, in order. The server issues them in its own write mode,
/// which is `qd1` for a rotational drive with a short round trip.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Device name; see `zonal help devices`
    device: String,
    /// Address to listen at; port 0 takes a free one. A loopback address, because hosts are not
    /// authenticated [default: {listen} without another front, otherwise none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Export it as a block device of this machine
    #[arg(long)]
    ublk: bool,
    /// Socket that QEMU connects to, for a SCSI disk of its virtual machine; only the owner has
    /// access
    #[arg(long, value_name = "SOCKET")]
    vhost_user_scsi: Option<PathBuf>,
    /// Name of the NVMe/TCP subsystem [default: nqn.2014-08.org.nvmexpress:uuid:UUID]
    #[arg(long)]
    nqn: Option<String>,
    /// Identity over NVMe/TCP and SCSI, for a device without one of its own [default: that of the
    /// image, otherwise a new one]
    #[arg(long)]
    uuid: Option<Identity>,
    /// Let hosts only read, and open the device for reading
    #[arg(long)]
    read_only: bool,
    /// Poll sockets and device instead of sleeping; each thread uses a whole core
    #[arg(long)]
    poll: bool,
    #[command(flatten)]
    write_path: WritePathAndMode,
    #[command(flatten)]
    record: Record,
}

/// Resolves the address to listen at, which must be a loopback address.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs();
    let addresses: Vec<SocketAddr> = addresses
        .map_err(|error| format!("not an address and a port, as in localhost:4420: {error}"))?
        .collect();
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    // `localhost` may resolve to ::1 first, where few hosts connect.
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

/// State shared by the fronts of an export.
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
    let interrupt = Interrupt::listen().context("cannot handle signals")?;
    arguments.record.prepare()?;
    let name = &arguments.device;
    if arguments.ublk {
        zonal_ublk::server::set_io_flusher();
    }
    let device = devices::open_in_real_time(name, arguments.read_only)?;
    // An export behaves like the drive: mistakes of a host are reported to it at once.
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
    // All fronts have ended before an error of one is reported.
    let ended = fronts.join();
    if let Some(note) = export.volume.flight_note() {
        eprintln!("zonal: {name}: {note}");
    }
    begun?;
    ended.context("cannot shut the export down cleanly")?;
    Ok(())
}

/// Fronts that serve the drive.
#[derive(Default)]
struct Fronts {
    hosts: Option<(Server, Arc<Target>)>,
    machine: Option<VhostServer>,
    disk: Option<UblkServer>,
    control: Option<ControlServer>,
}

impl Fronts {
    /// Starts the requested fronts, and announces them. After an error, some may be running.
    fn begin(
        &mut self,
        export: &Export<'_>,
        listen: Option<SocketAddr>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let Serve { vhost_user_scsi: socket, ublk, .. } = export.arguments;
        // A ublk device has no identity, or that of the device.
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
        self.control = match ControlServer::start_for_export(export.volume.clone(), self.teller()) {
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

    /// Function that lists the connections for the control socket.
    fn teller(&self) -> StatusSource {
        let connections = self.hosts.as_ref().map(|(server, _)| server.connections_source());
        let rings = self.machine.as_ref().map(VhostServer::queues_source);
        let queues = self.disk.as_ref().map(|disk| (disk.disk(), disk.in_flight_source()));
        Arc::new(move || {
            let hosts = connections.iter().flat_map(|told| told()).map(|facts| connection_json(&facts));
            let machine = rings.iter().flat_map(|told| told()).map(|facts| ring_json(&facts));
            let kernel = queues.iter().flat_map(|(disk, told)| queues_json(disk, &told()));
            hosts.chain(machine).chain(kernel).collect()
        })
    }

    /// Waits until all fronts have ended.
    fn join(self) -> io::Result<()> {
        let disk = self.disk.map_or(Ok(()), UblkServer::join);
        let machine = self.machine.map_or(Ok(()), VhostServer::join);
        let hosts = self.hosts.map_or(Ok(()), |(server, _)| server.join());
        disk.and(machine).and(hosts)
    }
}

impl Export<'_> {
    /// Starts the server for NVMe/TCP.
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

    /// Starts the server of a SCSI disk for a virtual machine.
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

    /// Starts the server of a block device.
    fn show_disk(&self) -> Result<UblkServer, Failure> {
        let Serve { read_only, poll, device, .. } = self.arguments;
        let queues = self.threads.try_into().unwrap_or(u16::MAX);
        let options = UblkOptions::default().with_queues(queues).with_polls(*poll).with_read_only(*read_only);
        let server = UblkServer::start(self.volume.clone(), self.clock, options, self.interrupt.flag());
        server.map_err(|e| anyhow!("{device}: {e}")).or_exit(Exit::Device)
    }
}

/// Raises the limit of descriptors, of which each connection takes one. The usual soft limit, 1024,
/// is for programs that cannot handle more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, fewer connections are possible.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Entry of `zonal stat` for the connection of a host.
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

/// Entry of `zonal stat` for a ring of a virtual machine.
fn ring_json(facts: &QueueFacts) -> serde_json::Value {
    let fault = facts.fault.map(|fault| fault.to_string());
    serde_json::json!({
        "front": "vhost-user-scsi", "queue": facts.number, "in_flight": facts.in_flight, "broken": fault,
    })
}

/// Entries of `zonal stat` for the queues of a block device.
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
        "zonal: {}: no identity; using {identity} for this run; --uuid={identity} keeps it",
        arguments.device
    );
    Ok(identity)
}

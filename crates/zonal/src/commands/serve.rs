//! `zonal serve`: a device for kernels, over NVMe/TCP.

use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::write_path::WritePathAndMode;
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use zonal_io::clock::Clock;
use zonal_io::control::ControlServer;
use zonal_io::identity::Identity;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_nvme::server::{ConnectionFacts, Server, ServerOptions};
use zonal_nvme::target::{Target, TargetOptions};

/// Export a zoned device over NVMe/TCP, as a drive that `nvme connect` attaches
///
/// Its sequential zones are namespace 1, with the Zoned Namespace command set; its conventional zones, if it has some, are
/// namespace 2. Any Linux attaches it with `nvme connect --transport tcp --traddr ADDR --trsvcid PORT --nqn NQN`.
///
/// Once hosts can connect, standard output gets one line: `ready nvme-tcp ADDR:PORT NQN nsid=1:zoned`, and `,nsid=2:conventional`
/// where there are conventional zones. Ctrl-C, or a signal to terminate, ends it: what is at the device ends, all is flushed, and
/// the exit code is 0. A second one ends it at once.
///
/// The export is the drive and nothing else: a write that does not begin at its zone's pointer fails at once, and the limits of
/// open and active zones are the drive's own. A host may send the writes of a zone at any depth, in order.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The device: see `zonal help devices`
    device: String,
    /// Where to listen; port 0 takes a free one. An address of this machine only: there is no authentication
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4420")]
    listen: SocketAddr,
    /// Name of the subsystem [default: nqn.2014-08.org.nvmexpress:uuid:UUID]
    #[arg(long)]
    nqn: Option<String>,
    /// Identity of the drive, for a device that has none of its own [default: an image's own, otherwise a new one]
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
}

pub(crate) fn run(arguments: &Serve, out: &mut dyn Write) -> Result<(), Failure> {
    if !arguments.listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "{}: not an address of the loopback interface, and hosts are not authenticated",
            arguments.listen
        )));
    }
    let interrupt = Interrupt::listen().context("cannot listen to signals")?;
    let name = &arguments.device;
    let device = devices::open_in_real_time(name, arguments.read_only)?;
    let identity = identity(arguments, device.info().identity)?;
    // An export is the drive: what its host does wrong is told to it at once.
    let base = VolumeOptions::default().without_park().without_budget();
    let options = arguments.write_path.options(base, name)?;
    let volume = Volume::open(device, options).map_err(|e| anyhow!("{name}: {e}")).or_exit(Exit::Device)?;
    let volume = Arc::new(volume);
    let read_only = arguments.read_only;
    let target = Target::new(
        volume.clone(),
        TargetOptions::new(identity).with_nqn(arguments.nqn.clone()).with_read_only(read_only),
    );
    let target = Arc::new(target.or_exit(Exit::Usage)?);
    let listener = TcpListener::bind(arguments.listen)
        .with_context(|| format!("cannot listen at {}", arguments.listen))?;
    allow_descriptors();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let options = ServerOptions::default().with_threads(threads).with_polls(arguments.poll);
    let server = Server::start(target.clone(), listener, Clock::start(), options, interrupt.flag())
        .context("cannot serve")?;
    let connections = server.connections_teller();
    let control = ControlServer::start_of_export(volume, Arc::new(move || connections_json(&connections())));
    if let Err(error) = &control {
        eprintln!("zonal: no control socket: {error}");
    }
    let kind = |is_zoned| if is_zoned { "zoned" } else { "conventional" };
    let namespaces = target.namespaces().iter().map(|n| format!("nsid={}:{}", n.nsid(), kind(n.is_zoned())));
    let namespaces = namespaces.collect::<Vec<_>>().join(",");
    writeln!(out, "ready nvme-tcp {} {} {namespaces}", server.address(), target.nqn())?;
    out.flush()?;
    server.join().context("the device could not be left as it should")?;
    Ok(())
}

/// A connection is a descriptor, and the usual limit of them, 1024, is meant for programs that cannot have more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Without more of them there are fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What `zonal stat` shows of connections.
fn connections_json(connections: &[ConnectionFacts]) -> serde_json::Value {
    let json = |facts: &ConnectionFacts| {
        let (controller, queue) = facts.queue.unzip();
        serde_json::json!({
            "host": facts.host,
            "controller": controller,
            "queue": queue,
            "in_flight": facts.in_flight,
            "unsent_bytes": facts.unsent,
        })
    };
    connections.iter().map(json).collect()
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

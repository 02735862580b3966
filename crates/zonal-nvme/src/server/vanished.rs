//! Hosts whose machine has vanished: they close nothing, and one without a time to keep alive would keep its connection for ever.

use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// How long a connection may be silent before the kernel asks whether the other machine is there. It then asks six times, ten
/// seconds apart.
pub const SILENT_MAX: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 6;

/// Has the kernel end `stream` when the other machine is gone: within two minutes. Where something was being sent, the kernel's own
/// limit for that counts.
pub(super) fn look_after(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT_MAX)?;
    sockopt::set_tcp_keepintvl(stream, PAUSE)?;
    Ok(sockopt::set_tcp_keepcnt(stream, QUESTIONS)?)
}

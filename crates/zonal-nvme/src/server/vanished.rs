//! Detection of hosts that vanished without closing their connection. Without a keep alive timeout
//! they would hold it forever.

use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Idle time before the first keepalive probe. Six probes follow, ten seconds apart.
pub const SILENT_MAX: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_secs(10);
const QUESTIONS: u32 = 6;

/// Enables TCP keepalive, so that the kernel ends `stream` within two minutes of the peer's
/// disappearance. While data is being sent, the kernel's own retransmission limit applies.
pub(super) fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT_MAX)?;
    sockopt::set_tcp_keepintvl(stream, PAUSE)?;
    Ok(sockopt::set_tcp_keepcnt(stream, QUESTIONS)?)
}

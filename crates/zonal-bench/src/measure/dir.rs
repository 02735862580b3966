//! The two directions of requests.

/// Read or write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dir {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
}

impl Dir {
    /// The other direction.
    pub fn other(self) -> Dir {
        match self {
            Dir::Read => Dir::Write,
            Dir::Write => Dir::Read,
        }
    }
}

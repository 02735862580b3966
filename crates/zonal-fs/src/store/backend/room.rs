//! How long a database's file may get.

use redb::StorageBackend;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;

/// A file for a database, with bounds.
pub trait Backend: StorageBackend {
    /// How long the file may get; `None` if nothing bounds it.
    fn room(&self) -> Option<Room> {
        None
    }
}

/// Pages of a bounded file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// No more are in use.
    pub pages: u64,
    /// No more can be.
    pub limit: u64,
}

/// Pages of the file of a new database, and none to spare.
pub const PAGES_OF_NEW: u64 = 260;

/// Pages of a region of the database: it grows twofold up to the first, then by regions.
const REGION_PAGES: u64 = 1 << 20;

impl Room {
    /// The room of a file of `pages`, of which there may be `most`: the longest that it can grow to, as the database grows it.
    pub fn reach(pages: u64, most: u64) -> Room {
        let mut limit = pages.clamp(1, most.max(1));
        loop {
            let next = if limit < REGION_PAGES { 2 * limit } else { limit + 2 * REGION_PAGES };
            if next > most {
                return Room { pages, limit };
            }
            limit = next;
        }
    }
}

impl Backend for redb::backends::InMemoryBackend {}

/// A backend that the database has, and somebody else as well.
#[derive(Debug)]
pub(in crate::store) struct Handle<B>(pub Arc<B>);

impl<B: StorageBackend> StorageBackend for Handle<B> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_database_is_as_long_as_is_known() {
        let backend = Arc::new(crate::store::backend::Memory::new());
        let database = redb::Database::builder().create_with_backend(Handle(backend.clone())).unwrap();
        let pages = backend.len().unwrap().div_ceil(4096);
        assert!((PAGES_OF_NEW - 8..=PAGES_OF_NEW).contains(&pages), "{pages}");
        drop(database);
    }

    #[test]
    fn file_grows_twofold_as_far_as_it_may_and_then_by_regions() {
        assert_eq!(Room::reach(258, 3000), Room { pages: 258, limit: 2064 });
        assert_eq!(Room::reach(700, 1399), Room { pages: 700, limit: 700 });
        assert_eq!(Room::reach(700, 20), Room { pages: 700, limit: 20 });
        assert_eq!(Room::reach(0, 9), Room { pages: 0, limit: 8 });
        let region = 1 << 20;
        assert_eq!(Room::reach(region, 4 * region).limit, 3 * region);
    }
}

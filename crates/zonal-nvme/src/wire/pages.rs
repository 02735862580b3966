//! Pages that a controller returns: mostly zeroes, with fields at the places that the standard says.

/// A page of `N` bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Default for Page<N> {
    fn default() -> Page<N> {
        Page(Box::new([0; N]))
    }
}

impl<const N: usize> Page<N> {
    /// The bytes from `at` on.
    ///
    /// # Panics
    /// If the page ends before: a mistake of the caller.
    pub fn bytes_at(&mut self, at: usize) -> &mut [u8] {
        &mut self.0[at..]
    }

    /// Puts bytes at `at`.
    ///
    /// # Panics
    /// If they do not fit: a mistake of the caller.
    pub fn bytes(&mut self, at: usize, bytes: &[u8]) -> &mut Page<N> {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// A field of two bytes.
    pub fn u16(&mut self, at: usize, value: u16) -> &mut Page<N> {
        self.bytes(at, &value.to_le_bytes())
    }

    /// A field of four bytes.
    pub fn u32(&mut self, at: usize, value: u32) -> &mut Page<N> {
        self.bytes(at, &value.to_le_bytes())
    }

    /// A field of eight bytes.
    pub fn u64(&mut self, at: usize, value: u64) -> &mut Page<N> {
        self.bytes(at, &value.to_le_bytes())
    }

    /// The page.
    pub fn into_vec(self) -> Vec<u8> {
        (self.0 as Box<[u8]>).into_vec()
    }
}

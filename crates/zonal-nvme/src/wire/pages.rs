//! Pages that a controller returns: mostly zeroes, with fields at the places that the standard says.

/// A text in a page.
pub type Text = str;

/// A page of `N` bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Default for Page<N> {
    fn default() -> Page<N> {
        Page(Box::new([0; N]))
    }
}

impl<const N: usize> Page<N> {
    /// Puts bytes at `at`.
    ///
    /// # Panics
    /// If they do not fit: a mistake of the caller.
    pub fn bytes(&mut self, at: usize, bytes: &[u8]) -> &mut Page<N> {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// A field of one byte.
    pub fn u8(&mut self, at: usize, value: u8) -> &mut Page<N> {
        self.bytes(at, &[value])
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

    /// A text of `len` bytes, filled with blanks.
    pub fn padded(&mut self, at: usize, len: usize, text: &Text) -> &mut Page<N> {
        self.0[at..at + len].fill(b' ');
        let text = &text.as_bytes()[..text.len().min(len)];
        self.bytes(at, text)
    }

    /// A text of at most `len` bytes, filled with zeroes.
    pub fn text(&mut self, at: usize, len: usize, text: &Text) -> &mut Page<N> {
        self.bytes(at, &text.as_bytes()[..text.len().min(len)])
    }

    /// The page.
    pub fn into_vec(self) -> Vec<u8> {
        (self.0 as Box<[u8]>).into_vec()
    }
}

/// The text that ends at the first zero, if it is one.
pub fn text(bytes: &[u8]) -> Option<&Text> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).ok()
}

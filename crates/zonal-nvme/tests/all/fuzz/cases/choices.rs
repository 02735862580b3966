//! Choices of a case, decoded from the bytes of a fuzzer or a seed. After the end of the bytes
//! every choice is the first one.

/// Source of choices.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices(bytes)
    }

    /// True if no bytes are left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes up to `len` raw bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub fn number(&mut self) -> u32 {
        let mut bytes = [0; 4];
        let taken = self.take(4);
        bytes[..taken.len()].copy_from_slice(taken);
        u32::from_le_bytes(bytes)
    }

    /// Number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        match end {
            0 => 0,
            1..=256 => u32::from(self.byte()) % end,
            _ => self.number() % end,
        }
    }

    /// True with probability `of_256` / 256; false if no bytes are left.
    pub fn is(&mut self, of_256: u8) -> bool {
        !self.is_over() && self.byte() < of_256
    }

    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u32) as usize]
    }
}

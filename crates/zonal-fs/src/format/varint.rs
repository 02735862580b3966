//! Variable-length numbers of one to ten bytes in the values of rows.
//!
//! LEB128: seven bits per byte, low bits first, and the high bit set if another byte follows. Most
//! numbers in rows are below 128 and take one byte. Overlong forms are refused, so that each row
//! has exactly one encoding.

/// Appends `number`.
pub(crate) fn put(row: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        row.push(number as u8 | 0x80);
        number >>= 7;
    }
    row.push(number as u8);
}

/// Appends a signed number. Numbers near zero are short.
pub(crate) fn put_signed(row: &mut Vec<u8>, number: i64) {
    put(row, ((number << 1) ^ (number >> 63)) as u64);
}

/// Reads values from the front of a row.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// Takes `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    /// Takes `len` bytes.
    pub(crate) fn take_slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn take_u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|b| b[0])
    }

    /// Takes a number that fits `T`. Overlong forms are refused.
    pub(crate) fn take_number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take_u8()?;
            let bits = u64::from(byte & 0x7F);
            // The tenth byte holds only the top bit of the 64.
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_shortest = byte > 0 || shift == 0;
                return if is_shortest { number.try_into().ok() } else { None };
            }
        }
        None
    }

    /// Takes a number encoded by [`put_signed`].
    pub(crate) fn take_signed(&mut self) -> Option<i64> {
        let number: u64 = self.take_number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(bytes: &[u8]) -> Option<u64> {
        let mut reader = Reader(bytes);
        reader.take_number().filter(|_| reader.0.is_empty())
    }

    #[test]
    fn number_in_a_longer_form_or_of_too_many_bits_is_refused() {
        assert_eq!(number(&[0]), Some(0));
        assert_eq!(number(&[0x80, 1]), Some(128));
        assert_eq!(number(&[0x80, 0]), None);
        assert_eq!(number(&[0x80]), None);
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1];
        assert_eq!(number(&largest), Some(u64::MAX));
        let beyond = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2];
        assert_eq!(number(&beyond), None);
        assert_eq!(number(&[0xFF; 11]), None);
        assert_eq!(Reader(&[0x80, 2]).take_number::<u8>(), None, "256 is no byte");
    }

    proptest! {
        #[test]
        fn numbers_come_back(n in any::<u64>(), bits in 0..64u32, signed in any::<i64>()) {
            let n = n >> bits;
            let mut row = Vec::new();
            put(&mut row, n);
            prop_assert_eq!(number(&row), Some(n));
            let mut row = Vec::new();
            put_signed(&mut row, signed >> bits);
            prop_assert_eq!(Reader(&row).take_signed(), Some(signed >> bits));
        }

        #[test]
        fn bytes_that_are_a_number_are_its_only_form(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Some(n) = number(&bytes) {
                let mut row = Vec::new();
                put(&mut row, n);
                prop_assert_eq!(row, bytes);
            }
        }
    }
}

//! Structures of fixed length with fields at the places that the standards give them, from one table each.
//!
//! Numbers are big-endian and take whole bytes, or a range of bits of one byte. Numbers take any value. [`Layout::MASK`] says
//! which bits are those of fields: of a command descriptor, all that it may have set.

/// Where a field lies: from this byte on, or in these bits of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldPlace {
    /// First byte.
    pub at: usize,
    /// Highest bit.
    pub high: u8,
    /// Lowest bit.
    pub low: u8,
}

impl FieldPlace {
    /// Whole bytes.
    pub const fn whole(at: usize) -> FieldPlace {
        FieldPlace { at, high: 7, low: 0 }
    }

    /// The bits from `high` down to `low`.
    pub const fn bits(at: usize, high: u8, low: u8) -> FieldPlace {
        assert!(low <= high && high <= 7, "bits of one byte");
        FieldPlace { at, high, low }
    }

    /// The field's bits in its first byte.
    pub const fn mask(self) -> u8 {
        (0xFF >> (7 - self.high)) & (0xFF << self.low)
    }
}

/// What can stand in a structure.
pub trait Field: Sized {
    /// Bytes that it takes.
    const LEN: usize;

    /// The value at `place`, which lies inside of `bytes`.
    fn take(bytes: &[u8], place: FieldPlace) -> Self;

    /// Puts the value there, and leaves other bits.
    fn put(&self, bytes: &mut [u8], place: FieldPlace);
}

impl Field for u8 {
    const LEN: usize = 1;

    fn take(bytes: &[u8], place: FieldPlace) -> u8 {
        (bytes[place.at] & place.mask()) >> place.low
    }

    fn put(&self, bytes: &mut [u8], place: FieldPlace) {
        let byte = &mut bytes[place.at];
        *byte = *byte & !place.mask() | (*self << place.low) & place.mask();
    }
}

impl Field for bool {
    const LEN: usize = 1;

    fn take(bytes: &[u8], place: FieldPlace) -> bool {
        u8::take(bytes, place) != 0
    }

    fn put(&self, bytes: &mut [u8], place: FieldPlace) {
        u8::from(*self).put(bytes, place);
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Field for $number {
            const LEN: usize = size_of::<$number>();

            fn take(bytes: &[u8], place: FieldPlace) -> $number {
                <$number>::from_be_bytes(<[u8; size_of::<$number>()]>::take(bytes, place))
            }

            fn put(&self, bytes: &mut [u8], place: FieldPlace) {
                self.to_be_bytes().put(bytes, place);
            }
        })*
    };
}

numbers!(u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const LEN: usize = N;

    fn take(bytes: &[u8], place: FieldPlace) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&bytes[place.at..place.at + N]);
        array
    }

    fn put(&self, bytes: &mut [u8], place: FieldPlace) {
        bytes[place.at..place.at + N].copy_from_slice(self);
    }
}

/// A structure of fixed length.
pub trait Layout: Sized {
    /// Its name in the standard, for messages.
    const NAME: &'static str;

    /// Its bytes.
    const LEN: usize;

    /// The bits of its fields, in its first 32 bytes.
    const MASK: [u8; 32];

    /// The value of the first [`Layout::LEN`] bytes; `None` if there are fewer.
    fn parse(bytes: &[u8]) -> Option<Self>;

    /// Puts its fields into `bytes`, and leaves the other bits.
    ///
    /// # Panics
    /// If they are fewer than [`Layout::LEN`]: a mistake of the caller.
    fn put(&self, bytes: &mut [u8]);

    /// Its bytes, zeroes where no field is.
    fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::LEN];
        self.put(&mut bytes);
        bytes
    }
}

/// Adds a field of `len` bytes to a mask.
pub const fn marked(mut mask: [u8; 32], place: FieldPlace, len: usize) -> [u8; 32] {
    let mut n = 0;
    while n < len && place.at + n < 32 {
        mask[place.at + n] |= place.mask();
        n += 1;
    }
    mask
}

/// Where a field is: `at`, `at[bit]` or `at[high:low]`.
macro_rules! place {
    ($at:literal) => {
        $crate::wire::layout::FieldPlace::whole($at)
    };
    ($at:literal, $bit:literal) => {
        $crate::wire::layout::FieldPlace::bits($at, $bit, $bit)
    };
    ($at:literal, $high:literal, $low:literal) => {
        $crate::wire::layout::FieldPlace::bits($at, $high, $low)
    };
}

/// A structure, its length in bytes, and where each field lies.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident[$len:literal] {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $at:literal $([$high:literal $(: $low:literal)?])?,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $crate::wire::layout::Layout for $name {
            const NAME: &'static str = stringify!($name);
            const LEN: usize = $len;
            const MASK: [u8; 32] = {
                let mask = [0; 32];
                $(let mask = $crate::wire::layout::marked(
                    mask,
                    $crate::wire::layout::place!($at $(, $high $(, $low)?)?),
                    <$type as $crate::wire::layout::Field>::LEN,
                );)*
                mask
            };

            fn parse(bytes: &[u8]) -> Option<$name> {
                let _bytes = bytes.get(..$len)?;
                Some($name {
                    $($field: $crate::wire::layout::Field::take(
                        _bytes,
                        $crate::wire::layout::place!($at $(, $high $(, $low)?)?),
                    ),)*
                })
            }

            fn put(&self, bytes: &mut [u8]) {
                let _bytes = &mut bytes[..$len];
                $($crate::wire::layout::Field::put(
                    &self.$field,
                    _bytes,
                    $crate::wire::layout::place!($at $(, $high $(, $low)?)?),
                );)*
            }
        }
    };
}

/// A command descriptor: its operation code, its service action if it has one, its length in bytes, and its fields.
macro_rules! cdb {
    ($(#[$doc:meta])* $name:ident($opcode:literal $(, $action:literal)?)[$len:literal] { $($fields:tt)* }) => {
        $crate::wire::layout::layout! { $(#[$doc])* $name[$len] { $($fields)* } }

        impl $crate::wire::layout::CommandLayout for $name {
            const OPCODE: u8 = $opcode;
            const ACTION: Option<u8> = $crate::wire::layout::action!($($action)?);
        }
    };
}

macro_rules! action {
    () => {
        None
    };
    ($action:literal) => {
        Some($action)
    };
}

pub(crate) use {action, cdb, layout, place};

/// The structure of a command descriptor.
pub trait CommandLayout: Layout {
    /// Operation code, in byte 0.
    const OPCODE: u8;

    /// Service action, in bits 4:0 of byte 1.
    const ACTION: Option<u8>;
}

//! Checked values of pages: structures with named fields at the places that the standard gives them.
//!
//! A value is parsed from bytes, which may be anything, and emitted as bytes. Numbers take any value. A text is refused that is none.

use super::Page;

/// What can stand in a page.
pub trait Field: Sized {
    /// Bytes that it takes.
    const LEN: usize;

    /// The value of these bytes, which are [`Field::LEN`].
    fn take(bytes: &[u8]) -> Option<Self>;

    /// Puts the value there.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Field for $number {
            const LEN: usize = size_of::<$number>();

            fn take(bytes: &[u8]) -> Option<$number> {
                Some(<$number>::from_le_bytes(bytes.try_into().ok()?))
            }

            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}

numbers!(u8, u16, u32, u64);

impl<const N: usize> Field for [u8; N] {
    const LEN: usize = N;

    fn take(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }

    fn put(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }
}

/// A text that ends with the first zero, or with its field. As a field it takes `N` bytes; longer texts are cut.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZeroEnded<const N: usize>(pub String);

/// A text that is filled with blanks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Padded<const N: usize>(pub String);

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

fn put_text(text: &str, bytes: &mut [u8], filler: u8) {
    let len = text.len().min(bytes.len());
    bytes.fill(filler);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
}

impl<const N: usize> Field for ZeroEnded<N> {
    const LEN: usize = N;

    fn take(bytes: &[u8]) -> Option<ZeroEnded<N>> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(N);
        text(&bytes[..end]).map(ZeroEnded)
    }

    fn put(&self, bytes: &mut [u8]) {
        put_text(&self.0, bytes, 0);
    }
}

impl<const N: usize> Field for Padded<N> {
    const LEN: usize = N;

    fn take(bytes: &[u8]) -> Option<Padded<N>> {
        text(bytes).map(|text| Padded(text.trim_end_matches(' ').to_owned()))
    }

    fn put(&self, bytes: &mut [u8]) {
        put_text(&self.0, bytes, b' ');
    }
}

impl<const N: usize> From<&str> for ZeroEnded<N> {
    fn from(text: &str) -> ZeroEnded<N> {
        ZeroEnded(text.to_owned())
    }
}

impl<const N: usize> From<&str> for Padded<N> {
    fn from(text: &str) -> Padded<N> {
        Padded(text.to_owned())
    }
}

/// A structure of fixed length.
pub trait Layout: Sized {
    /// Its name in the standard, for messages.
    const NAME: &'static str;

    /// Its bytes.
    const LEN: usize;

    /// Where its fields begin, and how long they are.
    const PLACES: &'static [(usize, usize)];

    /// The value of the first [`Layout::LEN`] bytes.
    fn parse(bytes: &[u8]) -> Option<Self>;

    /// Puts its fields into `bytes`, and leaves the others.
    ///
    /// # Panics
    /// If they are fewer than [`Layout::LEN`].
    fn put(&self, bytes: &mut [u8]);
}

/// A structure, its length in bytes, and where each field begins.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident[$len:literal] { $($(#[$field_doc:meta])* $field:ident: $kind:ty = $at:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }

        impl $crate::wire::Layout for $name {
            const NAME: &'static str = stringify!($name);
            const LEN: usize = $len;
            const PLACES: &'static [(usize, usize)] =
                &[$(($at, <$kind as $crate::wire::Field>::LEN)),*];

            fn parse(bytes: &[u8]) -> Option<$name> {
                let bytes = bytes.get(..$len)?;
                Some($name {
                    $($field: <$kind as $crate::wire::Field>::take(
                        &bytes[$at..$at + <$kind as $crate::wire::Field>::LEN],
                    )?,)*
                })
            }

            fn put(&self, bytes: &mut [u8]) {
                $($crate::wire::Field::put(
                    &self.$field,
                    &mut bytes[$at..$at + <$kind as $crate::wire::Field>::LEN],
                );)*
            }
        }

        impl $name {
            /// Its bytes, zeroes where no field is.
            pub fn emit(&self) -> $crate::wire::Page<$len> {
                $crate::wire::Page::of(self)
            }
        }
    };
}

pub(super) use layout;

impl<const N: usize> Page<N> {
    /// A page with this at its beginning.
    pub fn of(value: &impl Layout) -> Page<N> {
        Page::default().with(0, value)
    }

    /// The page with this at `at`.
    ///
    /// # Panics
    /// If it does not fit: a mistake of the caller.
    #[must_use]
    pub fn with(mut self, at: usize, value: &impl Layout) -> Page<N> {
        value.put(self.bytes_at(at));
        self
    }
}

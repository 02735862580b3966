//! Structures of fixed length in commands and data, big-endian and without padding.

/// Defines structures, and checks their length in bytes.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident[$len:expr] {
        $($(#[$field_doc:meta])* $field:ident: $of:ty),* $(,)?
    })*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
            zerocopy::Immutable, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $of),* }

        const _: () = assert!(size_of::<$name>() == $len);
    )*};
}

pub(super) use layouts;

//! Identity of a device: a permanent number, independent of its name and location.
//!
//! A copy of a file has the identity of its original. On one machine,
//! [`DeviceInfo::cache`](crate::device::DeviceInfo::cache) distinguishes them.
//!
//! It is a UUID as in RFC 9562. Random identities are of version 4; others may be of any version.
//! The nil UUID is not an identity.

use std::fmt;
use std::num::NonZeroU128;
use std::str::FromStr;

/// A UUID that is not nil.
///
/// ```
/// use zonal_io::identity::Identity;
/// let identity: Identity = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse()?;
/// assert_eq!(identity.to_string(), "67e55044-10b1-426f-9247-bb680e5fe0c8");
/// assert_eq!(identity.bytes()[..2], [0x67, 0xe5]);
/// # Ok::<(), zonal_io::identity::NotAnIdentity>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(NonZeroU128);

/// A text that is not an identity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is not a UUID: expected 32 hexadecimal digits, as in 67e55044-10b1-426f-9247-bb680e5fe0c8, and not all zero"
)]
pub struct NotAnIdentity(String);

impl Identity {
    /// Random identity of version 4; `None` if the kernel's random number generator is not ready
    /// yet.
    pub fn random() -> Option<Identity> {
        let mut bytes = [0; 16];
        let length = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
        if length != Ok(bytes.len()) {
            return None;
        }
        // RFC 9562, section 5.4: four bits of version, two of variant.
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Identity::from_bytes(bytes)
    }

    /// Identity from its bytes in textual order; `None` if all are zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Identity> {
        NonZeroU128::new(u128::from_be_bytes(bytes)).map(Identity)
    }

    /// Returns the bytes in textual order.
    pub fn bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

impl FromStr for Identity {
    type Err = NotAnIdentity;

    fn from_str(text: &str) -> Result<Identity, NotAnIdentity> {
        let wrong = || NotAnIdentity(text.to_owned());
        let groups: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        let digits = groups.concat();
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_number || ![&[8, 4, 4, 4, 12][..], &[32]].contains(&lengths.as_slice()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(&digits, 16).ok().and_then(NonZeroU128::new);
        number.map(Identity).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_identities_are_of_version_4_and_differ() {
        let (a, b) = (Identity::random().unwrap(), Identity::random().unwrap());
        assert_ne!(a, b);
        for text in [a.to_string(), b.to_string()] {
            assert_eq!(text.as_bytes()[14], b'4', "{text}");
            assert!(b"89ab".contains(&text.as_bytes()[19]), "{text}");
            assert_eq!(text.parse::<Identity>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn text_is_read_with_or_without_strokes_in_either_case() {
        let text = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let identity: Identity = text.parse().unwrap();
        assert_eq!(text.to_uppercase().parse(), Ok(identity));
        assert_eq!(text.replace('-', "").parse(), Ok(identity));
        assert_eq!(Identity::from_bytes(identity.bytes()), Some(identity));
        assert_eq!(Identity::from_bytes([0; 16]), None);
        let nil = "00000000-0000-0000-0000-000000000000";
        let long = text.to_owned() + "0";
        for wrong in
            ["", "-", nil, &text[1..], &long, "67e5-504410b1426f9247bb680e5fe0c8", &text.replace('e', "g")]
        {
            assert!(wrong.parse::<Identity>().is_err(), "{wrong}");
        }
        assert!("+7e55044-10b1-426f-9247-bb680e5fe0c8".parse::<Identity>().is_err());
    }
}

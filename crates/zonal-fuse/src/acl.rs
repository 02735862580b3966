//! POSIX access control lists, in the kernel's format of extended attributes.
//!
//! The kernel checks accesses against a list and caches it. This module keeps lists consistent with
//! modes: a list equivalent to a mode becomes that mode, a change of the mode changes the list, and
//! a file created in a directory with a default list inherits it.

/// List used for access checks.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// List of a directory, inherited by files created in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

mod tag {
    pub(super) const USER_OBJ: u16 = 0x01;
    pub(super) const USER: u16 = 0x02;
    pub(super) const GROUP_OBJ: u16 = 0x04;
    pub(super) const GROUP: u16 = 0x08;
    pub(super) const MASK: u16 = 0x10;
    pub(super) const OTHER: u16 = 0x20;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// An access control list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Parses the value of an attribute. Returns `None` if it is not a valid list.
    pub(crate) fn parse(value: &[u8]) -> Option<Acl> {
        let (version, entries) = value.split_at_checked(HEADER_BYTES)?;
        if u32::from_le_bytes(version.try_into().ok()?) != VERSION || entries.len() % ENTRY_BYTES != 0 {
            return None;
        }
        let number = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let entry = |bytes: &[u8]| Entry {
            tag: number(bytes),
            permissions: number(&bytes[2..]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let acl = Acl(entries.chunks_exact(ENTRY_BYTES).map(entry).collect());
        acl.is_sound().then_some(acl)
    }

    /// True if entries are sorted by tag, each owner class occurs once, and there is a mask if
    /// other users or groups are named.
    fn is_sound(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names_others = count(tag::USER) + count(tag::GROUP) > 0;
        let known = [tag::USER_OBJ, tag::USER, tag::GROUP_OBJ, tag::GROUP, tag::MASK, tag::OTHER];
        self.0.iter().all(|entry| known.contains(&entry.tag) && entry.permissions <= 7)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [tag::USER_OBJ, tag::GROUP_OBJ, tag::OTHER].iter().all(|tag| count(*tag) == 1)
            && (count(tag::MASK) == 1 || count(tag::MASK) == 0 && !names_others)
    }

    /// Value of the attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for Entry { tag, permissions, id } in &self.0 {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn permissions(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn permissions_mut(&mut self, tag: u16) -> Option<&mut u16> {
        self.0.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.permissions)
    }

    /// Class that corresponds to the group bits of a mode.
    fn group_class(&self) -> u16 {
        if self.permissions(tag::MASK).is_some() { tag::MASK } else { tag::GROUP_OBJ }
    }

    /// Permission bits of a file with this list.
    pub(crate) fn mode(&self) -> u16 {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        of(tag::USER_OBJ) << 6 | of(self.group_class()) << 3 | of(tag::OTHER)
    }

    /// True if the list is equivalent to a mode.
    pub(crate) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Updates the list after a change of the mode.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        let group = self.group_class();
        for (tag, bits) in [(tag::USER_OBJ, mode >> 6), (group, mode >> 3), (tag::OTHER, mode)] {
            if let Some(permissions) = self.permissions_mut(tag) {
                *permissions = bits & 7;
            }
        }
    }

    /// List of a file created with `mode` in a directory with this default list.
    pub(crate) fn inherited(&self, mode: u16) -> Acl {
        let mut acl = self.clone();
        let group = acl.group_class();
        for (tag, bits) in [(tag::USER_OBJ, mode >> 6), (group, mode >> 3), (tag::OTHER, mode)] {
            if let Some(permissions) = acl.permissions_mut(tag) {
                *permissions &= bits & 7;
            }
        }
        acl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    fn named() -> Acl {
        let none = u32::MAX;
        list(&[(1, 7, none), (2, 6, 1000), (4, 5, none), (16, 6, none), (32, 4, none)])
    }

    #[test]
    fn acl_round_trips() {
        assert_eq!(Acl::parse(&named().encode()), Some(named()));
        assert_eq!(named().mode(), 0o764);
    }

    #[test]
    fn list_that_no_file_can_have_is_refused() {
        let none = u32::MAX;
        let mut without_mask = named();
        without_mask.0.remove(3);
        let mut twice = named();
        twice.0.insert(0, twice.0[0]);
        let mut odd = named();
        odd.0[0].permissions = 8;
        let unsorted = list(&[(32, 4, none), (1, 7, none), (4, 5, none)]);
        for acl in [without_mask, twice, odd, unsorted, list(&[]), list(&[(1, 7, none), (4, 5, none)])] {
            assert_eq!(Acl::parse(&acl.encode()), None, "{acl:?}");
        }
        for bytes in [&b""[..], &[2, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0, 1]] {
            assert_eq!(Acl::parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn mode_changes_the_mask_and_not_the_group() {
        let mut acl = named();
        acl.set_mode(0o700);
        assert_eq!(acl.mode(), 0o700);
        assert_eq!(acl.permissions(tag::GROUP_OBJ), Some(5));
        assert!(!acl.is_mode());
    }

    #[test]
    fn inherited_acl_is_limited_by_the_requested_mode() {
        assert_eq!(named().inherited(0o640).mode(), 0o640);
        assert_eq!(named().inherited(0o777).mode(), 0o764);
    }
}

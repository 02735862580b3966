//! Mode pages. All values reflect the device, and none can be changed.

use super::identify::own;
use super::{Disk, Invocation, Started};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{
    BlockDescriptor, CachingPage, ControlPage, LongBlockDescriptor, ModeHeader6, ModeHeader10, ModeSelect6,
    ModeSelect10, ModeSense6, ModeSense10, bits, flag, parse_as,
};
use crate::work::memory;
use zerocopy::{FromBytes, IntoBytes};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const ALL_PAGES: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

/// Maximum bytes of a parameter list that are examined. Exceeds the length of all pages together.
const LIST_MAX: usize = 512;

/// Page control values of MODE SENSE and LOG SENSE (SPC 6.13.1).
const CHANGEABLE: u8 = 1;
const SAVED: u8 = 3;

/// Parameters of a MODE SENSE, in either form.
struct ModeQuestion {
    is_short: bool,
    is_long_descriptor: bool,
    has_no_descriptor: bool,
    control: u8,
    page: u8,
    subpage: u8,
    len: u32,
}

impl Disk {
    pub(super) fn mode_sense(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let question = question_of(invocation)?;
        if question.control == SAVED {
            return Err(SenseCode::SAVING_PARAMETERS_NOT_SUPPORTED.into());
        }
        let pages = self.mode_pages(&question)?;
        let descriptor = match question.has_no_descriptor {
            true => Vec::new(),
            false => self.block_descriptor(question.is_long_descriptor),
        };
        let header = self.mode_header(&question, descriptor.len(), pages.len());
        Ok(Started::Data([header, descriptor, pages].concat(), question.len))
    }

    fn mode_pages(&self, question: &ModeQuestion) -> Result<Vec<u8>, CheckCondition> {
        if !matches!(question.subpage, 0 | ALL_SUBPAGES) {
            return Err(CheckCondition::in_cdb(3));
        }
        let pages: Vec<Vec<u8>> = self
            .current_pages()
            .into_iter()
            .filter(|page| question.page == ALL_PAGES || question.page == page[0])
            .map(|page| if question.control == CHANGEABLE { unchangeable(page) } else { page })
            .collect();
        if pages.is_empty() {
            return Err(CheckCondition::in_cdb_bit(2, 5));
        }
        Ok(pages.concat())
    }

    fn current_pages(&self) -> [Vec<u8>; 2] {
        const WRITE_CACHE: u8 = 0x04;
        const ANY_ORDER: u8 = 1 << 4;
        let caching = CachingPage {
            page: CACHING,
            len: (size_of::<CachingPage>() - 2) as u8,
            flags: flag(WRITE_CACHE, self.part().info().volatile_cache),
            ..CachingPage::default()
        };
        let control = ControlPage {
            page: CONTROL,
            len: (size_of::<ControlPage>() - 2) as u8,
            queue: ANY_ORDER,
            busy_max: u16::MAX.into(),
            ..ControlPage::default()
        };
        [caching.as_bytes().to_vec(), control.as_bytes().to_vec()]
    }

    fn block_descriptor(&self, is_long: bool) -> Vec<u8> {
        if is_long {
            let (blocks, block_len) = (self.blocks().into(), self.block_len().into());
            let long = LongBlockDescriptor { blocks, block_len, ..LongBlockDescriptor::default() };
            return long.as_bytes().to_vec();
        }
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX).into();
        let [_, block_len @ ..] = self.block_len().to_be_bytes();
        BlockDescriptor { blocks, reserved_4: 0, block_len }.as_bytes().to_vec()
    }

    fn mode_header(&self, question: &ModeQuestion, descriptors_len: usize, pages_len: usize) -> Vec<u8> {
        let flags =
            flag(ModeHeader6::WP, self.is_read_only()) | flag(ModeHeader6::DPOFUA, self.part().info().fua);
        let left = descriptors_len + pages_len;
        if question.is_short {
            let len = (size_of::<ModeHeader6>() - 1 + left) as u8;
            let descriptors_len = descriptors_len as u8;
            return ModeHeader6 { len, medium: 0, flags, descriptors_len }.as_bytes().to_vec();
        }
        let header = ModeHeader10 {
            len: ((size_of::<ModeHeader10>() - 2 + left) as u16).into(),
            flags,
            long: (question.is_long_descriptor && descriptors_len > 0).into(),
            descriptors_len: (descriptors_len as u16).into(),
            ..ModeHeader10::default()
        };
        header.as_bytes().to_vec()
    }

    /// Handles MODE SELECT: accepts only lists that change nothing.
    pub(super) fn mode_select(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let short = parse_as::<ModeSelect6>(invocation.cdb);
        let (flags, len) = match short {
            Some(ModeSelect6 { flags, len, .. }) => (flags, u16::from(len)),
            None => {
                let ModeSelect10 { flags, len, .. } = own(invocation)?;
                (flags, len.get())
            }
        };
        if flags & bits::SP != 0 {
            return Err(CheckCondition::in_cdb_bit(1, 0).into());
        }
        if len == 0 {
            return Ok(Started::Done(0));
        }
        if flags & bits::PF == 0 {
            return Err(CheckCondition::in_cdb_bit(1, 4).into());
        }
        if invocation.data_out.len() < usize::from(len) {
            return Err(SenseCode::DATA_PHASE_ERROR.into());
        }
        if usize::from(len) > LIST_MAX {
            return Err(SenseCode::PARAMETER_LIST_LENGTH_ERROR.into());
        }
        let list = memory::copy(invocation.data_out, 0, len.into());
        self.check_mode_list(&list, short.is_some())?;
        Ok(Started::Done(len.into()))
    }

    fn check_mode_list(&self, list: &[u8], is_short: bool) -> Result<(), CheckCondition> {
        let cut_short = || CheckCondition::from(SenseCode::PARAMETER_LIST_LENGTH_ERROR);
        let (at, descriptors_len, is_long) = match is_short {
            true => {
                let (header, _) = ModeHeader6::read_from_prefix(list).map_err(|_| cut_short())?;
                (size_of::<ModeHeader6>(), usize::from(header.descriptors_len), false)
            }
            false => {
                let (header, _) = ModeHeader10::read_from_prefix(list).map_err(|_| cut_short())?;
                let is_long = header.long & 1 != 0;
                (size_of::<ModeHeader10>(), usize::from(header.descriptors_len.get()), is_long)
            }
        };
        let descriptors = list.get(at..at + descriptors_len).ok_or_else(cut_short)?;
        self.check_descriptor(descriptors, is_long).map_err(|()| CheckCondition::in_list(at as u16))?;
        let mut at = at + descriptors_len;
        let current = self.current_pages();
        while at < list.len() {
            let [page, len, ..] = list[at..] else { return Err(cut_short()) };
            let given = list.get(at..at + 2 + usize::from(len)).ok_or_else(cut_short)?;
            // The PS bit is set by the disk only.
            let own = current.iter().find(|own| own[0] == page & 0x7F);
            let own = own.ok_or(CheckCondition::in_list(at as u16))?;
            if own.len() != given.len() {
                return Err(CheckCondition::in_list(at as u16 + 1));
            }
            if let Some(n) = (2..own.len()).find(|n| own[*n] != given[*n]) {
                return Err(CheckCondition::in_list((at + n) as u16));
            }
            at += given.len();
        }
        Ok(())
    }

    /// A block descriptor has to match, except that zero blocks means unspecified (SBC 6.5.2.2).
    fn check_descriptor(&self, given: &[u8], is_long: bool) -> Result<(), ()> {
        if given.is_empty() {
            return Ok(());
        }
        let own = self.block_descriptor(is_long);
        let count = if is_long { 8 } else { 4 };
        let is_open = given.len() == own.len() && given[..count].iter().all(|byte| *byte == 0);
        let is_same = if is_open { given[count..] == own[count..] } else { given == own };
        if is_same { Ok(()) } else { Err(()) }
    }
}

fn question_of(invocation: &Invocation<'_>) -> Result<ModeQuestion, CheckCondition> {
    let short = parse_as::<ModeSense6>(invocation.cdb);
    let (flags, page, subpage, len) = match short {
        Some(ModeSense6 { flags, page, subpage, len }) => (flags, page, subpage, len.into()),
        None => {
            let ModeSense10 { flags, page, subpage, len, .. } = own(invocation)?;
            (flags, page, subpage, len.get().into())
        }
    };
    Ok(ModeQuestion {
        is_short: short.is_some(),
        is_long_descriptor: short.is_none() && flags & bits::LLBAA != 0,
        has_no_descriptor: flags & bits::DBD != 0,
        control: page >> 6,
        page: page & 0x3F,
        subpage,
        len,
    })
}

/// Mask of changeable values of a page: all zero.
fn unchangeable(mut page: Vec<u8>) -> Vec<u8> {
    page[2..].fill(0);
    page
}

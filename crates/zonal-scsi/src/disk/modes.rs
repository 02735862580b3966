//! Mode pages. All values are what the device is: none can be changed.

use super::identify::own;
use super::{Begun, Disk, Invocation};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{
    BlockDescriptor, CachingPage, ControlPage, Layout, LongBlockDescriptor, ModeHeader6, ModeHeader10,
    ModeSelect6, ModeSelect10, ModeSense6, ModeSense10, parse_as,
};
use crate::work::memory;

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const ALL_PAGES: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

/// Longest parameter list that is looked at, in bytes: longer than all values together.
const LIST_MAX: usize = 512;

/// Which values a MODE SENSE or LOG SENSE asks for (SPC 6.13.1).
const CHANGEABLE: u8 = 1;
const SAVED: u8 = 3;

/// What a MODE SENSE asks for, in either form.
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
    pub(super) fn mode_sense(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
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
        Ok(Begun::Data([header, descriptor, pages].concat(), question.len))
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
        let caching = CachingPage {
            page: CACHING,
            len: (CachingPage::LEN - 2) as u8,
            has_write_cache: self.part().info().volatile_cache,
            has_no_read_cache: false,
        };
        let control = ControlPage {
            page: CONTROL,
            len: (ControlPage::LEN - 2) as u8,
            is_descriptor_sense: false,
            queue_modifier: 1,
            is_write_protected: false,
            busy_max: u16::MAX,
        };
        [caching.emit(), control.emit()]
    }

    fn block_descriptor(&self, is_long: bool) -> Vec<u8> {
        if is_long {
            return LongBlockDescriptor { blocks: self.blocks(), block_len: self.block_len() }.emit();
        }
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        let [_, block_len @ ..] = self.block_len().to_be_bytes();
        BlockDescriptor { blocks, block_len }.emit()
    }

    fn mode_header(&self, question: &ModeQuestion, descriptors_len: usize, pages_len: usize) -> Vec<u8> {
        let (is_write_protected, has_fua) = (self.is_read_only(), self.part().info().fua);
        let left = descriptors_len + pages_len;
        if question.is_short {
            let len = (ModeHeader6::LEN - 1 + left) as u8;
            let descriptors_len = descriptors_len as u8;
            return ModeHeader6 { len, medium: 0, is_write_protected, has_fua, descriptors_len }.emit();
        }
        let header = ModeHeader10 {
            len: (ModeHeader10::LEN - 2 + left) as u16,
            medium: 0,
            is_write_protected,
            has_fua,
            is_long: question.is_long_descriptor && descriptors_len > 0,
            descriptors_len: descriptors_len as u16,
        };
        header.emit()
    }

    /// Takes a list that changes nothing.
    pub(super) fn mode_select(&self, invocation: &Invocation<'_>) -> Result<Begun, Failure> {
        let short = parse_as::<ModeSelect6>(invocation.cdb);
        let (is_page_format, is_saving, len) = match short {
            Some(ModeSelect6 { is_page_format, is_saving, len }) => {
                (is_page_format, is_saving, u16::from(len))
            }
            None => {
                let ModeSelect10 { is_page_format, is_saving, len } = own(invocation)?;
                (is_page_format, is_saving, len)
            }
        };
        if is_saving {
            return Err(CheckCondition::in_cdb_bit(1, 0).into());
        }
        if len == 0 {
            return Ok(Begun::Done(0));
        }
        if !is_page_format {
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
        Ok(Begun::Done(len.into()))
    }

    fn check_mode_list(&self, list: &[u8], is_short: bool) -> Result<(), CheckCondition> {
        let cut_short = || CheckCondition::from(SenseCode::PARAMETER_LIST_LENGTH_ERROR);
        let (at, descriptors_len, is_long) = match is_short {
            true => {
                let header = ModeHeader6::parse(list).ok_or_else(cut_short)?;
                (ModeHeader6::LEN, usize::from(header.descriptors_len), false)
            }
            false => {
                let header = ModeHeader10::parse(list).ok_or_else(cut_short)?;
                (ModeHeader10::LEN, usize::from(header.descriptors_len), header.is_long)
            }
        };
        let descriptors = list.get(at..at + descriptors_len).ok_or_else(cut_short)?;
        self.check_descriptor(descriptors, is_long).map_err(|()| CheckCondition::in_list(at as u16))?;
        let mut at = at + descriptors_len;
        let current = self.current_pages();
        while at < list.len() {
            let [page, len, ..] = list[at..] else { return Err(cut_short()) };
            let given = list.get(at..at + 2 + usize::from(len)).ok_or_else(cut_short)?;
            // Bit PS is the disk's to say.
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

    /// A descriptor may say what is, or leave the number of blocks open with zero (SBC 6.5.2.2).
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
    if let Some(short) = parse_as::<ModeSense6>(invocation.cdb) {
        let ModeSense6 { has_no_descriptor, control, page, subpage, len } = short;
        let len = len.into();
        let is_long_descriptor = false;
        return Ok(ModeQuestion {
            is_short: true,
            is_long_descriptor,
            has_no_descriptor,
            control,
            page,
            subpage,
            len,
        });
    }
    let ModeSense10 { is_long, has_no_descriptor, control, page, subpage, len } = own(invocation)?;
    Ok(ModeQuestion {
        is_short: false,
        is_long_descriptor: is_long,
        has_no_descriptor,
        control,
        page,
        subpage,
        len: len.into(),
    })
}

/// The page with a zero for each value that cannot be changed: all.
fn unchangeable(mut page: Vec<u8>) -> Vec<u8> {
    page[2..].fill(0);
    page
}

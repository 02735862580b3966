//! Emitted structures parse to equal values. tests/data/answers.txt has the field offsets.

use super::*;
use proptest::prelude::*;

fn optional<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    prop_oneof![Just(None), value.prop_map(Some)].boxed()
}

fn field_pointer() -> impl Strategy<Value = FieldPointer> {
    (any::<bool>(), any::<u16>(), optional(0..8u8)).prop_map(|(is_in_cdb, byte, bit)| FieldPointer {
        is_in_cdb,
        byte,
        bit,
    })
}

proptest! {
    #[test]
    fn values_are_parsed_as_they_were_emitted(
        lba in any::<u64>(), blocks in any::<u32>(), a in any::<bool>(), b in any::<bool>(), n in 0..4usize,
    ) {
        let read = Read { lba, blocks, fua: a };
        prop_assert_eq!(Read::parse(&read.emit()), Some(read));
        let write = Write { lba, blocks, fua: a };
        prop_assert_eq!(Write::parse(&write.emit()), Some(write));
        let check = [None, Some(ByteCheck::None), Some(ByteCheck::All), Some(ByteCheck::Each)][n];
        let verify = Verify { lba, blocks, check };
        prop_assert_eq!(Verify::parse(&verify.emit()), Some(verify));
        let sync = SynchronizeCache { lba, blocks, is_immediate: a };
        prop_assert_eq!(SynchronizeCache::parse(&sync.emit()), Some(sync));
        let same = WriteSame { lba, blocks, is_unmap: a, has_data: b };
        prop_assert_eq!(WriteSame::parse(&same.emit()), Some(same));
        let out = ZoneOut { action: ZoneAction::ALL[n], lba, is_all: a };
        prop_assert_eq!(ZoneOut::parse(&out.emit()), Some(out));
    }

    #[test]
    fn sense_in_both_formats_is_parsed_as_it_was_emitted(
        asc in any::<u8>(), ascq in any::<u8>(), short in optional(any::<u32>()), long in optional(any::<u64>()),
        field in optional(field_pointer()), other in 0..16u8,
    ) {
        let key = if field.is_some() { 5 } else { other };
        let fixed = SenseData { key, asc, ascq, information: short.map(u64::from), field };
        prop_assert_eq!(SenseData::parse(&fixed.emit_fixed()), Some(fixed));
        let free = SenseData { information: long, ..fixed };
        prop_assert_eq!(SenseData::parse(&free.emit_descriptor()), Some(free));
    }

    #[test]
    fn lists_are_parsed_as_they_were_emitted(
        ranges in prop::collection::vec((any::<u64>(), any::<u32>()), 0..20),
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
    ) {
        let ranges = ranges.into_iter().map(|(lba, blocks)| UnmapRange { lba, blocks }).collect();
        let list = UnmapList { ranges };
        prop_assert_eq!(UnmapList::parse(&list.emit()), Some(list));
        let designators: Vec<Designator> = names.into_iter().map(|bytes| Designator {
            code_set: CodeSet::Binary,
            association: Association::Device,
            designator_type: Designator::NAA,
            bytes,
        }).collect();
        let mut page = Vec::new();
        designators.iter().for_each(|designator| designator.emit(&mut page));
        prop_assert_eq!(Designator::parse_all(&page), Some(designators));
    }

    #[test]
    fn parsers_of_any_bytes_return(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = (SenseData::parse(&bytes), UnmapList::parse(&bytes), Designator::parse_all(&bytes));
    }
}

/// Exact bytes of SPC 4.5.2 and 4.5.3.
#[test]
fn sense_has_the_standards_bytes() {
    let field = FieldPointer { is_in_cdb: true, byte: 2, bit: Some(7) };
    let sense = SenseData { key: 5, asc: 0x24, ascq: 0, information: Some(0x0102), field: Some(field) };
    let fixed = [0xF0, 0, 5, 0, 0, 1, 2, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCF, 0, 2];
    assert_eq!(sense.emit_fixed(), fixed);
    let information = [0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    let specific = [2, 6, 0, 0, 0xCF, 0, 2, 0];
    let descriptor = [&[0x72, 5, 0x24, 0, 0, 0, 0, 20][..], &information, &specific].concat();
    assert_eq!(sense.emit_descriptor(), descriptor);
}

//! Any sequence of calls, against a vector of bytes.

use super::*;
use proptest::prelude::*;

/// Pages in a map; stores fail when told to.
#[derive(Debug, Default)]
struct Shelf {
    pages: Mutex<BTreeMap<u64, PageBytes>>,
    is_full: Mutex<bool>,
}

impl Medium for Shelf {
    fn load(&self, first: u64, out: &mut [u8]) -> Result<(), BackendError> {
        let pages = self.pages.lock();
        for (page, out) in (first..).zip(out.chunks_mut(PAGE)) {
            // What was never stored is not asked for.
            out.copy_from_slice(pages.get(&page).unwrap_or(&[0xEE; PAGE]));
        }
        Ok(())
    }

    fn store(&self, snapshot: &Snapshot) -> Result<(), BackendError> {
        if *self.is_full.lock() {
            return Err(BackendError::Full { needed: 1, usable: 0 });
        }
        let mut pages = self.pages.lock();
        pages.extend((snapshot.cut..pages_of(snapshot.len)).map(|page| (page, [0; PAGE])));
        pages.extend(snapshot.pages.iter().map(|(page, bytes)| (*page, **bytes)));
        Ok(())
    }

    fn discard(&self, pages: Range<u64>) {
        self.pages.lock().retain(|page, _| !pages.contains(page));
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn has(&self, page: u64) -> bool {
        self.pages.lock().contains_key(&page)
    }

    fn admit(&self, _waiting: u64, _fresh: u64) -> Result<(), BackendError> {
        Ok(())
    }

    fn admit_len(&self, _pages: u64) -> Result<(), BackendError> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room { limit: u64::MAX, ..Room::default() }
    }

    fn wait(&self) {}
}

#[derive(Clone, Debug)]
enum FileStep {
    Write { at: usize, len: usize, byte: u8 },
    SetLen(usize),
    Sync { is_full: bool },
    Forget,
}

const LONGEST: usize = 12 * PAGE;

fn step() -> impl Strategy<Value = FileStep> {
    prop_oneof![
        4 => (0..LONGEST, 0..3 * PAGE, 1..=255u8).prop_map(|(at, len, byte)| FileStep::Write { at, len, byte }),
        2 => (0..LONGEST).prop_map(FileStep::SetLen),
        1 => any::<bool>().prop_map(|is_full| FileStep::Sync { is_full }),
        1 => Just(FileStep::Forget),
    ]
}

fn check(file: &Paged<Shelf>, model: &[u8]) {
    assert_eq!(file.len().unwrap(), model.len() as u64);
    let mut whole = vec![0; model.len()];
    file.read(0, &mut whole).unwrap();
    assert!(whole == model);
    let middle = model.len() / 3..model.len() / 2;
    let mut part = vec![0; middle.len()];
    file.read(middle.start as u64, &mut part).unwrap();
    assert!(part == model[middle]);
    assert!(file.read(model.len() as u64, &mut [0]).is_err());
}

proptest! {
    #[test]
    fn file_reads_as_a_vector_of_bytes_whatever_is_stored(steps in prop::collection::vec(step(), 0..40)) {
        let (file, mut model) = (Paged::new(Shelf::default(), 0), Vec::new());
        let mut durable = Vec::new();
        for step in steps {
            match step {
                FileStep::Write { at, len, byte } => {
                    let range = at.min(model.len())..(at + len).min(model.len());
                    model[range.clone()].fill(byte);
                    *file.medium.is_full.lock() = false;
                    file.write(range.start as u64, &model[range]).unwrap();
                }
                FileStep::SetLen(len) => {
                    model.resize(len, 0);
                    file.set_len(len as u64).unwrap();
                }
                FileStep::Sync { is_full } => {
                    let had_waiting = file.waiting() > 0;
                    *file.medium.is_full.lock() = is_full;
                    let result = file.sync_data();
                    prop_assert!(!(is_full && had_waiting && result.is_ok()));
                    prop_assert!(is_full || file.waiting() == 0);
                    if result.is_ok() {
                        durable.clone_from(&model);
                    }
                }
                FileStep::Forget => {
                    file.forget_unsynced();
                    model.clone_from(&durable);
                    prop_assert_eq!(file.waiting(), 0);
                }
            }
            check(&file, &model);
        }
        *file.medium.is_full.lock() = false;
        file.sync_data().unwrap();
        let stored = Paged::new(file.medium, model.len() as u64);
        check(&stored, &model);
    }
}

//! Blocks that were written since the last seal or flush: what the next seal has to list.

use crate::layout::seal::{ENTRIES_MAX, Sealed};
use crate::layout::{Address, FileBlock, Ino};

/// Blocks of others that may wait for a seal while files seal themselves inside their inodes. Beyond, an fsync writes a seal, which takes them:
/// they would become more than one can list, and cost a flush of their own.
const OTHERS_MAX: usize = ENTRIES_MAX / 2;

/// A block that no seal lists yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unlisted {
    /// What a seal says of it.
    pub sealed: Sealed,
    /// The page that it holds; `None` of a node.
    pub page: Option<(Ino, FileBlock)>,
}

/// All of them. Stops counting (and computing) at what no seal could list.
#[derive(Debug, Default)]
pub struct Unsealed {
    entries: Vec<Unlisted>,
    overflown: bool,
    /// The flush that blocks were left to, which the list does not have any more.
    left_to: Option<u64>,
}

impl Unsealed {
    /// A block is on its way to the device: of this page, or a node.
    pub fn note(&mut self, address: Address, bytes: &[u8], page: Option<(Ino, FileBlock)>) {
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(Unlisted { sealed: Sealed::of(address, bytes), page });
        } else {
            self.overflown = true;
        }
    }

    /// Whether one seal can list all of it and `more` entries.
    pub fn fits(&self, more: usize) -> bool {
        !self.overflown && self.entries.len() + more <= ENTRIES_MAX
    }

    /// Hands all of it out.
    pub fn take(&mut self) -> Vec<Unlisted> {
        self.overflown = false;
        std::mem::take(&mut self.entries)
    }

    /// Takes back what [`take`](Self::take) handed out.
    pub fn put_back(&mut self, entries: Vec<Unlisted>) {
        self.entries = entries;
    }

    /// The pages of a file among it; `None` where they are not all known, or others have waited for a seal long enough.
    pub fn of_file(&self, ino: Ino) -> Option<Vec<(FileBlock, Sealed)>> {
        let own: Vec<(FileBlock, Sealed)> = self.entries.iter().filter_map(|one| one.page_of(ino)).collect();
        let others = self.entries.len() - own.len();
        (!self.overflown && others <= OTHERS_MAX).then_some(own)
    }

    /// Something else than a seal lists the pages of a file at these addresses.
    pub fn drop_listed(&mut self, ino: Ino, listed: &[Address]) {
        self.entries.retain(|one| one.page_of(ino).is_none_or(|(_, sealed)| !listed.contains(&sealed.address)));
    }

    /// Leaves out what lies at such addresses.
    pub fn forget(&mut self, is_reused: impl Fn(Address) -> bool) {
        self.entries.retain(|one| !is_reused(one.sealed.address));
    }

    /// Leaves all of it to a flush.
    pub fn leave_to(&mut self, flush: u64) {
        self.take();
        self.left_to = Some(flush);
    }

    /// The flush that blocks were left to last.
    pub fn left_to(&self) -> Option<u64> {
        self.left_to
    }
}

impl Unlisted {
    fn page_of(&self, ino: Ino) -> Option<(FileBlock, Sealed)> {
        self.page.filter(|(of, _)| *of == ino).map(|(_, page)| (page, self.sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino::new(7);
    const OTHER: Ino = Ino::new(8);

    fn addresses(entries: &[Unlisted]) -> Vec<u32> {
        entries.iter().map(|one| one.sealed.address.get()).collect()
    }

    #[test]
    fn what_a_file_seals_itself_no_seal_lists() {
        let mut unsealed = Unsealed::default();
        let notes = [(100, Some((FILE, 3))), (101, Some((OTHER, 3))), (102, None), (103, Some((FILE, 4)))];
        for (at, page) in notes {
            let page = page.map(|(ino, page)| (ino, FileBlock::new(page)));
            unsealed.note(Address::new(at), &[1; 4096], page);
        }
        let own = unsealed.of_file(FILE).unwrap();
        let own: Vec<(u32, u32)> = own.iter().map(|(page, sealed)| (page.get(), sealed.address.get())).collect();
        assert_eq!(own, [(3, 100), (4, 103)]);
        // One of another file at the same address is no business of this one.
        unsealed.drop_listed(FILE, &[100, 101].map(Address::new));
        assert_eq!(addresses(&unsealed.take()), [101, 102, 103]);
        assert_eq!(unsealed.of_file(FILE), Some(vec![]));
    }

    #[test]
    fn a_seal_is_due_where_much_of_others_waits_or_not_all_is_known() {
        let mut unsealed = Unsealed::default();
        for at in 0..OTHERS_MAX as u32 {
            assert!(unsealed.of_file(FILE).is_some());
            unsealed.note(Address::new(at), &[1; 4096], Some((OTHER, FileBlock::new(at))));
        }
        assert!(unsealed.of_file(FILE).is_some());
        unsealed.note(Address::new(900), &[1; 4096], None);
        assert!(unsealed.of_file(FILE).is_none() && unsealed.of_file(OTHER).is_some());
        unsealed.take();
        for at in 0..ENTRIES_MAX as u32 {
            unsealed.note(Address::new(at), &[1; 4096], Some((FILE, FileBlock::new(at))));
        }
        assert_eq!(unsealed.of_file(FILE).map(|own| own.len()), Some(ENTRIES_MAX));
        unsealed.note(Address::new(900), &[1; 4096], Some((FILE, FileBlock::new(900))));
        assert!(unsealed.of_file(FILE).is_none());
    }

    /// Of what is not in the list nobody knows whether it is among what is left out.
    #[test]
    fn what_is_not_all_known_stays_so_when_some_of_it_is_reused() {
        let mut unsealed = Unsealed::default();
        for at in 0..=ENTRIES_MAX as u32 {
            unsealed.note(Address::new(at), &[1; 4096], Some((FILE, FileBlock::new(at))));
        }
        unsealed.forget(|address| address < Address::new(100));
        assert!(!unsealed.fits(0) && unsealed.of_file(FILE).is_none(), "the last one is in no list");
        assert_eq!(unsealed.take().len(), ENTRIES_MAX - 100);
        assert!(unsealed.fits(ENTRIES_MAX));
    }
}

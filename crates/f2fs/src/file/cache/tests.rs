use basalt_testkit::rng::Rng;

use super::*;

const BUDGET: usize = 4 * CLEAN_MIN * BLOCK_SIZE;

fn ino(number: u64) -> Ino {
    Ino::new(number as u32)
}

fn at(index: u64) -> FileBlock {
    FileBlock::new(index as u32)
}

fn bytes(value: u8) -> [u8; BLOCK_SIZE] {
    [value; BLOCK_SIZE]
}

fn copy(bytes: &[u8; BLOCK_SIZE]) -> Box<RawBlock> {
    let mut block = RawBlock::zeroed();
    block.0 = *bytes;
    block
}

fn cache() -> Pages {
    Pages::new(BUDGET)
}

/// A cache with these dirty pages.
fn dirty(of: &[(u64, u64)]) -> Pages {
    let mut pages = cache();
    for &(inode, index) in of {
        pages.change(ino(inode), at(index));
    }
    pages
}

/// Writes up to `most` pages of an inode; `refused`: the page that cannot be written.
fn write(
    pages: &mut Pages,
    ino: Ino,
    from: FileBlock,
    most: usize,
    refused: Option<FileBlock>,
) -> (Vec<(FileBlock, u8)>, Result<()>) {
    let mut seen = Vec::new();
    let Some(mut taken) = pages.take_out(ino) else { return (seen, Ok(())) };
    let fail = || Error::Refused(basalt_vfs::Error::NoSpace);
    let result = if taken.are_of_directory() {
        taken.write_each(from, most, |index, block| {
            if refused == Some(index) {
                return Err(fail());
            }
            seen.push((index, block.0[0]));
            Ok(())
        })
    } else {
        taken.hand_over(from, most, |index, block| {
            if refused == Some(index) {
                return Err((block, fail()));
            }
            seen.push((index, block.0[0]));
            Ok(())
        })
    };
    let written = pages.put_back(taken);
    assert_eq!(written, seen.iter().map(|(index, _)| *index).collect::<Vec<_>>());
    (seen, result)
}

/// As writeback does it: up to `most` pages, going on where the last call ended.
fn write_some(pages: &mut Pages, most: usize) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    for _ in 0..=pages.dirty_inode_count() {
        let left = most - all.len();
        let Some((ino, from)) = pages.next_to_write().filter(|_| left > 0) else { break };
        let (written, _) = write(pages, ino, from, left, None);
        let last = written.last().map(|(index, _)| *index);
        pages.go_on_behind(ino, last.filter(|_| written.len() == left));
        all.extend(written.iter().map(|(index, _)| (ino.get(), index.get())));
    }
    all
}

impl Pages {
    /// Counts everything anew.
    fn recount(&self) {
        let (mut of_files, mut of_directories, mut inodes) = (0, 0, BTreeSet::new());
        assert_eq!(self.dirty.nodes, self.inodes.values().map(|state| state.dirty.nodes()).sum::<usize>());
        for (&ino, state) in &self.inodes {
            let dirty = state.pages.values().filter(|page| page.dirty).count();
            assert_eq!(state.dirty.count, dirty, "dirty pages of inode {ino}");
            *(if state.dirty.is_directory { &mut of_directories } else { &mut of_files }) += dirty;
            if dirty > 0 {
                inodes.insert(ino);
            }
        }
        assert_eq!((self.dirty.of_files, self.dirty.of_directories), (of_files, of_directories));
        assert_eq!(self.dirty.inodes, inodes);
        for ino in self.dirty.ordered.keys() {
            assert!(inodes.contains(ino) && !self.inodes[ino].dirty.is_directory, "ordered: inode {ino}");
        }
        assert!(self.clean.len() <= self.clean_max, "{} clean pages are listed", self.clean.len());
    }
}

/// What the cache has to agree with: the bytes of dirty pages, references, and from where on files are ordered.
#[derive(Default)]
struct Model {
    dirty: BTreeMap<(Ino, FileBlock), u8>,
    lookups: BTreeMap<Ino, u64>,
    ordered: BTreeMap<Ino, FileBlock>,
}

impl Model {
    fn of(&self, ino: Ino, from: FileBlock) -> impl Iterator<Item = (FileBlock, u8)> {
        let range = self.dirty.range((ino, from)..(ino.saturating_next(), FileBlock::FIRST));
        range.map(|(&(_, index), &value)| (index, value))
    }

    fn take(&mut self, ino: Ino, indices: &[FileBlock]) {
        indices.iter().for_each(|&index| assert!(self.dirty.remove(&(ino, index)).is_some(), "{ino} {index}"));
        if self.of(ino, FileBlock::FIRST).next().is_none() {
            self.ordered.remove(&ino);
        }
    }

    fn compare(&self, pages: &Pages) {
        assert_eq!(pages.dirty_pages(), self.dirty.len());
        assert_eq!(pages.dirty_pages(), pages.dirty_file_pages() + pages.dirty_directory_pages());
        for (&(ino, index), &value) in &self.dirty {
            assert!(pages.has_dirty_page(ino, index), "inode {ino} block {index}");
            assert_eq!(pages.cached(ino, index).map(|page| page.block.0[0]), Some(value));
        }
        assert_eq!(pages.dirty.ordered, self.ordered);
        for (&ino, &lookups) in &self.lookups {
            assert_eq!(pages.is_held(ino), lookups > 0, "inode {ino}");
        }
    }
}

#[test]
fn counts_and_lists_agree_after_whatever_happens() {
    const SEED: u64 = 41;
    const INODES: u64 = 6;
    let mut rng = Rng::new(SEED);
    let (mut pages, mut model) = (cache(), Model::default());
    let is_directory = |ino: Ino| ino.get().is_multiple_of(3);
    for step in 0..100_000 {
        let ino = ino(rng.below(INODES) + 1);
        // More blocks than may stay clean.
        let (from, length) = (at(rng.below(60)), rng.below(8) as u32);
        let value = rng.below(256) as u8;
        let operation = rng.below(13);
        match operation {
            0..=2 => {
                pages.set_directory(ino, is_directory(ino));
                pages.change(ino, from).block.0[0] = value;
                model.dirty.insert((ino, from), value);
            }
            3 | 4 => {
                pages.set_directory(ino, is_directory(ino));
                pages.replace(ino, from, &bytes(value), copy);
                model.dirty.insert((ino, from), value);
            }
            5 if is_directory(ino) && !pages.has_page(ino, from) => {
                pages.add_clean(ino, from, copy(&bytes(value)), true);
                assert!(pages.has_page(ino, from), "seed {SEED}, step {step}");
            }
            6 => {
                let gone: Vec<_> =
                    model.of(ino, from).map(|(index, _)| index).take_while(|&i| i < from + length).collect();
                assert_eq!(pages.discard(ino, from, from + length), !gone.is_empty(), "seed {SEED}, step {step}");
                model.take(ino, &gone);
            }
            7 => {
                let most = rng.below(10) as usize;
                let expected: Vec<_> = model.of(ino, from).take(most).collect();
                let refused = expected.get(rng.below(20) as usize).map(|(index, _)| *index);
                let expected: Vec<_> = expected.into_iter().take_while(|(index, _)| Some(*index) != refused).collect();
                let (written, result) = write(&mut pages, ino, from, most, refused);
                assert_eq!(written, expected, "seed {SEED}, step {step}");
                assert_eq!(result.is_err(), refused.is_some(), "seed {SEED}, step {step}");
                model.take(ino, &written.iter().map(|(index, _)| *index).collect::<Vec<_>>());
                // Those of a directory stay, as far as there is room; those of a file go.
                assert!(is_directory(ino) || written.iter().all(|(index, _)| !pages.has_page(ino, *index)));
            }
            8 => {
                let written = write_some(&mut pages, rng.below(30) as usize);
                written.iter().for_each(|&(inode, index)| model.take(Ino::new(inode), &[FileBlock::new(index)]));
            }
            9 => {
                pages.order(ino, from);
                if !is_directory(ino) && model.of(ino, FileBlock::FIRST).next().is_some() {
                    let first = model.ordered.entry(ino).or_insert(from);
                    *first = from.min(*first);
                }
            }
            10 => {
                pages.hold(ino, is_directory(ino));
                *model.lookups.entry(ino).or_default() += 1;
            }
            11 => {
                let left = model.lookups.entry(ino).or_default();
                *left = left.saturating_sub(u64::from(length));
                let left = *left;
                if let Some(found) = pages.let_go(ino, length.into()) {
                    assert_eq!(found, left, "seed {SEED}, step {step}");
                    pages.forget_unused(ino);
                }
            }
            12 if rng.below(4) == 0 => {
                let gone: Vec<_> = model.of(ino, FileBlock::FIRST).map(|(index, _)| index).collect();
                assert_eq!(pages.forget_inode(ino), !gone.is_empty(), "seed {SEED}, step {step}");
                model.take(ino, &gone);
                model.lookups.remove(&ino);
                assert!(!pages.inodes.contains_key(&ino));
            }
            _ => {}
        }
        pages.recount();
        if step % 16 == 0 {
            model.compare(&pages);
        }
    }
}

#[test]
fn writeback_goes_on_where_it_ended() {
    let mut pages = dirty(&[(5, 0), (5, 7), (5, 3), (9, 1), (4, 2)]);
    assert_eq!(write_some(&mut pages, 3), [(4, 2), (5, 0), (5, 3)]);
    // In front of where it goes on, and an inode with a lower number: both come last.
    pages.change(ino(5), at(1));
    pages.change(ino(4), at(8));
    assert_eq!(write_some(&mut pages, 1), [(5, 7)]);
    assert_eq!(write_some(&mut pages, 9), [(9, 1), (4, 8), (5, 1)]);
    assert_eq!(write_some(&mut pages, 9), []);
    assert_eq!(pages.dirty_pages(), 0);
    pages.recount();
}

#[test]
fn dirty_inodes_are_listed_by_number_and_directories_apart() {
    let mut pages = dirty(&[(9, 0), (3, 0), (7, 0), (7, 1), (5, 0)]);
    assert_eq!((pages.dirty_directories(), pages.first_dirty_inode()), (vec![], Some(ino(3))));
    [7, 3, 8].into_iter().for_each(|inode| pages.set_directory(ino(inode), true));
    assert_eq!(pages.dirty_inodes(), [3, 5, 7, 9].map(Ino::new));
    assert_eq!(pages.dirty_directories(), [3, 7].map(Ino::new));
    assert_eq!((pages.dirty_file_pages(), pages.dirty_directory_pages()), (2, 3));
    assert_eq!((pages.dirty_pages_of(ino(7)), pages.dirty_pages_of(ino(8)), pages.dirty_pages_of(ino(1))), (2, 0, 0));
    pages.recount();
}

/// An inode has an address of its own at least, a direct node 1018.
#[test]
fn nodes_of_dirty_pages_are_no_more_than_pages_and_than_lie_in_front_of_the_last() {
    let nodes = |of: &[(u64, u64)]| dirty(of).nodes_of_dirty();
    assert_eq!(nodes(&[]), 0);
    assert_eq!(nodes(&[(4, 0)]), 1);
    assert_eq!(nodes(&[(4, 7)]), 1);
    assert_eq!(nodes(&[(4, 0), (4, 1), (4, 1018)]), 2);
    assert_eq!(nodes(&[(4, 0), (4, 1), (4, 1019)]), 3);
    assert_eq!(nodes(&[(4, 0), (4, 1 << 20)]), 2);
    assert_eq!(nodes(&[(4, 0), (4, 1), (5, 7), (6, 5000)]), 4);
    // What was dirty further on counts until nothing is.
    let mut pages = dirty(&[(4, 0), (4, 1), (4, 2), (4, 5000)]);
    assert_eq!(pages.nodes_of_dirty(), 4);
    pages.discard(ino(4), at(5000), at(5001));
    assert_eq!(pages.nodes_of_dirty(), 3);
    assert_eq!(write_some(&mut pages, 9).len(), 3);
    assert_eq!(pages.nodes_of_dirty(), 0);
    (0..9).for_each(|index| _ = pages.change(ino(4), at(index)));
    assert_eq!(pages.nodes_of_dirty(), 2);
    assert!(pages.forget_inode(ino(4)));
    assert_eq!(pages.nodes_of_dirty(), 0);
}

#[test]
fn runs_are_neighbours_that_are_dirty_and_written_in_one_go() {
    let mut pages = dirty(&[(4, 1), (4, 2), (4, 3), (4, 5), (4, 8), (4, 9)]);
    pages.add_clean(ino(4), at(4), RawBlock::zeroed(), false);
    let taken = pages.take_out(ino(4)).unwrap();
    let runs = |from, most| taken.runs(at(from), most).into_iter().map(|(end, length)| (end.get(), length)).collect();
    let all: Vec<_> = runs(0, 100);
    assert_eq!(all, [(4, 3), (6, 1), (10, 2)]);
    let some: Vec<_> = runs(2, 4);
    assert_eq!(some, [(4, 2), (6, 1), (9, 1)]);
    _ = pages.put_back(taken);
}

#[test]
fn a_page_that_cannot_be_written_stays_and_so_do_those_behind_it() {
    for is_directory in [false, true] {
        let mut pages = dirty(&[(4, 1), (4, 2), (4, 3), (4, 4)]);
        pages.set_directory(ino(4), is_directory);
        pages.change(ino(4), at(3)).block.0[0] = 33;
        let (written, result) = write(&mut pages, ino(4), at(2), usize::MAX, Some(at(3)));
        assert_eq!(written, [(at(2), 0)]);
        assert!(matches!(result, Err(Error::Refused(basalt_vfs::Error::NoSpace))));
        assert_eq!([1, 2, 3, 4].map(|index| pages.has_dirty_page(ino(4), at(index))), [true, false, true, true]);
        assert_eq!(pages.has_page(ino(4), at(2)), is_directory);
        assert_eq!(pages.cached(ino(4), at(3)).map(|page| page.block.0[0]), Some(33));
        pages.recount();
    }
}

#[test]
fn ordered_files_are_listed_until_their_pages_are_written_or_gone() {
    let mut pages = dirty(&[(4, 1), (4, 6), (5, 1), (6, 1), (7, 1)]);
    pages.set_directory(ino(7), true);
    // Nothing dirty, and a directory: every checkpoint writes those.
    [8, 7].into_iter().for_each(|inode| pages.order(ino(inode), at(0)));
    assert_eq!(pages.first_ordered(), None);
    // From the first on, whatever comes later.
    [6, 2, 5].into_iter().for_each(|from| pages.order(ino(4), at(from)));
    [5, 6].into_iter().for_each(|inode| pages.order(ino(inode), at(0)));
    assert_eq!(pages.first_ordered(), Some((ino(4), at(2))));
    // Those from there on are written, one in front of them stays.
    assert_eq!(write(&mut pages, ino(4), at(2), 9, None).0, [(at(6), 0)]);
    assert_eq!(pages.first_ordered(), Some((ino(4), at(2))));
    pages.note_ordered_written(ino(4));
    assert!(pages.has_dirty_page(ino(4), at(1)));
    assert_eq!(pages.first_ordered(), Some((ino(5), at(0))));
    assert!(pages.discard(ino(5), FileBlock::FIRST, FileBlock::END));
    assert_eq!(pages.first_ordered(), Some((ino(6), at(0))));
    assert!(pages.forget_inode(ino(6)));
    assert_eq!(pages.first_ordered(), None);
    pages.recount();
}

#[test]
fn the_oldest_clean_page_of_a_directory_goes_first() {
    let mut pages = cache();
    let add = |pages: &mut Pages, inode, index| pages.add_clean(ino(inode), at(index), RawBlock::zeroed(), true);
    pages.hold(ino(3), true);
    add(&mut pages, 3, 0);
    add(&mut pages, 4, 0);
    add(&mut pages, 3, 1);
    pages.change(ino(3), at(1));
    (2..CLEAN_MIN as u64).for_each(|index| add(&mut pages, 5, index));
    // One more than there is room for: each pushes out one.
    assert!(!pages.has_page(ino(3), at(0)) && pages.has_page(ino(4), at(0)));
    add(&mut pages, 5, 100);
    assert!(!pages.has_page(ino(4), at(0)));
    // With its last page goes what nobody uses; what is held, or dirty, stays.
    assert!(!pages.inodes.contains_key(&ino(4)));
    add(&mut pages, 5, 101);
    assert!(pages.has_dirty_page(ino(3), at(1)) && pages.is_held(ino(3)));
    assert!(pages.has_page(ino(5), at(2)));
    pages.recount();
}

#[test]
fn an_old_record_does_not_evict_the_page_that_was_just_read() {
    let mut pages = cache();
    pages.set_directory(ino(3), true);
    // Written twice, listed twice; then dropped, and read again when the first record is the oldest.
    for _ in 0..2 {
        pages.change(ino(3), at(0));
        assert_eq!(write(&mut pages, ino(3), FileBlock::FIRST, 1, None).0.len(), 1);
    }
    (2..CLEAN_MIN as u64).for_each(|index| pages.add_clean(ino(4), at(index), RawBlock::zeroed(), true));
    assert_eq!(pages.clean.len(), CLEAN_MIN);
    assert!(!pages.discard(ino(3), at(0), at(1)));
    pages.add_clean(ino(3), at(0), RawBlock::zeroed(), true);
    assert!(pages.has_page(ino(3), at(0)));
    pages.recount();
}

#[test]
fn a_file_without_references_is_forgotten_with_its_last_page() {
    let mut pages = dirty(&[(4, 0), (5, 0)]);
    pages.hold(ino(5), false);
    [4, 5].into_iter().for_each(|inode| drop(write(&mut pages, ino(inode), FileBlock::FIRST, 1, None)));
    assert!(!pages.inodes.contains_key(&ino(4)) && pages.inodes.contains_key(&ino(5)));
    assert_eq!((pages.let_go(ino(4), 1), pages.let_go(ino(5), 7)), (None, Some(0)));
    pages.forget_unused(ino(5));
    assert!(!pages.inodes.contains_key(&ino(5)));
    // A page keeps it, and so does a reference.
    pages.change(ino(6), at(0));
    pages.hold(ino(7), false);
    [6, 7].into_iter().for_each(|inode| pages.forget_unused(ino(inode)));
    assert!(pages.has_dirty_page(ino(6), at(0)) && pages.is_held(ino(7)));
    pages.recount();
}

#[test]
fn what_turns_out_to_be_a_directory_is_no_ordered_file() {
    let mut pages = dirty(&[(4, 1)]);
    pages.order(ino(4), at(0));
    pages.set_directory(ino(4), true);
    assert_eq!(pages.first_ordered(), None);
    pages.recount();
}

#[test]
fn directories_are_listed_where_no_file_is_dirty() {
    let mut pages = cache();
    pages.set_directory(ino(7), true);
    pages.change(ino(7), at(0));
    assert_eq!((pages.dirty_directories(), pages.dirty_file_pages()), (vec![ino(7)], 0));
}

#[test]
fn of_a_file_that_is_open_nothing_that_was_written_counts() {
    let mut pages = cache();
    pages.hold(ino(4), false);
    pages.change(ino(4), at(5000));
    assert_eq!(write_some(&mut pages, 9).len(), 1);
    (0..9).for_each(|index| _ = pages.change(ino(4), at(index)));
    assert_eq!(pages.nodes_of_dirty(), 2, "9 pages of an inode that is kept");
    // Whole pages that are replaced count where they lie, too.
    let bytes = [1; BLOCK_SIZE];
    for index in [5000, 5001] {
        pages.replace(ino(5), at(index), &bytes, |bytes| Box::new(RawBlock(*bytes)));
    }
    assert_eq!(pages.nodes_of_dirty(), 4);
    pages.recount();
}

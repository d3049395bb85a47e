//! The checkpoint: docs/flashlight-format.md, "Checkpoint".

use super::header::HEADER;
use super::{NONE, Numbers};

pub(crate) const MAGIC: &[u8; 8] = b"FLASHLIT";
pub(crate) const MAGIC_AT: usize = 20;
pub(crate) const VERSION: u32 = 1;
/// Bytes of a page, pages of a block, and blocks.
pub(crate) const SHAPE_AT: usize = 32;
/// The root's place of the second level.
pub(crate) const ROOT_SECOND: usize = 124;
pub(crate) const ROOT_GENERATION: usize = 128;
/// The first blocks, which have roots.
pub(crate) const ROOT_BLOCKS: u32 = 8;
/// The second level's place of the leaves.
pub(crate) const SECOND_LEAF: usize = 20;

/// Logs with a block of their own.
pub(crate) const LOGS: usize = 8;
pub(crate) const INDEXES: usize = 16;
pub(crate) const COUNT_PAGES: usize = 64;
pub(crate) const REMNANTS: usize = 16;
pub(crate) const WINDOW: usize = 128;

const FLAGS: usize = 20;
const CLEAN: u32 = 1;
const ERASES_AT: usize = 40;
const HEADS_AT: usize = 64;
const TABLE_AT: usize = 160;
const COUNTS_AT: usize = 224;
const REMNANTS_AT: usize = 480;
const WINDOW_AT: usize = 672;

/// Where the next page of a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The open block, or [`NONE`].
    pub(crate) block: u32,
    /// The page in it that comes next.
    pub(crate) next: u32,
    /// How often the block was erased.
    pub(crate) erases: u32,
}

impl Head {
    pub(crate) const CLOSED: Head = Head { block: NONE, next: 0, erases: 0 };

    fn write(&self, page: &mut [u8], at: usize) {
        page.set_u32(at, self.block);
        page.set_u32(at + 4, self.next);
        page.set_u32(at + 8, self.erases);
    }

    fn read(page: &[u8], at: usize) -> Head {
        Head { block: page.u32_at(at), next: page.u32_at(at + 4), erases: page.u32_at(at + 8) }
    }
}

/// What a leaf holds, in memory.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The inode number that comes next.
    pub(crate) next_serial: u32,
    /// Inodes in use.
    pub(crate) inodes: u32,
    /// Where the search for free blocks goes on.
    pub(crate) cursor: u32,
    /// How often blocks were erased, all together.
    pub(crate) erases: u64,
    pub(crate) heads: [Head; LOGS],
    /// The inode table's index.
    pub(crate) table: [u32; INDEXES],
    pub(crate) counts: [u32; COUNT_PAGES],
    pub(crate) remnants: [Head; REMNANTS],
    /// Free blocks in the order of their use; behind them [`NONE`].
    pub(crate) window: [u32; WINDOW],
}

impl State {
    pub(crate) fn new() -> State {
        State {
            next_serial: 0,
            inodes: 0,
            cursor: 0,
            erases: 0,
            heads: [Head::CLOSED; LOGS],
            table: [NONE; INDEXES],
            counts: [NONE; COUNT_PAGES],
            remnants: [Head::CLOSED; REMNANTS],
            window: [NONE; WINDOW],
        }
    }

    pub(crate) fn write(&self, page: &mut [u8], clean: bool) {
        page.fill(0);
        page.set_u32(FLAGS, if clean { CLEAN } else { 0 });
        page.set_u32(24, self.next_serial);
        page.set_u32(28, self.inodes);
        page.set_u32(32, self.cursor);
        page.set_u64(ERASES_AT, self.erases);
        let used = |list: &[u32]| list.iter().filter(|&&block| block != NONE).count() as u16;
        page.set_u16(36, used(&self.window));
        page.set_u16(38, self.remnants.iter().filter(|head| head.block != NONE).count() as u16);
        for (at, head) in self.heads.iter().enumerate() {
            head.write(page, HEADS_AT + 12 * at);
        }
        for (at, head) in self.remnants.iter().enumerate() {
            head.write(page, REMNANTS_AT + 12 * at);
        }
        for (first, list) in [(TABLE_AT, &self.table[..]), (COUNTS_AT, &self.counts), (WINDOW_AT, &self.window)] {
            for (at, &number) in list.iter().enumerate() {
                page.set_u32(first + 4 * at, number);
            }
        }
    }

    /// What a leaf says, and whether nothing was written since.
    pub(crate) fn read(page: &[u8]) -> (State, bool) {
        let mut state = State::new();
        state.next_serial = page.u32_at(24);
        state.inodes = page.u32_at(28);
        state.cursor = page.u32_at(32);
        state.erases = page.u64_at(ERASES_AT);
        for (at, head) in state.heads.iter_mut().enumerate() {
            *head = Head::read(page, HEADS_AT + 12 * at);
        }
        for (at, head) in state.remnants.iter_mut().enumerate() {
            *head = Head::read(page, REMNANTS_AT + 12 * at);
        }
        for (first, list) in
            [(TABLE_AT, &mut state.table[..]), (COUNTS_AT, &mut state.counts), (WINDOW_AT, &mut state.window)]
        {
            for (at, number) in list.iter_mut().enumerate() {
                *number = page.u32_at(first + 4 * at);
            }
        }
        (state, page.u32_at(FLAGS) & CLEAN != 0)
    }

    /// Whether every block and page that it names is on a chip of so many blocks and pages.
    pub(crate) fn is_sound(&self, blocks: u32, pages_per_block: u32) -> bool {
        let block = |number: u32| number == NONE || number < blocks;
        let page = |number: u32| number == NONE || number < blocks * pages_per_block;
        let head = |head: &Head| block(head.block) && head.next <= pages_per_block;
        self.heads.iter().chain(&self.remnants).all(head)
            && self.window.iter().all(|&number| block(number))
            && self.table.iter().chain(&self.counts).all(|&number| page(number))
            && self.cursor < blocks
    }
}

/// Where the table of a page begins.
pub(crate) const TABLE_FIRST: usize = HEADER;

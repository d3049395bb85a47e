//! A NAND chip in memory or in a file.
//!
//! It refuses what real chips answer with lost data ([`Rule`]), and does what they do unasked: blocks are bad from the factory or become
//! so, bits flip with age, with reads and with wear, and a power cut leaves half of a program or an erase. The same options and the same
//! requests give the same chip on any machine.

mod block;
mod failures;
mod flips;
mod power;
mod store;

use std::fs::File;
use std::path::Path;

use basalt_random::Rng;

use crate::device::{NandDevice, NandError, ReadStatus, Result, Rule, check_block, check_page, check_program};
use crate::{Geometry, is_erased};
use block::Block;
pub use failures::Failures;
pub use flips::Flips;
use power::{Found, Unstable};
pub use store::Backing;
use store::Store;

/// What a chip is like.
#[derive(Clone, Copy, Debug)]
pub struct ChipOptions {
    /// Its shape; `spare_bytes` are all that it has.
    pub geometry: Geometry,
    /// Everything that happens by chance follows from it.
    pub seed: u64,
    /// How long requests take.
    pub times: Times,
    /// Of 1,024 blocks, those that are bad from the factory. Block 0 never is, as data sheets promise.
    pub factory_bad: u32,
    /// How programs and erases fail.
    pub failures: Failures,
    /// How bits flip.
    pub flips: Flips,
}

impl ChipOptions {
    /// A chip on which nothing fails and nothing flips.
    pub fn new(geometry: Geometry) -> ChipOptions {
        let (failures, flips) = (Failures::default(), Flips::default());
        ChipOptions { geometry, seed: 0, times: Times::default(), factory_bad: 0, failures, flips }
    }
}

/// How long requests take, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// To read a page, with its transfer.
    pub read: u64,
    /// To program a page, with its transfer.
    pub program: u64,
    /// To erase a block.
    pub erase: u64,
}

impl Default for Times {
    /// A chip of one bit a cell: FlashLight paper, table I.
    fn default() -> Times {
        Times { read: 77_800, program: 252_800, erase: 1_500_000 }
    }
}

/// What a chip has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed, those where it failed included.
    pub programs: u64,
    /// Blocks erased, those where it failed included.
    pub erases: u64,
    /// Programs and erases that failed.
    pub failures: u64,
    /// Requests that broke a [`Rule`]; they did nothing else.
    pub broken_rules: u64,
    /// Time that all of it took, in ns.
    pub time: u64,
}

/// A NAND chip in memory or in a file. It corrects nothing: see [`Ecc`](crate::Ecc).
#[derive(Debug)]
pub struct Chip {
    options: ChipOptions,
    store: Store,
    blocks: Vec<Block>,
    unstable: Unstable,
    rng: Rng,
    counters: Counters,
    /// The clock, in ns: requests, and what [`pass`](Chip::pass) lets pass.
    now: u64,
}

impl Chip {
    /// A new chip in memory. It takes memory for the pages that are programmed.
    pub fn new(options: ChipOptions) -> Chip {
        Chip::fresh(options, Store::memory(options.geometry)).expect("memory does not fail")
    }

    /// A new chip in a new file: pages one after the other, each with its spare bytes behind it, as `nanddump --oob` writes them.
    /// Errors: there is such a file, or it cannot be made or written.
    pub fn create(path: &Path, options: ChipOptions) -> std::io::Result<Chip> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(options.geometry.raw_bytes())?;
        let mut store = Store::open(Box::new(file), options.geometry, true)?;
        (0..options.geometry.blocks).try_for_each(|block| store.erase(block)).map_err(std::io::Error::other)?;
        Chip::fresh(options, store).map_err(std::io::Error::other)
    }

    /// The chip in a file that [`create`](Chip::create) made, or any dump of that geometry. Wear is not in it: blocks begin with no erase.
    /// Errors: the file cannot be opened, or has another length.
    pub fn open(path: &Path, options: ChipOptions) -> std::io::Result<Chip> {
        let file = File::options().read(true).write(true).open(path)?;
        Chip::on(Box::new(file), options)
    }

    /// As [`open`](Chip::open), in what stands for a file.
    pub fn on(backing: Box<dyn Backing>, options: ChipOptions) -> std::io::Result<Chip> {
        Chip::found(options, Store::open(backing, options.geometry, true)?)
    }

    /// As [`on`](Chip::on), but what is done to the chip stays in memory: the file is only read.
    pub fn beside(backing: Box<dyn Backing>, options: ChipOptions) -> std::io::Result<Chip> {
        Chip::found(options, Store::open(backing, options.geometry, false)?)
    }

    fn found(options: ChipOptions, store: Store) -> std::io::Result<Chip> {
        let mut chip = Chip::with(options, store);
        for block in 0..options.geometry.blocks {
            chip.blocks[block as usize] = Block::found(&mut chip.store, &options.geometry, block)?;
        }
        Ok(chip)
    }

    /// The same chip once more, in memory: what is done to one does not change the other.
    pub fn snapshot(&self) -> Result<Chip> {
        Ok(Chip {
            options: self.options,
            store: self.store.snapshot()?,
            blocks: self.blocks.clone(),
            unstable: self.unstable.clone(),
            rng: self.rng.clone(),
            counters: self.counters,
            now: self.now,
        })
    }

    fn with(options: ChipOptions, store: Store) -> Chip {
        let blocks = vec![Block::default(); options.geometry.blocks as usize];
        let rng = Rng::new(options.seed);
        Chip { options, store, blocks, unstable: Unstable::default(), rng, counters: Counters::default(), now: 0 }
    }

    fn fresh(options: ChipOptions, store: Store) -> Result<Chip> {
        let mut chip = Chip::with(options, store);
        for block in 1..options.geometry.blocks {
            if chip.rng.below(1024) < u64::from(options.factory_bad) {
                chip.note_bad(block)?;
            }
        }
        Ok(chip)
    }

    /// What the chip is like.
    pub fn options(&self) -> &ChipOptions {
        &self.options
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How often a block was erased.
    ///
    /// # Panics
    /// There is no such block.
    pub fn erase_count(&self, block: u32) -> u32 {
        self.blocks[block as usize].erases
    }

    /// Lets time pass, in ns, in which bits flip.
    pub fn pass(&mut self, time: u64) {
        self.now += time;
    }

    /// The next programs and erases are counted, and the power goes in the middle of number `request`; 0 is the next one.
    pub fn cut_power_at(&mut self, request: u64) {
        self.unstable.cut_at(request);
    }

    /// The power is back. What was half done may read differently from now on.
    pub fn power_on(&mut self) -> Result<()> {
        for page in self.unstable.power_on(&mut self.rng) {
            self.scramble(page)?;
        }
        Ok(())
    }

    fn spend(&mut self, time: u64) {
        self.now += time;
        self.counters.time += time;
    }

    /// Writes the mark of a bad block, which any chip takes.
    fn note_bad(&mut self, block: u32) -> Result<()> {
        let geometry = self.options.geometry;
        let page = geometry.first_page(block);
        let mut bytes = self.store.read(page)?;
        if let Some(marker) = bytes.get_mut(geometry.page_bytes as usize..) {
            marker.iter_mut().take(2).for_each(|byte| *byte = 0);
        }
        self.store.write(page, &bytes)?;
        self.blocks[block as usize].bad = true;
        Ok(())
    }

    /// Makes a page unreadable: about every eighth bit flips.
    fn scramble(&mut self, page: u32) -> Result<()> {
        let mut bytes = self.store.read(page)?;
        for byte in &mut bytes {
            *byte ^= 1 << self.rng.below(8);
        }
        self.store.write(page, &bytes)
    }

    fn break_rule(&mut self, page: u32, rule: Rule) -> NandError {
        self.counters.broken_rules += 1;
        NandError::Rule { page, rule }
    }

    /// Whether a page may be programmed now.
    fn check_rules(&mut self, page: u32) -> Result<()> {
        let geometry = self.options.geometry;
        let block = self.blocks[geometry.block_of(page) as usize];
        if block.bad {
            return Err(self.break_rule(page, Rule::Bad));
        }
        if geometry.page_in_block(page) < block.next {
            let rule = if is_erased(&self.store.read(page)?) { Rule::Order } else { Rule::Twice };
            return Err(self.break_rule(page, rule));
        }
        Ok(())
    }

    /// The power goes while a page is programmed: nothing of it is seen, or a part, or all; and none of it can be relied on.
    fn cut_program(&mut self, page: u32, bytes: &[u8]) -> NandError {
        let seen = self.rng.below(3);
        let left: Vec<u8> = match seen {
            0 => vec![0xFF; bytes.len()],
            // Programming takes bits from 1 to 0.
            1 => bytes.iter().map(|&byte| byte | self.rng.next_u64() as u8).collect(),
            _ => bytes.to_vec(),
        };
        let block = self.options.geometry.block_of(page);
        self.blocks[block as usize].unreliable = true;
        self.unstable.add(page, &mut self.rng);
        self.store.write(page, &left).err().unwrap_or(NandError::PowerLost)
    }

    /// The power goes while a block is erased: it reads as before, as noise, or as erased; and none of it can be relied on.
    fn cut_erase(&mut self, block: u32) -> Result<()> {
        let geometry = self.options.geometry;
        let seen = self.rng.below(3);
        self.blocks[block as usize].unreliable = true;
        if seen == 2 {
            self.store.erase(block)?;
            self.blocks[block as usize].next = 0;
            self.unstable.forget(geometry, block);
            return Ok(());
        }
        for page in geometry.first_page(block)..geometry.first_page(block) + self.blocks[block as usize].next {
            match seen {
                0 => self.unstable.add(page, &mut self.rng),
                _ => self.scramble(page)?,
            }
        }
        Ok(())
    }
}

impl NandDevice for Chip {
    fn geometry(&self) -> Geometry {
        self.options.geometry
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<ReadStatus> {
        let geometry = self.options.geometry;
        check_page(&geometry, page, data.len(), spare.len())?;
        self.unstable.check_power()?;
        self.spend(self.options.times.read);
        self.counters.reads += 1;
        let block = &mut self.blocks[geometry.block_of(page) as usize];
        block.reads = block.reads.saturating_add(1);
        let block = *block;
        let found = self.unstable.read(page);
        if found == Found::Lost {
            self.scramble(page)?;
        }
        let mut bytes = self.store.read(page)?;
        if found == Found::Fading {
            // Three bits of the same 512 bytes: what corrects four still does.
            (0..3).for_each(|at| bytes[100 + at] ^= 1);
        }
        if geometry.page_in_block(page) < block.next {
            let age = self.now - block.programmed;
            self.options.flips.apply(&mut bytes, self.options.seed, page, &block, age);
        }
        let (content, beside) = bytes.split_at(geometry.page_bytes as usize);
        data.copy_from_slice(&content[..data.len()]);
        spare.copy_from_slice(&beside[..spare.len()]);
        Ok(ReadStatus::Clean)
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<()> {
        let geometry = self.options.geometry;
        check_program(&geometry, page, data.len(), spare.len())?;
        self.unstable.check_power()?;
        self.check_rules(page)?;
        let number = geometry.block_of(page) as usize;
        let mut bytes = vec![0xFF; geometry.raw_page_bytes() as usize];
        bytes[..data.len()].copy_from_slice(data);
        bytes[data.len()..][..spare.len()].copy_from_slice(spare);
        if self.blocks[number].flipped {
            // Programming takes bits from 1 to 0, and no bit back.
            let found = self.store.read(page)?;
            bytes.iter_mut().zip(&found).for_each(|(byte, found)| *byte &= found);
        }
        self.spend(self.options.times.program);
        self.counters.programs += 1;
        let now = self.now;
        let block = &mut self.blocks[number];
        if block.next == 0 {
            block.programmed = now;
        }
        block.next = geometry.page_in_block(page) + 1;
        if self.unstable.is_cut() {
            return Err(self.cut_program(page, &bytes));
        }
        self.store.write(page, &bytes)?;
        if self.blocks[number].unreliable {
            self.unstable.add(page, &mut self.rng);
        }
        if self.options.failures.program_fails(&mut self.blocks[number], &mut self.rng) {
            self.counters.failures += 1;
            self.scramble(page)?;
            // What was programmed before goes too, in time.
            for earlier in geometry.first_page(geometry.block_of(page))..page {
                self.unstable.fade(earlier, &mut self.rng);
            }
            return Err(NandError::ProgramFailed { page });
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<()> {
        let geometry = self.options.geometry;
        check_block(&geometry, block)?;
        self.unstable.check_power()?;
        if self.blocks[block as usize].bad {
            return Err(self.break_rule(geometry.first_page(block), Rule::Bad));
        }
        self.spend(self.options.times.erase);
        self.counters.erases += 1;
        self.blocks[block as usize].erases += 1;
        if self.unstable.is_cut() {
            self.cut_erase(block)?;
            return Err(NandError::PowerLost);
        }
        if self.options.failures.erase_fails(&mut self.blocks[block as usize], &mut self.rng) {
            self.counters.failures += 1;
            return Err(NandError::EraseFailed { block });
        }
        self.store.erase(block)?;
        self.unstable.forget(geometry, block);
        self.blocks[block as usize].erased();
        Ok(())
    }

    fn is_bad(&mut self, block: u32) -> Result<bool> {
        check_block(&self.options.geometry, block)?;
        self.unstable.check_power()?;
        Ok(self.blocks[block as usize].bad)
    }

    fn mark_bad(&mut self, block: u32) -> Result<()> {
        check_block(&self.options.geometry, block)?;
        self.unstable.check_power()?;
        self.note_bad(block)
    }

    fn flush(&mut self) -> Result<()> {
        self.unstable.check_power()?;
        self.store.flush()
    }
}

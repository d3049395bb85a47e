//! Where in a file the next I/O goes.

use basalt_random::Rng;

use super::options::Order;
use crate::operation::File;
use crate::stream::{Scatter, Zipf, unit};

/// A file of a thread.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) file: File,
    pub(super) path: String,
    /// Bytes of the file that take part.
    size: u64,
    /// The next byte to read, and to write, in order.
    next: [u64; 2],
    /// Somebody asked for another block of this pass, and there was none.
    pub(super) found_done: bool,
    choice: Choice,
}

#[derive(Debug, Clone)]
enum Choice {
    Sequential,
    /// Blocks in an order of their own, and how many of them are done.
    Map {
        order: Scatter,
        done: u32,
        blocks: u32,
    },
    Uniform(u32),
    Zipf(Box<Zipf>, Scatter),
    /// Blocks, and the power that makes of a random number the share of the blocks before the one that is meant.
    Pareto(u32, f64, Scatter),
}

impl Cursor {
    /// The cursor of a file that takes I/Os of at most `request` bytes, in so many blocks of them. `seed` is of this file and thread.
    pub(super) fn new(file: File, path: String, size: u64, blocks: u32, order: Order, seed: u64) -> Cursor {
        let scatter = Scatter::new(blocks, seed);
        let choice = match order {
            Order::Sequential => Choice::Sequential,
            Order::Map => Choice::Map { order: scatter, done: 0, blocks },
            Order::Uniform => Choice::Uniform(blocks),
            Order::Zipf(theta) => Choice::Zipf(Box::new(Zipf::new(u64::from(blocks), theta)), scatter),
            Order::Pareto(share) => Choice::Pareto(blocks, libm::log(share) / libm::log(1.0 - share), scatter),
        };
        Cursor { file, path, size, next: [0; 2], found_done: false, choice }
    }

    /// Begins a pass over the file.
    pub(super) fn restart(&mut self, rng: &mut Rng) {
        self.next = [0; 2];
        self.found_done = false;
        if let Choice::Map { order, done, blocks } = &mut self.choice {
            *order = Scatter::new(*blocks, rng.next_u64());
            *done = 0;
        }
    }

    /// Whether the pass is over: no block is left.
    pub(super) fn is_done(&self, requests: [u64; 2]) -> bool {
        match &self.choice {
            Choice::Sequential => (0..2).any(|direction| self.next[direction] + requests[direction] > self.size),
            Choice::Map { done, blocks, .. } => done >= blocks,
            Choice::Uniform(_) | Choice::Zipf(..) | Choice::Pareto(..) => false,
        }
    }

    /// The next byte offset for a request of this size and direction (0 reads, 1 writes); the pass is not over.
    pub(super) fn offset(&mut self, direction: usize, request: u64, rng: &mut Rng) -> u64 {
        let block = match &mut self.choice {
            Choice::Sequential => {
                let offset = self.next[direction];
                self.next[direction] += request;
                return offset;
            }
            Choice::Map { order, done, .. } => {
                *done += 1;
                order.apply(*done - 1)
            }
            Choice::Uniform(blocks) => rng.below(u64::from(*blocks)) as u32,
            Choice::Zipf(zipf, scatter) => scatter.apply((zipf.sample(rng) - 1) as u32),
            Choice::Pareto(blocks, power, scatter) => {
                // As fio's `rand_pareto`: rank = (n - 1) u^(log h / log (1 - h)).
                let rank = f64::from(*blocks - 1) * libm::pow(unit(rng), *power);
                scatter.apply(rank as u32)
            }
        };
        u64::from(block) * request
    }
}

//! fsync by an inode that is its own seal: see [`layout::inside`](crate::layout::inside).
//!
//! That is for a file of which only the inode is to be written, if what it has written since something last listed it lies in the inode, or
//! in one run of pages that the inode points to itself. A seal in front of it, in the same segment, tells recovery that the chain is none of
//! Linux's, and the position of each block. So the first fsync behind a checkpoint writes one, and the first in each segment of the chain.
//!
//! What others have written waits for the next seal. So an inode that leaves the cache, or a direct node, is not vouched for here, and has
//! its file write a seal.

use std::collections::BTreeMap;

use basalt_segments::{LogId, SegmentKind};

use crate::error::Result;
use crate::layout::inode::InlineFlags;
use crate::layout::inside::{Inside, data_crc};
use crate::layout::superblock::Features;
use crate::layout::{Address, FileBlock, Ino};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

/// Neighbouring pages of a file, which an inode vouches for.
pub(crate) struct Run {
    first: FileBlock,
    /// Of each page: where it is, and the CRC of its block.
    pages: Vec<(Address, u32)>,
}

impl Volume {
    /// What an inode has to vouch for so that it can be its own seal; `None` if it cannot. The file's dirty pages are written.
    pub(crate) fn run_inside(&mut self, ino: Ino) -> Result<Option<Run>> {
        let since = self.checkpoint.since();
        let place = self.next_address(LogId::of(SegmentKind::WarmNode));
        let is_possible = self.options.inside_seals
            && since.has_seal_in(self.geometry.segment_of(place))
            && !since.trail(ino).unmarked
            && !self.geometry.features.contains(Features::COMPRESSION)
            && self.direct_nodes(ino).is_empty()
            && Inside::has_room(self.inode(ino)?);
        if !is_possible {
            return Ok(None);
        }
        let Some(unsealed) = self.checkpoint.since().unsealed_of(ino) else { return Ok(None) };
        let flexible = self.geometry.flexible_inline_xattr();
        let raw = self.inode(ino)?;
        let slots = if raw.is_inline(InlineFlags::DATA) { &[] } else { raw.addresses(flexible) };
        let slots: Vec<Address> = slots.iter().map(|slot| Address::from(*slot)).collect();
        let mut pages = BTreeMap::new();
        for (page, sealed) in unsealed {
            // What was written there before, and died, waits for a seal.
            if !self.table.is_live(self.geometry.main_block(sealed.address)) {
                continue;
            }
            if slots.get(page.get() as usize) != Some(&sealed.address) {
                return Ok(None);
            }
            pages.insert(page, (sealed.address, sealed.crc));
        }
        Ok(one_run(pages))
    }

    /// Writes an inode that vouches for itself and for this run. `durable`: blocks of the chain that are.
    pub(crate) fn append_inside(&mut self, ino: Ino, run: &Run, durable: u32) -> Result<()> {
        self.node_mut(ino.nid())?;
        let position = self.checkpoint.since().chained();
        let log = LogId::of(SegmentKind::WarmNode);
        let Some((_, address)) = self.place_node(ino.nid(), self.marks_of_fsync(ino), Some(log))? else {
            return Ok(());
        };
        let inside = Inside {
            first: run.first,
            pages: run.pages.len() as u32,
            data_crc: data_crc(run.pages.iter().map(|(_, crc)| *crc)),
            undurable: Some(position.saturating_sub(durable)),
        };
        self.seal_inside(ino, address, &inside);
        let listed: Vec<Address> = run.pages.iter().map(|(at, _)| *at).collect();
        self.checkpoint.since_mut().note_sealed_inside(ino, &listed);
        if !mutant::active(Mutant::InsideTargetsNotKept) {
            self.keep_targets(ino.nid());
        }
        if let Some(bytes) = self.nodes.bytes(ino.nid()) {
            self.writer.append(&*self.device, log.index(), address, bytes)?;
        }
        self.writer.write_all(&*self.device)
    }
}

/// These pages, if they follow one another.
fn one_run(pages: BTreeMap<FileBlock, (Address, u32)>) -> Option<Run> {
    let first = pages.first_key_value().map_or(FileBlock::FIRST, |(page, _)| *page);
    let is_one = pages.keys().enumerate().all(|(at, page)| *page == first + at as u32);
    is_one.then(|| Run { first, pages: pages.into_values().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_one_another_are_one_run() {
        let run = |pages: &[u32]| {
            let page = |page: &u32| (FileBlock::new(*page), (Address::new(100 + page), 7 * page));
            one_run(pages.iter().map(page).collect()).map(|run| (run.first.get(), run.pages.len()))
        };
        assert_eq!(run(&[]), Some((0, 0)));
        assert_eq!(run(&[5]), Some((5, 1)));
        assert_eq!(run(&[7, 5, 6]), Some((5, 3)));
        assert_eq!(run(&[5, 7]), None);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests_of_files {
    use basalt_vfs::FileSystem;

    use super::*;
    use crate::options::{Deltas, OpenOptions};
    use crate::testing::{create, open_new, write};

    /// Nodes of a file that left memory are in no seal, and its inode does not vouch for them.
    #[test]
    fn an_inode_is_no_seal_where_others_of_its_nodes_went_to_the_chain() {
        let (_, fs) = open_new(64, 64 << 10, OpenOptions { delta: Deltas::Off, ..OpenOptions::default() });
        let ino = create(&fs, "file");
        write(&fs, ino, 0..8, 1);
        fs.sync().unwrap();
        write(&fs, ino, 0..1, 2);
        fs.sync_file(ino, false).unwrap();
        write(&fs, ino, 1..2, 3);
        let mut volume = fs.volume.lock();
        volume.write_back_all().unwrap();
        let ino = Ino::new(ino as u32);
        assert!(volume.run_inside(ino).unwrap().is_some());
        volume.checkpoint.since_mut().note_unmarked(ino);
        assert!(volume.run_inside(ino).unwrap().is_none());
    }
}

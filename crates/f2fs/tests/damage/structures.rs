//! The structures of a volume, and ways to damage them.

use basalt_f2fs::layout::inode::InlineFlags;
use basalt_f2fs::layout::{Address, BLOCK_SIZE, bit_msb};
use basalt_segments::Segment;
use basalt_testkit::rng::Rng;
use basalt_vfs::FileKind;

use crate::editor::Editor;

/// A kind of structure that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    Superblock,
    NewestPackHead,
    NewestPack,
    OlderPack,
    PackSummaries,
    NatEntry,
    NatSwapped,
    NatBlock,
    NatArea,
    SitBlock,
    SitArea,
    SsaBlock,
    SsaArea,
    RootInode,
    DirectoryInode,
    FileInode,
    OtherInode,
    DirectNode,
    IndirectNode,
    XattrNode,
    DirectoryBlock,
}

use Structure::*;

impl Structure {
    /// All of them.
    pub const ALL: [Structure; 21] = [
        Superblock,
        NewestPackHead,
        NewestPack,
        OlderPack,
        PackSummaries,
        NatEntry,
        NatSwapped,
        NatBlock,
        NatArea,
        SitBlock,
        SitArea,
        SsaBlock,
        SsaArea,
        RootInode,
        DirectoryInode,
        FileInode,
        OtherInode,
        DirectNode,
        IndirectNode,
        XattrNode,
        DirectoryBlock,
    ];
}

/// Where the structures of a volume are.
pub struct Map {
    /// Blocks of each kind.
    blocks: Vec<(Structure, Vec<Vec<Address>>)>,
    /// Node ids in use.
    nids: Vec<u32>,
}

impl Map {
    /// Finds them on a sound volume.
    pub fn of(editor: &Editor) -> Map {
        let g = &editor.geometry;
        let (start, total) = editor.pack();
        let other = if start == g.checkpoint { g.checkpoint + 512 } else { g.checkpoint };
        let nids: Vec<u32> = (3..4000).filter(|&nid| g.in_main(editor.node_address(nid))).collect();
        let single = |blocks: Vec<Address>| blocks.into_iter().map(|block| vec![block]).collect::<Vec<_>>();
        let mut nodes: [Vec<Address>; 7] = Default::default();
        let mut directories = Vec::new();
        for &nid in &nids {
            let address = editor.node_address(nid);
            let inode = editor.inode(nid);
            let footer = &inode.footer;
            let kind = match (footer.nid == footer.ino, footer.offset()) {
                (true, _) if nid == 3 => 0,
                (true, _) => match FileKind::from_mode(inode.i_mode.get().into()) {
                    Some(FileKind::Directory) => 1,
                    Some(FileKind::Regular) => 2,
                    _ => 3,
                },
                (false, 3 | 1022 | 2041 | 2042 | 3061) => 5,
                (false, 4..0x0FFF_0000) | (false, 1 | 2) => 4,
                (false, _) => 6,
            };
            nodes[kind].push(address);
            if kind < 2 && !inode.is_inline(InlineFlags::DENTRY) {
                let slots = &inode.slots[inode.extra_size() as usize / 4..][..64];
                directories.extend(slots.iter().map(|slot| Address::from(*slot)).filter(|&address| g.in_main(address)));
            }
        }
        let nat_used: Vec<u32> = {
            let mut indexes: Vec<u32> = nids.iter().map(|nid| nid / 455).collect();
            indexes.dedup();
            indexes
        };
        let nat = nat_used.iter().map(|&i| g.nat_block(i, bit_msb(&editor.loaded.nat_bitmap, i as usize))).collect();
        let sit = (0..g.sit_blocks_used()).map(|i| g.sit_block(i, bit_msb(&editor.loaded.sit_bitmap, i as usize)));
        let live =
            (0..g.main_segments).filter(|&s| editor.sit(Segment::new(s)).live() > 0 && !editor.is_log(Segment::new(s)));
        let [root, folders, files, others, direct, indirect, xattrs] = nodes;
        let blocks = vec![
            (Superblock, single(vec![Address::new(0), Address::new(1)])),
            (NewestPackHead, single(vec![start])),
            (NewestPack, vec![Address::all(start..start + total).collect()]),
            (OlderPack, vec![Address::all(other..other + 32).collect()]),
            (PackSummaries, single(Address::all(start + 1..start + total - 1).collect())),
            (NatBlock, single(nat)),
            (NatArea, vec![Address::all(g.nat..g.ssa).collect()]),
            (SitBlock, single(sit.collect())),
            (SitArea, vec![Address::all(g.sit..g.nat).collect()]),
            (SsaBlock, single(live.map(|s| g.summary_block(Segment::new(s))).collect())),
            (SsaArea, vec![Address::all(g.ssa..g.main).collect()]),
            (RootInode, single(root)),
            (DirectoryInode, single(folders)),
            (FileInode, single(files)),
            (OtherInode, single(others)),
            (DirectNode, single(direct)),
            (IndirectNode, single(indirect)),
            (XattrNode, single(xattrs)),
            (DirectoryBlock, single(directories)),
        ];
        assert!(blocks.iter().all(|(_, blocks)| !blocks.is_empty()), "one of each kind is there");
        Map { blocks, nids }
    }

    fn pick(&self, structure: Structure, rng: &mut Rng) -> &[Address] {
        let (_, blocks) =
            self.blocks.iter().find(|(kind, _)| *kind == structure).expect("all kinds with blocks are there");
        &blocks[rng.index(blocks.len())]
    }

    /// Fills one structure with zeros, ones or garbage; what was done, in words.
    pub fn wipe(&self, editor: &Editor, structure: Structure, rng: &mut Rng) -> String {
        match structure {
            NatEntry => {
                let (nid, address) =
                    (self.nid(rng), [0, rng.next_u64() as u32, (editor.geometry.main + rng.below(4000) as u32).get()]);
                let address = address[rng.index(3)];
                let ino = [0, nid, rng.next_u64() as u32][rng.index(3)];
                editor.edit_nat(nid, |entry| {
                    entry.block_addr.set(address);
                    entry.ino.set(ino);
                });
                format!("NAT entry {nid} is block {address:#x} of inode {ino}")
            }
            NatSwapped => {
                let (one, other) = (self.nid(rng), self.nid(rng));
                let (first, second) = (editor.nat(one), editor.nat(other));
                let both = rng.chance(50);
                editor.edit_nat(one, |entry| *entry = second);
                if both {
                    editor.edit_nat(other, |entry| *entry = first);
                }
                format!("NAT entry {one} is that of {other}, swapped: {both}")
            }
            _ => {
                let blocks = self.pick(structure, rng);
                let fill = rng.below(3);
                for &address in blocks {
                    let mut block = vec![0; BLOCK_SIZE];
                    match fill {
                        0 => {}
                        1 => block.fill(0xFF),
                        _ => rng.fill(&mut block),
                    }
                    editor.put(address, &block);
                }
                let with = ["zeros", "ones", "garbage"][fill as usize];
                format!("{} blocks from {} on filled with {with}", blocks.len(), blocks[0])
            }
        }
    }

    fn nid(&self, rng: &mut Rng) -> u32 {
        self.nids[rng.index(self.nids.len())]
    }

    /// Changes a few bytes in one place of a structure; what was done, in words.
    pub fn scratch(&self, editor: &Editor, rng: &mut Rng) -> String {
        let (structure, _) = &self.blocks[rng.index(self.blocks.len())];
        let blocks = self.pick(*structure, rng);
        let address = blocks[rng.index(blocks.len())];
        let mut block = editor.block(address);
        // Mostly where something is.
        let used: Vec<usize> = (0..BLOCK_SIZE).filter(|&at| block[at] != 0).collect();
        let at = if used.is_empty() || rng.chance(20) { rng.index(BLOCK_SIZE) } else { used[rng.index(used.len())] };
        let length = rng.between(1, 8) as usize;
        let end = (at + length).min(BLOCK_SIZE);
        match rng.below(4) {
            0 => block[at] ^= 1 << rng.below(8),
            1 => block[at..end].fill(0),
            2 => block[at..end].fill(0xFF),
            _ => rng.fill(&mut block[at..end]),
        }
        editor.put(address, &block);
        format!("{structure:?}: block {address}, bytes {at}..{end}")
    }
}

//! What a repair may not do: lose or change what could be read before.

use std::collections::BTreeSet;

use crate::reading::{Reading, Thing};

/// What could be read of one path before the repair, of what was there when the volume was sound.
struct Readable<'a> {
    path: &'a [u8],
    thing: &'a Thing,
    /// Whether it was under its path.
    in_place: bool,
    attributes: bool,
    blocks: BTreeSet<u64>,
}

/// How much of a volume could be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Paths at which all is as it was.
    pub whole: u64,
    /// Inodes of which anything is as it was.
    pub any: u64,
}

impl Count {
    /// Counts what a reading has of the sound volume.
    pub fn of(original: &Reading, now: &Reading) -> Count {
        let is_whole = |(path, thing): &(&Vec<u8>, &Thing)| {
            now.paths.get(*path).is_some_and(|found| {
                found.attributes == thing.attributes
                    && thing.blocks.iter().all(|(block, digest)| found.blocks.get(block) == Some(digest))
            })
        };
        let is_there = |(ino, _): &(&u64, &Vec<Vec<u8>>)| {
            let (thing, found) = (original.inode(**ino), now.inode(**ino));
            thing.zip(found).is_some_and(|(thing, found)| {
                found.attributes == thing.attributes && found.attributes.is_some() || !right(thing, found).is_empty()
            })
        };
        Count {
            whole: original.paths.iter().filter(is_whole).count() as u64,
            any: original.of_inode.iter().filter(is_there).count() as u64,
        }
    }
}

fn right(thing: &Thing, found: &Thing) -> BTreeSet<u64> {
    let same = |(block, digest): &(&u64, &u64)| found.blocks.get(*block) == Some(*digest);
    thing.blocks.iter().filter(same).map(|(block, _)| *block).collect()
}

fn readable<'a>(original: &'a Reading, before: &[&Reading]) -> Vec<Readable<'a>> {
    let mut all = Vec::new();
    for (path, thing) in &original.paths {
        let mut readable = Readable { path, thing, in_place: false, attributes: false, blocks: BTreeSet::new() };
        let mut found_any = false;
        for reading in before {
            let at_path = reading.paths.get(path).filter(|found| found.ino == thing.ino);
            let Some(found) = at_path.or_else(|| reading.inode(thing.ino)) else { continue };
            let is_right = found.attributes.is_some() && found.attributes == thing.attributes;
            let blocks = right(thing, found);
            // Something else under its number, or nothing of it.
            if !is_right && blocks.is_empty() {
                continue;
            }
            found_any = true;
            readable.in_place |= at_path.is_some();
            readable.attributes |= is_right;
            readable.blocks.extend(blocks);
        }
        if found_any {
            all.push(readable);
        }
    }
    all
}

/// What was lost or changed between `before` and `after`, in words.
pub fn losses(original: &Reading, before: &[&Reading], after: &Reading) -> Vec<String> {
    let mut lost = Vec::new();
    for was in readable(original, before) {
        let path = String::from_utf8_lossy(was.path).into_owned();
        let at_path = after.paths.get(was.path).filter(|found| found.ino == was.thing.ino);
        let Some(found) = at_path.or_else(|| after.inode(was.thing.ino)) else {
            lost.push(format!("{path} (inode {}) is gone", was.thing.ino));
            continue;
        };
        if was.in_place && at_path.is_none() {
            let now = after.of_inode.get(&was.thing.ino).and_then(|paths| paths.first());
            let now = now.map(|path| String::from_utf8_lossy(path).into_owned());
            let instead = after.paths.get(was.path).map(|thing| thing.ino);
            lost.push(format!("{path} (inode {}) is elsewhere: {now:?}; there is now: {instead:?}", was.thing.ino));
        }
        if was.attributes && found.attributes != was.thing.attributes {
            lost.push(format!("{path} (inode {}) has other attributes", was.thing.ino));
        }
        let gone = was.blocks.difference(&right(was.thing, found)).count();
        if gone > 0 {
            lost.push(format!("{path} (inode {}) has lost {gone} of {} blocks", was.thing.ino, was.blocks.len()));
        }
    }
    lost
}

//! What rescue finds on the volume, and what a repair must therefore not lose.
//!
//! The search is rescue's own. It is made before anything is changed, and once more at the end: a file or a block of one that the first has
//! and the second has not is a loss, which [`Plan`](super::Plan) tells before anything is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use basalt_device::BlockDevice;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::lost_found::number_of;
use crate::check::{CheckProgress, Stage};
use crate::clock::Clock;
use crate::layout::Ino;
use crate::rescue::claims::{Claim, Holding, Pointer};
use crate::rescue::{Index, RescueOptions, RescueProgress, RescueStage, Rescued};

/// Something that rescue reads and that a repair would lose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The path rescue has it under; what is not UTF-8 is replaced.
    pub path: String,
    /// Its inode number.
    pub ino: Ino,
    /// What would be lost of it, in words.
    pub what: String,
}

impl Loss {
    /// What the journals of the newest checkpoint had, and those of the one before.
    fn of_guess() -> Loss {
        let what = "perhaps what was written to files last: the journals of both checkpoints are lost, and nothing tells for sure what counts";
        Loss { path: "/".into(), ino: Ino::NONE, what: what.into() }
    }

    /// What cleaning moved since the checkpoint, where the journal that says so is given up.
    pub(super) fn of_moves(moves: usize) -> Loss {
        let what = format!(
            "up to {moves} blocks that were cleaned since the last checkpoint, of any file: the cleaning journal is given up"
        );
        Loss { path: "/".into(), ino: Ino::NONE, what }
    }

    /// The volume as a whole, which nobody could open any more.
    pub(super) fn of_all(root: Ino) -> Loss {
        Loss { path: "/".into(), ino: root, what: "everything: the volume could not be opened any more".into() }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (inode {}): {}", self.path, self.ino, self.what)
    }
}

/// What a search found.
pub(super) struct Finds {
    rescued: Rescued,
    /// Every node of every file that has a place.
    pub(super) claims: Vec<Claim>,
    /// Pointers of these files that lead to none of their nodes.
    pub(super) strays: Vec<Pointer>,
    holdings: FxHashMap<Ino, Holding>,
    /// Where each inode's first name is: directory and name.
    names: FxHashMap<u64, (u64, Box<[u8]>)>,
}

impl Finds {
    /// Searches a device; `None` if rescue finds nothing there.
    pub(super) fn search(
        device: &Arc<dyn BlockDevice>,
        clock: &Arc<dyn Clock>,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Option<Finds> {
        let mut tell = |now: RescueProgress| {
            if now.stage == RescueStage::Nodes {
                progress(CheckProgress { stage: Stage::Search, done: now.done, total: now.total });
            }
        };
        let options = RescueOptions::default();
        let (rescued, index) = Rescued::search(Arc::clone(device), &options, Arc::clone(clock), &mut tell).ok()?;
        let mut finds = Finds {
            claims: Vec::new(),
            strays: Vec::new(),
            holdings: FxHashMap::default(),
            names: rescued.first_names(),
            rescued,
        };
        finds.walk(&index);
        Some(finds)
    }

    /// Whether the newest checkpoint is gone, though it was complete.
    pub(super) fn lack_a_checkpoint(&self) -> bool {
        self.rescued.is_outdated()
    }

    /// Whether what was found counts more than where the NAT leads, which may be out of date.
    pub(super) fn outweigh_the_nat(&self) -> bool {
        self.rescued.nat_is_old()
    }

    /// Inodes that fsync wrote since the checkpoint, and their names with them: the order it did that in.
    pub(super) fn entered(&self) -> &FxHashMap<Ino, usize> {
        self.rescued.entered()
    }

    /// How many versions ahead of the checkpoint nodes are that count: the next one must not look older than they.
    pub(super) fn newest_ahead(&self) -> u64 {
        self.rescued.newest_ahead().into()
    }

    fn walk(&mut self, index: &Index) {
        for ino in self.rescued.placed() {
            // What cannot be read has nothing to lose.
            if let Ok(holding) = self.rescued.walk(index, ino, &mut self.claims, &mut self.strays) {
                self.holdings.insert(ino, holding);
            }
        }
    }

    /// What `after` has less of. `given_up` counts the blocks of each inode that turned out to be somebody else's.
    pub(super) fn losses(&self, after: &Finds, given_up: &FxHashMap<Ino, u64>) -> Vec<Loss> {
        let mut losses = Vec::new();
        let (lost, lost_after) = (self.lost(), after.lost());
        let mut inodes: Vec<(&Ino, &Holding)> = self.holdings.iter().collect();
        inodes.sort_unstable_by_key(|(ino, _)| **ino);
        for (&ino, before) in inodes {
            let mut lose = |what: String| losses.push(Loss { path: self.path(ino.into()), ino, what });
            let Some(now) = after.holdings.get(&ino) else {
                lose("all of it".into());
                continue;
            };
            let given_up = given_up.get(&ino).copied().unwrap_or_default();
            let is_directory = self.rescued.is_directory(ino);
            if now.blocks + given_up < before.blocks && !is_directory {
                lose(format!("{} of {} blocks", before.blocks - now.blocks, before.blocks));
            }
            if before.xattrs && !now.xattrs {
                lose("its extended attributes".into());
            }
            if !lost.contains(&ino.into()) && lost_after.contains(&ino.into()) {
                lose(format!("its place: it would be {}", after.path(ino.into())));
            }
        }
        losses
    }

    /// Files of which it cannot be told what the last durable version is. Directories have their names from both.
    pub(super) fn doubtful(&self) -> Vec<Loss> {
        let what = "what was written to it last, or what it was before: a checkpoint or its journals are lost, or it was cut off, and nothing tells which";
        let files = self.rescued.doubtful().iter().filter(|ino| !self.rescued.is_directory(**ino));
        let files = files.map(|&ino| Loss { path: self.path(ino.into()), ino, what: what.into() });
        let guess = self.rescued.is_guess().then(Loss::of_guess);
        guess.into_iter().chain(files).collect()
    }

    /// Files that fsync wrote after the checkpoint: what of them is lost where a repair goes back to that.
    pub(super) fn fsynced(&self) -> Vec<Loss> {
        let inodes: BTreeSet<Ino> =
            self.claims.iter().filter(|claim| claim.is_newer()).map(|claim| claim.ino).collect();
        let what = "what was fsynced since the last checkpoint";
        inodes.into_iter().map(|ino| Loss { path: self.path(ino.into()), ino, what: what.into() }).collect()
    }

    /// The inodes below `lost+found`. Each directory is looked at once, however deep a tree is.
    fn lost(&self) -> FxHashSet<u64> {
        let mut known: FxHashMap<u64, bool> = FxHashMap::default();
        for &ino in self.names.keys() {
            let (mut at, mut way) = (ino, Vec::new());
            let is_lost = loop {
                if let Some(&is_lost) = known.get(&at) {
                    break is_lost;
                }
                // Whoever comes here again is in a circle.
                known.insert(at, false);
                way.push(at);
                let Some((directory, _)) = self.names.get(&at) else { break false };
                let is_found =
                    |(above, name): &(u64, Box<[u8]>)| !self.names.contains_key(above) && number_of(name).is_some();
                if self.names.get(directory).is_some_and(is_found) {
                    break true;
                }
                at = *directory;
            };
            known.extend(way.into_iter().map(|at| (at, is_lost)));
        }
        known.into_iter().filter(|(_, is_lost)| *is_lost).map(|(ino, _)| ino).collect()
    }

    /// The path of an inode, as far as it is known.
    fn path(&self, ino: u64) -> String {
        let mut parts = Vec::new();
        let mut at = ino;
        // A directory has one name, and no path is longer than the names there are.
        while let Some((directory, name)) = self.names.get(&at).filter(|_| parts.len() < self.names.len()) {
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *directory;
        }
        parts.reverse();
        parts.iter().map(|part| format!("/{part}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::format::{FormatOptions, format};
    use crate::lock::F2fs;
    use crate::options::OpenOptions;
    use basalt_device::MemoryDevice;
    use basalt_vfs::{Caller, FileKind, FileSystem, NewNode, RenameFlags, XattrFlags};

    fn found(device: &MemoryDevice) -> Finds {
        let device: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Finds::search(&device, &clock, &mut |_| ()).unwrap()
    }

    #[test]
    fn what_is_gone_is_a_loss_and_what_is_somebody_elses_is_none() {
        let device = Arc::new(MemoryDevice::new(64 << 20, 512));
        format(&*device, &FormatOptions { discard_reads_zeros: true, ..FormatOptions::default() }, &mut |_, _| ())
            .unwrap();
        let shared: Arc<dyn BlockDevice> = device.clone();
        let fs = F2fs::open(shared, OpenOptions::default(), Arc::new(SystemClock)).unwrap();
        let new = NewNode { kind: FileKind::Regular, permissions: 0o600, rdev: 0, target: b"" };
        let make =
            |parent, name: &[u8], node: &NewNode<'_>| fs.create(parent, name, node, &Caller::default()).unwrap().ino;
        let directory = make(fs.root(), b"directory", &NewNode { kind: FileKind::Directory, ..new });
        let gone = make(directory, b"gone", &new);
        let shorter = make(fs.root(), b"shorter", &new);
        let plainer = make(fs.root(), b"plainer", &new);
        let moved = make(fs.root(), b"moved", &NewNode { kind: FileKind::Directory, ..new });
        let below: Vec<u64> = (0..20).map(|number| make(moved, format!("{number}").as_bytes(), &new)).collect();
        let last = make(fs.root(), b"last", &new);
        let lost_found = fs.lookup(fs.root(), b"lost+found").unwrap().ino;
        make(lost_found, b"lost before", &new);
        let second = make(fs.root(), b"lost+found.1", &NewNode { kind: FileKind::Directory, ..new });
        fs.write(shorter, 0, &[1; 5 << 20], false).unwrap();
        fs.set_xattr(plainer, b"user.long", &[1; 2000], XattrFlags::empty()).unwrap();
        fs.sync().unwrap();
        let before = found(&device);
        assert_eq!(before.losses(&before, &FxHashMap::default()), []);
        fs.unlink(directory, b"gone").unwrap();
        fs.forget(gone, 1);
        let smaller = basalt_vfs::SetAttributes { size: Some(5 << 19), ..Default::default() };
        fs.set_attributes(shorter, &smaller).unwrap();
        fs.remove_xattr(plainer, b"user.long").unwrap();
        fs.rename(fs.root(), b"moved", lost_found, b"#1", RenameFlags::empty(), &Caller::default()).unwrap();
        fs.rename(fs.root(), b"last", second, b"#2", RenameFlags::empty(), &Caller::default()).unwrap();
        fs.close().unwrap();
        let after = found(&device);
        let losses = |given_up| before.losses(&after, &given_up).iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut expected = vec![
            format!("/directory/gone (inode {gone}): all of it"),
            format!("/shorter (inode {shorter}): 640 of 1280 blocks"),
            format!("/plainer (inode {plainer}): its extended attributes"),
            format!("/moved (inode {moved}): its place: it would be /lost+found/#1"),
        ];
        expected.extend(below.iter().enumerate().map(|(number, ino)| {
            format!("/moved/{number} (inode {ino}): its place: it would be /lost+found/#1/{number}")
        }));
        expected.push(format!("/last (inode {last}): its place: it would be /lost+found.1/#2"));
        assert_eq!(losses(FxHashMap::default()), expected);
        expected.remove(1);
        assert_eq!(losses(FxHashMap::from_iter([(Ino::new(shorter as u32), 640)])), expected);
    }
}

//! Which inodes are still there: a directory that is newer than an inode knows it, and so does the inode table of a directory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use basalt_flashlight::InodeNumber;
use basalt_flashlight::inspect::{ORPHANS, ROOT, TableEntry, Target};
use basalt_nand::{NandDevice, NandError};

use super::RescueReport;
use super::content::Reading;
use super::scan::{Found, Newest};

/// Whether an inode is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    There,
    Deleted,
}

/// What a directory knows of its entries.
struct Known {
    /// By key. It has no entry that leads nowhere.
    entries: HashMap<u32, Target>,
    /// All of them could be read.
    is_whole: bool,
}

struct Judge<'a, D> {
    reading: &'a mut Reading<D>,
    found: &'a Found,
    by_parent: BTreeMap<InodeNumber, Vec<InodeNumber>>,
    /// Directories that directories lead to.
    led_to: HashSet<InodeNumber>,
    standings: HashMap<InodeNumber, Standing>,
}

/// Tells which of the inodes that were found are there.
pub(super) fn judge<D: NandDevice>(
    reading: &mut Reading<D>,
    found: &Found,
    report: &mut RescueReport,
) -> Result<HashMap<InodeNumber, Standing>, NandError> {
    let mut by_parent: BTreeMap<InodeNumber, Vec<InodeNumber>> = BTreeMap::new();
    found.inodes.iter().for_each(|(&number, newest)| by_parent.entry(newest.parent).or_default().push(number));
    let mut judge = Judge { reading, found, by_parent, led_to: HashSet::new(), standings: HashMap::new() };
    for (&number, directory) in found.inodes.iter().filter(|(_, newest)| newest.is_directory) {
        if !judge.is_removed(number, directory) {
            judge.ask_directory(number, directory, report)?;
        }
    }
    judge.ask_of_missing_directories(report);
    judge.drop_what_is_gone();
    Ok(judge.standings)
}

impl<D: NandDevice> Judge<'_, D> {
    /// What a directory knows of the inodes that say that they are in it.
    fn ask_directory(
        &mut self,
        number: InodeNumber,
        directory: &Newest,
        report: &mut RescueReport,
    ) -> Result<(), NandError> {
        let known = entries(self.reading, number, directory)?;
        report.damaged_directories += u64::from(!known.is_whole);
        let later = self.found.table.entry(number).filter(|(sequence, _)| *sequence > directory.sequence);
        report.outdated += u64::from(matches!(later, Some((_, TableEntry::Directory(page))) if page != directory.page));
        self.led_to.extend(known.entries.values().filter_map(|target| match target {
            Target::Directory(number) => Some(*number),
            _ => None,
        }));
        let mut children = self.by_parent.get(&number).cloned().unwrap_or_default();
        // Of those with the same key the newest has it: it took the others' place.
        children.sort_by_key(|child| std::cmp::Reverse(self.found.inodes[child].sequence));
        let mut taken = HashSet::new();
        for child in children.into_iter().filter(|child| *child != ROOT) {
            let newest = &self.found.inodes[&child];
            let is_there = !newest.is_gone && !taken.contains(&newest.key);
            let standing = match is_there {
                true => self.standing(child, newest, directory, &known, report)?,
                false => Standing::Deleted,
            };
            if standing == Standing::There {
                taken.insert(newest.key);
            }
            self.standings.insert(child, standing);
        }
        if number != ORPHANS {
            report.lost += self.lost_files(&known, &taken)?;
        }
        Ok(())
    }

    fn standing(
        &mut self,
        number: InodeNumber,
        newest: &Newest,
        directory: &Newest,
        known: &Known,
        report: &mut RescueReport,
    ) -> Result<Standing, NandError> {
        if newest.sequence > directory.covers {
            return Ok(Standing::There);
        }
        Ok(match known.entries.get(&newest.key) {
            Some(Target::Directory(other)) if *other == number => Standing::There,
            Some(Target::File(page)) if *page == newest.page => Standing::There,
            // The page that this file had last cannot be read, or another file has the key by now.
            Some(Target::File(page)) if !newest.is_directory && self.owner(*page)?.is_none() => {
                report.outdated += 1;
                Standing::There
            }
            None if !known.is_whole => Standing::There,
            _ => Standing::Deleted,
        })
    }

    /// Whose inode is in a page.
    fn owner(&mut self, page: u32) -> Result<Option<InodeNumber>, NandError> {
        let owner = self.reading.inode(page, |inode| inode.attributes().number)?;
        Ok(owner.filter(|owner| self.found.inodes.contains_key(owner)))
    }

    /// Files that a directory knows, and of which no inode can be read.
    fn lost_files(&mut self, known: &Known, answered: &HashSet<u32>) -> Result<u64, NandError> {
        let mut lost = 0;
        for (key, target) in &known.entries {
            lost += u64::from(match target {
                Target::File(page) if !answered.contains(key) => self.owner(*page)?.is_none(),
                _ => false,
            });
        }
        Ok(lost)
    }

    /// A directory that cannot be found was removed, or is lost. Then what is in it is there.
    fn ask_of_missing_directories(&mut self, report: &mut RescueReport) {
        let missing = |number: &InodeNumber| !self.found.inodes.contains_key(number);
        report.lost += self.led_to.iter().filter(|number| missing(number)).count() as u64;
        report.damaged_directories += u64::from(missing(&ROOT));
        let any_lost = report.damaged_directories > 0 || self.led_to.iter().any(missing) || missing(&ROOT);
        for (parent, children) in self.by_parent.iter().filter(|(parent, _)| missing(parent)) {
            for child in children {
                let newest = &self.found.inodes[child];
                let is_lost = match self.found.table.entry(*parent) {
                    Some((sequence, entry)) if sequence > newest.sequence => {
                        matches!(entry, TableEntry::Directory(_))
                    }
                    _ => any_lost,
                };
                let is_lost = is_lost || self.led_to.contains(parent) || *parent == ROOT;
                let standing = if is_lost && !newest.is_gone { Standing::There } else { Standing::Deleted };
                self.standings.insert(*child, standing);
            }
        }
    }

    /// Whether an inode is a directory that was removed: it says so, or the inode table does.
    fn is_removed(&self, number: InodeNumber, newest: &Newest) -> bool {
        let says_table = self.found.table.entry(number).is_some_and(|(sequence, entry)| {
            newest.is_directory && sequence > newest.sequence && entry == TableEntry::Nothing
        });
        newest.is_gone || says_table
    }

    /// What is in a directory that is removed is deleted, and so is what is deleted and still open.
    fn drop_what_is_gone(&mut self) {
        let inodes = &self.found.inodes;
        self.standings.insert(ROOT, Standing::There);
        self.standings.insert(ORPHANS, Standing::Deleted);
        for (&number, newest) in inodes {
            let is_gone = self.is_removed(number, newest)
                || inodes.get(&newest.parent).is_some_and(|parent| self.is_removed(newest.parent, parent));
            let standing = self.standings.entry(number).or_insert(Standing::There);
            if is_gone && number != ROOT {
                *standing = Standing::Deleted;
            }
        }
        let deleted = self.standings.iter().filter(|(_, standing)| **standing == Standing::Deleted);
        let mut waiting: Vec<InodeNumber> = deleted.map(|(&number, _)| number).collect();
        while let Some(parent) = waiting.pop() {
            for &child in self.by_parent.get(&parent).into_iter().flatten().filter(|child| **child != ROOT) {
                if self.standings.insert(child, Standing::Deleted) != Some(Standing::Deleted) {
                    waiting.push(child);
                }
            }
        }
    }
}

/// All entries of a directory. A bucket counts if it is this directory's, and older than its inode: else its page was used again.
fn entries<D: NandDevice>(
    reading: &mut Reading<D>,
    number: InodeNumber,
    directory: &Newest,
) -> Result<Known, NandError> {
    let mut known = Known { entries: HashMap::new(), is_whole: true };
    let found = reading.inode(directory.page, |inode| {
        (inode.entries().collect::<Vec<_>>(), inode.buckets().collect::<BTreeSet<_>>())
    })?;
    let Some((log, mut waiting)) = found else { return Ok(Known { is_whole: false, ..known }) };
    let mut seen = HashSet::new();
    while let Some(page) = waiting.pop_first() {
        // A damaged index may lead to itself.
        if !seen.insert(page) {
            continue;
        }
        let found = reading.metadata(page)?;
        let found = found.filter(|found| found.owner() == number && found.sequence() < directory.sequence);
        match found.as_ref().map(|found| (found.bucket(), found.bucket_index())) {
            Some((Some(bucket), _)) => known.entries.extend(bucket),
            Some((_, Some(index))) => waiting.extend(index),
            _ => known.is_whole = false,
        }
    }
    known.entries.extend(log);
    known.entries.retain(|_, target| *target != Target::Nothing);
    Ok(known)
}

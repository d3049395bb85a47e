//! Power cuts at every program and erase of random operations, and of the recovery behind them.
//!
//! `BASALT_SEED` and `BASALT_SEEDS` choose others: `BASALT_SEEDS=100` is a campaign of about 14,000 cuts in each of the two tests.
//!
//! What must hold: a file or directory is what it was at its last fsync, or at some later moment; a name that led somewhere all the time
//! leads somewhere; nothing is there twice; all that is found is whole; live pages are counted right; and all goes on from there.

mod support;

use std::collections::BTreeMap;

use basalt_flashlight::{Bytes, Error, FlashLight, InodeNumber};
use basalt_nand::chip::Failures;
use basalt_nand::{Chip, ChipOptions, Ecc, Geometry, NandDevice, NandError};
use basalt_random::Rng;
use support::{Device, NOW, new_file};

/// What an inode is, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    parent: u32,
    name: String,
    /// `None`: a directory.
    content: Option<Vec<u8>>,
}

type State = BTreeMap<u32, Entry>;

/// All states since the last sync, and which of them each inode has to be like at least.
struct History {
    states: Vec<State>,
    durable: BTreeMap<u32, usize>,
    /// Files that are deleted and still open.
    open: Vec<u32>,
    log: Vec<String>,
}

impl History {
    fn new(state: State) -> History {
        let durable = state.keys().map(|&serial| (serial, 0)).collect();
        History { states: vec![state], durable, open: Vec::new(), log: Vec::new() }
    }

    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn add(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
    }

    /// An fsync of an inode, and of what it is in.
    fn note_durable(&mut self, serial: u32) {
        let last = self.states.len() - 1;
        let mut at = serial;
        while let Some(entry) = self.now().get(&at) {
            let parent = entry.parent;
            if at == serial || !self.durable.contains_key(&at) {
                self.durable.insert(at, last);
            }
            at = parent;
        }
    }

    /// What was found after a power cut is one of the states that could be.
    fn verify(&self, found: &State) -> Result<(), String> {
        for (serial, entry) in found {
            let least = self.durable.get(serial).copied().unwrap_or(0);
            let like = |state: &State| {
                state.get(serial).is_some_and(|other| (&other.parent, &other.name) == (&entry.parent, &entry.name))
            };
            if !self.states[least..].iter().any(like) {
                return Err(format!("inode {serial} is at {}/{}, where it was not", entry.parent, entry.name));
            }
            let holds = |state: &State| state.get(serial).is_some_and(|other| other.content == entry.content);
            if !self.states[least..].iter().any(holds) {
                return Err(format!("inode {serial}, {}, has content that it did not have", entry.name));
            }
        }
        for (serial, &least) in &self.durable {
            let was = &self.states[least][serial];
            let leads = |state: &State| {
                state.values().any(|entry| (entry.parent, &entry.name) == (was.parent, &was.name))
                    && (was.parent == 0 || state.contains_key(&was.parent))
            };
            if self.states[least..].iter().all(leads) && !leads(found) {
                return Err(format!("{}/{} leads nowhere, and always led somewhere", was.parent, was.name));
            }
            let always = self.states[least..].iter().all(|state| state.contains_key(serial));
            if always && !found.contains_key(serial) {
                return Err(format!("inode {serial}, {:?}, is lost", self.now()[serial].name));
            }
        }
        Ok(())
    }
}

/// All that a volume has, by inode number.
fn found<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>) -> Result<State, Error> {
    let mut state = State::new();
    let mut waiting = vec![volume.root()];
    while let Some(directory) = waiting.pop() {
        let mut from = Some(0);
        while let Some(cookie) = from {
            let mut name = [0; 255];
            let Some(listed) = volume.list(directory, cookie, &mut name)? else { break };
            from = listed.next;
            let attributes = volume.attributes(listed.number)?;
            let content = if attributes.is_directory() {
                waiting.push(listed.number);
                None
            } else {
                let mut content = vec![0; attributes.size as usize];
                volume.read(listed.number, 0, &mut content)?;
                let said = support::expect_holes(volume, listed.number, &content, (0, 0));
                said.unwrap_or_else(|error| panic!("inode {:?}: {error}", listed.number));
                Some(content)
            };
            let name = String::from_utf8(name[..listed.name_length].to_vec()).unwrap();
            let entry = Entry { parent: directory.0, name, content };
            assert!(state.insert(listed.number.0, entry).is_none(), "inode {:?} is there twice", listed.number);
        }
    }
    Ok(state)
}

/// One random operation. Errors: the power is gone.
fn step<M: Bytes, D: NandDevice>(
    rng: &mut Rng,
    history: &mut History,
    volume: &mut FlashLight<M, D>,
) -> Result<(), Error> {
    let state = history.now().clone();
    let files: Vec<u32> =
        state.iter().filter(|(_, entry)| entry.content.is_some()).map(|(&serial, _)| serial).collect();
    let mut directories: Vec<u32> =
        state.iter().filter(|(_, entry)| entry.content.is_none()).map(|(&serial, _)| serial).collect();
    directories.push(0);
    let parent = directories[rng.index(directories.len())];
    let name = format!("n{}", rng.below(12));
    let there = state.iter().find(|(_, entry)| entry.parent == parent && entry.name == name).map(|(&serial, _)| serial);
    let file = rng.pick(&files).copied();
    let total: usize = state.values().map(|entry| entry.content.as_ref().map_or(0, Vec::len) + 4096).sum();
    match (rng.below(100), file) {
        (0..22, _) | (_, None) if there.is_none() && total < 500_000 => {
            // The number is known behind the operation only; in it the file may be there already.
            let made = volume.create(InodeNumber(parent), name.as_bytes(), &new_file(0o644))?;
            history.log.push(format!("create {parent}/{name}: {}", made.0));
            history.add(|state| {
                state.insert(made.0, Entry { parent, name, content: Some(Vec::new()) });
            });
        }
        (22..30, _) if there.is_none() && directories.len() < 8 => {
            let made = volume.make_directory(InodeNumber(parent), name.as_bytes(), &new_file(0o755))?;
            history.log.push(format!("mkdir {parent}/{name}: {}", made.0));
            history.add(|state| {
                state.insert(made.0, Entry { parent, name, content: None });
            });
        }
        (30..55, Some(serial)) => {
            let old = state[&serial].content.as_ref().unwrap().len() as u64;
            let offset = if rng.chance(50) { rng.below(old + 3000) } else { 2048 * rng.below(20) };
            let length = if rng.chance(50) { rng.between(1, 1500) } else { rng.between(1, 30_000) };
            // A write of one piece is there as a whole or not at all.
            let length = length.min(32 * 2048 - offset % 2048) as usize;
            let mut bytes = vec![0; length];
            rng.fill(&mut bytes);
            history.log.push(format!("write {serial} {offset} {length}"));
            history.add(|state| {
                let content = state.get_mut(&serial).unwrap().content.as_mut().unwrap();
                let end = offset as usize + length;
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&bytes);
            });
            volume.write(InodeNumber(serial), offset, &bytes, NOW)?;
        }
        (55..60, Some(serial)) => {
            let length = rng.below(state[&serial].content.as_ref().unwrap().len() as u64 + 2000);
            history.log.push(format!("truncate {serial} {length}"));
            history.add(|state| state.get_mut(&serial).unwrap().content.as_mut().unwrap().resize(length as usize, 0));
            volume.set_length(InodeNumber(serial), length, NOW)?;
        }
        (60..63, Some(serial)) => {
            let (offset, length) = support::hole(rng, state[&serial].content.as_ref().unwrap().len());
            history.log.push(format!("punch {serial} {offset} {length}"));
            history.add(|state| {
                support::zero(state.get_mut(&serial).unwrap().content.as_mut().unwrap(), offset, length);
            });
            volume.punch(InodeNumber(serial), offset, length, NOW)?;
        }
        (63..68, Some(serial)) => {
            let entry = state[&serial].clone();
            let open = rng.chance(30);
            history.log.push(format!("unlink {serial} {open}"));
            history.add(|state| {
                state.remove(&serial);
            });
            volume.unlink(InodeNumber(entry.parent), entry.name.as_bytes(), open, NOW)?;
            if open {
                history.open.push(serial);
            }
        }
        (68..72, _) if parent != 0 && !state.values().any(|entry| entry.parent == parent) => {
            let entry = state[&parent].clone();
            history.log.push(format!("rmdir {parent}"));
            history.add(|state| {
                state.remove(&parent);
            });
            volume.remove_directory(InodeNumber(entry.parent), entry.name.as_bytes(), NOW)?;
        }
        (72..84, Some(file)) => {
            let moved = if directories.len() > 1 && rng.chance(30) {
                directories[rng.index(directories.len() - 1)]
            } else {
                file
            };
            rename(rng, history, volume, moved, (parent, name, there))?;
        }
        (84..96, Some(file)) => {
            let serial = if directories.len() > 1 && rng.chance(20) { directories[0] } else { file };
            history.log.push(format!("fsync {serial}"));
            volume.sync_file(InodeNumber(serial))?;
            history.note_durable(serial);
        }
        (96, _) => {
            history.log.push("sync".into());
            volume.sync()?;
            let (last, open) = (history.now().clone(), std::mem::take(&mut history.open));
            *history = History { open, ..History::new(last) };
        }
        (97, _) => {
            history.log.push("clean".into());
            volume.clean(2)?;
        }
        (98.., _) if !history.open.is_empty() => {
            let serial = history.open.remove(0);
            history.log.push(format!("forget {serial}"));
            volume.forget(InodeNumber(serial))?;
        }
        _ => {}
    }
    Ok(())
}

fn rename<M: Bytes, D: NandDevice>(
    rng: &mut Rng,
    history: &mut History,
    volume: &mut FlashLight<M, D>,
    moved: u32,
    (parent, name, there): (u32, String, Option<u32>),
) -> Result<(), Error> {
    let state = history.now().clone();
    let entry = state[&moved].clone();
    let directory = entry.content.is_none();
    // Below itself it cannot go.
    let mut at = parent;
    while at != 0 {
        if at == moved {
            return Ok(());
        }
        at = state[&at].parent;
    }
    let full = |serial: u32| state.values().any(|entry| entry.parent == serial);
    match there {
        Some(there) if there == moved || state[&there].content.is_none() != directory => return Ok(()),
        Some(there) if directory && full(there) => return Ok(()),
        _ => {}
    }
    let open = rng.chance(30);
    history.log.push(format!("rename {moved} to {parent}/{name}, in place of {there:?}, {open}"));
    history.add(|state| {
        if let Some(there) = there {
            state.remove(&there);
        }
        let entry = state.get_mut(&moved).unwrap();
        (entry.parent, entry.name) = (parent, name.clone());
    });
    let from = (InodeNumber(entry.parent), entry.name.as_bytes());
    volume.rename(from, (InodeNumber(parent), name.as_bytes()), open && !directory, NOW)?;
    if let (Some(there), true, false) = (there, open, directory) {
        history.open.push(there);
    }
    Ok(())
}

fn is_cut(error: Error) -> bool {
    error == Error::Nand(NandError::PowerLost)
}

struct Run {
    seed: u64,
    device: Device,
    memory: Vec<u8>,
}

impl Run {
    fn new(geometry: Geometry, seed: u64, failures: Failures) -> Run {
        let options = ChipOptions { seed, failures, ..ChipOptions::new(geometry) };
        let mut device = Ecc::new(Chip::new(options)).unwrap();
        let mut memory = support::memory(&geometry);
        support::format(&mut device, &mut memory, seed);
        Run { seed, device, memory }
    }

    /// Operations until the power goes at a request; `None`: all ended before.
    fn until(&mut self, rng: &mut Rng, steps: u32, cut: u64, start: State) -> Option<History> {
        let mut history = History::new(start);
        let mut volume = FlashLight::mount(&mut self.device, &mut self.memory[..]).unwrap();
        volume.device().device().cut_power_at(cut);
        for _ in 0..steps {
            match step(rng, &mut history, &mut volume) {
                Ok(()) => {}
                Err(error) if is_cut(error) => return Some(history),
                Err(error) => panic!("seed {}, cut {cut}: {error}: {:#?}", self.seed, history.log),
            }
        }
        None
    }

    /// Mounts after a cut, with further cuts in recovery, and compares.
    fn recover(&mut self, rng: &mut Rng, cut: u64, history: &History) -> State {
        for round in 0.. {
            self.device.device().power_on().unwrap();
            if round < 4 && rng.chance(50) {
                self.device.device().cut_power_at(rng.below(20));
            }
            match FlashLight::mount(&mut self.device, &mut self.memory[..]) {
                Ok(_) => break,
                Err(error) if is_cut(error) => {}
                Err(error) => panic!("seed {}, cut {cut}: mount {round}: {error}: {:#?}", self.seed, history.log),
            }
        }
        // The cut that did not come.
        self.device.device().cut_power_at(u64::MAX);
        let mut volume = FlashLight::mount(&mut self.device, &mut self.memory[..]).unwrap();
        let what =
            |error: &dyn std::fmt::Display| format!("seed {}, cut {cut}: {error}: {:#?}", self.seed, history.log);
        let state = found(&mut volume).unwrap_or_else(|error| panic!("{}", what(&error)));
        if let Err(error) = history.verify(&state) {
            panic!("{}", what(&error));
        }
        let checked = volume.check().unwrap_or_else(|error| panic!("{}", what(&error)));
        assert!(checked.is_sound(), "{}", what(&format!("{checked:?}")));
        assert_eq!(volume.usage().inodes as usize, state.len() + 1, "{}", what(&"inodes"));
        // What was found stays what it is.
        for _ in 0..2 {
            assert!(found(&mut volume).unwrap() == state, "{}", what(&"it changes"));
        }
        state
    }
}

/// Cuts at every request of some operations, each followed by a second life that is cut, too.
fn cut_everywhere(failures: Failures, seed: u64, steps: u32, every: u64) -> u64 {
    let geometry = Geometry::new(2048, 64, 16, 128).unwrap();
    let mut cuts = 0;
    let mut cut = seed % every;
    loop {
        let mut run = Run::new(geometry, seed, failures);
        let mut rng = Rng::new(seed);
        let Some(history) = run.until(&mut rng, steps, cut, State::new()) else { return cuts };
        cuts += 1;
        let mut more = Rng::new(seed * 1_000_003 + cut);
        let mut state = run.recover(&mut more, cut, &history);
        for _ in 0..2 {
            let next = more.below(150);
            let Some(history) = run.until(&mut more, 80, next, state) else { break };
            cuts += 1;
            state = run.recover(&mut more, next, &history);
        }
        cut += every;
    }
}

fn cut_seeds(failures: Failures, seeds: u64) {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let first = number("BASALT_SEED", 0);
    let cuts: u64 =
        (first..first + number("BASALT_SEEDS", seeds)).map(|seed| cut_everywhere(failures, seed, 150, 7)).sum();
    println!("{cuts} power cuts");
    assert!(cuts > 100);
}

#[test]
fn nothing_synced_is_lost_wherever_the_power_goes() {
    cut_seeds(Failures::default(), 3);
}

#[test]
fn nor_where_blocks_fail_as_well() {
    cut_seeds(Failures { programs: 1_000, erases: 2_000, endurance: 0 }, 3);
}

//! What was there, and what has to be there after a power cut.

use std::collections::BTreeMap;

use basalt_flashlight::{Bytes, Error, FlashLight};
use basalt_nand::NandDevice;

use crate::support::expect_holes;

/// What an inode is, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub parent: u32,
    pub name: String,
    /// `None`: a directory.
    pub content: Option<Vec<u8>>,
}

pub type State = BTreeMap<u32, Entry>;

/// All states since the last sync, and which of them each inode has to be like at least.
pub struct History {
    states: Vec<State>,
    durable: BTreeMap<u32, usize>,
    /// Files that are deleted and still open.
    pub open: Vec<u32>,
    pub log: Vec<String>,
}

impl History {
    pub fn new(state: State) -> History {
        let durable = state.keys().map(|&serial| (serial, 0)).collect();
        History { states: vec![state], durable, open: Vec::new(), log: Vec::new() }
    }

    pub fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    pub fn add(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.now().clone();
        change(&mut state);
        self.states.push(state);
    }

    /// All that is there outlasts a power cut.
    pub fn note_all_durable(&mut self) {
        let (last, open) = (self.now().clone(), std::mem::take(&mut self.open));
        *self = History { open, ..History::new(last) };
    }

    /// An fsync of an inode, and of what it is in.
    pub fn note_durable(&mut self, serial: u32) {
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
    pub fn verify(&self, found: &State) -> Result<(), String> {
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
            let is_there = |entry: &Entry| (entry.parent, &entry.name) == (was.parent, &was.name);
            let leads = |state: &State| {
                // Mostly it is the same one as ever.
                (state.get(serial).is_some_and(is_there) || state.values().any(is_there))
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

fn text(error: Error) -> String {
    error.to_string()
}

/// All that a volume has, by inode number.
pub fn found<M: Bytes, D: NandDevice>(volume: &mut FlashLight<M, D>) -> Result<State, String> {
    let mut state = State::new();
    let mut waiting = vec![volume.root()];
    while let Some(directory) = waiting.pop() {
        let mut from = Some(0);
        while let Some(cookie) = from {
            let mut name = [0; 255];
            let Some(listed) = volume.list(directory, cookie, &mut name).map_err(text)? else { break };
            from = listed.next;
            let attributes = volume.attributes(listed.number).map_err(text)?;
            let content = if attributes.is_directory() {
                waiting.push(listed.number);
                None
            } else {
                let mut content = vec![0; attributes.size as usize];
                volume.read(listed.number, 0, &mut content).map_err(text)?;
                expect_holes(volume, listed.number, &content, (0, 0))
                    .map_err(|error| format!("inode {:?}: {error}", listed.number))?;
                Some(content)
            };
            let name = String::from_utf8_lossy(&name[..listed.name_length]).into_owned();
            let entry = Entry { parent: directory.0, name, content };
            if state.insert(listed.number.0, entry).is_some() {
                return Err(format!("inode {} is there twice", listed.number.0));
            }
        }
    }
    Ok(state)
}

//! Random operations, which a history remembers.

use basalt_flashlight::{Bytes, Error, FlashLight, InodeNumber};
use basalt_nand::NandDevice;
use basalt_random::Rng;

use super::Flavour;
use super::history::{Entry, History};
use crate::support::{NOW, hole, new_file, zero};

/// One random operation. Errors: the power is gone.
pub fn step<M: Bytes, D: NandDevice>(
    flavour: &Flavour,
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
    let name = format!("n{}", rng.below(flavour.names));
    let there = state.iter().find(|(_, entry)| entry.parent == parent && entry.name == name).map(|(&serial, _)| serial);
    let file = rng.pick(&files).copied();
    let total: usize = state.values().map(|entry| entry.content.as_ref().map_or(0, Vec::len) + 4096).sum();
    // mkdir, rmdir, rename, fsync, unlink.
    let nested = [25, 70, 75, 76, 90, 91, 62];
    let kind = if flavour.is_nested && rng.chance(75) { nested[rng.index(nested.len())] } else { rng.below(100) };
    match (kind, file) {
        (0..22, _) | (_, None) if there.is_none() && total < flavour.most => {
            // The number is known behind the operation only; in it the file may be there already.
            let made = volume.create(InodeNumber(parent), name.as_bytes(), &new_file(0o644))?;
            history.log.push(format!("create {parent}/{name}: {}", made.0));
            history.add(|state| {
                state.insert(made.0, Entry { parent, name, content: Some(Vec::new()) });
            });
        }
        (22..30, _) if there.is_none() && directories.len() <= flavour.directories => {
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
            let bytes = content(rng, volume, length);
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
            let (offset, length) = hole(rng, state[&serial].content.as_ref().unwrap().len());
            history.log.push(format!("punch {serial} {offset} {length}"));
            history.add(|state| zero(state.get_mut(&serial).unwrap().content.as_mut().unwrap(), offset, length));
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
            history.note_all_durable();
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

/// Bytes for a file: mostly random, now and then a page of metadata of this very volume, again and again.
fn content<M: Bytes, D: NandDevice>(rng: &mut Rng, volume: &mut FlashLight<M, D>, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    let geometry = volume.geometry();
    let mut page = vec![0; geometry.page_bytes as usize];
    let mut newest = 0;
    for _ in 0..if rng.chance(20) { 60 } else { 0 } {
        let number = rng.below(geometry.pages().into()) as u32;
        let is_read = volume.device().read(number, &mut page, &mut []).is_ok();
        let sequence = u64::from_le_bytes(page[..8].try_into().unwrap()) >> 16;
        // Inodes: recovery looks for these, and for those behind the checkpoint alone.
        if is_read && [6, 8].contains(&page[0]) && sequence > newest {
            newest = sequence;
            bytes.iter_mut().zip(page.iter().cycle()).for_each(|(byte, copied)| *byte = *copied);
        }
    }
    bytes
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

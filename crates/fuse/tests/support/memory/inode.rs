//! What the file system in memory has of one inode.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use basalt_vfs::*;

use super::PAGE;

pub(super) struct Inode {
    pub(super) attributes: Attributes,
    pub(super) references: u64,
    pub(super) pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
    pub(super) target: Vec<u8>,
    pub(super) parent: InodeNumber,
    pub(super) names: HashMap<Vec<u8>, u64>,
    pub(super) entries: BTreeMap<u64, (Vec<u8>, InodeNumber)>,
    pub(super) next_cursor: u64,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Time { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
}

impl Inode {
    pub(super) fn new(
        ino: InodeNumber,
        generation: u32,
        node: &NewNode<'_>,
        parent: InodeNumber,
        caller: &Caller,
    ) -> Self {
        let now = now();
        let directory = node.kind == FileKind::Directory;
        let attributes = Attributes {
            ino,
            generation,
            kind: node.kind,
            permissions: node.permissions & !caller.umask,
            links: if directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev: node.rdev,
            size: node.target.len() as u64,
            sectors: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: Some(now),
            flags: InodeFlags::empty(),
            project_id: 0,
        };
        Inode {
            attributes,
            references: 0,
            pages: BTreeMap::new(),
            target: node.target.to_vec(),
            parent,
            names: HashMap::new(),
            entries: BTreeMap::new(),
            next_cursor: 3,
            xattrs: BTreeMap::new(),
        }
    }

    pub(super) fn attributes(&self) -> Attributes {
        Attributes { sectors: self.pages.len() as u64 * (PAGE / 512), ..self.attributes }
    }

    pub(super) fn changed(&mut self) {
        self.attributes.mtime = now();
        self.attributes.ctime = self.attributes.mtime;
    }

    pub(super) fn insert(&mut self, name: &[u8], ino: InodeNumber) {
        self.entries.insert(self.next_cursor, (name.to_vec(), ino));
        self.names.insert(name.to_vec(), self.next_cursor);
        self.next_cursor += 1;
        self.changed();
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(cursor) = self.names.remove(name) {
            self.entries.remove(&cursor);
        }
        self.changed();
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = (at % PAGE) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(PAGE as usize - start));
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[start..start + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = tail;
        }
        self.attributes.size = self.attributes.size.max(at);
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.attributes.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE) as usize;
            let piece = &mut buf[done..len.min(done + PAGE as usize - start)];
            match self.pages.get(&(at / PAGE)) {
                Some(page) => piece.copy_from_slice(&page[start..start + piece.len()]),
                None => piece.fill(0),
            }
            done += piece.len();
        }
        len
    }

    pub(super) fn punch(&mut self, offset: u64, end: u64) {
        let end = end.min(self.attributes.size);
        for index in offset / PAGE..end.div_ceil(PAGE) {
            let (from, to) = (offset.max(index * PAGE), end.min((index + 1) * PAGE));
            if to - from == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                page[(from - index * PAGE) as usize..(to - index * PAGE) as usize].fill(0);
            }
        }
    }

    pub(super) fn resize(&mut self, size: u64) {
        if size < self.attributes.size {
            self.punch(size, self.attributes.size);
            self.pages.split_off(&size.div_ceil(PAGE));
        }
        self.attributes.size = size;
    }

    pub(super) fn clear_suid_sgid(&mut self) {
        let mode = &mut self.attributes.permissions;
        *mode &= !0o4000;
        if *mode & 0o010 != 0 {
            *mode &= !0o2000;
        }
    }
}

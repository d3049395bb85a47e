//! Directory listings.

use basalt_vfs::{FileKind, InodeNumber};
use rustix::io::Errno;

use crate::protocol::flags::{InitFlags, OpenReplyFlags};
use crate::protocol::wire::{Dirent, EntryOut, OpenOut, ReadIn};
use crate::session::convert;
use crate::session::reply::{Answer, Reply};
use crate::session::server::Server;

/// An entry between listing and lookup: its name is in a buffer beside.
struct Listed {
    ino: InodeNumber,
    kind: FileKind,
    next: u64,
    name: std::ops::Range<usize>,
}

impl Server {
    pub(in crate::session) fn opendir(&self, reply: &mut Reply) -> Answer {
        if self.agreed.flags.contains(InitFlags::NO_OPENDIR_SUPPORT) {
            return Err(Errno::NOSYS.into());
        }
        let flags = OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::CACHE_DIR;
        reply.push(&OpenOut { fh: 0, open_flags: flags.bits(), backing_id: 0 })
    }

    pub(in crate::session) fn readdir(&self, ino: InodeNumber, arguments: &ReadIn, reply: &mut Reply) -> Answer {
        let room = arguments.size as usize;
        let start = reply.len();
        let listed = self.fs.read_directory(ino, arguments.offset, &mut |entry| {
            reply.len() + record_len(entry.name, 0) <= room
                && push_dirent(reply, entry.ino, entry.kind, entry.next, entry.name).is_ok()
        });
        // Whoever goes on behind these entries gets the error.
        if reply.len() == start { Ok(listed?) } else { Ok(()) }
    }

    /// Lists with attributes. The file system may hold the directory while it lists, so lookups come afterwards.
    pub(in crate::session) fn readdirplus(&self, ino: InodeNumber, arguments: &ReadIn, reply: &mut Reply) -> Answer {
        let (listed, names) = self.list(ino, arguments)?;
        for Listed { ino: listed_ino, kind, next, name } in listed {
            let name = &names[name];
            let mut entry = EntryOut::default();
            // Node id 0 means "no attributes here": `.` and `..` want none, and an entry may vanish meanwhile.
            if name != b"."
                && name != b".."
                && let Ok(found) = self.fs.lookup(ino, name)
            {
                reply.grants(found.ino);
                entry = self.entry_out(&found)?;
            }
            reply.push(&entry)?;
            push_dirent(reply, listed_ino, kind, next, name)?;
        }
        Ok(())
    }

    /// The entries that fit the reply to a READDIRPLUS, and the buffer with their names.
    fn list(&self, ino: InodeNumber, arguments: &ReadIn) -> basalt_vfs::Result<(Vec<Listed>, Vec<u8>)> {
        let room = (arguments.size as usize).min(self.max_payload());
        let (mut listed, mut names, mut used) = (Vec::new(), Vec::new(), 0);
        let result = self.fs.read_directory(ino, arguments.offset, &mut |entry| {
            used += record_len(entry.name, size_of::<EntryOut>());
            if used > room {
                return false;
            }
            let start = names.len();
            names.extend_from_slice(entry.name);
            listed.push(Listed { ino: entry.ino, kind: entry.kind, next: entry.next, name: start..names.len() });
            true
        });
        // Whoever goes on behind these entries gets the error.
        if listed.is_empty() {
            result?;
        }
        Ok((listed, names))
    }
}

/// Bytes of one entry in the reply, with `before` bytes in front of it.
fn record_len(name: &[u8], before: usize) -> usize {
    (before + size_of::<Dirent>() + name.len()).next_multiple_of(8)
}

fn push_dirent(reply: &mut Reply, ino: InodeNumber, kind: FileKind, next: u64, name: &[u8]) -> Answer {
    // Names are at most 255 bytes.
    let name_len = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
    reply.push(&Dirent { ino, offset: next, name_len, kind: convert::dirent_kind(kind) })?;
    reply.push_bytes(name)?;
    reply.pad()
}

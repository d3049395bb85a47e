//! Set-uid and set-gid bits: whoever changes the content of a program takes them away, as on any other file system.
//!
//! The kernel leaves that to the server (`HANDLE_KILLPRIV_V2`; otherwise it would ask for an extended attribute before every write(2)).
//! With a WRITE and a SETATTR it says whether the caller may keep them, with FALLOCATE and COPY_FILE_RANGE it does not; `/proc` does.
//! The kernel goes on using the mode that it knows, also when it executes the file. So the bits go before the content changes, and the
//! kernel is told so before it gets its reply: what is executed after that call has returned has no privileges.
//!
//! An execve(2) under way at that moment has checked permissions already; `programs` sends it back.

use std::fs;

use basalt_vfs::{FileKind, InodeFlags, InodeNumber, SetAttributes, SetTime};

use super::reply::Reply;
use super::server::Server;
use crate::protocol::wire::InHeader;

pub(super) const SET_UID: u32 = 0o4000;
pub(super) const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// `CAP_FSETID`: its bit among a process's capabilities.
const CAP_FSETID: u64 = 1 << 4;
/// The initial user namespace, outside of which capabilities do not count. Source: the kernel's `PROC_USER_INIT_INO`.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

impl Server {
    /// Before content changes by a request that does not say whether its caller may keep the bits.
    pub(super) fn drop_privileges(
        &self,
        header: &InHeader,
        ino: InodeNumber,
        reply: &mut Reply,
    ) -> basalt_vfs::Result<()> {
        self.take_set_ids(header, ino, reply, |caller| !caller.may_keep_set_ids())
    }

    /// Before content changes by a caller who may not keep the bits.
    pub(super) fn drop_privileges_always(
        &self,
        header: &InHeader,
        ino: InodeNumber,
        reply: &mut Reply,
    ) -> basalt_vfs::Result<()> {
        self.take_set_ids(header, ino, reply, |_| true)
    }

    /// With a SETATTR that clears the bits: set-gid without the right to execute, unless the caller may keep that.
    pub(super) fn drop_bare_set_gid(
        &self,
        header: &InHeader,
        ino: InodeNumber,
        changes: &mut SetAttributes,
    ) -> basalt_vfs::Result<()> {
        let before = self.fs.attributes(ino)?;
        if before.kind == FileKind::Regular && before.permissions & (SET_GID | GROUP_EXECUTE) == SET_GID {
            let caller = Process::of(header);
            if !caller.is_member(before.gid) && !caller.may_keep_set_ids() {
                changes.permissions = Some(changes.permissions.unwrap_or(before.permissions) & !SET_GID);
            }
        }
        Ok(())
    }

    fn take_set_ids(
        &self,
        header: &InHeader,
        ino: InodeNumber,
        reply: &mut Reply,
        must: impl FnOnce(&Process) -> bool,
    ) -> basalt_vfs::Result<()> {
        let before = self.fs.attributes(ino)?;
        // What is immutable does not change.
        if before.permissions & (SET_UID | SET_GID) == 0 || before.flags.contains(InodeFlags::IMMUTABLE) {
            return Ok(());
        }
        let caller = Process::of(header);
        let kept = without_set_ids(before.permissions, caller.is_member(before.gid));
        if kept == before.permissions || !must(&caller) {
            return Ok(());
        }
        // Before, so that nobody who opens the file from now on is overlooked.
        self.programs.note_drop(ino);
        reply.outdates(self.nodes.node(ino));
        let changes = SetAttributes {
            permissions: Some(kept),
            // The kernel keeps ctime, or the change of content renews it.
            ctime: Some(SetTime::To(before.ctime)),
            is_due: true,
            ..Default::default()
        };
        self.fs.set_attributes(ino, &changes).map(|_| ())
    }
}

/// What is left of the permissions of a file that somebody else writes to. Set-gid without the right to execute is no privilege of a
/// program; members of the group keep it. Source: the kernel's `setattr_should_drop_suidgid`.
pub(super) fn without_set_ids(permissions: u32, is_member: bool) -> u32 {
    let keeps_group = permissions & GROUP_EXECUTE == 0 && is_member;
    permissions & !SET_UID & if keeps_group { !0 } else { !SET_GID }
}

/// Who made a request, as `/proc` has it. Its thread waits for the reply.
pub(super) struct Process {
    pid: u32,
    gid: u32,
    /// `/proc/PID/status`; empty where it cannot be read.
    status: String,
}

impl Process {
    pub(super) fn of(header: &InHeader) -> Self {
        // The kernel sends 0 for a process that this one cannot see.
        let status = fs::read_to_string(format!("/proc/{}/status", header.pid)).unwrap_or_default();
        Process { pid: header.pid, gid: header.gid, status }
    }

    /// Whether writing leaves the bits alone: with `CAP_FSETID`. Who cannot be known has it not.
    fn may_keep_set_ids(&self) -> bool {
        let set = self.field("CapEff:").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        let namespace = || fs::read_link(format!("/proc/{}/ns/user", self.pid));
        set.is_some_and(|set| set & CAP_FSETID != 0)
            && namespace().is_ok_and(|namespace| namespace.as_os_str() == INITIAL_USER_NAMESPACE)
    }

    pub(super) fn is_member(&self, gid: u32) -> bool {
        let groups = self.field("Groups:").unwrap_or_default();
        self.gid == gid || groups.split_whitespace().any(|group| group.parse() == Ok(gid))
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.status.lines().find_map(|line| line.strip_prefix(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_gid_without_execution_stays_for_members() {
        for (before, member, other) in [
            (0o4777, 0o777, 0o777),
            (0o6755, 0o755, 0o755),
            (0o2766, 0o2766, 0o766),
            (0o6666, 0o2666, 0o666),
            (0o1777, 0o1777, 0o1777),
        ] {
            assert_eq!((without_set_ids(before, true), without_set_ids(before, false)), (member, other), "{before:o}");
        }
    }

    #[test]
    fn this_process_is_known_and_one_that_is_not_has_no_rights() {
        let me = Process::of(&InHeader { pid: std::process::id(), gid: u32::MAX, ..Default::default() });
        assert!(me.field("CapEff:").is_some() && !me.is_member(u32::MAX - 1));
        let nobody = Process::of(&InHeader { pid: 0, gid: 7, ..Default::default() });
        assert!(!nobody.may_keep_set_ids() && nobody.is_member(7) && !nobody.is_member(0));
    }
}

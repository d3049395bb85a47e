//! Who may see that there are `trusted.` attributes.
//!
//! The kernel itself lets only those read and write them who have `CAP_SYS_ADMIN`, and leaves their names to each file system to hide;
//! FUSE tells its server nothing of capabilities. Who asks waits for the answer meanwhile, so `/proc` shows what it may do.

use std::fs;

use basalt_vfs::InodeNumber;

use super::server::Server;
use crate::protocol::wire::InHeader;

/// The prefix of those attributes.
const TRUSTED: &[u8] = b"trusted.";
/// `CAP_SYS_ADMIN`, as a bit of a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;
/// The link to the user namespace of the whole system, in which alone the capability counts (`PROC_USER_INIT_INO`).
const SYSTEM_NAMESPACE: &str = "user:[4026531837]";

impl Server {
    /// The names of an inode's extended attributes, as far as the caller may see them.
    pub(super) fn visible_xattrs(&self, ino: InodeNumber, header: &InHeader) -> basalt_vfs::Result<Vec<u8>> {
        let list = self.fs.list_xattrs(ino)?;
        let is_hidden = |name: &[u8]| name.starts_with(TRUSTED);
        if !list.split(|&byte| byte == 0).any(is_hidden) || may_administer(header.pid) {
            return Ok(list);
        }
        // Each name has its zero byte with it.
        Ok(list.split_inclusive(|&byte| byte == 0).filter(|name| !is_hidden(name)).flatten().copied().collect())
    }
}

/// Whether a process, or thread, has `CAP_SYS_ADMIN` of the whole system. Not, where that cannot be found out.
fn may_administer(pid: u32) -> bool {
    // One of a process that cannot be seen from here has no number.
    let is_system =
        || fs::read_link(format!("/proc/{pid}/ns/user")).is_ok_and(|link| link.as_os_str() == SYSTEM_NAMESPACE);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    pid != 0 && has_sys_admin(&status) && is_system()
}

/// Looks it up in the text of `/proc/PID/status`.
fn has_sys_admin(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & SYS_ADMIN != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found() {
        assert!(has_sys_admin("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n"));
        assert!(!has_sys_admin("CapPrm:\t000001ffffffffff\nCapEff:\t000001ffffdfffff\n"));
        assert!(!has_sys_admin("CapEff:\tmany\n") && !has_sys_admin(""));
        assert!(!may_administer(0));
    }
}

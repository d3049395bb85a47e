//! What the machine does: format, mount, set up, run the program, unmount.

use basalt_uml::quoted;

use super::Peer;

/// Exit status when the volume could not be made or mounted.
pub(super) const NOT_MOUNTED: i32 = 120;
/// Exit status when the volume could not be unmounted.
pub(super) const NOT_UNMOUNTED: i32 = 121;
/// Where the volume is mounted.
pub(super) const MOUNT_POINT: &str = "/run/basalt/volume";
/// The longest request that the driver is given, in bytes: all it takes (127 KiB), in whole pages. It cuts longer ones.
pub const LONGEST_REQUEST: u64 = 124 << 10;

/// The shell script that runs `command` on a fresh volume of `peer`.
pub(super) fn script(peer: Peer, command: &[&str]) -> String {
    let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
    format!(
        "fail() {{ echo \"basalt: $1\"; exit {NOT_MOUNTED}; }}\n\
         echo {longest} > /sys/block/ubda/queue/max_sectors_kb || fail 'the length of requests cannot be set'\n\
         {format} > /run/mkfs.log 2>&1 || {{ cat /run/mkfs.log; fail 'the volume cannot be made'; }}\n\
         mkdir -p {MOUNT_POINT}\n\
         mount -i -t {kind} {options}/dev/ubda {MOUNT_POINT} || fail 'the volume cannot be mounted'\n\
         {set_up}{command}\n\
         status=$?\n\
         {before_unmount}umount -i {MOUNT_POINT} || exit {NOT_UNMOUNTED}\n\
         exit $status\n",
        longest = LONGEST_REQUEST >> 10,
        format = format_command(peer),
        kind = peer.kind(),
        options = if peer == Peer::F2fsLfs { "-o mode=lfs " } else { "" },
        set_up = set_up(peer),
        command = command.join(" "),
        before_unmount = if peer == Peer::Nilfs2 { STOP_CLEANER } else { "" },
    )
}

/// The cleaner is no child of the script; it ends its round before it lets go of the volume.
const STOP_CLEANER: &str =
    "kill $cleaner\nfor i in $(seq 100); do kill -0 $cleaner 2> /dev/null || break; sleep 0.1; done\n";

/// Without discarding the device: the image is new, and the simulated flash would be a fresh one again.
/// What ext4 leaves to a thread in the background is done by mkfs: else it falls into the measurement, or does not.
fn format_command(peer: Peer) -> &'static str {
    match peer {
        Peer::Ext4 => "mkfs.ext4 -q -F -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/ubda",
        Peer::Xfs => "mkfs.xfs -q -f -K /dev/ubda",
        Peer::Btrfs => "mkfs.btrfs -q -f -K /dev/ubda",
        Peer::F2fs | Peer::F2fsLfs => "mkfs.f2fs -q -f -t 0 /dev/ubda",
        Peer::Nilfs2 => "mkfs.nilfs2 -q -f -K /dev/ubda",
    }
}

/// What makes it a peer after it was mounted.
fn set_up(peer: Peer) -> &'static str {
    match peer {
        Peer::Ext4 | Peer::Xfs | Peer::Btrfs | Peer::F2fsLfs => "",
        // What f2fs_tuning_parameters() changes for small volumes, back to what they are on others.
        Peer::F2fs => {
            "echo 16 > /sys/fs/f2fs/ubda/ipu_policy && echo 16 > /sys/fs/f2fs/ubda/discard_granularity && \
             mount -i -o remount,alloc_mode=default /run/basalt/volume || fail 'the policies of F2FS cannot be set'\n"
        }
        // The cleaner listens to a queue of messages, whose file system nobody has mounted yet. It goes to the background
        // whatever its options, and tells its process number.
        Peer::Nilfs2 => {
            "mkdir -p /dev/shm /dev/mqueue && mount -t tmpfs tmpfs /dev/shm && mount -t mqueue none /dev/mqueue || \
             fail 'what the cleaner needs cannot be mounted'\n\
             cat > /run/cleaner.conf <<END\n\
             protection_period 0\n\
             min_clean_segments 30%\n\
             max_clean_segments 40%\n\
             clean_check_interval 1\n\
             selection_policy timestamp\n\
             nsegments_per_clean 8\n\
             mc_nsegments_per_clean 8\n\
             cleaning_interval 0.1\n\
             mc_cleaning_interval 0.1\n\
             retry_interval 1\n\
             min_reclaimable_blocks 1%\n\
             mc_min_reclaimable_blocks 1%\n\
             use_set_suinfo\n\
             use_mmap\n\
             log_priority info\n\
             END\n\
             nilfs_cleanerd -c /run/cleaner.conf /dev/ubda /run/basalt/volume > /run/cleaner.log 2>&1 &\n\
             for i in $(seq 50); do\n\
             cleaner=$(sed -n s/^NILFS_CLEANERD_PID=//p /run/cleaner.log)\n\
             [ -z \"$cleaner\" ] || break\n\
             sleep 0.1\n\
             done\n\
             [ -n \"$cleaner\" ] || fail 'the cleaner of NILFS2 does not start'\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_shell() {
        for peer in Peer::ALL {
            let text = script(peer, &["/bin/it's", "a b"]);
            let check = std::process::Command::new("sh").args(["-n", "-c", &text]).output().unwrap();
            assert!(check.status.success(), "{peer}: {}", String::from_utf8_lossy(&check.stderr));
            assert!(text.contains("'/bin/it'\\''s' 'a b'\n"));
        }
    }
}

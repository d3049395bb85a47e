//! Whoever changes a program's content takes its privileges away: every way to change it, as on ext4 under the same kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_testkit::rng::Rng;
use basalt_testkit::skip;
use rustix::mount::UnmountFlags;

use crate::fixture::{Volume, sh, try_sh, try_sh_as_nobody};

/// An ext4 volume, mounted; gone with its value.
struct Ext4(PathBuf);

impl Ext4 {
    fn new(volume: &Volume) -> Option<Ext4> {
        if !skip::tools_or_skip(&["mkfs.ext4", "losetup"]) {
            return None;
        }
        let (image, root) = (volume.outside("ext4.image"), volume.outside("ext4"));
        fs::create_dir(&root).unwrap();
        let script = format!("truncate -s 64M '{0}'; mkfs.ext4 -q '{0}'; mount -o loop '{0}' ext4", image.display());
        sh(root.parent().unwrap(), &script);
        Some(Ext4(root))
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Ways to change the content of the file `$f`, which has 64 KiB; `source` has as many.
const WAYS: [(&str, &str); 15] = [
    ("append", "echo more >> $f"),
    ("buffered", "xfs_io -c 'pwrite -q 1000 5000' $f"),
    ("direct", "xfs_io -d -c 'pwrite -q 4096 4096' $f"),
    ("synchronous", "xfs_io -s -c 'pwrite -q 4096 4096' $f"),
    ("vectored", "xfs_io -c 'pwrite -q -b 4096 -V 4 0 16384' $f"),
    ("truncate", "xfs_io -c 'truncate 100' $f"),
    ("extend", "truncate -s 100000 $f"),
    ("replace", ": > $f"),
    ("allocate", "xfs_io -c 'falloc 0 100000' $f"),
    ("allocate behind the end", "xfs_io -c 'falloc -k 0 200000' $f"),
    ("punch", "xfs_io -c 'fpunch 4096 4096' $f"),
    ("zero", "xfs_io -c 'fzero 4096 4096' $f"),
    ("zero behind the end", "xfs_io -c 'fzero -k 4096 100000' $f"),
    ("copy", "xfs_io -c 'copy_range -s 0 -d 4096 -l 4096 source' $f"),
    ("read", "cat $f > /dev/null"),
];

/// Who changes it, as a program in front of a shell.
const WHO: [(&str, &str); 4] = [
    ("somebody", "setpriv --reuid=65534 --regid=65534 --clear-groups"),
    ("a member", "setpriv --reuid=65534 --regid=65534 --groups=1234"),
    ("root", "env"),
    ("root without CAP_FSETID", "setpriv --bounding-set=-fsetid"),
];

const MODES: [&str; 5] = ["4777", "6777", "2777", "6766", "2676"];

/// Makes a file for each mode, changer and way in a directory, lets each be changed, and returns the modes afterwards.
fn modes_after_every_way(directory: &Path) -> String {
    let mut script = String::from("umask 0\nhead -c 65536 /dev/zero > source\n");
    let mut changes = [const { String::new() }; WHO.len()];
    for mode in MODES {
        for (index, (who, _)) in WHO.iter().enumerate() {
            for (way, change) in WAYS {
                let name = format!("{mode}: {way} by {who}");
                script += &format!("cp source '{name}'; chgrp 1234 '{name}'; chmod {mode} '{name}'\n");
                changes[index] += &format!("f='{name}'\n{}\n", change.replace("$f", "\"$f\""));
            }
        }
    }
    sh(directory, &script);
    for ((_, program), changes) in WHO.iter().zip(&changes) {
        let changes = changes.replace('\'', r"'\''");
        sh(directory, &format!("{program} sh -ec '{changes}'"));
    }
    modes(directory)
}

fn modes(directory: &Path) -> String {
    sh(directory, "stat -c '%a %n' *")
}

#[test]
fn every_way_to_change_a_program_takes_its_privileges_as_on_ext4() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["xfs_io", "setpriv"]) {
        return;
    }
    let Some(ext4) = Ext4::new(&volume) else { return };
    fs::create_dir(volume.path("in")).unwrap();
    fs::create_dir(ext4.0.join("in")).unwrap();
    let expected = modes_after_every_way(&ext4.0.join("in"));
    assert!(expected.contains("\n777 4777: copy by somebody\n"), "{expected}");
    assert_same(&modes_after_every_way(&volume.path("in")), &expected, "as the kernel has them");
    volume.remount();
    assert_same(&modes(&volume.path("in")), &expected, "as the volume has them");
}

#[track_caller]
fn assert_same(found: &str, expected: &str, which: &str) {
    let differences: Vec<_> =
        found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected).collect();
    assert!(differences.is_empty(), "modes {which}, here and on ext4: {differences:#?}");
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn file_capabilities_go_by_every_way_as_on_ext4() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["xfs_io", "setpriv", "setfattr", "getfattr"]) {
        return;
    }
    let Some(ext4) = Ext4::new(&volume) else { return };
    let capabilities = |directory: &Path| {
        let mut script = String::from("umask 0\nhead -c 65536 /dev/zero > source\n");
        for (who, program) in [WHO[0], WHO[2]] {
            for (way, change) in WAYS {
                let change = change.replace('\'', r"'\''");
                // cap_net_raw, permitted.
                script += &format!(
                    "f='{way} by {who}'; export f; cp source \"$f\"
                    setfattr -n security.capability -v 0x0000000200200000000000000000000000000000 \"$f\"
                    {program} sh -ec '{}'
                    echo \"$f: $(getfattr --absolute-names -n security.capability \"$f\" 2> /dev/null | wc -l)\"\n",
                    change.replace("$f", "\"$f\"")
                );
            }
        }
        sh(directory, &script)
    };
    let expected = capabilities(&ext4.0);
    assert!(expected.contains("copy by root: 0\n"), "{expected}");
    assert_eq!(capabilities(&volume.root()), expected);
}

#[test]
fn a_program_that_somebody_changed_runs_without_its_privileges() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["xfs_io", "setpriv"]) {
        return;
    }
    let root = volume.root();
    // All of these leave a program that still runs.
    let ways = [
        "echo >> program",
        "xfs_io -d -c 'pwrite -q -i original 0 4096' program",
        "xfs_io -c 'falloc -k 0 1m' program",
        "xfs_io -c 'copy_range -s 0 -d 0 -l 4096 original' program",
        "xfs_io -c 'fpunch 10m 4096' program",
    ];
    for way in ways {
        sh(&root, "rm -f program; cp \"$(command -v id)\" original; cp original program; chmod 4777 program");
        assert_eq!(try_sh_as_nobody(&root, "./program -u").1, "0\n", "{way}: before");
        // In one go: nothing that a second process would wait for.
        let (ok, text) = try_sh_as_nobody(&root, &format!("{way}; exec ./program -u"));
        assert!(ok && text == "65534\n", "{way}: {text}");
    }
}

#[test]
fn what_may_only_grow_loses_its_privileges_when_it_does() {
    let Some(volume) = Volume::new("64M") else { return };
    if !skip::tools_or_skip(&["xfs_io", "setpriv", "chattr"]) {
        return;
    }
    let root = volume.root();
    sh(&root, "echo one > log; chmod 6777 log; chattr +a log");
    let (ok, text) = try_sh_as_nobody(&root, "echo two >> log");
    assert!(ok, "{text}");
    assert_eq!(sh(&root, "stat -c %a log; cat log"), "777\none\ntwo\n");
    // What is refused takes nothing.
    sh(&root, "chattr -a log; chmod 6777 log");
    let refused = "exec 3<> log; : > /dev/null; xfs_io -c 'falloc 0 100' log";
    sh(&root, "chattr +i log");
    assert!(!try_sh_as_nobody(&root, refused).0);
    assert_eq!(sh(&root, "stat -c %a log"), "6777\n");
    assert!(try_sh(&root, "chattr -i log").0);
}

/// A program that tells by its exit code whether it runs as root (2), and whether it was changed (1).
const PROGRAM: &str = r#"#include <unistd.h>
volatile char mark[] = "MARKED:A";
int main(void) { return (geteuid() == 0 ? 2 : 0) + (mark[7] == 'B' ? 1 : 0); }
"#;

/// Changes the program once, somewhere among the times at which it is started.
const CHANGE: &str = r#"
    my ($path, $delay) = @ARGV;
    open(my $file, "<", $path) or die; binmode($file); local $/; my $at = index(<$file>, "MARKED:A") + 7;
    for (my $i = 0; $i < $delay; $i++) {}
    until (open($file, "+<", $path)) { $!{ETXTBSY} or die "$path: $!" }
    seek($file, $at, 0); syswrite($file, "B") == 1 or die; close($file);
"#;

#[test]
fn nobody_runs_a_changed_program_with_its_privileges_however_they_hurry() {
    let Some(volume) = Volume::new("128M") else { return };
    if !skip::tools_or_skip(&["cc", "perl", "setpriv"]) {
        return;
    }
    let root = volume.root();
    fs::write(volume.outside("program.c"), PROGRAM).unwrap();
    fs::write(volume.outside("change"), CHANGE).unwrap();
    sh(&root, "chmod 777 .; cc -static -o ../program ../program.c");
    let nobody = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534);
        command
    };
    let seed = 19;
    let mut rng = Rng::new(seed);
    for round in 0..150 {
        let path = volume.path("program");
        sh(&root, "rm -f program; cp ../program program; chmod 4777 program");
        let delay = rng.below(60_000).to_string();
        let mut changing = nobody(Path::new("perl"));
        let mut changing = changing.arg(volume.outside("change")).arg(&path).arg(delay).spawn().unwrap();
        let (mut is_changed, mut refused) = (false, 0);
        while !is_changed {
            let status = match nobody(&path).status() {
                Ok(status) => status,
                // ETXTBSY, while it is open.
                Err(error) => {
                    refused += u32::from(changing.try_wait().unwrap().is_some());
                    assert!(refused < 2_000, "seed {seed}, round {round}: {error}, though nobody has it open");
                    continue;
                }
            };
            is_changed = status.code().is_some_and(|code| code & 1 != 0);
            assert_ne!(status.code(), Some(3), "seed {seed}, round {round}: root ran what somebody had changed");
            if changing.try_wait().unwrap().is_some_and(|status| !status.success()) {
                panic!("the program was not changed");
            }
        }
        assert!(changing.wait().unwrap().success());
    }
}

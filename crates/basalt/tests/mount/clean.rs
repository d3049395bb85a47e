//! `basalt clean`, and the ioctls of F2FS in Linux that do the same.

use std::fs::{self, File};

use rustix::io::Errno;
use rustix::ioctl::{NoArg, Setter, opcode};
use serde_json::Value;

use crate::fixture::Volume;
use crate::support::{basalt, wait_until};

/// Names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// A volume on which most sections are half live, and the files that are left.
fn holed() -> Option<(Volume, Files)> {
    let volume = Volume::with_options("128M", "background_gc=off")?;
    let content = |number: usize| vec![(number % 251) as u8 + 1; 24 << 10];
    let name = |number: usize| format!("file{number}");
    let all = 0..2_200;
    for number in all.clone() {
        fs::write(volume.path(name(number)), content(number)).unwrap();
    }
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    for number in all.clone().filter(|number| number % 2 == 1) {
        fs::remove_file(volume.path(name(number))).unwrap();
    }
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    Some((volume, all.step_by(2).map(|number| (name(number), content(number))).collect()))
}

fn expect_content(volume: &Volume, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        assert!(fs::read(volume.path(name)).unwrap() == *content, "{name}");
    }
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("no {name}: {report}"))
}

#[test]
fn cleaning_makes_sections_free_and_keeps_what_is_there() {
    let Some((volume, files)) = holed() else { return };
    let clean = |arguments: &[&str]| {
        let root = volume.root();
        let arguments: Vec<&std::ffi::OsStr> =
            ["clean".as_ref(), root.as_os_str()].into_iter().chain(arguments.iter().map(|one| one.as_ref())).collect();
        basalt(arguments)
    };
    let three = clean(&["--sections", "3", "--json"]).json();
    assert_eq!(number(&three, "sections_emptied"), 3.0, "{three}");
    assert!(number(&three, "blocks_moved") > 300.0, "{three}");
    assert!(number(&three, "free_sections") > number(&three, "free_sections_before"), "{three}");
    expect_content(&volume, &files);

    let free = number(&three, "free_sections") * 100.0 / number(&three, "sections");
    let until = clean(&["--until-free", &format!("{:.2}", free + 8.0), "--json"]).json();
    let reached = number(&until, "free_sections") * 100.0 / number(&until, "sections");
    assert!((free + 8.0..free + 20.0).contains(&reached), "{reached} of {free}: {until}");

    // All that is worth it: what is live takes less than 60 % of the volume.
    let text = clean(&[]).ok();
    assert!(text.contains(" sections emptied, ") && text.contains(" sections are free, "), "{text}");
    let again = clean(&["--json"]).json();
    assert!(number(&again, "sections_emptied") <= 2.0, "{again}");
    assert!(number(&again, "free_sections") * 2.0 > number(&again, "sections"), "{again}");
    for limit in [&[][..], &["--sections", "50"]] {
        let arguments = [&["--until-free", "99", "--quiet"], limit].concat();
        clean(&arguments).fails(1, &["only ", " % of the sections are free", "; delete files"]);
    }
    expect_content(&volume, &files);
}

/// What was deleted is dead, but the last checkpoint needs it.
#[test]
fn cleaning_frees_what_was_just_deleted() {
    for journal in ["journal", "nojournal"] {
        frees_what_was_just_deleted(journal);
    }
}

fn frees_what_was_just_deleted(journal: &str) {
    // Nothing but the command writes a checkpoint.
    let options = format!("background_gc=off,commit=86400,checkpoint=86400,{journal}");
    let Some(volume) = Volume::with_options("128M", &options) else { return };
    for name in ["left", "deleted"] {
        fs::write(volume.path(name), vec![1; 30 << 20]).unwrap();
    }
    basalt(["sync".as_ref(), volume.root().as_os_str()]).ok();
    let before = free_sections(&volume);
    fs::remove_file(volume.path("deleted")).unwrap();
    // The kernel forgets the inode when it likes to.
    let is_free = || {
        basalt(["clean".as_ref(), volume.root().as_os_str()]).ok();
        free_sections(&volume) >= before + 13.0
    };
    wait_until("15 sections are free that were deleted", is_free);
}

#[test]
fn tools_for_linux_clean_too() {
    const GARBAGE_COLLECT: u32 = opcode::write::<u32>(0xF5, 6);
    const WRITE_CHECKPOINT: u32 = opcode::none(0xF5, 7);
    let Some((volume, files)) = holed() else { return };
    let root = File::open(volume.root()).unwrap();
    // SAFETY: the number says that the argument is an integer, which the kernel copies.
    #[allow(unsafe_code, reason = "an ioctl")]
    let collect = || unsafe { rustix::ioctl::ioctl(&root, Setter::<GARBAGE_COLLECT, u32>::new(1)) };
    let before = free_sections(&volume);
    for _ in 0..4 {
        collect().unwrap();
    }
    assert!(free_sections(&volume) > before);
    let most = 2_000;
    let end = (0..most).find_map(|_| collect().err());
    assert_eq!(end, Some(Errno::AGAIN), "there is always something to gain");
    // SAFETY: the ioctl has no argument.
    #[allow(unsafe_code, reason = "an ioctl")]
    unsafe { rustix::ioctl::ioctl(&root, NoArg::<WRITE_CHECKPOINT>::new()) }.unwrap();
    drop(root);
    expect_content(&volume, &files);
}

fn free_sections(volume: &Volume) -> f64 {
    let stats = basalt(["stats".as_ref(), volume.root().as_os_str(), "--json".as_ref()]).json();
    stats.pointer("/live/segments/free").and_then(Value::as_f64).unwrap()
}

#[test]
fn only_mounted_volumes_are_cleaned() {
    basalt(["clean", "/proc"]).fails(1, &["/proc is not on a mounted Basalt volume", "; name a directory"]);
    basalt(["clean", "/absent"]).fails(1, &["opening /absent"]);
    basalt(["clean", "/", "--sections", "0"]).fails(2, &["--sections"]);
    basalt(["clean", "/", "--until-free", "100"]).fails(2, &["above 0 and below 100"]);
    let Some(volume) = Volume::with_options("64M", "ro") else { return };
    basalt(["clean".as_ref(), volume.root().as_os_str()]).fails(1, &["Read-only file system", "mounted read-only"]);
}

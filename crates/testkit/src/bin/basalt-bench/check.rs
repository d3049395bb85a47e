//! A check of a 64 GiB volume with 500,000 files, beside `fsck.f2fs` on the same volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use basalt_testkit::Result;
use basalt_testkit::command::run;
use basalt_testkit::error::Context;

use crate::contender::drop_caches;
use crate::options::Options;
use crate::report::{Aim, Sample, Section, Unit};

/// Size of the volume; sparse, about 3.5 GiB of it are used.
const VOLUME: &str = "64G";
const DIRECTORIES: u32 = 500;
const FILES_EACH: u32 = 1_000;

/// Makes the volume once, and checks it as often as the options say, each program from a cold start.
pub fn measure(options: &Options) -> Result<Section> {
    let mut section = Section::new("A check of 64 GiB with 500,000 files", "Basalt", "fsck.f2fs");
    section.contenders = vec!["fsck.f2fs".to_owned(), "Basalt".to_owned()];
    let (image, tree) = (options.directory.join("check.img"), options.directory.join("check-tree"));
    let outcome = race(options, &image, &tree, &mut section);
    let _ = fs::remove_dir_all(&tree);
    let _ = fs::remove_file(&image);
    if let Err(error) = outcome {
        section.fail(error.to_string());
    }
    Ok(section)
}

fn race(options: &Options, image: &Path, tree: &Path, section: &mut Section) -> Result<()> {
    let basalt = options.basalt.display().to_string();
    make_tree(tree, if options.quick { 10 } else { DIRECTORIES })?;
    run(&basalt, ["mkfs".as_ref(), "--quiet".as_ref(), "--size".as_ref(), VOLUME.as_ref(), image.as_os_str()])?
        .success()?;
    run(&basalt, ["put".as_ref(), "-r".as_ref(), image.as_os_str(), tree.as_os_str()])?.success()?;
    fs::remove_dir_all(tree).doing("remove", tree)?;
    for number in 1..=options.runs() {
        eprintln!("run {number} of {}: {}", options.runs(), section.title);
        for (contender, program, word) in [("Basalt", basalt.as_str(), "fsck"), ("fsck.f2fs", "fsck.f2fs", "--dry-run")]
        {
            drop_caches()?;
            let start = Instant::now();
            run(program, [word.as_ref(), image.as_os_str()])?.success()?;
            let seconds = start.elapsed().as_secs_f64();
            let sample = Sample::new("check, cold", Unit::Seconds, seconds);
            section.add(contender, if contender == "Basalt" { sample.aim(Aim::Below(20.0)) } else { sample });
        }
    }
    Ok(())
}

/// Small files, three of five of which fit their inode.
fn make_tree(tree: &Path, directories: u32) -> Result<()> {
    for directory in 0..directories {
        let path: PathBuf = tree.join(format!("{:02}", directory % 25)).join(format!("{directory:03}"));
        fs::create_dir_all(&path).doing("create", &path)?;
        for file in 0..FILES_EACH {
            let length = if file % 5 < 3 { file * 3 } else { 3_600 + file % 496 };
            let path = path.join(format!("file-{file:04}"));
            fs::write(&path, vec![file as u8; length as usize]).doing("write", &path)?;
        }
    }
    Ok(())
}

//! What is unpacked and cloned: real files of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use basalt_testkit::command::run;
use basalt_testkit::error::Context;
use basalt_testkit::{Error, Result};

use crate::workload::Workload;

/// Trees of real files; those that exist are taken.
const TREES: [&str; 2] = ["/usr/include", "/usr/share/doc"];
/// The same, small.
const SMALL_TREES: [&str; 2] = ["/usr/include/linux", "/usr/include/c++"];

/// An archive and a repository with the same files in them.
#[derive(Debug)]
pub struct Sources {
    /// A tar archive, not compressed.
    pub archive: PathBuf,
    /// A packed git repository.
    pub repository: PathBuf,
    /// Files in the archive.
    pub files: u64,
    /// Size of the archive.
    pub bytes: u64,
}

impl Sources {
    /// Makes those that the workloads need.
    pub fn make(place: &Path, workloads: &[Workload], small: bool) -> Result<Sources> {
        let sources =
            Sources { archive: place.join("tree.tar"), repository: place.join("tree.git"), files: 0, bytes: 0 };
        let clone = workloads.contains(&Workload::Clone);
        if !clone && !workloads.contains(&Workload::Untar) {
            return Ok(sources);
        }
        eprintln!("preparing the tree to unpack and to clone");
        fs::create_dir_all(place).doing("create", place)?;
        let trees: Vec<&str> =
            if small { SMALL_TREES } else { TREES }.into_iter().filter(|tree| Path::new(tree).is_dir()).collect();
        if trees.is_empty() {
            return Err(Error::Invalid(format!("none of {} is here to be unpacked", TREES.join(", "))));
        }
        run(
            "tar",
            ["--create", "--absolute-names", "--transform=s|^/||", "--file"]
                .into_iter()
                .map(AsRef::as_ref)
                .chain([sources.archive.as_os_str()])
                .chain(trees.iter().map(AsRef::as_ref)),
        )?
        .success()?;
        let work = place.join("tree");
        fs::create_dir_all(&work).doing("create", &work)?;
        unpack(&sources.archive, &work)?;
        if clone {
            commit(&work, &sources.repository)?;
        }
        fs::remove_dir_all(&work).doing("remove", &work)?;
        Sources::find(place)
    }

    /// Those that were made before.
    pub fn find(place: &Path) -> Result<Sources> {
        let (archive, repository) = (place.join("tree.tar"), place.join("tree.git"));
        let bytes = fs::metadata(&archive).map_or(0, |metadata| metadata.len());
        let files = if bytes == 0 { 0 } else { count(&archive)? };
        Ok(Sources { archive, repository, files, bytes })
    }
}

/// Unpacks an archive into a directory.
pub fn unpack(archive: &Path, directory: &Path) -> Result<()> {
    run(
        "tar",
        ["--extract".as_ref(), "--file".as_ref(), archive.as_os_str(), "--directory".as_ref(), directory.as_os_str()],
    )?
    .success()?;
    Ok(())
}

/// Clones a repository through git's transport, as from another machine: with a pack to be indexed and no links.
pub fn clone(repository: &Path, directory: &Path) -> Result<()> {
    let address = format!("file://{}", repository.display());
    git(&["clone".as_ref(), "--quiet".as_ref(), address.as_ref(), directory.as_os_str()])
}

fn count(archive: &Path) -> Result<u64> {
    let listing = run("tar", ["--list".as_ref(), "--file".as_ref(), archive.as_os_str()])?.success()?;
    Ok(listing.output.lines().count() as u64)
}

/// Makes a packed repository of a tree.
fn commit(work: &Path, repository: &Path) -> Result<()> {
    let place = format!("--git-dir={}", repository.display());
    let tree = format!("--work-tree={}", work.display());
    let steps: [&[&str]; 4] = [
        &["init", "--quiet"],
        &["add", "--all", "--force"],
        &["-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "--message=tree"],
        &["repack", "-a", "-d", "--quiet"],
    ];
    for step in steps {
        let words = [place.as_str(), tree.as_str()].into_iter().chain(step.iter().copied());
        git(&words.map(AsRef::as_ref).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Runs git; the repositories are ours, whoever git thinks owns them.
fn git(arguments: &[&std::ffi::OsStr]) -> Result<()> {
    let trust = ["-c", "safe.directory=*", "-c", "core.autocrlf=false", "-c", "maintenance.auto=false"];
    run("git", trust.into_iter().map(AsRef::as_ref).chain(arguments.iter().copied()))?.success()?;
    Ok(())
}

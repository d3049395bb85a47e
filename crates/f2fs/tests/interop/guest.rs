//! Volumes as Linux mounts them.

use std::path::{Path, PathBuf};

use basalt_testkit::{Manifest, Uml};

/// One volume to mount, and what to do there.
pub struct Visit {
    /// The image.
    pub image: PathBuf,
    /// Mount options, or nothing.
    pub options: &'static str,
    /// A shell script: the mount point is `$MNT`.
    pub script: String,
}

impl Visit {
    /// A visit without mount options.
    pub fn new(image: impl Into<PathBuf>, script: impl Into<String>) -> Visit {
        Visit { image: image.into(), options: "", script: script.into() }
    }
}

/// Mounts, does and unmounts one after the other, in one boot (a machine has room for sixteen disks).
///
/// # Panics
/// When anything fails, or the kernel has something to complain about.
pub fn visit(uml: Uml, visits: &[Visit]) {
    assert!(visits.len() <= 16);
    let mut uml = uml;
    let mut script = "set -e\nexport MNT=/run/mnt\nmkdir $MNT\n".to_owned();
    for (visit, letter) in visits.iter().zip('a'..) {
        uml = uml.image(&visit.image);
        let options = if visit.options.is_empty() { String::new() } else { format!("-o {}", visit.options) };
        script.push_str(&format!(
            "echo '== {}'\nmount -t f2fs {options} /dev/ubd{letter} $MNT\n( {} )\numount $MNT\n",
            visit.image.display(),
            visit.script
        ));
    }
    uml.run_script(&script).unwrap().expect_success();
}

/// The command that leaves a manifest for [`manifest`].
pub fn record(image: &Path) -> String {
    format!("$TESTKIT manifest $MNT > {}", manifest_path(image).display())
}

/// The command that changes the tree at random, then leaves a manifest for [`manifest`].
pub fn mutate_and_record(image: &Path, seed: u64, operations: u32, max_size: u32) -> String {
    format!("$TESTKIT mutate $MNT {seed} {operations} {max_size} > /dev/null; {}", record(image))
}

/// What Linux saw last on a volume.
pub fn manifest(image: &Path) -> Manifest {
    let path = manifest_path(image);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    text.parse().unwrap()
}

/// Where manifests of a volume lie between turns.
pub fn manifest_path(image: &Path) -> PathBuf {
    image.with_extension("manifest")
}

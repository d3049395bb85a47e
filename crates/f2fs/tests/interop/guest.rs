//! Volumes as Linux mounts them.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use basalt_testkit::uml::UmlResult;
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
    let uml = visits.iter().fold(uml, |uml, visit| uml.image(&visit.image));
    uml.run_script(&script(visits)).unwrap().expect_success();
}

fn script(visits: &[Visit]) -> String {
    assert!(visits.len() <= 16);
    let mut script = "set -e\nexport MNT=/run/mnt\nmkdir -p $MNT\n".to_owned();
    for (visit, letter) in visits.iter().zip('a'..) {
        let options = if visit.options.is_empty() { String::new() } else { format!("-o {}", visit.options) };
        script.push_str(&format!(
            "echo '== {}'\nmount -t f2fs {options} /dev/ubd{letter} $MNT\n( {} )\numount $MNT\n",
            visit.image.display(),
            visit.script
        ));
    }
    script
}

/// A machine that stays up over many rounds of visits, since booting takes longer than a visit. While it waits it has nothing
/// mounted, and so no memory of the volumes.
pub struct Host {
    machine: Option<JoinHandle<UmlResult>>,
    place: PathBuf,
    round: u32,
}

impl Host {
    /// Boots. `place` is a directory for what passes between here and there.
    pub fn boot(uml: Uml, images: &[PathBuf], place: &Path) -> Host {
        let uml = images.iter().fold(uml, |uml, image| uml.image(image)).timeout(Duration::from_secs(600));
        let script = format!(
            "cd {}; n=1
            while :; do
                while [ ! -e $n.go ]; do [ ! -e end ] || exit 0; sleep 0.02; done
                sh $n.go || exit 1
                touch $n.done
                n=$((n + 1))
            done",
            place.display()
        );
        let machine = std::thread::spawn(move || uml.run_script(&script).unwrap());
        Host { machine: Some(machine), place: place.to_owned(), round: 0 }
    }

    /// As [`visit`]; the images are those given to [`Host::boot`], in that order.
    pub fn visit(&mut self, visits: &[Visit]) {
        self.round += 1;
        let (text, go) = (self.place.join("next"), self.place.join(format!("{}.go", self.round)));
        std::fs::write(&text, script(visits)).unwrap();
        std::fs::rename(&text, &go).unwrap();
        let done = self.place.join(format!("{}.done", self.round));
        let deadline = Instant::now() + Duration::from_secs(200);
        while !done.exists() {
            if self.machine.as_ref().is_none_or(JoinHandle::is_finished) || Instant::now() > deadline {
                self.end();
                panic!("Linux did not answer in round {}", self.round);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Shuts the machine down.
    ///
    /// # Panics
    /// When the kernel had something to complain about meanwhile.
    pub fn end(&mut self) {
        std::fs::write(self.place.join("end"), "").unwrap();
        if let Some(machine) = self.machine.take() {
            machine.join().unwrap().expect_success();
        }
    }
}

impl Drop for Host {
    /// A test that fails must not leave the machine waiting.
    fn drop(&mut self) {
        let _ = std::fs::write(self.place.join("end"), "");
        if let Some(machine) = self.machine.take() {
            let _ = machine.join();
        }
    }
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

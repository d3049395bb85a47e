//! What is on a volume before a workload begins: durable, so that no power cut is spent on making it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use basalt_device::MemoryDevice;
use basalt_f2fs::dir::hash::hash;

use crate::engine::Engine;
use crate::script::Step;
use crate::session::Session;

/// A kind of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// Nothing.
    Empty,
    /// Some of everything, on few names: what short sequences are about.
    Few,
    /// As few, and the logs have been through most of the largest volume: they go on in segments of high numbers.
    Worn,
    /// A directory of more than 500 names, many of which share their place in its tables, and files with indirect and double-indirect
    /// nodes.
    Names,
}

/// The content of a device, and the number that tells it from others.
pub struct Base {
    /// The device.
    pub device: MemoryDevice,
    /// Its [digest](MemoryDevice::digest).
    pub digest: u64,
}

/// Two files in the root, two in a directory, one deeper, an empty directory, and one of every other kind.
const FEW: &str = "mkdir A; mkdir B; mkdir C; mkdir C/D; mkdir E; create foo; create bar; create A/foo; create A/bar; \
    create C/D/foo; write foo 0 6000 11; write A/foo 0 20000 12; write bar 0 200 13; write A/bar 0 3500 15; \
    write C/D/foo 0 9000 16; setxattr bar 0 30 14; setxattr A/bar 1 2000 17; symlink ln 30; mknod pipe fifo 0; link A/foo B/too; \
    setacl C 3";

/// Bytes of a file that wears a volume, and how often it is written: 120 MiB together.
const WORN_BYTES: u32 = 2 << 20;
const WORN_TIMES: u64 = 60;

/// Names in the directory of many.
const NAMES: u32 = 520;

impl Image {
    const ALL: [(Image, &'static str); 4] =
        [(Image::Empty, "empty"), (Image::Few, "few"), (Image::Worn, "worn"), (Image::Names, "names")];

    /// Its name in scripts.
    pub fn word(self) -> &'static str {
        Image::ALL.iter().find(|(image, _)| *image == self).map_or("", |(_, word)| word)
    }

    /// The one of this name.
    pub fn from_word(word: &str) -> Option<Image> {
        Image::ALL.iter().find(|(_, name)| *name == word).map(|(image, _)| *image)
    }

    /// How it is made.
    pub fn steps(self) -> Vec<Step> {
        let few = || FEW.split(';').filter_map(|line| line.trim().parse().ok());
        match self {
            Image::Empty => Vec::new(),
            Image::Few => few().collect(),
            Image::Worn => few().chain(worn()).collect(),
            Image::Names => few().chain(names()).collect(),
        }
    }

    /// A device with it, made once for every kind of volume.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn base(self, engine: &dyn Engine) -> Result<Base, String> {
        type Made = Arc<OnceLock<Result<Arc<(MemoryDevice, u64)>, String>>>;
        static MADE: OnceLock<Mutex<HashMap<(String, Image), Made>>> = OnceLock::new();
        let cell = {
            let mut made =
                MADE.get_or_init(Mutex::default).lock().map_err(|_| "making an image panicked".to_owned())?;
            made.entry((engine.name().to_owned(), self)).or_default().clone()
        };
        let made = cell.get_or_init(|| {
            let device = self.make(engine)?;
            let digest = device.digest();
            Ok(Arc::new((device, digest)))
        });
        made.clone().map(|made| Base { device: made.0.snapshot(), digest: made.1 })
    }

    fn make(self, engine: &dyn Engine) -> Result<MemoryDevice, String> {
        let device = MemoryDevice::new(engine.device_size(), 512);
        engine.format(&device)?;
        if self == Image::Empty {
            return Ok(device);
        }
        let mut session = Session::open(engine, device, None, 0)?;
        self.steps().iter().try_for_each(|step| session.run(step))?;
        session.close().map_err(|error| format!("image `{}`: {error}", self.word()))
    }
}

/// A name for the directory of many: its place in the tables is that of every other one. Some are as long as a name may be, and take 32 slots
/// of a directory block each.
pub fn name_of(number: u32) -> String {
    /// Names whose hashes agree in so many low bits share their bucket in as many levels.
    const SAME_BITS: u32 = 3;
    let candidates = (0_u32..).map(|try_number| match number % 40 {
        0 => format!("{number}-{try_number:0>240}"),
        _ => format!("n{number}-{try_number}"),
    });
    let mut same = candidates.filter(|name| hash(name.as_bytes()).trailing_zeros() >= SAME_BITS);
    // There is one among any few dozen.
    same.next().unwrap_or_default()
}

/// One file is written again and again.
fn worn() -> impl Iterator<Item = Step> {
    let again = |number: u64| [Step::Write("worn".to_owned(), 0, WORN_BYTES, 100 + number), Step::Sync];
    std::iter::once(Step::Create("worn".to_owned())).chain((0..WORN_TIMES).flat_map(again))
}

fn names() -> impl Iterator<Item = Step> {
    let sparse = [("deep", 1_100), ("deep", 2_000), ("deeper", 4_000), ("deepest", 2_100_000_u64)];
    let make = |number: u32| {
        let name = format!("many/{}", name_of(number));
        if number.is_multiple_of(3) { Step::Symlink(name, 20) } else { Step::Create(name) }
    };
    let write = |((name, page), seed): ((&str, u64), u64)| Step::Write(name.to_owned(), 4096 * page, 5000, seed);
    std::iter::once(Step::Mkdir("many".to_owned()))
        .chain((0..NAMES).map(make))
        .chain(["deep", "deeper", "deepest"].map(|name| Step::Create(name.to_owned())))
        .chain(sparse.into_iter().zip(20..).map(write))
}

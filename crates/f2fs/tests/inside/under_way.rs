//! Two fsyncs under way at once, each of an inode that is its own seal.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use basalt_device::block::Result as DeviceResult;
use basalt_device::power::{Change, Fate};
use basalt_device::{DeviceLayer, PowerCutDevice, Replay};
use parking_lot::Mutex;

use super::*;

type Work = Box<dyn FnOnce() + Send>;

/// Does something before its first flush.
struct Hooked {
    inner: PowerCutDevice,
    before_flush: Mutex<Option<Work>>,
}

impl DeviceLayer for Hooked {
    type Below = PowerCutDevice;

    fn below(&self) -> &PowerCutDevice {
        &self.inner
    }

    fn on_flush(&self) -> DeviceResult<()> {
        let work = self.before_flush.lock().take();
        work.into_iter().for_each(|work| work());
        self.inner.flush()
    }
}

/// Whether an inode that is its own seal is written: of this file.
fn is_inside_of(change: &Change, ino: InodeNumber) -> bool {
    let Change::Write { offset, data } = change else { return false };
    let blocks = (offset / BLOCK..).zip(data.chunks_exact(BLOCK as usize));
    let mut insides = blocks.filter(|(at, block)| Inside::of_block(block, Address::new(*at as u32)).is_some());
    insides.any(|(_, block)| RawInode::ref_from_bytes(block).is_ok_and(|raw| u64::from(raw.footer.ino().get()) == ino))
}

/// The second one is written before the flush of the first, which does not arrive: neither counts, and nobody says that something was lost.
#[test]
fn two_under_way_say_so() {
    let image = volume(FormatOptions::DEFAULT_FEATURES, 0);
    let inner = PowerCutDevice::new(image.snapshot());
    let device = Arc::new(Hooked { inner, before_flush: Mutex::default() });
    let options = OpenOptions { background_cleaning: false, ..OpenOptions::default() };
    let fs = Arc::new(F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap());
    let [one, two] = ["one", "two"].map(|name| create(&fs, name));
    [one, two].into_iter().for_each(|ino| _ = fs.write(ino, 0, &[1; 20 * BLOCK as usize], false).unwrap());
    fs.sync().unwrap();
    let first = create(&fs, "first");
    sync(&fs, first);
    [one, two].into_iter().for_each(|ino| write_page(&fs, ino, 3, 9));
    let (other, watched, (tell, told)) = (fs.clone(), device.clone(), channel());
    *device.before_flush.lock() = Some(Box::new(move || {
        tell.send(thread::spawn(move || other.sync_file(two, false))).unwrap();
        let start = Instant::now();
        let is_written = || watched.inner.history().changes.iter().any(|change| is_inside_of(change, two));
        while !is_written() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(2));
        }
    }));
    sync(&fs, one);
    told.recv().unwrap().join().unwrap().unwrap();
    let history = device.inner.history();
    let of = |ino| history.changes.iter().position(|change| is_inside_of(change, ino)).unwrap();
    let is_flush = |change: &Change| matches!(change, Change::Flush | Change::FlushOf(_));
    let flush = of(one) + history.changes[of(one)..].iter().position(is_flush).unwrap();
    assert!(of(one) < of(two) && of(two) < flush, "{} {} {flush}", of(one), of(two));
    let lost = &history.changes[of(one)];
    let fate = |change: &Change| if change == lost { Fate::Lost } else { Fate::Kept };
    let left = Arc::new(Replay::new(&history).cut(flush, |cached| cached.iter().map(fate).collect()));
    assert_eq!(insides(&left).len(), 1);
    let opened = open(&left, Deltas::Auto);
    assert!(opened.is_writable(), "{:?}", opened.warnings());
    assert_eq!([one, two].map(|ino| contents(&opened, ino)[3 * BLOCK as usize]), [1, 1]);
}

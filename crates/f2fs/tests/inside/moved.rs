//! What cleaning has moved since an inode vouched for it.

use super::*;

const PAGES: u64 = 200;
const RUN: u64 = 16;

/// The blocks that inodes vouched for are moved, commits of the journal free their places, and something else is written there.
#[test]
fn what_cleaning_moved_is_vouched_for_where_it_went() {
    let device = Arc::new(MemoryDevice::new(96 << 20, 512));
    let how = FormatOptions { journal_bytes: 1 << 20, overprovision_percent: Some(30.0), ..FormatOptions::default() };
    format(&*device, &FormatOptions { discard_reads_zeros: true, ..how }, &mut |_, _| ()).unwrap();
    let options = OpenOptions { pre_invalid_bytes: Some(1 << 30), cache_bytes: 1 << 20, ..OpenOptions::default() };
    let options = OpenOptions { background_cleaning: false, ..options };
    let fs = F2fs::open(device.clone(), options, Arc::new(SystemClock)).unwrap();
    let (ino, other) = (create(&fs, "file"), create(&fs, "other"));
    fs.write(ino, 0, &[1; (PAGES * BLOCK) as usize], false).unwrap();
    let dying = |value: u64| _ = fs.write(other, 0, &[value as u8; (RUN * BLOCK) as usize], false).unwrap();
    dying(1);
    fs.sync().unwrap();
    let before = fs.statistics();
    // Each page of the file among many of the other one, which die.
    for page in 0..PAGES {
        [page, page].into_iter().for_each(dying);
        write_page(&fs, ino, page, 9);
        sync(&fs, ino);
    }
    let fill = create(&fs, "fill");
    (0..100).for_each(|at| _ = fs.write(fill, at * RUN * BLOCK, &[3; (RUN * BLOCK) as usize], false).unwrap());
    fs.empty_sections(20).unwrap();
    let places = vouched_for(&device);
    let reused = || places.iter().filter(|at| first_byte(&device, **at) != 9).count();
    (0..1_000).take_while(|_| reused() <= 2).for_each(|round| dying(100 + round % 100));
    let done = fs.statistics().since(&before);
    assert!(reused() > 2 && done.written.blocks_moved > 0, "{} of {} places reused", reused(), places.len());
    assert_eq!(done.checkpoints.total(), 0);
    let again = open(&Arc::new(device.snapshot()), Deltas::Auto);
    assert!(again.is_writable(), "{:?}", again.warnings());
    let (found, expected) = (contents(&again, ino), contents(&fs, ino));
    let differs = |page: &u64| found[(page * BLOCK) as usize] != expected[(page * BLOCK) as usize];
    assert_eq!((0..PAGES).filter(differs).collect::<Vec<_>>(), []);
}

/// The first block of each run that an inode on the device vouches for, as it was then.
fn vouched_for(device: &MemoryDevice) -> Vec<u64> {
    let mut bytes = vec![0; BLOCK as usize];
    let mut first = |at: u64| {
        device.read_at(at * BLOCK, &mut bytes).unwrap();
        let said = Inside::of_block(&bytes, Address::new(at as u32))?;
        let slots = RawInode::ref_from_bytes(&bytes).ok()?.addresses(false);
        (said.pages > 0).then(|| u64::from(slots[said.first.get() as usize].get()))
    };
    insides(device).into_iter().filter_map(&mut first).collect()
}

fn first_byte(device: &MemoryDevice, block: u64) -> u8 {
    let mut bytes = vec![0; BLOCK as usize];
    device.read_at(block * BLOCK, &mut bytes).unwrap();
    bytes[0]
}

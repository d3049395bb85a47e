//! Journals of the first version of the format: a volume that an older Basalt left alive, and used since.

use basalt_f2fs::layout::crc::crc_from;
use basalt_f2fs::layout::journal::{
    ENTRIES_PER_OLD_BLOCK, FIRST_VERSION, FORMAT_VERSION, Move, OLD_BLOCK_MAGIC, RawOldMove, decode,
};
use zerocopy::IntoBytes;

use super::*;

fn write_descriptor(device: &MemoryDevice, version: u32) {
    let mut raw = RawDescriptor::new([9; 16], journal_of(device).blocks);
    raw.version.set(version);
    raw.crc.set(raw.expected_crc());
    device.write_at(u64::from(DESCRIPTOR_BLOCK) * BLOCK, raw.as_bytes()).unwrap();
}

fn version(device: &MemoryDevice) -> u32 {
    journal_of(device).version
}

/// The commits of a live journal: the header of each one's first block, and the moves.
fn commits(device: &MemoryDevice, seed: u32) -> Vec<(RawJournalHeader, Vec<Move>)> {
    let area = journal_of(device);
    let mut found: Vec<(RawJournalHeader, Vec<Move>)> = Vec::new();
    let mut block = vec![0; BLOCK as usize];
    for at in Address::all(area.first..area.first + area.blocks) {
        device.read_at(u64::from(at) * BLOCK, &mut block).unwrap();
        let Some((header, moves)) = decode(&block, seed) else { break };
        match found.last_mut() {
            Some((first, _)) if first.checkpoint_version != header.checkpoint_version => break,
            Some((first, all)) if first.commit == header.commit => all.extend(moves),
            _ => found.push((header, moves)),
        }
    }
    found
}

fn old(one: &Move) -> RawOldMove {
    RawOldMove {
        old: one.old.into(),
        new: one.new.into(),
        nid: one.nid.get().into(),
        chained: one.chained.into(),
        crc: one.crc.into(),
        ofs_in_node: one.ofs_in_node.into(),
        kind: one.kind,
        reserved: 0,
    }
}

/// Writes a live journal as the first version had it.
fn make_old(device: &MemoryDevice) {
    let seed = guard::read(device).unwrap().geometry.checksum_seed;
    let area = journal_of(device);
    let mut sequence = 0;
    for (header, moves) in commits(device, seed) {
        let raw: Vec<RawOldMove> = moves.iter().map(old).collect();
        let none: &[RawOldMove] = &[];
        let parts: Vec<_> = if raw.is_empty() { vec![none] } else { raw.chunks(ENTRIES_PER_OLD_BLOCK).collect() };
        for (index, part) in parts.iter().enumerate() {
            let mut head = header;
            head.magic.set(OLD_BLOCK_MAGIC);
            head.sequence.set(sequence);
            head.blocks_in_commit.set(parts.len() as u16);
            head.index_in_commit.set(index as u16);
            head.count.set(part.len() as u32);
            let mut block = [head.as_bytes(), part.as_bytes()].concat();
            block.resize(BLOCK as usize, 0);
            head.crc.set(crc_from(seed, &block[8..]));
            block[..size_of_val(&head)].copy_from_slice(head.as_bytes());
            device.write_at(u64::from(area.first + sequence) * BLOCK, &block).unwrap();
            sequence += 1;
        }
    }
    assert!((6..area.blocks).contains(&sequence), "{sequence} blocks");
    write_descriptor(device, FIRST_VERSION);
}

#[test]
fn a_journal_that_an_older_basalt_left_alive_is_recovered() {
    let (device, mut files) = left_alive();
    spoil_old_places(&device);
    make_old(&device);
    assert_eq!(version(&device), FIRST_VERSION);
    rescue(&device).expect(&files, "rescued");
    let fs = open(&device, OpenOptions { sections_per_commit: Some(1), ..eager() });
    files.expect(&fs, "recovered");
    // From the first commit on, no older Basalt may take what it does not know for the end of the journal.
    files.overwrite(&fs, &mut Rng::new(4), 4_000, true);
    assert!(fs.statistics().cleaning.total().journal_commits > 0);
    assert_eq!(version(&device), FORMAT_VERSION);
    fs.close().unwrap();
    files.expect(&open(&device, eager()), "closed and opened");
    expect_clean(&device, "used again");
}

#[test]
fn the_descriptor_is_renewed_before_the_first_block_of_the_new_version() {
    let device = volume(256 << 10);
    write_descriptor(&device, FIRST_VERSION);
    let recorded = Arc::new(PowerCutDevice::new(device.snapshot()));
    let fs =
        F2fs::open(recorded.clone(), OpenOptions { sections_per_commit: Some(1), ..eager() }, Arc::new(SystemClock));
    let fs = fs.unwrap();
    let mut files = Files::fill(&fs);
    files.overwrite(&fs, &mut Rng::new(4), 4_000, true);
    assert!(fs.statistics().cleaning.total().journal_commits > 0);
    let history = recorded.history();
    let area = journal_of(&device);
    let of_journal = u64::from(area.first) * BLOCK..u64::from(area.first + area.blocks) * BLOCK;
    let first = history.changes.iter().position(|change| of_journal.contains(&change.range().0));
    // Nothing arrives of what was not flushed in front of that block.
    let image = Replay::new(&history).cut(first.unwrap(), |cached| vec![Fate::Lost; cached.len()]);
    assert_eq!(version(&image), FORMAT_VERSION);
    assert!(is_guarded(&image));
}

/// Another Basalt can recover it: a repair gives nothing up.
#[test]
fn repair_leaves_a_live_journal_of_a_later_version_alone() {
    let (device, _) = left_alive();
    write_descriptor(&device, FORMAT_VERSION + 1);
    let before = device.snapshot();
    let told = |error: Error| assert!(error.to_string().contains("journal of version"), "{error}");
    let planned = plan(device.clone(), &RepairOptions::default(), &mut |_| ());
    told(planned.err().expect("a repair that gives the journal up"));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    told(
        check_recovered(device.clone(), &CheckOptions::default(), &clock, &mut |_| ())
            .expect_err("a check of the rest"),
    );
    assert_same(&before, &device);
    assert!(is_guarded(&device));
}

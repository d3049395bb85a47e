//! What FUSE itself costs: times operations on a mounted file system in memory. Run as root, optimised:
//! `cargo run --release -p basalt-fuse --example floor [THREADS]`.
#![allow(missing_docs, dead_code, reason = "the file system in memory is the tests'")]

#[path = "../tests/support/memory.rs"]
mod memory;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use basalt_fuse::{MountOptions, Session};

const FILES: u32 = 20_000;
const LARGE: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().nth(1).map(|word| word.parse::<usize>()).transpose()?;
    for (writeback_cache, skip_open) in [(true, false), (true, true), (false, false)] {
        let dir = std::env::temp_dir().join(format!("basalt-floor-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let mut options = MountOptions { writeback_cache, skip_open, ..MountOptions::new(&dir, "memory") };
        options.threads = threads.unwrap_or(options.threads);
        let session = Session::mount(Arc::new(memory::MemoryFs::new()), &options)?;
        let unmounter = session.unmounter();
        let server = std::thread::spawn(move || session.run());
        println!("writeback_cache {writeback_cache}, skip_open {skip_open}");
        let measured = measure(&dir);
        unmounter.unmount()?;
        server.join().map_err(|_| "the server panicked")??;
        fs::remove_dir(&dir)?;
        measured?;
    }
    Ok(())
}

fn measure(dir: &Path) -> std::io::Result<()> {
    let name = |index: u32| dir.join(format!("file-{index}"));
    per_operation("create + close", FILES, |index| File::create(name(index)).map(drop))?;
    per_operation("stat (cached)", FILES, |index| Ok(rustix::fs::stat(name(index)).map(|_| ())?))?;
    per_operation("open + close", FILES, |index| File::open(name(index)).map(drop))?;
    per_operation("unlink", FILES, |index| fs::remove_file(name(index)))?;
    let small = File::create(dir.join("small"))?;
    let block = [1; 4096];
    per_operation("4 KiB overwrite, random", FILES, |index| {
        small.write_all_at(&block, u64::from(index.wrapping_mul(2_654_435_761) % 4096) * 4096)
    })?;
    per_operation("4 KiB write + fsync", 2000, |index| {
        small.write_all_at(&block, u64::from(index) * 4096)?;
        small.sync_all()
    })?;
    let large = File::create_new(dir.join("large"))?;
    let piece = vec![3; 1 << 20];
    throughput("write 1 MiB + fsync at the end", || {
        (0..LARGE >> 20).try_for_each(|index| large.write_all_at(&piece, index << 20))?;
        large.sync_all()
    })?;
    // Direct, and then dropped from the page cache, so that reads are real.
    rustix::fs::fadvise(&large, 0, None, rustix::fs::Advice::DontNeed)?;
    let large = File::open(dir.join("large"))?;
    let mut buffer = vec![0; 1 << 20];
    throughput("read 1 MiB", || (0..LARGE >> 20).try_for_each(|index| large.read_exact_at(&mut buffer, index << 20)))
}

fn per_operation(what: &str, count: u32, mut operation: impl FnMut(u32) -> std::io::Result<()>) -> std::io::Result<()> {
    let start = Instant::now();
    (0..count).try_for_each(&mut operation)?;
    println!("  {what:32} {:8.2} us", start.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    Ok(())
}

fn throughput(what: &str, run: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
    let start = Instant::now();
    run()?;
    println!("  {what:32} {:8.0} MiB/s", LARGE as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64());
    Ok(())
}

//! What a program that waits for an answer is about to write.
//!
//! Before a write into its page cache the kernel asks for the file's attributes, and does not say for what. The system call in which the
//! program waits says it: its number and arguments are in `/proc`, as long as it waits.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};

/// The most parts that writev(2) takes.
const PARTS_MAX: u64 = 1024;
/// Bytes of one part's description: where it is, and how long it is.
const PART: u64 = 16;

/// What a waiting thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It looks at the file, and writes nothing.
    Look,
    /// It writes so many bytes at an offset; `None` for the end of the file.
    Write { offset: Option<u64>, length: u64 },
    /// Nobody can tell: it belongs to somebody else, or the kernel writes by itself (io_uring, AIO), or in a way of its own (splice).
    Unknown,
    /// It is not waiting: it may be anywhere in the call that it was in, or behind it.
    Running,
}

impl Call {
    /// Of a thread, by its number. This may take for ever: see `onlooker`.
    pub(super) fn of(thread: u32) -> Call {
        let line = match thread {
            0 => return Call::Unknown,
            _ => fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default(),
        };
        match line.trim() {
            "running" => Call::Running,
            line => Call::parse(thread, line).unwrap_or(Call::Unknown),
        }
    }

    /// By a line of `/proc/THREAD/syscall`: the number, and six arguments in hexadecimal digits.
    fn parse(thread: u32, line: &str) -> Option<Call> {
        let mut words = line.split_ascii_whitespace();
        let number: libc::c_long = words.next()?.parse().ok()?;
        let arguments: Vec<u64> =
            words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).take(6).collect();
        let &[file, at, count, position, ..] = &arguments[..] else { return None };
        let here = || place(thread, file);
        // An offset of -1 is the open file's. Who appends does so whatever the offset.
        let given = || here().map(|here| if position == u64::MAX { here } else { here.and(Some(position)) });
        let flags = arguments.get(5).map_or(0, |flags| *flags as libc::c_int);
        let (offset, length) = match number {
            libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx => return Some(Call::Look),
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_lseek => return Some(Call::Look),
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_preadv2 => return Some(Call::Look),
            libc::SYS_pwritev2 if flags & libc::RWF_APPEND != 0 => (None, length_of_parts(thread, at, count)?),
            libc::SYS_write => (here()?, count),
            libc::SYS_pwrite64 => (given()?, count),
            libc::SYS_writev => (here()?, length_of_parts(thread, at, count)?),
            libc::SYS_pwritev | libc::SYS_pwritev2 => (given()?, length_of_parts(thread, at, count)?),
            libc::SYS_sendfile => (here()?, position.min(left_of_source(thread, at, count))),
            _ => return None,
        };
        Some(Call::Write { offset, length })
    }
}

/// Where an open file of a thread stands; `Some(None)` for one that appends.
fn place(thread: u32, file: u64) -> Option<Option<u64>> {
    let about = fs::read_to_string(format!("/proc/{thread}/fdinfo/{file}")).ok()?;
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = libc::c_int::from_str_radix(field("flags:")?, 8).ok()?;
    let position = field("pos:")?.parse().ok()?;
    Some((flags & libc::O_APPEND == 0).then_some(position))
}

/// The most that can be read of a file that sendfile(2) copies from, by its offset's address, which is 0 for the open file's own offset.
/// Programs ask for more than there is, by megabytes.
fn left_of_source(thread: u32, file: u64, offset_at: u64) -> u64 {
    // What the kernel knows: nobody is asked, above all not this mount, whose answers wait for this one.
    let path = format!("/proc/{thread}/fd/{file}");
    let known = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE | StatxFlags::TYPE);
    // Files of zero bytes may hold something, as in /proc.
    let is_file = |about: &Statx| FileType::from_raw_mode(about.stx_mode.into()) == FileType::RegularFile;
    let Some(about) = known.ok().filter(|about| is_file(about) && about.stx_size > 0) else { return u64::MAX };
    let from = if offset_at == 0 { place(thread, file).flatten().unwrap_or(0) } else { 0 };
    about.stx_size.saturating_sub(from)
}

/// Bytes of all parts of a writev(2), whose descriptions are in the thread's memory.
fn length_of_parts(thread: u32, at: u64, count: u64) -> Option<u64> {
    let mut parts = vec![0; (count.min(PARTS_MAX) * PART) as usize];
    File::open(format!("/proc/{thread}/mem")).ok()?.read_exact_at(&mut parts, at).ok()?;
    let lengths = parts.chunks_exact(PART as usize).filter_map(|part| part.last_chunk::<8>());
    Some(lengths.fold(0, |sum: u64, length| sum.saturating_add(u64::from_ne_bytes(*length))))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;

    use super::*;

    fn line(number: libc::c_long, arguments: [u64; 4]) -> String {
        let [a, b, c, d] = arguments;
        format!("{number} 0x{a:x} 0x{b:x} 0x{c:x} 0x{d:x} 0x0 0x0 0x7ffc 0x7f00\n")
    }

    #[test]
    fn calls_say_what_they_write() {
        let me = std::process::id();
        let mut file = tempfile::tempfile().unwrap();
        file.seek(SeekFrom::Start(700)).unwrap();
        let number = file.as_raw_fd() as u64;
        let parse = |line: String| Call::parse(me, &line);
        let write = |offset, length| Some(Call::Write { offset, length });
        assert_eq!(parse(line(libc::SYS_write, [number, 0, 4096, 9])), write(Some(700), 4096));
        assert_eq!(parse(line(libc::SYS_pwrite64, [number, 0, 4096, 9])), write(Some(9), 4096));
        assert_eq!(parse(line(libc::SYS_sendfile, [number, 0, 0, 77])), write(Some(700), 77));
        let parts = [(0_u64, 5_u64), (0, 6)];
        let at = parts.as_ptr() as u64;
        assert_eq!(parse(line(libc::SYS_writev, [number, at, 2, 0])), write(Some(700), 11));
        assert_eq!(parse(line(libc::SYS_pwritev2, [number, at, 1, u64::MAX])), write(Some(700), 5));
        for call in [libc::SYS_fstat, libc::SYS_read, libc::SYS_preadv2, libc::SYS_lseek] {
            assert_eq!(parse(line(call, [number, at, 1, 0])), Some(Call::Look), "{call}");
        }
        assert_eq!(parse(line(libc::SYS_io_uring_enter, [number, 0, 0, 0])), None);
        assert_eq!((parse("running\n".to_owned()), parse(String::new())), (None, None));
    }

    #[test]
    fn no_more_is_sent_than_there_is() {
        let mut source = tempfile::tempfile().unwrap();
        source.set_len(5000).unwrap();
        source.seek(SeekFrom::Start(4000)).unwrap();
        let target = tempfile::tempfile().unwrap();
        let [to, from] = [&target, &source].map(|file| file.as_raw_fd() as u64);
        let offset_at = 0x7fff_0000;
        let empty = File::open("/proc/self/status").unwrap();
        let cases = [([to, from, 0, 8 << 20], 1000), ([to, from, offset_at, 8 << 20], 5000), ([to, from, 0, 70], 70)];
        for (arguments, length) in cases.into_iter().chain([([to, empty.as_raw_fd() as u64, 0, 9000], 9000)]) {
            let found = Call::parse(std::process::id(), &line(libc::SYS_sendfile, arguments));
            assert_eq!(found, Some(Call::Write { offset: Some(0), length }), "{arguments:?}");
        }
    }

    #[test]
    fn who_appends_writes_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::OpenOptions::new().append(true).create(true).open(directory.path().join("f")).unwrap();
        let number = file.as_raw_fd() as u64;
        for call in [libc::SYS_write, libc::SYS_pwrite64] {
            let found = Call::parse(std::process::id(), &line(call, [number, 0, 9, 0]));
            assert_eq!(found, Some(Call::Write { offset: None, length: 9 }), "{call}");
        }
        let other = tempfile::tempfile().unwrap();
        let parts = [(0_u64, 5_u64)];
        let (number, at, append) = (other.as_raw_fd(), parts.as_ptr() as u64, libc::RWF_APPEND);
        let line = format!("{} 0x{number:x} 0x{at:x} 0x1 0x0 0x0 0x{append:x} 0x7ffc 0x7f00\n", libc::SYS_pwritev2);
        assert_eq!(Call::parse(std::process::id(), &line), Some(Call::Write { offset: None, length: 5 }));
    }

    #[test]
    fn a_thread_that_runs_is_known_to() {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            scope.spawn(|| {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                drop(tell);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let thread = told.recv().unwrap();
            // It first leaves the call that woke this one.
            while Call::of(thread) != Call::Running {
                std::thread::yield_now();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn nobody_can_tell_of_threads_that_are_not_there() {
        assert_eq!((Call::of(0), Call::of(u32::MAX)), (Call::Unknown, Call::Unknown));
    }
}

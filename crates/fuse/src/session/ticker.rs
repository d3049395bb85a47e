//! Background work: calls `FileSystem::tick` when the file system wants it, and has the kernel write back when somebody wants that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use basalt_vfs::{Background, FileSystem, Time};

use super::control::{Control, Next};

/// The shortest pause between two ticks, so that a file system that always wants more leaves room for others.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest, so that one that wants nothing is still asked.
const LONGEST: Duration = Duration::from_secs(60);

/// Calls `tick`, and `write_back` when that is wanted, until [`Control::stop`].
pub(super) fn run(control: &Control, fs: &dyn FileSystem, write_back: impl Fn()) {
    let mut pause = Duration::ZERO;
    loop {
        match control.next(pause) {
            Next::Stop => return,
            Next::WriteBack(number) => {
                if catch_unwind(AssertUnwindSafe(&write_back)).is_err() {
                    tracing::error!("writing back panicked");
                }
                control.have_written(number);
            }
            Next::Tick => {
                let tick = catch_unwind(AssertUnwindSafe(|| fs.tick(now())));
                let Background { next } = tick.unwrap_or_else(|_| {
                    tracing::error!("background work panicked");
                    Background { next: LONGEST }
                });
                pause = next.clamp(SHORTEST, LONGEST);
            }
        }
    }
}

fn now() -> Time {
    // A clock before 1970 counts as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs().try_into().unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
}

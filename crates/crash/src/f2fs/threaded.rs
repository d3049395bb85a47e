//! The same volumes, opened by the engine that is compiled with a scheduler's locks.

use std::sync::Arc;

use basalt_device::BlockDevice;
use basalt_f2fs_shuttled::{Atime, Clock, F2fs, OpenOptions, Reclaim};
use basalt_vfs::{Engine as _, Time};

use super::F2fsVolume;
use crate::engine::{Opener, ThreadedFileSystem};

struct Borrowed(Box<dyn Fn() -> Time + Send + Sync>);

impl Clock for Borrowed {
    fn now(&self) -> Time {
        (self.0)()
    }
}

impl ThreadedFileSystem for F2fs {
    fn look_around(&self) {
        let _ = (self.live(), self.statistics(), self.recent_victims(), self.warnings(), self.failure());
    }
}

/// Opens volumes of this kind, as [`Engine::open`](crate::engine::Engine::open) does.
pub(super) fn opener(volume: F2fsVolume) -> Arc<Opener> {
    Arc::new(move |device: Arc<dyn BlockDevice>, clock| {
        let options = OpenOptions {
            logs: volume.logs,
            cache_bytes: volume.cache_bytes,
            discard: volume.discard,
            pre_invalid_bytes: volume.pre_invalid_bytes,
            sections_per_commit: volume.sections_per_commit,
            atime: Atime::Noatime,
            placement: volume.placement(),
            keep_free: volume.keep_free,
            reclaim: Reclaim::by_name(volume.reclaim.name()).unwrap_or_default(),
            flash_page: volume.flash_page,
            ..OpenOptions::default()
        };
        let fs = F2fs::open(device, options, Arc::new(Borrowed(clock))).map_err(|error| format!("open: {error}"))?;
        Ok(Arc::new(fs))
    })
}

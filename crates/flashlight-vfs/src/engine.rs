//! What mounts, live counters and the lab ask beside files.

use basalt_nand::NandDevice;
use basalt_vfs::{Counters, Engine, Identity, Live, SegmentStates, Usage, WrittenBlocks};

use crate::{FlashFs, Inner};

impl<D: NandDevice + Send> Inner<D> {
    fn counters(&self) -> Counters {
        let counted = self.volume.counters();
        let mut counters = Counters {
            written: WrittenBlocks {
                data_blocks: counted.data,
                node_blocks: counted.metadata,
                ..WrittenBlocks::default()
            },
            ..Counters::default()
        };
        for (name, value) in [
            ("checkpoints", counted.checkpoints),
            ("cleaning/blocks_emptied", counted.cleaned),
            ("cleaning/pages_moved", counted.moved),
            ("failed_blocks", counted.failed),
        ] {
            counters.named.set(name, value);
        }
        counters
    }
}

impl<D: NandDevice + Send> Engine for FlashFs<D> {
    fn identity(&self) -> Identity {
        let found = self.inner.lock().volume.identity();
        let label: Vec<u8> = found.label.into_iter().take_while(|&byte| byte != 0).collect();
        let digits: String = found.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        Identity { label: String::from_utf8_lossy(&label).into_owned(), uuid: parts.join("-") }
    }

    fn is_writable(&self) -> bool {
        !self.inner.lock().volume.is_stopped()
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    fn counters(&self) -> Counters {
        self.inner.lock().counters()
    }

    fn live(&self) -> Live {
        let inner = self.inner.lock();
        let (usage, geometry) = (inner.volume.usage(), inner.volume.geometry());
        let page = u64::from(geometry.page_bytes);
        let free = u64::from(inner.volume.free_blocks());
        let mut live = Live {
            block_size: geometry.page_bytes,
            counters: inner.counters(),
            usage: Usage {
                user_blocks: usage.bytes / page,
                used_blocks: usage.used / page,
                inodes: usage.inodes.into(),
            },
            segments: SegmentStates {
                free,
                dirty: u64::from(geometry.blocks).saturating_sub(free + u64::from(usage.bad_blocks)),
                ..SegmentStates::default()
            },
            failed: inner.volume.is_stopped().then(|| "the chip has failed".to_owned()),
            ..Live::default()
        };
        live.named.set("bad_blocks", u64::from(usage.bad_blocks));
        live
    }
}

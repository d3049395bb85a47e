//! What mounts, live counters and the lab ask beside files.

use basalt_nand::NandDevice;
use basalt_vfs::{Counters, Engine, Identity, Live, SegmentStates, Usage, WrittenBlocks};

use crate::{FlashFs, Inner};

/// The label of a volume; bytes that are no UTF-8 are replaced.
pub fn label_text(identity: &basalt_flashlight::Identity) -> String {
    let label: Vec<u8> = identity.label.into_iter().take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&label).into_owned()
}

/// The UUID of a volume, as people write it.
pub fn uuid_text(identity: &basalt_flashlight::Identity) -> String {
    let digits: String = identity.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

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
        Identity { label: label_text(&found), uuid: uuid_text(&found) }
    }

    fn is_writable(&self) -> bool {
        !self.read_only && !self.inner.lock().volume.is_stopped()
    }

    fn warnings(&self) -> Vec<String> {
        let recovered = "not unmounted cleanly: the last checkpoint counts, and what was fsynced since";
        if self.recovered { vec![recovered.to_owned()] } else { Vec::new() }
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
            read_only: self.read_only || inner.volume.is_stopped(),
            failed: inner.volume.is_stopped().then(|| "the chip has failed".to_owned()),
            ..Live::default()
        };
        live.named.set("bad_blocks", u64::from(usage.bad_blocks));
        live
    }
}

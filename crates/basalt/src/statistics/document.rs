//! What a mount tells about itself: one JSON document.

use basalt_vfs::{Identity, Live};
use serde::{Deserialize, Serialize};

use super::fields;

/// What every document says it is.
pub(super) const FORMAT: &str = "basalt-statistics";
/// The version of the format: raised when fields change their meaning or go. New fields leave it as it is.
pub(super) const VERSION: u32 = 1;

/// The counters and facts of a mount, all of one moment. Counters begin at zero when the volume is mounted. Blocks are of 4096
/// bytes, unless `live` has a `block_size`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// `basalt-statistics`.
    pub format: String,
    /// The version of the format, 1.
    pub version: u32,
    /// The mount.
    pub mount: MountFacts,
    /// The volume.
    pub volume: VolumeFacts,
    /// What it did and holds.
    #[serde(with = "fields")]
    pub live: Live,
    /// Blocks in use of those that users may fill, from 0 to 1.
    pub utilization: f64,
    /// All blocks written for each new data block, those that cleaning moved not counted as new; `null` before there is one.
    pub write_amplification: Option<f64>,
}

/// A mount, and the process that serves it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MountFacts {
    /// The directory it was mounted on.
    pub mount_point: String,
    /// The image or device.
    pub target: String,
    /// The device number of every file there, `major:minor`.
    pub device_number: String,
    /// The process that serves it.
    pub process: u32,
    /// How long it has been mounted, in seconds.
    pub uptime_seconds: f64,
    /// Which log each block goes to: the option `placement=`. Empty, as those below, where an older Basalt serves the mount.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub placement: String,
    /// Groups of data that were asked for: `groups=`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<u8>,
    /// What makes a page hot, where that was said: `touches=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub touches: String,
    /// Which section is cleaned while a writer waits: `victim=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub victim: String,
    /// Which section is cleaned while the volume is idle: `background_victim=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub background_victim: String,
    /// How much of what the format reserves cleaning keeps free: `keep_free=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub keep_free: String,
    /// Where logs go on when free segments run short: `reclaim=`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reclaim: String,
    /// What the device is like: `profile=`, or what the kernel says that it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// Bytes of the flash page that the device is taken to have: `flash_page=`, or what the profile says. Those of a block where nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash_page_bytes: Option<u32>,
    /// What `reclaim=partial` plans by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_by: Option<PlannedBy>,
}

/// How long the device takes, as plans have it, and how that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedBy {
    /// `class`: it is usual for such devices. `file`: it was measured before. `requests`: it was measured in use.
    pub from: String,
    /// Nanoseconds to write a block somewhere.
    pub write_1_ns: u64,
    /// Nanoseconds to write 512 neighbouring blocks.
    pub write_512_ns: u64,
}

/// The volume that is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeFacts {
    /// Label.
    pub label: String,
    /// UUID.
    pub uuid: String,
}

impl From<Identity> for VolumeFacts {
    fn from(volume: Identity) -> Self {
        VolumeFacts { label: volume.label, uuid: volume.uuid }
    }
}

impl Document {
    /// Puts a document of the current version together.
    pub fn new(mount: MountFacts, volume: VolumeFacts, live: Live) -> Document {
        let usage = &live.usage;
        let utilization =
            if usage.user_blocks == 0 { 0.0 } else { usage.used_blocks as f64 / usage.user_blocks as f64 };
        let write_amplification = live.counters.write_amplification();
        let format = FORMAT.to_owned();
        Document { format, version: VERSION, mount, volume, live, utilization, write_amplification }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// A text for the user, when it is none, or one of a version that is not known.
    pub(super) fn read(text: &[u8]) -> Result<Document, String> {
        #[derive(Deserialize)]
        struct Kind {
            format: String,
            version: u32,
        }
        let kind: Kind = serde_json::from_slice(text).map_err(|_| "its answer is no statistics".to_owned())?;
        if kind.format != FORMAT {
            return Err("its answer is no statistics".to_owned());
        }
        if kind.version != VERSION {
            let version = kind.version;
            return Err(format!("its statistics have version {version}, this program knows version {VERSION}"));
        }
        serde_json::from_slice(text).map_err(|error| format!("its answer is damaged: {error}"))
    }

    /// How long after `earlier` this was told, in seconds; `None` when they are not of one mount, or no time has gone by.
    pub fn seconds_since(&self, earlier: &Document) -> Option<f64> {
        let seconds = self.mount.uptime_seconds - earlier.mount.uptime_seconds;
        (self.is_same_mount(earlier) && seconds > 0.0).then_some(seconds)
    }

    /// Whether both are of one mount: a later one can have the same device number.
    pub fn is_same_mount(&self, earlier: &Document) -> bool {
        let (now, before) = (&self.mount, &earlier.mount);
        now.process == before.process && now.uptime_seconds >= before.uptime_seconds
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// A mount that has done something of everything.
    pub(crate) fn example() -> Document {
        let mount = MountFacts {
            mount_point: "/mnt/a \"b\"\\c".into(),
            target: "/tmp/image".into(),
            device_number: "7:3".into(),
            process: 4711,
            uptime_seconds: 3725.5,
            placement: "static".into(),
            groups: None,
            touches: String::new(),
            victim: "greedy".into(),
            background_victim: "cost-benefit".into(),
            keep_free: "adaptive".into(),
            reclaim: "slack".into(),
            profile: "sd".into(),
            flash_page_bytes: Some(16 << 10),
            planned_by: Some(PlannedBy { from: "requests".into(), write_1_ns: 3_413_000, write_512_ns: 173_000_000 }),
        };
        let volume = VolumeFacts { label: "photos\u{1b}".into(), uuid: "0000-1".into() };
        let mut live = Live::default();
        live.counters.written.data_blocks = 512;
        live.counters.written.node_blocks = 100;
        live.counters.written.metadata_blocks = 20;
        live.counters.written.journal_blocks = 8;
        live.counters.cleaning.foreground.victims = 3;
        live.counters.cleaning.foreground.blocks_read = 300;
        live.counters.cleaning.foreground.blocks_copied = 200;
        live.counters.cleaning.foreground.data_blocks_copied = 192;
        live.counters.cleaning.foreground.pre_invalid_copied = 10;
        live.counters.cleaning.foreground.journal_commits = 6;
        live.counters.cleaning.foreground.copy = Duration::from_micros(1500);
        live.counters.cleaning.background.commit = Duration::from_secs(2);
        live.counters.named = [("checkpoints/open", 0), ("checkpoints/fsync", 0), ("checkpoints/sync", 5)].into();
        live.usage.user_blocks = 1000;
        live.usage.used_blocks = 250;
        live.segments.free = 40;
        live.named = [("usage/nodes", 9), ("segments/prefree", 2), ("pre_invalid_blocks", 25)].into();
        Document::new(mount, volume, live)
    }

    #[test]
    fn documents_are_read_back() {
        let document = example();
        assert_eq!((document.utilization, document.write_amplification), (0.25, Some(2.0)));
        let text = serde_json::to_vec(&document).unwrap();
        assert_eq!(Document::read(&text), Ok(document));
    }

    #[test]
    fn other_versions_and_other_things_are_refused() {
        let mut later = example();
        later.version = 2;
        let error = Document::read(&serde_json::to_vec(&later).unwrap()).unwrap_err();
        assert!(error.contains("version 2"), "{error}");
        for text in
            ["", "{}", "hello", r#"{"format":"x","version":1}"#, r#"{"format":"basalt-statistics","version":1}"#]
        {
            assert!(Document::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    /// What a mount of F2FS told before there were other engines, with every number different.
    const RECORDED: [&str; 2] = [include_str!("golden/earlier.json"), include_str!("golden/later.json")];

    /// The recorded documents, one after the other.
    pub(crate) fn recorded() -> [Document; 2] {
        RECORDED.map(|text| Document::read(text.as_bytes()).unwrap())
    }

    #[test]
    fn documents_of_f2fs_stay_as_they_are_to_the_byte() {
        let [earlier, later] = recorded();
        assert_eq!(serde_json::to_string(&earlier).unwrap(), RECORDED[0]);
        assert_eq!(serde_json::to_string_pretty(&later).unwrap(), RECORDED[1]);
    }

    #[test]
    fn what_only_one_engine_has_comes_back_by_its_name() {
        let mut live = Live { block_size: 2048, ..Live::default() };
        live.counters.named = [("erases/wear", 7), ("checkpoints/idle", 1), ("read_disturbs", 3)].into();
        live.named = [("bad_blocks", 2), ("segments/bad", 1)].into();
        let document = Document::new(MountFacts::default(), VolumeFacts::default(), live);
        let value = serde_json::to_value(&document).unwrap();
        for (place, number) in [
            ("/live/statistics/erases/wear", 7),
            ("/live/statistics/checkpoints/idle", 1),
            ("/live/statistics/read_disturbs", 3),
            ("/live/segments/bad", 1),
            ("/live/bad_blocks", 2),
            ("/live/block_size", 2048),
        ] {
            assert_eq!(value.pointer(place), Some(&number.into()), "{place} in {value}");
        }
        assert_eq!(value.pointer("/live/usage/nodes"), None, "another engine's");
        assert_eq!(Document::read(value.to_string().as_bytes()), Ok(document));
    }

    #[test]
    fn a_name_that_is_taken_is_left_out() {
        let named = [("usage", 1), ("usage/inodes", 2), ("read_only/why", 3)].into();
        let live = Live { named, ..Live::default() };
        let document = Document::new(MountFacts::default(), VolumeFacts::default(), live);
        let read = Document::read(&serde_json::to_vec(&document).unwrap()).unwrap();
        assert_eq!(read.live, Live::default());
    }

    #[test]
    fn a_number_that_is_none_is_said_with_its_place() {
        let mut value = serde_json::to_value(example()).unwrap();
        value["live"]["usage"]["used_blocks"] = "many".into();
        let error = Document::read(value.to_string().as_bytes()).unwrap_err();
        assert!(error.contains("damaged") && error.contains("usage/used_blocks"), "{error}");
        value["live"] = 5.into();
        assert!(Document::read(value.to_string().as_bytes()).is_err());
    }

    #[test]
    fn counters_that_are_missing_are_zero_and_further_ones_have_a_name() {
        let mut value = serde_json::to_value(example()).unwrap();
        value["live"]["statistics"]["cleaning"]["foreground"].as_object_mut().unwrap().remove("victims");
        value["live"]["later"] = 5.into();
        let read = Document::read(value.to_string().as_bytes()).unwrap();
        let work = read.live.counters.cleaning.foreground;
        assert_eq!((work.victims, work.blocks_read), (0, 300));
        assert_eq!(read.live.named.get("later"), Some(5));
    }

    #[test]
    fn times_between_documents_are_of_one_mount() {
        let earlier = example();
        let mut later = earlier.clone();
        assert_eq!(later.seconds_since(&earlier), None);
        later.mount.uptime_seconds += 0.5;
        assert_eq!(later.seconds_since(&earlier), Some(0.5));
        assert_eq!(earlier.seconds_since(&later), None);
        later.mount.process += 1;
        assert_eq!(later.seconds_since(&earlier), None);
    }
}

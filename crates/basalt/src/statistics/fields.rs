//! The numbers of a document, from an engine's and back: which have which place, and in which order.

use std::time::Duration;

use basalt_vfs::Live;
use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Where [`Counters::named`](basalt_vfs::Counters::named) are; the other names have their place beside it.
const COUNTERS: &str = "statistics/";
/// Bytes of a block where a document does not say it.
const USUAL_BLOCK: u32 = 4096;

/// A field that every engine has.
enum Slot<'a> {
    Count(&'a mut u64),
    Time(&'a mut Duration),
    Flag(&'a mut bool),
    Text(&'a mut Option<String>),
}

/// Where a field is; `None`: it is a number of one engine, by its name.
type Place = Option<fn(&mut Live) -> Slot<'_>>;

macro_rules! field {
    ($path:expr, $kind:ident $($place:tt)+) => {
        ($path, Some(|live| Slot::$kind(&mut live $($place)+)))
    };
}

macro_rules! cleaning {
    ($path:literal, $cause:ident, $kind:ident, $field:ident) => {
        field!(concat!("statistics/cleaning/", $path), $kind.counters.cleaning.$cause.$field)
    };
}

/// The fields of version 1, in their order. What an engine has besides follows.
const FIELDS: &[(&str, Place)] = &[
    field!("statistics/written/data_blocks", Count.counters.written.data_blocks),
    field!("statistics/written/node_blocks", Count.counters.written.node_blocks),
    field!("statistics/written/metadata_blocks", Count.counters.written.metadata_blocks),
    ("statistics/written/checkpoints", None),
    ("statistics/written/sections_cleaned", None),
    ("statistics/written/blocks_moved", None),
    field!("statistics/written/journal_blocks", Count.counters.written.journal_blocks),
    cleaning!("foreground/victims", foreground, Count, victims),
    cleaning!("foreground/blocks_read", foreground, Count, blocks_read),
    cleaning!("foreground/blocks_copied", foreground, Count, blocks_copied),
    cleaning!("foreground/data_blocks_copied", foreground, Count, data_blocks_copied),
    cleaning!("foreground/pre_invalid_copied", foreground, Count, pre_invalid_copied),
    cleaning!("foreground/checkpoints", foreground, Count, checkpoints),
    cleaning!("foreground/journal_commits", foreground, Count, journal_commits),
    cleaning!("foreground/select", foreground, Time, select),
    cleaning!("foreground/copy", foreground, Time, copy),
    cleaning!("foreground/commit", foreground, Time, commit),
    cleaning!("background/victims", background, Count, victims),
    cleaning!("background/blocks_read", background, Count, blocks_read),
    cleaning!("background/blocks_copied", background, Count, blocks_copied),
    cleaning!("background/data_blocks_copied", background, Count, data_blocks_copied),
    cleaning!("background/pre_invalid_copied", background, Count, pre_invalid_copied),
    cleaning!("background/checkpoints", background, Count, checkpoints),
    cleaning!("background/journal_commits", background, Count, journal_commits),
    cleaning!("background/select", background, Time, select),
    cleaning!("background/copy", background, Time, copy),
    cleaning!("background/commit", background, Time, commit),
    cleaning!("resize/victims", resize, Count, victims),
    cleaning!("resize/blocks_read", resize, Count, blocks_read),
    cleaning!("resize/blocks_copied", resize, Count, blocks_copied),
    cleaning!("resize/data_blocks_copied", resize, Count, data_blocks_copied),
    cleaning!("resize/pre_invalid_copied", resize, Count, pre_invalid_copied),
    cleaning!("resize/checkpoints", resize, Count, checkpoints),
    cleaning!("resize/journal_commits", resize, Count, journal_commits),
    cleaning!("resize/select", resize, Time, select),
    cleaning!("resize/copy", resize, Time, copy),
    cleaning!("resize/commit", resize, Time, commit),
    ("statistics/checkpoints/open", None),
    ("statistics/checkpoints/fsync", None),
    ("statistics/checkpoints/sync", None),
    ("statistics/checkpoints/interval", None),
    ("statistics/checkpoints/memory", None),
    ("statistics/checkpoints/cleaning", None),
    ("statistics/checkpoints/trim", None),
    ("statistics/checkpoints/resize", None),
    ("statistics/checkpoints/close", None),
    field!("usage/user_blocks", Count.usage.user_blocks),
    field!("usage/used_blocks", Count.usage.used_blocks),
    ("usage/nodes", None),
    field!("usage/inodes", Count.usage.inodes),
    ("usage/reserved_segments", None),
    ("usage/overprovision_segments", None),
    field!("segments/free", Count.segments.free),
    field!("segments/active", Count.segments.active),
    field!("segments/dirty", Count.segments.dirty),
    field!("segments/full", Count.segments.full),
    ("segments/prefree", None),
    ("segments_per_section", None),
    field!("live_data_blocks", Count.live_data_blocks),
    field!("live_node_blocks", Count.live_node_blocks),
    field!("dirty_pages", Count.dirty_data_blocks),
    field!("dirty_nodes", Count.dirty_node_blocks),
    ("pre_invalid_blocks", None),
    field!("read_only", Flag.read_only),
    field!("read_only_reason", Text.read_only_reason),
    field!("failed", Text.failed),
];

/// Whether a name of an engine's is one of [`FIELDS`].
fn is_field(path: &str) -> bool {
    FIELDS.iter().any(|(field, _)| *field == path)
}

/// Counters of one engine alone that no part of the table and of Prometheus's text knows, by name.
pub(super) fn further_counters(live: &Live) -> impl Iterator<Item = (&str, u64)> {
    live.counters.named.iter().filter(|(name, _)| !is_field(&format!("{COUNTERS}{name}")))
}

/// Names of what is told of each log of data: the log's is what follows.
pub(super) const LOGS: &str = "logs/";

/// The logs of data that are told of, from the hottest on, and what was there before at the end.
pub(super) fn logs(live: &Live) -> Vec<&str> {
    let of_log = |name| str::strip_suffix(str::strip_prefix(name, LOGS)?, "/written_blocks");
    let mut logs: Vec<&str> = live.counters.named.iter().filter_map(|(name, _)| of_log(name)).collect();
    let last = ["cold_data", "before"];
    let rank = |log: &str| match log {
        "hot_data" => 0,
        "warm_data" => 1,
        _ => 2 + last.iter().position(|one| *one == log).map_or(0, |at| at + 1),
    };
    // Those of a placement by their number.
    logs.sort_by_key(|log| (rank(log), log.len(), *log));
    logs
}

/// Facts of one engine alone that no part of the table and of Prometheus's text knows, by name.
pub(super) fn further_facts(live: &Live) -> impl Iterator<Item = (&str, u64)> {
    live.named.iter().filter(|(name, _)| !is_field(name))
}

fn named(live: &Live, path: &str) -> Option<u64> {
    path.strip_prefix(COUNTERS).map_or_else(|| live.named.get(path), |name| live.counters.named.get(name))
}

fn set_named(live: &mut Live, path: &str, value: u64) {
    match path.strip_prefix(COUNTERS) {
        Some(name) => live.counters.named.set(name.to_owned(), value),
        None => live.named.set(path.to_owned(), value),
    }
}

/// A value, or fields in their order: serde_json's own maps sort them.
enum Tree {
    Value(Value),
    Group(Vec<(String, Tree)>),
}

impl Tree {
    /// Puts a value at its path. A name that is a group already is left out, and so is one below a value.
    fn insert(&mut self, path: &str, value: Tree) {
        let Tree::Group(fields) = self else { return };
        let (name, rest) = path.split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let at = fields.iter().position(|(found, _)| found == name);
        match (at, rest) {
            (None, None) => fields.push((name.to_owned(), value)),
            (Some(_), None) => {}
            (at, Some(rest)) => {
                let at = at.unwrap_or_else(|| {
                    fields.push((name.to_owned(), Tree::Group(Vec::new())));
                    fields.len() - 1
                });
                fields[at].1.insert(rest, value);
            }
        }
    }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tree::Value(value) => value.serialize(serializer),
            Tree::Group(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, field)| map.serialize_entry(name, field))?;
                map.end()
            }
        }
    }
}

impl Slot<'_> {
    fn tree(self) -> Tree {
        match self {
            Slot::Count(count) => Tree::Value((*count).into()),
            Slot::Flag(flag) => Tree::Value((*flag).into()),
            Slot::Text(text) => Tree::Value(text.take().into()),
            Slot::Time(time) => Tree::Group(vec![
                ("secs".to_owned(), Tree::Value(time.as_secs().into())),
                ("nanos".to_owned(), Tree::Value(time.subsec_nanos().into())),
            ]),
        }
    }

    fn read(self, value: &Value) -> Result<(), serde_json::Error> {
        match self {
            Slot::Count(count) => *count = u64::deserialize(value)?,
            Slot::Flag(flag) => *flag = bool::deserialize(value)?,
            Slot::Text(text) => *text = Option::deserialize(value)?,
            Slot::Time(time) => *time = Duration::deserialize(value)?,
        }
        Ok(())
    }
}

/// Writes what an engine told.
pub(super) fn serialize<S: Serializer>(live: &Live, serializer: S) -> Result<S::Ok, S::Error> {
    let mut tree = Tree::Group(Vec::new());
    let mut taken = live.clone();
    for (path, place) in FIELDS {
        let value = match place {
            Some(place) => Some(place(&mut taken).tree()),
            None => named(live, path).map(|value| Tree::Value(value.into())),
        };
        if let Some(value) = value {
            tree.insert(path, value);
        }
    }
    if live.block_size != USUAL_BLOCK {
        tree.insert("block_size", Tree::Value(live.block_size.into()));
    }
    further_counters(live)
        .for_each(|(name, value)| tree.insert(&format!("{COUNTERS}{name}"), Tree::Value(value.into())));
    further_facts(live).for_each(|(name, value)| tree.insert(name, Tree::Value(value.into())));
    tree.serialize(serializer)
}

/// Reads it back. Fields that are missing are zero; numbers that are not known are those of one engine.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Live, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if !value.is_object() {
        return Err(D::Error::custom("`live` is no object"));
    }
    let mut live = Live { block_size: USUAL_BLOCK, ..Live::default() };
    for (path, place) in FIELDS {
        if let (Some(place), Some(value)) = (place, value.pointer(&format!("/{path}"))) {
            place(&mut live).read(value).map_err(|error| D::Error::custom(format_args!("{path}: {error}")))?;
        }
    }
    if let Some(size) = value.get("block_size") {
        live.block_size =
            u32::deserialize(size).map_err(|error| D::Error::custom(format_args!("block_size: {error}")))?;
    }
    read_named(&value, "", &mut live);
    Ok(live)
}

fn read_named(value: &Value, path: &str, live: &mut Live) {
    let is_common = FIELDS.iter().any(|(field, place)| *field == path && place.is_some()) || path == "block_size";
    match value {
        Value::Object(fields) if !is_common => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                read_named(value, &path, live);
            }
        }
        Value::Number(number) if !is_common => {
            if let Some(number) = number.as_u64() {
                set_named(live, path, number);
            }
        }
        _ => {}
    }
}

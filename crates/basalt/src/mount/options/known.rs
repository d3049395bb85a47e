//! The table of options: names, help, and how each reads its value.

use std::time::Duration;

use basalt_f2fs::{Atime, Deltas, Reclaim};
use basalt_segments::Touches;
use basalt_segments::cleaning::KeepFree;
use basalt_segments::slack::FlashPage;

use super::super::{Profile, policies};
use super::MountChoices;
use crate::size;

/// One option.
pub(super) struct Known {
    pub name: &'static str,
    /// What its value is called, if it has one.
    pub value: Option<&'static str>,
    pub help: &'static str,
    pub apply: fn(&mut MountChoices, &str) -> Result<(), String>,
}

const fn flag(
    name: &'static str,
    help: &'static str,
    apply: fn(&mut MountChoices, &str) -> Result<(), String>,
) -> Known {
    Known { name, value: None, help, apply }
}

const fn with_value(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    apply: fn(&mut MountChoices, &str) -> Result<(), String>,
) -> Known {
    Known { name, value: Some(value), help, apply }
}

/// Runs statements on the choices; such an option cannot fail.
macro_rules! set {
    ($choices:ident => $($body:tt)*) => {
        |$choices, _| {
            $($body)*;
            Ok(())
        }
    };
}

/// Every option, in the order of the help.
pub(super) const KNOWN: &[Known] = &[
    flag("ro", "mount read-only; nothing is written to the target", set!(c => c.engine.read_only = true)),
    flag("rw", "mount writable (default)", set!(c => c.engine.read_only = false)),
    flag("rescue", "read what is left of a damaged volume; nothing is written", set!(c => c.engine.rescue = true)),
    with_value(
        "commit",
        "SECONDS",
        "longest time until a change is durable without fsync or sync (5)",
        |choices, value| {
            choices.engine.commit_interval = commit_interval(value)?;
            Ok(())
        },
    ),
    with_value("checkpoint", "SECONDS", "longest time between checkpoints (60)", |choices, value| {
        choices.engine.checkpoint_interval = interval(value)?;
        Ok(())
    }),
    with_value("cache", "SIZE", "memory for cached data and data not yet written (64M)", |choices, value| {
        choices.engine.cache_bytes = cache_size(value)?;
        Ok(())
    }),
    with_value("logs", "2|4|6", "active logs (6)", |choices, value| {
        choices.engine.logs = match value {
            "2" => 2,
            "4" => 4,
            "6" => 6,
            _ => return Err("expected 2, 4 or 6".to_owned()),
        };
        Ok(())
    }),
    with_value(
        "placement",
        "POLICY",
        "which log each block is written to (run-length, or static with logs=2)",
        |choices, value| {
            choices.placement = Some(policies::placement(value)?);
            Ok(())
        },
    ),
    with_value(
        "groups",
        "K",
        "groups of data of placement sfs, sfs-log, sfs-sepbit, dac or mdc: 1 to 8",
        |choices, value| {
            let groups = value.parse().map_err(|_| "expected a number of groups from 1 to 8".to_owned())?;
            choices.engine.groups = Some(groups);
            Ok(())
        },
    ),
    with_value(
        "touches",
        "each|once|reads",
        "what makes a page hot for placement=page-cache (each)",
        |choices, value| {
            let touches = Touches::by_name(value).ok_or_else(|| policies::expected(Touches::NAMES))?;
            choices.engine.touches = Some(touches);
            Ok(())
        },
    ),
    with_value(
        "victim",
        "POLICY",
        "which section is cleaned while a writer waits (greedy, or what placement= goes with)",
        |choices, value| {
            choices.victim = Some(policies::victim(value)?);
            Ok(())
        },
    ),
    with_value(
        "background_victim",
        "POLICY",
        "which section is cleaned while the volume is idle (cost-benefit)",
        |choices, value| {
            choices.engine.background_victim = policies::victim(value)?;
            Ok(())
        },
    ),
    with_value(
        "keep_free",
        "adaptive|reserve",
        "what cleaning keeps free of what the format reserves: all, or less where cleaning is dear (adaptive)",
        |choices, value| {
            let known = || policies::expected(&KeepFree::ALL.map(KeepFree::name));
            choices.engine.keep_free = KeepFree::by_name(value).ok_or_else(known)?;
            Ok(())
        },
    ),
    with_value(
        "reclaim",
        "clean|slack|partial",
        "where logs go on when free segments run short: in free ones that cleaning makes, in dead blocks of others, or there after copying what \
         splits them (partial on eMMC, clean elsewhere)",
        |choices, value| {
            let known = || policies::expected(&Reclaim::ALL.map(Reclaim::name));
            choices.reclaim = Some(Reclaim::by_name(value).ok_or_else(known)?);
            Ok(())
        },
    ),
    with_value(
        "profile",
        "auto|ssd|emmc|sd|hdd|FILE",
        "how long the device takes for runs of blocks, which `reclaim=partial` plans by: as the kernel says what it is, as one of these, or as \
         `basalt lab profile --write` has measured in a file, whose name has a `/` or ends in `.toml` (auto)",
        |choices, value| {
            choices.profile = if value == Profile::AUTO { None } else { Some(Profile::parse(value)?) };
            Ok(())
        },
    ),
    with_value(
        "flash_page",
        "SIZE",
        "flash page of the device: dead blocks are written again only where none of their page is needed (16K on cards and eMMC, 4K elsewhere, \
         or what the file of `profile=` says where that is larger)",
        |choices, value| {
            let page = u32::try_from(size::parse(value)?).ok().and_then(FlashPage::of_bytes);
            choices.flash_page = Some(page.ok_or("expected a power of two, at most 256K")?);
            Ok(())
        },
    ),
    flag("discard", "tell the device which blocks are free (default)", set!(c => c.engine.discard = true)),
    flag("nodiscard", "do not; use fstrim", set!(c => c.engine.discard = false)),
    with_value("background_gc", "on|off", "clean sections while the volume is idle (on)", |choices, value| {
        choices.engine.background_cleaning = match value {
            "on" => true,
            "off" => false,
            _ => return Err("expected on or off".to_owned()),
        };
        Ok(())
    }),
    flag("journal", "free cleaned sections by the cleaning journal (default)", set!(c => c.engine.journal = true)),
    flag("nojournal", "free cleaned sections by checkpoints only", set!(c => c.engine.journal = false)),
    with_value(
        "delta",
        "auto|on|off",
        "fsync tells what changed in place of writing nodes: while a journal is live, on any volume with one, never (auto)",
        |choices, value| {
            let known = || policies::expected(&Deltas::ALL.map(Deltas::name));
            choices.engine.delta = Deltas::by_name(value).ok_or_else(known)?;
            Ok(())
        },
    ),
    with_value(
        "pre_invalid",
        "SIZE",
        "take a checkpoint at SIZE of dead but needed blocks (adaptive)",
        |choices, value| {
            choices.engine.pre_invalid_bytes = Some(size::parse(value)?);
            Ok(())
        },
    ),
    with_value(
        "sections_per_commit",
        "N",
        "maximum sections freed by one commit (as many as there is room for)",
        |choices, value| {
            let sections = value.parse().ok().filter(|&sections| sections > 0);
            choices.engine.sections_per_commit = Some(sections.ok_or("expected a number, 1 or more")?);
            Ok(())
        },
    ),
    flag(
        "relatime",
        "update access times relative to modification times (default)",
        set!(c => c.engine.atime = Atime::Relatime),
    ),
    flag("noatime", "do not update access times", set!(c => c.engine.atime = Atime::Noatime)),
    flag("strictatime", "update access times at every read", set!(c => c.engine.atime = Atime::Strict)),
    flag("nodiratime", "do not update access times of directories", set!(c => c.nodiratime = true)),
    flag("allow_other", "allow access by other users (default for root)", set!(c => c.allow_other = Some(true))),
    flag("noallow_other", "deny access by other users, also by root", set!(c => c.allow_other = Some(false))),
    flag("default_permissions", "check permissions; always on", |_, _| Ok(())),
    flag("loop", "show an image as a loop device (default for root)", set!(c => c.through_loop = Some(true))),
    flag(
        "noloop",
        "mount an image without a loop device; sync(2) does not wait then",
        set!(c => c.through_loop = Some(false)),
    ),
    flag("nosuid", "ignore set-uid and set-gid bits", set!(c => c.nosuid = true)),
    flag("nodev", "ignore device nodes", set!(c => c.nodev = true)),
    flag("noexec", "do not execute programs", set!(c => c.noexec = true)),
    flag("sync", "every write waits until it is durable", set!(c => c.sync = true)),
    flag("dirsync", "every change of a directory waits until it is durable", set!(c => c.dirsync = true)),
    with_value(
        "threads",
        "N",
        "maximum number of event loops (32); as many fsyncs can share a flush",
        |choices, value| {
            let threads = value.parse::<usize>().ok().filter(|threads| (1..=64).contains(threads));
            choices.threads = Some(threads.ok_or("expected a number from 1 to 64")?);
            Ok(())
        },
    ),
    flag("wakeful", "keep processors out of deep sleep in bursts of requests (default)", set!(c => c.wakeful = true)),
    flag("nowakeful", "let processors sleep: saves power, costs time", set!(c => c.wakeful = false)),
    with_value("record", "DIR", "record every request to the target in a new directory", |choices, value| {
        choices.record = Some(value.into());
        if value.is_empty() { Err("expected the name of a directory".to_owned()) } else { Ok(()) }
    }),
    with_value("log", "LEVEL", "log level: off, error, warn, info (default), debug or trace", |choices, value| {
        choices.log = value.parse().map_err(|_| "expected off, error, warn, info, debug or trace".to_owned())?;
        Ok(())
    }),
];

/// The opposites that mount(8) writes out, and what only it and the boot scripts read.
pub(super) const IGNORED: &[&str] = &[
    "defaults",
    "suid",
    "dev",
    "exec",
    "async",
    "atime",
    "diratime",
    "norelatime",
    "nostrictatime",
    "silent",
    "loud",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "nomand",
    "iversion",
    "noiversion",
];

/// Beginnings of options that others read.
pub(super) const IGNORED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "user=", "helper=", "uhelper="];

fn interval(value: &str) -> Result<Duration, String> {
    let interval = size::seconds(value).ok().filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| "expected more than 0 and at most 86400 seconds".to_owned())
}

fn commit_interval(value: &str) -> Result<Duration, String> {
    match size::seconds(value) {
        Ok(interval) if interval.is_zero() => {
            Err("expected more than 0 seconds; `sync` makes every write wait".to_owned())
        }
        _ => interval(value),
    }
}

/// The least that any work can be done with.
const LEAST_CACHE: u64 = 4 << 20;

fn cache_size(value: &str) -> Result<usize, String> {
    match usize::try_from(size::parse(value)?) {
        Ok(bytes) if bytes as u64 >= LEAST_CACHE => Ok(bytes),
        Ok(_) => Err("expected at least 4M".to_owned()),
        Err(_) => Err("is more than this machine can address".to_owned()),
    }
}

//! The file systems that take part.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use basalt_f2fs::OpenOptions;
use basalt_flash::{DeviceKind, DeviceModel};
use basalt_segments::placement::Policy;
use basalt_segments::slack::DeviceClass;

use crate::engine::run_times;
use crate::peers::Peer;

/// What Basalt's F2FS is called; with a placement, that follows.
const BASALT: &str = "basalt";

/// A file system that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Basalt's F2FS.
    Basalt,
    /// Basalt's F2FS with a placement, and with the victim policy that goes with it.
    Placed(&'static Placed),
    /// One of Linux's.
    Peer(Peer),
}

/// Basalt's F2FS with a placement.
pub struct Placed {
    name: String,
    setting: String,
    placement: &'static Policy,
}

/// One for each placement that mounts take.
static PLACED: LazyLock<Vec<Placed>> = LazyLock::new(|| {
    let with = |placement: &'static Policy| Placed {
        name: format!("{BASALT}-{}", placement.name),
        setting: format!("defaults of basalt mkfs; basalt mount -o placement={}", placement.name),
        placement,
    };
    basalt_schemes::placements().map(with).collect()
});

impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Placed) -> bool {
        self.name == other.name
    }
}

impl Eq for Placed {}

impl System {
    /// Those that take part if nobody says otherwise.
    pub const DEFAULT: [System; 6] = [
        System::Basalt,
        System::Peer(Peer::Ext4),
        System::Peer(Peer::Xfs),
        System::Peer(Peer::Btrfs),
        System::Peer(Peer::F2fs),
        System::Peer(Peer::Nilfs2),
    ];

    /// Its name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Basalt => BASALT,
            System::Placed(placed) => &placed.name,
            System::Peer(peer) => peer.name(),
        }
    }

    /// How it is formatted and mounted, for reports.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            System::Basalt => "defaults of basalt mkfs and basalt mount",
            System::Placed(placed) => &placed.setting,
            System::Peer(peer) => peer.setting(),
        }
    }

    /// How it is opened on such a device, if it is Basalt's: as a mount does it.
    pub(super) fn options(self, device: &Arc<DeviceModel>) -> Result<OpenOptions, Peer> {
        let options = OpenOptions { times: run_times(device), ..OpenOptions::for_class(class_of(device)) };
        match self {
            System::Basalt => Ok(options),
            System::Placed(Placed { placement, .. }) => {
                Ok(OpenOptions { placement, victim: placement.victim.unwrap_or(options.victim), ..options })
            }
            System::Peer(peer) => Err(peer),
        }
    }
}

/// The class of a device, as the kernel would tell it.
fn class_of(device: &DeviceModel) -> DeviceClass {
    match device.kind {
        DeviceKind::Disk => DeviceClass::Hdd,
        DeviceKind::SdCard => DeviceClass::Sd,
        DeviceKind::Emmc => DeviceClass::Emmc,
        DeviceKind::Ssd | DeviceKind::UsbStick | DeviceKind::Other => DeviceClass::Ssd,
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        if text == BASALT {
            return Ok(System::Basalt);
        }
        if let Some(name) = text.strip_prefix(BASALT).and_then(|rest| rest.strip_prefix('-')) {
            let placed = PLACED.iter().find(|placed| placed.placement.name == name);
            let names = || PLACED.iter().map(|placed| placed.placement.name).collect::<Vec<_>>().join(", ");
            return placed
                .map(System::Placed)
                .ok_or_else(|| format!("there is no placement `{name}`; there are {}", names()));
        }
        text.parse()
            .map(System::Peer)
            .map_err(|error: String| error.replace("there are ", &format!("there are {BASALT}, {BASALT}-PLACEMENT, ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for system in System::DEFAULT.into_iter().chain(PLACED.iter().map(System::Placed)) {
            assert_eq!(system.name().parse(), Ok(system));
            let same =
                System::DEFAULT.into_iter().chain(PLACED.iter().map(System::Placed)).filter(|other| *other == system);
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn a_placement_brings_its_victim_policy_along() {
        let ssd = Arc::new(basalt_flash::preset("ssd-m").unwrap());
        let of = |name: &str| {
            let options = name.parse::<System>().unwrap().options(&ssd).unwrap();
            (options.placement.name, options.victim.name())
        };
        assert_eq!(of("basalt"), ("run-length", "greedy"));
        assert_eq!(of("basalt-static"), ("static", "greedy"));
        assert_eq!(of("basalt-page-cache"), ("page-cache", "greedy"));
        assert_eq!(of("basalt-auto"), ("auto", "auto"));
        assert_eq!(of("basalt-sfs"), ("sfs", "cost-hotness"));
        assert_eq!("ext4".parse::<System>().unwrap().options(&ssd).err(), Some(Peer::Ext4));
    }

    #[test]
    fn basalt_is_opened_as_a_mount_of_such_a_device() {
        let of = |device: &str| {
            let device = Arc::new(basalt_flash::preset(device).unwrap());
            let options = System::Basalt.options(&device).unwrap();
            (options.reclaim.name(), options.flash_page.bytes())
        };
        assert_eq!([of("emmc"), of("sd-b"), of("nvme")], [("partial", 16 << 10), ("clean", 16 << 10), ("clean", 4096)]);
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        let error = |name: &str| name.parse::<System>().unwrap_err();
        assert!(
            error("basalt-best").starts_with("there is no placement `best`; there are static, "),
            "{}",
            error("basalt-best")
        );
        assert!(error("zfs").contains("there are basalt, basalt-PLACEMENT, ext4"), "{}", error("zfs"));
        assert!(error("basalt-").contains("no placement ``"));
        assert!(error("basaltauto").contains("`basaltauto`"), "{}", error("basaltauto"));
    }
}

//! What `-o` takes: one structure with values and defaults. `known` is the table with names and help.

mod known;

use std::fmt::Write;
use std::path::PathBuf;

use basalt_f2fs::{Atime, OpenOptions, Reclaim};
use basalt_segments::VictimPolicy;
use basalt_segments::placement::Policy;
use basalt_segments::slack::FlashPage;
use tracing::level_filters::LevelFilter;

use self::known::{IGNORED, IGNORED_PREFIXES, KNOWN};
use super::{Profile, defaults, policies};

/// Everything that `-o` decides.
#[derive(Debug, Clone)]
pub struct MountChoices {
    /// For the engine.
    pub engine: OpenOptions,
    /// The placement that was asked for.
    placement: Option<&'static Policy>,
    /// Where logs go on that was asked for; by default what suits the device.
    reclaim: Option<Reclaim>,
    /// The victim policy that was asked for; by default what suits the placement.
    victim: Option<&'static dyn VictimPolicy>,
    /// What the device is like; by default what the kernel says that it is.
    pub profile: Option<Profile>,
    /// The flash page of the device; by default what its profile says.
    pub flash_page: Option<FlashPage>,
    /// Let other users in; by default what the rights of the caller suggest.
    pub allow_other: Option<bool>,
    /// Mount an image through a loop device; by default where that is possible.
    pub through_loop: Option<bool>,
    /// Ignore set-uid and set-gid.
    pub nosuid: bool,
    /// Ignore device nodes.
    pub nodev: bool,
    /// Execute nothing.
    pub noexec: bool,
    /// Never note listings.
    pub nodiratime: bool,
    /// Every write waits until it is durable.
    pub sync: bool,
    /// Every change of a directory waits until it is durable.
    pub dirsync: bool,
    /// The most event loops; by default those of `SessionOptions`.
    pub threads: Option<usize>,
    /// Keep idle processors quick to wake while many small requests come.
    pub wakeful: bool,
    /// Record every request to the target in this directory.
    pub record: Option<PathBuf>,
    /// Which messages are logged.
    pub log: LevelFilter,
}

impl Default for MountChoices {
    fn default() -> Self {
        MountChoices {
            engine: OpenOptions::default(),
            placement: None,
            reclaim: None,
            victim: None,
            profile: None,
            flash_page: None,
            allow_other: None,
            through_loop: None,
            nosuid: false,
            nodev: false,
            noexec: false,
            nodiratime: false,
            sync: false,
            dirsync: false,
            threads: None,
            wakeful: true,
            record: None,
            log: LevelFilter::INFO,
        }
    }
}

impl MountChoices {
    /// Reads a list of options separated by commas. Later ones win, of this list and of others. [`settle`](Self::settle) comes after the last.
    ///
    /// # Errors
    /// A text for the user that names the option.
    pub fn apply(&mut self, list: &str) -> Result<(), String> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    /// Fills in what options say of each other, once all of them are known.
    ///
    /// # Errors
    /// A text for the user that names those that do not go together.
    pub fn settle(&mut self) -> Result<(), String> {
        let placement = self.placement.unwrap_or_else(|| defaults::placement(self.engine.logs));
        self.engine.placement = placement;
        policies::check_groups(placement, self.engine.groups)
            .map_err(|reason| format!("mount option `groups=` {reason}"))?;
        placement.make(&self.engine.placement_options()).map_err(|reason| format!("mount option: {reason}"))?;
        self.engine.victim = self.victim.or(placement.victim).unwrap_or(OpenOptions::default().victim);
        for (name, victim) in [("victim", self.engine.victim), ("background_victim", self.engine.background_victim)] {
            policies::check(placement, victim)
                .map_err(|reason| format!("mount option `{name}={}` {reason}", victim.name()))?;
        }
        Ok(())
    }

    /// Where logs go on when free segments run short, on such a device.
    #[must_use]
    pub fn reclaim_on(&self, profile: &Profile) -> Reclaim {
        self.reclaim.unwrap_or_else(|| defaults::reclaim(profile.class))
    }

    /// How the engine opens a volume on such a device.
    #[must_use]
    pub fn engine_on(&self, profile: &Profile) -> OpenOptions {
        OpenOptions {
            reclaim: self.reclaim_on(profile),
            times: profile.times.clone(),
            learner: profile.learner.clone(),
            flash_page: self.flash_page.unwrap_or(profile.flash_page),
            ..self.engine.clone()
        }
    }

    fn apply_one(&mut self, option: &str) -> Result<(), String> {
        if IGNORED.contains(&option) || IGNORED_PREFIXES.iter().any(|prefix| option.starts_with(prefix)) {
            return self.apply_opposite(option);
        }
        if option == "remount" {
            return Err(
                "remount: options of Basalt cannot be changed while the volume is mounted; unmount it first".to_owned()
            );
        }
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            return Err(format!("unknown mount option `{option}`"));
        };
        match (known.value, value) {
            (Some(wanted), None) => Err(format!("mount option `{name}` needs a value: {name}={wanted}")),
            (None, Some(_)) => Err(format!("mount option `{name}` takes no value")),
            _ => (known.apply)(self, value.unwrap_or_default())
                .map_err(|wanted| format!("mount option `{option}`: {wanted}")),
        }
    }

    /// Opposites of what an earlier option may have set.
    fn apply_opposite(&mut self, option: &str) -> Result<(), String> {
        match option {
            "suid" => self.nosuid = false,
            "dev" => self.nodev = false,
            "exec" => self.noexec = false,
            "async" => self.sync = false,
            "atime" => self.engine.atime = Atime::Relatime,
            "diratime" => self.nodiratime = false,
            _ => {}
        }
        Ok(())
    }
}

/// The help for every option.
pub fn help() -> String {
    let mut text = String::from("Options for -o, separated by commas:\n");
    for known in KNOWN {
        let name = known.value.map_or(known.name.to_owned(), |value| format!("{}={value}", known.name));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<22} {}", known.help);
    }
    policies::add_help(&mut text);
    text.push_str("\nOptions that only mount(8) reads (defaults, nofail, _netdev, user, x-…) are ignored.");
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use basalt_f2fs::Deltas;
    use basalt_segments::cleaning::KeepFree;
    use basalt_segments::slack::DeviceClass;

    use super::*;

    fn parse(list: &str) -> Result<MountChoices, String> {
        let mut choices = MountChoices::default();
        choices.apply(list)?;
        choices.settle()?;
        Ok(choices)
    }

    #[test]
    fn what_does_not_go_together_is_known_after_the_last_option() {
        let mut choices = MountChoices::default();
        choices.apply("placement=sepbit").unwrap();
        choices.apply("logs=2").unwrap();
        assert!(choices.settle().unwrap_err().contains("logs=2"));
        choices.apply("logs=6").unwrap();
        choices.settle().unwrap();
    }

    #[test]
    fn options_are_read() {
        let choices =
            parse("rw,noatime,commit=0.5,checkpoint=30,cache=128M,logs=2,nodiscard,,log=debug,record=a/b,nojournal,pre_invalid=16M,sections_per_commit=1,keep_free=reserve,delta=on,reclaim=partial,profile=emmc,flash_page=16K").unwrap();
        assert!(!choices.engine.read_only);
        assert_eq!(choices.engine.atime, Atime::Noatime);
        assert_eq!(choices.engine.commit_interval, Duration::from_millis(500));
        assert_eq!(choices.engine.checkpoint_interval, Duration::from_secs(30));
        assert_eq!(choices.engine.cache_bytes, 128 << 20);
        assert_eq!(choices.engine.logs, 2);
        assert!(!choices.engine.discard);
        assert!(!choices.engine.journal);
        assert_eq!(choices.engine.pre_invalid_bytes, Some(16 << 20));
        assert_eq!(choices.engine.sections_per_commit, Some(1));
        assert_eq!(choices.engine.keep_free, KeepFree::Reserve);
        assert_eq!(choices.engine.delta, Deltas::On);
        assert_eq!(choices.reclaim, Some(Reclaim::Partial));
        assert_eq!(choices.profile.unwrap().times, DeviceClass::Emmc.device_times());
        assert_eq!(choices.flash_page.unwrap().bytes(), 16 << 10);
        assert_eq!(choices.log, LevelFilter::DEBUG);
        assert_eq!(choices.record, Some("a/b".into()));
    }

    #[test]
    fn policies_are_read() {
        let choices = parse("placement=mdc,groups=4,victim=timestamp,background_victim=declining-cost").unwrap();
        assert_eq!((choices.engine.placement.name, choices.engine.groups), ("mdc", Some(4)));
        assert_eq!(
            (choices.engine.victim.name(), choices.engine.background_victim.name()),
            ("timestamp", "declining-cost")
        );
        let victim = |list| parse(list).unwrap().engine.victim.name();
        assert_eq!(victim("placement=hazard"), "hazard");
        assert_eq!(victim("placement=sfs"), "cost-hotness");
        assert_eq!(victim("placement=page-cache,touches=reads"), "greedy");
        assert_eq!(victim("placement=auto"), "auto");
        assert_eq!(victim("victim=cost-benefit,placement=auto"), "cost-benefit");
        assert_eq!(victim("placement=auto,placement=static"), "greedy");
    }

    #[test]
    fn the_later_option_wins() {
        let choices = parse("ro,nosuid,noexec,nojournal,rw,suid,journal").unwrap();
        assert!(!choices.engine.read_only && choices.engine.journal && !choices.nosuid && choices.noexec);
    }

    #[test]
    fn what_others_read_is_ignored() {
        parse("defaults,nofail,_netdev,noauto,x-systemd.automount,x-foo=bar,user=me,users,comment=hello").unwrap();
    }

    #[test]
    fn wrong_options_are_named() {
        for (list, part) in [
            ("frobnicate", "`frobnicate`"),
            ("commit", "commit=SECONDS"),
            ("commit=0", "more than 0 seconds; `sync` makes"),
            ("checkpoint=0", "more than 0 and at most 86400 seconds"),
            ("commit=x", "`commit=x`"),
            ("commit=abc", "more than 0 and at most 86400 seconds"),
            ("ro=1", "`ro` takes no value"),
            ("logs=3", "2, 4 or 6"),
            ("cache=1M", "at least 4M"),
            ("journal=on", "`journal` takes no value"),
            ("pre_invalid", "pre_invalid=SIZE"),
            ("pre_invalid=x", "`pre_invalid=x`"),
            ("sections_per_commit=0", "1 or more"),
            ("keep_free=all", "adaptive or reserve"),
            ("delta=yes", "auto or on or off"),
            ("reclaim=ssr", "clean or slack or partial"),
            ("flash_page=12K", "a power of two, at most 256K"),
            ("flash_page=1M", "a power of two, at most 256K"),
            ("profile=floppy", "auto or ssd or emmc or sd or hdd, or a file"),
            ("profile=sd-l", "whose name has a `/` or ends in `.toml`"),
            ("profile=/nonexistent/card", "`profile=/nonexistent/card`: No such file"),
            (
                "placement=x",
                "static or run-length or page-cache or sfs or sfs-log or sfs-sepbit or sepbit or dac or mdc or hazard or auto",
            ),
            ("placement=oracle", "static or run-length or page-cache or sfs or"),
            ("placement=dac,logs=4", "placement `dac` does not work with logs=4; use logs=6"),
            (
                "groups=4",
                "`groups=` is for placement=sfs or sfs-log or sfs-sepbit or dac or mdc; `run-length` has groups of its own",
            ),
            ("placement=sfs,groups=9", "placement `sfs` has 1 to 8 groups, not 9"),
            ("placement=sfs,groups=many", "expected a number of groups"),
            ("placement=page-cache,logs=2", "`page-cache` needs a hot and a cold log"),
            ("placement=auto,touches=reads", "placement `auto` looks at no page cache's lists"),
            ("touches=often", "each or once or reads"),
            (
                "victim=cost-hotness",
                "`run-length` tells nothing: use placement=sfs, mdc, hazard or auto, or another policy",
            ),
            ("background_victim=auto,placement=dac", "`background_victim=auto` weighs what a placement learns"),
            ("victim=oldest", "declining-cost or hazard or auto or cost-hotness or timestamp"),
            ("victim=x", "greedy or cost-benefit"),
            ("background_victim", "background_victim=POLICY"),
            ("threads=0", "1 to 64"),
            ("record=", "`record=`"),
            ("log=loud", "`log=loud`"),
            ("background_gc=sync", "on or off"),
            ("remount,ro", "remount"),
            ("nodefault_permissions", "unknown"),
        ] {
            let error = parse(list).unwrap_err();
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn defaults_in_the_help_are_the_real_ones() {
        let engine = OpenOptions::default();
        assert_eq!(engine.commit_interval, Duration::from_secs(5));
        assert_eq!(engine.checkpoint_interval, Duration::from_secs(60));
        assert_eq!(engine.cache_bytes, 64 << 20);
        assert_eq!(engine.logs, 6);
        assert!(engine.discard);
        assert!(engine.background_cleaning);
        assert!(engine.journal);
        assert_eq!(engine.pre_invalid_bytes, None);
        assert_eq!(engine.delta, Deltas::Auto);
    }
}

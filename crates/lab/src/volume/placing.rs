//! Which log each block of a run is written to.

use basalt_schemes::Oracle;
use basalt_segments::placement::{self, ByPageCache, Moved, RunLength};
use basalt_segments::{Placement, Touches};

use super::{Around, SfsSetup};

/// Which log each block is written to.
#[derive(Debug, Clone, Copy)]
pub enum Placing {
    /// As a policy says that needs nothing but a name.
    Policy(&'static placement::Policy),
    /// As [`ByPageCache`] says, which a page cache in front of the volume tells of its lists.
    ByPageCache(Moved),
    /// As [`RunLength`] says, which is told in what runs blocks are written.
    RunLength(Moved),
    /// As [`Oracle`] says, which is told what the run will write.
    Oracle,
    /// As SFS's paper has it, with a pool of dirty blocks.
    Sfs(SfsSetup),
}

impl Default for Placing {
    fn default() -> Self {
        Placing::Policy(Default::default())
    }
}

impl Placing {
    /// The names and descriptions of all, F2FS's placement first.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        let told = [(basalt_schemes::ORACLE, "by the time of the next overwrite, which it is told")];
        basalt_schemes::placements().map(|policy| (policy.name, policy.about)).chain(told)
    }

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Placing> {
        match name {
            ByPageCache::NAME => Some(Placing::ByPageCache(Moved::default())),
            RunLength::NAME => Some(Placing::RunLength(Moved::default())),
            basalt_schemes::ORACLE => Some(Placing::Oracle),
            SFS => Some(Placing::Sfs(SfsSetup::default())),
            _ => basalt_schemes::placement_by_name(name).map(Placing::Policy),
        }
    }

    /// The same, with this rule for what cleaning copies.
    ///
    /// # Errors
    /// In words, when the placement has another rule of its own.
    pub fn with_moved(self, moved: Moved) -> Result<Placing, String> {
        match self {
            Placing::ByPageCache(_) => Ok(Placing::ByPageCache(moved)),
            Placing::RunLength(_) => Ok(Placing::RunLength(moved)),
            _ if moved == Moved::default() => Ok(self),
            _ => Err("moved=list is a rule of the placements `page-cache` and `run-length` only".into()),
        }
    }

    /// The policy for options, which the others do not need.
    pub(super) fn policy(self) -> &'static placement::Policy {
        match self {
            Placing::Policy(policy) => policy,
            Placing::ByPageCache(_) | Placing::RunLength(_) | Placing::Oracle | Placing::Sfs(_) => Default::default(),
        }
    }

    /// Whether it can be on a volume of so many logs under a load of files.
    ///
    /// # Errors
    /// The reason, in one line, when it cannot.
    pub fn check_files(self, logs: u8, touches: Touches) -> Result<(), String> {
        self.told(logs)?;
        self.check_touches(touches)?;
        match self {
            Placing::Oracle => {
                Err("placement `oracle` is told what a stream or a trace writes, not what files do".into())
            }
            Placing::Sfs(_) => {
                Err("placement `sfs` and files exclude each other: its pool is for streams and traces".into())
            }
            _ => Ok(()),
        }
    }

    fn check_touches(self, touches: Touches) -> Result<(), String> {
        if touches == Touches::default() || matches!(self, Placing::ByPageCache(_)) {
            return Ok(());
        }
        Err("touches=… is for placement `page-cache`: no other looks at the lists of a page cache".into())
    }

    /// Whether it can be on a volume of so many logs with this around it, under a stream or a trace.
    ///
    /// # Errors
    /// The reason, in one line, when it cannot.
    pub fn check(self, logs: u8, around: &Around) -> Result<(), String> {
        self.told(logs)?;
        self.check_touches(around.touches)?;
        if matches!(self, Placing::Sfs(_)) && around.page_cache_blocks.is_some() {
            return Err("placement sfs and a page cache exclude each other: its pool is one".into());
        }
        if matches!(self, Placing::ByPageCache(_)) && around.page_cache_blocks.is_none() {
            return Err("placement `page-cache` needs a page cache in front of the volume: page-cache=SIZE".into());
        }
        if around.touches == Touches::Reads {
            return Err("touches=reads: streams and traces only write here, so no page would ever be active".into());
        }
        Ok(())
    }

    /// The placement, if something in front of the volume has to tell it more. `None` for policies, and for the oracle and SFS, which
    /// [`run_around`](super::run_around) makes.
    ///
    /// # Errors
    /// In words, when it needs another number of logs.
    pub(super) fn told(self, logs: u8) -> Result<Option<Box<dyn Placement>>, String> {
        match self {
            Placing::ByPageCache(moved) => Ok(Some(Box::new(ByPageCache::new(logs, moved)?))),
            Placing::RunLength(moved) => Ok(Some(Box::new(RunLength::new(logs, moved)?))),
            Placing::Oracle if logs != 6 => Err(another_number(logs, basalt_schemes::ORACLE)),
            Placing::Sfs(_) if logs != 6 => Err(another_number(logs, SFS)),
            Placing::Oracle | Placing::Sfs(_) | Placing::Policy(_) => Ok(None),
        }
    }

    /// The oracle, which knows these writes.
    pub(super) fn oracle(future: Vec<u32>) -> Box<dyn Placement> {
        Box::new(Oracle::new(Oracle::GROUPS, future))
    }
}

/// The name of SFS: with a pool of dirty blocks here, unless that has no room.
const SFS: &str = "sfs";

fn another_number(logs: u8, name: &str) -> String {
    format!("{logs} logs: placement `{name}` needs another number")
}

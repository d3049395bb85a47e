//! Which parts of a tree a manifest records.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What to record. The default is everything that a faithful copy keeps and a second reading on any file system repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Content of regular files, as a hash.
    pub content: bool,
    /// Modification times.
    pub times: bool,
    /// Owners and groups.
    pub owners: bool,
    /// Permission bits.
    pub modes: bool,
    /// Extended attributes and ACLs.
    pub xattrs: bool,
    /// Link counts of everything but directories, and which names are the same file.
    pub links: bool,
    /// Link counts of directories, which some file systems do not keep.
    pub directory_links: bool,
    /// The entry of the top directory itself.
    pub top: bool,
    /// Flags of `chattr`; off by default, since file systems differ in which they know.
    pub flags: bool,
    /// Allocated blocks; off by default, since file systems differ.
    pub blocks: bool,
    /// Names directly in the top directory to leave out; `lost+found` by default.
    pub without: Vec<String>,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts {
            content: true,
            times: true,
            owners: true,
            modes: true,
            xattrs: true,
            links: true,
            directory_links: true,
            top: true,
            flags: false,
            blocks: false,
            without: vec!["lost+found".to_owned()],
        }
    }
}

impl Parts {
    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "content" => &mut self.content,
            "times" => &mut self.times,
            "owners" => &mut self.owners,
            "modes" => &mut self.modes,
            "xattrs" => &mut self.xattrs,
            "links" => &mut self.links,
            "directory-links" => &mut self.directory_links,
            "top" => &mut self.top,
            "flags" => &mut self.flags,
            "blocks" => &mut self.blocks,
            _ => return None,
        })
    }
}

/// Changes to the default, separated by commas: `no-times,flags,without=.snapshot`. Nothing for the default.
impl FromStr for Parts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Parts> {
        let mut parts = Parts::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            if let Some(name) = word.strip_prefix("without=") {
                parts.without.push(name.to_owned());
                continue;
            }
            let (name, value) = word.strip_prefix("no-").map_or((word, true), |name| (name, false));
            *parts.switch(name).ok_or_else(|| Error::Invalid(format!("unknown part of a manifest: {word}")))? = value;
        }
        Ok(parts)
    }
}

/// The text that gives the same parts back.
impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = self.clone();
        let mut default = Parts::default();
        let names =
            ["content", "times", "owners", "modes", "xattrs", "links", "directory-links", "top", "flags", "blocks"];
        let mut words = Vec::new();
        for name in names {
            match (own.switch(name).copied(), default.switch(name).copied()) {
                (Some(true), Some(false)) => words.push(name.to_owned()),
                (Some(false), Some(true)) => words.push(format!("no-{name}")),
                _ => {}
            }
        }
        words.extend(
            self.without.iter().filter(|name| !default.without.contains(name)).map(|name| format!("without={name}")),
        );
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn text_form_round_trips() {
        for text in ["", "no-times,flags", "no-content,no-top,blocks,without=.snapshot"] {
            assert_eq!(text.parse::<Parts>().unwrap().to_string(), text);
        }
        assert!("no-thing".parse::<Parts>().is_err());
    }
}

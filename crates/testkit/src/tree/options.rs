//! What a random tree consists of.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What [`super::build_random_tree`] builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOptions {
    /// How many names that are not directories, hard links and special files among them.
    pub files: u32,
    /// How many directories.
    pub directories: u32,
    /// The largest size of a regular file, in bytes; a sparse file may seem sixteen times larger.
    pub max_size: u64,
    /// How many additional names to put into one directory.
    pub crowded: u32,
    /// Whether there are extended attributes.
    pub xattrs: bool,
    /// Whether there are POSIX ACLs, default ones on directories among them.
    pub acls: bool,
    /// Whether there are hard links.
    pub hard_links: bool,
    /// Whether there are symbolic links.
    pub symlinks: bool,
    /// Whether there are FIFOs, sockets and (as root) device nodes.
    pub devices: bool,
    /// Whether there are files with holes and preallocated files.
    pub sparse: bool,
    /// Whether there are names of up to 255 arbitrary bytes.
    pub long_names: bool,
}

impl Default for TreeOptions {
    /// A small tree, built in well under a second, with something of everything.
    fn default() -> TreeOptions {
        TreeOptions {
            files: 200,
            directories: 20,
            max_size: 256 << 10,
            crowded: 300,
            xattrs: true,
            acls: true,
            hard_links: true,
            symlinks: true,
            devices: true,
            sparse: true,
            long_names: true,
        }
    }
}

impl TreeOptions {
    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "xattrs" => &mut self.xattrs,
            "acls" => &mut self.acls,
            "hard-links" => &mut self.hard_links,
            "symlinks" => &mut self.symlinks,
            "devices" => &mut self.devices,
            "sparse" => &mut self.sparse,
            "long-names" => &mut self.long_names,
            _ => return None,
        })
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let Some((name, value)) = word.split_once('=') else {
            let (name, value) = word.strip_prefix("no-").map_or((word, true), |name| (name, false));
            *self.switch(name)? = value;
            return Some(());
        };
        match name {
            "files" => self.files = value.parse().ok()?,
            "directories" => self.directories = value.parse().ok()?,
            "max-size" => self.max_size = value.parse().ok()?,
            "crowded" => self.crowded = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// Changes to the default, separated by commas: `files=1000,max-size=65536,no-acls`. Nothing for the default.
impl FromStr for TreeOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<TreeOptions> {
        let mut options = TreeOptions::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            options.set(word).ok_or_else(|| Error::Invalid(format!("unknown option of a tree: {word}")))?;
        }
        Ok(options)
    }
}

/// The text that gives the same options back.
impl fmt::Display for TreeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files={},directories={}", self.files, self.directories)?;
        write!(f, ",max-size={},crowded={}", self.max_size, self.crowded)?;
        let mut own = self.clone();
        for name in ["xattrs", "acls", "hard-links", "symlinks", "devices", "sparse", "long-names"] {
            let on = own.switch(name).is_some_and(|value| *value);
            write!(f, ",{}{name}", if on { "" } else { "no-" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::TreeOptions;

    #[test]
    fn text_form_round_trips() {
        let options: TreeOptions = "files=7,no-acls,max-size=99".parse().unwrap();
        assert_eq!((options.files, options.acls, options.max_size), (7, false, 99));
        assert_eq!(options.to_string().parse::<TreeOptions>().unwrap(), options);
        assert_eq!("".parse::<TreeOptions>().unwrap(), TreeOptions::default());
        assert!("files=many".parse::<TreeOptions>().is_err());
        assert!("no-fun".parse::<TreeOptions>().is_err());
    }
}

//! Replacing a file, on the host and in a volume: the new one has a temporary name in the same directory until it is whole. Then it takes
//! over the old one's name. What fails on the way leaves the old one as it was.

use std::borrow::Cow;

use basalt_vfs::{Caller, FileSystem, InodeNumber, RenameFlags};
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use super::beneath;
use super::host::{self, Place};
use super::report::Error;
use crate::volume::Reference;

/// Bytes of a name that its temporary name ends with: a name has 255 at most.
const TAIL: usize = 200;

/// The temporary name of a file that is to be `name`. It ends as that does, because a volume places a new file by its extension.
fn temporary(name: &[u8], number: u64) -> Vec<u8> {
    let tail = &name[name.len().saturating_sub(TAIL)..];
    [format!(".basalt-{number}.").as_bytes(), tail].concat()
}

/// Temporary names, one after the other: an earlier copy that was killed may have left a file under one of them.
fn candidates(name: &[u8], first: u64) -> impl Iterator<Item = Vec<u8>> {
    (first..).map(move |number| temporary(name, number))
}

/// A name in a directory of a volume, for a new file.
pub(super) struct Slot<'p, 'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) parent: &'p Reference<'a>,
    pub(super) name: &'p [u8],
    /// The file that has the name, and is no directory.
    pub(super) old: Option<InodeNumber>,
}

impl Slot<'_, '_> {
    /// The name to make the new file under. Nothing has it.
    pub(super) fn working_name(&self) -> basalt_vfs::Result<Cow<'_, [u8]>> {
        if self.old.is_none() {
            return Ok(Cow::Borrowed(self.name));
        }
        for name in candidates(self.name, 0) {
            match self.parent.lookup(&name) {
                Ok(_) => {}
                Err(basalt_vfs::Error::NotFound) => return Ok(Cow::Owned(name)),
                Err(error) => return Err(error),
            }
        }
        Err(basalt_vfs::Error::Exists)
    }

    /// Gives the new file its own name, or takes it away again if it was not `made`.
    pub(super) fn settle<T>(&self, working: &[u8], made: Result<T, Error>, path: &[u8]) -> Result<T, Error> {
        let parent = self.parent.ino();
        let settled = made.and_then(|made| {
            if self.old.is_some() {
                let renamed =
                    self.fs.rename(parent, working, parent, self.name, RenameFlags::empty(), &Caller::default());
                renamed.map_err(|error| Error::volume(path, error))?;
            }
            Ok(made)
        });
        settled.map_err(|error| {
            // Where it could not be made there is nothing. What led here says more than an error on the way back.
            let _ = self.fs.unlink(parent, working);
            if self.old.is_some() { error.keeping_old() } else { error }
        })
    }
}

/// A name in a directory of the host, for a new file.
pub(super) struct Spot<'p> {
    place: Place<'p>,
    /// By what the file that has the name is told from others.
    old: Option<(u64, u64)>,
    /// The name to make the new file under. Nothing has it.
    working: Vec<u8>,
}

impl<'p> Spot<'p> {
    /// The spot of `place`, where `old` is.
    pub(super) fn new(place: Place<'p>, old: Option<&Stat>) -> Result<Spot<'p>, Error> {
        let working = if old.is_some() { unused(&place)? } else { place.name.to_vec() };
        Ok(Spot { place, old: old.map(beneath::identity), working })
    }

    /// Where to make the new file; with the path of the final one, for messages.
    pub(super) fn working(&self) -> Place<'_> {
        Place { name: &self.working, ..self.place }
    }

    /// Whether the file that has the name is this one.
    pub(super) fn is_taken_by(&self, identity: (u64, u64)) -> bool {
        self.old == Some(identity)
    }

    /// Gives the new file its own name.
    pub(super) fn settle(&self) -> Result<(), Error> {
        if self.old.is_none() {
            return Ok(());
        }
        let directory = self.place.directory;
        let renamed = rustix::fs::renameat(directory, self.working.as_slice(), directory, self.place.name);
        renamed.map_err(|errno| self.place.error("cannot be replaced", errno))
    }

    /// Takes the new file away, if it still has the name that it was made under.
    pub(super) fn discard(&self, made: Option<(u64, u64)>) {
        let found = host::lstat(&self.working()).ok().map(|stat| beneath::identity(&stat));
        if made.is_some() && made == found {
            // What led here says more than an error on the way back.
            let _ = rustix::fs::unlinkat(self.place.directory, self.working.as_slice(), AtFlags::empty());
        }
    }

    /// Says of an error that the old file is still there, if there is one: not where only an attribute of the new one was refused.
    pub(super) fn failed(&self, error: Error) -> Error {
        let is_new = matches!(error, Error::Attribute { .. });
        if self.old.is_some() && !is_new { error.keeping_old() } else { error }
    }
}

/// A temporary name that nothing has; another process may still take it.
fn unused(place: &Place<'_>) -> Result<Vec<u8>, Error> {
    for name in candidates(place.name, std::process::id().into()) {
        match host::lstat(&Place { name: &name, ..*place }) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(name),
            Err(errno) => return Err(place.error("cannot be examined", errno)),
        }
    }
    Err(place.error("cannot be created", Errno::EXIST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_fit_and_keep_the_extension() {
        assert_eq!(temporary(b"photo.jpg", 7), b".basalt-7.photo.jpg");
        let long = [&[b'x'; 251][..], b".jpg"].concat();
        let name = temporary(&long, u64::MAX);
        assert!(name.len() <= 255 && name.ends_with(b"x.jpg"), "{}", name.len());
    }
}

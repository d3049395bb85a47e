//! Where the pages of a file are, and what is in them.

use basalt_flashlight::inspect::{self, InodePage, MAPS_PER_REGION, MetadataPage, PageKind, Run};
use basalt_flashlight::{Attributes, InodeNumber};
use basalt_nand::{NandDevice, NandError};

/// The most spare bytes of a device.
const MOST_SPARE: usize = 1024;

/// Where a page of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The file has none.
    Hole,
    /// A page of the chip, if it is what it should be.
    At(u32),
    /// What led to it is gone.
    Lost,
}

/// A file whose content is asked for.
#[derive(Debug)]
pub(super) enum Content {
    /// It is in the inode.
    Inline(Vec<u8>),
    /// Of each page; holes behind the last one.
    Pages(Vec<Place>),
}

/// The chip, and the file that was read last.
pub(super) struct Reading<D> {
    device: D,
    seed: u32,
    page: Vec<u8>,
    last: Option<(u32, Content)>,
}

impl<D: NandDevice> Reading<D> {
    pub(super) fn new(device: D, seed: u32) -> Reading<D> {
        let page = vec![0; device.geometry().page_bytes as usize];
        Reading { device, seed, page, last: None }
    }

    pub(super) fn page_bytes(&self) -> u64 {
        self.page.len() as u64
    }

    pub(super) fn pages(&self) -> u32 {
        self.device.geometry().pages()
    }

    /// The metadata page at a place of the chip; `None` if there is none that is whole.
    pub(super) fn metadata(&mut self, page: u32) -> Result<Option<MetadataPage<'_>>, NandError> {
        if page >= self.device.geometry().pages() {
            return Ok(None);
        }
        match self.device.read(page, &mut self.page, &mut []) {
            Ok(_) => Ok(MetadataPage::of(&self.page, self.seed)),
            Err(NandError::Uncorrectable { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks at the inode in a page.
    pub(super) fn inode<R>(
        &mut self,
        page: u32,
        look: impl FnOnce(InodePage<'_>) -> R,
    ) -> Result<Option<R>, NandError> {
        let found = self.metadata(page)?;
        Ok(match found.map(|found| found.kind()) {
            Some(PageKind::File(inode) | PageKind::Directory(inode)) => Some(look(inode)),
            _ => None,
        })
    }

    /// What an inode says of itself.
    pub(super) fn attributes(&mut self, page: u32) -> Result<Option<Attributes>, NandError> {
        self.inode(page, |inode| inode.attributes())
    }

    /// The content of the file whose inode is in a page.
    pub(super) fn content(&mut self, inode: u32) -> Result<&Content, NandError> {
        let found = match self.last.take() {
            Some((page, content)) if page == inode => content,
            _ => self.find_content(inode)?,
        };
        Ok(&self.last.insert((inode, found)).1)
    }

    fn find_content(&mut self, inode: u32) -> Result<Content, NandError> {
        struct Index {
            owner: InodeNumber,
            pages: u64,
            runs: Vec<Run>,
            maps: Vec<Option<u32>>,
            regions: Vec<Option<u32>>,
        }
        let bytes = self.page_bytes();
        let found = self.inode(inode, |inode| {
            if let Some(content) = inode.inline() {
                return Err(content.to_vec());
            }
            let attributes = inode.attributes();
            Ok(Index {
                owner: attributes.number,
                pages: attributes.size.div_ceil(bytes),
                runs: inode.runs().collect(),
                maps: inode.maps().collect(),
                regions: inode.regions().collect(),
            })
        })?;
        let index = match found {
            // It was read when it was found.
            None => return Err(NandError::Uncorrectable { page: inode }),
            Some(Err(content)) => return Ok(Content::Inline(content)),
            Some(Ok(index)) => index,
        };
        let (per, most) = inspect::map_shape(self.page.len() as u32);
        // Behind the last map, and behind all that a file can have, there is nothing.
        let end = index.runs.iter().map(|run| u64::from(run.offset) + u64::from(run.length)).max().unwrap_or(0);
        let end = end.max(index.maps.len() as u64 * u64::from(per)).min(index.pages).min(most as u64 * u64::from(per));
        let mut places = vec![Place::Hole; end as usize];
        for (which, map) in (0..).zip(&index.maps) {
            if let Some(page) = *map {
                self.put_map(index.owner, which, page, &mut places[..], per)?;
            }
        }
        for (which, region) in (0..).zip(&index.regions) {
            if let Some(page) = *region {
                self.put_region(index.owner, which, page, &mut places[..], per)?;
            }
        }
        index.runs.iter().for_each(|&run| put_run(&mut places, run));
        Ok(Content::Pages(places))
    }

    fn put_map(
        &mut self,
        owner: InodeNumber,
        which: u32,
        page: u32,
        places: &mut [Place],
        per: u32,
    ) -> Result<(), NandError> {
        let first = (which * per) as usize;
        let end = (first + per as usize).min(places.len());
        let Some(part) = places.get_mut(first..end) else { return Ok(()) };
        let found = self.metadata(page)?.filter(|found| found.owner() == owner);
        match found.and_then(|found| found.extent_map(which)) {
            Some(map) => {
                part.iter_mut().zip(map).for_each(|(place, page)| *place = page.map_or(Place::Hole, Place::At))
            }
            None => part.fill(Place::Lost),
        }
        Ok(())
    }

    fn put_region(
        &mut self,
        owner: InodeNumber,
        which: u32,
        page: u32,
        places: &mut [Place],
        per: u32,
    ) -> Result<(), NandError> {
        let found = self.metadata(page)?.filter(|found| found.owner() == owner);
        match found.and_then(|found| found.extent_log(which)) {
            Some(runs) => runs.for_each(|run| put_run(places, run)),
            // Any page of the region may be elsewhere than its map says.
            None => {
                let length = per * MAPS_PER_REGION as u32;
                let lost = places.iter_mut().skip((which * length) as usize).take(length as usize);
                lost.for_each(|place| *place = Place::Lost);
            }
        }
        Ok(())
    }

    /// Reads a page of a file's data; whether it is what it should be.
    pub(super) fn data(
        &mut self,
        page: u32,
        owner: InodeNumber,
        offset: u32,
        bytes: &mut [u8],
    ) -> Result<bool, NandError> {
        let geometry = self.device.geometry();
        if page >= geometry.pages() {
            return Ok(false);
        }
        let mut spare = [0; MOST_SPARE];
        let spare = &mut spare[..geometry.spare_bytes as usize];
        match self.device.read(page, bytes, spare) {
            Ok(_) => Ok(inspect::data_owner(spare) == Some((owner, offset))),
            Err(NandError::Uncorrectable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Lets pages of a file be where a run says.
fn put_run(places: &mut [Place], run: Run) {
    let part = places.iter_mut().skip(run.offset as usize).take(run.length as usize);
    for (place, at) in part.zip(0..) {
        *place = run.page.map_or(Place::Hole, |page| Place::At(page.saturating_add(at)));
    }
}

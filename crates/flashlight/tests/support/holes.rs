//! Holes of files, and where they may be.

use std::collections::BTreeSet;

use basalt_flashlight::{Bytes, FlashLight, InodeNumber};
use basalt_nand::NandDevice;
use basalt_random::Rng;

/// Where a hole is punched into a file of so many bytes: within a page, over several, of whole pages, up to the end and behind it.
pub fn hole(rng: &mut Rng, size: usize) -> (u64, u64) {
    let offset = rng.below(size as u64 + 3000);
    let offset = if rng.chance(30) { offset / 2048 * 2048 } else { offset };
    let length = match rng.below(4) {
        0 => rng.between(1, 2000),
        1 => 2048 * rng.between(1, 20),
        2 => u64::MAX,
        _ => rng.between(1, 50_000),
    };
    (offset, length)
}

/// Zeroes what a file has of a range.
pub fn zero(content: &mut [u8], offset: u64, length: u64) {
    let size = content.len() as u64;
    content[offset.min(size) as usize..offset.saturating_add(length).min(size) as usize].fill(0);
}

/// Walks through data and holes of a file with that content: holes are zeros and whole pages, the pages within `punched` are holes unless the
/// inode holds the file, and as much is stored as there is data, beside the inode and the index.
pub fn expect_holes<M: Bytes, D: NandDevice>(
    volume: &mut FlashLight<M, D>,
    number: InodeNumber,
    content: &[u8],
    punched: (u64, u64),
) -> Result<(), String> {
    let (page, size) = (u64::from(volume.geometry().page_bytes), content.len() as u64);
    let check = |so: bool, what: &str| if so { Ok(()) } else { Err(what.to_owned()) };
    let (mut at, mut pages) = (0, 0);
    let mut holes = BTreeSet::new();
    while at < size {
        let data = volume.next_data(number, at).map_err(|error| error.to_string())?;
        let start = data.unwrap_or(size);
        check(start >= at && start <= size && (start == size || start % page == 0), "data begins elsewhere")?;
        check(content[at as usize..start as usize].iter().all(|&byte| byte == 0), "a hole has data")?;
        holes.extend(at / page..start.div_ceil(page));
        if data.is_none() {
            break;
        }
        at = volume.next_hole(number, start).map_err(|error| error.to_string())?.ok_or("no hole at the end")?;
        check(at > start && at <= size && (at == size || at % page == 0), "a hole begins elsewhere")?;
        pages += (at - start).div_ceil(page);
    }
    for behind in [size, size + 1, u64::MAX] {
        check(volume.next_data(number, behind) == Ok(None) && volume.next_hole(number, behind) == Ok(None), "behind")?;
    }
    let stored = volume.attributes(number).map_err(|error| error.to_string())?.stored;
    if stored == page {
        // The inode holds the file, or it is one hole.
        return check(size < page || pages == 0, "nothing is stored");
    }
    let end =
        if punched.0.saturating_add(punched.1) >= size { size.div_ceil(page) } else { (punched.0 + punched.1) / page };
    check((punched.0.div_ceil(page)..end).all(|page| holes.contains(&page)), "what was punched is no hole")?;
    // A map for each 500 pages or so, the extent log of a region for 16 of them.
    let index = size.div_ceil(page).div_ceil(500) * 17 / 16 + 1;
    let least = (1 + pages) * page;
    check((least..=least + index * page).contains(&stored), &format!("{pages} pages, but {stored} bytes are stored"))
}

//! Looking at everything there is on a volume.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use basalt_vfs::{Attributes, DirectoryEntry, Error, FileKind, FileSystem, InodeNumber, Seek};

use crate::meta::Meta;
use crate::tree::{Id, Node, PAGE, Page, ROOT, Tree};

/// Largest file that is looked at: no script makes larger ones.
const SIZE_MAX: u64 = 1 << 34;

/// The inodes of a tree by their numbers.
type ByNumber<'a> = HashMap<InodeNumber, &'a Node>;

/// The whole tree below the root. Pages equal to those of `known` are shared with it.
pub fn find_tree(fs: &dyn FileSystem, known: Option<&Tree>) -> Result<Tree, String> {
    let known: ByNumber<'_> =
        known.map(|tree| tree.iter().map(|(_, node)| (node.ino, &**node)).collect()).unwrap_or_default();
    let root = fs.root();
    let mut tree = Tree::new(root);
    let mut ids = HashMap::from([(root, ROOT)]);
    let mut links: HashMap<InodeNumber, u32> = HashMap::new();
    let found = find_node(fs, root, known.get(&root).copied())?;
    if let Some(node) = tree.change(ROOT) {
        *node = found;
    }
    let mut open = vec![(ROOT, root)];
    while let Some((id, ino)) = open.pop() {
        for (name, kind, entry) in list(fs, ino)? {
            let attributes = fs
                .lookup(ino, name.as_bytes())
                .map_err(|error| format!("`{name}` in directory {ino} is listed, but: {error}"))?;
            fs.forget(attributes.ino, 1);
            if attributes.ino != entry || attributes.kind != kind {
                return Err(format!(
                    "`{name}` in directory {ino} is listed as {kind:?} {entry}, but is {attributes:?}"
                ));
            }
            *links.entry(entry).or_default() += 1;
            let child = match ids.get(&entry) {
                Some(_) if kind == FileKind::Directory => {
                    return Err(format!("directory {entry} has a second name `{name}` in directory {ino}"));
                }
                Some(child) => *child,
                None => {
                    let child = tree.adopt(find_node(fs, entry, known.get(&entry).copied())?);
                    ids.insert(entry, child);
                    if kind == FileKind::Directory {
                        open.push((child, entry));
                    }
                    child
                }
            };
            tree.name(id, &name, child);
        }
    }
    check_links(fs, &tree, &links)?;
    Ok(tree)
}

/// Everything but its place in the tree: attributes, content, target, extended attributes.
pub fn find_node(fs: &dyn FileSystem, ino: InodeNumber, known: Option<&Node>) -> Result<Node, String> {
    let failed = |what: &'static str| move |error: Error| format!("{what} of inode {ino}: {error}");
    let attributes = fs.attributes(ino).map_err(failed("attributes"))?;
    let Attributes { kind, size, .. } = attributes;
    let mut node = Node::new(ino, kind, Meta::of(&attributes));
    match kind {
        FileKind::Regular => {
            if size > SIZE_MAX {
                return Err(format!("inode {ino} has {size} bytes"));
            }
            node.size = size;
            node.pages = find_pages(fs, ino, size, known).map_err(failed("content"))?;
            expect_blocks(&attributes, node.pages.len() as u64)?;
        }
        FileKind::Symlink => node.target = fs.read_link(ino).map_err(failed("target"))?,
        _ => {}
    }
    node.xattrs = find_xattrs(fs, ino)?;
    Ok(node)
}

/// A file takes at least the blocks of its content; the first may be in its inode.
fn expect_blocks(attributes: &Attributes, pages: u64) -> Result<(), String> {
    /// Sectors, in which blocks are counted, of a page.
    const SECTORS: u64 = PAGE / 512;
    let least = if attributes.size > PAGE { pages * SECTORS } else { pages };
    if attributes.sectors < least {
        return Err(format!(
            "inode {} says {} sectors, and has content in {pages} pages",
            attributes.ino, attributes.sectors
        ));
    }
    Ok(())
}

/// All extended attributes of an inode.
pub fn find_xattrs(fs: &dyn FileSystem, ino: InodeNumber) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let names = fs.list_xattrs(ino).map_err(|error| format!("attribute names of inode {ino}: {error}"))?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let printable = String::from_utf8_lossy(name).into_owned();
        let value = fs.get_xattr(ino, name);
        value.map(|value| (printable.clone(), value)).map_err(|error| format!("{printable} of inode {ino}: {error}"))
    };
    names.map(value).collect()
}

fn find_pages(
    fs: &dyn FileSystem,
    ino: InodeNumber,
    size: u64,
    known: Option<&Node>,
) -> Result<BTreeMap<u64, Page>, Error> {
    /// Pages in one read.
    const STEP: u64 = 64;
    let mut pages = BTreeMap::new();
    let mut buffer = vec![0; (STEP * PAGE) as usize];
    let mut at = 0;
    while at < size {
        let start = match fs.seek(ino, at, Seek::Data) {
            Ok(start) => start / PAGE * PAGE,
            Err(Error::NoData) => break,
            Err(error) => return Err(error),
        };
        let end = fs.seek(ino, start.max(at), Seek::Hole)?.min(start + STEP * PAGE).min(size);
        let window = &mut buffer[..(end - start) as usize];
        let got = fs.read(ino, start, window)?;
        if got != window.len() {
            return Err(Error::Corrupted(format!("{got} bytes read at {start}, expected {}", window.len())));
        }
        for (index, bytes) in (start / PAGE..).zip(window.chunks(PAGE as usize)) {
            if let Some(page) = keep(bytes, known.and_then(|node| node.pages.get(&index))) {
                pages.insert(index, page);
            }
        }
        at = end.next_multiple_of(PAGE);
    }
    Ok(pages)
}

/// The page to keep for these bytes; `None` if they are all zero.
fn keep(bytes: &[u8], known: Option<&Page>) -> Option<Page> {
    if let Some(known) = known
        && known[..bytes.len()] == *bytes
        && known[bytes.len()..].iter().all(|byte| *byte == 0)
    {
        return Some(known.clone());
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut page = [0; PAGE as usize];
    page[..bytes.len()].copy_from_slice(bytes);
    Some(Arc::new(page))
}

/// Names, kinds and numbers in a directory, `.` and `..` left out.
fn list(fs: &dyn FileSystem, ino: InodeNumber) -> Result<Vec<(String, FileKind, InodeNumber)>, String> {
    let mut entries = Vec::new();
    let mut add = |entry: DirectoryEntry<'_>| {
        entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.kind, entry.ino));
        true
    };
    fs.read_directory(ino, 0, &mut add).map_err(|error| format!("list of directory {ino}: {error}"))?;
    entries.retain(|(name, ..)| name != "." && name != "..");
    Ok(entries)
}

/// Link counts are those of the names found; a directory has one for each directory in it, too.
fn check_links(fs: &dyn FileSystem, tree: &Tree, links: &HashMap<InodeNumber, u32>) -> Result<(), String> {
    for (id, node) in tree.iter() {
        let is_directory = |child: &Id| tree.get(*child).is_some_and(|child| child.kind == FileKind::Directory);
        let expected = match node.kind {
            FileKind::Directory => 2 + node.entries.values().filter(|child| is_directory(child)).count() as u32,
            _ => links.get(&node.ino).copied().unwrap_or_default(),
        };
        let found = fs.attributes(node.ino).map_err(|error| format!("attributes of inode {}: {error}", node.ino))?;
        if found.links != expected {
            return Err(format!("inode {} ({id}) has {} links, {expected} expected", node.ino, found.links));
        }
    }
    Ok(())
}

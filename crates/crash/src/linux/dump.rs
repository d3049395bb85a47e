//! Trees as a file: what the machine hands out. Lines of text, an empty line, and then the pages.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use basalt_vfs::{FileKind, Time};

use crate::meta::{Meta, Times};
use crate::script::Words;
use crate::tree::{Id, Node, PAGE, Page, ROOT, Tree};

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

/// Writes trees to a file. Pages that are the same stand there once.
///
/// # Errors
/// When it cannot be written.
pub fn save(trees: &[Tree], path: &Path) -> io::Result<()> {
    let mut text = String::new();
    let mut pages: HashMap<Page, usize> = HashMap::new();
    for tree in trees {
        text.push_str("tree\n");
        tree.iter().for_each(|(id, node)| describe(id, node, &mut pages, &mut text));
    }
    let mut ordered: Vec<(Page, usize)> = pages.into_iter().collect();
    ordered.sort_unstable_by_key(|(_, number)| *number);
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    ordered.iter().try_for_each(|(page, _)| file.write_all(&page[..]))?;
    file.flush()
}

/// The lines of an inode.
fn describe(id: Id, node: &Node, pages: &mut HashMap<Page, usize>, text: &mut String) {
    let kind = KINDS.iter().position(|kind| *kind == node.kind).unwrap_or_default();
    let Meta { permissions, uid, gid, rdev, flags, times, .. } = node.meta;
    let birth = times.birth.map_or((0, 0, 0), |birth| (1, birth.seconds, birth.nanoseconds));
    let mut line = format!("inode {id} {} {kind} {permissions} {uid} {gid} {rdev} {flags} {}", node.ino, node.size);
    // Writing to a string does not fail.
    for time in [times.access, times.modify, times.change] {
        let _ = write!(line, " {} {}", time.seconds, time.nanoseconds);
    }
    let _ = writeln!(text, "{line} {} {} {}", birth.0, birth.1, birth.2);
    let _ = writeln!(text, "target 0{}", hex(&node.target));
    for (name, value) in &node.xattrs {
        let _ = writeln!(text, "xattr {name} 0{}", hex(value));
    }
    for (name, child) in &node.entries {
        let _ = writeln!(text, "entry {child} {name}");
    }
    for (index, page) in &node.pages {
        let next = pages.len();
        let number = pages.entry(page.clone()).or_insert(next);
        let _ = writeln!(text, "page {index} {number}");
    }
}

/// Reads what [`save`] wrote.
///
/// # Errors
/// When it is no such file.
pub fn load(bytes: &[u8]) -> Result<Vec<Tree>, String> {
    let end = bytes.windows(2).position(|two| two == b"\n\n").ok_or("a dump without an end")?;
    let text = str::from_utf8(&bytes[..end]).map_err(|error| error.to_string())?;
    let pages = bytes[end + 2..].chunks_exact(PAGE as usize).map(|page| page.try_into().map(Arc::new));
    let pages: Vec<Page> = pages.collect::<Result<_, _>>().map_err(|_| "a page cut short")?;
    let trees = text.split("tree\n").skip(1);
    trees.map(|lines| one_tree(lines, &pages)).collect()
}

fn one_tree(lines: &str, pages: &[Page]) -> Result<Tree, String> {
    let mut tree = Tree::new(0);
    let mut names = Vec::new();
    let mut at = ROOT;
    for line in lines.lines() {
        let mut words = Words::new(line);
        let kind = words.word("what")?;
        if kind == "inode" {
            at = words.number("id")?;
            tree.insert(at, inode(&mut words)?);
            continue;
        }
        let node = tree.change(at).ok_or("a dump that begins in the middle")?;
        match kind {
            "target" => node.target = unhex(words.word("target")?)?,
            "xattr" => {
                let name = words.word("name")?.to_owned();
                node.xattrs.insert(name, unhex(words.word("value")?)?);
            }
            "entry" => names.push((at, words.number("inode")?, words.word("name")?)),
            "page" => {
                let (index, number): (u64, usize) = (words.number("index")?, words.number("page")?);
                let page = pages.get(number).ok_or("a dump without its pages")?;
                node.pages.insert(index, page.clone());
            }
            _ => return Err(format!("`{line}` in a dump")),
        }
    }
    for (directory, id, name) in names {
        tree.name(directory, name, id);
    }
    Ok(tree)
}

fn inode(words: &mut Words<'_>) -> Result<Node, String> {
    fn next<T: FromStr>(words: &mut Words<'_>) -> Result<T, String> {
        words.number("a field")
    }
    let ino = next(words)?;
    let kind = *KINDS.get(next::<usize>(words)?).ok_or("a kind that is not known")?;
    let (permissions, uid, gid) = (next(words)?, next(words)?, next(words)?);
    let (rdev, flags, size) = (next(words)?, next(words)?, next(words)?);
    let time = |words: &mut Words<'_>| Ok::<_, String>(Time { seconds: next(words)?, nanoseconds: next(words)? });
    let (access, modify, change) = (time(words)?, time(words)?, time(words)?);
    let has_birth = next::<u8>(words)? == 1;
    let birth = Some(time(words)?).filter(|_| has_birth);
    let times = Times { access, modify, change, birth };
    let meta = Meta { permissions, uid, gid, rdev, flags, times, ..Meta::default() };
    Ok(Node { size, ..Node::new(ino, kind, meta) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The bytes behind the first digit, which stands there so that no word is empty.
fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.get(1..).unwrap_or_default().as_bytes();
    let byte = |pair: &[u8]| {
        let pair = str::from_utf8(pair).map_err(|error| error.to_string())?;
        u8::from_str_radix(pair, 16).map_err(|error| error.to_string())
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::same::expect_same;
    use crate::script::Step;

    #[test]
    fn dumps_are_read_back() {
        let mut tree = Tree::new(3);
        for (number, line) in
            (4..).zip(["mkdir d", "create d/a", "write d/a 5000 9000 1", "symlink s 9", "setxattr s 0 3 1"])
        {
            tree.apply(&line.parse::<Step>().unwrap(), number).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        save(&[Tree::new(3), tree.clone()], file.path()).unwrap();
        let loaded = load(&std::fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(loaded.len(), 2);
        expect_same(&tree, &loaded[1]).unwrap();
        assert!(load(b"tree\npage 1 0\n\n").is_err());
    }
}

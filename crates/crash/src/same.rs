//! Whether a volume holds exactly what was done to it.

use crate::tree::{Id, Node, PAGE, ROOT, Tree};

/// Holds what is found on a volume against what should be there, to the byte. The error names the first difference.
pub fn expect_same(expected: &Tree, found: &Tree) -> Result<(), String> {
    let mut open: Vec<(Id, Id, String)> = vec![(ROOT, ROOT, String::new())];
    while let Some((id, found_id, path)) = open.pop() {
        let (Some(node), Some(there)) = (expected.get(id), found.get(found_id)) else {
            return Err(format!("`{path}` leads nowhere"));
        };
        if let Some(name) = there.entries.keys().find(|name| !node.entries.contains_key(*name)) {
            return Err(format!("`{path}/{name}` is there, but was not made"));
        }
        if let Some(difference) = node_difference(node, there) {
            return Err(format!("`{path}`: {difference}"));
        }
        for (name, child) in &node.entries {
            let found_child = there.entries.get(name).ok_or_else(|| format!("`{path}/{name}` is missing"))?;
            open.push((*child, *found_child, format!("{path}/{name}")));
        }
    }
    Ok(())
}

/// The first difference between two inodes, names aside.
fn node_difference(node: &Node, there: &Node) -> Option<String> {
    if (node.ino, node.kind) != (there.ino, there.kind) {
        return Some(format!("{:?} {}, expected {:?} {}", there.kind, there.ino, node.kind, node.ino));
    }
    if node.size != there.size {
        return Some(format!("{} bytes, expected {}", there.size, node.size));
    }
    if node.target != there.target {
        return Some("another target".to_owned());
    }
    let difference = node.meta.difference(&there.meta).or_else(|| node.meta.times.difference(&there.meta.times));
    if difference.is_some() {
        return difference;
    }
    if node.xattrs != there.xattrs {
        return Some("other extended attributes".to_owned());
    }
    let mut pages: Vec<u64> = node.pages.keys().chain(there.pages.keys()).copied().collect();
    pages.retain(|page| page * PAGE < node.size);
    pages.into_iter().find(|page| !crate::oracle::same_page(node, there, *page)).map(|page| {
        let has = |node: &Node| if node.pages.contains_key(&page) { "data" } else { "zeros" };
        format!("page {page} holds other {}, expected {}", has(there), has(node))
    })
}

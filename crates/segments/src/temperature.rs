//! Which pages a page cache would have on its active list: those that are in use again and again.
//!
//! Source: D. H. Kang and Y. I. Eom, "Dynamic Hot-Cold Separation Scheme on the Log-structured File System for CE Devices", section III:
//! a page on the active list when its block is allocated is hot, any other is cold.

use std::hash::Hash;

use crate::{List, Lists};

/// What touches a page.
///
/// The paper's kernel is Linux 4.4. Since Linux 4.7 ("only do access activations on reads") a write touches no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Touches {
    /// Each write and each read: before Linux 4.7.
    #[default]
    Each,
    /// As `Each`, but those of one page that follow each other are one: who appends small records touches each page of them once.
    Once,
    /// Reads only: since Linux 4.7. A write brings a page onto the inactive list, and activates none.
    Reads,
}

impl Touches {
    /// All, the default first.
    pub const ALL: [Touches; 3] = [Touches::Each, Touches::Once, Touches::Reads];

    /// The names of all, in the order of [`ALL`](Self::ALL).
    pub const NAMES: &[&str] = &["each", "once", "reads"];

    /// The name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Touches::Each => "each",
            Touches::Once => "once",
            Touches::Reads => "reads",
        }
    }

    /// The one of this name; `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Touches> {
        Self::ALL.into_iter().zip(Self::NAMES).find(|(_, known)| **known == name).map(|(touches, _)| touches)
    }
}

/// The lists of a page cache without its bytes, so that they also know of what passes the cache by.
///
/// A new page is inactive, and touched once by what brought it. Touched once more it is active. The rest is as in [`Lists`]. Writing a page back
/// and moving its block touch nothing.
#[derive(Debug)]
pub struct PageTemperatures<K> {
    lists: Lists<K, ()>,
    most: usize,
    touches: Touches,
    /// The page of the last write or read.
    last: Option<K>,
}

impl<K: Copy + Eq + Hash> PageTemperatures<K> {
    /// Lists of at most `most` pages together, one at least.
    #[must_use]
    pub fn new(most: usize, touches: Touches) -> PageTemperatures<K> {
        PageTemperatures { lists: Lists::new(), most: most.max(1), touches, last: None }
    }

    /// Somebody writes to a page.
    pub fn note_write(&mut self, page: K) {
        self.note(page, self.touches != Touches::Reads);
    }

    /// Somebody reads of a page.
    pub fn note_read(&mut self, page: K) {
        self.note(page, true);
    }

    fn note(&mut self, page: K, is_touch: bool) {
        let is_again = self.last.replace(page) == Some(page);
        let is_touch = is_touch && !(is_again && self.touches == Touches::Once);
        if !self.lists.contains(page) {
            while self.lists.len() >= self.most {
                let Some(last) = self.lists.last() else { break };
                self.lists.replace(last);
            }
            if is_touch {
                self.lists.insert(page, ());
            } else {
                self.lists.insert_inactive(page, ());
            }
        }
        if is_touch {
            self.lists.touch(page);
        }
    }

    /// The page is gone: its file was truncated or removed.
    pub fn forget(&mut self, page: K) {
        self.lists.forget(page);
        self.last = self.last.filter(|last| *last != page);
    }

    /// As [`forget`](Self::forget) of each page of which this is true, by looking at all.
    pub fn forget_where(&mut self, is_gone: impl Fn(&K) -> bool) {
        self.lists.forget_where(&is_gone);
        self.last = self.last.filter(|last| !is_gone(last));
    }

    /// Pages of both lists, and those of which it is remembered that they left them, in any order.
    pub fn all_known(&self) -> impl Iterator<Item = &K> {
        self.lists.all_known()
    }

    /// Pages of both lists, and those of which it is remembered that they left them.
    #[must_use]
    pub fn pages_known(&self) -> usize {
        self.lists.len() + self.lists.remembered()
    }

    /// The list that a page is on; `None` if it is on none.
    #[must_use]
    pub fn list(&self, page: K) -> Option<List> {
        self.lists.list(page)
    }

    /// Pages of a list.
    #[must_use]
    pub fn len_of(&self, list: List) -> usize {
        self.lists.len_of(list)
    }
}

#[cfg(test)]
mod tests {
    use super::List::{Active, Inactive};
    use super::*;

    /// Writes (`w`) and reads (`r`) of pages, `-` where a page goes, and the lists of the pages 0 to 3 then: `a`ctive, `i`nactive, `.`.
    fn after(most: usize, touches: Touches, steps: &str) -> String {
        let mut pages = PageTemperatures::new(most, touches);
        for step in steps.split_whitespace() {
            let page: u32 = step[1..].parse().unwrap();
            match &step[..1] {
                "w" => pages.note_write(page),
                "r" => pages.note_read(page),
                _ => pages.forget(page),
            }
        }
        assert!(pages.len_of(Active) + pages.len_of(Inactive) <= most);
        (0..4).map(|page| pages.list(page).map_or('.', |list| if list == Active { 'a' } else { 'i' })).collect()
    }

    #[test]
    fn the_second_touch_makes_a_page_active() {
        // Steps, then the lists where each access is a touch, those in a row are one, and only reads are.
        let table = [
            ("w0", ["i...", "i...", "i..."]),
            ("w0 w0", ["a...", "i...", "i..."]),
            ("w0 w1 w0", ["ai..", "ai..", "ii.."]),
            ("w0 w1 w0 w1 w0", ["aa..", "aa..", "ii.."]),
            // A read is the first touch of a page that was written; the next activates it.
            ("w0 w1 r0", ["ai..", "ai..", "ii.."]),
            ("w0 w1 r0 r1 r0", ["aa..", "aa..", "ai.."]),
            ("r0 r0", ["a...", "i...", "a..."]),
            ("r0 w1 r0", ["ai..", "ai..", "ai.."]),
            // Records of a log that straddle pages: two writes each, one right after the other.
            ("w0 w1 w1 w2 w2 w3", ["iaai", "iiii", "iiii"]),
            // An active page stays active.
            ("w0 r1 w0 w1 w1 w0 r0", ["aa..", "aa..", "ii.."]),
        ];
        for (steps, expected) in table {
            for (touches, expected) in Touches::ALL.into_iter().zip(expected) {
                assert_eq!(after(10, touches, steps), expected, "{steps}, {touches:?}");
            }
        }
    }

    #[test]
    fn the_longer_active_list_gives_back_its_tail_and_the_last_inactive_page_goes() {
        // 0, 1 and 2 are active, in this order. Page 4 wants room: 0 goes back to the inactive list, behind 3, which leaves.
        let full = "r0 r1 r2 r3 r0 r1 r2";
        assert_eq!(after(4, Touches::Each, full), "aaai");
        assert_eq!(after(4, Touches::Each, &format!("{full} r4")), "iaa.");
        // It came back unreferenced: one touch is not enough, two are.
        assert_eq!(after(4, Touches::Each, &format!("{full} r4 r0")), "iaa.");
        assert_eq!(after(4, Touches::Each, &format!("{full} r4 r0 r4 r0")), "aaa.");
    }

    #[test]
    fn a_page_that_comes_back_soon_is_active() {
        // Two are active when 2 leaves, and nothing else left since: at most as many as the active list has.
        let left = "r0 r1 r2 r3 r0 r1 r4";
        assert_eq!(after(4, Touches::Each, left), "aa.i");
        assert_eq!(after(4, Touches::Each, &format!("{left} r2")), "aaa.");
        // With 3, 4 and 5 gone as well it is too late: 2 was replaced four steps ago.
        assert_eq!(after(4, Touches::Each, &format!("{left} r5 r6 r7 r2")), "aai.");
        // Where writes are no touches, none activates.
        assert_eq!(after(4, Touches::Reads, &format!("{left} w2")), "aai.");
        assert_eq!(after(4, Touches::Each, &format!("{left} w2")), "aaa.");
    }

    #[test]
    fn what_is_gone_leaves_nothing_behind() {
        assert_eq!(after(4, Touches::Each, "w0 w0 -0"), "....");
        assert_eq!(after(4, Touches::Each, "w0 w0 -0 w0"), "i...");
        // That it was touched last is forgotten too: what has its number now is another page.
        assert_eq!(after(4, Touches::Once, "w0 -0 w0 w1 w0"), "ai..");
        // Replaced, then removed: the new page of that number does not come back, it is new.
        assert_eq!(after(4, Touches::Each, "r0 r1 r2 r3 r0 r1 r4 -2 r2"), "aai.");
    }

    /// As page by page, where many are gone at once.
    #[test]
    fn what_is_gone_at_once_leaves_nothing_behind() {
        let mut pages = PageTemperatures::new(4, Touches::Once);
        pages.note_write(0);
        pages.forget_where(|page| *page == 0);
        assert_eq!((pages.list(0), pages.pages_known()), (None, 0));
        [0, 1, 0].into_iter().for_each(|page| pages.note_write(page));
        assert_eq!([0, 1].map(|page| pages.list(page)), [Some(Active), Some(Inactive)]);
        let mut pages = PageTemperatures::new(4, Touches::Each);
        [0, 1, 2, 3, 0, 1, 4].into_iter().for_each(|page| pages.note_read(page));
        assert_eq!((pages.list(2), pages.pages_known()), (None, 5), "the last one was replaced, and is remembered");
        pages.forget_where(|page| *page == 2);
        assert_eq!(pages.pages_known(), 4);
        pages.note_read(2);
        assert_eq!([0, 1, 2].map(|page| pages.list(page)), [Some(Active), Some(Active), Some(Inactive)]);
    }

    #[test]
    fn names_are_of_the_rules() {
        for (touches, name) in Touches::ALL.into_iter().zip(Touches::NAMES) {
            assert_eq!((Touches::by_name(name), touches.name()), (Some(touches), *name));
        }
        assert_eq!((Touches::by_name("writes"), Touches::default()), (None, Touches::Each));
    }
}

//! The active and the inactive list, on which Linux decides which page of memory a new one replaces.
//!
//! A page comes onto the inactive list. Touched there a second time it moves to the active one. The page to be replaced is the last of
//! the inactive list; where the active list is the longer one, its last page goes back first. A page that is wanted again soon after it
//! was replaced, with no more replaced or activated since than the active list has, is active at once: it would have stayed on a longer list.
//!
//! Source: `mm/swap.c` (`folio_mark_accessed`), `mm/vmscan.c` and `mm/workingset.c` of Linux 6, for pages of files that nobody maps.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Which list a page is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Touched at least twice.
    Active,
    /// Touched once, or not for long.
    Inactive,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    list: List,
    /// When it came to the head of its list.
    since: u64,
    /// Touched once since it came onto its list.
    is_referenced: bool,
}

/// Pages by key, on two lists.
#[derive(Debug)]
pub(super) struct Lists<K, V> {
    pages: FxHashMap<K, Entry<V>>,
    /// The keys of each list, by when they came to its head: the first is the tail.
    active: BTreeMap<u64, K>,
    inactive: BTreeMap<u64, K>,
    /// Counts what comes to a head.
    clock: u64,
    /// Pages replaced and activated so far.
    age: u64,
    /// Which pages were replaced last, and the age then: as many as there are pages at most.
    shadows: FxHashMap<K, u64>,
    order: VecDeque<(K, u64)>,
}

impl<K: Copy + Eq + Hash, V> Lists<K, V> {
    /// No page.
    pub fn new() -> Lists<K, V> {
        Lists {
            pages: FxHashMap::default(),
            active: BTreeMap::new(),
            inactive: BTreeMap::new(),
            clock: 0,
            age: 0,
            shadows: FxHashMap::default(),
            order: VecDeque::new(),
        }
    }

    /// Pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages of a list.
    pub fn len_of(&self, list: List) -> usize {
        self.keys(list).len()
    }

    /// The list of a page; `None` where there is no such page.
    pub fn list_of(&self, key: K) -> Option<List> {
        self.pages.get(&key).map(|page| page.list)
    }

    /// A page, which does not touch it.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.pages.get_mut(&key).map(|page| &mut page.value)
    }

    /// Somebody used the page.
    pub fn touch(&mut self, key: K) {
        let Some(page) = self.pages.get_mut(&key) else { return };
        if page.list == List::Active || !page.is_referenced {
            page.is_referenced = true;
            return;
        }
        self.move_to(key, List::Active);
        self.age += 1;
    }

    /// A page that was not there.
    pub fn insert(&mut self, key: K, value: V) {
        let soon = self.shadows.remove(&key).is_some_and(|at| self.age - at <= self.active.len() as u64);
        let list = if soon { List::Active } else { List::Inactive };
        self.age += u64::from(soon);
        self.remove(key);
        self.clock += 1;
        let since = self.clock;
        self.keys_mut(list).insert(since, key);
        self.pages.insert(key, Entry { value, list, since, is_referenced: false });
    }

    /// The page that the next new one replaces; `None` where there is none.
    pub fn last(&mut self) -> Option<K> {
        while self.inactive.len() < self.active.len() {
            let (_, &key) = self.active.first_key_value()?;
            self.move_to(key, List::Inactive);
        }
        self.inactive.first_key_value().map(|(_, &key)| key)
    }

    /// Takes a page out because another one needs the room.
    pub fn replace(&mut self, key: K) -> Option<V> {
        let value = self.remove(key)?;
        self.shadows.insert(key, self.age);
        self.order.push_back((key, self.age));
        self.age += 1;
        while self.order.len() > self.pages.len().max(1) {
            let Some((old, at)) = self.order.pop_front() else { break };
            if self.shadows.get(&old) == Some(&at) {
                self.shadows.remove(&old);
            }
        }
        Some(value)
    }

    /// Takes a page out because what it held is gone.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let page = self.pages.remove(&key)?;
        self.keys_mut(page.list).remove(&page.since);
        Some(page.value)
    }

    fn move_to(&mut self, key: K, list: List) {
        self.clock += 1;
        let clock = self.clock;
        let Some(page) = self.pages.get_mut(&key) else { return };
        let (from, since) = (page.list, page.since);
        (page.list, page.since, page.is_referenced) = (list, clock, false);
        self.keys_mut(from).remove(&since);
        self.keys_mut(list).insert(clock, key);
    }

    fn keys(&self, list: List) -> &BTreeMap<u64, K> {
        match list {
            List::Active => &self.active,
            List::Inactive => &self.inactive,
        }
    }

    fn keys_mut(&mut self, list: List) -> &mut BTreeMap<u64, K> {
        match list {
            List::Active => &mut self.active,
            List::Inactive => &mut self.inactive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(count: u32) -> Lists<u32, ()> {
        let mut lists = Lists::new();
        (0..count).for_each(|key| lists.insert(key, ()));
        lists
    }

    fn replace(lists: &mut Lists<u32, ()>) -> u32 {
        let last = lists.last().unwrap();
        lists.replace(last);
        last
    }

    #[test]
    fn the_second_touch_activates() {
        let mut lists = lists(3);
        lists.touch(0);
        assert_eq!(lists.list_of(0), Some(List::Inactive));
        lists.touch(0);
        assert_eq!(lists.list_of(0), Some(List::Active));
        lists.touch(1);
        // Touched once is no reason to stay.
        assert_eq!([replace(&mut lists), replace(&mut lists)], [1, 2]);
        assert_eq!((lists.list_of(0), lists.list_of(1)), (Some(List::Active), None));
    }

    #[test]
    fn the_active_list_gives_back_what_it_has_more() {
        let mut lists = lists(4);
        for key in [2, 0, 1] {
            lists.touch(key);
            lists.touch(key);
        }
        assert_eq!((lists.len_of(List::Active), lists.len_of(List::Inactive)), (3, 1));
        // 2 came first to the active list: it goes behind 3, which is replaced before.
        assert_eq!(replace(&mut lists), 3);
        assert_eq!(lists.list_of(2), Some(List::Inactive));
        assert_eq!(replace(&mut lists), 2);
    }

    #[test]
    fn what_is_wanted_again_soon_is_active_at_once() {
        let mut lists = lists(6);
        for key in [0, 1] {
            lists.touch(key);
            lists.touch(key);
        }
        assert_eq!([replace(&mut lists), replace(&mut lists), replace(&mut lists)], [2, 3, 4]);
        // Two are active, and three were replaced since the first, it included.
        lists.insert(2, ());
        lists.insert(3, ());
        assert_eq!([3, 2].map(|key| lists.list_of(key)), [Some(List::Active), Some(List::Inactive)]);
    }

    #[test]
    fn what_is_removed_leaves_no_trace() {
        let mut lists = lists(3);
        assert_eq!(lists.remove(1), Some(()));
        assert_eq!(lists.remove(1), None);
        assert_eq!([replace(&mut lists), replace(&mut lists)], [0, 2]);
        assert_eq!((lists.last(), lists.len()), (None, 0));
    }

    #[test]
    fn memory_of_replaced_pages_is_bounded() {
        let mut lists = lists(10);
        for key in 10..10_000 {
            replace(&mut lists);
            lists.insert(key, ());
        }
        assert!(lists.order.len() <= 10 && lists.shadows.len() <= 10);
    }
}

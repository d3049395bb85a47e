//! The active and the inactive list, on which Linux decides which page of memory a new one replaces.
//!
//! A page comes onto the inactive list. Touched there a second time it moves to the active one. The page to be replaced is the last of
//! the inactive list; where the active list is the longer one, its last page goes back first. A page that is wanted again soon after it
//! was replaced, with no more replaced or activated since than the active list has, is active at once: it would have stayed on a longer list.
//!
//! A page's value is its bytes, or nothing: then only which pages there would be is kept, as [`PageTemperatures`](crate::PageTemperatures) does.
//!
//! Source: `mm/swap.c` (`folio_mark_accessed`), `mm/vmscan.c` and `mm/workingset.c` of Linux 6, for pages of files that nobody maps.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Which list a page is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Touched at least twice.
    Active,
    /// Touched once, or not for long.
    Inactive,
}

/// No page: the end of a list.
const NONE: u32 = u32::MAX;

/// A page and its neighbours.
#[derive(Debug)]
struct Page<K, V> {
    key: K,
    value: V,
    list: List,
    /// Touched once since it came onto its list.
    is_referenced: bool,
    /// The page that came to the head of the list right after it, and the one right before it.
    newer: u32,
    older: u32,
}

/// The ends of a list: pages come to the head and go at the tail.
#[derive(Debug)]
struct Ends {
    head: u32,
    tail: u32,
    length: usize,
}

impl Ends {
    const EMPTY: Ends = Ends { head: NONE, tail: NONE, length: 0 };
}

/// What is known of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Where its page is in `pages`.
    Page(u32),
    /// Its page was replaced, at this age: the lowest bits of it.
    Replaced(u32),
}

/// Pages by key, on two lists.
#[derive(Debug)]
pub struct Lists<K, V> {
    /// Pages, and as many of those that were replaced last.
    known: FxHashMap<K, Known>,
    /// Pages in any order, and places for more.
    pages: Vec<Page<K, V>>,
    /// The places without a page.
    unused: Vec<u32>,
    active: Ends,
    inactive: Ends,
    /// Pages replaced and activated so far.
    age: u32,
    /// Which pages were replaced last, and the age then: as many as there are pages at most.
    order: VecDeque<(K, u32)>,
}

impl<K: Copy + Eq + Hash, V: Default> Default for Lists<K, V> {
    fn default() -> Self {
        Lists::new()
    }
}

impl<K: Copy + Eq + Hash, V: Default> Lists<K, V> {
    /// No page.
    #[must_use]
    pub fn new() -> Lists<K, V> {
        Lists {
            known: FxHashMap::default(),
            pages: Vec::new(),
            unused: Vec::new(),
            active: Ends::EMPTY,
            inactive: Ends::EMPTY,
            age: 0,
            order: VecDeque::new(),
        }
    }

    /// Pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.active.length + self.inactive.length
    }

    /// Whether there is no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages of a list.
    #[must_use]
    pub fn len_of(&self, list: List) -> usize {
        match list {
            List::Active => self.active.length,
            List::Inactive => self.inactive.length,
        }
    }

    /// Whether there is such a page.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.place(key).is_some()
    }

    fn place(&self, key: K) -> Option<u32> {
        self.known.get(&key).and_then(|known| match known {
            Known::Page(place) => Some(*place),
            Known::Replaced(_) => None,
        })
    }

    /// The list that a page is on; `None` if there is no such page. Does not touch it.
    #[must_use]
    pub fn list(&self, key: K) -> Option<List> {
        self.place(key).map(|place| self.pages[place as usize].list)
    }

    /// A page, which does not touch it.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let place = self.place(key)?;
        Some(&mut self.pages[place as usize].value)
    }

    /// Somebody uses the page.
    pub fn touch(&mut self, key: K) -> Option<&V> {
        let place = self.place(key)?;
        let page = &mut self.pages[place as usize];
        if page.list == List::Active || !page.is_referenced {
            page.is_referenced = true;
        } else {
            self.unlink(place);
            self.link(place, List::Active);
            self.age = self.age.wrapping_add(1);
        }
        Some(&self.pages[place as usize].value)
    }

    /// A page that was not there. If it was replaced a short time ago, it is active.
    pub fn insert(&mut self, key: K, value: V) {
        let place = self.put(key, value);
        let list = match self.known.insert(key, Known::Page(place)) {
            Some(Known::Replaced(at)) if self.age.wrapping_sub(at) as usize <= self.active.length => {
                self.age = self.age.wrapping_add(1);
                List::Active
            }
            before => {
                self.drop_page(before);
                List::Inactive
            }
        };
        self.link(place, list);
    }

    /// A page that was not there, and is inactive whenever it was replaced.
    pub fn insert_inactive(&mut self, key: K, value: V) {
        let place = self.put(key, value);
        let before = self.known.insert(key, Known::Page(place));
        self.drop_page(before);
        self.link(place, List::Inactive);
    }

    /// A place for a page, on no list.
    fn put(&mut self, key: K, value: V) -> u32 {
        let page = Page { key, value, list: List::Inactive, is_referenced: false, newer: NONE, older: NONE };
        match self.unused.pop() {
            Some(place) => {
                self.pages[place as usize] = page;
                place
            }
            None => {
                self.pages.push(page);
                // No memory holds more.
                self.pages.len() as u32 - 1
            }
        }
    }

    /// Takes out the page that a key had.
    fn drop_page(&mut self, known: Option<Known>) {
        if let Some(Known::Page(place)) = known {
            self.take_out(place);
        }
    }

    /// The page that the next new one replaces; `None` where there is none.
    pub fn last(&mut self) -> Option<K> {
        while self.inactive.length < self.active.length {
            let place = self.active.tail;
            self.unlink(place);
            self.link(place, List::Inactive);
        }
        self.pages.get(self.inactive.tail as usize).map(|page| page.key)
    }

    /// Takes a page out because another one needs the room.
    pub fn replace(&mut self, key: K) -> Option<V> {
        let known = self.known.get_mut(&key)?;
        let Known::Page(place) = *known else { return None };
        *known = Known::Replaced(self.age);
        let value = self.take_out(place);
        self.order.push_back((key, self.age));
        self.age = self.age.wrapping_add(1);
        while self.order.len() > self.len().max(1) {
            let Some((old, at)) = self.order.pop_front() else { break };
            if let Entry::Occupied(known) = self.known.entry(old)
                && *known.get() == Known::Replaced(at)
            {
                known.remove();
            }
        }
        Some(value)
    }

    /// Takes a page out because what it held is gone.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let Entry::Occupied(known) = self.known.entry(key) else { return None };
        let Known::Page(place) = *known.get() else { return None };
        known.remove();
        Some(self.take_out(place))
    }

    /// As [`remove`](Self::remove), and forgets that it was ever replaced: who uses the key next is another page.
    pub fn forget(&mut self, key: K) -> Option<V> {
        match self.known.remove(&key)? {
            Known::Page(place) => Some(self.take_out(place)),
            Known::Replaced(_) => None,
        }
    }

    /// As [`forget`](Self::forget) of each page of which this is true.
    pub fn forget_where(&mut self, is_gone: impl Fn(&K) -> bool) {
        let mut gone = Vec::new();
        self.known.retain(|key, known| {
            let stays = !is_gone(key);
            gone.extend(Some(*known).filter(|_| !stays));
            stays
        });
        gone.into_iter().for_each(|known| self.drop_page(Some(known)));
    }

    /// All pages, and those of which it is remembered that they were replaced.
    pub fn all_known(&self) -> impl Iterator<Item = &K> {
        self.known.keys()
    }

    /// Pages of which it is remembered that they were replaced.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.known.len() - self.len()
    }

    /// Takes out the page at a place, which is unused then.
    fn take_out(&mut self, place: u32) -> V {
        self.unlink(place);
        self.unused.push(place);
        std::mem::take(&mut self.pages[place as usize].value)
    }

    /// Puts a page that is on no list at the head of this one.
    fn link(&mut self, place: u32, list: List) {
        let ends = match list {
            List::Active => &mut self.active,
            List::Inactive => &mut self.inactive,
        };
        let older = std::mem::replace(&mut ends.head, place);
        ends.length += 1;
        if older == NONE {
            ends.tail = place;
        } else {
            self.pages[older as usize].newer = place;
        }
        let page = &mut self.pages[place as usize];
        (page.list, page.is_referenced, page.newer, page.older) = (list, false, NONE, older);
    }

    /// Takes a page off its list.
    fn unlink(&mut self, place: u32) {
        let Page { list, newer, older, .. } = self.pages[place as usize];
        let ends = match list {
            List::Active => &mut self.active,
            List::Inactive => &mut self.inactive,
        };
        ends.length -= 1;
        if newer == NONE {
            ends.head = older;
        } else {
            self.pages[newer as usize].older = older;
        }
        if older == NONE {
            ends.tail = newer;
        } else {
            self.pages[older as usize].newer = newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of<V: Default>(lists: &Lists<u32, V>, key: u32) -> Option<List> {
        lists.list(key)
    }

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
        assert_eq!(list_of(&lists, 0), Some(List::Inactive));
        lists.touch(0);
        assert_eq!(list_of(&lists, 0), Some(List::Active));
        lists.touch(1);
        // Touched once is no reason to stay.
        assert_eq!([replace(&mut lists), replace(&mut lists)], [1, 2]);
        assert_eq!((list_of(&lists, 0), list_of(&lists, 1)), (Some(List::Active), None));
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
        assert_eq!(list_of(&lists, 2), Some(List::Inactive));
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
        assert_eq!([3, 2].map(|key| list_of(&lists, key)), [Some(List::Active), Some(List::Inactive)]);
    }

    #[test]
    fn agrees_with_a_model_of_two_queues() {
        // Of each queue the first is the tail.
        let (mut lists, mut active, mut inactive) = (Lists::new(), Vec::new(), Vec::new());
        let mut referenced = [false; 40];
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) as u32 % 40;
            let at = |queue: &[u32]| queue.iter().position(|other| *other == key);
            match (random >> 60, at(&active), at(&inactive)) {
                (0..8, Some(_), _) => assert!(lists.touch(key).is_some()),
                (0..8, _, Some(at)) => {
                    assert!(lists.touch(key).is_some());
                    if std::mem::replace(&mut referenced[key as usize], true) {
                        active.push(inactive.remove(at));
                    }
                }
                (8..10, Some(at), _) => assert_eq!(lists.remove(active.remove(at)), Some(key)),
                (8..10, _, Some(at)) => assert_eq!(lists.remove(inactive.remove(at)), Some(key)),
                (_, None, None) => {
                    lists.insert(key, key);
                    referenced[key as usize] = false;
                    let is_active = list_of(&lists, key) == Some(List::Active);
                    if is_active { active.push(key) } else { inactive.push(key) }
                }
                _ => {
                    while inactive.len() < active.len() {
                        referenced[active[0] as usize] = false;
                        inactive.push(active.remove(0));
                    }
                    assert_eq!(lists.last(), Some(inactive[0]));
                    assert_eq!(lists.replace(inactive[0]), Some(inactive.remove(0)));
                }
            }
            assert_eq!((lists.len_of(List::Active), lists.len_of(List::Inactive)), (active.len(), inactive.len()));
            assert_eq!(lists.len(), active.len() + inactive.len());
        }
    }

    /// What activates a page ages those that were replaced, as each replacement does.
    #[test]
    fn pages_that_were_activated_count_as_time() {
        for (again, expected) in [(false, List::Active), (true, List::Inactive)] {
            let mut lists = lists(4);
            for key in [0, 0] {
                lists.touch(key);
            }
            assert_eq!(replace(&mut lists), 1);
            // The page that comes back finds one active page. One was replaced since, it included.
            if again {
                for key in [2, 2] {
                    lists.touch(key);
                }
                lists.remove(2);
            }
            lists.insert(1, ());
            assert_eq!(list_of(&lists, 1), Some(expected), "{again}");
        }
        // A page that comes back soon is activated, which ages the other one: three are more than the two that are active.
        let mut lists = lists(6);
        for key in [0, 0] {
            lists.touch(key);
        }
        assert_eq!([replace(&mut lists), replace(&mut lists)], [1, 2]);
        for key in [2, 1] {
            lists.insert(key, ());
        }
        assert_eq!([2, 1].map(|key| list_of(&lists, key)), [Some(List::Active), Some(List::Inactive)]);
    }

    #[test]
    fn an_earlier_trace_of_a_page_goes_without_the_later_one() {
        let mut lists = lists(6);
        for key in [0, 0, 1, 1, 2, 2] {
            lists.touch(key);
        }
        assert_eq!(replace(&mut lists), 3);
        lists.insert(3, ());
        // The second trace of 3 is in the middle of those that are kept when the first one goes.
        for key in [3, 4, 5] {
            lists.replace(key);
        }
        lists.insert(3, ());
        assert_eq!(list_of(&lists, 3), Some(List::Active));
    }

    #[test]
    fn places_are_used_again() {
        let mut lists = lists(4);
        for key in 4..1000 {
            replace(&mut lists);
            lists.insert(key, ());
            // Again, although it is there.
            lists.insert(key, ());
            lists.remove(key);
            lists.insert(key, ());
        }
        assert_eq!((lists.pages.len(), lists.len()), (5, 4));
        assert_eq!(lists.len_of(List::Active) + lists.len_of(List::Inactive), 4);
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
        assert!(lists.order.len() <= 10 && lists.remembered() <= 10);
    }

    /// However many were replaced before.
    #[test]
    fn what_was_replaced_last_is_remembered() {
        let mut lists = lists(4);
        for key in [0, 0, 1, 1] {
            lists.touch(key);
        }
        for key in 4..20 {
            replace(&mut lists);
            lists.insert(key, ());
        }
        let last = replace(&mut lists);
        lists.insert(last, ());
        assert_eq!(list_of(&lists, last), Some(List::Active));
    }
}

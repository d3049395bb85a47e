//! Flushes that several threads ask for.

/// What becomes of a flush that somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flushed {
    /// When what was written before is durable, in nanoseconds.
    pub end: u64,
    /// Nanoseconds that the device spends on it for this caller: 0 where another one's flush serves it, and where there is nothing to do.
    pub own_ns: u64,
    /// Another one's flush serves it.
    pub shared: bool,
}

/// The flushes of a device, one after the other, as Linux's block layer makes them (`block/blk-flush.c`). A caller that asks during a
/// flush waits for its end; the next flush serves all callers that wait by then. A flush has something to do if a write or discard has ended
/// since the last one began.
///
/// Callers need not come in the order of time. Where a flush does not fit in front of one that begins later, its caller waits for that one.
#[derive(Debug, Clone, Default)]
pub(super) struct Flushes {
    /// Begin and end, in order, without overlaps.
    flushes: Vec<(u64, u64)>,
    /// When writes and discards ended, in order.
    writes: Vec<u64>,
}

impl Flushes {
    /// A write or discard has ended.
    pub(super) fn wrote(&mut self, end: u64) {
        let place = self.writes.partition_point(|&known| known < end);
        if self.writes.get(place) != Some(&end) {
            self.writes.insert(place, end);
        }
    }

    /// Somebody asks at `time` for a flush, which takes `cost`.
    pub(super) fn ask(&mut self, time: u64, cost: u64) -> Flushed {
        let behind = self.flushes.partition_point(|flush| flush.0 <= time);
        let last = behind.checked_sub(1).map(|last| self.flushes[last]);
        let written = self.writes.partition_point(|&write| write <= time).checked_sub(1).map(|last| self.writes[last]);
        let is_dirty = written.is_some_and(|write| last.is_none_or(|(begin, _)| write > begin));
        let running = last.map_or(0, |(_, end)| end);
        if !is_dirty {
            return Flushed { end: running.max(time), own_ns: 0, shared: running > time };
        }
        let begin = running.max(time);
        match self.flushes.get(behind) {
            Some(&(next, end)) if next < begin.saturating_add(cost.max(1)) => Flushed { end, own_ns: 0, shared: true },
            _ => {
                let end = begin.saturating_add(cost);
                self.flushes.insert(behind, (begin, end));
                Flushed { end, own_ns: cost, shared: false }
            }
        }
    }

    /// Forgets what was before `floor`. No caller asks for an earlier time.
    pub(super) fn forget_before(&mut self, floor: u64) {
        let past = self.flushes.partition_point(|flush| flush.0 <= floor);
        self.flushes.drain(..past.saturating_sub(1));
        // Of the writes before it, the last one says whether there was one.
        let past = self.writes.partition_point(|&write| write <= floor);
        self.writes.drain(..past.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn own(end: u64) -> Flushed {
        Flushed { end, own_ns: 100, shared: false }
    }

    const fn shared(end: u64) -> Flushed {
        Flushed { end, own_ns: 0, shared: true }
    }

    #[test]
    fn all_that_wait_for_a_flush_share_the_next() {
        let mut flushes = Flushes::default();
        let mut ask = |time| {
            flushes.wrote(time);
            flushes.ask(time, 100)
        };
        // The second one waits for the first, the third and fourth for the second's, and the fifth comes when that is under way.
        let times = [ask(10), ask(20), ask(30), ask(110), ask(111)];
        assert_eq!(times, [own(110), own(210), shared(210), shared(210), own(310)]);
        // Long after them; and one that comes late, from a time before: it does not fit between 310 and 350.
        assert_eq!([ask(350), ask(250)], [own(450), shared(450)]);
        assert_eq!(ask(312), shared(450));
    }

    #[test]
    fn nothing_is_done_twice() {
        let mut flushes = Flushes::default();
        assert_eq!(flushes.ask(5, 100), Flushed { end: 5, own_ns: 0, shared: false });
        flushes.wrote(10);
        assert_eq!(flushes.ask(10, 100), own(110));
        // What it makes durable is not durable before its end.
        assert_eq!(flushes.ask(60, 100), shared(110));
        assert_eq!(flushes.ask(200, 100), Flushed { end: 200, own_ns: 0, shared: false });
        flushes.wrote(150);
        flushes.wrote(140);
        flushes.forget_before(180);
        assert_eq!(flushes.ask(201, 100), own(301));
        flushes.forget_before(1000);
        assert_eq!(flushes.ask(1000, 100), Flushed { end: 1000, own_ns: 0, shared: false });
        assert!(flushes.flushes.len() == 1 && flushes.writes.len() == 1);
    }
}

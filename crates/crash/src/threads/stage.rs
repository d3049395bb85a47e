//! Where threads run: the scheduler, and what tells it what happens.
//!
//! A thread may be stopped at every lock of the engine and at every request to the device. A request that has begun and is not over
//! is one whose thread was stopped in front of it; a flush covers what was written before it began.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use basalt_device::block::Result as DeviceResult;
use basalt_device::{BlockDevice, DeviceLayer, PowerCutDevice};
use basalt_testkit::rng::Rng;
use basalt_testkit::shuttled::shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use basalt_testkit::shuttled::shuttle::thread;
use basalt_vfs::Time;

use super::script::{Act, Switch};
use crate::engine::StepClock;
use crate::script::Step;

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// Its place in the order of all that happened.
    pub number: u64,
    /// Changes of the device before it.
    pub changes: usize,
}

/// Who goes on.
#[derive(Debug, Clone)]
pub enum Choice {
    /// As these say.
    Given(Vec<Switch>),
    /// As a seed has it.
    Seeded(u64),
}

/// How a seed chooses.
#[derive(Debug, Clone, Copy)]
enum Policy {
    /// At so many percent of all points, any other thread.
    Anywhere(u64),
    /// At so many percent of the requests, any other thread; hardly ever elsewhere.
    AtRequests(u64),
    /// Who comes first stays so until it is put last: at so many percent of flushes, of other requests, and in a thousand locks
    /// (as PCT, ASPLOS 2010).
    Priorities { flush: u64, request: u64, locks: u64 },
    /// One goes first, up to one of its requests, or one of all its points; all others go on to their ends then.
    Stop { thread: usize, step: usize, number: u32, at_request: bool },
}

enum Chooser {
    Given(BTreeMap<(usize, usize, u32), usize>),
    Seeded { rng: Rng, policy: Policy, priorities: Vec<i64>, lowest: i64 },
}

/// What the point is that a thread has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Lock,
    Request,
    Flush,
}

/// The state of a run.
struct State {
    chooser: Chooser,
    /// There are threads: before, and when they are over, only the first one runs.
    started: bool,
    running: usize,
    /// By thread: steps begun, and points since.
    begun: Vec<(usize, u32)>,
    /// By thread: requests of its step.
    requests: Vec<u32>,
    at: Point,
    switches: Vec<Switch>,
    moments: u64,
    /// By thread: when it last read the clock.
    clock_read: Vec<Option<Moment>>,
}

/// One run's scheduler, clock and order of events, shared by all who take part.
#[derive(Clone)]
pub struct Stage {
    state: Arc<Mutex<State>>,
    device: Arc<PowerCutDevice>,
    clock: Arc<StepClock>,
}

impl Stage {
    /// For threads that do this, and the one that begins them.
    pub fn new(device: Arc<PowerCutDevice>, clock: Arc<StepClock>, acts: &[Vec<Act>], choice: &Choice) -> Stage {
        let threads = acts.len();
        let chooser = match choice {
            Choice::Given(switches) => Chooser::Given(
                switches.iter().map(|switch| ((switch.thread, switch.step, switch.point), switch.to)).collect(),
            ),
            Choice::Seeded(seed) => seeded(*seed, acts),
        };
        let state = State {
            chooser,
            started: false,
            running: 0,
            begun: vec![(0, 0); threads + 1],
            requests: vec![0; threads + 1],
            at: Point::Lock,
            switches: Vec::new(),
            moments: 0,
            clock_read: vec![None; threads + 1],
        };
        Stage { state: Arc::new(Mutex::new(state)), device, clock }
    }

    /// Never held over a point where a thread may be stopped.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with this lock")
    }

    /// From now on threads are chosen; before, only the first one runs.
    pub fn start(&self) {
        self.state().started = true;
    }

    /// The running thread begins its next step.
    pub fn begin_step(&self) {
        let mut state = self.state();
        let running = state.running;
        state.begun[running] = (state.begun[running].0 + 1, 0);
        state.requests[running] = 0;
    }

    /// Now, as a moment that no other is equal to.
    pub fn now(&self) -> Moment {
        let changes = self.device.position();
        let mut state = self.state();
        state.moments += 1;
        Moment { number: state.moments, changes }
    }

    /// When the running thread last read the clock since it was asked last.
    pub fn take_clock_read(&self) -> Option<Moment> {
        let mut state = self.state();
        let running = state.running;
        state.clock_read[running].take()
    }

    /// The time, for the engine: it reads the clock when it has the volume's lock for an operation, and that moment is remembered.
    pub fn read_clock(&self) -> Time {
        let now = self.now();
        let mut state = self.state();
        let running = state.running;
        state.clock_read[running] = Some(now);
        self.clock.read()
    }

    /// Lets time go by.
    pub fn wait(&self, seconds: u32) {
        self.clock.wait(seconds);
    }

    /// Where threads were stopped for others.
    pub fn switches(&self) -> Vec<Switch> {
        self.state().switches.clone()
    }

    /// Another thread may go on here.
    fn pause(&self, at: Point) {
        let mut state = self.state();
        if !state.started {
            return;
        }
        state.at = at;
        let running = state.running;
        state.requests[running] += 1;
        drop(state);
        thread::yield_now();
    }
}

fn seeded(seed: u64, acts: &[Vec<Act>]) -> Chooser {
    let mut rng = Rng::new(seed ^ 0x5C4E_D01E);
    let mut priorities: Vec<i64> = (0..=acts.len() as i64).collect();
    for last in (2..priorities.len()).rev() {
        priorities.swap(last, 1 + rng.index(last));
    }
    let policy = match rng.below(16) {
        0 => Policy::Anywhere(50),
        1..3 => Policy::Anywhere([2, 8][rng.index(2)]),
        3..5 => Policy::AtRequests([15, 50][rng.index(2)]),
        5..8 => Policy::Priorities { flush: 35, request: 4, locks: 2 },
        8 => Policy::Priorities { flush: 70, request: 15, locks: 0 },
        9 => Policy::Priorities { flush: 10, request: 10, locks: 20 },
        _ => {
            let thread = 1 + rng.index(acts.len().max(1));
            let step = step_to_stop(&mut rng, acts.get(thread - 1).map_or(&[], Vec::as_slice));
            let at_request = rng.chance(50);
            let most = if at_request { [4, 12, 40][rng.index(3)] } else { [16, 40][rng.index(2)] };
            let number = rng.between(1, most) as u32;
            if let Some(first) = priorities.get_mut(thread) {
                *first = i64::MAX;
            }
            Policy::Stop { thread, step, number, at_request }
        }
    };
    Chooser::Seeded { rng, policy, priorities, lowest: -1 }
}

/// Mostly one that makes something durable, or background work: what others do beside it matters most.
fn step_to_stop(rng: &mut Rng, acts: &[Act]) -> usize {
    let is_sync = |act: &Act| match act {
        Act::Do(step) => step.is_sync() || matches!(step, Step::Tick(_)),
        Act::Close | Act::Trim => true,
        Act::Read(_) | Act::Look | Act::WriteBehind => false,
    };
    let syncs: Vec<usize> = (1..).zip(acts).filter(|(_, act)| is_sync(act)).map(|(step, _)| step).collect();
    match rng.pick(&syncs) {
        Some(step) if rng.chance(75) => *step,
        _ => 1 + rng.index(acts.len().max(1)),
    }
}

impl State {
    fn choose(&mut self, runnable: &[usize], current: Option<usize>) -> usize {
        let at = std::mem::replace(&mut self.at, Point::Lock);
        let first = runnable[0];
        // The one that begins and ends the others waits for them.
        let others: Vec<usize> = runnable.iter().copied().filter(|thread| *thread != 0).collect();
        let (Some(current), true) = (current, self.started && !others.is_empty()) else { return first };
        let after = others.iter().copied().find(|thread| *thread > current).unwrap_or(others[0]);
        let usual = if others.contains(&current) { current } else { after };
        let (step, point) = self.begun[current];
        self.begun[current].1 += 1;
        let chosen = match &mut self.chooser {
            Chooser::Given(switches) => {
                let to = switches.get(&(current, step, point)).copied();
                to.filter(|to| others.contains(to)).unwrap_or(usual)
            }
            Chooser::Seeded { rng, policy, priorities, lowest } => {
                let place = (step, if at == Point::Lock { None } else { Some(self.requests[current]) }, point + 1);
                policy.choose(rng, priorities, lowest, &others, (current, usual), (at, place))
            }
        };
        if chosen != usual {
            self.switches.push(Switch { thread: current, step, point, to: chosen });
        }
        chosen
    }
}

impl Policy {
    fn choose(
        self,
        rng: &mut Rng,
        priorities: &mut [i64],
        lowest: &mut i64,
        others: &[usize],
        (current, usual): (usize, usize),
        (at, (step, request, point)): (Point, (usize, Option<u32>, u32)),
    ) -> usize {
        let is_forced = usual != current;
        let any = match self {
            Policy::Anywhere(percent) => is_forced || rng.chance(percent),
            Policy::AtRequests(percent) if at != Point::Lock => rng.chance(percent),
            Policy::AtRequests(_) => is_forced || rng.below(1000) < 5,
            Policy::Priorities { .. } | Policy::Stop { .. } => {
                let is_put_last = match (self, at) {
                    (Policy::Priorities { flush, .. }, Point::Flush) => rng.chance(flush),
                    (Policy::Priorities { request, .. }, Point::Request) => rng.chance(request),
                    (Policy::Priorities { locks, .. }, Point::Lock) => rng.below(1000) < locks,
                    (Policy::Stop { thread, step: stop, number, at_request }, _) => {
                        let reached = if at_request { request } else { Some(point) };
                        (current, step, reached) == (thread, stop, Some(number))
                    }
                    _ => false,
                };
                if is_put_last {
                    priorities[current] = *lowest;
                    *lowest -= 1;
                }
                return others.iter().copied().max_by_key(|thread| priorities[*thread]).unwrap_or(usual);
            }
        };
        if any { others[rng.index(others.len())] } else { usual }
    }
}

/// The scheduler of one run.
pub struct Director {
    stage: Stage,
    is_over: bool,
}

impl Director {
    /// Of this run.
    pub fn new(stage: Stage) -> Director {
        Director { stage, is_over: false }
    }
}

impl Scheduler for Director {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.is_over, true)).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, _is_yielding: bool) -> Option<TaskId> {
        let numbers: Vec<usize> = runnable.iter().map(|task| task.id().into()).collect();
        let mut state = self.stage.state();
        let chosen = state.choose(&numbers, current.map(usize::from));
        state.running = chosen;
        Some(chosen.into())
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// The device that the engine sees: a thread may be stopped at each of its requests.
pub struct StageDevice {
    inner: Arc<PowerCutDevice>,
    stage: Stage,
}

impl StageDevice {
    /// On the device whose log is kept.
    pub fn new(stage: Stage) -> StageDevice {
        StageDevice { inner: stage.device.clone(), stage }
    }
}

impl DeviceLayer for StageDevice {
    type Below = PowerCutDevice;

    fn below(&self) -> &PowerCutDevice {
        &self.inner
    }

    fn on_read(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.stage.pause(Point::Request);
        self.inner.read_at(offset, buf)
    }

    fn on_write(&self, offset: u64, slices: &[&[u8]]) -> DeviceResult<()> {
        self.stage.pause(Point::Request);
        self.inner.write_vectored_at(offset, slices)
    }

    fn on_flush(&self) -> DeviceResult<()> {
        let begun = self.inner.position();
        self.stage.pause(Point::Flush);
        self.inner.end_flush(begun);
        // Others may hear of it first.
        self.stage.pause(Point::Request);
        Ok(())
    }

    fn on_discard(&self, offset: u64, length: u64) -> DeviceResult<()> {
        self.stage.pause(Point::Request);
        self.inner.discard(offset, length)
    }
}

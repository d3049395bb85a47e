//! A whole story as text: what was done, where the power went, what was done then.
//!
//! ```text
//! volume tight
//! create a
//! write a 0 4096 1
//! fsync a
//! cut 3 scattered 17
//! create b
//! cut 0 lost 0
//! ```
//!
//! A `cut` meets the step above it, after so many of that step's requests; with no step since the last one, it meets opening the
//! volume: recovery.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use basalt_device::{FaultyDevice, MemoryDevice, Replay, RequestKind};

use crate::cut::Cut;
use crate::device_mutant::DeviceMutant;
use crate::engine::{Engine, StepClock};
use crate::found::find_tree;
use crate::oracle::{verify, verify_checkpoint};
use crate::prepare::Image;
use crate::script::Step;
use crate::session::{Life, Session};
use crate::threads::explore::play as play_threads;
use crate::threads::script::Threads;
use crate::tree::Tree;

/// A story. Its first life may have threads ([`crate::threads::script`]): they begin where the steps of that life are done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The volume's name.
    pub volume: String,
    /// What is on it before.
    pub image: Image,
    /// A device that lies, if it does.
    pub device_mutant: Option<DeviceMutant>,
    /// What threads do in the first life, behind its steps.
    pub threads: Option<Box<Threads>>,
    /// Lives that end with a power cut.
    pub lives: Vec<(Vec<Step>, Cut)>,
    /// The read of this number fails when the volume is opened after the last cut; then it is opened again.
    pub failing_read: Option<u32>,
    /// What is done after the last one; then the volume is closed and checked.
    pub rest: Vec<Step>,
}

/// Opens what a power cut during change `at` of `life` has left, and holds it against what was promised.
pub fn recover<'a>(engine: &'a dyn Engine, image: MemoryDevice, life: &Life, at: usize) -> Result<Session<'a>, String> {
    recover_as(engine, image, life.states.last(), life.next, |found| verify(life, at, found).map(drop))
}

/// As [`recover`]; `judge` says whether what is found may be there, `known` helps to find it, `start` is the time.
fn recover_as<'a>(
    engine: &'a dyn Engine,
    image: MemoryDevice,
    known: Option<&Tree>,
    start: u64,
    judge: impl FnOnce(&Tree) -> Result<(), String>,
) -> Result<Session<'a>, String> {
    let session = Session::open(engine, image, known, start);
    let session = session.map_err(|error| format!("after the power cut: {error}"))?;
    judge(session.tree())?;
    engine.check(&session.image()).map_err(|error| format!("after recovery: {error}"))?;
    Ok(session)
}

/// As [`recover`], where `judge` says whether what is found may be there; then goes on with `rest`. `known` helps to find it.
pub fn survive_as<'a>(
    engine: &'a dyn Engine,
    image: MemoryDevice,
    known: Option<&Tree>,
    judge: impl FnOnce(&Tree) -> Result<(), String>,
    rest: &[Step],
) -> Result<Session<'a>, String> {
    let mut session = recover_as(engine, image, known, 0, judge)?;
    go_on(&mut session, rest)?;
    Ok(session)
}

/// As [`recover`], of a device some of whose sectors cannot be read: what was promised is there all the same, or where the volume says
/// that it is. Where the volume cannot be written any more, it says why, and there is nothing to go on with.
pub fn recover_damaged<'a>(
    engine: &'a dyn Engine,
    image: MemoryDevice,
    life: &Life,
    at: usize,
) -> Result<Option<Session<'a>>, String> {
    let device = Arc::new(image.snapshot());
    let fs = engine.open_to_look(device, StepClock::starting(life.next));
    let fs = fs.map_err(|error| format!("after the power cut, with sectors that cannot be read: {error}"))?;
    let found = find_tree(&*fs, life.states.last())?;
    drop(fs);
    if let Err(missed) = verify(life, at, &found) {
        verify_checkpoint(life, at, &found)?;
        let told = engine.open_as_told(Arc::new(image.snapshot()), StepClock::starting(life.next)).ok_or(missed)??;
        verify(life, at, &find_tree(&*told, life.states.last())?)?;
        return Ok(None);
    }
    // What cannot be opened for writing was looked at above.
    Ok(Session::open(engine, image, life.states.last(), life.next).ok())
}

/// Opens a volume while its read of this number fails, from 1: it may be refused, but nothing may get lost. What is left of the device.
pub fn fail_read(
    engine: &dyn Engine,
    image: MemoryDevice,
    life: &Life,
    at: usize,
    nth: u32,
) -> Result<MemoryDevice, String> {
    let device = Arc::new(FaultyDevice::new(image));
    device.fail_nth(RequestKind::Read, u64::from(nth), io::ErrorKind::Other);
    if let Ok(fs) = engine.open(device.clone(), StepClock::starting(life.next)) {
        device.heal();
        let found = find_tree(&*fs, life.states.last())?;
        verify(life, at, &found).map_err(|error| format!("while read {nth} failed: {error}"))?;
    }
    Ok(device.inner().snapshot())
}

/// Goes on after a power cut; what is there afterwards is what was there and what was done.
pub fn go_on(session: &mut Session<'_>, rest: &[Step]) -> Result<(), String> {
    let went_on = rest.iter().try_for_each(|step| session.run(step)).and_then(|()| session.expect_as_done());
    went_on.map_err(|error| format!("after the power cut: {error}"))
}

impl Scenario {
    /// Plays it to its end on a fresh volume. The error says what is violated; the image is that of the volume closed.
    pub fn play(&self, engine: &dyn Engine) -> Result<MemoryDevice, String> {
        let next = |index: usize| self.lives.get(index).map_or(&self.rest, |(steps, _)| steps);
        let (mut session, cut_already) = match &self.threads {
            Some(threads) => (play_threads(engine, threads, self.lives.first(), next(1))?, 1),
            None => {
                let mut session = Session::open(engine, self.image.base(engine)?.device, None, 0)?;
                next(0).iter().try_for_each(|step| session.run(step))?;
                (session, 0)
            }
        };
        for (index, (_, cut)) in self.lives.iter().enumerate().skip(cut_already) {
            let life = self.lie(session.end());
            let rest = next(index + 1);
            let at = position(&life, cut);
            let mut image = Replay::new(&life.history).cut(at, |cached| cut.style.fates(cut.seed, cached));
            if let Some(nth) = self.failing_read.filter(|_| index + 1 == self.lives.len()) {
                image = fail_read(engine, image, &life, at, nth)?;
            }
            if image.unreadable_sectors() > 0 {
                let left = image.snapshot();
                let Some(damaged) = recover_damaged(engine, image, &life, at)? else { return Ok(left) };
                session = damaged;
            } else {
                session = recover(engine, image, &life, at)?;
            }
            go_on(&mut session, rest)?;
        }
        session.close()
    }

    fn lie(&self, mut life: Life) -> Life {
        if let Some(mutant) = self.device_mutant {
            mutant.alter(&mut life);
        }
        life
    }
}

/// The change of a life that a cut meets.
pub fn position(life: &Life, cut: &Cut) -> usize {
    let last = life.done.last().map_or(0..0, |done| done.changes.clone());
    (last.start + cut.after).min(last.end)
}

/// The steps up to the one that change `at` belongs to, and how many changes of that one come before.
pub fn relative(life: &Life, at: usize) -> (Vec<Step>, usize) {
    let returned = life.done.iter().take_while(|done| done.changes.end <= at).count();
    let last = returned.min(life.done.len() - 1);
    (life.steps[..last].to_vec(), at - life.done[last].changes.start)
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "volume {}", self.volume)?;
        if self.image != Image::Empty {
            writeln!(f, "image {}", self.image.word())?;
        }
        if let Some(mutant) = self.device_mutant {
            writeln!(f, "device {}", mutant.word())?;
        }
        for (index, (steps, cut)) in self.lives.iter().enumerate() {
            steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
            if let Some(threads) = self.threads.as_ref().filter(|_| index == 0) {
                threads.fmt(f)?;
            }
            writeln!(f, "{cut}")?;
        }
        if let Some(nth) = self.failing_read {
            writeln!(f, "fail-read {nth}")?;
        }
        self.rest.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Scenario, String> {
        let mut scenario = Scenario {
            volume: "roomy".to_owned(),
            image: Image::Empty,
            device_mutant: None,
            threads: None,
            lives: Vec::new(),
            failing_read: None,
            rest: Vec::new(),
        };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            let wrong = |error: String| format!("line {number}: {error}");
            match line.split_whitespace().next() {
                None => {}
                Some("volume") => scenario.volume = line["volume".len()..].trim().to_owned(),
                Some("image") => {
                    let word = line["image".len()..].trim();
                    scenario.image = Image::from_word(word).ok_or_else(|| wrong(format!("no image `{word}`")))?;
                }
                Some("device") => {
                    let word = line["device".len()..].trim();
                    let mutant = DeviceMutant::from_word(word).ok_or_else(|| wrong(format!("no device `{word}`")))?;
                    scenario.device_mutant = Some(mutant);
                }
                Some("fail-read") => {
                    let nth = line["fail-read".len()..].trim().parse();
                    scenario.failing_read = Some(nth.map_err(|_| wrong("`fail-read` wants a number".to_owned()))?);
                }
                Some("cut") => {
                    let steps = std::mem::take(&mut scenario.rest);
                    scenario.lives.push((steps, line.parse().map_err(wrong)?));
                }
                Some(_)
                    if scenario.lives.is_empty() && Threads::take(&mut scenario.threads, line).map_err(wrong)? => {}
                Some(_) => scenario.rest.push(line.parse().map_err(wrong)?),
            }
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_are_read_back() {
        let text = "volume tight\nimage names\ndevice no-flush\ncreate a\nsync\ncut 3 scattered 17\ncut 0 lost 0\nfail-read 5\nunlink a\n";
        let scenario: Scenario = text.parse().unwrap();
        assert_eq!(scenario.lives.len(), 2);
        assert_eq!(scenario.lives[1].0, []);
        assert_eq!(scenario.to_string(), text);
        let with_remarks = format!("# a story\n\n{}", text.replace("sync\n", "sync # at once\n"));
        assert_eq!(with_remarks.parse::<Scenario>().unwrap(), scenario);
        assert_eq!("volume a\njump".parse::<Scenario>().unwrap_err(), "line 2: `jump`: there is no step `jump`");
    }
}

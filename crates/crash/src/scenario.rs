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
use std::str::FromStr;

use basalt_device::{MemoryDevice, Replay};

use crate::cut::Cut;
use crate::device_mutant::DeviceMutant;
use crate::engine::Engine;
use crate::oracle::verify;
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
    /// A device that lies, if it does.
    pub device_mutant: Option<DeviceMutant>,
    /// What threads do in the first life, behind its steps.
    pub threads: Option<Threads>,
    /// Lives that end with a power cut.
    pub lives: Vec<(Vec<Step>, Cut)>,
    /// What is done after the last one; then the volume is closed and checked.
    pub rest: Vec<Step>,
}

/// What is done after every power cut that has nothing else to follow: work must go on.
pub fn work() -> Vec<Step> {
    let path = || "after/file".to_owned();
    vec![
        Step::Mkdir("after".to_owned()),
        Step::Create(path()),
        Step::Write(path(), 0, 9_000, 7),
        Step::Fsync(path()),
        Step::Rename(path(), "after/again".to_owned()),
        Step::Unlink("f0".to_owned()),
    ]
}

/// Makes an empty volume.
pub fn format(engine: &dyn Engine) -> Result<MemoryDevice, String> {
    let device = MemoryDevice::new(engine.device_size(), 512);
    engine.format(&device)?;
    Ok(device)
}

/// Opens what a power cut during change `at` of `life` has left, holds it against what was promised, and goes on with `rest`.
pub fn survive<'a>(
    engine: &'a dyn Engine,
    image: MemoryDevice,
    life: &Life,
    at: usize,
    rest: &[Step],
) -> Result<Session<'a>, String> {
    survive_as(engine, image, life.states.last(), |found| verify(life, at, found).map(drop), rest)
}

/// As [`survive`]; `judge` says whether what is found may be there. `known` helps to find it.
pub fn survive_as<'a>(
    engine: &'a dyn Engine,
    image: MemoryDevice,
    known: Option<&Tree>,
    judge: impl FnOnce(&Tree) -> Result<(), String>,
    rest: &[Step],
) -> Result<Session<'a>, String> {
    let mut session = Session::open(engine, image, known).map_err(|error| format!("after the power cut: {error}"))?;
    judge(session.tree())?;
    engine.check(&session.image()).map_err(|error| format!("after recovery: {error}"))?;
    for step in rest {
        session.run(step).map_err(|error| format!("after the power cut: {error}"))?;
    }
    Ok(session)
}

impl Scenario {
    /// Plays it to its end on a fresh volume. The error says what is violated; the image is that of the volume closed.
    pub fn play(&self, engine: &dyn Engine) -> Result<MemoryDevice, String> {
        let next = |index: usize| self.lives.get(index).map_or(&self.rest, |(steps, _)| steps);
        let (mut session, cut_already) = match &self.threads {
            Some(threads) => (play_threads(engine, threads, self.lives.first(), next(1))?, 1),
            None => {
                let mut session = Session::open(engine, format(engine)?, None)?;
                next(0).iter().try_for_each(|step| session.run(step))?;
                (session, 0)
            }
        };
        for (index, (_, cut)) in self.lives.iter().enumerate().skip(cut_already) {
            let life = self.lie(session.end());
            let rest = next(index + 1);
            let at = position(&life, cut);
            let image = Replay::new(&life.history).cut(at, |cached| cut.style.fates(cut.seed, cached));
            session = survive(engine, image, &life, at, rest)?;
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
        self.rest.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Scenario, String> {
        let mut scenario =
            Scenario {
                volume: "roomy".to_owned(),
                device_mutant: None,
                threads: None,
                lives: Vec::new(),
                rest: Vec::new(),
            };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            let wrong = |error: String| format!("line {number}: {error}");
            match line.split_whitespace().next() {
                None => {}
                Some("volume") => scenario.volume = line["volume".len()..].trim().to_owned(),
                Some("device") => {
                    let word = line["device".len()..].trim();
                    let mutant = DeviceMutant::from_word(word).ok_or_else(|| wrong(format!("no device `{word}`")))?;
                    scenario.device_mutant = Some(mutant);
                }
                Some("cut") => {
                    let steps = std::mem::take(&mut scenario.rest);
                    scenario.lives.push((steps, line.parse().map_err(wrong)?));
                }
                Some(_) if scenario.lives.is_empty() && Threads::take(&mut scenario.threads, line).map_err(wrong)? => {}
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
        let text = "volume tight\ndevice no-flush\ncreate a\nsync\ncut 3 scattered 17\ncut 0 lost 0\nunlink a\n";
        let scenario: Scenario = text.parse().unwrap();
        assert_eq!(scenario.lives.len(), 2);
        assert_eq!(scenario.lives[1].0, []);
        assert_eq!(scenario.to_string(), text);
        let with_remarks = format!("# a story\n\n{}", text.replace("sync\n", "sync # at once\n"));
        assert_eq!(with_remarks.parse::<Scenario>().unwrap(), scenario);
        assert_eq!("volume a\njump".parse::<Scenario>().unwrap_err(), "line 2: `jump`: there is no step `jump`");
    }
}

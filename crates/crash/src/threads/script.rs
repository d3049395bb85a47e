//! What threads do, and where the scheduler goes over from one to another.
//!
//! ```text
//! create a
//! sync
//! thread
//! write a 0 4096 1
//! fsync a
//! thread
//! sync
//! switch 1 2 17 2
//! ```
//!
//! What stands above the first `thread` is done before there are any. `switch 1 2 17 2`: when thread 1 is in its step 2 and comes to a
//! point of it where it may be stopped for the 18th time, thread 2 goes on. Where nothing is said, a thread goes on until it ends or
//! waits, and then the next does that can.

use std::fmt;
use std::str::FromStr;

use crate::script::{Path, Step, Words};

/// Bytes that one write of a thread may not cross a multiple of: the engine may do other things in between.
pub const ONE_WRITE: u64 = 1 << 20;

/// What a thread does at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A step that changes the volume, or makes changes durable.
    Do(Step),
    /// Read a whole file, and hold it against what was written.
    Read(Path),
    /// Ask for statistics and free space.
    Look,
    /// Discard what is free.
    Trim,
    /// Hand writes to the device that others leave, until they have done all they do. The only act of its thread.
    WriteBehind,
    /// Close the volume, whatever the others do.
    Close,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Do(step) => step.fmt(f),
            Act::Read(path) => write!(f, "read {path}"),
            Act::Look => f.write_str("look"),
            Act::Trim => f.write_str("trim"),
            Act::WriteBehind => f.write_str("write-behind"),
            Act::Close => f.write_str("close"),
        }
    }
}

impl FromStr for Act {
    type Err = String;

    fn from_str(line: &str) -> Result<Act, String> {
        let mut words = Words::new(line);
        let act = match words.word("a step")? {
            "read" => Act::Read(words.word("the path")?.to_owned()),
            "look" => Act::Look,
            "trim" => Act::Trim,
            "write-behind" => Act::WriteBehind,
            "close" => Act::Close,
            _ => return line.parse().and_then(for_threads).map(Act::Do),
        };
        words.end()?;
        Ok(act)
    }
}

/// Refuses steps that are no single change, or that only one thread may do.
fn for_threads(step: Step) -> Result<Step, String> {
    match &step {
        Step::Write(_, offset, length, _) if offset % ONE_WRITE + u64::from(*length) > ONE_WRITE => {
            Err(format!("`{step}`: in a thread, a write may not cross a multiple of {ONE_WRITE}"))
        }
        Step::Hold(_) | Step::Release | Step::Remount => Err(format!("`{step}`: not in a thread")),
        _ => Ok(step),
    }
}

/// Where the scheduler goes over to another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Switch {
    /// The thread that is stopped; 0 begins and ends the others.
    pub thread: usize,
    /// Steps it has begun.
    pub step: usize,
    /// Points of this step where it might have been stopped before.
    pub point: u32,
    /// The thread that goes on.
    pub to: usize,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Switch { thread, step, point, to } = self;
        write!(f, "switch {thread} {step} {point} {to}")
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(line: &str) -> Result<Switch, String> {
        let mut words = Words::new(line);
        words.word("`switch`")?;
        let switch = Switch {
            thread: words.number("the thread")?,
            step: words.number("the step")?,
            point: words.number("the point")?,
            to: words.number("the other thread")?,
        };
        words.end()?;
        Ok(switch)
    }
}

/// What threads do side by side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    /// The steps of each.
    pub acts: Vec<Vec<Act>>,
    /// Where one is stopped for another.
    pub switches: Vec<Switch>,
}

impl Threads {
    /// Takes a line that belongs to threads; false if it does not.
    pub fn take(threads: &mut Option<Box<Threads>>, line: &str) -> Result<bool, String> {
        let Some(word) = line.split_whitespace().next() else { return Ok(false) };
        if word == "thread" {
            threads.get_or_insert_default().acts.push(Vec::new());
            return Ok(true);
        }
        let Some(threads) = threads else { return Ok(false) };
        if word == "switch" {
            threads.switches.push(line.parse()?);
        } else if let Some(acts) = threads.acts.last_mut() {
            acts.push(line.parse()?);
        }
        Ok(true)
    }

    /// Without steps `from..to` of one thread.
    #[must_use]
    pub fn without(&self, thread: usize, from: usize, to: usize) -> Threads {
        let mut shorter = self.clone();
        shorter.acts[thread].drain(from..to);
        // Steps are counted from 1, as are threads.
        shorter.switches.retain_mut(|switch| {
            if switch.thread != thread + 1 || switch.step <= from {
                return true;
            }
            let is_left = switch.step > to;
            switch.step -= if is_left { to - from } else { 0 };
            is_left
        });
        shorter
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for acts in &self.acts {
            writeln!(f, "thread")?;
            acts.iter().try_for_each(|act| writeln!(f, "{act}"))?;
        }
        self.switches.iter().try_for_each(|switch| writeln!(f, "{switch}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Box<Threads>, String> {
        let mut threads = None;
        for line in text.lines() {
            assert!(Threads::take(&mut threads, line)?, "{line}");
        }
        Ok(threads.unwrap())
    }

    #[test]
    fn threads_are_read_back() {
        let text =
            "thread\nwrite a 0 4096 1\nread a\nlook\ntrim\nthread\nfsync a\nclose\nswitch 1 2 17 2\nswitch 2 1 0 1\n";
        assert_eq!(read(text).unwrap().to_string(), text);
        assert!(read("thread\nwrite a 1000000 100000 1").unwrap_err().contains("may not cross"));
        assert!(read("thread\nremount").unwrap_err().contains("not in a thread"));
        assert!(read("thread\nswitch 1 2 3").unwrap_err().contains("the other thread is missing"));
    }

    #[test]
    fn switches_follow_the_steps_they_are_in() {
        let text = "thread\nlook\ntrim\nlook\nclose\nthread\nlook\nswitch 1 1 5 2\nswitch 1 2 5 2\nswitch 1 4 5 2\nswitch 2 1 5 1\n";
        let shorter = read(text).unwrap().without(0, 1, 3);
        assert_eq!(
            shorter.to_string(),
            "thread\nlook\nclose\nthread\nlook\nswitch 1 1 5 2\nswitch 1 2 5 2\nswitch 2 1 5 1\n"
        );
    }
}

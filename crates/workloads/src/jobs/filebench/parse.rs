//! Reads a file in Filebench's language, as far as its filesets, processes and ends go.

use std::collections::{BTreeMap, HashMap};

use super::super::{Line, OPEN_FILES, Source, THREADS};
use super::attributes::{Attributes, Value};
use super::script::{Quit, Script, SetDefinition, ThreadDefinition};
use super::values::{Amount, fraction, whole};
use super::words::{Word, words};
use super::{check, flowops};
use crate::error::{Error, Result};

/// Filesets of a file at most, and flowops of all threads together.
const SETS: usize = 100;
pub(super) const FLOWOPS: usize = 10_000;
/// Files of a set at most.
const ENTRIES: u64 = 10_000_000;

/// The file, and how much of it has been read.
pub(super) struct Parser<'s> {
    pub(super) source: &'s Source,
    words: Vec<(Line, Word)>,
    at: usize,
    variables: HashMap<String, Value>,
    /// Values of variables that replace those of the file.
    overrides: Vec<(String, String)>,
    /// Which of them did.
    replaced: Vec<String>,
    pub(super) script: Script,
    paced: bool,
    /// A process that waits, and where.
    pub(super) waits: Option<Line>,
}

/// The script of a file; `overrides` are values for variables that it sets.
pub(super) fn parse(source: &Source, overrides: Vec<(String, String)>) -> Result<Script> {
    let script = Script { sets: Vec::new(), threads: Vec::new(), quit: Quit::Timeout };
    let mut parser = Parser {
        source,
        words: words(source)?,
        at: 0,
        variables: HashMap::new(),
        overrides,
        replaced: Vec::new(),
        script,
        paced: false,
        waits: None,
    };
    while parser.at < parser.words.len() {
        parser.command()?;
    }
    if let Some((name, _)) = parser.overrides.iter().find(|(name, _)| !parser.replaced.contains(name)) {
        return Err(source.error(0, format_args!("{name}: the file sets no variable ${name}")));
    }
    let Parser { script, waits, .. } = parser;
    let last = source.text.lines().count().max(1);
    if script.threads.is_empty() {
        return Err(source.error(last, "there is no process; write `define process name=… { thread … { flowop … } }`"));
    }
    if let (Some(line), 2..) = (waits, script.threads.len()) {
        let what =
            "threads that wait beside threads that do not depend on the clock, and a workload has none; remove it";
        return Err(source.error(line, what));
    }
    check::check(source, &script)?;
    Ok(script)
}

impl<'s> Parser<'s> {
    /// The line of the next word.
    pub(super) fn line(&self) -> Line {
        self.words.get(self.at).or(self.words.last()).map_or(1, |(line, _)| *line)
    }

    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at).map(|(_, word)| word)
    }

    pub(super) fn error(&self, what: impl std::fmt::Display) -> Error {
        self.source.error(self.line(), what)
    }

    fn next(&mut self) -> Result<Word> {
        let word = self.peek().cloned().ok_or_else(|| self.error("the file ends in the middle of something"))?;
        self.at += 1;
        Ok(word)
    }

    pub(super) fn accept(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(&Word::Sign(sign));
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, sign: char) -> Result<()> {
        if self.accept(sign) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end of the file".to_owned(), |word| format!("`{word}`"));
        Err(self.error(format_args!("`{sign}` is expected, and there is {found}")))
    }

    /// A name, in lower case letters if it is a keyword.
    pub(super) fn name(&mut self, wanted: &str) -> Result<String> {
        match self.peek() {
            Some(Word::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            Some(word) => Err(self.error(format_args!("`{word}` is not {wanted}"))),
            None => Err(self.error(format_args!("the file ends where {wanted} is expected"))),
        }
    }

    fn command(&mut self) -> Result<()> {
        let line = self.line();
        let command = self.name("a command")?;
        match command.as_str() {
            "set" => self.set(),
            "define" => self.define(),
            "eventgen" => self.eventgen(),
            // Times, and what is shown.
            "run" | "psrun" | "sleep" | "warmup" | "debug" => {
                while matches!(self.peek(), Some(Word::Number(_) | Word::Variable(_) | Word::Sign('-'))) {
                    self.at += 1;
                }
                Ok(())
            }
            "echo" | "usage" | "log" => match self.next()? {
                Word::Text(_) => Ok(()),
                word => Err(self.source.error(line, format_args!("{command}: `{word}` is not a text between quotes"))),
            },
            "create" | "enable" | "stats" => self.name("what to do").map(drop),
            "version" | "quit" | "exit" | "shutdown" | "nousestats" => {
                if let Some(Word::Name(_)) = self.peek().filter(|_| command == "shutdown") {
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.source.error(line, format_args!("command `{command}` is not known or not supported"))),
        }
    }

    /// `set $name=value`, `set mode quit …`.
    fn set(&mut self) -> Result<()> {
        let line = self.line();
        let name = match self.next()? {
            Word::Variable(name) => name,
            Word::Name(mode) if mode == "mode" => return self.mode(),
            word => return Err(self.source.error(line, format_args!("set: `{word}` is not `$name` or `mode quit`"))),
        };
        self.expect('=')?;
        let mut value = self.value()?;
        if let Some(Word::Sign(sign @ ('+' | '-' | '*' | '/'))) = self.peek().cloned() {
            self.at += 1;
            let other = self.value()?;
            value = calculated(&value, sign, &other).ok_or_else(|| {
                self.source.error(line, format_args!("${name}: `{sign}` needs two numbers that it suits"))
            })?;
        }
        if let Some((_, text)) = self.overrides.iter().find(|(known, _)| *known == name) {
            let number = whole(text).map(|number| Value::Amount(Amount::fixed(number)));
            value = number.unwrap_or_else(|| Value::Text(text.clone()));
            self.replaced.push(name.clone());
        }
        self.variables.insert(name, value);
        Ok(())
    }

    fn mode(&mut self) -> Result<()> {
        let (mode, when) = (self.name("`quit`")?, self.name("timeout, firstdone or alldone")?);
        self.script.quit = match (mode.as_str(), when.as_str()) {
            ("quit", "timeout") => Quit::Timeout,
            ("quit", "firstdone") => Quit::FirstDone,
            ("quit", "alldone") => Quit::AllDone,
            _ => return Err(self.error(format_args!("mode {mode} {when} is not known or not supported"))),
        };
        Ok(())
    }

    /// `eventgen rate=N`: 0 is none.
    fn eventgen(&mut self) -> Result<()> {
        let line = self.line();
        let what = self.name("`rate`")?;
        self.accept('=');
        match (what.as_str(), self.value()?) {
            ("rate", Value::Amount(rate)) => self.paced = rate.constant() != Some(0),
            _ => return Err(self.source.error(line, "eventgen: write `rate=N`")),
        }
        Ok(())
    }

    /// Whether events limit those who wait for them.
    pub(super) fn is_paced(&self) -> bool {
        self.paced
    }

    fn define(&mut self) -> Result<()> {
        let line = self.line();
        match self.name("what to define")?.as_str() {
            "fileset" | "file" if self.script.sets.len() >= SETS => {
                Err(self.source.error(line, format_args!("more than {SETS} filesets")))
            }
            "fileset" => self.fileset(line, None),
            "file" => self.fileset(line, Some(1)),
            "process" => self.process(line),
            other => Err(self.source.error(line, format_args!("define {other} is not known or not supported"))),
        }
    }

    fn fileset(&mut self, line: Line, entries: Option<u64>) -> Result<()> {
        let what = if entries.is_some() { "file" } else { "fileset" };
        let mut attributes = self.attributes(what, line)?;
        let missing = |name: &str| self.source.error(line, format_args!("{what}: `{name}` is missing"));
        let (name_line, name) = attributes.text("name")?.ok_or_else(|| missing("name"))?;
        let path = attributes.text("path")?.map_or(String::new(), |(_, path)| path);
        let root = self.source.below_target(name_line, &format!("{path}/{name}"))?;
        let size = match attributes.amount("size")? {
            None => attributes.amount("filesize")?,
            size => size,
        };
        let mut size = size.unwrap_or(Amount::fixed(1024));
        // The gamma parameter in thousandths, of Filebench up to 1.4; 0 for sizes that are all the same.
        let gamma = attributes.number("filesizegamma", 0, 0, 1_000_000)?;
        if let (Some(mean), 1..) = (size.constant(), gamma) {
            if gamma < 1000 {
                return Err(attributes.error(line, "filesizegamma below 1000 is not supported"));
            }
            size = Amount::gamma(mean as f64, gamma as f64 / 1000.0);
        }
        let entries = match entries {
            Some(entries) => attributes.number("entries", entries, entries, entries)?,
            None => attributes.number("entries", 0, 1, ENTRIES)?,
        };
        if entries == 0 {
            return Err(missing("entries"));
        }
        let width = attributes.number("dirwidth", 0, 0, u64::from(u32::MAX))?;
        let preallocated = attributes.percent("prealloc")?;
        attributes.number("leafdirs", 0, 0, 0)?;
        attributes.ignore(&["reuse", "paralloc", "trusttree", "cached", "readonly", "writeonly", "dirgamma"]);
        attributes.finish()?;
        if self.script.sets.iter().any(|set| set.name == name || set.root == root) {
            return Err(self.source.error(line, format_args!("{what}: `{name}` is there already")));
        }
        let set = SetDefinition { name, root, size, entries, width, preallocated };
        self.script.sets.push(set);
        Ok(())
    }

    /// `process … { thread … { flowop … } }`.
    fn process(&mut self, line: Line) -> Result<()> {
        let mut attributes = self.attributes("process", line)?;
        let instances = attributes.number("instances", 1, 1, THREADS)?;
        attributes.ignore(&["name", "nice"]);
        attributes.finish()?;
        self.expect('{')?;
        while !self.accept('}') {
            let line = self.line();
            match self.name("`thread` or `}`")?.as_str() {
                "thread" => self.thread(line, instances)?,
                other => return Err(self.source.error(line, format_args!("process: `{other}` is not `thread`"))),
            }
        }
        Ok(())
    }

    fn thread(&mut self, line: Line, processes: u64) -> Result<()> {
        let mut attributes = self.attributes("thread", line)?;
        let count = attributes.number("instances", 1, 1, THREADS)? * processes;
        attributes.ignore(&["name", "memsize", "useism", "ioprio"]);
        attributes.finish()?;
        let flowops = flowops::flowops(self)?;
        let slots = flowops.iter().map(|flowop| flowop.fd as u64 + 1).max().unwrap_or(1);
        self.script.threads.push(ThreadDefinition { line, count, flowops });
        let threads: u64 = self.script.threads.iter().map(|thread| thread.count).sum();
        if threads > THREADS || count * slots > OPEN_FILES {
            let what = format_args!("more than {THREADS} threads or {OPEN_FILES} open files; lower instances");
            return Err(self.source.error(line, what));
        }
        Ok(())
    }

    /// The attributes that follow.
    pub(super) fn attributes(&mut self, of: &str, line: Line) -> Result<Attributes<'s>> {
        let mut given = Vec::new();
        if matches!(self.peek(), Some(Word::Name(_))) {
            loop {
                let line = self.line();
                let name = self.name("an attribute")?;
                let value = if self.accept('=') { self.value()? } else { Value::Present };
                if given.iter().any(|(_, known, _)| *known == name) {
                    return Err(self.source.error(line, format_args!("{of}: `{name}` is given twice")));
                }
                given.push((line, name, value));
                if !self.accept(',') {
                    break;
                }
            }
        }
        Ok(Attributes { source: self.source, of: of.to_owned(), line, given })
    }

    fn value(&mut self) -> Result<Value> {
        let line = self.line();
        match self.next()? {
            Word::Name(name) if name == "cvar" => self.random(line),
            Word::Name(text) | Word::Text(text) => Ok(Value::Text(self.with_variables(line, &text)?)),
            Word::Number(text) => match whole(&text) {
                Some(number) => Ok(Value::Amount(Amount::fixed(number))),
                None => {
                    Err(self.source.error(line, format_args!("`{text}` is not a number such as 16, 16k, 16m or 16g")))
                }
            },
            Word::Variable(name) => {
                let value = self.variables.get(&name).cloned();
                let value = value.ok_or_else(|| self.source.error(line, format_args!("${name} is not set")))?;
                // `$dir/below`: a path that begins with a variable.
                match (&value, self.peek()) {
                    (Value::Text(text), Some(Word::Name(rest))) if rest.starts_with('/') => {
                        let path = format!("{text}{rest}");
                        self.at += 1;
                        Ok(Value::Text(path))
                    }
                    _ => Ok(value),
                }
            }
            word => Err(self.source.error(line, format_args!("`{word}` is not a value"))),
        }
    }

    /// A text with the values of the variables in it.
    fn with_variables(&self, line: Line, text: &str) -> Result<String> {
        let Some(name) = text.strip_prefix('$') else { return Ok(text.to_owned()) };
        match self.variables.get(name) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => Err(self.source.error(line, format_args!("\"{text}\": no text is set for it"))),
        }
    }

    /// `cvar(type=cvar-gamma,parameters=mean:16384;gamma:1.5,min=0,max=99,round=8)`.
    fn random(&mut self, line: Line) -> Result<Value> {
        self.expect('(')?;
        let mut kind = String::new();
        let mut numbers: BTreeMap<String, f64> = BTreeMap::new();
        loop {
            let name = self.name("type, parameters, min, max or round")?;
            self.expect('=')?;
            match name.as_str() {
                "type" => kind = self.name("a type")?,
                "parameters" => loop {
                    let name = self.name("a parameter")?;
                    self.expect(':')?;
                    let number = self.fraction()?;
                    numbers.insert(name, number);
                    if !self.accept(';') {
                        break;
                    }
                },
                "min" | "max" | "round" => drop(numbers.insert(name.clone(), self.fraction()?)),
                _ => return Err(self.source.error(line, format_args!("cvar: `{name}` is not known or not supported"))),
            }
            if !self.accept(',') {
                break;
            }
        }
        self.expect(')')?;
        let mut number = |name: &str| numbers.remove(name);
        let bounds = (number("min"), number("max"), number("round"));
        let amount = match (kind.as_str(), number("mean"), number("gamma"), number("lower"), number("upper")) {
            ("cvar-gamma", Some(mean), Some(shape), None, None) if shape >= 1.0 => Amount::gamma(mean, shape),
            ("cvar-uniform", None, None, Some(low), Some(high)) if low <= high => Amount::uniform(low, high),
            _ => {
                let wanted = "cvar-gamma with mean and gamma (from 1 on), or cvar-uniform with lower and upper";
                return Err(self.source.error(line, format_args!("cvar: what is supported is {wanted}")));
            }
        };
        if let Some(name) = numbers.keys().next() {
            return Err(self
                .source
                .error(line, format_args!("cvar: parameter `{name}` is not known or not supported")));
        }
        Ok(Value::Amount(amount.within(bounds.0, bounds.1, bounds.2)))
    }

    fn fraction(&mut self) -> Result<f64> {
        let line = self.line();
        match self.next()? {
            Word::Number(text) if fraction(&text).is_some() => Ok(fraction(&text).unwrap_or_default()),
            word => Err(self.source.error(line, format_args!("cvar: `{word}` is not a number"))),
        }
    }
}

/// Two fixed numbers, and what a sign makes of them.
fn calculated(one: &Value, sign: char, other: &Value) -> Option<Value> {
    let (Value::Amount(one), Value::Amount(other)) = (one, other) else { return None };
    let (one, other) = (one.constant()?, other.constant()?);
    let number = match sign {
        '+' => one.checked_add(other),
        '-' => one.checked_sub(other),
        '*' => one.checked_mul(other),
        _ => one.checked_div(other),
    };
    number.map(|number| Value::Amount(Amount::fixed(number)))
}

//! Planting: a copy of the sources in which every bug has its switch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use basalt_random::Rng;
use serde::Deserialize;

use crate::edits::{Wrapping, apply};
use crate::kinds::{self, Site};
use crate::listed::{self, Listed};
use crate::mutant::Mutant;

/// What holds the promises: where bugs of the kinds are planted, unless options say where.
const ROOMS: [&str; 9] =
    ["file", "node", "recovery", "checkpoint", "journal", "clean", "log", "discard.rs", "closing.rs"];
/// Files in which positions are calculated.
const POSITIONS: [&str; 5] = ["/journal/", "/recovery/", "/log/", "seal", "fsync"];
/// The switches, as a module of `basalt-segments`, which the engine's crates share.
const SWITCHES: &str = r#"
/// Switches of planted bugs.
#[allow(missing_docs)]
pub mod planted {
    use std::sync::LazyLock;
    static NAME: LazyLock<String> = LazyLock::new(|| std::env::var("BASALT_PLANTED").unwrap_or_default());
    static NUMBER: LazyLock<u32> = LazyLock::new(|| NAME.parse().unwrap_or(0));
    #[inline]
    pub fn on(number: u32) -> bool { *NUMBER == number }
    pub fn is_on(name: &str) -> bool { *NAME == name }
}
"#;
/// How often what does not compile is left out before planting gives up.
const ATTEMPTS: u32 = 8;

/// What to plant, and where.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The copy of the sources, which is changed
    #[arg(long)]
    tree: PathBuf,
    /// A list of `cargo mutants --list --json`
    #[arg(long)]
    listed: Vec<PathBuf>,
    /// So many of the kinds that cargo-mutants does not know
    #[arg(long, default_value_t = 0)]
    kinds: usize,
    /// Chooses these
    #[arg(long, default_value_t = 0xddc2cf0)]
    seed: u64,
    /// Plant these in this file or directory alone, a path from the root of the tree; several times for several
    #[arg(long = "in", value_name = "PATH")]
    within: Vec<PathBuf>,
    /// A directory of patches, each with `planted::is_on("NAME")`; not together with the others
    #[arg(long, conflicts_with_all = ["listed", "kinds"])]
    patches: Option<PathBuf>,
    /// The list of what was planted
    #[arg(long)]
    output: PathBuf,
}

/// Plants, checks that all compile, and writes the list of those that do.
///
/// # Errors
/// In a line: a file that cannot be read or written, a patch that does not apply, an error of the compiler that is not a bug's.
pub fn plant(options: &Options) -> Result<(), String> {
    let mutants = match &options.patches {
        Some(directory) => {
            let mutants = patch(&options.tree, directory)?;
            switches(&options.tree)?;
            mutants
        }
        None => plant_switched(options)?,
    };
    write(&options.output, &serde_json::to_string_pretty(&mutants).map_err(|error| error.to_string())?)?;
    println!("{} bugs planted", mutants.len());
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Puts the switches into the tree.
fn switches(tree: &Path) -> Result<(), String> {
    let segments = tree.join("crates/segments/src/lib.rs");
    write(&segments, &(read(&segments)? + SWITCHES))?;
    let engine = tree.join("crates/f2fs/src/lib.rs");
    let module = "\n/// Switches of planted bugs.\npub mod planted {\n    pub use basalt_segments::planted::*;\n}\n";
    write(&engine, &(read(&engine)? + module))
}

/// Applies all patches.
fn patch(tree: &Path, directory: &Path) -> Result<Vec<Mutant>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut patches: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    let mut mutants = Vec::new();
    for path in patches {
        let applied =
            Command::new("patch").args(["-p1", "--no-backup-if-mismatch", "-i"]).arg(&path).current_dir(tree).output();
        let applied = applied.map_err(|error| format!("patch: {error}"))?;
        if !applied.status.success() {
            return Err(format!("{} does not apply: {}", path.display(), String::from_utf8_lossy(&applied.stdout)));
        }
        let text = read(&path)?;
        // Lines around may have the switch of another patch.
        let added = text.lines().filter(|line| line.starts_with('+'));
        let name =
            added.filter_map(|line| line.split("is_on(\"").nth(1)).next().and_then(|rest| rest.split('"').next());
        let name = name.ok_or_else(|| format!("{} has no switch `planted::is_on(\"NAME\")`", path.display()))?;
        let what = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        mutants.push(Mutant { name: name.into(), what });
    }
    Ok(mutants)
}

/// A bug and the file it is in.
struct Planted {
    mutant: Mutant,
    file: PathBuf,
    wrapping: Wrapping,
}

fn plant_switched(options: &Options) -> Result<Vec<Mutant>, String> {
    let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut all = Vec::new();
    for list in &options.listed {
        let listed: Vec<Listed> =
            serde_json::from_str(&read(list)?).map_err(|error| format!("{}: {error}", list.display()))?;
        for entry in listed {
            let text = source(&mut sources, &options.tree, Path::new(&entry.file))?;
            let number = all.len() as u32 + 1;
            let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", entry.file))?;
            match listed::wrap(&text, &file, &entry, &switch(number)) {
                Ok(wrapping) => all.push(Planted {
                    mutant: Mutant { name: number.to_string(), what: entry.name },
                    file: entry.file.into(),
                    wrapping,
                }),
                Err(why) => println!("left out, {why}: {}", entry.name),
            }
        }
    }
    let mut rng = Rng::new(options.seed);
    let mut sites = sites(&options.tree, &options.within, &mut sources)?;
    for _ in 0..options.kinds.min(sites.len()) {
        let (file, site) = sites.swap_remove(rng.index(sites.len()));
        let number = all.len() as u32 + 1;
        let what = format!("{}:{}: {}", file.display(), site.line, site.what);
        all.push(Planted { mutant: Mutant { name: number.to_string(), what }, file, wrapping: wrap(&site, number) });
    }
    switches(&options.tree)?;
    // What the switches' modules append does not move anything in front of it.
    for path in ["crates/segments/src/lib.rs", "crates/f2fs/src/lib.rs"] {
        sources.insert(path.into(), read(&options.tree.join(path))?);
    }
    keep_what_compiles(&options.tree, &sources, all)
}

fn switch(number: u32) -> String {
    format!("crate::planted::on({number})")
}

fn source(sources: &mut BTreeMap<PathBuf, String>, tree: &Path, file: &Path) -> Result<String, String> {
    if !sources.contains_key(file) {
        sources.insert(file.to_owned(), read(&tree.join(file))?);
    }
    Ok(sources[file].clone())
}

fn wrap(site: &Site, number: u32) -> Wrapping {
    let on = switch(number);
    let (before, after) = match (site.is_statement, site.instead.is_empty()) {
        (true, true) => (format!("if !{on} {{ "), " }"),
        (true, false) => (format!("if {on} {{ {} }} else {{ ", site.instead), " }"),
        _ => (format!("(if {on} {{ {} }} else {{ ", site.instead), " })"),
    };
    Wrapping { around: site.around.clone(), before, after: after.into() }
}

/// All places for bugs of the kinds within these paths, or, without any, where the promises are held; in the order of the files.
fn sites(
    tree: &Path,
    within: &[PathBuf],
    sources: &mut BTreeMap<PathBuf, String>,
) -> Result<Vec<(PathBuf, Site)>, String> {
    let mut files = BTreeSet::new();
    let usual = ROOMS.iter().map(|room| Path::new("crates/f2fs/src").join(room));
    let usual = usual.chain([PathBuf::from("crates/segments/src")]);
    let paths: Vec<PathBuf> = if within.is_empty() { usual.collect() } else { within.to_vec() };
    for path in paths {
        if !tree.join(&path).exists() {
            return Err(format!("{}: there is no such file", path.display()));
        }
        collect(tree, &path, &mut files);
    }
    let mut all = Vec::new();
    for path in files {
        let text = source(sources, tree, &path)?;
        let file = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let has_positions = POSITIONS.iter().any(|part| path.to_string_lossy().contains(part));
        all.extend(kinds::sites(&text, &file, has_positions).into_iter().map(|site| (path.clone(), site)));
    }
    Ok(all)
}

fn collect(tree: &Path, path: &Path, files: &mut BTreeSet<PathBuf>) {
    let here = tree.join(path);
    if here.is_dir() {
        for entry in std::fs::read_dir(&here).into_iter().flatten().flatten() {
            collect(tree, &path.join(entry.file_name()), files);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs")
        && path.file_stem().is_none_or(|stem| stem != "tests")
    {
        files.insert(path.to_owned());
    }
}

/// Writes the sources with all bugs; those that the compiler refuses are left out, and named.
fn keep_what_compiles(
    tree: &Path,
    sources: &BTreeMap<PathBuf, String>,
    mut all: Vec<Planted>,
) -> Result<Vec<Mutant>, String> {
    let mut kept: Vec<Planted> = Vec::new();
    for planted in all.drain(..) {
        let clashes = |other: &&Planted| other.file == planted.file && !other.wrapping.goes_with(&planted.wrapping);
        match kept.iter().find(clashes) {
            Some(other) => println!("left out, it overlaps {}: {}", other.mutant.name, planted.mutant.what),
            None => kept.push(planted),
        }
    }
    for _ in 0..ATTEMPTS {
        for (file, text) in sources {
            let here: Vec<Wrapping> =
                kept.iter().filter(|planted| planted.file == *file).map(|planted| planted.wrapping.clone()).collect();
            write(&tree.join(file), &apply(text, &here))?;
        }
        let refused = refused(tree)?;
        if refused.is_empty() {
            return Ok(kept.into_iter().map(|planted| planted.mutant).collect());
        }
        kept.retain(|planted| {
            let is_refused = refused.contains(&planted.mutant.name);
            if is_refused {
                println!("left out, it does not compile: {}", planted.mutant.what);
            }
            !is_refused
        });
    }
    Err("what is planted does not compile".into())
}

/// A message of the compiler.
#[derive(Debug, Deserialize)]
struct Told {
    message: Option<Message>,
}

#[derive(Debug, Deserialize)]
struct Message {
    level: String,
    message: String,
    spans: Vec<MessageSpan>,
}

#[derive(Debug, Deserialize)]
struct MessageSpan {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
}

/// The bugs that the compiler refuses.
fn refused(tree: &Path) -> Result<BTreeSet<String>, String> {
    let mut check = Command::new("cargo");
    check.args(["check", "--message-format=json", "--keep-going", "-p", "basalt-segments", "-p", "basalt-f2fs"]);
    let told = check
        .env("RUSTFLAGS", "--cap-lints=allow")
        .current_dir(tree)
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let mut refused = BTreeSet::new();
    let mut others = Vec::new();
    for line in String::from_utf8_lossy(&told.stdout).lines() {
        let Ok(Told { message: Some(message) }) = serde_json::from_str::<Told>(line) else { continue };
        if message.level != "error" {
            continue;
        }
        let names: Vec<String> = message.spans.iter().filter_map(|span| blamed(tree, span)).collect();
        if names.is_empty() {
            others.push(message.message);
        }
        refused.extend(names);
    }
    if refused.is_empty() && !told.status.success() {
        return Err(format!("the compiler refuses what is not planted: {}", others.join("; ")));
    }
    Ok(refused)
}

/// The bug at this place: the nearest switch, in front of the place or within it.
fn blamed(tree: &Path, span: &MessageSpan) -> Option<String> {
    let text = std::fs::read_to_string(tree.join(&span.file_name)).ok()?;
    const SWITCH: &str = "crate::planted::on(";
    let (before, within) = (&text[..span.byte_start], &text[span.byte_start..span.byte_end]);
    let number = |at: &str| at.split(')').next().map(str::to_owned);
    if let Some(place) = within.find(SWITCH) {
        return number(&within[place + SWITCH.len()..]);
    }
    let place = before.rfind(SWITCH).filter(|place| before.len() - place < 2_000)?;
    number(&before[place + SWITCH.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_testkit::{scratch, skip::tools_or_skip};

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => copy(&entry.path(), &to),
                false => _ = std::fs::copy(entry.path(), to).unwrap(),
            }
        }
    }

    /// They are written against sources that change: what no longer applies has to be written anew.
    #[test]
    fn the_mistakes_of_linux_can_be_planted() {
        if !tools_or_skip(&["patch"]) {
            return;
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tree = scratch::directory().unwrap();
        let sources = ["crates/f2fs/src", "crates/segments/src"];
        sources.iter().for_each(|part| copy(&workspace.join(part), &tree.path().join(part)));
        let planted = patch(tree.path(), &workspace.join("crates/mutants/linux")).unwrap();
        assert!(planted.len() > 40, "{}", planted.len());
        let names: BTreeSet<_> = planted.iter().map(|mutant| &mutant.name).collect();
        assert_eq!(names.len(), planted.len());
    }
}

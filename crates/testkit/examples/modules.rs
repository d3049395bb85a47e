//! Draws the modules of the F2FS engine from what they call: `cargo run -p basalt-testkit --example modules`.
//!
//! `--dot` draws for Graphviz, `--files` says which calls make each line, `--circles` which make a circle of files, `--check` compares all
//! with `crates/f2fs/modules.toml`. It fails if a module calls one of a higher layer and the file does not list that call, or if the largest
//! circle of files has another size.
//!
//! A method call needs no import, so imports alone hide most of what a module leans on. Here a call counts if the engine has methods
//! of that name in one file only, or if the receiver tells the type: `self`, `volume`, `fs`, `state`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Deserialize;
use syn::punctuated::Punctuated;
use syn::visit::Visit;

/// Names that the standard library's types have too: who calls them is not known without types.
const COMMON: [&str; 51] = [
    "and",
    "as_bytes",
    "attributes",
    "bytes",
    "capacity",
    "clear",
    "contains",
    "copy",
    "drop",
    "entries",
    "extend",
    "find",
    "first",
    "flush",
    "free_segments",
    "get",
    "get_mut",
    "insert",
    "is_empty",
    "is_newer",
    "is_node",
    "is_on",
    "iter",
    "kind",
    "last",
    "len",
    "list",
    "lock",
    "log",
    "map",
    "max",
    "min",
    "name",
    "new",
    "next",
    "open",
    "pop",
    "position",
    "push",
    "read",
    "read_at",
    "remove",
    "seek",
    "segments",
    "size",
    "slot",
    "state",
    "statistics",
    "take",
    "truncate",
    "write",
];

#[derive(Parser)]
struct Args {
    /// Draw for Graphviz
    #[arg(long)]
    dot: bool,
    /// Say which calls make each line
    #[arg(long)]
    files: bool,
    /// Say which files lean on one another in a circle, and by which calls
    #[arg(long)]
    circles: bool,
    /// Fail where a module calls a higher one, or a circle of files has grown
    #[arg(long)]
    check: bool,
}

/// What `modules.toml` holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    /// Modules, and files that lie apart from their module (`"node/cache"`), from the highest layer to the lowest.
    layers: Vec<Vec<String>>,
    /// Calls of higher layers that there still are: `"node -> file"`.
    climbs: BTreeSet<String>,
    /// Files in the largest circle.
    circle: usize,
}

impl Rules {
    fn read(engine: &Path) -> Result<Rules, Box<dyn Error>> {
        Ok(toml::from_str(&std::fs::read_to_string(engine.join("modules.toml"))?)?)
    }

    /// The layer of a module, counted from the highest.
    fn layer(&self, name: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.iter().any(|one| one == name))
    }
}

/// One file's part: what it defines, and what it calls.
#[derive(Default)]
struct Unit {
    /// Type and name of methods; the type is empty for functions.
    defines: BTreeSet<(String, String)>,
    /// Type, if it is known, and name of what is called.
    calls: BTreeSet<(Option<String>, String)>,
    /// Paths of modules as they are written: from the crate, from the module above, or from this one.
    paths: BTreeSet<Vec<String>>,
    /// The type whose methods are being read.
    of: Option<String>,
}

impl Unit {
    fn read(text: &str) -> syn::Result<Unit> {
        let mut unit = Unit::default();
        unit.visit_file(&syn::parse_file(text)?);
        Ok(unit)
    }
}

/// Whether this is compiled for tests alone: `cfg(test)`, or `cfg(all(test, …))`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    let is_named = |meta: &syn::Meta| meta.path().is_ident("test");
    let is_all = |list: &syn::MetaList| list.path.is_ident("all");
    let parts = |list: &syn::MetaList| list.parse_args_with(Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated);
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|one| match one.parse_args::<syn::Meta>() {
        Ok(syn::Meta::List(list)) if is_all(&list) => parts(&list).is_ok_and(|parts| parts.iter().any(is_named)),
        other => other.is_ok_and(|meta| is_named(&meta)),
    })
}

fn last_of(kind: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = kind else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

/// The type that a receiver of this name always has.
fn type_of(name: &str) -> Option<&'static str> {
    match name {
        "volume" => Some("Volume"),
        "fs" => Some("F2fs"),
        "state" => Some("State"),
        _ => None,
    }
}

impl Visit<'_> for Unit {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.defines.insert((String::new(), item.sig.ident.to_string()));
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        let before = std::mem::replace(&mut self.of, last_of(&item.self_ty));
        // A trait's method says nothing about whose it is.
        if let (Some(of), None) = (&self.of, &item.trait_) {
            let methods = item.items.iter().filter_map(|one| match one {
                syn::ImplItem::Fn(method) => Some((of.clone(), method.sig.ident.to_string())),
                _ => None,
            });
            self.defines.extend(methods);
        }
        syn::visit::visit_item_impl(self, item);
        self.of = before;
    }

    fn visit_expr_method_call(&mut self, call: &syn::ExprMethodCall) {
        let receiver = match &*call.receiver {
            syn::Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            syn::Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => Some(name.to_string()).filter(|name| type_of(name).is_some()),
                syn::Member::Unnamed(_) => None,
            },
            _ => None,
        };
        let of = match receiver.as_deref() {
            Some("self") => self.of.clone(),
            Some(name) => type_of(name).map(str::to_owned),
            None => None,
        };
        self.calls.insert((of, call.method.to_string()));
        syn::visit::visit_expr_method_call(self, call);
    }

    /// Who may see it says nothing about what it leans on.
    fn visit_visibility(&mut self, _: &syn::Visibility) {}

    fn visit_path(&mut self, path: &syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if let [.., of, name] = &segments[..] {
            let of = if of == "Self" { self.of.clone().unwrap_or_default() } else { of.clone() };
            self.calls.insert((Some(of), name.clone()));
        }
        if segments.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str())) {
            self.paths.insert(segments);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        let mut open = vec![(Vec::new(), &item.tree)];
        while let Some((mut path, tree)) = open.pop() {
            match tree {
                syn::UseTree::Path(one) => {
                    path.push(one.ident.to_string());
                    open.push((path, &*one.tree));
                }
                syn::UseTree::Group(group) => open.extend(group.items.iter().map(|one| (path.clone(), one))),
                syn::UseTree::Name(_) | syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {
                    self.paths.insert(path);
                }
            }
        }
    }
}

/// The module of a file: itself if it has a layer of its own, else its first directory.
fn module<'a>(file: &'a str, rules: &Rules) -> &'a str {
    let own = file.trim_end_matches(".rs");
    if rules.layer(own).is_some() { own } else { own.split('/').next().unwrap_or(own) }
}

/// All files of the engine, by their path below `src`.
fn units(source: &Path) -> Result<BTreeMap<String, Unit>, Box<dyn Error>> {
    let mut units = BTreeMap::new();
    let mut open: Vec<PathBuf> = vec![source.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            // The crate's head names all modules, and tests may call whatever they like.
            let is_left_out = ["lib.rs", "tests.rs"].iter().any(|name| path.ends_with(name));
            if path.extension().is_some_and(|extension| extension == "rs") && !is_left_out {
                let name = path.strip_prefix(source)?.to_string_lossy().into_owned();
                let unit = Unit::read(&std::fs::read_to_string(&path)?).map_err(|error| format!("{name}: {error}"))?;
                units.insert(name, unit);
            }
        }
    }
    Ok(units)
}

/// The file that a path of modules, written in `file`, leads to, as far as it goes.
fn file_of(units: &BTreeMap<String, Unit>, file: &str, path: &[String]) -> Option<String> {
    let mut own: Vec<&str> = file.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect();
    let mut rest = path;
    let start = match path.first()?.as_str() {
        "crate" => 0,
        "super" => own.len() - 1,
        _ => own.len(),
    };
    own.truncate(start);
    if ["crate", "super", "self"].contains(&path[0].as_str()) {
        rest = &path[1..];
    }
    let path: Vec<&str> = own.into_iter().chain(rest.iter().map(String::as_str)).collect();
    (1..=path.len()).rev().find_map(|length| {
        let stem = path[..length].join("/");
        [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|name| units.contains_key(name))
    })
}

/// Which file leans on which, and by what.
fn lines(units: &BTreeMap<String, Unit>) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut by_name: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut by_type: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (file, unit) in units {
        for (of, name) in unit.defines.iter().filter(|(of, _)| !of.is_empty()) {
            by_name.entry(name).or_default().insert(file);
            by_type.insert((of, name), file);
        }
    }
    let mut lines: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut lean = |from: &str, to: &str, by: &str| {
        if from != to {
            lines.entry((from.to_owned(), to.to_owned())).or_default().insert(by.to_owned());
        }
    };
    for (file, unit) in units {
        for (of, name) in &unit.calls {
            let known = of.as_deref().and_then(|of| by_type.get(&(of, name.as_str())));
            let only = by_name
                .get(name.as_str())
                .filter(|files| of.is_none() && files.len() == 1 && !COMMON.contains(&name.as_str()));
            if let Some(to) = known.or_else(|| only.and_then(|files| files.first())) {
                lean(file, to, name);
            }
        }
        for path in &unit.paths {
            if let Some(to) = file_of(units, file, path) {
                lean(file, &to, &path.join("::"));
            }
        }
    }
    lines
}

/// The sets of files each of which leans on every other, over however many; the largest first.
fn circles(files: &[&str], lines: &BTreeMap<(String, String), BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |start: &str, forth: bool| {
        let mut seen = BTreeSet::from([start.to_owned()]);
        let mut open = vec![start.to_owned()];
        while let Some(at) = open.pop() {
            for (from, to) in lines.keys() {
                let (here, there) = if forth { (from, to) } else { (to, from) };
                if *here == at && seen.insert(there.clone()) {
                    open.push(there.clone());
                }
            }
        }
        seen
    };
    let mut left: BTreeSet<&str> = files.iter().copied().collect();
    let mut circles = Vec::new();
    while let Some(start) = left.pop_first() {
        let behind = reach(start, false);
        let circle: Vec<String> = reach(start, true).into_iter().filter(|file| behind.contains(file)).collect();
        left.retain(|file| !circle.iter().any(|one| one == file));
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../f2fs");
    let units = units(&engine.join("src"))?;
    let lines = lines(&units);
    let rules = Rules::read(&engine)?;
    let mut modules: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    for ((from, to), by) in &lines {
        let (one, other) = (module(from, &rules), module(to, &rules));
        if one != other {
            let by = by.iter().map(|what| format!("{from} -> {to}: {what}"));
            modules.entry((one, other)).or_default().extend(by);
        }
    }
    let files: Vec<&str> = units.keys().map(String::as_str).collect();
    let circles = circles(&files, &lines);
    let circle = circles.first().cloned().unwrap_or_default();
    if args.check {
        return check(&rules, &modules, &circle, &files);
    }
    if args.circles {
        for circle in &circles {
            println!("{} files", circle.len());
            for ((from, to), by) in lines.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
            {
                println!("    {from} -> {to}: {}", by.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
            }
        }
        return Ok(());
    }
    if args.dot {
        println!("digraph modules {{");
        modules.keys().for_each(|(from, to)| println!("  \"{from}\" -> \"{to}\";"));
        println!("}}");
        return Ok(());
    }
    for ((from, to), by) in &modules {
        println!("{from} -> {to} ({})", by.len());
        by.iter().filter(|_| args.files).for_each(|line| println!("    {line}"));
    }
    println!("largest circle: {} of {} files: {}", circle.len(), files.len(), circle.join(", "));
    Ok(())
}

fn check(
    rules: &Rules,
    modules: &BTreeMap<(&str, &str), BTreeSet<String>>,
    circle: &[String],
    files: &[&str],
) -> Result<(), Box<dyn Error>> {
    let layer = |name: &str| rules.layer(name);
    let mut wrong = Vec::new();
    let unknown: BTreeSet<&str> =
        files.iter().map(|file| module(file, rules)).filter(|name| layer(name).is_none()).collect();
    wrong.extend(unknown.into_iter().map(|name| format!("{name}: has no layer")));
    let climbs: BTreeMap<String, &BTreeSet<String>> = modules
        .iter()
        .filter(|((from, to), _)| layer(from) > layer(to))
        .map(|((from, to), by)| (format!("{from} -> {to}"), by))
        .collect();
    for (climb, by) in climbs.iter().filter(|(climb, _)| !rules.climbs.contains(*climb)) {
        let by: Vec<&str> = by.iter().map(String::as_str).collect();
        wrong.push(format!("{climb}: a lower module calls a higher one: {}", by.join("; ")));
    }
    let gone = rules.climbs.iter().filter(|climb| !climbs.contains_key(*climb));
    wrong.extend(gone.map(|climb| format!("{climb}: is no more: take it out of modules.toml")));
    if circle.len() != rules.circle {
        wrong.push(format!(
            "the largest circle has {} files, modules.toml says {}: {}",
            circle.len(),
            rules.circle,
            circle.join(", ")
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

//! Dependencies are what `deny.toml` allows: their licences, their versions, and where they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Whether a licence expression can be met with the licences that are allowed: enough of SPDX for what crates write.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let plain = expression.replace(['(', ')'], "").replace(" / ", " OR ").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.contains(licence.trim())))
}

fn packages() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform"]);
    let output = command.arg("x86_64-unknown-linux-gnu").current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn rules() -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

#[test]
fn licences_are_allowed() {
    let rules = rules();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: BTreeSet<String> = allowed.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence, &allowed), "{} has licence {licence:?}: not in deny.toml", package["name"]);
    }
}

#[test]
fn licence_expressions() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Unicode-3.0".to_owned()]);
    for expression in ["MIT", "MIT/Apache-2.0", "GPL-2.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-2.0", "MIT AND GPL-2.0", "Apache-2.0/GPL-2.0"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

#[test]
fn nothing_comes_in_several_versions_that_need_not() {
    let rules = rules();
    let skipped = rules["bans"]["skip"].as_array().unwrap();
    let mut skipped: BTreeSet<&str> = skipped.iter().map(|skip| skip["crate"].as_str().unwrap()).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let text = |field: &str| package[field].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        assert!(skipped.remove(name.as_str()), "{name} comes as {versions:?}: align them, or say why in deny.toml");
    }
    assert!(skipped.is_empty(), "{skipped:?} come in one version now: take them out of deny.toml");
}

#[test]
fn everything_comes_from_the_registry() {
    for package in packages() {
        let source = package["source"].as_str();
        let is_known =
            source.is_none_or(|source| source.starts_with("registry+https://github.com/rust-lang/crates.io"));
        assert!(is_known, "{} comes from {source:?}", package["name"]);
    }
}

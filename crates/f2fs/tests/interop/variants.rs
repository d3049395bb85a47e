//! Every kind of volume that both write: whoever made and filled it, the other reads the same, writes it, and the first reads
//! that.

use std::path::{Path, PathBuf};

use basalt_f2fs::format::FormatOptions;
use basalt_f2fs::layout::superblock::Features;
use basalt_testkit::images::{TOOLS, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::tree::{TreeOptions, build_random_tree};
use basalt_testkit::variants::{VARIANTS, Variant};
use basalt_testkit::{Manifest, Uml, scratch};

use crate::changes::change;
use crate::copying::copy_tree;
use crate::guest::{self, Visit};
use crate::listing::manifest;
use crate::volumes::{close, expect_clean, make, open};

const TREE: &str = "files=100,directories=10,crowded=250,max-size=120000";
const OPERATIONS: u32 = 150;
const MAX_SIZE: u32 = 40_000;

/// Disks of one machine.
const FLEET: usize = 12;

#[test]
fn made_and_filled_by_linux_1() {
    made_and_filled_by_linux(0);
}

#[test]
fn made_and_filled_by_linux_2() {
    made_and_filled_by_linux(1);
}

fn made_and_filled_by_linux(part: usize) {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let shared: Vec<&Variant> = VARIANTS.iter().filter(|variant| variant.is_shared()).collect();
    assert!(shared.len() > FLEET && shared.len() <= 2 * FLEET);
    let directory = scratch::directory().unwrap();
    let mut images = Vec::new();
    for variant in shared.into_iter().skip(part * FLEET).take(FLEET) {
        let image = directory.path().join(format!("{}.img", variant.name));
        mkfs_f2fs(&image, variant.size(), variant.arguments).unwrap();
        images.push(image);
    }
    let fill = |(number, image): (usize, &PathBuf)| {
        let build = format!("$TESTKIT build $MNT {number} {TREE}");
        Visit::new(image, format!("{build}; {}", guest::mutate_and_record(image, 7, OPERATIONS, MAX_SIZE)))
    };
    let visits: Vec<Visit> = images.iter().enumerate().map(fill).collect();
    guest::visit(uml.clone(), &visits);
    back_and_forth(&uml, &images);
}

#[test]
fn made_and_filled_by_basalt() {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let directory = scratch::directory().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let options: TreeOptions = TREE.parse().unwrap();
    build_random_tree(&tree, 11, &options).unwrap();
    let expected = Manifest::of(&tree).unwrap();
    let images: Vec<PathBuf> = kinds()
        .into_iter()
        .map(|(name, options)| {
            let image = directory.path().join(format!("{name}.img"));
            make(&image, 256 << 20, &options);
            let fs = open(&image);
            copy_tree(&fs, &tree);
            expect_copied(&expected, &manifest(&fs), &format!("{name}: the host and Basalt, which copied it"));
            close(fs);
            expect_clean(&image, "filled by Basalt");
            image
        })
        .collect();
    let visits: Vec<Visit> = images.iter().map(|image| Visit::new(image, guest::record(image))).collect();
    guest::visit(uml.clone(), &visits);
    for image in &images {
        expect_copied(&expected, &guest::manifest(image), &format!("{}: the host and Linux", image.display()));
    }
    let change = |image: &PathBuf| Visit::new(image, guest::mutate_and_record(image, 5, OPERATIONS, MAX_SIZE));
    let visits: Vec<Visit> = images.iter().map(change).collect();
    guest::visit(uml.clone(), &visits);
    back_and_forth(&uml, &images);
}

/// Everything is equal but the root's link count, which the volume's own lost+found adds to.
fn expect_copied(expected: &Manifest, found: &Manifest, context: &str) {
    let mut found = found.clone();
    found.entries.get_mut(b".".as_slice()).unwrap().links = expected.entries[b".".as_slice()].links;
    expected.expect_same(&found, context);
}

/// The kinds of volume that Basalt makes.
fn kinds() -> Vec<(&'static str, FormatOptions)> {
    let base = FormatOptions::default();
    let features = |features| FormatOptions { features, ..base.clone() };
    vec![
        ("default", base.clone()),
        ("boot", features(Features::empty())),
        ("every-feature", features(FormatOptions::POSSIBLE_FEATURES - Features::COMPRESSION)),
        ("label", FormatOptions { label: "Größe".into(), ..base.clone() }),
        ("sections-4", FormatOptions { segments_per_section: 4, ..base.clone() }),
        ("overprovision-10", FormatOptions { overprovision_percent: Some(10.0), ..base }),
    ]
}

/// Basalt reads what Linux saw, changes it; Linux reads what Basalt saw, changes it; Basalt reads that.
fn back_and_forth(uml: &Uml, images: &[PathBuf]) {
    let written: Vec<Manifest> = images.iter().enumerate().map(|(seed, image)| read_and_change(image, seed)).collect();
    let visits: Vec<Visit> = images.iter().map(|image| Visit::new(image, guest::record(image))).collect();
    guest::visit(uml.clone(), &visits);
    for (image, written) in images.iter().zip(&written) {
        written.expect_same(&guest::manifest(image), &format!("{}: Basalt, then Linux", image.display()));
    }
    let change = |image: &PathBuf| Visit::new(image, guest::mutate_and_record(image, 8, OPERATIONS, MAX_SIZE));
    let visits: Vec<Visit> = images.iter().map(change).collect();
    guest::visit(uml.clone(), &visits);
    for image in images {
        expect_clean(image, "written by Basalt, then by Linux");
        let fs = open(image);
        let context = format!("{}: Linux, then Basalt", image.display());
        guest::manifest(image).expect_same(&manifest(&fs), &context);
        close(fs);
    }
}

fn read_and_change(image: &Path, seed: usize) -> Manifest {
    let name = image.display();
    let fs = open(image);
    guest::manifest(image).expect_same(&manifest(&fs), &format!("{name}: filled by Linux, read by Basalt"));
    change(&fs, seed as u64, OPERATIONS, u64::from(MAX_SIZE));
    let written = manifest(&fs);
    close(fs);
    expect_clean(image, "changed by Basalt");
    written.expect_same(&manifest(&open(image)), &format!("{name}: Basalt, then Basalt again"));
    written
}

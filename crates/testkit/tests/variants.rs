//! Linux does with every kind of volume what the table says, and fsck finds nothing wrong afterwards.

use std::path::Path;

use basalt_testkit::images::{TOOLS, fsck_f2fs, mkfs_f2fs};
use basalt_testkit::skip::tools_or_skip;
use basalt_testkit::variants::{Access, VARIANTS, Variant};
use basalt_testkit::{Manifest, Uml, scratch};

const TREE: &str = "files=60,directories=6,crowded=150,max-size=60000";

#[test]
fn linux_does_what_the_first_half_of_the_table_says() {
    let (first, _) = VARIANTS.split_at(VARIANTS.len() / 2);
    check(first);
}

#[test]
fn linux_does_what_the_second_half_of_the_table_says() {
    let (_, second) = VARIANTS.split_at(VARIANTS.len() / 2);
    check(second);
}

/// `try NAME DEVICE TREE` says what Linux does with a volume. mount(8) itself turns to read-only when it must.
const FUNCTION: &str = r#"
mkdir /run/mnt
try() {
    mount -t f2fs $2 /run/mnt 2> /dev/null || { echo $1 Refuses; return; }
    touch /run/mnt 2> /dev/null || { echo $1 ReadsOnly; umount /run/mnt; return; }
    mkdir /run/mnt/tree &&
        $TESTKIT build /run/mnt/tree 5 $3 &&
        $TESTKIT mutate /run/mnt/tree 6 100 30000 > /dev/null &&
        $TESTKIT manifest /run/mnt/tree > $place/$1.first &&
        umount /run/mnt &&
        mount -t f2fs $2 /run/mnt &&
        $TESTKIT manifest /run/mnt/tree > $place/$1.second &&
        echo $1 Writes
    umount /run/mnt
}
"#;

/// One boot for many volumes, of which a machine can have sixteen: each is mounted, filled, mounted again and compared.
fn check(variants: &[Variant]) {
    let Some(uml) = Uml::new_or_skip() else { return };
    if !tools_or_skip(TOOLS) {
        return;
    }
    let mut uml = uml.quota();
    let directory = scratch::directory().unwrap();
    let image = |variant: &Variant| directory.path().join(format!("{}.img", variant.name));
    let mut script = format!("place={}\n{FUNCTION}", directory.path().display());
    for (variant, letter) in variants.iter().zip('a'..) {
        mkfs_f2fs(&image(variant), variant.size(), variant.arguments).unwrap();
        uml = uml.image(image(variant));
        script.push_str(&format!("try {} /dev/ubd{letter} {TREE}\n", variant.name));
    }
    let result = uml.run_script(&script).unwrap();
    for variant in variants {
        let expected = format!("{} {:?}\n", variant.name, variant.linux);
        assert!(result.output.contains(&expected), "{expected}{result}\n{}", result.kernel_log);
        if variant.linux == Access::Writes {
            let first = manifest(directory.path(), variant, "first");
            assert!(first.entries.len() > 150);
            first.expect_same(&manifest(directory.path(), variant, "second"), variant.name);
        }
        let report = fsck_f2fs(&image(variant)).unwrap();
        assert!(report.is_clean(), "{}: {report}", variant.name);
    }
}

fn manifest(directory: &Path, variant: &Variant, which: &str) -> Manifest {
    let path = directory.join(format!("{}.{which}", variant.name));
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

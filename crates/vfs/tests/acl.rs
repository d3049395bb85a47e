//! ACLs: the examples of acl(5), both encodings, what is refused, and Linux itself as the judge where the test runs on a
//! file system with ACLs.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use basalt_vfs::acl::{Acl, Entry, Inherited, Who};
use basalt_vfs::{Error, ErrorKind};
use proptest::prelude::*;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

const LISA: Who = Who::User(1000);
const TOOLIES: Who = Who::Group(2000);

fn acl(entries: &[(Who, u16)]) -> Acl {
    Acl::new(entries_of(entries)).unwrap()
}

fn entries_of(entries: &[(Who, u16)]) -> Vec<Entry> {
    entries.iter().map(|&(who, permissions)| Entry { who, permissions }).collect()
}

/// The example of acl(5), "ACL text forms": u::rw- u:lisa:rw- g::r-- g:toolies:rw- m::r-- o::r--
fn example() -> Acl {
    acl(&[(Who::Owner, 6), (LISA, 6), (Who::OwningGroup, 4), (TOOLIES, 6), (Who::Mask, 4), (Who::Other, 4)])
}

#[test]
fn the_example_in_both_encodings() {
    let xattr = [
        2, 0, 0, 0, // version
        1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // owner
        2, 0, 6, 0, 0xe8, 3, 0, 0, // lisa
        4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, // owning group
        8, 0, 6, 0, 0xd0, 7, 0, 0, // toolies
        16, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, // mask
        32, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, // others
    ];
    let compact = [
        1, 0, 0, 0, // version
        1, 0, 6, 0, // owner
        2, 0, 6, 0, 0xe8, 3, 0, 0, // lisa
        4, 0, 4, 0, // owning group
        8, 0, 6, 0, 0xd0, 7, 0, 0, // toolies
        16, 0, 4, 0, // mask
        32, 0, 4, 0, // others
    ];
    assert_eq!(example().to_xattr(), xattr);
    assert_eq!(Acl::parse(&xattr).unwrap(), example());
    assert_eq!(example().to_compact(), compact);
    assert_eq!(Acl::from_compact(&compact).unwrap(), example());
    // Ids of entries that name nobody do not count.
    let mut other_ids = xattr;
    other_ids[8] = 0;
    other_ids[48] = 7;
    assert_eq!(Acl::parse(&other_ids).unwrap(), example());
}

#[test]
fn permission_bits() {
    let minimal = acl(&[(Who::Owner, 6), (Who::OwningGroup, 4), (Who::Other, 0)]);
    let masked = acl(&[(Who::Owner, 7), (Who::OwningGroup, 7), (Who::Mask, 5), (Who::Other, 1)]);
    for (acl, permissions, equivalent) in
        [(minimal, 0o640, Some(0o640)), (example(), 0o644, None), (masked, 0o751, None)]
    {
        assert_eq!(acl.permissions(), permissions, "{acl:?}");
        assert_eq!(acl.equivalent_mode(), equivalent, "{acl:?}");
    }
    assert_eq!(Acl::from_mode(0o104_751), acl(&[(Who::Owner, 7), (Who::OwningGroup, 5), (Who::Other, 1)]));
}

#[test]
fn chmod_changes_the_mask_where_there_is_one() {
    let mut changed = example();
    changed.chmod(0o100_710);
    let expected = [(Who::Owner, 7), (LISA, 6), (Who::OwningGroup, 4), (TOOLIES, 6), (Who::Mask, 1), (Who::Other, 0)];
    assert_eq!(changed, acl(&expected));
    let mut changed = Acl::from_mode(0o644);
    changed.chmod(0o751);
    assert_eq!(changed, Acl::from_mode(0o751));
}

#[test]
fn inheritance() {
    // acl(5), "Object creation and default ACLs": the default ACL, less what is not asked for.
    let default = example();
    let inherited = Acl::inherit(&default, 0o100_666, false);
    assert_eq!(inherited, Inherited { access: Some(default.clone()), default: None, mode: 0o100_644 });

    let inherited = Acl::inherit(&default, 0o042_710, true);
    let access = [(Who::Owner, 6), (LISA, 6), (Who::OwningGroup, 4), (TOOLIES, 6), (Who::Mask, 0), (Who::Other, 0)];
    let expected = Inherited { access: Some(acl(&access)), default: Some(default), mode: 0o042_600 };
    assert_eq!(inherited, expected);

    // A default ACL that says no more than a mode bounds the mode, and leaves no access ACL.
    let default = Acl::from_mode(0o750);
    let inherited = Acl::inherit(&default, 0o100_666, false);
    assert_eq!(inherited, Inherited { access: None, default: None, mode: 0o100_640 });
}

#[test]
fn what_is_no_acl() {
    let (owner, group, other, mask) = ((Who::Owner, 7), (Who::OwningGroup, 5), (Who::Other, 5), (Who::Mask, 7));
    for bad in [
        &[][..],
        &[owner, group],
        &[owner, other],
        &[group, other],
        &[owner, group, other, other],
        &[owner, owner, group, other],
        &[owner, group, mask, mask, other],
        &[group, owner, other],
        &[owner, group, other, mask],
        &[owner, (LISA, 4), group, other],
        &[owner, group, (TOOLIES, 4), other],
        &[owner, group, (LISA, 4), mask, other],
        &[owner, (TOOLIES, 4), group, mask, other],
        &[owner, group, (Who::Group(u32::MAX), 4), mask, other],
        &[owner, (Who::User(u32::MAX), 4), group, mask, other],
        &[owner, group, (Who::Other, 8)],
        &[(Who::Owner, 0x8001), group, other],
    ] {
        assert!(matches!(Acl::new(entries_of(bad)), Err(Error::Invalid(_))), "{bad:?}");
    }
    // Linux accepts the same user twice, and a mask that bounds nobody.
    acl(&[owner, (LISA, 4), (LISA, 6), group, mask, other]);
    acl(&[owner, group, mask, other]);
}

#[test]
fn what_is_no_encoding() {
    let xattr = example().to_xattr();
    for length in 0..xattr.len() {
        assert!(matches!(Acl::parse(&xattr[..length]), Err(Error::Invalid(_))), "{length} bytes");
    }
    let compact = example().to_compact();
    for length in 0..compact.len() {
        assert!(matches!(Acl::from_compact(&compact[..length]), Err(Error::Corrupted(_))), "{length} bytes");
    }
    assert!(matches!(Acl::parse(&compact), Err(Error::NotSupported(_))));
    assert!(matches!(Acl::from_compact(&xattr), Err(Error::Corrupted(_))));
    let mut unknown_tag = compact;
    unknown_tag[4] = 3;
    assert!(matches!(Acl::from_compact(&unknown_tag), Err(Error::Corrupted(_))));
    assert!(Acl::xattr_means_removal(&[2, 0, 0, 0]));
    assert!(Acl::xattr_means_removal(&[]));
    for not in [&[1, 0, 0, 0][..], &[2, 0, 0], &xattr] {
        assert!(!Acl::xattr_means_removal(not));
    }
}

/// Any valid ACL with up to six named users and groups.
fn any_acl() -> impl Strategy<Value = Acl> {
    let named = || prop::collection::vec((0..u32::MAX, 0..8_u16), 0..4);
    let always = prop::array::uniform3(0..8_u16);
    (always, named(), named(), prop::option::of(0..8_u16)).prop_map(|([owner, group, other], users, groups, mask)| {
        let mask = mask.or((users.len() + groups.len() > 0).then_some(5));
        let mut entries = vec![(Who::Owner, owner)];
        entries.extend(users.into_iter().map(|(id, permissions)| (Who::User(id), permissions)));
        entries.push((Who::OwningGroup, group));
        entries.extend(groups.into_iter().map(|(id, permissions)| (Who::Group(id), permissions)));
        entries.extend(mask.map(|permissions| (Who::Mask, permissions)));
        entries.push((Who::Other, other));
        acl(&entries)
    })
}

/// Entries that are nearly an ACL, in the xattr encoding.
fn nearly_an_acl() -> impl Strategy<Value = Vec<u8>> {
    let damage = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5_u8);
    (any_acl(), damage, prop::sample::select(vec![0_u8, 1, 2, 4, 7, 8, 16, 32, 255])).prop_map(
        |(acl, (at, other, kind), byte)| {
            let mut xattr = acl.to_xattr();
            let (at, other) = (at.index(xattr.len()), other.index(xattr.len()));
            let count = acl.entries().len();
            let entry = |index: usize| 4 + index % count * 8;
            match kind {
                0 => xattr[at] = byte,
                1 => xattr[entry(at)] = byte,
                2 => (0..8).for_each(|i| xattr.swap(entry(at) + i, entry(other) + i)),
                3 => drop(xattr.drain(entry(at)..entry(at) + 8)),
                _ => xattr.truncate(at),
            }
            xattr
        },
    )
}

proptest! {
    #[test]
    fn both_encodings_give_back_the_acl(acl in any_acl()) {
        prop_assert_eq!(&Acl::parse(&acl.to_xattr()).unwrap(), &acl);
        prop_assert_eq!(&Acl::from_compact(&acl.to_compact()).unwrap(), &acl);
    }

    #[test]
    fn what_decodes_encodes_to_the_same(version in 0..3_u8, body in prop::collection::vec(0..40_u8, 0..80)) {
        let bytes = [&[version, 0, 0, 0], &body[..]].concat();
        if let Ok(acl) = Acl::from_compact(&bytes) {
            prop_assert_eq!(acl.to_compact(), bytes);
        } else if let Ok(acl) = Acl::parse(&bytes) {
            prop_assert_eq!(Acl::parse(&acl.to_xattr()).unwrap(), acl);
        }
    }

    #[test]
    fn modes_pass_through(mode in 0..0o1000_u32, acl in any_acl()) {
        prop_assert_eq!(Acl::from_mode(mode).equivalent_mode(), Some(mode));
        let mut changed = acl.clone();
        changed.chmod(mode);
        prop_assert_eq!(changed.permissions(), mode);
        let inherited = Acl::inherit(&acl, mode, true);
        prop_assert_eq!(inherited.mode, mode & acl.permissions());
        if let Some(access) = inherited.access {
            prop_assert_eq!(access.permissions(), inherited.mode);
        }
    }
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A directory on a file system with ACLs; says so and gives None where there is none.
fn directory_with_acls() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    match setxattr(directory.path(), DEFAULT, &example().to_xattr(), XattrFlags::empty()) {
        Ok(()) => Some(directory),
        Err(error) => {
            println!("skipped: no ACLs in {}: {error}", directory.path().display());
            None
        }
    }
}

fn acl_of(path: &Path, name: &str) -> Option<Acl> {
    let mut value = vec![0; 4096];
    match getxattr(path, name, &mut value[..]) {
        Ok(length) => Some(Acl::parse(&value[..length]).unwrap()),
        Err(Errno::NODATA) => None,
        Err(error) => panic!("{name} of {}: {error}", path.display()),
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// What setxattr(2) says of an ACL that is refused so.
fn number(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NotSupported => Errno::OPNOTSUPP,
        other => panic!("no ACL is refused with {other:?}"),
    }
}

#[test]
fn linux_agrees_on_what_is_an_acl() {
    let Some(directory) = directory_with_acls() else {
        return;
    };
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    proptest!(ProptestConfig::with_cases(2000), |(xattr in nearly_an_acl())| {
        let theirs = setxattr(&file, ACCESS, &xattr, XattrFlags::empty()).err();
        let ours = match Acl::parse(&xattr) {
            Err(_) if Acl::xattr_means_removal(&xattr) => None,
            parsed => parsed.err().map(|error| number(error.kind())),
        };
        prop_assert_eq!(ours, theirs, "{:02x?}", xattr);
    });
}

#[test]
fn linux_agrees_on_modes_chmod_and_inheritance() {
    let Some(directory) = directory_with_acls() else {
        return;
    };
    let parent = directory.path();
    let (file, child) = (parent.join("file"), parent.join("child"));
    proptest!(ProptestConfig::with_cases(500), |(acl in any_acl(), mode in 0..0o1000_u32, changed in 0..0o1000_u32)| {
        setxattr(parent, DEFAULT, &acl.to_xattr(), XattrFlags::empty()).unwrap();
        fs::File::options().write(true).create_new(true).mode(mode).open(&file).unwrap();
        let inherited = Acl::inherit(&acl, mode, false);
        let found = (mode_of(&file), acl_of(&file, ACCESS));
        // Linux does not store a default ACL of a file, and neither may we.
        prop_assert_eq!((inherited.mode, inherited.access, inherited.default), (found.0, found.1, None));

        setxattr(&file, ACCESS, &acl.to_xattr(), XattrFlags::empty()).unwrap();
        prop_assert_eq!(mode_of(&file), acl.permissions());
        prop_assert_eq!(acl_of(&file, ACCESS), acl.equivalent_mode().is_none().then(|| acl.clone()));
        fs::set_permissions(&file, fs::Permissions::from_mode(changed)).unwrap();
        if let Some(stored) = acl_of(&file, ACCESS) {
            let mut ours = acl.clone();
            ours.chmod(changed);
            prop_assert_eq!(stored, ours);
        }
        fs::remove_file(&file).unwrap();

        fs::DirBuilder::new().mode(mode).create(&child).unwrap();
        let inherited = Acl::inherit(&acl, mode, true);
        let found = (mode_of(&child), acl_of(&child, ACCESS), acl_of(&child, DEFAULT));
        prop_assert_eq!((inherited.mode, inherited.access, inherited.default), found);
        fs::remove_dir(&child).unwrap();
    });
}

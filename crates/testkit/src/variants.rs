//! The kinds of F2FS volume met in the wild, as `mkfs.f2fs` 1.15 makes them.
//!
//! What Linux does with each is what the kernel in User-Mode Linux (6.1, without unicode tables, compression, encryption
//! and verity) was seen to do; `tests/variants.rs` sees again. What Basalt is to do with each is decided by
//! docs/f2fs-format.md.

/// What an implementation does with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Does not mount it.
    Refuses,
    /// Mounts it, but writes nothing.
    ReadsOnly,
    /// Mounts it and writes.
    Writes,
}

/// One kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// A short name, fit for a file name.
    pub name: &'static str,
    /// Arguments of `mkfs.f2fs`.
    pub arguments: &'static [&'static str],
    /// The size to make it, in MiB.
    pub size_mib: u64,
    /// What Linux does with it, in User-Mode Linux.
    pub linux: Access,
    /// What Basalt is to do with it.
    pub basalt: Access,
}

impl Variant {
    /// The size to make it, in bytes.
    pub fn size(&self) -> u64 {
        self.size_mib << 20
    }

    /// Whether both write it, so that a volume can go back and forth.
    pub fn is_shared(&self) -> bool {
        self.linux == Access::Writes && self.basalt == Access::Writes
    }
}

/// The variants by name, in the order of the table.
pub fn find(name: &str) -> Option<&'static Variant> {
    VARIANTS.iter().find(|variant| variant.name == name)
}

const fn shared(name: &'static str, arguments: &'static [&'static str]) -> Variant {
    Variant { name, arguments, size_mib: 128, linux: Access::Writes, basalt: Access::Writes }
}

/// All of them.
pub const VARIANTS: &[Variant] = &[
    // Debian, Raspberry Pi, OpenWrt: no features at all.
    shared("plain", &[]),
    // Arch, Gentoo, NixOS and their kin.
    shared("desktop", &["-O", "extra_attr,inode_checksum,sb_checksum"]),
    // Every feature that changes the layout of inodes.
    shared("layout", &["-O", "extra_attr,inode_checksum,sb_checksum,flexible_inline_xattr,inode_crtime,lost_found"]),
    // One at a time, since each moves the others' fields.
    shared("extra-attr", &["-O", "extra_attr"]),
    shared("flexible-xattr", &["-O", "extra_attr,flexible_inline_xattr"]),
    shared("inode-crtime", &["-O", "extra_attr,inode_crtime"]),
    shared("lost-found", &["-O", "lost_found"]),
    shared("sb-checksum", &["-O", "sb_checksum"]),
    // Features that are there but unused.
    shared("encrypt", &["-O", "encrypt"]),
    shared("verity", &["-O", "extra_attr,verity"]),
    // Quota files, which Basalt leaves alone and marks as needing a check.
    shared("quota", &["-O", "extra_attr,quota"]),
    shared("project-quota", &["-O", "extra_attr,project_quota,quota"]),
    // A telephone's /data.
    shared("android", &["-g", "android"]),
    // Sections and zones of several segments.
    Variant { size_mib: 256, ..shared("sections-4", &["-s", "4", "-z", "1"]) },
    Variant { size_mib: 256, ..shared("sections-2-zones-2", &["-s", "2", "-z", "2"]) },
    Variant { size_mib: 1024, ..shared("sections-16", &["-s", "16"]) },
    // Other numbers and names.
    shared("overprovision-5", &["-o", "5"]),
    shared("sectors-4096", &["-w", "4096"]),
    shared("plain-allocation", &["-a", "0"]),
    shared("large-nat-bitmap", &["-i"]),
    shared("label", &["-l", "Größe"]),
    // Names that compare without regard to case, which needs tables of Unicode.
    Variant {
        linux: Access::Refuses,
        basalt: Access::ReadsOnly,
        ..shared("casefold", &["-O", "casefold", "-C", "utf8"])
    },
    // Files may be compressed.
    Variant { basalt: Access::ReadsOnly, ..shared("compression", &["-O", "extra_attr,compression"]) },
    // Android's system images.
    Variant { linux: Access::ReadsOnly, basalt: Access::ReadsOnly, ..shared("read-only", &["-O", "ro"]) },
];

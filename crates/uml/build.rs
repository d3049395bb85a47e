//! Compiles the library that is loaded into User-Mode Linux, `src/preload/`: it becomes part of the crate.

use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 2] = ["src/preload/xstate.c", "src/preload/requests.c"];

fn main() {
    SOURCES.iter().for_each(|source| println!("cargo:rerun-if-changed={source}"));
    let library = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("preload.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(&library).args(SOURCES).arg("-ldl");
    // User-Mode Linux is for x86 only, and most processors can do without the library: go on where it cannot be made.
    let made = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64")
        && compile.status().is_ok_and(|status| status.success());
    if !made {
        println!(
            "cargo:warning=no C compiler: User-Mode Linux cannot be recorded, and not start on processors with AMX"
        );
        std::fs::write(&library, []).expect("the build directory can be written");
    }
}

//! Compiles the library that User-Mode Linux needs on processors with AMX: see `src/uml/xstate.c`.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/uml/xstate.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("xstate.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O2", "-Wall", "-o"]).arg(&out).arg("src/uml/xstate.c").arg("-ldl");
    // User-Mode Linux is for x86 only, and most processors do not need the library: go without where it cannot be made.
    let made = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64")
        && compile.status().is_ok_and(|status| status.success());
    if made {
        println!("cargo:rustc-env=UML_XSTATE_LIBRARY={}", out.display());
    } else {
        println!("cargo:warning=no C compiler: User-Mode Linux will not start on processors with AMX");
    }
}

//! The compiler of today still tells of branches, called as `make crash-campaign` calls it.

use std::path::Path;
use std::process::{Command, Output};

/// What is compiled with the wrapper: it goes by the name of the crate.
const ENGINE: &str = "pub fn is_large(number: usize) -> bool { if number > 2 { true } else { false } }";

/// What counts the edges that are met.
const SIMULATOR: &str = r#"
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
static NUMBERED: AtomicU32 = AtomicU32::new(0);
static MET: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_trace_pc_guard_init(start: *mut u32, stop: *mut u32) {
    let mut guard = start;
    while guard < stop {
        unsafe { *guard = NUMBERED.fetch_add(1, Relaxed) + 1 };
        guard = guard.wrapping_add(1);
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_trace_pc_guard(guard: *const u32) {
    MET[unsafe { *guard } as usize].fetch_add(1, Relaxed);
}
fn main() {
    let met = || MET.iter().filter(|times| times.load(Relaxed) > 0).count();
    let before = met();
    assert!(!engine::is_large(std::env::args().count()));
    let small = met();
    assert!(engine::is_large(std::env::args().count() + 2));
    println!("{} {} {}", before, small - before, met() - small);
}
"#;

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn the_compiler_tells_of_new_branches() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (engine, simulator) = (path("engine.rs"), path("simulator.rs"));
    std::fs::write(&engine, ENGINE).expect("written");
    std::fs::write(&simulator, SIMULATOR).expect("written");
    let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rustc-with-reach");
    let library = path("libbasalt_f2fs.rlib");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut told = Command::new(wrapper);
    told.arg(&rustc).args(["--edition", "2024", "--crate-name", "basalt_f2fs", "--crate-type", "rlib", "-o"]);
    run(told.args([&library, &engine]));
    let program = path("simulator");
    let mut plain = Command::new(&rustc);
    plain.args(["--edition", "2024", "--extern", &format!("engine={}", library.display()), "-o"]);
    run(plain.args([&program, &simulator]));
    let output = run(&mut Command::new(&program));
    let told = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u32> = told.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [before, small, large] = numbers[..] else { panic!("three numbers, not {told}") };
    assert_eq!(before, 0, "nothing is met before it runs");
    assert!(small > 0 && large > 0, "each way meets branches that the other does not: {told}");
}

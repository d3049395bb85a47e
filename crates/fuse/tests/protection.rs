//! What a protected server passes on to programs that it starts.

use std::process::Command;

use basalt_fuse::{protect_server, unprotected};
use basalt_testkit::uml::Uml;

/// `PF_MEMALLOC_NOIO` of `linux/sched.h`: the thread's allocations start no input and output.
const NO_IO: u64 = 0x0008_0000;

/// The process's willingness to be killed, and whether its thread is marked as serving storage, as a new process finds them.
fn state(command: &mut Command) -> (i32, bool) {
    let output = command.args(["/proc/self/oom_score_adj", "/proc/self/stat"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (score, stat) = text.split_once('\n').unwrap();
    // The ninth field; the second one is the name, in parentheses.
    let flags: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(6).unwrap().parse().unwrap();
    (score.parse().unwrap(), flags & NO_IO != 0)
}

/// Set where the test runs inside of a machine of its own.
const INSIDE: &str = "BASALT_TEST_INSIDE";

/// Whether this process has `CAP_SYS_RESOURCE`, which not every root has.
fn may_protect() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 24) != 0
}

#[test]
fn children_do_not_inherit_it() {
    if may_protect() {
        return protects();
    }
    assert!(std::env::var_os(INSIDE).is_none(), "even there it may not");
    // In User-Mode Linux, root may.
    let Some(linux) = Uml::new_or_skip() else { return };
    let linux = linux.env("SELF", std::env::current_exe().unwrap().to_str().unwrap()).env(INSIDE, "1");
    let script = "\"$SELF\" --exact children_do_not_inherit_it --nocapture && echo it holds";
    let result = linux.run_script(script).unwrap();
    assert!(result.output.contains("1 passed") && result.output.contains("it holds"), "{}", result.output);
}

fn protects() {
    std::fs::write("/proc/self/oom_score_adj", "17").unwrap();
    protect_server();
    assert!(rustix::process::is_io_flusher().unwrap());
    assert_eq!(std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim(), "-1000");
    assert_eq!(state(&mut Command::new("cat")), (-1000, true), "what would be inherited");
    assert_eq!(state(unprotected(&mut Command::new("cat"))), (17, false));
    // Threads do inherit it.
    assert!(std::thread::spawn(|| rustix::process::is_io_flusher().unwrap()).join().unwrap());
}

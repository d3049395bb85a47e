//! Manual pages and completions.

mod support;

use support::{Scratch, basalt, run};

#[test]
fn every_command_has_a_page() {
    let scratch = Scratch::new();
    let pages = scratch.text("man/man1");
    basalt(["man", &pages]).ok();
    for command in [
        "mkfs",
        "mount",
        "umount",
        "sync",
        "clean",
        "defrag",
        "stats",
        "fsck",
        "resize",
        "tune",
        "rescue",
        "info",
        "ls",
        "cat",
        "stat",
        "get",
        "put",
        "completions",
    ] {
        let page = std::fs::read_to_string(scratch.path(&format!("man/man1/basalt-{command}.1"))).expect(command);
        assert!(page.contains(&format!("basalt {command}")) || page.contains(&format!("basalt\\-{command}")), "{page}");
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
    // Each page that a page refers to is there.
    for page in std::fs::read_dir(scratch.path("man/man1")).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap().replace("\\-", "-");
        for name in text.lines().filter_map(|line| line.strip_suffix("(1)")).filter(|name| name.starts_with("basalt-"))
        {
            assert!(scratch.path(&format!("man/man1/{name}.1")).exists(), "{name}");
        }
    }
    assert!(scratch.path("man/man1/basalt-lab-compare.1").exists());
    assert!(scratch.path("man/man1/basalt.1").exists());
    assert!(!scratch.path("man/man1/basalt-man.1").exists());
    // Pages name others in "SUBCOMMANDS": each of them is there.
    let mut named = 0;
    for entry in std::fs::read_dir(scratch.path("man/man1")).unwrap() {
        let page = std::fs::read_to_string(entry.unwrap().path()).unwrap().replace('\\', "");
        for name in page.lines().filter_map(|line| line.strip_suffix("(1)")) {
            assert!(scratch.path(&format!("man/man1/{name}.1")).exists(), "{name}");
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
    assert!(scratch.path("man/man1/basalt-lab-lifetime.1").exists());
    basalt(["man", "--out", &scratch.text("other")]).ok();
    basalt(["man", "/dev/null/x"]).fails(1, &["/dev/null/x"]);
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&format!("completions {shell}")).ok();
        assert!(script.contains("basalt") && script.contains("umount"), "{shell}");
    }
}

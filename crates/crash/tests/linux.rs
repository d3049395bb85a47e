//! Linux recovers what power cuts have left, and the oracle that judges Basalt's recovery judges that, too. The other way round, Basalt
//! recovers what Linux has written.
//!
//! `BASALT_LINUX_IMAGES=5000` makes more; `BASALT_SEED=17` begins with another seed.

use std::path::Path;

use basalt_crash::linux::{Outcome, Wanted, back, run};
use basalt_testkit::images::TOOLS;
use basalt_testkit::skip::{skip, tools_or_skip};

/// What shows images to Linux.
type Run = fn(&Path, &Wanted) -> Result<Outcome, String>;

/// A number from the environment.
fn number(variable: &str, otherwise: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else { return otherwise };
    value.parse().unwrap_or_else(|_| panic!("{variable}={value} is no number"))
}

/// Shows so many images, unless others are asked for; at least every tenth must have something to recover.
fn show(run: Run, images: u64) {
    if let Err(missing) = basalt_uml::Uml::installed() {
        skip(missing);
        return;
    }
    let wanted = Wanted {
        images: number("BASALT_LINUX_IMAGES", images),
        first: number("BASALT_SEED", 0),
        fsck_every: if tools_or_skip(TOOLS) { 4 } else { 0 },
        findings: 1,
    };
    let outcome = run(Path::new(env!("CARGO_BIN_EXE_basalt-crash")), &wanted).unwrap();
    print!("{outcome}");
    assert!(outcome.findings.is_empty(), "{outcome}");
    assert!(outcome.recovered * 10 >= outcome.images, "too little was there to recover: {outcome}");
}

#[test]
fn linux_recovers_what_power_cuts_leave() {
    show(run, 48);
}

#[test]
fn what_linux_wrote_is_recovered() {
    show(back::run, 32);
}

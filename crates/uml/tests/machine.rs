//! Machines as the lab runs them: recorded, watched, stopped.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use basalt_testkit::{scratch, skip};
use basalt_uml::{Request, RequestKind, Requests, Status, Uml};

const BLOCK: u64 = 4096;

fn machine() -> Option<Uml> {
    let installed = Uml::installed().map_err(skip::skip);
    installed.ok().map(|()| Uml::new().place(scratch::place()).timeout(Duration::from_secs(30)))
}

#[test]
fn requests_are_recorded_in_order_and_flushes_among_them() {
    let Some(machine) = machine() else { return };
    let directory = scratch::directory().unwrap();
    let (image, requests) = (directory.path().join("disk.img"), directory.path().join("requests"));
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let script = "write() { dd if=/dev/zero of=/dev/ubda bs=4096 count=1 oflag=direct conv=notrunc,$2 seek=$1 status=none || exit; }
        write 100 fsync; write 200 notrunc; write 300 fsync; blkdiscard -o 1048576 -l 16384 /dev/ubda || exit
        blkdiscard -z -o 2097152 -l 8192 /dev/ubda || exit; dd if=/dev/ubda bs=4096 count=1 skip=999 iflag=direct of=/dev/null status=none";
    let result = machine.image(&image).record(&requests).run_script(script).unwrap();
    assert_eq!(result.status, Status::Exited(0), "{result}");
    let all: Vec<Request> = Requests::open(&requests).unwrap().collect::<Result<_, _>>().unwrap();
    assert!(all.is_sorted_by_key(|request| request.time_ns));
    // What looks at partition tables and the like reads elsewhere.
    let ours = all.iter().filter(|request| request.kind != RequestKind::Read || request.offset == 999 * BLOCK);
    let ours: Vec<_> = ours.map(|request| (request.kind, request.offset, request.length)).collect();
    let expected = [
        (RequestKind::Write, 100 * BLOCK, BLOCK),
        (RequestKind::Flush, 0, 0),
        (RequestKind::Write, 200 * BLOCK, BLOCK),
        (RequestKind::Write, 300 * BLOCK, BLOCK),
        (RequestKind::Flush, 0, 0),
        (RequestKind::Discard, 1 << 20, 16384),
        (RequestKind::Zero, 2 << 20, 8192),
        (RequestKind::Read, 999 * BLOCK, BLOCK),
    ];
    assert_eq!(ours, expected);
}

#[test]
fn who_watches_can_stop_a_machine() {
    let Some(machine) = machine() else { return };
    let started = Instant::now();
    let mut seen = false;
    let mut watch = |shared: &std::path::Path| {
        seen = shared.join("ready").exists();
        if seen { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = machine.run_watched("echo begun; : > $RUN/ready; sleep 1000", &mut watch).unwrap();
    assert_eq!(result.status, Status::Stopped, "{result}");
    assert!(seen && started.elapsed() < Duration::from_secs(25));
}

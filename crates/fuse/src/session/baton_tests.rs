//! The baton with real threads and real time.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::baton::{Baton, PATIENCE};
use super::wakeful::Wakeful;
use super::worker::BOREDOM;

#[test]
fn who_finishes_in_time_keeps_it() {
    let baton = Baton::new(BOREDOM);
    baton.take();
    for _ in 0..3 {
        let ticket = baton.begin();
        assert!(baton.finish(ticket));
    }
    let ticket = baton.begin();
    baton.pass(ticket);
    assert!(!baton.finish(ticket));
    // It lies free, for the same loop too.
    baton.take();
}

#[test]
fn who_is_held_up_loses_it_to_another_even_after_a_long_silence() {
    let baton = Baton::new(BOREDOM);
    std::thread::scope(|scope| {
        scope.spawn(|| baton.watch(Wakeful::new(false), || ()));
        baton.take();
        // Long enough for the watchman to fall asleep.
        std::thread::sleep(PATIENCE * BOREDOM * 2);
        let ticket = baton.begin();
        let start = Instant::now();
        scope.spawn(|| baton.take()).join().unwrap();
        assert!(start.elapsed() >= PATIENCE);
        assert!(!baton.finish(ticket));
        baton.close();
    });
}

#[test]
fn another_loop_is_asked_for_where_none_queues() {
    let baton = Baton::new(BOREDOM);
    baton.take();
    let ticket = baton.begin();
    assert!(baton.pass(ticket), "nobody queues");
    assert!(!baton.pass(ticket), "it is lost already");
    let (hire, hired) = mpsc::channel();
    std::thread::scope(|scope| {
        let watched = &baton;
        scope.spawn(move || watched.watch(Wakeful::new(false), || hire.send(()).unwrap()));
        baton.take();
        let ticket = baton.begin();
        let asked = hired.recv_timeout(Duration::from_secs(20));
        baton.close();
        asked.expect("the watchman asks for a loop when the holder is held up");
        assert!(!baton.finish(ticket));
    });
}

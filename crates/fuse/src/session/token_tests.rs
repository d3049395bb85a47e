//! The token with real threads and real time.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::token::{PATIENCE, Token};
use super::wakeful::Wakeful;
use super::worker::IDLE_LOOKS;

#[test]
fn who_finishes_in_time_keeps_it() {
    let token = Token::new(IDLE_LOOKS);
    token.take();
    for _ in 0..3 {
        let ticket = token.begin();
        assert!(token.finish(ticket));
    }
    let ticket = token.begin();
    token.pass(ticket);
    assert!(!token.finish(ticket));
    // It lies free, for the same loop too.
    token.take();
}

#[test]
fn who_is_held_up_loses_it_to_another_even_after_a_long_silence() {
    let token = Token::new(IDLE_LOOKS);
    std::thread::scope(|scope| {
        scope.spawn(|| token.watch(Wakeful::new(false), || ()));
        token.take();
        // Long enough for the monitor to fall asleep.
        std::thread::sleep(PATIENCE * IDLE_LOOKS * 2);
        let ticket = token.begin();
        let start = Instant::now();
        scope.spawn(|| token.take()).join().unwrap();
        assert!(start.elapsed() >= PATIENCE);
        assert!(!token.finish(ticket));
        token.close();
    });
}

#[test]
fn another_loop_is_asked_for_where_none_queues() {
    let token = Token::new(IDLE_LOOKS);
    token.take();
    let ticket = token.begin();
    assert!(token.pass(ticket), "nobody queues");
    assert!(!token.pass(ticket), "it is lost already");
    let (start_loop, started) = mpsc::channel();
    std::thread::scope(|scope| {
        let watched = &token;
        scope.spawn(move || watched.watch(Wakeful::new(false), || start_loop.send(()).unwrap()));
        token.take();
        let ticket = token.begin();
        let asked = started.recv_timeout(Duration::from_secs(20));
        token.close();
        asked.expect("the monitor asks for a loop when the holder is held up");
        assert!(!token.finish(ticket));
    });
}

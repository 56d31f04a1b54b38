//! A seed is a run: the same transcript each time, and another one for another seed.

use sim::world::run;

#[test]
fn a_seed_gives_the_same_transcript_twice() {
    let once = run(4_711, 300, false).unwrap();
    let twice = run(4_711, 300, false).unwrap();
    assert_eq!(once, twice);
    assert!(once.events > 0 && once.deliveries > 0 && once.crashes > 0, "{once:?}");
    assert_ne!(run(4_712, 300, false).unwrap().hash, once.hash);
}

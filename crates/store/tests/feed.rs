//! The event feed: numbers never change, with several writers and after crashes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;

use proptest::prelude::*;
use store::{DataDir, EventFeed, FeedCursor};

fn directory() -> (tempfile::TempDir, DataDir) {
    let folder = tempfile::tempdir().unwrap();
    let directory = DataDir::open(folder.path().join("data")).unwrap();
    (folder, directory)
}

/// Returns every event after `number` as (row, sequence), in order, with its cursor.
fn events(feed: &EventFeed, number: u64) -> Vec<((i64, u64), FeedCursor)> {
    let mut events = Vec::new();
    for range in feed.after(number, usize::MAX).unwrap() {
        for sequence in range.first..=range.last {
            events.push((
                (range.place, sequence),
                feed.cursor(range.number - (range.last - sequence), range.place, sequence),
            ));
        }
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_event_has_one_number_and_sessions_keep_their_order(
        grown in proptest::collection::vec((1_i64..5, 1_u64..30), 0..40),
    ) {
        let (_folder, directory) = directory();
        let mut last = std::collections::BTreeMap::new();
        for (index, growth) in grown.iter().enumerate() {
            // Each step opens the feed again, like another process.
            let feed = EventFeed::open(&directory).unwrap();
            let before = events(&feed, 0);
            feed.extend([*growth]).unwrap();
            let known = last.entry(growth.0).or_insert(0);
            *known = growth.1.max(*known);
            let after = events(&feed, 0);
            prop_assert_eq!(after.len() as u64, last.values().sum::<u64>(), "step {}", index);
            prop_assert_eq!(&after[..before.len()], &before[..], "an earlier number has changed");
        }
        let feed = EventFeed::open(&directory).unwrap();
        feed.extend([]).unwrap();
        let all = events(&feed, 0);
        for (index, (event, cursor)) in all.iter().enumerate() {
            prop_assert_eq!(cursor.number, index as u64 + 1);
            prop_assert!(feed.contains(cursor).unwrap());
            prop_assert!(!feed.contains(&feed.cursor(cursor.number, event.0, event.1 + 1)).unwrap());
            prop_assert_eq!(events(&feed, cursor.number), &all[index + 1..]);
        }
        for place in last.keys() {
            let own: Vec<u64> = all.iter().filter(|((at, _), _)| at == place).map(|((_, seq), _)| *seq).collect();
            prop_assert_eq!(own, (1..=last[place]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn two_writers_agree() {
    let (_folder, directory) = directory();
    let (one, other) = (EventFeed::open(&directory).unwrap(), EventFeed::open(&directory).unwrap());
    let writer = |feed: EventFeed, place: i64| {
        std::thread::spawn(move || {
            for sequence in 1..=200 {
                // Each writer reports both sessions.
                feed.extend([(place, sequence), (3 - place, sequence / 2)]).unwrap();
            }
            feed
        })
    };
    let (one, other) = (writer(one, 1), writer(other, 2));
    let (one, other) = (one.join().unwrap(), other.join().unwrap());
    assert_eq!(one.extend([]).unwrap(), other.extend([]).unwrap());
    assert_eq!(events(&one, 0), events(&other, 0));
    assert_eq!(events(&one, 0).len(), 400);
    assert_eq!(one.end().unwrap(), other.end().unwrap());
}

#[test]
fn incomplete_record_is_overwritten() {
    let (_folder, directory) = directory();
    let feed = EventFeed::open(&directory).unwrap();
    feed.extend([(1, 3)]).unwrap();
    let before = events(&feed, 0);
    let mut file = std::fs::OpenOptions::new().append(true).open(directory.feed()).unwrap();
    file.write_all(&[7; 11]).unwrap();
    let feed = EventFeed::open(&directory).unwrap();
    assert_eq!(feed.extend([(2, 1), (1, 4)]).unwrap(), 5);
    assert_eq!(events(&feed, 0)[..3], before);
    assert_eq!(events(&feed, 3).len(), 2);
}

#[test]
fn cursors_of_a_lost_feed_are_rejected() {
    let (_folder, directory) = directory();
    let feed = EventFeed::open(&directory).unwrap();
    feed.extend([(1, 3)]).unwrap();
    let (kept, end) = (events(&feed, 0)[1].1, feed.end().unwrap());
    // A power cut: the header is there, the records are lost, and they are added again in another order.
    std::fs::OpenOptions::new().write(true).open(directory.feed()).unwrap().set_len(16).unwrap();
    let feed = EventFeed::open(&directory).unwrap();
    feed.extend([(2, 2), (1, 3)]).unwrap();
    assert!(!feed.contains(&kept).unwrap() && !feed.contains(&end).unwrap());
    // The file is not a feed.
    std::fs::write(directory.feed(), "something else, and longer than a head").unwrap();
    let feed = EventFeed::open(&directory).unwrap();
    feed.extend([(1, 3)]).unwrap();
    assert!(!feed.contains(&kept).unwrap() && !feed.contains(&end).unwrap());
    assert!(feed.contains(&feed.cursor(0, 0, 0)).unwrap());
}

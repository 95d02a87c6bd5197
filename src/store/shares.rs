//! Many names at once: a list cut into shares, one a thread.
//!
//! What can be had of threads is used; where none is to be had, the caller's does the
//! work. No share is left out and none is done twice.

use std::thread::{Builder, scope};

/// Runs `each` over shares of `items`, at most `threads` of them and each of at least
/// `least` items, the first on this thread. `each` is given its share's place in the list.
/// The results come in the order of the shares.
pub(super) fn run<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    least: usize,
    each: impl Fn(usize, &[T]) -> R + Sync,
) -> Vec<R> {
    let threads = (items.len() / least.max(1)).clamp(1, threads.max(1));
    let share = items.len().div_ceil(threads).max(1);
    let each = &each;
    let mut shares = items
        .chunks(share)
        .enumerate()
        .map(|(n, part)| (n * share, part));
    let Some((_, first)) = shares.next() else {
        return Vec::new();
    };
    scope(|scope| {
        let others: Vec<_> = shares
            .map(|(place, part)| {
                let spawned = Builder::new()
                    .name("share".to_owned())
                    .spawn_scoped(scope, move || each(place, part));
                (place, part, spawned)
            })
            .collect();
        let mut results = vec![each(0, first)];
        for (place, part, spawned) in others {
            results.push(match spawned.map(|thread| thread.join()) {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread to be had.
                Err(_) => each(place, part),
            });
        }
        results
    })
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn every_item_is_in_one_share_in_its_place_and_order() {
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 4096] {
            let items: Vec<usize> = (0..count).collect();
            for threads in [0, 1, 2, 8] {
                for least in [0, 1, 8, 5000] {
                    let shares = run(&items, threads, least, |place, part| {
                        assert_eq!(part.first(), Some(&place));
                        part.to_vec()
                    });
                    assert_eq!(shares.concat(), items, "{count} {threads} {least}");
                    assert!(shares.len() <= threads.max(1), "{count} {threads} {least}");
                    let small = shares.len() > 1 && shares[0].len() < least;
                    assert!(!small, "{count} {threads} {least}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "in a share")]
    fn a_panic_is_passed_on() {
        run(&[1, 2, 3, 4], 4, 1, |place, _| {
            assert!(place < 2, "in a share")
        });
    }
}

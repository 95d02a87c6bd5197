//! A read that brought nothing to judge, and how long to wait after it.

use std::time::Duration;

use crate::responder::kv::status::ErrorKind;
use crate::sys;

/// Why a read brought nothing to judge.
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) text: String,
    /// Not worth an early retry: only another configuration helps.
    pub(super) lasting: bool,
}

pub(super) fn no_leader() -> Failure {
    Failure {
        kind: ErrorKind::Leader,
        text: "the cluster has no leader".to_owned(),
        lasting: false,
    }
}

/// `min` doubled `failures` times, at most `max`.
pub(super) fn backoff(failures: u32, min: Duration, max: Duration) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    min.saturating_mul(factor).min(max)
}

/// Between three and five quarters of `time`, so that a fleet does not come back at once.
pub(super) fn jittered(time: Duration) -> Duration {
    let random = sys::random_bytes::<2>().map_or(32_768, u16::from_le_bytes);
    time * 3 / 4 + time / 2 * u32::from(random) / 65_535
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let ms = Duration::from_millis;
        let table = [
            (0, 200),
            (1, 400),
            (2, 800),
            (3, 1600),
            (4, 3200),
            (5, 5000),
            (99, 5000),
        ];
        for (failures, pause) in table {
            assert_eq!(backoff(failures, ms(200), ms(5000)), ms(pause));
        }
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let time = Duration::from_secs(4);
        let all: Vec<_> = (0..200).map(|_| jittered(time)).collect();
        assert!(
            all.iter()
                .all(|t| (time * 3 / 4..=time * 5 / 4).contains(t))
        );
        assert!(all.iter().any(|t| *t < time) && all.iter().any(|t| *t > time));
    }
}

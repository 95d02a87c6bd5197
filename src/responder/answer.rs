//! From keys and a copy to the one line that HAProxy gets.
//!
//! Every reply is the whole wanted state, so it does not matter what HAProxy was told
//! before. `ready` alone would leave an old weight, and a percentage alone would leave
//! drain or maint; so both are sent. Health words never are: `up` would undo an
//! operator's `agent down`, and brings nothing else.

use super::copy::Copy;
use super::kv::Weights;
use super::line::Keys;
use super::value::Value;
use crate::clock::UnixNanos;
use crate::metrics::labels;

labels! {
    /// What kind of answer a row gets.
    Verdict {
        /// In service with its configured weight.
        Ready = "ready",
        /// No new connections.
        Drain = "drain",
        /// Out of service.
        Maint = "maint",
        /// In service with a share of its weight.
        Weight = "weight",
    }
}

impl From<Value> for Verdict {
    fn from(value: Value) -> Self {
        match value {
            Value::Ready => Self::Ready,
            Value::Drain => Self::Drain,
            Value::Maint => Self::Maint,
            Value::Weight(_) => Self::Weight,
        }
    }
}

/// What a request is answered with, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The wanted state.
    pub value: Value,
    /// Which of the keys decided, counted from 0; `None` when none has a valid value.
    pub decided: Option<usize>,
}

/// The answer to `keys`: the first key with a valid value decides alone; with none the
/// row is ready. Every look goes to this one copy and one instant.
#[must_use]
pub fn decide(keys: &Keys<'_>, copy: &Copy, now: UnixNanos) -> Answer {
    let mut valued = keys.as_slice().iter().enumerate().filter_map(|(at, key)| {
        let value = copy.get(key)?.value_at(now)?;
        Some((at, value))
    });
    match valued.next() {
        Some((at, value)) => Answer {
            value,
            decided: Some(at),
        },
        None => Answer {
            value: Value::Ready,
            decided: None,
        },
    }
}

/// The longest reply, `ready 999%` with its line end.
const MAX_REPLY_BYTES: usize = 11;

/// A reply line, to be sent in one write.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    bytes: [u8; MAX_REPLY_BYTES],
    length: usize,
}

impl Reply {
    /// The line that says `value`. Where weights belong to others no reply has one.
    #[must_use]
    pub fn new(value: Value, weights: Weights) -> Self {
        let mut reply = Self {
            bytes: [0; MAX_REPLY_BYTES],
            length: 0,
        };
        match (value, weights) {
            (Value::Drain, _) => reply.push(b"drain"),
            (Value::Maint, _) => reply.push(b"maint"),
            (Value::Ready | Value::Weight(_), Weights::Keep) => reply.push(b"ready"),
            (Value::Ready, Weights::Set) => reply.push(b"ready 100%"),
            (Value::Weight(percent), Weights::Set) => {
                reply.push(b"ready ");
                reply.push_number(percent);
                reply.push(b"%");
            }
        }
        reply.push(b"\n");
        reply
    }

    /// The bytes, the line feed included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        // What does not fit would be a line that no value makes; the tests say so.
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text);
            self.length = end;
        }
    }

    fn push_number(&mut self, number: u16) {
        let mut started = false;
        for unit in [10_000, 1000, 100, 10, 1] {
            let digit = number / unit % 10;
            started |= digit > 0 || unit == 1;
            if started {
                self.push(&[b'0' + u8::try_from(digit).unwrap_or(0)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::Entry;
    use super::super::line::{self, Request};
    use super::super::stamp::Stamp;
    use super::super::value::{InvalidValue, MAX_PERCENT};
    use super::*;

    fn reply(value: Value, weights: Weights) -> String {
        String::from_utf8(Reply::new(value, weights).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn every_reply_is_the_whole_state() {
        let table = [
            (Value::Ready, "ready 100%\n", "ready\n"),
            (Value::Drain, "drain\n", "drain\n"),
            (Value::Maint, "maint\n", "maint\n"),
            (Value::Weight(0), "ready 0%\n", "ready\n"),
            (Value::Weight(5), "ready 5%\n", "ready\n"),
            (Value::Weight(50), "ready 50%\n", "ready\n"),
            (Value::Weight(100), "ready 100%\n", "ready\n"),
            (Value::Weight(101), "ready 101%\n", "ready\n"),
            (Value::Weight(MAX_PERCENT), "ready 999%\n", "ready\n"),
        ];
        for (value, set, keep) in table {
            assert_eq!(reply(value, Weights::Set), set);
            assert_eq!(reply(value, Weights::Keep), keep);
        }
        for percent in 0..=MAX_PERCENT {
            let want = format!("ready {percent}%\n");
            assert_eq!(reply(Value::Weight(percent), Weights::Set), want);
        }
    }

    /// No word of ours may be one that changes health, or that older releases refuse.
    #[test]
    fn no_reply_has_a_health_word() {
        let percents = (0..=MAX_PERCENT).map(Value::Weight);
        for value in [Value::Ready, Value::Drain, Value::Maint]
            .into_iter()
            .chain(percents)
        {
            for weights in [Weights::Set, Weights::Keep] {
                let line = reply(value, weights);
                assert_eq!(line.matches('\n').count(), 1, "{line:?}");
                assert!(line.ends_with('\n'));
                for word in ["up", "down", "stopped", "fail", "weight:", "maxconn:"] {
                    assert!(!line.contains(word), "{line:?}");
                }
            }
        }
    }

    const NOON: UnixNanos = UnixNanos(1_000_000_000_000);

    fn copy(entries: &[(&str, Result<Value, InvalidValue>, Option<u64>)]) -> Copy {
        let entries = entries.iter().map(|(key, value, until)| {
            let until = until.and_then(Stamp::at);
            (Box::from(*key), Entry::new(value.clone(), until))
        });
        Copy::new(entries.collect(), 1, NOON)
    }

    fn answer(request: &str, copy: &Copy) -> (Value, Option<usize>) {
        match line::parse(request.as_bytes()) {
            Request::Keys(keys) => {
                let answer = decide(&keys, copy, NOON);
                (answer.value, answer.decided)
            }
            other => panic!("{request:?} gave {other:?}"),
        }
    }

    #[test]
    fn the_first_key_with_a_valid_value_decides_alone() {
        let health = InvalidValue::Health("up".into());
        let copy = copy(&[
            ("web/s1", Ok(Value::Ready), None),
            ("web/s2", Err(health), None),
            ("web/s3", Ok(Value::Maint), None),
            ("web/s4", Err(InvalidValue::Empty), None),
            ("web/s5", Ok(Value::Weight(50)), None),
            ("web/s6", Ok(Value::Maint), Some(1000)),
            ("web/s7", Ok(Value::Maint), Some(1001)),
            ("canary", Ok(Value::Drain), None),
            ("Canary", Ok(Value::Weight(7)), None),
        ]);
        let table = [
            ("web/s0", Value::Ready, None, "absent everywhere"),
            ("web/s0 nothing", Value::Ready, None, "absent everywhere"),
            ("web/s0 canary", Value::Drain, Some(1), "group alone"),
            ("web/s1 canary", Value::Ready, Some(0), "row over group"),
            ("canary web/s1", Value::Drain, Some(0), "order, not kind"),
            ("web/s2", Value::Ready, None, "invalid counts as absent"),
            ("web/s2 canary", Value::Drain, Some(1), "invalid: next key"),
            ("web/s4 web/s2 canary", Value::Drain, Some(2), "two invalid"),
            ("web/s3 canary", Value::Maint, Some(0), "not merged"),
            (
                "web/s5 canary",
                Value::Weight(50),
                Some(0),
                "weight over drain",
            ),
            ("web/s6 canary", Value::Drain, Some(1), "its time is over"),
            (
                "web/s7 canary",
                Value::Maint,
                Some(0),
                "its time is not over",
            ),
            (
                "web/s0 Canary",
                Value::Weight(7),
                Some(1),
                "case of keys counts",
            ),
            (
                "WEB/S3 canary",
                Value::Drain,
                Some(1),
                "case of keys counts",
            ),
            (
                "web/s3/ canary",
                Value::Drain,
                Some(1),
                "no prefix, no folder",
            ),
            ("web canary", Value::Drain, Some(1), "no prefix, no folder"),
            ("canary canary", Value::Drain, Some(0), "twice the same"),
        ];
        for (request, value, decided, why) in table {
            assert_eq!(answer(request, &copy), (value, decided), "{request}: {why}");
        }
    }

    #[test]
    fn an_empty_copy_means_ready() {
        assert_eq!(answer("web/s1 canary", &copy(&[])), (Value::Ready, None));
    }
}

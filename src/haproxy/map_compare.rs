//! A map in the worker against its file, entry by entry, with bounded memory.
//!
//! Both are streams: neither is ever held as a whole. Where order matters, one entry of
//! each is looked at a time. Where only the order of one key's values does, entries that
//! have no partner yet are remembered as hashes. Maps that were changed one entry at a
//! time are nearly in their file's order, so few are; when too many are, the work is done
//! again in shares of the keys, one at a time.

use super::ops::MapCheck;
use super::rows::Rows;
use crate::error::Chain;
use crate::format::map_file;
use crate::wire::limits::MAX_MAP_ROWS;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io::BufReader;
use std::io::Read;

/// Keys that may wait for a partner at one time, some 3 MiB of them.
const MOST_WAITING: usize = 1 << 15;
/// Shares of the keys, where that is not enough: two wholly different maps of
/// [`MAX_MAP_ROWS`] entries leave room to spare.
const SHARES: u64 = 32;

/// `Ok(None)` agrees, `Ok(Some)` differs, `Err` could not be compared.
pub(super) type Compared = Result<Option<String>, String>;

/// Where the two sides come from. Each is opened anew when the work is done again.
pub(super) trait Sides {
    fn file(&self) -> Result<Box<dyn Read + '_>, String>;
    fn rows(&self) -> Result<Rows<'_>, String>;
}

/// Compares the two.
pub(super) fn compare(sides: &dyn Sides, check: MapCheck) -> Compared {
    match check {
        MapCheck::Sequence => sequence(&mut Streams::open(sides)?),
        MapCheck::Entries => entries(sides),
    }
}

/// One pass over both sides.
struct Streams<'a> {
    file: map_file::Reader<BufReader<Box<dyn Read + 'a>>>,
    rows: Rows<'a>,
    wanted: usize,
    seen: usize,
}

type Pair<'a> = (&'a [u8], &'a [u8]);
/// An entry of the file and one of the worker, at the same place.
type Both<'a> = (Option<Pair<'a>>, Option<Pair<'a>>);

impl<'a> Streams<'a> {
    fn open(sides: &'a dyn Sides) -> Result<Self, String> {
        Ok(Self {
            file: map_file::Reader::new(BufReader::new(sides.file()?)),
            rows: sides.rows()?,
            wanted: 0,
            seen: 0,
        })
    }

    /// The next entry of both, until both have ended.
    fn next_pairs(&mut self) -> Result<Option<Both<'_>>, String> {
        let wanted = self.file.next_entry()?;
        let seen = self.rows.next_row();
        let seen = match seen.map_err(|error| Chain(&error).to_string())? {
            Some(row) => Some(pair(row).ok_or("a row of the map is not understood")?),
            None => None,
        };
        self.wanted += usize::from(wanted.is_some());
        self.seen += usize::from(seen.is_some());
        if self.wanted.max(self.seen) > MAX_MAP_ROWS {
            return Err(format!("the map has more than {MAX_MAP_ROWS} entries"));
        }
        let wanted = wanted.map(|entry| (entry.key, entry.value));
        Ok((wanted.is_some() || seen.is_some()).then_some((wanted, seen)))
    }
}

/// `0x<hex> key value`; a row of another form means a key with an LF in it.
fn pair(row: &[u8]) -> Option<Pair<'_>> {
    let (address, rest) = split_at_blank(row.strip_prefix(b"0x")?)?;
    let hex = !address.is_empty() && address.iter().all(u8::is_ascii_hexdigit);
    hex.then(|| split_at_blank(rest).unwrap_or((rest, b"")))
}

fn split_at_blank(bytes: &[u8]) -> Option<Pair<'_>> {
    let at = bytes.iter().position(|&b| b == b' ')?;
    let (before, after) = bytes.split_at_checked(at)?;
    Some((before, after.get(1..)?))
}

fn sequence(streams: &mut Streams<'_>) -> Compared {
    let mut place = 0;
    let mut differs = None;
    while let Some((wanted, seen)) = streams.next_pairs()? {
        place += 1;
        if let (Some(wanted), Some(seen)) = (wanted, seen) {
            if wanted != seen {
                return Ok(Some(format!("entry {place} differs")));
            }
        } else {
            // Only the end of the answer tells that it was whole.
            differs = Some(());
        }
    }
    Ok(differs.map(|()| {
        format!(
            "the file has {} entries and the worker {}",
            streams.wanted, streams.seen
        )
    }))
}

fn entries(sides: &dyn Sides) -> Compared {
    let hash = Hash::default();
    match share(sides, &hash, &|_| true)? {
        Share::Same => return Ok(None),
        Share::Differs(what) => return Ok(Some(what)),
        Share::TooMany => {}
    }
    for one in 0..SHARES {
        match share(sides, &hash, &|key| key % u128::from(SHARES) == one.into())? {
            Share::Same => {}
            Share::Differs(what) => return Ok(Some(what)),
            Share::TooMany => return Err("its order is too different from the file's".to_owned()),
        }
    }
    Ok(None)
}

/// What a pass over some of the keys came to.
enum Share {
    Same,
    Differs(String),
    /// More than [`MOST_WAITING`] were without a partner.
    TooMany,
}

fn share(sides: &dyn Sides, hash: &Hash, mine: &dyn Fn(u128) -> bool) -> Result<Share, String> {
    let mut streams = Streams::open(sides)?;
    let mut waiting = Waiting::default();
    let mut place = 0;
    while let Some((wanted, seen)) = streams.next_pairs()? {
        place += 1;
        for (side, pair) in [(Side::File, wanted), (Side::Worker, seen)] {
            let Some((key, value)) = pair else { continue };
            let hashed = hash.of(key);
            if mine(hashed) && !waiting.meet(side, hashed, hash.of(value), place) {
                let shown = key.get(..MOST_SHOWN).unwrap_or(key);
                let shown = String::from_utf8_lossy(shown);
                return Ok(Share::Differs(format!("the values of {shown:?} differ")));
            }
        }
        if waiting.keys.len() > MOST_WAITING {
            return Ok(Share::TooMany);
        }
    }
    let (wanted, seen) = (streams.wanted, streams.seen);
    Ok(match waiting.first() {
        None => Share::Same,
        Some((side, place)) => {
            let lone = match side {
                Side::File => format!("the file's entry {place} is not in the worker"),
                Side::Worker => format!("the worker's entry {place} is not in the file"),
            };
            Share::Differs(format!("{lone}; they have {wanted} and {seen} entries"))
        }
    })
}

/// Of a key, in a log line.
const MOST_SHOWN: usize = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    File,
    Worker,
}

/// 128 bits under keys of this process: nobody can make two keys collide, and by chance
/// they do not.
#[derive(Default)]
struct Hash(RandomState, RandomState);

impl Hash {
    fn of(&self, bytes: &[u8]) -> u128 {
        u128::from(self.0.hash_one(bytes)) << 64 | u128::from(self.1.hash_one(bytes))
    }
}

/// Entries that one side has and the other has not shown yet.
#[derive(Default)]
struct Waiting {
    keys: HashMap<u128, Key>,
}

/// The values of one key that wait, all of one side, oldest first.
struct Key {
    side: Side,
    place: u32,
    value: u64,
    more: Option<Box<More>>,
}

/// Boxed, because hardly a key has a second value and the table is all keys.
#[derive(Default)]
struct More(VecDeque<(u32, u64)>);

impl Waiting {
    /// Pairs an entry with what waits on the other side, or lets it wait. False when the
    /// values of the key do not follow each other alike.
    fn meet(&mut self, side: Side, key: u128, value: u128, place: usize) -> bool {
        use std::collections::hash_map::Entry;
        // Half of the value's hash is enough beside the key's.
        let value = u64::try_from(value >> 64).unwrap_or_default();
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        match self.keys.entry(key) {
            Entry::Vacant(free) => {
                free.insert(Key {
                    side,
                    place,
                    value,
                    more: None,
                });
                true
            }
            Entry::Occupied(mut open) if open.get().side == side => {
                let more = &mut open.get_mut().more;
                more.get_or_insert_default().0.push_back((place, value));
                true
            }
            Entry::Occupied(mut open) => {
                let same = open.get().value == value;
                match open
                    .get_mut()
                    .more
                    .as_mut()
                    .and_then(|more| more.0.pop_front())
                {
                    Some((place, value)) => {
                        (open.get_mut().place, open.get_mut().value) = (place, value);
                    }
                    None => {
                        open.remove();
                    }
                }
                same
            }
        }
    }

    /// The first entry without a partner.
    fn first(&self) -> Option<(Side, u32)> {
        let all = self.keys.values();
        all.map(|key| (key.side, key.place))
            .min_by_key(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A file, what HAProxy prints of its map, and how often they were read.
    struct Texts {
        file: String,
        answer: String,
        opened: Cell<usize>,
    }

    impl Sides for Texts {
        fn file(&self) -> Result<Box<dyn Read + '_>, String> {
            self.opened.set(self.opened.get() + 1);
            Ok(Box::new(self.file.as_bytes()))
        }

        fn rows(&self) -> Result<Rows<'_>, String> {
            let mut left = self.answer.as_bytes();
            let source = Box::new(move |buffer: &mut [u8]| Ok(left.read(buffer).unwrap()));
            Ok(Rows::new("show map m", source))
        }
    }

    /// Both sides have `key value` on a line.
    fn texts(file: String, worker: &str) -> Texts {
        let mut answer = "\n".to_owned();
        for line in worker.lines() {
            if !line.is_empty() {
                answer.push_str("0x1f ");
            }
            answer.push_str(line);
            answer.push('\n');
        }
        answer.push_str("\n[6]: 3.4.7\n\n");
        Texts {
            file,
            answer,
            opened: Cell::new(0),
        }
    }

    #[test]
    fn rows_of_maps() {
        let wanted: Option<Pair<'_>> = Some((b"a", b"b c"));
        assert_eq!(pair(b"0x1f a b c"), wanted);
        assert_eq!(pair(b"0x2 k "), Some((&b"k"[..], &b""[..])));
        assert_eq!(pair(b"0x3 k"), Some((&b"k"[..], &b""[..])));
        for bad in ["lost c", "0x1", "0x a b", "0xg a b", ""] {
            assert_eq!(pair(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_replaced_map_is_compared_in_order_and_others_by_key() {
        let lines = |text: &str| {
            let words: Vec<&str> = text.split(' ').collect();
            let lines = words.chunks(2).map(|pair| pair.join(" ") + "\n");
            lines.collect::<String>()
        };
        for (seen, in_order, by_key) in [
            ("a 1 b 2 a 3", true, true),
            ("b 2 a 1 a 3", false, true),
            ("a 3 b 2 a 1", false, false),
            ("a 1 b 2", false, false),
            ("a 1 b 2 a 3 a 3", false, false),
            ("a 1 b 2 a 3 c 4", false, false),
            ("a 1 c 2 a 3", false, false),
        ] {
            let sides = texts(lines("a 1 b 2 a 3"), &lines(seen));
            let same = |check| compare(&sides, check).unwrap().is_none();
            assert_eq!(same(MapCheck::Sequence), in_order, "{seen}");
            assert_eq!(same(MapCheck::Entries), by_key, "{seen}");
        }
    }

    #[test]
    fn the_first_difference_is_named() {
        let what = |file: &str, worker: &str, check| {
            let sides = texts(file.to_owned(), worker);
            compare(&sides, check).unwrap().unwrap()
        };
        let by_key = |file, worker| what(file, worker, MapCheck::Entries);
        assert_eq!(
            by_key("a 1\nb 2\n", "b 2\na 3\n"),
            "the values of \"a\" differ"
        );
        assert_eq!(
            by_key("a 1\nb 2\nc 3\n", "c 3\na 1\n"),
            "the file's entry 2 is not in the worker; they have 3 and 2 entries"
        );
        assert_eq!(
            by_key("a 1\n", "a 1\nx 1\ny 1\n"),
            "the worker's entry 2 is not in the file; they have 1 and 3 entries"
        );
        assert_eq!(
            what("a 1\n", "a 1\na 1\n", MapCheck::Sequence),
            "the file has 1 entries and the worker 2"
        );
        assert_eq!(
            what("a 1\nb 1\n", "a 1\nb 2\n", MapCheck::Sequence),
            "entry 2 differs"
        );
    }

    #[test]
    fn any_order_is_compared_within_the_bound() {
        let count = MOST_WAITING * 2;
        let line = |n: usize| format!("k{n} v{n}\n");
        let file: String = (0..count).map(line).collect();
        let near = format!(
            "{}{}",
            (9..count).map(line).collect::<String>(),
            (0..9).map(line).collect::<String>()
        );
        let sides = texts(file.clone(), &near);
        assert_eq!(compare(&sides, MapCheck::Entries), Ok(None));
        assert_eq!(sides.opened.get(), 1);
        let reversed: String = (0..count).rev().map(line).collect();
        let sides = texts(file.clone(), &reversed);
        assert_eq!(compare(&sides, MapCheck::Entries), Ok(None));
        assert_eq!(sides.opened.get() as u64, 1 + SHARES);
        let other = reversed.replace("v1234\n", "v1235\n");
        let sides = texts(file, &other);
        let what = compare(&sides, MapCheck::Entries).unwrap();
        assert_eq!(what.unwrap(), "the values of \"k1234\" differ");
    }

    #[test]
    fn what_cannot_be_compared_is_no_difference() {
        let both = |check| {
            let many = "k v\n".repeat(MAX_MAP_ROWS);
            let sides = texts(many.clone(), &many);
            assert_eq!(compare(&sides, check), Ok(None));
            let sides = texts(many.clone() + "k v\n", &many);
            assert!(compare(&sides, check).is_err());
            let sides = texts("a\0 b\n".to_owned(), "");
            assert!(compare(&sides, check).unwrap_err().contains("NUL"));
            let sides = texts("a b\n".to_owned(), "a b\n\nc\n");
            assert!(compare(&sides, check).is_err());
        };
        both(MapCheck::Sequence);
        both(MapCheck::Entries);
    }
}

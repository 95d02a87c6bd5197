//! What a request for the coverage asks for behind its question mark. What is not known is
//! passed over, so that a newer client gets from this responder what it has.

/// The words of one request.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Query {
    /// One key is to be explained.
    pub(super) key: Option<String>,
    /// HAProxy is to be looked at first.
    pub(super) fresh: bool,
    /// What the copy says of each key.
    pub(super) copy: bool,
}

impl Query {
    /// Takes the words apart; `None` where an escape of a key is none.
    pub(super) fn of(text: Option<&str>) -> Option<Self> {
        let mut query = Self::default();
        for part in text.unwrap_or("").split('&') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "key" if query.key.is_none() => query.key = Some(decoded(value)?),
                "fresh" => query.fresh = true,
                "copy" => query.copy = true,
                _ => {}
            }
        }
        Some(query)
    }
}

/// Percent-decoded text; `None` where an escape is none. What is no UTF-8 cannot be a
/// key of the copy, and is shown with replacement characters.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok()?;
            if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_percent_decoded() {
        let table = [
            ("", Some("")),
            ("web/s1", Some("web/s1")),
            ("web%2Fs1", Some("web/s1")),
            ("a%20b+c%c3%bc", Some("a b+cü")),
            ("%ff", Some("\u{fffd}")),
            ("%", None),
            ("%2", None),
            ("%zz", None),
            ("%+1", None),
        ];
        for (text, want) in table {
            assert_eq!(decoded(text).as_deref(), want, "{text}");
            let query = Query::of(Some(&format!("x=1&key={text}")));
            assert_eq!(query.and_then(|q| q.key).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn words_count_in_any_order_and_with_any_value() {
        let query = |key: Option<&str>, fresh, copy| {
            let key = key.map(str::to_owned);
            Some(Query { key, fresh, copy })
        };
        let table = [
            (None, query(None, false, false)),
            (Some(""), query(None, false, false)),
            (Some("fresh"), query(None, true, false)),
            (Some("copy&fresh=1"), query(None, true, true)),
            (Some("fresh&key=a&key=b"), query(Some("a"), true, false)),
            (Some("fresher&=copy&keys=a"), query(None, false, false)),
        ];
        for (text, want) in table {
            assert_eq!(Query::of(text), want, "{text:?}");
        }
    }
}

//! The two header values that multipart needs: a content type's boundary, and what a
//! part says about itself. Pure.
//!
//! Escapes are `\"` and `\\` only; any other backslash is itself, because browsers send
//! paths with them. Percent signs stay as they are, see [`percent_decoded`].

use std::borrow::Cow;

use super::head::is_token;
use super::multipart::{Framing, MAX_BOUNDARY_BYTES, MAX_PART_FIELDS, MultipartError, PartHead};

/// The boundary of a `multipart/form-data` content type.
///
/// # Errors
/// [`Framing::NotMultipart`], [`Framing::Parameters`], [`Framing::Boundary`].
pub fn boundary_of(content_type: &str) -> Result<String, MultipartError> {
    let bytes = content_type.as_bytes();
    let end = bytes
        .iter()
        .position(|&byte| byte == b';')
        .unwrap_or(bytes.len());
    if !bytes[..end]
        .trim_ascii()
        .eq_ignore_ascii_case(b"multipart/form-data")
    {
        return Err(Framing::NotMultipart.into());
    }
    let mut boundary = None;
    for parameter in parameters(&bytes[end..]) {
        let (name, value) = parameter.ok_or(Framing::Parameters)?;
        if name.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
            return Err(Framing::Boundary.into());
        }
    }
    let boundary = boundary
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or(Framing::Boundary)?;
    let good = (1..=MAX_BOUNDARY_BYTES).contains(&boundary.len())
        && boundary.bytes().all(is_boundary_byte)
        && !boundary.ends_with(' ');
    if good {
        Ok(boundary)
    } else {
        Err(Framing::Boundary.into())
    }
}

/// `%22`, `%0D` and `%0A` resolved, which is what a browser writes for a quote and a
/// line end in a name; everything else, a `%` included, stays.
#[must_use]
pub fn percent_decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('%') {
        return Cow::Borrowed(value);
    }
    let mut decoded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [("%22", '"'), ("%0D", '\r'), ("%0A", '\n')];
        let found = known.into_iter().find(|(code, _)| {
            rest.get(..3)
                .is_some_and(|start| start.eq_ignore_ascii_case(code))
        });
        match found {
            Some((_, character)) => {
                decoded.push(character);
                rest = &rest[3..];
            }
            None => {
                decoded.push('%');
                rest = &rest[1..];
            }
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// Reads a part's head, its empty line included.
pub(super) fn part_head(text: &[u8]) -> Result<PartHead, MultipartError> {
    let mut disposition = None;
    let mut fields = 0;
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() {
            break;
        }
        fields += 1;
        if fields > MAX_PART_FIELDS {
            return Err(Framing::TooManyPartFields.into());
        }
        let (name, value) = field(line).ok_or(Framing::PartField)?;
        if name.eq_ignore_ascii_case(b"content-disposition") {
            if disposition.replace(value).is_some() {
                return Err(Framing::Disposition.into());
            }
        } else if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            let as_is = [b"binary".as_slice(), b"8bit", b"7bit"];
            if !as_is.iter().any(|same| value.eq_ignore_ascii_case(same)) {
                return Err(Framing::Encoded.into());
            }
        }
    }
    names(disposition.ok_or(Framing::Disposition)?)
}

/// A field's name and trimmed value; `None` for what is no field, a folded line
/// included, which starts with a space.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?);
    let clean = value
        .iter()
        .all(|&byte| byte == b'\t' || !byte.is_ascii_control());
    (is_token(name) && clean).then(|| (name, value.trim_ascii()))
}

fn names(disposition: &[u8]) -> Result<PartHead, MultipartError> {
    let end = disposition
        .iter()
        .position(|&byte| byte == b';')
        .unwrap_or(disposition.len());
    if !disposition[..end]
        .trim_ascii()
        .eq_ignore_ascii_case(b"form-data")
    {
        return Err(Framing::Disposition.into());
    }
    let mut name = None;
    let mut filename = None;
    for parameter in parameters(&disposition[end..]) {
        let (key, value) = parameter.ok_or(Framing::Disposition)?;
        let slot = if key.eq_ignore_ascii_case(b"name") {
            &mut name
        } else if key.eq_ignore_ascii_case(b"filename") {
            &mut filename
        } else {
            continue;
        };
        let value = String::from_utf8(value).map_err(|_| Framing::NotUtf8)?;
        if slot.replace(value).is_some() {
            return Err(Framing::Disposition.into());
        }
    }
    Ok(PartHead {
        name: name.ok_or(Framing::Disposition)?,
        filename,
    })
}

/// The `; name=value` pairs of a header value, unquoted. A malformed one is the last.
fn parameters(text: &[u8]) -> Parameters<'_> {
    Parameters {
        rest: text.trim_ascii(),
    }
}

struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Option<(&'a [u8], Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        // A semicolon with nothing behind it is common and says nothing.
        while let Some(rest) = self.rest.strip_prefix(b";") {
            self.rest = rest.trim_ascii_start();
        }
        if self.rest.is_empty() {
            return None;
        }
        let parameter = self.parameter();
        if parameter.is_none() {
            self.rest = &[];
        }
        Some(parameter)
    }
}

impl<'a> Parameters<'a> {
    fn parameter(&mut self) -> Option<(&'a [u8], Vec<u8>)> {
        let equals = self.rest.iter().position(|&byte| byte == b'=')?;
        let name = self.rest.get(..equals)?.trim_ascii_end();
        if !is_token(name) {
            return None;
        }
        let value = self.rest.get(equals + 1..)?.trim_ascii_start();
        let value = if let Some(quoted) = value.strip_prefix(b"\"") {
            let (value, length) = unquoted(quoted)?;
            self.rest = quoted.get(length..)?.trim_ascii_start();
            if !self.rest.is_empty() && !self.rest.starts_with(b";") {
                return None;
            }
            value
        } else {
            let end = value
                .iter()
                .position(|&byte| byte == b';')
                .unwrap_or(value.len());
            self.rest = value.get(end..)?;
            let value = value.get(..end)?.trim_ascii_end();
            if value.is_empty() || value.iter().any(|byte| b" \t\"\\".contains(byte)) {
                return None;
            }
            value.to_vec()
        };
        Some((name, value))
    }
}

/// The value of a quoted string whose opening quote was taken, and the length of what
/// it was read from, closing quote included.
fn unquoted(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut value = Vec::new();
    let mut bytes = text.iter().enumerate().peekable();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, at + 1)),
            b'\\' => match bytes.next_if(|(_, next)| matches!(next, b'"' | b'\\')) {
                Some((_, &escaped)) => value.push(escaped),
                None => value.push(b'\\'),
            },
            byte => value.push(byte),
        }
    }
    None
}

fn is_boundary_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(content_type: &str) -> Result<String, Framing> {
        boundary_of(content_type).map_err(|error| match error {
            MultipartError::Framing(framing) => framing,
            MultipartError::Transport(error) => panic!("{error}"),
        })
    }

    #[test]
    fn boundaries_quoted_and_not() {
        let longest = "b".repeat(70);
        let table = [
            ("multipart/form-data; boundary=abc", "abc"),
            ("Multipart/Form-Data;BOUNDARY=abc", "abc"),
            ("multipart/form-data; boundary=\"abc\"", "abc"),
            ("multipart/form-data; boundary=\"a b:c\" ; x=1", "a b:c"),
            (
                "multipart/form-data; charset=utf-8; boundary=a=b/c;",
                "a=b/c",
            ),
            ("multipart/form-data ;; boundary = abc", "abc"),
            (
                &format!("multipart/form-data; boundary={longest}"),
                longest.as_str(),
            ),
        ];
        for (content_type, value) in table {
            assert_eq!(
                boundary(content_type).as_deref(),
                Ok(value),
                "{content_type}"
            );
        }
    }

    #[test]
    fn content_types_that_are_refused() {
        let long = format!("multipart/form-data; boundary={}", "b".repeat(71));
        let table = [
            ("", Framing::NotMultipart),
            ("multipart/mixed; boundary=a", Framing::NotMultipart),
            ("multipart/form-datax; boundary=a", Framing::NotMultipart),
            ("application/json", Framing::NotMultipart),
            ("multipart/form-data", Framing::Boundary),
            ("multipart/form-data; boundary=\"\"", Framing::Boundary),
            ("multipart/form-data; boundary=\"a \"", Framing::Boundary),
            (
                "multipart/form-data; boundary=\"a\\\"b\"",
                Framing::Boundary,
            ),
            ("multipart/form-data; boundary=a{b", Framing::Boundary),
            ("multipart/form-data; boundary=ä", Framing::Boundary),
            (
                "multipart/form-data; boundary=a; boundary=a",
                Framing::Boundary,
            ),
            (long.as_str(), Framing::Boundary),
            ("multipart/form-data; boundary=", Framing::Parameters),
            ("multipart/form-data; boundary=\"a", Framing::Parameters),
            ("multipart/form-data; boundary=\"a\"b", Framing::Parameters),
            ("multipart/form-data; boundary=a b", Framing::Parameters),
            ("multipart/form-data; boundary", Framing::Parameters),
        ];
        for (content_type, why) in table {
            assert_eq!(boundary(content_type), Err(why), "{content_type}");
        }
    }

    #[test]
    fn part_names_and_their_escapes() {
        let table: [(&str, &str, Option<&str>); 9] = [
            ("form-data; name=\"manifest\"", "manifest", None),
            ("form-data; name=manifest", "manifest", None),
            ("FORM-DATA; NAME=\"a\"; FILENAME=\"b\"", "a", Some("b")),
            ("form-data; name=\"a\"; filename=\"\"", "a", Some("")),
            (r#"form-data; name="a\"b\\c""#, r#"a"b\c"#, None),
            (r#"form-data; name="c:\d""#, r"c:\d", None),
            ("form-data; name=\"a;b=c\"", "a;b=c", None),
            ("form-data; name=\"maps/ä%22.map\"", "maps/ä%22.map", None),
            ("form-data; name=\"a\"; filename*=utf-8''b", "a", None),
        ];
        for (value, name, filename) in table {
            let text = format!("Content-Disposition: {value}\r\n\r\n");
            let head = part_head(text.as_bytes()).unwrap();
            assert_eq!(head.name, name, "{value}");
            assert_eq!(head.filename.as_deref(), filename, "{value}");
        }
    }

    #[test]
    fn part_heads_that_are_refused() {
        let good = "Content-Disposition: form-data; name=\"a\"\r\n";
        let many = format!("{good}{}\r\n", "X: y\r\n".repeat(16));
        let table = [
            ("\r\n", Framing::Disposition),
            ("Content-Type: a/b\r\n\r\n", Framing::Disposition),
            (&format!("{good}{good}\r\n"), Framing::Disposition),
            (
                "Content-Disposition: attachment; name=\"a\"\r\n\r\n",
                Framing::Disposition,
            ),
            (
                "Content-Disposition: form-data; filename=\"a\"\r\n\r\n",
                Framing::Disposition,
            ),
            (
                "Content-Disposition: form-data; name=a; name=b\r\n\r\n",
                Framing::Disposition,
            ),
            (
                "Content-Disposition: form-data; name=\"a\r\n\r\n",
                Framing::Disposition,
            ),
            (
                "Content-Disposition: form-data;\r\n name=\"a\"\r\n\r\n",
                Framing::PartField,
            ),
            (
                "Content-Disposition : form-data\r\n\r\n",
                Framing::PartField,
            ),
            ("no colon\r\n\r\n", Framing::PartField),
            ("X: a\nb\r\n\r\n", Framing::PartField),
            (
                &format!("{good}Content-Transfer-Encoding: base64\r\n\r\n"),
                Framing::Encoded,
            ),
            (many.as_str(), Framing::TooManyPartFields),
        ];
        for (text, why) in table {
            match part_head(text.as_bytes()) {
                Err(MultipartError::Framing(framing)) => assert_eq!(framing, why, "{text:?}"),
                other => panic!("{text:?}: {other:?}"),
            }
        }
        let text = b"Content-Disposition: form-data; name=\"\xff\"\r\n\r\n";
        assert!(matches!(
            part_head(text),
            Err(MultipartError::Framing(Framing::NotUtf8))
        ));
        let text = format!("{good}Content-Transfer-Encoding: Binary\r\n\r\n");
        assert!(part_head(text.as_bytes()).is_ok());
    }

    #[test]
    fn the_other_reading_of_a_percent_sign() {
        let table = [
            ("plain", "plain"),
            ("a%22b%0d%0A", "a\"b\r\n"),
            ("100%", "100%"),
            ("%2", "%2"),
            ("%41%ä", "%41%ä"),
            ("%%22", "%\""),
        ];
        for (value, decoded) in table {
            assert_eq!(percent_decoded(value), decoded);
        }
    }
}

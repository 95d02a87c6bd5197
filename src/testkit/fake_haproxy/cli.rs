//! The command line of both sockets: lines, words, payloads, prompts.
//!
//! One line holds commands joined by `;`, of which the last may have a payload. Without a
//! prompt one line is served and the connection closes; with one it stays. What ends an
//! answer differs between branches and is kept here: 3.0 prompts after each command of a
//! line and echoes `+ ` for payload lines, later ones prompt once a line and echo nothing.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::faults::Fault;
use super::hub::{Hub, TICK};
use super::model::Version;
use super::reply::{ERR, Reply, Severity};

/// Words of one command.
const MAX_WORDS: usize = 64;

/// What serves the commands of a socket.
pub(super) trait Commands {
    /// Behind the line ends of an interactive session.
    fn prompt(&self) -> &'static str;

    /// Whether a connection is served for more than one line without a prompt.
    fn stays(&self) -> bool;

    /// One command.
    fn run(&mut self, words: &[String], payload: Option<&str>) -> Done;
}

/// What became of a command.
#[derive(Debug)]
pub(super) enum Done {
    Reply(Reply),
    /// These bytes, and the connection ends; `slowly` byte by byte.
    Last {
        text: String,
        slowly: bool,
    },
    /// These bytes without any framing; the rest of the line is dropped.
    Raw(String),
    /// The connection ends without a word.
    Close,
}

/// One connection.
pub(super) struct Session<'a, C> {
    hub: &'a Hub,
    stream: UnixStream,
    commands: C,
    input: Vec<u8>,
    interactive: bool,
    shows_prompt: bool,
    severity: Severity,
    bytewise: bool,
    epoch: u64,
    idle_limit: Option<Duration>,
    /// The last command was the last of the connection.
    over: bool,
    /// The rest of the line is dropped.
    dropped: bool,
}

/// A whole command line with what belongs to it.
struct Line {
    commands: Vec<Vec<String>>,
    payload: Option<Payload>,
}

struct Payload {
    text: String,
    lines: usize,
}

enum Framed {
    Line(Line),
    TooBig(&'static str),
    End,
}

impl<'a, C: Commands> Session<'a, C> {
    pub(super) fn new(
        hub: &'a Hub,
        stream: UnixStream,
        commands: C,
        idle_limit: Option<Duration>,
    ) -> Self {
        Self {
            epoch: hub.epoch(),
            hub,
            stream,
            commands,
            input: Vec::new(),
            interactive: false,
            shows_prompt: true,
            severity: Severity::None,
            bytewise: false,
            idle_limit,
            over: false,
            dropped: false,
        }
    }

    /// Serves the connection to its end.
    pub(super) fn serve(mut self) {
        // Without the timeout a client that says nothing would keep the thread for good.
        if self.stream.set_read_timeout(Some(TICK)).is_err() {
            return;
        }
        loop {
            match self.line() {
                Framed::End => return,
                Framed::TooBig(text) => {
                    let reply = Reply::Tagged(ERR, text.to_owned()).text(self.severity);
                    self.say(format!("{reply}\n").as_bytes());
                    return;
                }
                Framed::Line(line) => {
                    self.carry_out(line);
                    if self.over || !(self.interactive || self.commands.stays()) {
                        return;
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, line: Line) {
        let last = line.commands.len().saturating_sub(1);
        for (at, words) in line.commands.iter().enumerate() {
            let payload = line.payload.as_ref().filter(|_| at == last);
            if let (Some(payload), Version::V3_0, true) =
                (payload, self.hub.version, self.interactive)
            {
                self.say("+ ".repeat(payload.lines + 1).as_bytes());
            }
            self.command(words, payload.map(|payload| payload.text.as_str()));
            if self.over || std::mem::take(&mut self.dropped) {
                return;
            }
            if self.interactive && self.hub.version == Version::V3_0 {
                self.prompt();
            }
        }
        if self.interactive && self.hub.version != Version::V3_0 {
            self.prompt();
        }
    }

    fn prompt(&mut self) {
        if self.shows_prompt {
            let prompt = self.commands.prompt();
            self.say(prompt.as_bytes());
        }
    }

    fn command(&mut self, words: &[String], payload: Option<&str>) {
        let text = words.join(" ");
        if words.len() > MAX_WORDS && self.hub.version != Version::V3_0 {
            let words = "Too many arguments. Commands must have at most 64 arguments.";
            return self.answer(&Reply::err(words));
        }
        // 3.0 drops the rest without a word.
        let words = words.get(..words.len().min(MAX_WORDS)).unwrap_or_default();
        if let Some(reply) = self.own(words) {
            return self.answer(&reply);
        }
        if self.over {
            return;
        }
        let fault = self.hub.fault(&text);
        match &fault {
            Some(Fault::Refuse(words)) => return self.answer(&Reply::err(words.as_str())),
            Some(Fault::Answer(text)) => return self.answer(&Reply::Plain(text.clone())),
            Some(Fault::Silence) => {
                self.over = true;
                return self.wait_for_the_end();
            }
            Some(Fault::CloseBefore) => {
                self.over = true;
                return;
            }
            Some(Fault::Die) => {
                self.over = true;
                return self.hub.die();
            }
            Some(Fault::AnotherWorker) => {
                self.over = true;
                return self.hub.replace_worker(None);
            }
            Some(Fault::Cut(_) | Fault::Bytewise | Fault::Late(_) | Fault::CloseAfter) | None => {}
        }
        let done = self.commands.run(words, payload);
        let reply = match done {
            Done::Reply(reply) => reply,
            Done::Close => {
                self.over = true;
                return;
            }
            Done::Raw(text) => {
                self.dropped = true;
                return self.say(text.as_bytes());
            }
            Done::Last { text, slowly } => {
                self.over = true;
                self.bytewise = self.bytewise || slowly;
                return self.say(text.as_bytes());
            }
        };
        match fault {
            Some(Fault::Cut(bytes)) => {
                self.over = true;
                let whole = format!("{}\n", reply.text(self.severity));
                let cut = whole.as_bytes().get(..bytes).unwrap_or(whole.as_bytes());
                self.say(cut);
            }
            Some(Fault::CloseAfter) => self.over = true,
            Some(Fault::Bytewise) => {
                self.bytewise = true;
                self.answer(&reply);
            }
            Some(Fault::Late(time)) => {
                self.over = !self.hub.pause(Duration::from_millis(time));
                self.answer(&reply);
            }
            Some(
                Fault::Refuse(_)
                | Fault::Answer(_)
                | Fault::Silence
                | Fault::CloseBefore
                | Fault::Die
                | Fault::AnotherWorker,
            )
            | None => self.answer(&reply),
        }
    }

    /// Commands on the session itself.
    fn own(&mut self, words: &[String]) -> Option<Reply> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [] => Some(Reply::Silent),
            ["quit", ..] => {
                self.over = true;
                None
            }
            ["prompt", rest @ ..] => {
                let newer = self.hub.version != Version::V3_0;
                (self.interactive, self.shows_prompt) = match rest.first().copied() {
                    Some("i") if newer => (true, false),
                    Some("p") if newer => (true, true),
                    Some("n") if newer => (false, false),
                    Some(_) | None => (!self.interactive, true),
                };
                Some(Reply::Silent)
            }
            ["set", "severity-output", rest @ ..] => {
                self.severity = match rest.first().copied() {
                    Some("none") => Severity::None,
                    Some("number") => Severity::Number,
                    Some("string") => Severity::String,
                    Some(_) | None => {
                        return Some(Reply::err(
                            "one of 'none', 'number', 'string' is a required argument",
                        ));
                    }
                };
                Some(Reply::Silent)
            }
            [_, ..] => None,
        }
    }

    fn answer(&mut self, reply: &Reply) {
        let text = reply.text(self.severity);
        self.say(format!("{text}\n").as_bytes());
    }

    fn say(&mut self, bytes: &[u8]) {
        let pieces = bytes.chunks(if self.bytewise { 1 } else { bytes.len().max(1) });
        for piece in pieces {
            // A client that is gone is noticed by the next read.
            if self.stream.write_all(piece).is_err() {
                self.over = true;
                return;
            }
        }
    }

    /// Reads and drops until the client leaves or the fake ends.
    fn wait_for_the_end(&mut self) {
        while self.read(None) {
            self.input.clear();
        }
    }

    /// The next line, with its payload.
    fn line(&mut self) -> Framed {
        let (most_line, most_payload) = match self.hub.version {
            Version::V3_0 => (16_383, 16_383),
            Version::V3_2 => (16_384, 16_383),
            Version::V3_4 => (16_384, 131_008),
        };
        let mut needs = None;
        loop {
            let (line_end, frame) = self.framed();
            if line_end.is_none_or(|end| end >= most_line) && self.input.len() > most_line {
                return Framed::TooBig(match self.hub.version {
                    Version::V3_0 => TOO_BIG_3_0,
                    Version::V3_2 => TOO_BIG_3_2,
                    Version::V3_4 => TOO_BIG_3_4,
                });
            }
            match frame {
                Some((length, line)) if length > most_payload && line.payload.is_some() => {
                    return Framed::TooBig(self.payload_too_big());
                }
                Some((length, line)) => {
                    self.input.drain(..length);
                    return Framed::Line(line);
                }
                None if self.input.len() > most_payload.max(most_line) => {
                    return Framed::TooBig(self.payload_too_big());
                }
                None => {}
            }
            if !self.read(needs.or(self.idle_limit)) {
                return Framed::End;
            }
            needs = None;
        }
    }

    fn payload_too_big(&self) -> &'static str {
        match self.hub.version {
            Version::V3_0 => TOO_BIG_3_0,
            Version::V3_2 => TOO_BIG_3_2,
            Version::V3_4 => {
                "The payload is too big. Please change 'tune.cli.max-payload-size' in the configuration to use a bigger payload."
            }
        }
    }

    /// Where the first line ends, and the whole of it with its payload if that is here.
    fn framed(&self) -> (Option<usize>, Option<(usize, Line)>) {
        let Some(end) = self.input.iter().position(|&byte| byte == b'\n') else {
            return (None, None);
        };
        let text = String::from_utf8_lossy(self.input.get(..end).unwrap_or_default());
        let mut commands: Vec<Vec<String>> = split(&text, ';').iter().map(|c| words(c)).collect();
        let most_mark = match self.hub.version {
            Version::V3_0 | Version::V3_2 => 7,
            Version::V3_4 => 64,
        };
        let mark = commands
            .last()
            .and_then(|last| last.last())
            .and_then(|word| word.strip_prefix("<<"))
            .filter(|mark| mark.len() <= most_mark)
            .map(str::to_owned);
        let Some(mark) = mark else {
            let line = Line {
                commands,
                payload: None,
            };
            return (Some(end), Some((end + 1, line)));
        };
        if let Some(last) = commands.last_mut() {
            last.pop();
        }
        let mut at = end + 1;
        let mut lines = Vec::new();
        loop {
            let rest = self.input.get(at..).unwrap_or_default();
            let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
                return (Some(end), None);
            };
            let line = rest.get(..length).unwrap_or_default();
            at += length + 1;
            if line == mark.as_bytes() {
                break;
            }
            lines.push(String::from_utf8_lossy(line).into_owned());
        }
        let payload = Payload {
            lines: lines.len(),
            text: lines.join("\n"),
        };
        let line = Line {
            commands,
            payload: Some(payload),
        };
        (Some(end), Some((at, line)))
    }

    /// Reads once; false at the end of the connection, of the fake, or of the idle time.
    fn read(&mut self, idle: Option<Duration>) -> bool {
        let since = self.hub.now();
        let mut buffer = [0; 16 * 1024];
        loop {
            if self.hub.ends() || self.hub.epoch() != self.epoch {
                return false;
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    self.input
                        .extend_from_slice(buffer.get(..count).unwrap_or_default());
                    return true;
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    let spent = self.hub.now().saturating_duration_since(since);
                    if idle.is_some_and(|limit| spent >= limit) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
    }
}

const TOO_BIG_3_0: &str = "The command is too big for the buffer size. Please change tune.bufsize in the configuration to use a bigger command.";
const TOO_BIG_3_2: &str = "The command line is too big for the buffer size. Please change tune.bufsize in the configuration to use a bigger command.";
const TOO_BIG_3_4: &str = "The command line is too big for the buffer size. Please change 'tune.bufsize' in the configuration to use a bigger command.";

/// Splits where `at` stands without a backslash in front.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (place, c) in text.char_indices() {
        if c == at && !escaped {
            pieces.push(text.get(start..place).unwrap_or_default());
            start = place + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    pieces.push(text.get(start..).unwrap_or_default());
    pieces
}

/// Words between blanks; a backslash goes and protects what follows it.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' => found.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(characters.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_split_and_words_unescape() {
        assert_eq!(split("a;b\\;c; d", ';'), ["a", "b\\;c", " d"]);
        assert_eq!(words(" a\\ b  c\\\\d \te\\"), ["a b", "c\\d", "e"]);
        assert!(words("  ").is_empty());
        assert_eq!(words("\"a b\""), ["\"a", "b\""]);
    }
}

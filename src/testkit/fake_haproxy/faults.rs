//! What a test can make the fake do wrong.

/// What the next matching command meets, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A refusal with these words (severity 3); the command does nothing.
    Refuse(String),
    /// This answer as it is, tag included; the command does nothing.
    Answer(String),
    /// No answer, ever; the command does nothing and the connection stays open.
    Silence,
    /// It is carried out, and only so many bytes of the answer come before the connection
    /// closes.
    Cut(usize),
    /// It is carried out, and from here on this connection's answers come byte by byte.
    Bytewise,
    /// It is carried out, and its answer comes late by so many milliseconds.
    Late(u64),
    /// The connection closes before it is carried out.
    CloseBefore,
    /// It is carried out, and the connection closes without an answer.
    CloseAfter,
    /// HAProxy dies before it is carried out, master and worker.
    Die,
    /// Another worker with the same files takes over before it is carried out; this
    /// connection ends.
    AnotherWorker,
}

/// What the next reload meets, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadFault {
    /// It is refused, and these lines are the alerts of the start-up log.
    Refuse(String),
    /// `Another reload is still in progress.`
    Busy,
    /// It takes so many milliseconds before it is carried out.
    Slow(u64),
    /// No answer until [`FakeHaproxy::release`](super::FakeHaproxy::release), and nothing
    /// is carried out before.
    Hang,
    /// It is carried out, and the connection closes without an answer.
    LoseVerdict,
    /// The connection closes at once, and nothing is carried out.
    Close,
    /// `Success=1`, and the old worker stays.
    NoNewWorker,
    /// It is carried out, and the answer comes byte by byte.
    Bytewise,
    /// It is carried out, and only so many bytes of the answer come.
    Cut(usize),
    /// HAProxy dies, master and worker.
    Die,
}

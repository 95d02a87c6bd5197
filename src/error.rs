//! Error chains on their way out: to one line of the log, and to an exit code.
//!
//! Each layer keeps its own error enum whose `Display` tells only its own part and
//! leaves the rest to `source()`. The whole chain is put together here, once, where
//! it leaves the program. What a client is told is decided elsewhere: a chain may
//! hold paths of this machine.

use std::error::Error;
use std::fmt;

use crate::cli::Exit;

/// The longest chain that is followed; a longer one could be a circle.
const MAX_LINKS: usize = 16;

/// Shows an error with all its sources: `outer: inner: innermost`. A source whose
/// words the error before it already ends in is not repeated.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        for _ in 0..MAX_LINKS {
            let Some(error) = next else { return Ok(()) };
            let text = error.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = error.source();
        }
        Ok(())
    }
}

/// Why the process ends: an error and the code that goes with it.
#[derive(Debug)]
pub struct Report {
    exit: Exit,
    source: Box<dyn Error + Send + Sync>,
}

impl Report {
    /// An end with `exit` because of `source`.
    pub fn new(exit: Exit, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            exit,
            source: source.into(),
        }
    }

    /// The code to end with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// One record at error level with the whole chain.
    pub fn log(&self) {
        log::error!(error:% = Chain(&*self.source), exit_code = self.exit.code(); "stopping");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Chain(&*self.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|e| e as &dyn Error)
        }
    }

    fn chain(texts: &[&'static str]) -> Link {
        let (first, rest) = texts.split_first().unwrap();
        Link(first, (!rest.is_empty()).then(|| Box::new(chain(rest))))
    }

    #[test]
    fn the_whole_chain_is_told_without_repeats() {
        let table: [(&[&str], &str); 4] = [
            (&["a"], "a"),
            (&["a", "b", "c"], "a: b: c"),
            (
                &["cannot write x: no space", "no space", "os error 28"],
                "cannot write x: no space: os error 28",
            ),
            (&["a", "a", "a"], "a"),
        ];
        for (texts, want) in table {
            assert_eq!(Chain(&chain(texts)).to_string(), want);
        }
    }

    #[test]
    fn an_endless_chain_ends() {
        let texts: Vec<&'static str> = (0..100)
            .map(|i| if i % 2 == 0 { "x" } else { "y" })
            .collect();
        let shown = Chain(&chain(&texts)).to_string();
        assert_eq!(shown.matches(": ").count(), MAX_LINKS);
    }

    #[test]
    fn a_report_keeps_its_exit_code() {
        let report = Report::new(Exit::CannotStart, chain(&["bind", "in use"]));
        assert_eq!(report.exit(), Exit::CannotStart);
        assert_eq!(report.to_string(), "bind: in use");
    }
}

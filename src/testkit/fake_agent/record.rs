//! What a test can look at afterwards.

use crate::wire::manifest::Manifest;
use crate::wire::result::{ApplyResult, Conflict, Failure, Missing};

/// One `POST /v1/apply` that the fake has answered, or refused to answer.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// The first part as it came.
    pub manifest_json: String,
    /// The same, checked; `None` if it was refused.
    pub manifest: Option<Manifest>,
    /// File parts in the order they came; none after one that was refused.
    pub parts: Vec<Part>,
    /// The plan blob.
    pub blob: Option<Vec<u8>>,
    /// The status of the answer.
    pub status: u16,
    /// The answer.
    pub answer: Given,
}

/// One file part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name, which is the path.
    pub name: String,
    /// The file name that was sent with it.
    pub filename: Option<String>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What was answered.
#[derive(Debug, Clone)]
pub enum Given {
    /// 200: ACK or NACK.
    Result(Box<ApplyResult>),
    /// 409: the fence refused.
    Conflict(Box<Conflict>),
    /// 409: content is missing.
    Missing(Missing),
    /// 400, 413 or 503.
    Refused {
        /// The status.
        status: u16,
        /// The body.
        failure: Failure,
    },
}

impl Default for Given {
    fn default() -> Self {
        Self::Missing(Missing {
            missing: Vec::new(),
        })
    }
}

impl Applied {
    /// The result, if it was one.
    #[must_use]
    pub fn result(&self) -> Option<&ApplyResult> {
        match &self.answer {
            Given::Result(result) => Some(result),
            Given::Conflict(_) | Given::Missing(_) | Given::Refused { .. } => None,
        }
    }

    /// The names of the parts, in their order.
    #[must_use]
    pub fn part_names(&self) -> Vec<&str> {
        self.parts.iter().map(|part| part.name.as_str()).collect()
    }
}

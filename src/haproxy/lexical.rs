//! (in the making)
use super::version::HaproxyVersion;
/// A fault.
#[derive(Debug)]
pub struct LexicalFault;
impl std::fmt::Display for LexicalFault { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("empty") } }
impl std::error::Error for LexicalFault {}
/// Looks.
pub fn look(bytes: &[u8], _version: Option<&HaproxyVersion>) -> Result<(), LexicalFault> { if bytes.is_empty() { Err(LexicalFault) } else { Ok(()) } }

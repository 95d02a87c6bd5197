//! Where a server is: `http://host:port` or `unix:///path`.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A server's address. A URL is taken apart here and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// `http://`, port 80 unless it says another.
    Tcp {
        /// A name, or a numeric address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// `unix://` and an absolute path.
    Unix(PathBuf),
}

/// Why a text is no origin. The text is not repeated: it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// A user or password before an `@`.
    UserInfo,
    /// `https://`.
    Tls,
    /// Neither `http://` nor `unix://`.
    Scheme,
    /// No host, or one with characters that no host has.
    Host,
    /// Not a number from 1 to 65535.
    Port,
    /// Something after the port.
    Path,
    /// A socket path that is not absolute or has control characters.
    Socket,
}

impl fmt::Display for OriginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserInfo => {
                "a URL must not hold credentials, since command lines and logs are read by others; give them by the environment or a file"
            }
            Self::Tls => {
                "https is not spoken here; use http on a network of your own, or a tunnel that ends on this machine"
            }
            Self::Scheme => "a URL starts with http:// or unix://",
            Self::Host => "a URL needs a host, as in http://10.0.0.7:5555",
            Self::Port => "a port is a number from 1 to 65535",
            Self::Path => "nothing may follow the port: the paths are fixed",
            Self::Socket => "unix:// takes an absolute path, as in unix:///run/x.sock",
        })
    }
}

impl std::error::Error for OriginError {}

impl Origin {
    /// Reads a URL.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(url: &str) -> Result<Self, OriginError> {
        if let Some(path) = after_scheme(url, "unix") {
            let absolute = Path::new(path).is_absolute() && !path.ends_with('/');
            if !absolute || path.chars().any(char::is_control) {
                return Err(OriginError::Socket);
            }
            return Ok(Self::Unix(path.into()));
        }
        if url.contains('@') {
            return Err(OriginError::UserInfo);
        }
        if after_scheme(url, "https").is_some() {
            return Err(OriginError::Tls);
        }
        let rest = after_scheme(url, "http").ok_or(OriginError::Scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !matches!(path, "" | "/") {
            return Err(OriginError::Path);
        }
        let (host, port) = split_port(authority)?;
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }

    /// What goes into the `Host` field.
    pub(super) fn host_field(&self) -> String {
        match self {
            Self::Tcp { host, port } => authority(host, *port),
            Self::Unix(_) => "localhost".into(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "http://{}", authority(host, *port)),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn after_scheme<'u>(url: &'u str, scheme: &str) -> Option<&'u str> {
    let (start, rest) = url.split_once("://")?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}

fn split_port(authority: &str) -> Result<(&str, u16), OriginError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(OriginError::Host)?;
            let is_v6 = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
            if !is_v6 {
                return Err(OriginError::Host);
            }
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(OriginError::Host),
            };
            (host, port)
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
                return Err(OriginError::Host);
            }
            (host, port)
        }
    };
    let port = match port {
        None => 80,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| OriginError::Port)?
        }
        Some(_) => return Err(OriginError::Port),
    };
    if port == 0 {
        return Err(OriginError::Port);
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_by_table() {
        let good = [
            ("http://10.0.0.7:5555", "http://10.0.0.7:5555"),
            ("HTTP://lb-1.example.org/", "http://lb-1.example.org:80"),
            ("http://[::1]:5555/", "http://[::1]:5555"),
            ("http://[2001:db8::7]", "http://[2001:db8::7]:80"),
            ("unix:///run/a@b.sock", "unix:///run/a@b.sock"),
        ];
        for (url, shown) in good {
            assert_eq!(
                Origin::parse(url).map(|o| o.to_string()),
                Ok(shown.into()),
                "{url}"
            );
        }
        let bad = [
            ("http://u:geheim@h:1", OriginError::UserInfo),
            ("https://u:geheim@h:1", OriginError::UserInfo),
            ("https://h", OriginError::Tls),
            ("10.0.0.7:5555", OriginError::Scheme),
            ("ftp://h", OriginError::Scheme),
            ("", OriginError::Scheme),
            ("http://", OriginError::Host),
            ("http://:80", OriginError::Host),
            ("http://a b", OriginError::Host),
            ("http://::1", OriginError::Host),
            ("http://[::1", OriginError::Host),
            ("http://[::1]x", OriginError::Host),
            ("http://[10.0.0.1]", OriginError::Host),
            ("http://a:1:2", OriginError::Port),
            ("http://h:", OriginError::Port),
            ("http://h:0", OriginError::Port),
            ("http://h:65536", OriginError::Port),
            ("http://h:+80", OriginError::Port),
            ("http://h/v1", OriginError::Path),
            ("http://h?x", OriginError::Path),
            ("unix://run/x", OriginError::Socket),
            ("unix:///run/", OriginError::Socket),
        ];
        for (url, error) in bad {
            assert_eq!(Origin::parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn an_error_never_repeats_a_password() {
        let error = Origin::parse("http://u:geheim@h:1").unwrap_err();
        assert!(!error.to_string().contains("geheim"));
        assert!(!format!("{error:?}").contains("geheim"));
    }
}

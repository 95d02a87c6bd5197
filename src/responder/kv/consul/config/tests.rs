use super::super::token::TokenError;
use super::*;
use std::fs;

fn server(address: Option<&str>, env: &[(&str, &str)]) -> Result<ConsulServer, String> {
    let env = |name: &str| {
        let found = env.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    ConsulServer::new(address, &env).map_err(|error| error.to_string())
}

fn tcp(host: &str, port: u16) -> Origin {
    Origin::Tcp {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn the_flag_comes_first_then_the_environment_then_the_default() {
    let env = [(ADDR_ENV, "10.0.0.1:1")];
    let origin = |flag, env: &[_]| server(flag, env).unwrap().origin;
    assert_eq!(origin(Some("10.0.0.2:2"), &env), tcp("10.0.0.2", 2));
    assert_eq!(origin(None, &env), tcp("10.0.0.1", 1));
    assert_eq!(origin(None, &[(ADDR_ENV, "")]), tcp("127.0.0.1", 8500));
    assert_eq!(origin(None, &[]), tcp("127.0.0.1", 8500));
}

#[test]
fn spellings_of_an_address() {
    let table = [
        ("consul.example:8500", tcp("consul.example", 8500)),
        ("http://127.0.0.1:80", tcp("127.0.0.1", 80)),
        ("http://127.0.0.1:80/", tcp("127.0.0.1", 80)),
        ("[::1]:8500", tcp("::1", 8500)),
        (
            "unix:///run/consul.sock",
            Origin::Unix("/run/consul.sock".into()),
        ),
    ];
    for (text, origin) in table {
        assert_eq!(server(Some(text), &[]).unwrap().origin, origin, "{text}");
    }
    for (text, says) in [
        ("https://127.0.0.1:8501", "https"),
        ("127.0.0.1", "port"),
        ("[::1]", "port"),
        ("http://consul/", "port"),
        ("127.0.0.1:0", "port"),
        ("ftp://127.0.0.1:8500", "http://"),
        ("user:secret@127.0.0.1:8500", "credentials"),
        ("http://127.0.0.1:8500/consul", "follow"),
        ("unix://run/x", "absolute"),
    ] {
        let error = server(Some(text), &[]).unwrap_err();
        assert!(
            error.contains(says) && error.contains("--consul-addr"),
            "{text}: {error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn what_cannot_be_honoured_stops_the_start() {
    for value in ["1", "true", "yes"] {
        assert!(
            server(None, &[(SSL_ENV, value)])
                .unwrap_err()
                .contains(SSL_ENV)
        );
    }
    assert!(server(None, &[(SSL_ENV, "false")]).is_ok());
    assert!(
        server(None, &[(AUTH_ENV, "u:p")])
            .unwrap_err()
            .contains(AUTH_ENV)
    );
    assert!(
        server(None, &[(TOKEN_ENV, "a b")])
            .unwrap_err()
            .contains(TOKEN_ENV)
    );
}

#[test]
fn tokens_come_from_a_file_or_the_environment() {
    let token = |env: &[_]| server(None, env).unwrap().token;
    assert_eq!(token(&[]), Token::None);
    assert_eq!(token(&[(TOKEN_ENV, "")]), Token::None);
    assert_eq!(token(&[(TOKEN_ENV, "abc\n")]), Token::Fixed("abc".into()));
    let both = [(TOKEN_ENV, "abc"), (TOKEN_FILE_ENV, "/t")];
    assert_eq!(token(&both), Token::File("/t".into()));
    assert!(!format!("{:?}", Token::Fixed("abc".into())).contains("abc"));
}

#[test]
fn a_token_file_has_one_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let token = Token::File(path.clone());
    assert!(matches!(token.read(), Err(TokenError::Io { .. })));
    for good in ["abc", "abc\n", " abc \r\n"] {
        fs::write(&path, good).unwrap();
        assert_eq!(token.read().unwrap().unwrap(), "abc");
    }
    for bad in ["", "\n", "a b", "a\nb", "ä", &"x".repeat(5000)] {
        fs::write(&path, bad).unwrap();
        assert!(
            matches!(token.read(), Err(TokenError::Content(_))),
            "{bad:?}"
        );
    }
}

#[test]
fn prefix_and_marker_are_checked() {
    let make = |prefix, marker| {
        ConsulConfig::new(None, prefix, marker, &|_| None).map_err(|error| error.to_string())
    };
    let config = make("/a/b/", Some(".mark")).unwrap();
    assert_eq!(config.prefix.with_slash(), "a/b/");
    assert_eq!(config.marker.as_deref(), Some(".mark"));
    for given in ["", "/", "//"] {
        let error = make(given, None).unwrap_err();
        assert!(error.contains("--kv-prefix"), "{error}");
        assert_eq!(error.matches("for instance").count(), 1, "{error}");
    }
    assert!(make("a//b", None).unwrap_err().contains("--kv-prefix"));
    assert!(make("a", Some("")).unwrap_err().contains("--kv-marker"));
    assert!(make("a", Some("x/")).unwrap_err().contains("--kv-marker"));
}

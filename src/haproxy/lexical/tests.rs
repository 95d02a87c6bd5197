//! Tables of what is refused and what is left alone. That HAProxy agrees is shown from
//! outside, with its own `-c`.

use super::*;

fn refused(text: &str) -> Option<LexicalFault> {
    precheck(text.as_bytes()).err()
}

#[test]
fn a_file_must_have_content_and_an_end() {
    let empty = refused("").unwrap();
    assert_eq!(empty.line, 0);
    assert!(
        before_reload(b"", &"3.0.11".parse().unwrap()).is_err(),
        "on every version"
    );
    assert_eq!(refused("global\n  # x").unwrap().line, 2);
    assert_eq!(refused("global\n  ").unwrap().line, 2);
    assert_eq!(refused("a\nb\0\nc\n").unwrap().line, 2);
    assert_eq!(refused("\n"), None);
}

#[test]
fn the_scan_is_for_masters_that_die_of_it() {
    let bad = b"global\n \"\n";
    for (version, survives) in [
        ("2.6.12", true),
        ("3.0.11", true),
        ("3.2.26", true),
        ("3.4.0", false),
        ("3.5-dev5", false),
    ] {
        let version: HaproxyVersion = version.parse().unwrap();
        assert_eq!(before_reload(bad, &version).is_ok(), survives, "{version}");
        assert!(before_reload(b"global\n", &version).is_ok());
    }
}

#[test]
fn a_last_line_that_fills_the_buffer_is_dropped_by_haproxy_and_not_refused() {
    for (length, fine) in [
        (2046, false),
        (2047, true),
        (2048, false),
        (4094, false),
        (4095, true),
        (4096, false),
    ] {
        let text = format!("global\n#{}", "x".repeat(length - 1));
        assert_eq!(refused(&text).is_none(), fine, "{length}");
    }
    let wide = format!("#{}\n", "x".repeat(3000));
    for (length, fine) in [(2047, false), (4095, true)] {
        let text = format!("{wide}#{}", "x".repeat(length - 1));
        assert_eq!(
            refused(&text).is_none(),
            fine,
            "after a long line: {length}"
        );
    }
}

#[test]
fn lines_that_haproxy_cannot_read() {
    for line in [
        "a \"b",
        "a 'b",
        "a \"b' c",
        "a 'b\" c",
        "\"a\rb\"",
        "a \\\"b\"",
        "a '\\'b'",
        "\\x",
        "\\x4",
        "\\x4g",
        "a \"\\xg0\"",
        "\"$\"",
        "\"$1\"",
        "\"a $ b\"",
        "\"${\"",
        "\"${}\"",
        "\"${A\"",
        "\"${A b}\"",
        "\"${A[*}\"",
        "\"${A[}\"",
        "\"${A-b\"",
        "\"${.}\" \"",
        "[",
        "[]",
        "[a",
        "[a]b",
        "[a b]",
        "  [a'b]",
    ] {
        assert!(refused(&format!("{line}\n")).is_some(), "{line:?}");
    }
}

#[test]
fn lines_that_haproxy_reads() {
    for line in [
        "a \"b\" 'c'",
        "a \"b'c\" 'd\"e'",
        "# \"",
        "a # '",
        "a\\ b",
        "a \\\" b",
        "a \\' b",
        "a '\\' b",
        "\\x4a",
        "a '\\xg'",
        "a \"b\\\"c\"",
        "a $ ${ $1",
        "\"$A\"",
        "\"${A}\"",
        "\"${A-}\"",
        "\"${A-b c\"d}\"",
        "\"${A[*]}\"",
        "\"${A[*]-x}\"",
        "\"$A[\"",
        "\"\\$1\"",
        "'$1'",
        "\"${.LINE}\"",
        "a\r \"",
        "a \\",
        "[a]",
        "[a-b_c.d:1] # x",
        " [a]\t",
        "\u{b}a\u{c}b",
        "é \u{a0}",
    ] {
        assert_eq!(refused(&format!("{line}\n")), None, "{line:?}");
    }
}

#[test]
fn the_sixty_fifth_word_is_one_too_many() {
    let words = |count: usize| vec!["w"; count].join(" ");
    for line in [
        words(64),
        format!("{}  # x", words(64)),
        format!("{} \t", words(64)),
    ] {
        assert_eq!(refused(&format!("{line}\n")), None, "{line:?}");
    }
    for line in [words(65), format!("{} ''", words(64)), words(200)] {
        assert!(refused(&format!("{line}\n")).is_some(), "{line:?}");
    }
    // A variable without a value joins its word and the next one.
    let joined = format!("{} \"$A\" w\n", words(63));
    assert_eq!(refused(&joined), None);
    // Or is none at all.
    let vanished = format!("{} \"${{A[*]}}\" \n", words(64));
    assert_eq!(refused(&vanished), None);
}

#[test]
fn conditionals_are_balanced() {
    for text in [
        ".if 1\n.endif\n",
        ".if 1\n.elif 0\n.elif 1\n.else\n.endif\n",
        ".if 0\n.if x y\n.endif\n.endif\n",
        ".if 1\n.else ''\n.endif # x\n",
        "\".if\" 1\n.endif\n",
        "'' .if\n",
        "\"$A\"\n.endif\n",
        ".if 1\n\"$A\" 1\n",
        "a .if\n",
    ] {
        assert_eq!(refused(text), None, "{text:?}");
    }
    for (text, line) in [
        (".endif\n", 1),
        (".else\n", 1),
        (".elif 1\n", 1),
        (".if 1\n", 1),
        (".if 1\n.if 1\n.endif\n", 1),
        (".if 1\n.endif\n.endif\n", 3),
        (".if 1\n.else\n.else\n.endif\n", 3),
        (".if 1\n.else\n.elif 1\n.endif\n", 3),
        (".if 1\n.endif x\n", 2),
        (".if 1\n.else x\n.endif\n", 2),
        ("a\n.if 0\n \"\n.endif\n", 3),
    ] {
        assert_eq!(
            refused(text).map(|fault| fault.line),
            Some(line),
            "{text:?}"
        );
    }
    let nested = |depth: usize| format!("{}{}", ".if 1\n".repeat(depth), ".endif\n".repeat(depth));
    assert_eq!(refused(&nested(MAX_NESTED)), None);
    assert!(refused(&nested(MAX_NESTED + 1)).is_some());
}

#[test]
fn conditions_are_looked_at_for_their_form_only() {
    for good in [
        "",
        "0",
        "1",
        "-1",
        "+1",
        "0x1f",
        "1 && 0",
        "1&&0||1",
        "!1",
        "! !1",
        "(1)",
        "( 1 || 0 ) && 1",
        "defined(A)",
        "defined",
        "streq(a,b c)",
        "version_atleast(3.0)",
        "later_predicate x",
        "later(a) == 3",
        "''",
        "'' x",
        "streq(\\\"a)\\\",b)",
        "\"${A}\"",
        "1 = 1",
        "0x",
    ] {
        assert_eq!(refused(&format!(".if {good}\n.endif\n")), None, "{good:?}");
    }
    for bad in [
        "1 2",
        "1x",
        "(1",
        "1)",
        "()",
        "1 &&",
        "|| 1",
        "1 & 1",
        "1 |",
        "!",
        "defined(A",
        "defined(A))",
        "defined(A)x",
        "defined (A)",
        "(1) (1)",
        "streq",
        "streq()",
        "streq(a)",
        "streq(a,b,c)",
        "strstr(a(b),c)",
        "defined(a,b)",
        "version_atleast(3.0,2)",
        "0 && strneq(a)",
    ] {
        assert!(
            refused(&format!(".if {bad}\n.endif\n")).is_some(),
            "{bad:?}"
        );
        let hidden = format!(".if 0\n.if {bad}\n.endif\n.endif\n");
        assert_eq!(
            refused(&hidden),
            None,
            "{bad:?} is not looked at by HAProxy there"
        );
    }
}

/// As a 3.4 master judges it.
fn refused_by_3_4(text: &str) -> Option<LexicalFault> {
    before_reload(text.as_bytes(), &"3.4.7".parse().unwrap()).err()
}

#[test]
fn arguments_of_the_masters_own_keywords() {
    for good in [
        "daemon",
        "daemon '' x",
        "setenv A B",
        "setenv A B '' c",
        "unsetenv A B C",
        "unsetenv A '' =",
        "pidfile /x",
        "daemonize x",
        "setenv A \"$B\" c",
        "setenv \"$A\" b c d",
        "unsetenv \"$A\" =",
        "master-worker",
        "master-worker no-exit-on-failure",
        "mworker-max-reloads 0",
        "mworker-max-reloads x",
        "mworker-max-reloads 2147483647",
        "mworker-max-reloads 4294967296",
        "mworker-max-reloads -9223372036854775809",
        "noepoll",
        "global",
        "globals x",
    ] {
        let text = format!("global\n {good}\n");
        assert_eq!(refused(&text), None, "{good:?}");
        assert_eq!(refused_by_3_4(&text), None, "{good:?}");
    }
    for bad in [
        "daemon x",
        "'daemon' x",
        "quiet x",
        "zero-warning x",
        "noepoll x",
        "noktls x",
        "global now",
        "setenv",
        "setenv A",
        "setenv A B C",
        "setenv A B C \"$D\"",
        "setenv ''",
        "setenv '' c",
        "setenv A ''",
        "setenv = b",
        "setenv A=B c",
        "setenv A=B \"$C\"",
        "presetenv A",
        "presetenv A=B c",
        "unsetenv",
        "unsetenv ''",
        "unsetenv A=B",
        "unsetenv A B =",
        "pidfile",
        "pidfile ''",
        "pidfile a b",
        "localpeer",
        "localpeer a b",
        "master-worker x",
        "master-worker exit-on-failure",
        "master-worker no-exit-on-failure x",
        "mworker-max-reloads",
        "mworker-max-reloads 1 2",
        "mworker-max-reloads -1",
        "mworker-max-reloads ' -1'",
        "mworker-max-reloads 2147483648",
        "mworker-max-reloads 9223372036854775808",
    ] {
        assert_eq!(
            refused(&format!("global\n {bad}\n")).map(|fault| fault.line),
            Some(2),
            "{bad:?}"
        );
        assert_eq!(
            refused(&format!("global\n.if 0\n {bad}\n.endif\n")),
            None,
            "{bad:?}"
        );
        assert_eq!(refused(&format!("[a]\nglobal\n {bad}\n")), None, "{bad:?}");
    }
}

#[test]
fn what_a_later_release_may_take() {
    let common = [
        "no",
        "no ''",
        "default",
        "no server s9",
        "default weight 1",
        "no balance",
        "'no' daemon",
        "no global",
        "no \"\" option x",
    ];
    let only_3_4 = [
        "expose-deprecated-directives x",
        ".if openssl_version_atleast(3.0)\n.endif",
        ".if !openssl_version_before\n.endif",
        ".if defined(A) !defined(B)\n.endif",
        ".if (1 = 1)\n.endif",
    ];
    for bad in common.iter().chain(&only_3_4) {
        let text = format!("global\n {bad}\n");
        assert_eq!(refused(&text).is_some(), common.contains(bad), "{bad:?}");
        for later in ["3.5.0", "4.0.0"] {
            let fault = before_reload(text.as_bytes(), &later.parse().unwrap());
            assert_eq!(fault, Ok(()), "{bad:?} on {later}");
        }
        let line = refused_by_3_4(&text).map(|fault| fault.line);
        assert_eq!(line, Some(2), "{bad:?}");
    }
    for good in [
        "no option x",
        "default option x",
        "no log",
        "no strict-limits",
        "no \"$A\" x",
        "no-x y",
        "default_backend x",
        "default-server x",
        "a no b",
        ".if 0 && openssl_version_atleast(3.0)\n.endif",
        ".if openssl_version_atleast(3.0.0)\n.endif",
        ".if 0\n no server\n.endif",
        "master-worker",
        "zero-warning",
    ] {
        assert_eq!(
            refused_by_3_4(&format!("global\n {good}\n")),
            None,
            "{good:?}"
        );
    }
    for (first, second) in [
        ("zero-warning", "master-worker"),
        ("master-worker", "zero-warning"),
    ] {
        let text = format!("global\n {first}\n {second}\n");
        assert_eq!(refused(&text), None);
        assert_eq!(refused_by_3_4(&text).map(|fault| fault.line), Some(3));
    }
}

#[test]
fn the_words_say_what_to_write() {
    for (line, words) in [
        (
            "setenv A=B c",
            "gives setenv 'A=B', which is no variable's name; write: setenv <name> <value>",
        ),
        (
            "daemon x",
            "gives daemon an argument too many, 'x'; write: daemon",
        ),
        (
            "pidfile",
            "gives pidfile too few arguments, or an empty one; write: pidfile <file>",
        ),
        ("no server s9", "delete the line or the word no"),
        ("default", "has default with no keyword behind it"),
        (".if streq(a)\n.endif", "this predicate takes two"),
    ] {
        let what = refused_by_3_4(&format!("global\n {line}\n")).unwrap().what;
        assert!(what.contains(words), "{line:?}: {what}");
    }
    let long = refused_by_3_4(&format!("no {}\n", "é".repeat(1000))).unwrap();
    assert!(long.what.len() < 400, "{}", long.what);
}

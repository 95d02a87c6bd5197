//! The lines whose words a 3.4 master judges itself: what it dies of is found, and what
//! HAProxy takes is not refused.

use super::*;

/// A section's fault that the master's own pass over the file does not see, in front of
/// everything: a `-c` that does not name it has stopped before.
const LATER: &str = "backend zz\n frobnicate\n";

/// What a 3.4 master was seen to die of, each with a section word or within the global
/// section, and refused by all three unless marked.
const KILLERS: [&str; 46] = [
    " no\n",
    " no ''\n",
    " no server s9\n",
    " no balance\n",
    " no master-worker\n",
    " no daemon\n",
    " no .if 1\n",
    " no global\n",
    " no \"\" option x\n",
    " default\n",
    " default weight 1\n",
    " default global\n",
    "backend b\n no server s9\n",
    "backend b\n default weight 1\n",
    "defaults\n no timeout client\n",
    "global now\n",
    "'global' now\n",
    " noepoll x\n",
    " noevports x\n",
    " nokqueue x\n",
    " noktls x\n",
    " nopoll x\n",
    " master-worker x\n",
    " master-worker exit-on-failure\n",
    " master-worker no-exit-on-failure x\n",
    " mworker-max-reloads -1\n",
    " mworker-max-reloads ' -1'\n",
    " mworker-max-reloads 2147483648\n",
    " mworker-max-reloads 18446744073709551615\n",
    " setenv A=B c\n",
    " setenv = b\n",
    " setenv '' c\n",
    " setenv A ''\n",
    " setenv A '' c\n",
    " presetenv A=B c\n",
    " presetenv A ''\n",
    " unsetenv A=B\n",
    " unsetenv A =\n",
    " unsetenv ''\n",
    " pidfile ''\n",
    " localpeer ''\n",
    ".if streq(a)\n.endif\n",
    ".if defined(a,b)\n.endif\n",
    ".if streq(a(b),c)\n.endif\n",
    ".if version_atleast(3.0,2)\n.endif\n",
    ".if awslc_api_atleast(1,2)\n.endif\n",
];

/// The same of what 3.0 or 3.2 takes, or a later one may.
const KILLERS_OF_3_4: [&str; 6] = [
    " expose-deprecated-directives x\n",
    " zero-warning\n master-worker\n",
    ".if openssl_version_atleast(3.0)\n.endif\n",
    ".if !openssl_version_before\n.endif\n",
    ".if defined(A) !defined(B)\n.endif\n",
    ".if 1.5\n.endif\n",
];

#[test]
fn each_of_them_is_found_and_refused_by_haproxy() {
    let dir = tempfile::tempdir().unwrap();
    for line in KILLERS.iter().chain(&KILLERS_OF_3_4) {
        let text = format!("{HEAD}{line}");
        assert!(look(Version::V3_4, &text).is_err(), "{line:?} is not found");
        let (refuses, said) = verdict(Version::V3_4, dir.path(), text.as_bytes());
        assert!(refuses, "3.4 accepts {line:?}");
        // The warnings are counted when all has been read.
        let at_the_end = line.contains("zero-warning");
        assert!(
            at_the_end || stopped_early(dir.path(), line),
            "3.4 leaves {line:?} to the worker: {said}"
        );
    }
    for line in KILLERS {
        for version in [Version::V3_0, Version::V3_2] {
            let text = format!("{HEAD}{line}");
            let (refuses, _) = verdict(version, dir.path(), text.as_bytes());
            assert!(refuses, "{version} accepts {line:?}");
        }
    }
}

/// Whether 3.4 refuses the line before it reads the other sections.
fn stopped_early(dir: &Path, line: &str) -> bool {
    let text = format!("{LATER}{HEAD}{line}");
    let (_, said) = verdict(Version::V3_4, dir, text.as_bytes());
    !said.contains("frobnicate")
}

#[test]
fn a_master_does_die_of_them() {
    // A sample: each one costs a master.
    let step = match std::env::var_os("HAPTIC_SOAK") {
        Some(_) => 1,
        None => 8,
    };
    for line in KILLERS.iter().chain(&KILLERS_OF_3_4).step_by(step) {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let mut haproxy = Haproxy::start(Version::V3_4, base, &minimal(base));
        haproxy.write_config(&format!("{}{HEAD}{line}", minimal(base)));
        let _ = master_of(&haproxy).reload_once(soon());
        crate::support::wait::until(
            &format!("the master dies of {line:?}"),
            Duration::from_secs(5),
            || haproxy.exited(),
        );
    }
}

/// One line, most of the time one that is nearly right.
fn line() -> impl Strategy<Value = String> {
    let keyword = prop::sample::select(vec![
        "setenv",
        "presetenv",
        "unsetenv",
        "daemon",
        "quiet",
        "zero-warning",
        "pidfile",
        "localpeer",
        "mworker-max-reloads",
        "master-worker",
        "noepoll",
        "nopoll",
        "nokqueue",
        "noevports",
        "noktls",
        "expose-deprecated-directives",
        "global",
        "option",
        "log",
        "busy-polling",
        "set-dumpable",
        "strict-limits",
        "insecure-fork-wanted",
        "numa-cpu-mapping",
        "maxconn",
        "description",
        "\"setenv\"",
        "''",
        "\"$A\"",
        "\"$E\"",
    ]);
    let argument = prop::sample::select(vec![
        "a",
        "B",
        "=",
        "A=",
        "=b",
        "A=B",
        "''",
        "\"\"",
        "' '",
        "\"$S\"",
        "\"$E\"",
        "\"$A\"",
        "\"${S[*]}\"",
        "\"${E[*]}\"",
        "0",
        "1",
        "-1",
        "-0",
        "+3",
        "3x",
        "2147483647",
        "2147483648",
        "4294967295",
        "4294967296",
        "-2147483648",
        "-2147483649",
        "99999999999999999999",
        "-99999999999999999999",
        "' -1'",
        "'\t7'",
        "no-exit-on-failure",
        "no-exit-on-failur",
        "#",
        "\\ ",
        "\\x3d",
        "A\\=B",
        "option",
        "log",
        "no",
    ]);
    let prefix = prop::sample::select(vec![
        "",
        "",
        "",
        "no ",
        "default ",
        "no  ",
        "'no' ",
        "\"$E\" ",
        "no \"$E\" ",
        "no ''",
        "n\\o ",
    ]);
    let gap = prop::sample::select(vec![" ", " ", " ", "  ", "\t", ""]);
    let arguments = prop::collection::vec((gap, argument), 0..4).prop_map(|all| {
        all.iter()
            .map(|(gap, word)| format!("{gap}{word}"))
            .collect::<String>()
    });
    (prefix, keyword, arguments)
        .prop_map(|(prefix, keyword, arguments)| format!(" {prefix}{keyword}{arguments}\n"))
}

#[test]
fn a_line_is_refused_if_and_only_if_the_master_does() {
    let dir = tempfile::tempdir().unwrap();
    let (found, missed, taken) = (Count::default(), Count::default(), Count::default());
    let kinds = std::cell::RefCell::new(BTreeSet::new());
    runner(300)
        .run(&line(), |line| {
            let text = format!("{HEAD}{line}");
            for version in Version::ALL {
                let ours = look(version, &text);
                if ours.is_err() || version == Version::V3_4 {
                    let (theirs, said) = verdict(version, dir.path(), text.as_bytes());
                    prop_assert!(
                        theirs || ours.is_ok(),
                        "{version} takes {line:?}, ours: {ours:?}\n{said}"
                    );
                    taken.add(usize::from(!theirs));
                }
            }
            let ours = look(Version::V3_4, &text).is_err();
            // Behind a good one of these `-c` does not show what the worker says.
            let silent = line.contains("master-worker") || line.contains("quiet");
            if !silent && stopped_early(dir.path(), &line) != ours {
                // What a variable does to a line is left to HAProxy.
                prop_assert!(!ours && line.contains('$'), "ours {ours} {line:?}");
                missed.add(1);
            }
            if ours {
                found.add(1);
                kinds
                    .borrow_mut()
                    .insert(line.split_whitespace().next().map(str::to_owned));
            }
            Ok(())
        })
        .unwrap();
    let (found, missed, taken) = (found.get(), missed.get(), taken.get());
    let kinds = kinds.borrow().len();
    println!("{found} found in {kinds} kinds, {missed} left to HAProxy, {taken} that it takes");
    assert!(found > 60 && kinds > 8 && taken > 15 && missed * 2 < found);
}

/// Sections with `no` and `default` as HAProxy takes them, and the words around them.
#[test]
fn good_prefixes_in_every_section_pass() {
    let text = "global\n no busy-polling\n no set-dumpable\n no strict-limits\n \
                no insecure-fork-wanted\n no log\n\
                defaults\n mode http\n timeout connect 1s\n timeout client 1s\n \
                timeout server 1s\n no option dontlognull\n no option redispatch\n \
                default option redispatch\n no log\n\
                frontend f\n bind 127.0.0.1:1\n no option http-server-close\n \
                no log\n default_backend b\n\
                backend b\n default-server inter 1s\n no option abortonclose\n \
                server no 127.0.0.1:1\n server default 127.0.0.1:2\n";
    let dir = tempfile::tempdir().unwrap();
    for version in Version::ALL {
        let (refuses, said) = verdict(version, dir.path(), text.as_bytes());
        assert!(!refuses, "{version}: {said}");
    }
    assert_eq!(look(Version::V3_4, text), Ok(()));
    assert_eq!(precheck(text.as_bytes()), Ok(()));
}

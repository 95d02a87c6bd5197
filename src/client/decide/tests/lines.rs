//! Maps and crt-lists of which only some lines changed.

use super::*;

#[test]
fn lines_at_the_end_of_a_big_map_are_added_one_by_one() {
    let big = big_map(2000);
    let before = change("maps/big.map", &big).1;
    let state = applied(&set(&before), "3.0.11");
    let grown = |more: &str| {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), format!("{big}{more}").into_bytes());
        shown(&decided(&set(&after), &state))
    };
    assert_eq!(
        grown("# c\nx a b; c\n y\n"),
        ["map_add maps/big.map x a b; c", "map_add maps/big.map y "]
    );
    assert_eq!(grown(&big_map(64)).len(), 64);
    for whole in [
        big_map(65),
        "a;b c\n".into(),
        "#\n # x\n".into(),
        "é\u{1} x\n".into(),
    ] {
        let ops = grown(&whole);
        assert_eq!(ops, ["map_replace maps/big.map"], "{whole:?}");
    }
    let mut after = before.clone();
    after.insert(
        "maps/big.map".into(),
        format!("{big}# only this\n").into_bytes(),
    );
    let decision = decided(&set(&after), &state);
    assert_eq!(decision.verdict, Verdict::FileOnly);

    // The last line grew: that is no new line.
    let open = big.trim_end();
    let before = change("maps/big.map", open).1;
    let state = applied(&set(&before), "3.0.11");
    for (more, wanted) in [
        ("0\n", "map_replace maps/big.map"),
        ("\nx y\n", "map_add maps/big.map x y"),
    ] {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), format!("{open}{more}").into_bytes());
        assert_eq!(shown(&decided(&set(&after), &state)), [wanted]);
    }
    // A map of one command is simply replaced.
    let pair = change("maps/host.map", "a one\nb two\nc three\n");
    assert_eq!(shown(&after_of(&pair)), ["map_replace maps/host.map"]);
}

#[test]
fn entries_of_an_unordered_map_change_one_by_one() {
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/big.map".to_owned()]),
        ..FileSetOptions::default()
    };
    let big = format!("{}dup 1\ndup 2\n", big_map(2000));
    let before = change("maps/big.map", &big).1;
    let state = applied(&with(&before, &options), "3.4.7");
    let edited = |options: &FileSetOptions, edit: &dyn Fn(String) -> String| {
        let mut after = before.clone();
        after.insert("maps/big.map".into(), edit(big.clone()).into_bytes());
        shown(&decided(&with(&after, options), &state))
    };
    let some = |text: String| {
        text.replace("host-00007.example value-7\n", "host-00007.example new\n")
            .replace("host-00009.example value-9\n", "")
            .replace("host-00100", "host-new")
    };
    assert_eq!(
        edited(&options, &some),
        [
            "map_set maps/big.map host-00007.example new",
            "map_add maps/big.map host-new.example value-100",
            "map_del maps/big.map host-00009.example",
            "map_del maps/big.map host-00100.example",
        ]
    );
    // Order alone is no change then.
    let turned = |text: String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.swap(3, 900);
        lines.join("\n")
    };
    assert_eq!(
        edited(&options, &turned),
        Vec::<String>::new(),
        "nothing to do"
    );
    type Edit = fn(String) -> String;
    let whole: [Edit; 4] = [
        |text| text.replace("value-7\n", "two words\n"),
        |text| text.replace("dup 2\n", "dup 3\n"),
        |text| text.replace("value-1", "new-1"),
        |text| text.replace("dup 1\ndup 2\n", "dup 2\ndup 1\n"),
    ];
    for edit in whole {
        assert_eq!(edited(&options, &edit), ["map_replace maps/big.map"]);
    }
    let plain = FileSetOptions::default();
    assert_eq!(edited(&plain, &some), ["map_replace maps/big.map"]);
}

/// Each row: the list before and after, further files, and the ops or the reason.
#[test]
fn rows_at_the_end_of_a_crt_list_are_added() {
    let new = format!("{}{KEY}", CERT.replace("AAAA", "NNNN"));
    let with_new: &[(&str, &str)] = &[("certs/n.pem", &new)];
    let two: &[(&str, &str)] = &[("certs/n.pem", &new), ("certs/m.pem", &new)];
    let lonely: &[(&str, &str)] = &[("certs/n.pem", CERT)];
    type Row<'a> = (
        &'a str,
        &'a str,
        &'a [(&'a str, &'a str)],
        Result<&'a [&'a str], &'a str>,
    );
    let table: &[Row<'_>] = &[
        (
            "certs/a.pem\n",
            "certs/n.pem\n",
            with_new,
            Ok(&[
                "cert_new certs/n.pem",
                "crtlist_add site.crtlist certs/n.pem",
            ]),
        ),
        (
            "certs/a.pem\n",
            "# new\ncerts/n.pem [alpn h2,http/1.1 no-ca-names] *.x !y.x\n\n",
            with_new,
            Ok(&[
                "cert_new certs/n.pem",
                "crtlist_add site.crtlist certs/n.pem [alpn h2,http/1.1] [no-ca-names ] *.x !y.x",
            ]),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem a.x\ncerts/m.pem\ncerts/n.pem b.x\ncerts/pair.pem\n",
            two,
            Ok(&[
                "cert_new certs/n.pem",
                "cert_new certs/m.pem",
                "crtlist_add site.crtlist certs/n.pem a.x",
                "crtlist_add site.crtlist certs/m.pem",
                "crtlist_add site.crtlist certs/n.pem b.x",
                "crtlist_add site.crtlist certs/pair.pem",
            ]),
        ),
        (
            "certs/a.pem\n",
            "certs/pair.pem z\n",
            &[],
            Ok(&["crtlist_add site.crtlist certs/pair.pem z"]),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem",
            with_new,
            Err("line 2 of the crt-list is the last one and has no line end"),
        ),
        (
            "certs/a.pem\n",
            "certs/gone.pem\n",
            &[],
            Err("line 2 names certs/gone.pem, which is neither"),
        ),
        (
            "certs/a.pem\n",
            "ca/clients.pem\n",
            &[],
            Err("does not hold under that name"),
        ),
        (
            "certs/a.pem\n",
            "\ncerts/n.pem\n",
            lonely,
            Err("line 3 names certs/n.pem: the file must hold a certificate and its private key"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem f [alpn h2]\n",
            with_new,
            Err("line 2 has words before its bracket"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [ocsp-update on]\n",
            with_new,
            Err("option ocsp-update"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [alpn]\n",
            with_new,
            Err("alpn without its argument"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem a;b\n",
            with_new,
            Err("must not hold any of"),
        ),
        (
            "certs/a.pem\n",
            "certs/n.pem [x\n",
            with_new,
            Err("a bracket that is not closed"),
        ),
        (
            "# none\n",
            "certs/n.pem\n",
            with_new,
            Err("default certificate"),
        ),
        ("a.pem\n", "n.pem\n", &[("n.pem", &new)], Err("crt-base?")),
    ];
    for (old, more, further, wanted) in table {
        let mut before = site();
        before.insert("site.crtlist".into(), old.as_bytes().to_vec());
        let mut after = before.clone();
        after.insert("site.crtlist".into(), format!("{old}{more}").into_bytes());
        for (path, text) in *further {
            after.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        let decision = decided(&set(&after), &applied(&set(&before), "3.0.11"));
        match wanted {
            Ok(ops) => assert_eq!(shown(&decision), *ops, "{decision:#?}"),
            Err(words) => {
                assert_eq!(decision.verdict, Verdict::Reload);
                let told = decision
                    .reasons
                    .iter()
                    .any(|reason| reason.text.contains(words));
                assert!(told, "wanted {words:?} in {:#?}", decision.reasons);
            }
        }
    }
    for other in ["certs/a.pem x\n", "", "certs/pair.pem\ncerts/a.pem\n"] {
        let pair = change("site.crtlist", other);
        let decision = after_of(&pair);
        assert_eq!(decision.reasons[0].why, Why::CrtList, "{other:?}");
        assert!(
            decision.reasons[0]
                .text
                .contains("only new lines at the end")
        );
    }
    for same in ["# c\ncerts/a.pem\r\n", "certs/a.pem\n# c\n"] {
        let decision = after_of(&change("site.crtlist", same));
        assert_eq!(decision.verdict, Verdict::FileOnly, "{same:?}");
    }
}

use super::*;
use crate::client::fileset::FileSetOptions;

fn set(config: &str, more: &[(&str, &str)]) -> FileSet {
    let files = [
        ("haproxy.cfg", config),
        ("maps/host.map", "a b\n"),
        ("maps/other.map", "a b\n"),
        ("certs/a.pem", "x"),
        ("ca/c.pem", "x"),
        ("site.crtlist", "certs/a.pem [ca-file ca/c.pem] a.x\n"),
        ("pages/503.http", "HTTP/1.0 503 x\r\n\r\n"),
        ("README.md", "maps/host.map holds the hosts\n"),
    ];
    let files = files.iter().chain(more);
    let files = files.map(|(path, text)| (*path, text.as_bytes().to_vec()));
    FileSet::from_files(files, &FileSetOptions::default()).unwrap()
}

fn line(config: &str, path: &str, one: Use) -> Option<usize> {
    let set = set(config, &[]);
    let mentions = Mentions::of(&set);
    let found = mentions.other_use(path, one, &set);
    found.map(|mention| mention.line)
}

/// Lines of a configuration, and whether the map `maps/host.map` is used there otherwise
/// than as a map.
#[test]
fn words_that_may_name_a_map_and_do_not_stand_where_maps_do() {
    for (text, other) in [
        // Maps, however they are spelled: the worker lists each name.
        (
            "use_backend %[req.hdr(host),lower,map(maps/host.map)]",
            false,
        ),
        (
            "use_backend %[req.hdr(host),map_beg(maps/host.map,none)]",
            false,
        ),
        ("use_backend %[src,map_ip(maps/host.map)]", false),
        ("use_backend \"%[req.hdr(host),map(maps/host.map)]\"", false),
        ("use_backend %[path,map(\"maps/host.map\",none)]", false),
        ("use_backend %[path,map('./maps/host.map')]", false),
        ("use_backend %[path,map(\"${BASE}/maps/host.map\")]", false),
        ("http-request set-map(maps/host.map) %[src] 1 if x", false),
        ("http-request del-map(maps/host.map) %[src]", false),
        ("acl known path,map(maps/host.map) -m found", false),
        (
            "use_backend x if { path,map(maps/host.map) -m found }",
            false,
        ),
        // Not this file.
        ("http-request return file maps/host.map.html", false),
        ("http-request return file xmaps/host.map", false),
        ("http-request return file other/maps2/host.map", false),
        ("http-request return file maps/ghost.map", false),
        ("http-request return file maps/other.map", false),
        ("acl x path -f virt@maps/host.map", false),
        ("# acl x path -f maps/host.map", false),
        ("acl x path /a # -f maps/host.map", false),
        ("acl x path '#' -f maps/host.map", true),
        // Everything else.
        ("acl x path -f maps/host.map", true),
        ("acl x path -f opt@maps/host.map", true),
        ("acl x path -f file@maps/host.map", true),
        ("acl x path -M -f maps/host.map", true),
        ("use_backend x if { path -f ./maps/host.map }", true),
        (
            "use_backend x if { path -f /etc/haproxy/maps/host.map }",
            true,
        ),
        ("acl x path -f maps//host.map", true),
        ("acl x path -f maps/../maps/host.map", true),
        ("acl x path -f host.map", true),
        ("acl x path -f \"maps/host.map\"", true),
        ("acl x path -f maps/host\\.map", true),
        ("acl x path -f map's/ho'st.map", true),
        ("acl x path -f maps/h\\x6fst.map", true),
        ("acl x path -f \"${MAPS}/host.map\"", true),
        ("acl x path -f \"$MAPS/host.map\"", true),
        ("acl x path -f \"${FILE}\"", true),
        ("acl x path -f \"maps/$FILE\"", true),
        ("acl x path -f \"lists/$FILE\"", false),
        ("acl x path -f \"/$FILE\"", true),
        ("acl x path -f \"maps/h$FILE\"", true),
        ("acl x path -f \"maps/x$FILE\"", false),
        ("acl x path -f \"maps/$FILE.map\"", true),
        ("setenv FILE maps/host.map", true),
        (
            "http-request return status 200 content-type text/plain file maps/host.map",
            true,
        ),
        (
            "http-request return content-type text/plain lf-file maps/host.map",
            true,
        ),
        ("errorfile 503 maps/host.map", true),
        ("errorfiles maps", true),
        ("errorfiles /etc/haproxy/maps/", true),
        ("http-request add-acl(maps/host.map) %[src]", true),
        (
            "use_backend %[path,map(maps/other.map,maps/host.map)]",
            true,
        ),
        ("use_backend %[path,lua.look(maps/host.map)]", true),
        ("lua-load pages/x.lua maps/host.map", true),
        ("external-check command maps/host.map", true),
        ("frobnicate maps/host.map", true),
        // Variables that are no file.
        ("bind \"${ADDRESS}:80\"", false),
        ("bind \"${ADDRESS}\"", false),
        ("log \"${LOG}\" local0", false),
        ("server s \"${HOST}:${PORT}\"", false),
        ("acl x path -f \"${LISTS}/blocked.acl\"", false),
        ("acl x path -f \"${LISTS}.acl\"", false),
        ("acl x path -f 'maps/${FILE}.map'", false),
    ] {
        let config = format!("frontend f\n  {text}\n");
        let found = line(&config, "maps/host.map", Use::Map);
        assert_eq!(found, other.then_some(2), "{text}");
    }
}

#[test]
fn certificates_and_lists_where_they_are_listed_and_elsewhere() {
    for (text, path, one, other) in [
        (
            "bind :443 ssl crt certs/a.pem",
            "certs/a.pem",
            Use::Cert,
            false,
        ),
        (
            "server s h:1 ssl crt certs/a.pem",
            "certs/a.pem",
            Use::Cert,
            false,
        ),
        ("load crt \"a.pem\" key k", "certs/a.pem", Use::Cert, false),
        (
            "load crt x.pem key \"certs/a.pem\"",
            "certs/a.pem",
            Use::Cert,
            true,
        ),
        ("bind :443 ssl crt certs/", "certs/a.pem", Use::Cert, false),
        (
            "http-request deny if !{ x,jwt_verify(a,\"certs/a.pem\") }",
            "certs/a.pem",
            Use::Cert,
            true,
        ),
        (
            "bind :443 ssl crt-list site.crtlist",
            "site.crtlist",
            Use::CrtList,
            false,
        ),
        (
            "http-request return file site.crtlist",
            "site.crtlist",
            Use::CrtList,
            true,
        ),
        (
            "bind :443 ssl ca-file ca/c.pem verify required",
            "ca/c.pem",
            Use::Ca,
            false,
        ),
        (
            "bind :443 ssl ca-verify-file ca/c.pem",
            "ca/c.pem",
            Use::Ca,
            false,
        ),
        (
            "bind :443 ssl ca-sign-file ca/c.pem",
            "ca/c.pem",
            Use::Ca,
            true,
        ),
        ("server s h:1 ssl ca-file ca", "ca/c.pem", Use::Ca, true),
        (
            "server s h:1 ssl ca-file \"$CAS\"",
            "ca/c.pem",
            Use::Ca,
            true,
        ),
        (
            "server s h:1 ssl ca-file \"$CAS/x.pem\"",
            "ca/c.pem",
            Use::Ca,
            false,
        ),
        (
            "server s h:1 ssl ca-file @system-ca",
            "ca/c.pem",
            Use::Ca,
            false,
        ),
    ] {
        let found = line(&format!("frontend f\n  {text}\n"), path, one);
        assert_eq!(found, other.then_some(2), "{text}");
    }
}

/// A file counts once something that is read names it; a note beside them does not.
#[test]
fn files_are_read_from_where_they_are_named() {
    let used = |config: &str, more: &[(&str, &str)]| {
        let set = set(config, more);
        let mentions = Mentions::of(&set);
        let found = mentions.other_use("maps/host.map", Use::Map, &set);
        found.map(|mention| format!("{}:{}", mention.file, mention.line))
    };
    let page = ("pages/hosts.txt", "all\n%[path,map(maps/host.map)]\n");
    let names_it = ("pages/more.txt", "all\nsee maps/host.map\n");
    let returns = "frontend f\n  http-request return lf-file pages/hosts.txt\n";
    assert_eq!(used("frontend f\n", &[]), None);
    assert_eq!(used("frontend f\n", &[names_it]), None);
    assert_eq!(used(returns, &[page, names_it]), None);
    let chained = ("pages/hosts.txt", "pages/more.txt\n");
    let found = used(returns, &[chained, names_it]);
    assert_eq!(found.as_deref(), Some("pages/more.txt:2"));
    // A crt-list by its use, whatever it is called.
    let list = [("list.txt", "# x\ncerts/a.pem [ca-file ca/c.pem] a.x\n")];
    let set = set("frontend f\n  bind :443 ssl crt-list list.txt\n", &list);
    for (path, one) in [("certs/a.pem", Use::Cert), ("ca/c.pem", Use::Ca)] {
        assert_eq!(
            Mentions::of(&set).other_use(path, one, &set),
            None,
            "{path}"
        );
    }
    let script = |text| [("x.lua", text)];
    assert_eq!(
        used("", &script("m = Map.new(\"maps/host.map\", Map._str)\n")),
        None
    );
    let found = used("", &script("\nf = io.open('maps/host.map')\n"));
    assert_eq!(found.as_deref(), Some("x.lua:2"));
    // Told by `-f` on HAProxy's command line, whatever its name is.
    let second = [(
        "more",
        "backend b\n  http-request return file maps/host.map\n",
    )];
    assert_eq!(used("", &second).as_deref(), Some("more:2"));
}

#[test]
fn names_of_odd_bytes_are_not_looked_for() {
    assert!(can_be_found("maps/é_a-1.2+x~.map"));
    for odd in [
        "maps/a b.map",
        "maps/a,b.map",
        "maps/a@b.map",
        "maps/a$b.map",
        "a:b",
    ] {
        assert!(!can_be_found(odd), "{odd}");
    }
}

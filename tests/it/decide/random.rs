//! Many small changes that nobody thought of beforehand.

use super::kit::{BOTH, Site, config, first, second};
use crate::support::dice::Dice;
use haptic_agent::client::FileSetOptions;
use haptic_agent::client::decide::Verdict;
use std::collections::BTreeSet;

const SEED: u64 = 20_261_129;
const ROUNDS: usize = 40;

/// An entry or something else that a map file can hold.
fn line(dice: &mut Dice, number: usize) -> String {
    let key = format!("/k{}", dice.roll(600));
    match dice.roll(12) {
        0 => "# a comment".to_owned(),
        1 => String::new(),
        2 => key,
        3 => format!("{key} \t two  words; {number}\t"),
        4 => format!(" {key} 'q' \\ \"{number}\""),
        5 => format!("{key} v{number}\r"),
        6 => format!("/odd;key{number} v"),
        _ => format!("{key} v{number}"),
    }
}

fn edit(dice: &mut Dice, lines: &mut Vec<String>, number: usize) {
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(lines.len() + 1);
        match dice.roll(7) {
            0 => lines.insert(at, line(dice, number)),
            1 | 2 => lines.push(line(dice, number)),
            3 if at < lines.len() => {
                lines.remove(at);
            }
            4 | 5 if at < lines.len() && lines[at].starts_with("/m") => {
                let key = lines[at].split(' ').next().unwrap_or_default().to_owned();
                lines[at] = format!("{key} new-{number}");
            }
            _ if at < lines.len() => lines[at] = line(dice, number),
            _ => {}
        }
    }
    if dice.once_in(9) {
        lines.truncate(lines.len() / 2);
    }
    if dice.once_in(9) {
        let more: Vec<String> = (0..900)
            .map(|n| format!("/m{number}-{n} value-{n}"))
            .collect();
        lines.extend(more);
    }
}

/// Two maps, one in any order, and a certificate, changed at random: every push is done
/// without a reload, every time the worker's maps are the files, and in the end a reload
/// shows nothing else.
#[test]
fn random_changes_of_files_need_no_reload_and_leave_worker_and_files_the_same() {
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/path.map".to_owned()]),
        ..FileSetOptions::default()
    };
    for version in BOTH {
        let mut dice = Dice::new(SEED);
        let (path, text) = config(
            "    http-request set-header x %[path,map_beg(maps/beg.map,none)]\n    bind unix@@BASE@/tls.sock ssl crt site.pem\n",
        );
        let files = [
            (path, text),
            ("maps/path.map", String::new()),
            ("maps/beg.map", "/ x\n".to_owned()),
            ("site.pem", first()),
        ];
        let mut site = Site::start_with(version, &files, options.clone());
        let mut maps = [
            ("maps/path.map", Vec::<String>::new()),
            ("maps/beg.map", vec!["/ x".to_owned()]),
        ];
        let mut kinds = BTreeSet::new();
        for number in 0..ROUNDS {
            for (path, lines) in &mut maps {
                if dice.once_in(3) {
                    continue;
                }
                edit(&mut dice, lines, number);
                let end = if dice.once_in(2) { "\n" } else { "" };
                site.write(path, &format!("{}{end}", lines.join("\n")));
            }
            if dice.once_in(4) {
                let pem = if dice.once_in(2) { first() } else { second() };
                site.write("site.pem", &format!("# {number}\n{pem}"));
            }
            let pid = site.haproxy.worker_pid();
            let pushed = site.push();
            assert!(pushed.is_converged(), "{version} {number} {pushed:#?}");
            assert!(
                pushed.decision.verdict <= Verdict::Runtime,
                "{version} {number} {:#?}",
                pushed.decision
            );
            assert_eq!(site.haproxy.worker_pid(), pid, "{version} {number}");
            kinds.extend(pushed.decision.ops.iter().map(|op| op.kind.clone()));
            site.maps_are_their_files();
        }
        let all = ["cert_set", "map_add", "map_del", "map_replace", "map_set"];
        assert!(
            kinds.iter().eq(all),
            "the dice left something out: {kinds:?}"
        );
        site.agrees();
    }
}

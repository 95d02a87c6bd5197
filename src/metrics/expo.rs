//! The Prometheus text format, version 0.0.4.
//!
//! A family is opened once, with its HELP and TYPE lines, and its samples follow
//! directly. Label values are escaped although ours need none, except the version.

use std::fmt::Write;

use super::cells::Histogram;
use super::{Family, Kind};

/// The media type of what `render` gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text in the making.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// Starts a family.
    pub(crate) fn open(&mut self, family: &Family) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(family.name);
        self.text.push(' ');
        for c in family.help.chars() {
            match c {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                c => self.text.push(c),
            }
        }
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.text, "\n# TYPE {} {kind}", family.name);
    }

    /// One sample of the family that is open; `values` belong to its labels.
    pub(crate) fn sample(&mut self, family: &Family, values: &[&str], value: u64) {
        self.name(family.name, family.labels, values, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// A family without labels and with one sample, or nothing at all.
    pub(crate) fn single(&mut self, family: &Family, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            self.open(family);
            let _ = writeln!(self.text, "{} {value}", family.name);
        }
    }

    /// The samples of one histogram.
    pub(crate) fn histogram(&mut self, family: &Family, values: &[&str], cell: &Histogram) {
        let mut count = 0;
        for (bound, upto) in cell.cumulative() {
            let le = if bound.is_finite() {
                bound.to_string()
            } else {
                "+Inf".to_owned()
            };
            let name = format!("{}_bucket", family.name);
            self.name(&name, family.labels, values, Some(&le));
            let _ = writeln!(self.text, " {upto}");
            count = upto;
        }
        self.name(&format!("{}_sum", family.name), family.labels, values, None);
        let _ = writeln!(self.text, " {}", cell.sum());
        // Taken from the last bucket, so that the two can never disagree.
        self.name(
            &format!("{}_count", family.name),
            family.labels,
            values,
            None,
        );
        let _ = writeln!(self.text, " {count}");
    }

    /// The finished text.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn name(&mut self, name: &str, labels: &[&str], values: &[&str], le: Option<&str>) {
        self.text.push_str(name);
        let pairs = labels.iter().copied().zip(values.iter().copied());
        for (i, (label, value)) in pairs.chain(le.map(|le| ("le", le))).enumerate() {
            self.text.push(if i == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() || le.is_some() {
            self.text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_is_escaped() {
        let family = Family {
            name: "x",
            kind: Kind::Gauge,
            labels: &["a", "b"],
            help: "a \\ and\na line",
        };
        let mut out = Exposition::default();
        out.open(&family);
        out.sample(&family, &["q\"", "\\\n"], 1);
        assert_eq!(
            out.finish(),
            "# HELP x a \\\\ and\\na line\n# TYPE x gauge\nx{a=\"q\\\"\",b=\"\\\\\\n\"} 1\n"
        );
    }
}

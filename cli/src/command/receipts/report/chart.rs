//! Charts as inline SVG. Shapes only: every number they show stands beside them as text.

use std::fmt::Write as _;

use super::html::{grouped, text};
use super::timeline::{Counts, Timeline};
use crate::words::moment;

/// Bars over time, one per stretch, decisions stacked from the ground up.
pub(super) fn over_time(timeline: &Timeline) -> String {
    let stretches = timeline.stretches();
    let highest = stretches.iter().map(|(_, counts)| counts.total()).max();
    let highest = highest.unwrap_or(0).max(1);
    let (Some((first, _)), Some((last, _))) = (stretches.first(), stretches.last()) else {
        return "<p class=\"none\">Nothing was proposed.</p>".to_owned();
    };
    let (first, last, unit) = (moment(*first), moment(*last), timeline.unit());
    let count = stretches.len();
    let mut svg = format!(
        "<div class=\"chart\"><div class=\"scale\" aria-hidden=\"true\"><span>{}</span>\
         <span>{}</span><span>0</span></div>\
         <svg role=\"img\" aria-labelledby=\"over-time over-time-how\" \
         viewBox=\"0 0 {count} 100\" preserveAspectRatio=\"none\">\
         <title id=\"over-time\">Decisions per {unit}</title>\
         <desc id=\"over-time-how\">{count} bars from {first} to {last}; the highest is {highest}. \
         The table below has every number.</desc>\
         <path class=\"grid\" d=\"M0 0H{count}M0 50H{count}\"/>",
        grouped(highest),
        grouped(highest.div_ceil(2)),
    );
    for (number, (start, counts)) in stretches.iter().enumerate() {
        if counts.total() > 0 {
            // Writing to a String cannot fail.
            let _infallible = write!(
                svg,
                "<g><title>{}: {}</title>",
                moment(*start),
                told(*counts)
            );
            svg.push_str(&stack(*counts, highest, number));
            svg.push_str("</g>");
        }
    }
    let _infallible = write!(
        svg,
        "</svg><div class=\"ends\" aria-hidden=\"true\"><span>{first}</span><span>{last}</span></div></div>"
    );
    svg
}

/// `12 ALLOW, 3 BLOCK`.
fn told(counts: Counts) -> String {
    let some = counts.named().into_iter().filter(|(_, count)| *count > 0);
    let some: Vec<String> = some
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    some.join(", ")
}

fn stack(counts: Counts, highest: u64, number: usize) -> String {
    let mut svg = String::new();
    let mut below = 0;
    for (name, count) in counts.named() {
        if count == 0 {
            continue;
        }
        let top = share(below + count, highest, 100.0);
        let _infallible = write!(
            svg,
            "<rect class=\"{}\" x=\"{number}.06\" y=\"{:.3}\" width=\".88\" height=\"{:.3}\"/>",
            name.to_ascii_lowercase(),
            100.0 - top,
            top - share(below, highest, 100.0),
        );
        below += count;
    }
    svg
}

/// A bar on one line of a table, decisions side by side.
pub(super) fn row(counts: Counts, longest: u64) -> String {
    let mut left = 0;
    let mut parts = Vec::new();
    for (name, count) in counts.named() {
        parts.push((name.to_ascii_lowercase(), left, count));
        left += count;
    }
    line(&parts, longest)
}

/// A bar of one thing.
pub(super) fn plain_row(count: u64, longest: u64) -> String {
    line(&[("plain".to_owned(), 0, count)], longest)
}

fn line(parts: &[(String, u64, u64)], longest: u64) -> String {
    let mut svg = "<svg class=\"row\" aria-hidden=\"true\" viewBox=\"0 0 100 10\" \
                   preserveAspectRatio=\"none\">"
        .to_owned();
    for (class, start, count) in parts.iter().filter(|(_, _, count)| *count > 0) {
        let _infallible = write!(
            svg,
            "<rect class=\"{}\" x=\"{:.3}\" width=\"{:.3}\" height=\"10\"/>",
            text(class),
            share(*start, longest, 100.0),
            share(*count, longest, 100.0),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// `part` of `whole`, out of `full`.
#[expect(
    clippy::cast_precision_loss,
    reason = "a length on a screen needs no more than a few digits"
)]
pub(super) fn share(part: u64, whole: u64, full: f64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64 * full
}

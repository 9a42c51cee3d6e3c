//! The page: one file, no script, nothing from elsewhere. Everything that came from outside is
//! escaped twice over: for a screen, and for HTML.

use std::fmt::Write as _;
use std::time::Duration;

use operators_kernel::life::KeyRecord;
use operators_kernel::{TenantId, Timestamp};

use super::chart;
use super::html::{grouped, grouped_size, span, table, text};
use super::tally::{OTHERS, Tally};
use super::timeline::Counts;
use crate::words::moment;

/// The longest table.
const ROWS_MAX: usize = 15;

/// What the page says besides what was counted.
#[derive(Debug)]
pub(super) struct About<'a> {
    pub(super) tenant: &'a TenantId,
    /// The filters as they were typed.
    pub(super) filter: String,
    pub(super) made_at: Timestamp,
    pub(super) doubts: Doubts,
    /// How many attempts have no recorded end yet.
    pub(super) in_flight: usize,
    /// How many receipts are in segments, and not here.
    pub(super) pruned: u64,
}

/// The doubts that are open now: how many, and the oldest.
#[derive(Debug)]
pub(super) struct Doubts {
    count: usize,
    oldest: Vec<[String; 4]>,
}

impl Doubts {
    pub(super) fn of(open: &[KeyRecord]) -> Self {
        let row = |key: &KeyRecord| {
            let proposal = &key.proposal;
            [
                proposal.idempotency_key.to_string(),
                proposal.entity_key.to_string(),
                format!("{}:{}", proposal.action.connector, proposal.action.tool),
                moment(proposal.proposed_at),
            ]
        };
        Self {
            count: open.len(),
            oldest: open.iter().take(ROWS_MAX).map(row).collect(),
        }
    }
}

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub(super) fn write(tally: &Tally, about: &About<'_>) -> String {
    let tenant = text(about.tenant);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Receipts of {tenant}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n\
         <header><h1>Receipts of {tenant}</h1>\n<p>{}</p></header>\n",
        heading(tally, about),
    );
    page.push_str(&tiles(tally, about));
    section(&mut page, "Decisions over time", &over_time(tally));
    section(&mut page, "Top rules", &rules(tally));
    section(&mut page, "Slowest tools", &tools(tally));
    section(&mut page, "Why not", &reasons(tally));
    section(&mut page, "Doubts open now", &doubts(about));
    page.push_str(FOOTER);
    page.push_str("</main></body></html>\n");
    page
}

const FOOTER: &str = "<footer><p>Counted from receipts, one per proposal. The veto rate is the \
    share of proposals that were stopped before their connector (<code>BLOCK</code>). A duplicate \
    is a proposal of an effect that had happened before; it reached nothing. Times run from the \
    proposal to its settled receipt, the wait for its turn included; percentiles are at most an \
    eighth too high. Check the trail itself with <code>operators receipts verify</code>.</p></footer>\n";

fn section(page: &mut String, title: &str, body: &str) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(page, "<section><h2>{title}</h2>\n{body}</section>");
}

fn heading(tally: &Tally, about: &About<'_>) -> String {
    let span = tally.span.map_or_else(
        || "no receipts".to_owned(),
        |(first, last)| {
            let count = grouped(tally.receipts);
            format!(
                "{count} receipts from {} to {}",
                moment(first),
                moment(last)
            )
        },
    );
    let filter = match about.filter.trim() {
        "" => String::new(),
        filter => format!("; only <code>{}</code>", text(filter)),
    };
    let pruned = match about.pruned {
        0 => String::new(),
        count => format!(
            " {} older ones were pruned and are not counted.",
            grouped(count)
        ),
    };
    format!("{span}{filter}.{pruned} Made {}.", moment(about.made_at))
}

fn tiles(tally: &Tally, about: &About<'_>) -> String {
    let proposals = tally.decisions.total();
    let blocked = tally.decisions.block;
    let rate = match proposals {
        0 => "–".to_owned(),
        all => format!("{:.1} %", chart::share(blocked, all, 100.0)),
    };
    let tiles = [
        ("proposals", grouped(proposals), String::new()),
        (
            "effects",
            grouped(tally.applied),
            "reads included".to_owned(),
        ),
        (
            "veto rate",
            rate,
            format!("{} of {}", grouped(blocked), grouped(proposals)),
        ),
        (
            "duplicates absorbed",
            grouped(tally.decisions.dedup),
            String::new(),
        ),
        ("definite failures", grouped(tally.failed), String::new()),
        (
            "doubts open now",
            grouped_size(about.doubts.count),
            format!(
                "{} in this time; {} in flight now",
                grouped(tally.in_doubt),
                grouped_size(about.in_flight)
            ),
        ),
        (
            "answers of people",
            grouped(tally.approvals + tally.vetoes),
            format!(
                "{} approved, {} vetoed",
                grouped(tally.approvals),
                grouped(tally.vetoes)
            ),
        ),
        (
            "corrections",
            grouped(tally.corrections),
            "what became known later".to_owned(),
        ),
    ];
    let mut html = "<dl class=\"tiles\">\n".to_owned();
    for (name, value, note) in tiles {
        let _infallible = writeln!(
            html,
            "<div><dt>{name}</dt><dd><b>{value}</b> <small>{note}</small></dd></div>"
        );
    }
    html.push_str("</dl>\n");
    html
}

fn over_time(tally: &Tally) -> String {
    let mut html = legend();
    html.push_str(&chart::over_time(&tally.timeline));
    let stretches = tally.timeline.stretches();
    if stretches.is_empty() {
        return html;
    }
    let rows = stretches.iter().map(|(start, counts)| {
        let mut row = vec![moment(*start)];
        row.extend(counts.named().map(|(_, count)| grouped(count)));
        row
    });
    let title = format!("from (each a {})", tally.timeline.unit());
    let table = table(&[&title, "ALLOW", "ALERT", "BLOCK", "DEDUP"], rows);
    let _infallible = writeln!(
        html,
        "<details><summary>The numbers</summary>{table}</details>"
    );
    html
}

fn legend() -> String {
    let mut html = "<ul class=\"legend\">".to_owned();
    for (name, _) in Counts::default().named() {
        let class = name.to_ascii_lowercase();
        let _infallible = write!(
            html,
            "<li><svg aria-hidden=\"true\" viewBox=\"0 0 1 1\"><rect class=\"{class}\" width=\"1\" \
             height=\"1\"/></svg>{name}</li>"
        );
    }
    html.push_str("</ul>\n");
    html
}

fn rules(tally: &Tally) -> String {
    let top = tally.top_rules(ROWS_MAX);
    let longest = top
        .iter()
        .map(|(_, counts)| counts.total())
        .max()
        .unwrap_or(0);
    let rows = top.iter().map(|((policy, rule), counts)| {
        vec![
            text(rule),
            if policy == OTHERS {
                String::new()
            } else {
                text(policy)
            },
            grouped(counts.allow),
            grouped(counts.alert),
            grouped(counts.block),
            chart::row(*counts, longest),
        ]
    });
    table(&["rule", "policy", "ALLOW", "ALERT", "BLOCK", ""], rows)
}

fn tools(tally: &Tally) -> String {
    let slowest = tally.slowest_tools(ROWS_MAX);
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let longest = slowest
        .iter()
        .map(|(_, tool)| micros(tool.spread.percentile(95)))
        .max();
    let rows = slowest.iter().map(|(name, tool)| {
        let p95 = tool.spread.percentile(95);
        vec![
            text(name),
            grouped(tool.spread.total()),
            span(tool.spread.percentile(50)),
            span(p95),
            span(tool.spread.longest()),
            grouped(tool.failed),
            grouped(tool.in_doubt),
            grouped(tool.duplicates),
            chart::plain_row(micros(p95), longest.unwrap_or(0)),
        ]
    });
    let columns = [
        "tool",
        "calls",
        "median",
        "p95",
        "longest",
        "failed",
        "in doubt",
        "duplicates",
        "",
    ];
    table(&columns, rows)
}

fn reasons(tally: &Tally) -> String {
    let mut reasons: Vec<_> = tally.reasons.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let most = reasons.first().map_or(0, |(_, count)| **count);
    let rows = reasons.iter().map(|(reason, count)| {
        vec![
            text(*reason),
            grouped(**count),
            chart::plain_row(**count, most),
        ]
    });
    table(&["reason", "proposals", ""], rows)
}

fn doubts(about: &About<'_>) -> String {
    let rows = about
        .doubts
        .oldest
        .iter()
        .map(|row| row.iter().map(text).collect());
    let mut html = table(&["key", "entity", "tool", "proposed"], rows);
    match about.doubts.count.saturating_sub(about.doubts.oldest.len()) {
        0 => {}
        rest => {
            let _infallible = write!(
                html,
                "<p>… and {rest} more: <code>operators doubts list</code></p>"
            );
        }
    }
    html
}

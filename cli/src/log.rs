//! Log lines on stderr: our own, and nobody else's.
//!
//! Owns what is shown of them. The libraries we use write whole messages, requests and answers into
//! theirs, with the credentials and secret arguments in them; what we write ourselves holds none.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::output;

/// The variable that turns on log lines, as in `OPERATORS_LOG=debug`.
const VARIABLE: &str = "OPERATORS_LOG";
const DEFAULT: &str = "warn";

/// What the names of our crates begin with.
const OURS: &str = "operators";

/// From here on, log lines are shown.
pub(crate) fn start() {
    let wish = std::env::var(VARIABLE).unwrap_or_default();
    let wish = if wish.is_empty() { DEFAULT } else { &wish };
    let filter = EnvFilter::try_new(wish).unwrap_or_else(|error| {
        output::warn(&format!("`{VARIABLE}`: {}", output::shown(&error)));
        EnvFilter::new(DEFAULT)
    });
    for other in others(wish) {
        output::warn(&format!(
            "`{VARIABLE}`: log lines of `{other}` are never shown, for they may hold a credential"
        ));
    }
    let lines = fmt::layer()
        .with_writer(|| output::LogLine)
        .with_ansi(io::stderr().is_terminal())
        .with_filter(filter.and(filter_fn(|about| is_ours(about.target()))));
    registry().with(lines).init();
}

fn is_ours(target: &str) -> bool {
    let rest = target.strip_prefix(OURS);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || rest.starts_with('_'))
}

/// The libraries that a wish names.
fn others(wish: &str) -> impl Iterator<Item = &str> {
    let named = wish.split(',').filter_map(|one| one.split('=').next());
    let is_name = |name: &&str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_:-".contains(c))
    };
    let is_level = |name: &str| {
        name.parse::<tracing_subscriber::filter::LevelFilter>()
            .is_ok()
    };
    let named = named.map(str::trim).filter(is_name);
    named.filter(move |name| !is_level(name) && !is_ours(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_told_apart() {
        for ours in ["operators", "operators::command", "operators_kernel::gates"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["rmcp::service", "operatorsx", "hyper", "log", ""] {
            assert!(!is_ours(other), "{other}");
        }
        let wish = "info,rmcp=debug, hyper,operators_kernel=trace,[span{key=\"a\"}]=info,2,off";
        assert_eq!(others(wish).collect::<Vec<_>>(), ["rmcp", "hyper"]);
    }
}

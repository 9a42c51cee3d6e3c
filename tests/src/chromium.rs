//! A real browser for tests: Debian's `chromium`, or what `OPERATORS_TEST_BROWSER` names. Where there
//! is none, tests that need it are skipped aloud; with `CI` set they fail.

use std::path::PathBuf;

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The browser's program; `None`, said aloud, if there is none.
pub fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("OPERATORS_TEST_BROWSER") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no browser: install the package `chromium`"
        );
        eprintln!("skipped: no browser; install the package `chromium`");
    }
    found
}

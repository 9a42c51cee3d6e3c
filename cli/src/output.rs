//! Everything that is printed goes through here: data on stdout, all else on stderr.
//!
//! Owns escaping, colour and the live line. It must not know what is being said.

use std::fmt::{Display, Write as _};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use owo_colors::OwoColorize as _;
use serde::Serialize;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// How often the live line moves.
const LIVE_TICK: Duration = Duration::from_millis(100);

/// Less room than this beside a mark, and a sentence is not broken by us.
const ROOM_MIN: usize = 20;

/// The live line that stands on the terminal now, so that nothing is written across it.
static LIVE: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Text from outside on one line: what a terminal would act on or hide is written out as `\u{…}`.
pub(crate) fn shown(text: &(impl Display + ?Sized)) -> String {
    let text = text.to_string();
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            hidden if is_hidden(hidden) => line.extend(hidden.escape_unicode()),
            plain => line.push(plain),
        }
    }
    line
}

fn is_hidden(character: char) -> bool {
    matches!(
        character.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
    )
}

/// JSON text of the same meaning that is safe on a terminal: hidden characters, which can only
/// stand inside strings, become escapes of four hexadecimal digits.
pub(crate) fn json_text(value: &impl Serialize, pretty: bool) -> serde_json::Result<String> {
    let text = if pretty {
        serde_json::to_string_pretty(value)?
    } else {
        serde_json::to_string(value)?
    };
    if text.bytes().all(|byte| byte.is_ascii() && byte != 0x7f) {
        return Ok(text);
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if (character.is_ascii() && character != '\u{7f}') || !is_hidden(character) {
            safe.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _infallible = write!(safe, "\\u{unit:04x}");
        }
    }
    Ok(safe)
}

/// Writes human data to stdout; colours are dropped unless it is a terminal that wants them.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .map_err(|error| named(&error))
}

/// Writes one JSON value to stdout: on one line, or spread out for people to read.
pub(crate) fn json(value: &impl Serialize, pretty: bool) -> io::Result<()> {
    let mut lines = JsonLines::new();
    lines.write(value, pretty)?;
    lines.flush()
}

/// A reader that has seen enough and left does not change how a command ends.
pub(crate) fn unless_gone(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether whoever read our stdout through a pipe has left; nothing has to be written to find out.
pub(crate) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    // Asked for nothing: only what cannot be helped is told.
    let mut pipe = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let told = poll(&mut pipe, PollTimeout::ZERO).is_ok_and(|told| told > 0);
    told && pipe
        .iter()
        .filter_map(PollFd::revents)
        .any(|events| events.contains(PollFlags::POLLERR))
}

/// Many JSON values on stdout, a line each. Colour stripping would eat bytes of the data, so this
/// goes straight to stdout.
pub(crate) struct JsonLines(BufWriter<io::StdoutLock<'static>>);

impl JsonLines {
    pub(crate) fn new() -> Self {
        Self(BufWriter::new(io::stdout().lock()))
    }

    pub(crate) fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        self.write(value, false)
    }

    fn write(&mut self, value: &impl Serialize, pretty: bool) -> io::Result<()> {
        writeln!(self.0, "{}", json_text(value, pretty)?).map_err(|error| named(&error))
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| named(&error))
    }
}

/// Says which stream it was that failed.
pub(crate) fn named(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), StdoutError(error.to_string()))
}

/// Data could not be given to whoever reads it. Other pipes break too, and those are told.
#[derive(Debug)]
struct StdoutError(String);

impl Display for StdoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stdout cannot be written: {}", self.0)
    }
}

impl std::error::Error for StdoutError {}

/// Whether a command ended because whoever read its output had seen enough.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    for cause in error.chain() {
        if let Some(cause) = cause.downcast_ref::<io::Error>()
            && let Some(inner) = cause.get_ref()
            && inner.is::<StdoutError>()
        {
            return cause.kind() == io::ErrorKind::BrokenPipe;
        }
    }
    false
}

/// A mistake on the command line with what was typed escaped: often a key that was copied out of
/// somebody's data.
pub(crate) fn harmless(mut error: clap::Error) -> clap::Error {
    let told: Vec<(ContextKind, ContextValue)> = error
        .context()
        .map(|(kind, value)| (kind, value.clone()))
        .collect();
    let styled = |text: StyledStr| {
        let plain = text.to_string();
        let hidden = plain.chars().any(|one| one != '\n' && is_hidden(one));
        if hidden { shown(&plain).into() } else { text }
    };
    for (kind, value) in told {
        let value = match value {
            ContextValue::String(text) => ContextValue::String(shown(&text)),
            ContextValue::Strings(texts) => {
                ContextValue::Strings(texts.iter().map(shown).collect())
            }
            ContextValue::StyledStr(text) => ContextValue::StyledStr(styled(text)),
            ContextValue::StyledStrs(texts) => {
                ContextValue::StyledStrs(texts.into_iter().map(styled).collect())
            }
            plain => plain,
        };
        error.insert(kind, value);
    }
    error
}

/// A sentence for the person at the terminal.
pub(crate) fn note(sentence: &str) {
    to_stderr(&hanging("", "", sentence, stderr_width()));
}

/// For the program that reads stderr: one JSON value on one line.
pub(crate) fn note_line(value: &impl Serialize) {
    if let Ok(line) = json_text(value, false) {
        to_stderr(&line);
    }
}

/// A sentence after its mark: `  3  …`.
pub(crate) fn point(mark: &str, sentence: &str) {
    let mark = format!("  {mark}  ");
    to_stderr(&hanging(&mark, &mark, sentence, stderr_width()));
}

/// Something that is not wrong but surely not meant.
pub(crate) fn warn(sentence: &str) {
    let mark = "warning: ";
    let coloured = mark.yellow().bold().to_string();
    to_stderr(&hanging(mark, &coloured, sentence, stderr_width()));
}

/// Why the command could not do its work, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    let mut told = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Some errors repeat their source in their own text.
        if told.ends_with(&cause) {
            continue;
        }
        if !told.is_empty() {
            told.push_str(": ");
        }
        told.push_str(&cause);
    }
    let mut mark = "error: ";
    let mut coloured = mark.red().bold().to_string();
    for line in told.split('\n') {
        to_stderr(&hanging(mark, &coloured, &shown(line), stderr_width()));
        mark = "  ";
        mark.clone_into(&mut coloured);
    }
}

/// The next command to type, and why. The command stays on one line, to be copied.
pub(crate) fn next(command: &str, why: &str) {
    let length = command.chars().count() + why.chars().count() + "    # ".len();
    let fits = stderr_width().is_none_or(|width| length <= usize::from(width));
    let (command, remark) = (command.bold(), format!("# {why}"));
    let remark = remark.dimmed();
    to_stderr(&match (why.is_empty(), fits) {
        (true, _) => format!("  {command}"),
        (false, true) => format!("  {command}  {remark}"),
        (false, false) => format!("  {remark}\n  {command}"),
    });
}

/// The width of the terminal behind stderr; `None` when it is none.
fn stderr_width() -> Option<u16> {
    comfy_table::Table::new().use_stderr().width()
}

/// A sentence after its mark, broken between words where the terminal ends and indented under
/// itself. `coloured` is the mark as it is written.
pub(crate) fn hanging(mark: &str, coloured: &str, sentence: &str, width: Option<u16>) -> String {
    let indent = mark.chars().count();
    let room = width.map_or(usize::MAX, |width| {
        usize::from(width).saturating_sub(indent)
    });
    if room < ROOM_MIN {
        // A word a line would be no better: the terminal breaks it where it must.
        return format!("{coloured}{sentence}");
    }
    let lines = wrapped(sentence, room);
    format!(
        "{coloured}{}",
        lines.join(&format!("\n{}", " ".repeat(indent)))
    )
}

/// Lines of at most `room` characters, broken at spaces; a longer word stays whole.
pub(crate) fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.is_empty() || used + 1 + length <= room => {
                if !line.is_empty() {
                    line.push(' ');
                    used += 1;
                }
                line.push_str(word);
                used += length;
            }
            _ => {
                lines.push(word.to_owned());
                used = length;
            }
        }
    }
    lines
}

fn to_stderr(line: &str) {
    let write = || {
        // When stderr is gone there is nobody left to tell.
        drop(writeln!(anstream::stderr(), "{line}"));
    };
    match LIVE.lock().ok().and_then(|live| live.clone()) {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Where log lines go: stderr, never across the live line.
#[derive(Debug)]
pub(crate) struct LogLine;

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match LIVE.lock().ok().and_then(|live| live.clone()) {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// One line on the terminal that changes while work goes on, and is gone afterwards. It is not
/// shown at all when stderr is no terminal.
#[derive(Debug)]
pub(crate) struct Live(Option<ProgressBar>);

impl Live {
    pub(crate) fn start() -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(LIVE_TICK);
        if let Ok(mut live) = LIVE.lock() {
            *live = Some(bar.clone());
        }
        Self(Some(bar))
    }

    pub(crate) fn say(&self, line: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(line);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Ok(mut live) = LIVE.lock() {
            *live = None;
        }
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// How far something long has come, on a terminal.
#[derive(Debug)]
pub(crate) struct Bar(Option<ProgressBar>);

impl Bar {
    pub(crate) fn start() -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} {eta}")
        {
            bar.set_style(style);
        }
        Self(Some(bar))
    }

    pub(crate) fn show(&self, done: u64, of: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(of);
            bar.set_position(done);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A word of a shell command, quoted if it has to be.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    shown(&format!("'{}'", word.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        assert_eq!(
            shown("a\u{1b}[31mb\nc\u{9b}d\u{202e}e\u{200b}\u{7f}"),
            "a\\u{1b}[31mb\\nc\\u{9b}d\\u{202e}e\\u{200b}\\u{7f}"
        );
        assert_eq!(
            shown("κλειδί 日本 it's \"fine\""),
            "κλειδί 日本 it's \"fine\""
        );
    }

    #[test]
    fn json_keeps_its_meaning_and_hides_nothing() {
        let value = serde_json::json!({"a": "x\u{9b}y\u{202e}\u{7f}z\u{e0001}é"});
        let text = json_text(&value, false).expect("writes");
        assert_eq!(text, r#"{"a":"x\u009by\u202e\u007fz\udb40\udc01é"}"#);
        let back: serde_json::Value = serde_json::from_str(&text).expect("reads");
        assert_eq!(back, value);
    }

    #[test]
    fn only_a_reader_that_left_our_stdout_ends_a_command_well() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let ours = anyhow::Error::from(named(&broken())).context("told");
        assert!(is_reader_gone(&ours));
        // A program that a checkpoint is handed to, a database.
        let theirs = anyhow::Error::from(broken()).context("the outside place has it not");
        assert!(!is_reader_gone(&theirs));
        let full = named(&io::Error::from(io::ErrorKind::StorageFull));
        assert!(!is_reader_gone(&anyhow::Error::from(full)));
    }

    #[test]
    fn a_sentence_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable a b", 4), ["unbreakable", "a b"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn a_word_is_quoted_only_when_a_shell_would_split_it() {
        assert_eq!(quoted("order:SO-1:hold"), "order:SO-1:hold");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted("$(rm)"), "'$(rm)'");
        assert_eq!(quoted(""), "''");
    }
}

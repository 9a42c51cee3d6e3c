//! Tables that fit the terminal: columns give way in a fixed order, never by wrapping.
//!
//! Owns the layout. It must not know what a cell means.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Width};

use crate::output;

/// Between two columns.
const GAP: u16 = 2;

/// Room for the beginning of a word, and the sign that there is more.
const NARROWEST: u16 = 5;

/// From this width on, ids are shown whole.
const WIDE: u16 = 150;

/// How much of an id is shown where it does not fit, and the least that `receipts show` takes.
pub(crate) const ID_END: usize = 6;

/// A column: its title, and the narrowest it may become (`None`: as wide as its widest cell).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    narrowest: Option<u16>,
}

impl Column {
    /// Always as wide as its widest cell.
    pub(crate) const fn fixed(title: &'static str) -> Self {
        Self {
            title,
            narrowest: None,
        }
    }

    /// Gives way, down to a width, before those on its left do.
    pub(crate) const fn yielding(title: &'static str, narrowest: u16) -> Self {
        Self {
            title,
            narrowest: Some(narrowest),
        }
    }
}

/// A cell: its text, escaped, and the colour that repeats what the text says.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    text: String,
    colour: Option<Color>,
}

impl Text {
    /// Text from outside: escaped.
    pub(crate) fn plain(text: &(impl std::fmt::Display + ?Sized)) -> Self {
        Self {
            text: output::shown(text),
            colour: None,
        }
    }

    pub(crate) fn coloured(text: &(impl std::fmt::Display + ?Sized), colour: Color) -> Self {
        Self {
            colour: Some(colour),
            ..Self::plain(text)
        }
    }
}

/// A table in the making.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Text>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Text>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, fitted to `width`, or as wide as they are.
    pub(crate) fn render(&self, width: Option<u16>) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(NOTHING)
            .enforce_styling()
            .set_content_arrangement(ContentArrangement::Disabled);
        table.style_text_only();
        let titles = self
            .columns
            .iter()
            .map(|column| Cell::new(column.title).add_attribute(Attribute::Dim));
        let mut header = Row::from(titles.collect::<Vec<_>>());
        header.max_height(1);
        table.set_header(header);
        for cells in &self.rows {
            let cells = cells.iter().map(|text| {
                let cell = Cell::new(&text.text);
                match text.colour {
                    Some(colour) => cell.fg(colour),
                    None => cell,
                }
            });
            let mut row = Row::from(cells.collect::<Vec<_>>());
            row.max_height(1);
            table.add_row(row);
        }
        let widths = self.fitted(&table.column_max_content_widths(), width);
        for (column, width) in table.column_iter_mut().zip(widths) {
            column.set_padding((0, GAP));
            // A constraint counts the padding in.
            let width = Width::Fixed(width.saturating_add(GAP));
            column.set_constraint(ColumnConstraint::Absolute(width));
            // Only a blank row would be split elsewhere than at its end.
            column.set_delimiter('\u{0}');
        }
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    /// Takes from the rightmost column that may still give, until all fit.
    fn fitted(&self, natural: &[u16], width: Option<u16>) -> Vec<u16> {
        let mut widths = natural.to_vec();
        let Some(width) = width else {
            return widths;
        };
        let gaps = GAP.saturating_mul(u16::try_from(widths.len()).unwrap_or(u16::MAX));
        let total: u16 = widths.iter().copied().fold(gaps, u16::saturating_add);
        // The last column needs no gap after it.
        let mut excess = total.saturating_sub(width.saturating_add(GAP));
        // Where that is not enough, they give up more than reads well: a line that wraps reads worse.
        for least in [None, Some(NARROWEST)] {
            for (column, width) in self.columns.iter().zip(widths.iter_mut()).rev() {
                let Some(narrowest) = column.narrowest else {
                    continue;
                };
                let least = least.unwrap_or(narrowest).min(narrowest);
                let given = excess.min(width.saturating_sub(least));
                *width = width.saturating_sub(given);
                excess = excess.saturating_sub(given);
            }
        }
        widths
    }
}

/// The width of the terminal behind stdout; `None` when it is no terminal and everything is shown
/// whole.
pub(crate) fn terminal_width() -> Option<u16> {
    comfy_table::Table::new().width()
}

/// A receipt's id as it fits: whole, or its last characters, which `receipts show` takes too.
pub(crate) fn receipt_id(id: &str, width: Option<u16>) -> String {
    if width.is_none_or(|width| width >= WIDE) {
        return id.to_owned();
    }
    let end = id_end(id);
    if end == id {
        return id.to_owned();
    }
    format!("…{end}")
}

/// The last characters of an id: enough to tell receipts of one project apart.
pub(crate) fn id_end(id: &str) -> &str {
    let last = id.char_indices().rev().nth(ID_END - 1);
    last.and_then(|(at, _)| id.get(at..)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::fixed("#"),
            Column::yielding("key", 6),
            Column::yielding("result", 8),
        ]);
        for (number, key, result) in [
            ("1", "order:SO-1:hold", "{\"status\":\"holded\"}"),
            ("2", "日本語のキー", "a\u{1b}b"),
        ] {
            table.row([number, key, result].map(Text::plain));
        }
        table
    }

    #[test]
    fn it_is_shown_whole_without_a_terminal() {
        let text = anstream::adapter::strip_str(&table().render(None)).to_string();
        assert_eq!(
            text,
            "#  key              result\n\
             1  order:SO-1:hold  {\"status\":\"holded\"}\n\
             2  日本語のキー     a\\u{1b}b"
        );
    }

    #[test]
    fn the_rightmost_gives_way_first_and_nothing_wraps() {
        let text = anstream::adapter::strip_str(&table().render(Some(30))).to_string();
        assert_eq!(
            text,
            "#  key              result\n\
             1  order:SO-1:hold  {\"status\"…\n\
             2  日本語のキー     a\\u{1b}b"
        );
        for line in anstream::adapter::strip_str(&table().render(Some(20)))
            .to_string()
            .lines()
        {
            assert!(line.chars().count() <= 20, "{line}");
        }
    }

    #[test]
    fn columns_give_up_more_than_reads_well_before_a_line_wraps() {
        for width in [14, 17, 18] {
            let text = anstream::adapter::strip_str(&table().render(Some(width))).to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width.max(15)), "{line}");
            }
        }
    }

    #[test]
    fn a_short_id_is_its_end() {
        assert_eq!(receipt_id("rc_0123456789abcdef", Some(80)), "…abcdef");
        assert_eq!(
            receipt_id("rc_0123456789abcdef", Some(200)),
            "rc_0123456789abcdef"
        );
        assert_eq!(
            receipt_id("rc_0123456789abcdef", None),
            "rc_0123456789abcdef"
        );
        assert_eq!(receipt_id("rc_1", Some(80)), "rc_1");
    }
}

//! Finds the rules that speak of an action without looking at the rules that do not.
//!
//! Owns the lookup by connector and tool: its cost follows the length of the tool's name and the
//! number of rules that fit, so ten thousand rules for other tools cost nothing. It must not know
//! what a rule says.

use hashbrown::HashMap;
use operators_kernel::{ConnectorName, ToolName};

use crate::pattern::{ANY_SEGMENT, ToolPattern};

/// Entries by the connector and the tool they speak of.
#[derive(Debug)]
pub(crate) struct Index<T> {
    by_connector: HashMap<ConnectorName, Tools<T>>,
    any_connector: Tools<T>,
}

#[derive(Debug)]
struct Tools<T> {
    any_tool: Vec<T>,
    by_name: Segment<T>,
}

/// A place in a tree of name segments.
#[derive(Debug)]
struct Segment<T> {
    /// The entries whose pattern ends here.
    ending: Vec<T>,
    named: HashMap<String, Segment<T>>,
    any: Option<Box<Segment<T>>>,
}

// Written out: a derived `Default` would ask for `T: Default`.
impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            by_connector: HashMap::new(),
            any_connector: Tools::default(),
        }
    }
}

impl<T> Default for Tools<T> {
    fn default() -> Self {
        Self {
            any_tool: Vec::new(),
            by_name: Segment::default(),
        }
    }
}

impl<T> Default for Segment<T> {
    fn default() -> Self {
        Self {
            ending: Vec::new(),
            named: HashMap::new(),
            any: None,
        }
    }
}

impl<T> Index<T> {
    /// Adds an entry; `None` is any connector, any tool.
    pub(crate) fn insert(
        &mut self,
        connector: Option<&ConnectorName>,
        tool: Option<&ToolPattern>,
        entry: T,
    ) {
        let tools = match connector {
            Some(connector) => self.by_connector.entry(connector.clone()).or_default(),
            None => &mut self.any_connector,
        };
        let Some(pattern) = tool else {
            tools.any_tool.push(entry);
            return;
        };
        let mut place = &mut tools.by_name;
        for segment in pattern.segments() {
            place = if segment == ANY_SEGMENT {
                place.any.get_or_insert_default()
            } else {
                place.named.entry(segment.to_owned()).or_default()
            };
        }
        place.ending.push(entry);
    }

    /// Adds every entry that speaks of the tool, and no other, in no promised order.
    pub(crate) fn collect_fitting<'a>(
        &'a self,
        connector: &ConnectorName,
        tool: &ToolName,
        found: &mut Vec<&'a T>,
    ) {
        self.collect(Some(connector), Some(tool.as_str()), found);
    }

    /// Adds every entry that speaks of whatever such an entry would speak of, in no promised order.
    pub(crate) fn collect_covering<'a>(
        &'a self,
        connector: Option<&ConnectorName>,
        tool: Option<&ToolPattern>,
        found: &mut Vec<&'a T>,
    ) {
        // No segment is named `*`, so an open one is found among the open ones alone.
        self.collect(connector, tool.map(ToolPattern::as_str), found);
    }

    fn collect<'a>(
        &'a self,
        connector: Option<&ConnectorName>,
        tool: Option<&str>,
        found: &mut Vec<&'a T>,
    ) {
        let named = connector.and_then(|connector| self.by_connector.get(connector));
        for tools in named.into_iter().chain([&self.any_connector]) {
            found.extend(&tools.any_tool);
            if tool.is_some() {
                tools.by_name.collect(tool, found);
            }
        }
    }
}

impl<T> Segment<T> {
    /// Walks down every branch that fits what is `left` of the name; as deep as a name has
    /// segments.
    fn collect<'a>(&'a self, left: Option<&str>, found: &mut Vec<&'a T>) {
        let Some(left) = left else {
            found.extend(&self.ending);
            return;
        };
        if self.named.is_empty() && self.any.is_none() {
            return;
        }
        // Byte by byte: names are short, and a search made for long texts costs more to set up.
        let dot = left.bytes().position(|byte| byte == b'.');
        let (segment, left) = match dot.and_then(|dot| left.split_at_checked(dot)) {
            Some((segment, behind)) => (segment, behind.get(1..)),
            None => (left, None),
        };
        if let Some(next) = self.named.get(segment) {
            next.collect(left, found);
        }
        if let Some(next) = &self.any
            && !segment.is_empty()
        {
            next.collect(left, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name of up to three segments over a small alphabet, the empty segment included.
    fn words(alphabet: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut longest = vec![String::new()];
        for length in 0..3 {
            longest = longest
                .iter()
                .flat_map(|word| alphabet.iter().map(move |segment| (word, segment)))
                .map(|(word, segment)| match length {
                    0 => (*segment).to_owned(),
                    _ => format!("{word}.{segment}"),
                })
                .collect();
            all.extend(longest.iter().cloned());
        }
        all
    }

    /// One entry covers another if it fits every tool that the other fits.
    #[test]
    fn it_finds_exactly_what_covers() {
        let connectors = [None, Some("shop")];
        let names: Vec<ToolName> = words(&["a", "b", "c"])
            .into_iter()
            .map(|name| ToolName::parse(name).expect("a name"))
            .collect();
        let patterns = words(&["a", "*"]).into_iter();
        let tools: Vec<Option<ToolPattern>> = patterns
            .map(|text| Some(ToolPattern::parse(&text).expect("a pattern")))
            .chain([None])
            .collect();
        let mut index = Index::default();
        let mut entries = Vec::new();
        for connector in connectors {
            let connector = connector.map(|name| ConnectorName::parse(name).expect(name));
            for tool in &tools {
                index.insert(connector.as_ref(), tool.as_ref(), entries.len());
                entries.push((connector.clone(), tool.clone()));
            }
        }
        let fits = |tool: &Option<ToolPattern>, name: &ToolName| {
            tool.as_ref().is_none_or(|tool| tool.fits(name))
        };
        for (connector, tool) in &entries {
            let mut covering = Vec::new();
            index.collect_covering(connector.as_ref(), tool.as_ref(), &mut covering);
            let mut found: Vec<usize> = covering.into_iter().copied().collect();
            found.sort_unstable();
            let mut wanted = Vec::new();
            for (position, (its_connector, its_tool)) in entries.iter().enumerate() {
                let is_wider = its_connector.is_none() || its_connector == connector;
                let mut fitting = names.iter().filter(|name| fits(tool, name));
                if is_wider && fitting.all(|name| fits(its_tool, name)) {
                    wanted.push(position);
                }
            }
            assert_eq!(found, wanted, "{connector:?} {tool:?}");
        }
    }

    /// The tree must find what `ToolPattern::fits` says: a BLOCK rule that it loses is a hole.
    #[test]
    fn it_finds_exactly_what_fits() {
        let connectors = [None, Some("shop"), Some("mail")];
        let patterns = words(&["a", "b", "*"]);
        let mut index = Index::default();
        let mut entries = Vec::new();
        for connector in connectors {
            let connector = connector.map(|name| ConnectorName::parse(name).expect(name));
            let tools = patterns.iter().map(|text| ToolPattern::parse(text).ok());
            for tool in tools.chain([None]) {
                index.insert(connector.as_ref(), tool.as_ref(), entries.len());
                entries.push((connector.clone(), tool));
            }
        }
        for connector in ["shop", "mail", "other"] {
            let connector = ConnectorName::parse(connector).expect("a name");
            for tool in words(&["a", "b", "c", ""]) {
                let Ok(tool) = ToolName::parse(tool) else {
                    continue;
                };
                let mut fitting = Vec::new();
                index.collect_fitting(&connector, &tool, &mut fitting);
                let mut found: Vec<usize> = fitting.into_iter().copied().collect();
                found.sort_unstable();
                let wanted: Vec<usize> = entries
                    .iter()
                    .enumerate()
                    .filter(|(_, (its_connector, its_tool))| {
                        its_connector.as_ref().is_none_or(|its| *its == connector)
                            && its_tool.as_ref().is_none_or(|its| its.fits(&tool))
                    })
                    .map(|(position, _)| position)
                    .collect();
                assert_eq!(found, wanted, "{connector}:{tool}");
            }
        }
    }
}

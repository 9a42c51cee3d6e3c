//! An operator's reach: the tools that its `requires` names, and no other.
//!
//! Owns one entry of that list. It must not know where the list is configured.

use operators_kernel::{ConnectorName, PlannedAction};
use serde::Deserialize;

use crate::error::shown;
use crate::pattern::{PatternError, ToolPattern};

/// One entry of `requires`, `connector:tool`: an exact connector, and a tool as in a rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Reach {
    connector: ConnectorName,
    tool: ToolPattern,
}

impl Reach {
    /// Reads `connector:tool`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let Some((connector, tool)) = text.split_once(':') else {
            return Err(PatternError::new(
                format!("`{}` names no tool", shown(text)),
                "write it as `connector:tool`, for example `shop:orders.hold`",
            ));
        };
        let connector = ConnectorName::parse(connector).map_err(|error| {
            PatternError::new(
                format!("connector `{}`: {error}", shown(connector)),
                "write the connector's name as it is configured",
            )
        })?;
        let tool = ToolPattern::parse(tool)?;
        Ok(Self { connector, tool })
    }

    /// Whether the action is inside.
    pub fn covers(&self, action: &PlannedAction) -> bool {
        self.connector == action.connector && self.tool.fits(&action.tool)
    }
}

impl TryFrom<String> for Reach {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_connector_and_a_tool() {
        assert!(Reach::parse("shop:orders.hold").is_ok());
        assert!(Reach::parse("shop:orders.*").is_ok());
        for (text, problem) in [
            ("", "names no tool"),
            ("shop", "names no tool"),
            ("shop:", "is empty"),
            (":orders.hold", "is empty"),
            ("*:orders.hold", "'*'"),
            ("Shop:orders.hold", "'S'"),
            ("shop:orders:hold", "':'"),
            ("shop: orders.hold", "' '"),
            ("shop:ord*", "part of a segment"),
        ] {
            let error = Reach::parse(text).expect_err(text);
            assert!(error.problem.contains(problem), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_configuration_reads_it_through_the_same_check() {
        assert!(serde_json::from_str::<Reach>("\"shop:orders.*\"").is_ok());
        assert!(serde_json::from_str::<Reach>("\"shop:ord*\"").is_err());
    }
}

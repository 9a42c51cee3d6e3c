//! `[receipts.checkpoint]`: how often a signed checkpoint is made on the way, and where it goes.

use std::path::PathBuf;
use std::time::Duration;

use operators_connectors::duration;
use serde::Deserialize;

use crate::output::shown;

/// What nobody signed yet can be rewritten: a long run leaves no more than this open.
const EVERY_DEFAULT: Duration = Duration::from_mins(5);

/// Often enough for a test, seldom enough for a store.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// `[receipts.checkpoint]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckpointConfig {
    /// A file that always holds the newest.
    pub(crate) file: Option<PathBuf>,
    /// A program that gets each on its standard input.
    pub(crate) command: Option<Vec<String>>,
    /// How long a run may last before it signs on the way.
    #[serde(default)]
    pub(crate) every: Every,
}

/// How long from one checkpoint of a run to the next.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Every(Duration);

impl Every {
    pub(crate) fn get(self) -> Duration {
        self.0
    }
}

impl Default for Every {
    fn default() -> Self {
        Self(EVERY_DEFAULT)
    }
}

impl TryFrom<String> for Every {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let every = duration::parse(&text).map_err(|error| error.to_string())?;
        if every < EVERY_MIN {
            return Err(format!(
                "every `{}` is too often; write `{}` or more",
                shown(&text),
                duration::format(EVERY_MIN)
            ));
        }
        Ok(Self(every))
    }
}

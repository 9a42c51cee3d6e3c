//! Who decides, when a command leaves a receipt with a person's name.

use anyhow::{Result, anyhow};
use nix::unistd::{User, geteuid};

use crate::args::Who;
use crate::output::quoted;

/// The variables that name whoever is logged in.
const VARIABLES: [&str; 2] = ["USER", "LOGNAME"];

impl Who {
    /// The name given, or the one this system has for whoever runs this; an error tells the whole
    /// command that gives one.
    pub(crate) fn name(&self) -> Result<String> {
        if let Some(named) = &self.named {
            return Ok(named.clone());
        }
        let logged_in = VARIABLES.iter().find_map(|name| {
            let name = std::env::var(name).ok()?;
            let name = name.trim();
            (!name.is_empty()).then(|| name.to_owned())
        });
        if let Some(name) = logged_in {
            return Ok(name);
        }
        let user = geteuid();
        match User::from_uid(user) {
            Ok(Some(found)) if !found.name.is_empty() => Ok(found.name),
            _ => {
                let words: Vec<String> =
                    std::env::args().skip(1).map(|word| quoted(&word)).collect();
                let words = words.join(" ");
                Err(anyhow!(
                    "who decides is not known: `$USER` is not set and user {user} has no name on \
                     this system; nothing was done; say who: `operators {words} --as 'YOUR NAME'`"
                ))
            }
        }
    }
}

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
        let variables = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let on_system = || {
            User::from_uid(geteuid())
                .ok()
                .flatten()
                .map(|user| user.name)
        };
        let mut known = self.named.clone().into_iter().chain(variables);
        first_name(|| known.next().or_else(on_system), std::env::args())
    }
}

/// The first of these names that says something; `None` ends them. `typed` is the command.
fn first_name(
    mut next: impl FnMut() -> Option<String>,
    typed: impl Iterator<Item = String>,
) -> Result<String> {
    // Each is asked once, and the system last.
    for _ in 0..VARIABLES.len() + 2 {
        match next().map(|name| name.trim().to_owned()) {
            Some(name) if name.is_empty() => {}
            Some(name) => return Ok(name),
            None => break,
        }
    }
    let words: Vec<String> = typed.skip(1).map(|word| quoted(&word)).collect();
    Err(anyhow!(
        "who decides is not known: neither `$USER` nor this system has a name; nothing was done; \
         say who: `operators {} --as 'YOUR NAME'`",
        words.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Result<String> {
        let mut names = names.iter().map(|name| (*name).to_owned());
        let typed = ["/bin/operators", "keys", "forget", "a b", "--because", "x"];
        first_name(|| names.next(), typed.map(str::to_owned).into_iter())
    }

    #[test]
    fn the_first_name_that_says_something_is_taken() {
        assert_eq!(named(&["ada", "root"]).expect("a name"), "ada");
        assert_eq!(named(&["", " ", "root "]).expect("a name"), "root");
    }

    #[test]
    fn without_a_name_the_whole_command_that_gives_one_is_told() {
        let error = named(&[""]).expect_err("nobody").to_string();
        let command = "`operators keys forget 'a b' --because x --as 'YOUR NAME'`";
        assert!(error.ends_with(command), "{error}");
    }
}

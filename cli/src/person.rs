//! Who decides, when a command leaves a receipt with a person's name: how that name is known, and
//! whether the system user who types may decide at all.

use anyhow::{Result, anyhow};
use nix::unistd::{User, geteuid};
use operators_kernel::{KnownBy, Person};

use crate::args::Who;
use crate::exit::Exit;
use crate::output::{note, quoted, shown};
use crate::project::Project;

/// The variables that name whoever is logged in.
const VARIABLES: [&str; 2] = ["USER", "LOGNAME"];

impl Who {
    /// The name given, or the one this system has for whoever runs this; an error tells the whole
    /// command that gives one.
    pub(crate) fn person(&self) -> Result<Person> {
        let variables = VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let said = self.named.clone().map(|name| (name, KnownBy::As));
        let known = said
            .into_iter()
            .chain(variables.map(|name| (name, KnownBy::Environment)));
        first_name(known, system_user().as_deref(), std::env::args())
    }
}

/// The user that this process runs as, if the system has a name for it.
fn system_user() -> Option<String> {
    let user = User::from_uid(geteuid()).ok().flatten();
    user.map(|user| user.name)
}

/// How a command ends, before it did anything, where `trust.approvers` does not list the system user
/// who typed it. Neither `--as` nor the environment has a say in who that is.
pub(crate) fn refused(project: &Project) -> Option<Exit> {
    let approvers = project.config.trust.approvers.as_ref()?;
    let user = system_user().unwrap_or_else(|| geteuid().to_string());
    if approvers.contains(&user) {
        return None;
    }
    let listed = match approvers.as_slice() {
        [] => "nobody".to_owned(),
        some => format!("`{}`", shown(&some.join("`, `"))),
    };
    note(&format!(
        "refused: the system user `{}` may not decide here, so nothing was done; `trust.approvers` \
         in {} lists {listed}",
        shown(&user),
        shown(&project.config_file().display())
    ));
    Some(Exit::Refused)
}

/// The first of these names that says something, then the system's own. A name that the system has
/// for whoever runs this is known by it, wherever it stood. `typed` is the command.
fn first_name(
    known: impl Iterator<Item = (String, KnownBy)>,
    on_system: Option<&str>,
    typed: impl Iterator<Item = String>,
) -> Result<Person> {
    let system = on_system.map(|name| (name.to_owned(), KnownBy::System));
    let named = known
        .chain(system)
        .map(|(name, known_by)| (name.trim().to_owned(), known_by))
        .find(|(name, _)| !name.is_empty());
    if let Some((name, known_by)) = named {
        let is_confirmed = on_system == Some(&*name);
        let known_by = match known_by {
            KnownBy::Environment if is_confirmed => KnownBy::System,
            other => other,
        };
        return Ok(Person {
            name,
            known_by: Some(known_by),
        });
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

    fn named(names: &[(&str, KnownBy)], on_system: Option<&str>) -> Result<Person> {
        let names = names.iter().map(|(name, by)| ((*name).to_owned(), *by));
        let typed = ["/bin/operators", "keys", "forget", "a b", "--because", "x"];
        let typed = typed.map(str::to_owned).into_iter();
        first_name(names, on_system, typed)
    }

    // Rule 9.15
    #[test]
    fn the_first_name_that_says_something_is_taken_and_how_it_is_known() {
        use KnownBy::{As, Environment, System};
        for (names, on_system, name, known_by) in [
            (
                &[("ada", As), ("root", Environment)][..],
                Some("root"),
                "ada",
                As,
            ),
            // Whoever says `--as` says so, even of themselves.
            (&[("root", As)], Some("root"), "root", As),
            (
                &[("", As), (" ", Environment), ("grace ", Environment)],
                Some("root"),
                "grace",
                Environment,
            ),
            (&[("root", Environment)], Some("root"), "root", System),
            (&[("root", Environment)], None, "root", Environment),
            (&[("", Environment)], Some("root"), "root", System),
        ] {
            let person = named(names, on_system).expect("a name");
            assert_eq!(
                (person.name.as_str(), person.known_by),
                (name, Some(known_by))
            );
        }
    }

    #[test]
    fn without_a_name_the_whole_command_that_gives_one_is_told() {
        let nobody = named(&[("", KnownBy::Environment)], None);
        let error = nobody.expect_err("nobody").to_string();
        let command = "`operators keys forget 'a b' --because x --as 'YOUR NAME'`";
        assert!(error.ends_with(command), "{error}");
    }
}

//! Names that give a secret away: an argument called so is hidden without being asked.

/// Words that make an argument secret when they stand anywhere in its name.
const SECRET_ANYWHERE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "apikey",
];

/// Words that make an argument secret when they end its name (`access_token`, not `token_count`).
const SECRET_AT_END: &[&[&str]] = &[
    &["token"],
    &["api", "key"],
    &["private", "key"],
    &["access", "key"],
    &["cvv"],
    &["cvc"],
    &["pin"],
    &["bearer"],
    &["jwt"],
];

/// Whether an argument of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    if !may_be_secret_name(name) {
        return false;
    }
    let words = words_of(name);
    words
        .iter()
        .any(|word| SECRET_ANYWHERE.contains(&word.as_str()))
        || SECRET_AT_END.iter().any(|ending| {
            words.len() >= ending.len()
                && words
                    .iter()
                    .rev()
                    .zip(ending.iter().rev())
                    .all(|(word, end)| word == end)
        })
}

/// False for what is certainly none: a name whose words include one of the lists' holds its letters.
/// Nearly every name ends here, and cutting it into words is dear.
fn may_be_secret_name(name: &str) -> bool {
    // Lower case of a letter beyond ASCII may be within it.
    if !name.is_ascii() {
        return true;
    }
    let mut rest = name.as_bytes();
    while let [letter, behind @ ..] = rest {
        let tails = secret_words_behind(letter.to_ascii_lowercase());
        let is_next = |tail: &&str| {
            let next = behind.get(..tail.len());
            next.is_some_and(|next| next.eq_ignore_ascii_case(tail.as_bytes()))
        };
        if tails.iter().any(is_next) {
            return true;
        }
        rest = behind;
    }
    false
}

/// The words of the lists that begin with this letter, without it: of an ending of several words the
/// last, of a word that begins with another of them that one.
fn secret_words_behind(letter: u8) -> &'static [&'static str] {
    match letter {
        b'a' => &["uthorization", "pikey"],
        b'b' => &["earer"],
        b'c' => &["ookie", "redential", "vv", "vc"],
        b'j' => &["wt"],
        b'k' => &["ey"],
        b'p' => &["assword", "asswd", "assphrase", "in"],
        b's' => &["ecret"],
        b't' => &["oken"],
        _ => &[],
    }
}

/// `accessToken`, `access-token` and `ACCESS_TOKEN` are the words `access` and `token`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for character in name.chars() {
        let starts_word = character.is_uppercase() && after_lower;
        if !character.is_alphanumeric() || starts_word {
            words.push(String::new());
        }
        if let (true, Some(word)) = (character.is_alphanumeric(), words.last_mut()) {
            word.extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase() || character.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_of_the_lists_is_passed_over() {
        let last_words = SECRET_AT_END.iter().filter_map(|ending| ending.last());
        for word in SECRET_ANYWHERE.iter().chain(last_words) {
            for name in [
                word.to_uppercase(),
                format!("my_{word}"),
                format!("a{word}b"),
            ] {
                assert!(may_be_secret_name(&name), "{name}");
            }
        }
        assert!(!may_be_secret_name("reason"));
    }
}

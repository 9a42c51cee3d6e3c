//! Names that give a secret away: an argument called so is hidden without being asked.

/// Words that make an argument secret when they stand anywhere in its name, as one (`password2`),
/// as many (`cookies`), or run together with what is before them (`dbpassword`).
const SECRET_ANYWHERE: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "cookie",
    "credential",
    "apikey",
];

/// As those, but never run together: a `preauthorization` is an everyday matter of payments.
const SECRET_AS_A_WORD: &[&str] = &["authorization"];

/// Words that make an argument secret when they end its name (`private_key`, not `key_count`). Of
/// several tokens only those that open a door: `max_tokens` counts words.
const SECRET_AT_END: &[&[&str]] = &[
    &["access", "tokens"],
    &["api", "tokens"],
    &["auth", "tokens"],
    &["bearer", "tokens"],
    &["refresh", "tokens"],
    &["api", "key"],
    &["api", "keys"],
    &["private", "key"],
    &["private", "keys"],
    &["access", "key"],
    &["access", "keys"],
    &["cvv"],
    &["cvc"],
    &["pin"],
    &["bearer"],
    &["jwt"],
];

/// What makes an argument secret when its last word is it or ends with it (`access_token` and
/// `refreshtoken`, not `token_count`). A `pin` does not: that would be a `spin` too.
const SECRET_RUN_TOGETHER: &[&str] = &[
    "token",
    "accesstokens",
    "authtokens",
    "refreshtokens",
    "privatekey",
    "privatekeys",
    "accesskey",
    "accesskeys",
];

/// Whether an argument of this name holds a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    if !may_be_secret_name(name) {
        return false;
    }
    // `APIKeyValue` is secret by its first cut, `DBPassword` by its second.
    [Acronyms::WithNextWord, Acronyms::OnTheirOwn]
        .into_iter()
        .any(|acronyms| are_secret(&words_of(name, acronyms)))
}

fn are_secret(words: &[String]) -> bool {
    words.iter().any(|word| is_secret_word(word))
        || SECRET_AT_END.iter().any(|ending| {
            words
                .iter()
                .rev()
                .zip(ending.iter().rev())
                .all(|(word, end)| word == end)
                && words.len() >= ending.len()
        })
        || words.last().is_some_and(|last| {
            SECRET_RUN_TOGETHER
                .iter()
                .any(|ending| last.ends_with(ending))
        })
}

fn is_secret_word(word: &str) -> bool {
    let one = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let one = one.strip_suffix('s').unwrap_or(one);
    SECRET_AS_A_WORD.contains(&one) || SECRET_ANYWHERE.iter().any(|secret| one.ends_with(secret))
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

/// How capitals in a row are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acronyms {
    /// `APIKey` is one word.
    WithNextWord,
    /// `APIKey` is the words `api` and `key`.
    OnTheirOwn,
}

/// `accessToken`, `access-token` and `ACCESS_TOKEN` are the words `access` and `token`.
fn words_of(name: &str, acronyms: Acronyms) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut after_lower, mut after_upper) = (false, false);
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        let ends_acronym = acronyms == Acronyms::OnTheirOwn
            && after_upper
            && characters.clone().next().is_some_and(char::is_lowercase);
        let starts_word = character.is_uppercase() && (after_lower || ends_acronym);
        if !character.is_alphanumeric() || starts_word {
            words.push(String::new());
        }
        if let (true, Some(word)) = (character.is_alphanumeric(), words.last_mut()) {
            word.extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase() || character.is_numeric();
        after_upper = character.is_uppercase();
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
        let lists = SECRET_ANYWHERE.iter().chain(SECRET_AS_A_WORD);
        let lists = lists.chain(SECRET_RUN_TOGETHER);
        for word in lists.chain(last_words) {
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

    #[test]
    fn many_are_as_secret_as_one() {
        for name in [
            "cookies",
            "session_cookies",
            "secrets",
            "passwords",
            "userPasswords",
            "PASSWORDs",
            "credentials",
            "api_keys",
            "apikeys",
            "private_keys",
            "access_tokens",
            "refreshTokens",
            "password2",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn an_acronym_is_a_word() {
        for name in [
            "DBPassword",
            "APIToken",
            "JWTToken",
            "OAuthToken",
            "SSHPrivateKey",
            "userPIN",
            "APIKey",
            "APIKeyValue",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn words_that_run_together_are_seen() {
        for name in [
            "accesstoken",
            "authtoken",
            "idtoken",
            "refreshtoken",
            "AUTHTOKEN",
            "x_csrftoken",
            "dbpassword",
            "clientsecret",
            "sessioncookie",
            "privatekey",
            "awsaccesskey",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn everyday_names_stay_plain() {
        for name in [
            "max_tokens",
            "maxTokens",
            "tokens",
            "completion_tokens",
            "id_tokens_seen",
            "token_count",
            "tokenizer",
            "tokenized",
            "pinned",
            "pins",
            "spin",
            "shopping_cart",
            "shipping",
            "secretary",
            "secretariat_id",
            "preauthorization",
            "authorized_by",
            "passenger",
            "passwordless",
            "cookiecutter",
            "keyboard",
            "monkey",
            "primary_key",
            "idempotency_key",
            "accesskeyid",
            "bearers",
            "forbearer",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}

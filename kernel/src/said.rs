//! What a connector says, as it is kept: without secrets, no deeper and no longer than a record can be.
//!
//! An effect counts whatever was said about it, so nothing is refused here: what is too much is cut,
//! and says so.

use serde_json::Value;

use crate::connector::Effect;
use crate::content_digest::ContentDigest;
use crate::json::{self, DEPTH_MAX};
use crate::redact::Redaction;
use crate::shared::Shared;

/// The most bytes of an error, or of a vendor's id, that are kept: more than anybody reads, and little
/// enough that a receipt fits wherever its arguments do.
const SENTENCE_BYTES_MAX: usize = 64 * 1024;

/// The most bytes of an effect's answer, as JSON, that are kept: what every store takes. A settle on
/// `DynamoDB` is one transaction of at most 4 MB, and beside the answer it holds the receipt of the
/// largest arguments; `SQLite` and Postgres take more, at several times its size in memory.
pub const RESULT_BYTES_MAX: usize = 1_500_000;

/// An error or an id. Secrets leave before it is cut, so no half of one is left.
pub(crate) fn sentence(redaction: &Redaction, text: String) -> String {
    cut(redaction.scrub_text(text))
}

fn cut(text: String) -> String {
    let bytes = text.len();
    if bytes <= SENTENCE_BYTES_MAX {
        return text;
    }
    let (beginning, _) = text.split_at(text.floor_char_boundary(SENTENCE_BYTES_MAX));
    format!("{beginning}… (cut, {bytes} bytes in all)")
}

/// An effect and its answer.
pub(crate) fn effect(redaction: &Redaction, effect: Effect) -> Effect {
    let mut result = whole_or_told(effect.result);
    if redaction.hides_something() {
        // Hashes may be longer than the secrets that they stand for.
        result = whole_or_told(redaction.scrub(result.into_inner()).into());
    }
    Effect {
        result,
        effect_id: effect.effect_id.map(|id| sentence(redaction, id)),
    }
}

/// What a read was answered: it is kept nowhere, so it may be of any length.
pub(crate) fn reading(redaction: &Redaction, effect: Effect) -> Effect {
    let result = shallow_or_told(effect.result);
    Effect {
        result: redaction.scrub(result.into_inner()).into(),
        ..effect
    }
}

/// What a person, or a program, says that the vendor answered, and the digest of what is kept of it.
pub(crate) fn answer(
    effect: &Effect,
    digest: Option<ContentDigest>,
) -> (Effect, Option<ContentDigest>) {
    let result = whole_or_told(effect.result.clone());
    let digest = if result.is_same(&effect.result) {
        digest
    } else {
        json::digest(&result).ok()
    };
    let effect_id = effect.effect_id.clone().map(cut);
    (Effect { result, effect_id }, digest)
}

/// The effect happened; an answer that no store takes, or that could be written but never read back,
/// would take the whole key along.
fn whole_or_told(result: Shared<Value>) -> Shared<Value> {
    let result = shallow_or_told(result);
    if json::is_longer_than(&result, RESULT_BYTES_MAX) {
        let told = format!("an answer of more than {RESULT_BYTES_MAX} bytes, which is not kept");
        return Value::String(told).into();
    }
    result
}

fn shallow_or_told(result: Shared<Value>) -> Shared<Value> {
    if json::is_too_deep(&result) {
        let told = format!("an answer nested deeper than {DEPTH_MAX} levels, which is not kept");
        return Value::String(told).into();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_cut_between_characters_and_says_so() {
        let nothing_hidden = Redaction::default();
        let long = "é".repeat(SENTENCE_BYTES_MAX);
        let kept = sentence(&nothing_hidden, format!("x{long}"));
        assert!(kept.len() < SENTENCE_BYTES_MAX + 64, "{}", kept.len());
        assert!(kept.ends_with("é… (cut, 131073 bytes in all)"));
        let whole = "x".repeat(SENTENCE_BYTES_MAX);
        assert_eq!(sentence(&nothing_hidden, whole.clone()), whole);
    }

    #[test]
    fn an_answer_is_kept_up_to_its_bound_and_told_beyond_it() {
        let told = Value::from("an answer of more than 1500000 bytes, which is not kept");
        let text = |bytes: usize| Value::from("é".repeat((bytes - 2) / 2));
        let nothing_hidden = Redaction::default();
        let kept = |result| *effect(&nothing_hidden, Effect::of(result)).result == told;
        assert!(!kept(text(RESULT_BYTES_MAX)));
        assert!(kept(text(RESULT_BYTES_MAX + 2)));
        assert!(kept(Value::from(vec![1; RESULT_BYTES_MAX / 2])));
        let read = reading(&nothing_hidden, Effect::of(text(RESULT_BYTES_MAX + 2)));
        assert_eq!(*read.result, text(RESULT_BYTES_MAX + 2));
    }
}

//! What a connector says, as it is kept: without secrets, no deeper and no longer than a record can be.
//!
//! An effect counts whatever was said about it, so nothing is refused here: what is too much is cut,
//! and says so.

use serde_json::Value;

use crate::connector::Effect;
use crate::json::{self, DEPTH_MAX};
use crate::redact::Redaction;

/// The most bytes of an error, or of a vendor's id, that are kept: more than anybody reads, and little
/// enough that a receipt fits wherever its arguments do.
const SENTENCE_BYTES_MAX: usize = 64 * 1024;

/// An error or an id. Secrets leave before it is cut, so no half of one is left.
pub(crate) fn sentence(redaction: &Redaction, text: String) -> String {
    let text = redaction.scrub_text(text);
    let bytes = text.len();
    if bytes <= SENTENCE_BYTES_MAX {
        return text;
    }
    let (beginning, _) = text.split_at(text.floor_char_boundary(SENTENCE_BYTES_MAX));
    format!("{beginning}… (cut, {bytes} bytes in all)")
}

/// An effect and its answer.
pub(crate) fn effect(redaction: &Redaction, effect: Effect) -> Effect {
    let mut result = effect.result;
    // The effect happened; an answer that could be written but never read back would take the whole
    // key along.
    if json::is_too_deep(&result) {
        let told = format!("an answer nested deeper than {DEPTH_MAX} levels, which is not kept");
        result = Value::String(told).into();
    }
    Effect {
        result: redaction.scrub(result.into_inner()).into(),
        effect_id: effect.effect_id.map(|id| sentence(redaction, id)),
    }
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
}

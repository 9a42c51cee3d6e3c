//! Receipts that the database completes: canonical text, cut where only it knows what to say.
//!
//! The receipt of a duplicate or a refusal tells the key's attempt and generation, and a duplicate's
//! the receipt of the application. The database puts them between the pieces and needs to know
//! nothing of JSON. In canonical text the keys of an object are sorted, so what a caller nested
//! (`action.args`) comes before all of them: cutting from the right is safe.

use std::ops::Range;

use memchr::memrchr_iter;
use operators_kernel::{AttemptMark, Claim, Clearance, Ending, Refusal};

use super::rows::canonical;
use super::trouble::Trouble;

/// The two numbers stand here while the text is made; they are cut out with their places.
const NO_MARK: AttemptMark = AttemptMark {
    generation: 0,
    attempt: 0,
    session: None,
    fence: None,
    approver: None,
};

/// A receipt in pieces: before the attempt, before the generation, before the original receipt
/// (a duplicate's only), and the rest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pieces<const N: usize> {
    text: String,
    places: [Range<usize>; N],
}

impl<const N: usize> Pieces<N> {
    /// How long they are together.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// The pieces, in their order.
    pub(super) fn each(&self) -> [&str; N] {
        let piece = |place: &Range<usize>| self.text.get(place.clone()).unwrap_or_default();
        self.places.each_ref().map(piece)
    }
}

/// The receipt of this claim, should it be a duplicate.
pub(super) fn of_duplicate(claim: &Claim) -> Result<Pieces<4>, Trouble> {
    let ending = Ending::Duplicate {
        original_receipt_id: "",
    };
    let text = canonical(&claim.proposal.receipt(&NO_MARK, &ending, claim.at))?;
    let (third, last) = cut(&text, 0..text.len(), ",\"original_receipt_id\":", "\"\"")?;
    let (second, third) = cut(&text, third, ",\"generation\":", "0")?;
    let (first, second) = cut(&text, second, ",\"attempt\":", "0")?;
    let places = [first, second, third, last];
    Ok(Pieces { text, places })
}

/// The receipt of this claim, should the gates before have the last word.
pub(super) fn of_refusal(claim: &Claim) -> Result<Option<Pieces<3>>, Trouble> {
    let refusal: &Refusal = match &claim.clearance {
        Clearance::Cleared => return Ok(None),
        Clearance::Refused(refusal) => refusal,
    };
    let ending = Ending::Refused(refusal);
    let text = canonical(&claim.proposal.receipt(&NO_MARK, &ending, claim.at))?;
    let (second, last) = cut(&text, 0..text.len(), ",\"generation\":", "0")?;
    let (first, second) = cut(&text, second, ",\"attempt\":", "0")?;
    let places = [first, second, last];
    Ok(Some(Pieces { text, places }))
}

/// Cuts `value` out of where `name`, which begins with a comma, comes last in a part of the text; where
/// what is before it stands, and what is after.
fn cut(
    text: &str,
    part: Range<usize>,
    name: &str,
    value: &str,
) -> Result<(Range<usize>, Range<usize>), Trouble> {
    // By its comma: a search for the whole name from the right compares at every byte.
    let within = text.get(part.clone()).unwrap_or_default().as_bytes();
    let mut commas = memrchr_iter(b',', within);
    let place = commas.find(|comma| {
        let rest = within.get(*comma..);
        rest.is_some_and(|rest| rest.starts_with(name.as_bytes()))
    });
    let before = place.map(|place| part.start..part.start + place + name.len());
    let found = before.and_then(|before| {
        let after = before.end..part.end;
        let is_there = text.get(after.clone())?.starts_with(value);
        is_there.then(|| (before, after.start + value.len()..after.end))
    });
    found.ok_or_else(|| Trouble::meaning("a receipt", format!("no `{name}` in it")))
}

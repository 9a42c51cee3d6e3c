//! Receipts that the database completes: canonical text, cut where only it knows what to say.
//!
//! The receipt of a duplicate or a refusal tells the key's attempt and generation, and a duplicate's
//! the receipt of the application. The database puts them between the pieces and needs to know
//! nothing of JSON. In canonical text the keys of an object are sorted, so what a caller nested
//! (`action.args`) comes before all of them: cutting from the right is safe.

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
pub(super) struct Pieces<const N: usize>(pub(super) [String; N]);

/// The receipt of this claim, should it be a duplicate.
pub(super) fn of_duplicate(claim: &Claim) -> Result<Pieces<4>, Trouble> {
    let ending = Ending::Duplicate {
        original_receipt_id: "",
    };
    let text = canonical(&claim.proposal.receipt(&NO_MARK, &ending, claim.at))?;
    let (rest, last) = cut(&text, ",\"original_receipt_id\":", "\"\"")?;
    let (rest, third) = cut(rest, ",\"generation\":", "0")?;
    let (first, second) = cut(rest, ",\"attempt\":", "0")?;
    Ok(Pieces([first, second, third, last].map(str::to_owned)))
}

/// The receipt of this claim, should the gates before have the last word.
pub(super) fn of_refusal(claim: &Claim) -> Result<Option<Pieces<3>>, Trouble> {
    let refusal: &Refusal = match &claim.clearance {
        Clearance::Cleared => return Ok(None),
        Clearance::Refused(refusal) => refusal,
    };
    let ending = Ending::Refused(refusal);
    let text = canonical(&claim.proposal.receipt(&NO_MARK, &ending, claim.at))?;
    let (rest, last) = cut(&text, ",\"generation\":", "0")?;
    let (first, second) = cut(rest, ",\"attempt\":", "0")?;
    Ok(Some(Pieces([first, second, last].map(str::to_owned))))
}

/// Cuts `value` out of where `name` comes last in `text`; what is before it, and what is after.
fn cut<'a>(text: &'a str, name: &str, value: &str) -> Result<(&'a str, &'a str), Trouble> {
    let parts = text.rfind(name).and_then(|place| {
        let (before, after) = text.split_at_checked(place + name.len())?;
        Some((before, after.strip_prefix(value)?))
    });
    parts.ok_or_else(|| Trouble::meaning("a receipt", format!("no `{name}` in it")))
}

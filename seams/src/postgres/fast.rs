//! The fast path: one statement for a batch, by functions of the schema that know the common cases.
//!
//! A batch of one goes to a function of its own, which costs the server half as much.

use std::collections::HashSet;
use std::sync::Arc;

use operators_kernel::Proposal;
use sqlx::Row;

use super::lines::{IfBroken, Lines};
use super::text::{Call, Said, Value};
use super::trouble::Trouble;

/// What a fast statement says about one item: the answer, or that it has to be decided under locks.
pub(super) type Fast<T> = Result<Option<T>, Trouble>;

/// Functions of the schema that decide the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    /// For one item, if that has a function of its own: every argument is a value.
    pub(super) one: Option<&'static str>,
    /// For several: every argument but the first is a column.
    pub(super) many: &'static str,
    pub(super) if_broken: IfBroken,
}

/// The numbers of the items in one order for all batches, so that no two wait for each other.
///
/// A statement meets a row once, so of several items on one entity or key the first goes; the others
/// are decided alone, after it.
pub(super) fn in_order<'a, I>(
    items: &'a [I],
    place: impl Fn(&'a I) -> (&'a str, &'a str),
    key: impl Fn(&'a I) -> (&'a str, &'a str),
) -> Vec<usize> {
    let mut keys = HashSet::with_capacity(items.len());
    let mut order: Vec<_> = items
        .iter()
        .enumerate()
        .filter(|(_, item)| keys.insert(key(item)))
        .map(|(number, item)| (place(item), number))
        .collect();
    order.sort_unstable();
    order.dedup_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, number)| number).collect()
}

/// Calls the function for these items; what it said about them, in the order given.
pub(super) async fn run<'a, I, const N: usize>(
    lines: &Arc<Lines>,
    function: Function,
    items: &'a [I],
    order: &[usize],
    values: impl Fn(&'a I) -> [Value<'a>; N],
) -> Result<String, Trouble> {
    let rows: Vec<[Value<'a>; N]> = order
        .iter()
        .filter_map(|number| items.get(*number))
        .map(values)
        .collect();
    let weight: usize = rows.iter().flatten().map(Value::weight).sum();
    // A sixteenth for what is quoted.
    let weight = weight + weight / 16 + 512;
    let acked = lines.last_acked();
    let call = if let ([row], Some(one)) = (rows.as_slice(), function.one) {
        let call = Call::fast(one, weight).text(&acked);
        row.iter().fold(call, |call, value| call.value(*value))
    } else {
        let call = Call::fast(function.many, weight).text(&acked);
        (0..N).fold(call, |call, column| {
            call.column(rows.iter().filter_map(|row| row.get(column).copied()))
        })
    };
    let rows = lines.run_if(function.if_broken, call.finish()?).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    // Unchecked: it is text, or the nothing of a function that has nothing to say.
    let said: Option<String> = row.try_get_unchecked(0)?;
    Ok(said.unwrap_or_default())
}

/// Gives each item its answer. Where the whole statement failed and may be tried again, each item is
/// decided alone: one that cannot be done must not hold up the others.
pub(super) fn deal<I, T>(
    items: &[I],
    order: &[usize],
    said: Result<String, Trouble>,
    answer: impl Fn(&I, &mut Said<'_>) -> Fast<T>,
) -> Vec<Fast<T>> {
    let said = match said {
        Ok(said) => said,
        Err(Trouble::Again(_)) => return items.iter().map(|_| Ok(None)).collect(),
        Err(trouble) => return items.iter().map(|_| Err(trouble.clone())).collect(),
    };
    let mut answers: Vec<Fast<T>> = items.iter().map(|_| Ok(None)).collect();
    for (number, mut said) in order.iter().zip(Said::about_each(&said)) {
        if let (Some(item), Some(place)) = (items.get(*number), answers.get_mut(*number)) {
            *place = answer(item, &mut said);
        }
    }
    answers
}

pub(super) fn revision(proposal: &Proposal) -> Value<'static> {
    let number = proposal.revision.map(signed);
    number.map_or(Value::Null, Value::Number)
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

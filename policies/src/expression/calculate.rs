//! Numbers and entries: arithmetic that never wraps or rounds away, and what stands at an index.
//!
//! Owns the edges: overflow, division by zero, what is not finite, places that are not there.

use super::fault::Fault;
use super::kinds::Operator;
use super::value::Val;

/// 2^63, the first double beyond every `i64`.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

pub(super) fn entry<'a>(whole: &Val<'a>, index: &Val<'_>) -> Result<Val<'a>, Fault> {
    if let Val::Object(fields) = whole {
        let Some(name) = index.as_text() else {
            return Err(Fault::NoEntry);
        };
        return fields.get(name).map_or(Err(Fault::NoEntry), Val::of);
    }
    if whole.list_length().is_none() {
        return Err(Fault::Unfit(format!("{} has no entries", whole.kind())));
    }
    let index = match index {
        Val::Int(index) => usize::try_from(*index).ok(),
        // A number of the action: whole, or no place in a list.
        Val::Double(index) if index.fract() == 0.0 => match truncated(*index)? {
            Val::Int(index) => usize::try_from(index).ok(),
            _ => None,
        },
        _ => None,
    };
    let item = index.and_then(|index| whole.item(index));
    item.unwrap_or(Err(Fault::NoEntry))
}

pub(super) fn arithmetic<'a>(
    operator: Operator,
    left: &Val<'a>,
    right: &Val<'a>,
) -> Result<Val<'a>, Fault> {
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => {
            if *right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
                return Err(Fault::DividedByZero);
            }
            let result = match operator {
                Operator::Add => left.checked_add(*right),
                Operator::Subtract => left.checked_sub(*right),
                Operator::Multiply => left.checked_mul(*right),
                Operator::Divide => left.checked_div(*right),
                Operator::Remainder => left.checked_rem(*right),
                _ => None,
            };
            result.map(Val::Int).ok_or(Fault::Overflow)
        }
        (Val::Double(left), Val::Double(right)) => match operator {
            Operator::Add => Val::double(left + right),
            Operator::Subtract => Val::double(left - right),
            Operator::Multiply => Val::double(left * right),
            Operator::Divide => Val::double(left / right),
            _ => Err(Fault::Unfit("doubles have no remainder".to_owned())),
        },
        _ => Err(left.unfit_with(right, "calculated with")),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "cut off on purpose, and within bounds"
)]
pub(super) fn truncated<'a>(number: f64) -> Result<Val<'a>, Fault> {
    if (-INT_END..INT_END).contains(&number) {
        Ok(Val::Int(number as i64))
    } else {
        Err(Fault::Overflow)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "CEL's double() rounds; policies count in whole numbers far below that"
)]
pub(super) fn widened<'a>(number: i64) -> Val<'a> {
    Val::Double(number as f64)
}

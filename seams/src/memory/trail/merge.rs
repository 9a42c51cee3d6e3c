//! The sheets of a trail as one row of receipts.

use operators_kernel::TenantId;

use super::{Entry, Hold};

/// A tenant's receipts after this number, in order.
pub(super) fn after<'a>(
    sheets: &'a [Hold<'_>],
    tenant: &TenantId,
    start: u64,
) -> impl Iterator<Item = &'a Entry> {
    let mut rests = of_tenant(sheets, tenant);
    for rest in &mut rests {
        let known = rest.partition_point(|entry| entry.sequence <= start);
        *rest = rest.get(known..).unwrap_or_default();
    }
    std::iter::from_fn(move || {
        let first = |rest: &&mut &'a [Entry]| rest.first().map(|entry| entry.sequence);
        let rests = rests.iter_mut().filter(|rest| !rest.is_empty());
        rests.min_by_key(first)?.split_off_first()
    })
}

/// A tenant's receipts before this number, the last one first.
pub(super) fn before<'a>(
    sheets: &'a [Hold<'_>],
    tenant: &TenantId,
    end: u64,
) -> impl Iterator<Item = &'a Entry> {
    let mut rests = of_tenant(sheets, tenant);
    for rest in &mut rests {
        let known = rest.partition_point(|entry| entry.sequence < end);
        *rest = rest.get(..known).unwrap_or_default();
    }
    std::iter::from_fn(move || {
        let last = |rest: &&mut &'a [Entry]| rest.last().map(|entry| entry.sequence);
        let rests = rests.iter_mut().filter(|rest| !rest.is_empty());
        rests.max_by_key(last)?.split_off_last()
    })
}

fn of_tenant<'a>(sheets: &'a [Hold<'_>], tenant: &TenantId) -> Vec<&'a [Entry]> {
    let entries = sheets
        .iter()
        .filter_map(|sheet| sheet.by_tenant.get(tenant));
    entries.map(Vec::as_slice).collect()
}

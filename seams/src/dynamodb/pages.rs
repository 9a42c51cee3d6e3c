//! How receipts get their numbers: readers merge the lanes into pages, once and for good.
//!
//! A page holds the ids of 100 receipts in their final order, and how far each lane was merged then.
//! Whoever reads first appends what the lanes have more; two readers cannot both append the same,
//! because a page is written on condition that nobody wrote it since it was read. A receipt's number
//! is its place in the pages: it never changes, has no gaps, and is there for everybody after the
//! receipt is.

use operators_kernel::{StoreError, TenantId};
use tokio::task::JoinSet;

use super::Shared;
use super::fields::{Fields, number, numbers, ordinal, text};
use super::item::{Address, Item, VERSION};
use super::request::Range;
use super::trail::{LANES, Line, lane_pk};
use super::trouble::{Pauses, fresh_id};
use super::write::{Expect, Write, Written};

/// Receipts on one page: its ids fit into a few KB, so the last page is cheap to write again.
pub(super) const PAGE_SIZE: u64 = 100;

/// The most pages written at once: 100 items, less than 4 MB.
const PAGES_AT_ONCE: usize = 50;

/// A page as it is kept.
#[derive(Debug, Clone)]
pub(super) struct IdPage {
    /// Its number; receipt number `n` is on page `(n - 1) / PAGE_SIZE`.
    pub(super) index: u64,
    version: u64,
    pub(super) ids: Vec<String>,
    /// The last number of each lane that is on this page or one before.
    pub(super) marks: Vec<u64>,
}

impl IdPage {
    fn first() -> Self {
        Self {
            index: 0,
            version: 0,
            ids: Vec::new(),
            marks: vec![0; LANES],
        }
    }

    fn next(&self) -> Self {
        Self {
            index: self.index + 1,
            version: 0,
            ids: Vec::new(),
            marks: self.marks.clone(),
        }
    }

    fn is_full(&self) -> bool {
        u64::try_from(self.ids.len()).is_ok_and(|count| count >= PAGE_SIZE)
    }

    /// The number of the last receipt on it.
    pub(super) fn last_number(&self) -> u64 {
        let count = u64::try_from(self.ids.len()).unwrap_or(0);
        self.index * PAGE_SIZE + count
    }

    pub(super) fn read(item: &Item) -> Result<Self, String> {
        let fields = Fields::of(item, "a page of receipts");
        let index = fields.text("sk")?;
        Ok(Self {
            index: index.parse().map_err(|_| format!("a page is `{index}`"))?,
            version: fields.number(VERSION)?,
            ids: fields.texts("ids")?,
            marks: fields.numbers("marks")?,
        })
    }

    fn write(&self, tenant: &TenantId) -> Write {
        let mut item = page_address(tenant, self.index).item();
        let ids = self.ids.iter().map(text);
        let ids = aws_sdk_dynamodb::types::AttributeValue::L(ids.collect());
        item.insert("ids".to_owned(), ids);
        item.insert("marks".to_owned(), numbers(&self.marks));
        item.insert(VERSION.to_owned(), number(self.version + 1));
        Write::Put(item, Expect::Version(self.version))
    }
}

pub(super) fn page_address(tenant: &TenantId, index: u64) -> Address {
    Address::of("pages", &[tenant.as_str()]).at(ordinal(index))
}

/// One receipt on its way from a lane to a page.
struct Unnumbered {
    at: i64,
    lane: usize,
    number: u64,
    /// A lane is merged in whole lines: the next look goes on behind one.
    is_first_of_line: bool,
    id: String,
}

impl Shared {
    /// The last page, after everything that is in the lanes was put on one.
    pub(super) async fn last_page(&self, tenant: &TenantId) -> Result<IdPage, StoreError> {
        let mut pauses = Pauses::new(&self.table.observer);
        loop {
            let pk = page_address(tenant, 0).pk;
            let (last, _) = self.table.range(&pk, Range::Last).await?;
            let last = last.first().map(IdPage::read).transpose();
            let last = last.map_err(|problem| self.table.unusable(problem))?;
            let last = last.unwrap_or_else(IdPage::first);
            let (lanes, more) = self.unnumbered(tenant, &last.marks).await?;
            if lanes.iter().all(Vec::is_empty) {
                return Ok(last);
            }
            let (mut pages, cut) = paged(last, merged(lanes));
            let writes: Vec<Write> = pages.iter().map(|page| page.write(tenant)).collect();
            let id = fresh_id().map_err(|problem| self.table.unavailable(problem))?;
            match self.table.write(&id, &writes).await? {
                Written::Done => {
                    let last = pages.pop().filter(|_| !more && !cut);
                    if let Some(last) = last {
                        return Ok(last);
                    }
                }
                // Another reader was faster.
                Written::Refused(_) if pauses.pause(&self.table.observer).await => {}
                Written::Refused(_) => {
                    return Err(self.table.unavailable("its pages are crowded"));
                }
            }
        }
    }

    /// What each lane has after its mark, and whether there is more.
    async fn unnumbered(
        &self,
        tenant: &TenantId,
        marks: &[u64],
    ) -> Result<(Vec<Vec<Unnumbered>>, bool), StoreError> {
        let mut looks = JoinSet::new();
        for (lane, mark) in marks.iter().copied().enumerate() {
            let (table, pk) = (self.table.clone(), lane_pk(tenant, lane));
            looks.spawn(async move {
                let (lines, more) = table.range(&pk, Range::After(ordinal(mark))).await?;
                let mut found = Vec::new();
                for line in &lines {
                    let line = Line::read(line).map_err(|problem| table.unusable(problem))?;
                    let expected = mark + 1 + u64::try_from(found.len()).unwrap_or(u64::MAX);
                    if line.first != expected {
                        let problem = format!("receipt {expected} of `{pk}` is gone");
                        return Err(table.unusable(problem));
                    }
                    for (number, id) in (line.first..).zip(line.ids) {
                        found.push(Unnumbered {
                            at: line.at,
                            lane,
                            number,
                            is_first_of_line: number == line.first,
                            id,
                        });
                    }
                }
                Ok((found, more))
            });
        }
        let mut lanes = Vec::with_capacity(marks.len());
        let mut is_more = false;
        while let Some(found) = looks.join_next().await {
            let found = found.map_err(|error| self.table.unavailable(error.to_string()))?;
            let (found, more) = found?;
            lanes.push(found);
            is_more |= more;
        }
        Ok((lanes, is_more))
    }
}

/// One order out of several: each lane's own is kept, and between lanes the time of writing decides,
/// as the writers' clocks had it. Nothing but the order of a listing depends on those.
fn merged(lanes: Vec<Vec<Unnumbered>>) -> Vec<Unnumbered> {
    let mut lanes: Vec<_> = lanes
        .into_iter()
        .map(|lane| lane.into_iter().peekable())
        .collect();
    let mut all = Vec::new();
    loop {
        let heads = lanes.iter_mut().filter_map(|lane| {
            let order = lane.peek().map(|head| (head.at, head.lane))?;
            Some((order, lane))
        });
        let Some((_, lane)) = heads.min_by_key(|(order, _)| *order) else {
            return all;
        };
        all.extend(lane.next());
    }
}

/// The last page filled up, and as many after it as fit into one write; whether that cut some off.
fn paged(last: IdPage, all: Vec<Unnumbered>) -> (Vec<IdPage>, bool) {
    let mut pages = Vec::new();
    let mut page = if last.is_full() { last.next() } else { last };
    let mut is_cut = false;
    for one in all {
        if one.is_first_of_line && pages.len() >= PAGES_AT_ONCE {
            is_cut = true;
            break;
        }
        if page.is_full() {
            let next = page.next();
            pages.push(std::mem::replace(&mut page, next));
        }
        if let Some(mark) = page.marks.get_mut(one.lane) {
            *mark = one.number;
        }
        page.ids.push(one.id);
    }
    if !page.ids.is_empty() {
        pages.push(page);
    }
    (pages, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(lane: usize, from: u64, times: &[i64]) -> Vec<Unnumbered> {
        let numbers = from..;
        let one = |(number, at): (u64, &i64)| Unnumbered {
            at: *at,
            lane,
            number,
            is_first_of_line: true,
            id: format!("{lane}/{number}"),
        };
        numbers.zip(times).map(one).collect()
    }

    #[test]
    fn lanes_keep_their_own_order_and_meet_by_time() {
        let all = merged(vec![lane(3, 1, &[10, 5, 30]), lane(1, 7, &[20, 25])]);
        let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["3/1", "3/2", "1/7", "1/8", "3/3"]);
    }

    #[test]
    fn pages_are_filled_in_order_and_remember_how_far_each_lane_came() {
        let times: Vec<i64> = (0..250).collect();
        let (pages, is_cut) = paged(IdPage::first(), merged(vec![lane(2, 1, &times)]));
        assert!(!is_cut);
        let sizes: Vec<usize> = pages.iter().map(|page| page.ids.len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
        let marks: Vec<Option<&u64>> = pages.iter().map(|page| page.marks.get(2)).collect();
        assert_eq!(marks, [Some(&100), Some(&200), Some(&250)]);
        let last = pages.last().expect("a page").clone();
        assert_eq!(last.last_number(), 250);
        let (more, _) = paged(last, lane(0, 1, &[1; 60]));
        let ends: Vec<u64> = more.iter().map(IdPage::last_number).collect();
        assert_eq!(ends, [300, 310]);
    }

    #[test]
    fn what_is_too_much_for_one_write_is_cut_between_lines() {
        let mut many = lane(0, 1, &vec![1; 5_200]);
        for one in &mut many {
            one.is_first_of_line = one.number % 90 == 1;
        }
        let (pages, is_cut) = paged(IdPage::first(), many);
        let end = pages.last().map_or(0, IdPage::last_number);
        assert!(is_cut && pages.len() <= 100);
        assert_eq!(end % 90, 0, "{end}");
    }
}

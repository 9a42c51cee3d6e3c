//! Texts that are longer than an item can be: cut into pieces that stand beside it, and joined again.
//!
//! An item holds 400 KB, and what one action says may be 1 MiB. The beginning of such a text stays
//! where it is; the rest is in items under the same `pk`, put in the same write. The item says how
//! many pieces there are and what the whole text hashes to, so whoever reads the two one after the
//! other knows when the item was written again in between, and looks again.

use aws_sdk_dynamodb::types::AttributeValue;
use operators_kernel::{ContentDigest, StoreError};

use super::fields::{Fields, number, text};
use super::item::{Address, Item, PK};
use super::request::Table;
use super::write::Write;

/// The bytes of one piece: with its name well below an item's 400 KB.
pub(super) const PIECE_BYTES: usize = 300 * 1024;

/// What stays in the item of a text that was cut: an item that is written often stays small.
const BEGINNING_BYTES: usize = 1024;

/// The attribute that tells which texts go on elsewhere.
const REST: &str = "rest";

/// The attribute that holds a piece.
const PIECE: &str = "piece";

/// How one text of an item goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rest {
    /// The attribute that holds its beginning.
    name: String,
    pieces: u64,
    /// Of the whole text.
    digest: String,
}

impl Rest {
    fn read(entry: &Item) -> Result<Self, String> {
        let fields = Fields::of(entry, "the rest of a text");
        Ok(Self {
            name: fields.text("name")?.to_owned(),
            pieces: fields.number("pieces")?,
            digest: fields.text("digest")?.to_owned(),
        })
    }

    fn write(&self) -> AttributeValue {
        AttributeValue::M(Item::from([
            ("name".to_owned(), text(&self.name)),
            ("pieces".to_owned(), number(self.pieces)),
            ("digest".to_owned(), text(&self.digest)),
        ]))
    }

    fn addresses(&self, pk: &str) -> impl Iterator<Item = Address> {
        (1..=self.pieces).map(move |number| Address {
            pk: pk.to_owned(),
            sk: format!("{}.{number:04}", self.name),
        })
    }
}

/// The texts of an item that go on elsewhere; nearly always none.
pub(super) fn rests(item: &Item) -> Result<Vec<Rest>, String> {
    let found = Fields::of(item, "an item").list(REST)?;
    found.into_iter().map(Rest::read).collect()
}

/// Cuts a text of an item if it is longer than `whole_max`: how it goes on, and the pieces.
pub(super) fn cut(item: &mut Item, name: &str, whole_max: usize) -> Option<(Rest, Vec<Write>)> {
    let pk = item.get(PK)?.as_s().ok()?.clone();
    let whole = item.get(name)?.as_s().ok()?.clone();
    if whole.len() <= whole_max {
        return None;
    }
    let (beginning, mut left) = whole.split_at(whole.floor_char_boundary(BEGINNING_BYTES));
    let mut pieces = Vec::new();
    while !left.is_empty() {
        let (piece, more) = left.split_at(left.floor_char_boundary(PIECE_BYTES));
        pieces.push(piece);
        left = more;
    }
    let rest = Rest {
        name: name.to_owned(),
        pieces: u64::try_from(pieces.len()).unwrap_or(u64::MAX),
        digest: ContentDigest::of(whole.as_bytes()).text(),
    };
    let writes = rest.addresses(&pk).zip(pieces).map(put_piece).collect();
    item.insert(name.to_owned(), text(beginning));
    match item.get_mut(REST) {
        Some(AttributeValue::L(others)) => others.push(rest.write()),
        _ => drop(item.insert(REST.to_owned(), AttributeValue::L(vec![rest.write()]))),
    }
    Some((rest, writes))
}

/// Takes the words out of an item's pieces, and leaves none that it goes on in. Nothing is deleted:
/// nobody needs to be able to delete.
pub(super) fn blank(item: &mut Item) -> Result<Vec<Write>, String> {
    let pk = Fields::of(item, "an item").text(PK)?.to_owned();
    let rests = rests(item)?;
    item.remove(REST);
    let pieces = rests.iter().flat_map(|rest| rest.addresses(&pk));
    Ok(pieces.map(|address| put_piece((address, ""))).collect())
}

fn put_piece((address, words): (Address, &str)) -> Write {
    let mut item = address.item();
    item.insert(PIECE.to_owned(), text(words));
    // Its item's condition guards it.
    Write::Put(item, super::write::Expect::Anything)
}

impl Table {
    /// An item with its texts whole; nothing if it was written again since it was read.
    pub(super) async fn joined(&self, mut item: Item) -> Result<Option<Item>, StoreError> {
        let unusable = |problem: String| self.unusable(problem);
        for rest in rests(&item).map_err(unusable)? {
            let fields = Fields::of(&item, "an item");
            let mut whole = fields.text(&rest.name).map_err(unusable)?.to_owned();
            let pk = fields.text(PK).map_err(unusable)?;
            let addresses: Vec<Address> = rest.addresses(pk).collect();
            let mut pieces = Vec::with_capacity(addresses.len());
            // Boxed: it is rare, and every reader's future would be as large.
            for found in Box::pin(self.get_all_as_kept(&addresses)).await? {
                let fields = Fields::of(&found, "a piece of a text");
                let place = fields.text("sk").map_err(unusable)?.to_owned();
                let piece = fields.text(PIECE).map_err(unusable)?.to_owned();
                pieces.push((place, piece));
            }
            pieces.sort();
            whole.extend(pieces.into_iter().map(|(_, piece)| piece));
            if ContentDigest::of(whole.as_bytes()).text() != rest.digest {
                return Ok(None);
            }
            item.insert(rest.name, text(whole));
        }
        Ok(Some(item))
    }

    /// An item with its texts whole, as it is now if it was written again since it was read.
    pub(super) async fn whole(&self, item: Item) -> Result<Item, StoreError> {
        let fields = Fields::of(&item, "an item");
        let address = fields.text(PK).and_then(|pk| {
            let (pk, sk) = (pk.to_owned(), fields.text("sk")?.to_owned());
            Ok(Address { pk, sk })
        });
        let address = address.map_err(|problem| self.unusable(problem))?;
        if let Some(whole) = self.joined(item).await? {
            return Ok(whole);
        }
        let gone = || self.unusable(format!("item `{}` is gone", address.pk));
        self.get(&address).await?.ok_or_else(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::write::Expect;
    use super::*;

    fn item(body: &str) -> Item {
        let address = Address::of("receipt", &["acme", "r1"]);
        let mut item = address.item();
        item.insert("body".to_owned(), text(body));
        item
    }

    fn words(write: &Write) -> (&str, &str) {
        let Write::Put(item, Expect::Anything) = write else {
            panic!("{write:?}")
        };
        let fields = Fields::of(item, "a piece");
        (
            fields.text("sk").expect("a place"),
            fields.text(PIECE).expect("words"),
        )
    }

    #[test]
    fn a_text_that_fits_stays_whole() {
        let mut short = item("short");
        assert_eq!(cut(&mut short, "body", 5).map(|(rest, _)| rest), None);
        assert_eq!(short, item("short"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_nothing_of_it_is_lost() {
        // Four bytes each, so that no bound of ours falls between two by itself.
        let long = format!("x{}", "🦀".repeat(200_000));
        let mut head = item(&long);
        let (rest, pieces) = cut(&mut head, "body", PIECE_BYTES).expect("cut");
        assert_eq!(rests(&head).expect("readable"), [rest]);
        let places: Vec<&str> = pieces.iter().map(|piece| words(piece).0).collect();
        assert_eq!(places, ["body.0001", "body.0002", "body.0003"]);
        let beginning = Fields::of(&head, "a receipt").text("body").expect("text");
        assert!(beginning.len() <= BEGINNING_BYTES);
        let pieces: Vec<&str> = pieces.iter().map(|piece| words(piece).1).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(format!("{beginning}{}", pieces.concat()), long);
    }

    #[test]
    fn blanking_leaves_no_word_and_no_rest() {
        let mut head = item(&"x".repeat(PIECE_BYTES * 2));
        cut(&mut head, "body", PIECE_BYTES).expect("cut");
        let blanks = blank(&mut head).expect("readable");
        let blanks: Vec<(&str, &str)> = blanks.iter().map(words).collect();
        assert_eq!(blanks, [("body.0001", ""), ("body.0002", "")]);
        assert_eq!(rests(&head).expect("readable"), []);
    }
}

//! How packed things are written as bytes, and read from front to back.

use std::cell::Cell;

/// Adds a text, its length first.
pub(crate) fn text(bytes: &mut Vec<u8>, text: &str) {
    piece(bytes, text.as_bytes());
}

/// Adds a piece of bytes, its length first.
pub(crate) fn piece(bytes: &mut Vec<u8>, piece: &[u8]) {
    length(bytes, piece.len());
    bytes.extend_from_slice(piece);
}

/// Adds a length.
pub(crate) fn length(bytes: &mut Vec<u8>, length: usize) {
    unsigned(bytes, u64::try_from(length).unwrap_or(u64::MAX));
}

/// Adds a number, seven bits a byte, the last of them below 128: nearly every one is one byte.
pub(crate) fn unsigned(bytes: &mut Vec<u8>, mut number: u64) {
    while let rest @ 1.. = number >> 7 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number = rest;
    }
    bytes.push(u8::try_from(number).unwrap_or_default());
}

/// Adds a number of either sign: few bytes for one that is near zero.
pub(crate) fn signed(bytes: &mut Vec<u8>, number: i64) {
    unsigned(bytes, (number << 1 ^ number >> 63).cast_unsigned());
}

/// What was read; `None` if the bytes are cut, or say nothing that can be understood.
pub(crate) type Read<T> = Option<T>;

/// Reads packed bytes from front to back.
#[derive(Debug)]
pub struct Reader<'a>(Cell<&'a [u8]>);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Cell::new(bytes))
    }

    fn take(&self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.get().split_at_checked(length)?;
        self.0.set(rest);
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(crate) fn word(&self) -> Option<[u8; 8]> {
        self.array()
    }

    pub(crate) fn unsigned(&self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub(crate) fn signed(&self) -> Option<i64> {
        let number = self.unsigned()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn length(&self) -> Option<usize> {
        usize::try_from(self.unsigned()?).ok()
    }

    pub(crate) fn piece(&self) -> Option<&'a [u8]> {
        self.take(self.length()?)
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.piece()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written_and_cut_ones_are_none() {
        let mut bytes = Vec::new();
        let signs = [0, -1, 1, 63, -64, 64, i64::MAX, i64::MIN];
        let numbers = [0, 127, 128, 16_383, 16_384, u64::MAX];
        for (sign, number) in signs.iter().zip(numbers.iter().cycle()) {
            signed(&mut bytes, *sign);
            unsigned(&mut bytes, *number);
        }
        let reader = Reader::new(&bytes);
        for (sign, number) in signs.iter().zip(numbers.iter().cycle()) {
            assert_eq!(reader.signed(), Some(*sign));
            assert_eq!(reader.unsigned(), Some(*number));
        }
        assert_eq!((reader.byte(), reader.unsigned()), (None, None));
        assert_eq!(Reader::new(&[0x80]).unsigned(), None);
        assert_eq!(Reader::new(&[5, b'a']).text(), None);
    }
}

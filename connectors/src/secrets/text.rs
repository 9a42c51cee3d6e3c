//! What counts as a secret's text, wherever it was read.

use operators_kernel::Secret;

/// Larger than any credential.
pub(crate) const BYTES_MAX: u64 = 64 * 1024;

/// The bytes as a secret, without the line end that editors and programs add. The problem never
/// quotes them.
pub(crate) fn secret(bytes: Vec<u8>) -> Result<Secret, String> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("holds more than {BYTES_MAX} bytes"));
    }
    // The error of the conversion would hold the bytes.
    let mut text = String::from_utf8(bytes).map_err(|_| "holds no UTF-8 text".to_owned())?;
    for end in ['\n', '\r'] {
        if text.ends_with(end) {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err("holds nothing".to_owned());
    }
    Ok(Secret::new(text))
}

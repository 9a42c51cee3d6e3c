//! Where a table is: `dynamodb:TABLE?region=…&endpoint=…`.

/// A table's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The table's name.
    pub(super) table: String,
    /// Its region; the ordinary configuration's if left out.
    pub(super) region: Option<String>,
    /// Where to reach it instead of AWS.
    pub(super) endpoint: Option<String>,
}

impl Place {
    /// Reads an address; the problem in words if it is none.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let rest = url
            .strip_prefix("dynamodb:")
            .ok_or_else(|| "its address does not start with `dynamodb:`".to_owned())?;
        let (table, options) = rest.split_once('?').unwrap_or((rest, ""));
        let table = table.trim_start_matches('/').to_owned();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(3..=255).contains(&table.len()) || !table.chars().all(allowed) {
            return Err(format!(
                "`{table}` is no table name: 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.`"
            ));
        }
        let mut place = Self {
            table,
            region: None,
            endpoint: None,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let slot = match name {
                "region" => &mut place.region,
                "endpoint" => &mut place.endpoint,
                other => {
                    return Err(format!(
                        "its address has `{other}`; `region` and `endpoint` are known"
                    ));
                }
            };
            let value = decoded(value).filter(|value| !value.is_empty());
            let value = value.ok_or_else(|| format!("its address has no readable `{name}`"))?;
            if slot.replace(value).is_some() {
                return Err(format!("its address has two `{name}`"));
            }
        }
        Ok(place)
    }

    /// For messages.
    pub(super) fn describe(&self) -> String {
        format!("dynamodb store `{}`", self.table)
    }
}

/// Undoes percent-encoding; `None` if it is broken.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_table_and_may_name_the_rest() {
        let place = Place::parse("dynamodb:operators").expect("an address");
        assert_eq!(place.table, "operators");
        assert_eq!((place.region, place.endpoint), (None, None));
        let url = "dynamodb:a.b-c?region=eu-central-1&endpoint=http%3A//127.0.0.1:8000";
        let place = Place::parse(url).expect("an address");
        assert_eq!(place.region.as_deref(), Some("eu-central-1"));
        assert_eq!(place.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
    }

    #[test]
    fn an_address_with_anything_else_is_refused() {
        for url in [
            "dynamo:operators",
            "dynamodb:",
            "dynamodb:a b",
            "dynamodb:operators?zone=1",
            "dynamodb:operators?region=",
            "dynamodb:operators?region=a&region=b",
            "dynamodb:operators?endpoint=%zz",
        ] {
            assert!(Place::parse(url).is_err(), "{url}");
        }
    }
}

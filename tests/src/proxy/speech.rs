//! Just enough of HTTP and of Postgres' protocol: where a message ends, and what a request is called.

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    Http,
    Postgres,
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// The codes with which a client asks for an encrypted connection.
const ENCRYPTION_CODES: [i32; 2] = [80_877_103, 80_877_104];

impl Speech {
    /// What is spoken at a URL, and the part of it that names the server.
    pub(super) fn of(url: &str) -> (Self, &str) {
        let speech = if url.starts_with("postgres") {
            Self::Postgres
        } else {
            Self::Http
        };
        let place = url.split_once("://").expect("a server's URL").1;
        let place = place.split(['/', '?', '&']).next().unwrap_or(place);
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        (speech, place)
    }

    /// A server with its port.
    pub(super) fn with_port(self, place: &str) -> String {
        match self {
            Self::Postgres if !place.contains(':') => format!("{place}:5432"),
            _ => place.to_owned(),
        }
    }

    /// The length of the first message of `bytes`, if it is there as a whole. Before anything else a
    /// Postgres client says a message without a letter.
    pub(super) fn message_length(self, bytes: &[u8], is_first: bool) -> Option<usize> {
        let length = match self {
            Self::Http => {
                let head = 4 + bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
                let said = header(&bytes[..head], "content-length");
                head + said.map_or(0, |length| length.parse().expect("digits"))
            }
            Self::Postgres => {
                let letter = usize::from(!is_first);
                letter + usize::try_from(number(bytes.get(letter..)?)?).ok()?
            }
        };
        (bytes.len() >= length).then_some(length)
    }

    pub(super) fn wants_encryption(self, first: &[u8]) -> bool {
        let code = first.get(4..).and_then(number);
        self == Self::Postgres && code.is_some_and(|code| ENCRYPTION_CODES.contains(&code))
    }

    /// What a client's message asks for, if it is a request: an operation of `DynamoDB`, another
    /// method and path, a function of the schema `operators`, or a statement's first word.
    pub(super) fn request_name(self, message: &[u8]) -> Option<String> {
        match self {
            Self::Http => {
                let target = header(message, "x-amz-target");
                if let Some((_, operation)) = target.as_deref().and_then(|t| t.rsplit_once('.')) {
                    return Some(operation.to_owned());
                }
                let text = String::from_utf8_lossy(message);
                let mut words = text.split([' ', '?']);
                let (method, path) = (words.next()?, words.next()?);
                Some(format!("{method} {path}"))
            }
            Self::Postgres => {
                let statement = message.strip_prefix(b"Q")?.get(4..)?;
                let statement = String::from_utf8_lossy(statement);
                let name = match statement.split_once(" operators.") {
                    Some((_, name)) => name,
                    None => &*statement,
                };
                let is_over = |c: char| !c.is_alphanumeric() && c != '_';
                let name = name.split(is_over).next()?;
                // Alone or in a batch, it asks for the same.
                let name = name.trim_end_matches("_one").trim_end_matches("_many");
                Some(name.to_owned())
            }
        }
    }

    /// Whether nothing more comes in answer to the last request.
    pub(super) fn ends_an_answer(self, message: &[u8]) -> bool {
        match self {
            Self::Http => true,
            Self::Postgres => message.first() == Some(&b'Z'),
        }
    }
}

fn number(bytes: &[u8]) -> Option<i32> {
    let four = bytes.get(..4)?.try_into().ok()?;
    Some(i32::from_be_bytes(four))
}

/// The value of a header, trimmed.
fn header(message: &[u8], name: &str) -> Option<String> {
    let head = message.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&message[..head]);
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

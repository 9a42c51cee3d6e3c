//! The path and query of a request: whatever the arguments are, it stays below the base URL.
//!
//! Owns percent-encoding. It must not know headers, bodies or the network.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use operators_kernel::Call;

use crate::http::address;
use crate::template::{Placeholder, Template};

/// Everything but RFC 3986's unreserved characters; `/`, `?`, `#` and `%` above all.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// What may stand unescaped in a path segment besides letters and digits, as RFC 3986 has it.
const SEGMENT_MARKS: &str = "-._~!$&'()*+,;=:@%";

/// The base of every request of a connector.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    url: Url,
    /// The path without its last `/`.
    prefix: String,
}

impl Base {
    /// Reads a `base_url`; without `allow_private` an internal literal address is refused.
    pub(crate) fn parse(text: &str, allow_private: bool) -> Result<Self, String> {
        let url = Url::parse(text)
            .map_err(|error| format!("not a URL ({error}); write `https://api.example.com`"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must start with `https://` or `http://`".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("holds a user name or password; send it as a header: \
                 `headers = { Authorization = \"secret:NAME\" }`"
                .to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must end with its path; a query belongs to a tool's `path`".to_owned());
        }
        if !allow_private {
            address::check_literal(url.host().as_ref()).map_err(|blocked| blocked.to_string())?;
        }
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { url, prefix })
    }

    /// All of it.
    #[cfg(feature = "mcp")]
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Scheme, host and port: what of it may be shown.
    #[cfg(feature = "mcp")]
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The address of a request below this base.
    pub(crate) fn join(&self, path: &str, query: Option<&str>) -> Result<Url, String> {
        let full = format!("{}{path}", self.prefix);
        let mut url = self.url.clone();
        url.set_path(&full);
        url.set_query(query);
        // INVARIANT (stays-below-base): the parser left the path as it was rendered, so it
        // resolved no dot segment that this file missed.
        if url.path() != full || url.host() != self.url.host() {
            return Err("the path would leave the connector's base URL".to_owned());
        }
        Ok(url)
    }
}

/// A parsed path template with its query.
#[derive(Debug, Clone)]
pub(crate) struct PathTemplate {
    segments: Vec<Template>,
    query: Option<Template>,
    label: String,
}

impl PathTemplate {
    /// Parses `/orders/{args.order}?notify={args.notify}`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let Some(below) = path.strip_prefix('/') else {
            return Err("must start with `/`".to_owned());
        };
        let mut segments = Vec::new();
        for segment in below.split('/') {
            let template = Template::parse(segment)?;
            check_literals(&template, SEGMENT_MARKS)?;
            if template.as_literal().is_some_and(is_dot_segment) {
                return Err("must not hold the segments `.` or `..`".to_owned());
            }
            segments.push(template);
        }
        let query = query
            .map(|query| {
                let template = Template::parse(query)?;
                check_literals(&template, &format!("{SEGMENT_MARKS}/?"))?;
                Ok::<_, String>(template)
            })
            .transpose()?;
        Ok(Self {
            segments,
            query,
            label: path.to_owned(),
        })
    }

    /// The path template without its query, for messages.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// The arguments it takes, as dotted paths.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = String> {
        self.segments
            .iter()
            .chain(&self.query)
            .flat_map(Template::arguments)
    }

    /// Path and query for one call, percent-encoded.
    pub(crate) fn render(&self, call: &Call) -> Result<(String, Option<String>), String> {
        let mut path = String::new();
        for segment in &self.segments {
            let text = segment.render(call, |placeholder, value| {
                // `DELETE /orders/` is not `DELETE /orders/SO-1` with a value missing.
                if value.is_empty() {
                    return Err(format!("`{}` is empty", placeholder.name()));
                }
                Ok(escape(value))
            })?;
            if is_dot_segment(&text) {
                return Err("a path segment would be `.` or `..`".to_owned());
            }
            path.push('/');
            path.push_str(&text);
        }
        let query = match &self.query {
            None => None,
            Some(query) => {
                let encode = |_: &Placeholder, value: &str| Ok(escape(value));
                Some(query.render(call, encode)?)
            }
        };
        Ok((path, query))
    }
}

/// A value for a path, a query or a form.
pub(crate) fn escape(value: &str) -> String {
    utf8_percent_encode(value, ESCAPED).to_string()
}

/// URL parsers take `%2e` for a dot here.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

fn check_literals(template: &Template, marks: &str) -> Result<(), String> {
    for literal in template.literals() {
        let allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        if let Some(bad) = literal.chars().find(|c| !allowed(*c)) {
            return Err(format!(
                "has `{}`; write it percent-encoded",
                bad.escape_debug()
            ));
        }
        let well_formed = |after: &str| {
            let mut digits = after.chars();
            let mut hex = || digits.next().is_some_and(|c| c.is_ascii_hexdigit());
            hex() && hex()
        };
        if !literal.split('%').skip(1).all(well_formed) {
            return Err("has `%` without two hexadecimal digits after it".to_owned());
        }
    }
    Ok(())
}

//! An `OpenAPI` document: read, its references followed inside itself, its operations listed.
//!
//! Owns the reading. It must not know what becomes of an operation.

use serde_json::{Map, Value};

/// How many references in a row are followed: far more than an honest document chains.
const REFERENCES_MAX: usize = 32;

/// The methods of an operation that we can speak of, and the others that a document may have.
const METHODS: [&str; 8] = [
    "get", "head", "post", "put", "patch", "delete", "options", "trace",
];

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Document {
    root: Value,
}

/// One operation, as it stands in the document.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// `GET /orders/{id}`
    pub(crate) label: String,
    pub(crate) method: String,
    pub(crate) path: &'a str,
    pub(crate) body: &'a Map<String, Value>,
    /// The parameters of the path item, which the operation's own override.
    pub(crate) shared: &'a [Value],
}

impl Document {
    /// Reads JSON, or else YAML; only version 3 of the standard.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let root: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?
        } else {
            serde_saphyr::from_str(text).map_err(|error| {
                let told = error.to_string();
                format!("not YAML: {}", told.lines().next().unwrap_or_default())
            })?
        };
        match root.get("openapi").and_then(Value::as_str) {
            Some(version) if version.starts_with("3.") => Ok(Self { root }),
            Some(version) => Err(format!(
                "`openapi` is `{}`; documents of version 3.0 and 3.1 are read",
                version.escape_debug()
            )),
            None if root.get("swagger").is_some() => {
                Err("this is Swagger 2; convert it to OpenAPI 3 first".to_owned())
            }
            None => Err("not an OpenAPI document: it has no `openapi`".to_owned()),
        }
    }

    pub(crate) fn title(&self) -> String {
        let of = |name: &str| self.root.pointer(name).and_then(Value::as_str);
        let title = of("/info/title").unwrap_or("An API without a title");
        match of("/info/version") {
            Some(version) => format!("{title} {version}"),
            None => title.to_owned(),
        }
    }

    /// The first server's address, its variables at their defaults.
    pub(crate) fn server(&self) -> Result<String, String> {
        let server = self.root.pointer("/servers/0");
        let url = server.and_then(|server| server.get("url")?.as_str());
        let mut url = url.unwrap_or_default().to_owned();
        let variables = server.and_then(|server| server.get("variables")?.as_object());
        for (name, variable) in variables.into_iter().flatten() {
            let default = variable.get("default").and_then(Value::as_str);
            url = url.replace(&format!("{{{name}}}"), default.unwrap_or_default());
        }
        if url.starts_with("http://") || url.starts_with("https://") {
            Ok(url)
        } else {
            Err("the document names no server; give its address with `--base-url`".to_owned())
        }
    }

    /// What kinds of credential it speaks of, in words.
    pub(crate) fn credentials(&self) -> Vec<String> {
        let schemes = self.root.pointer("/components/securitySchemes");
        let schemes = schemes.and_then(Value::as_object);
        let told = |(name, scheme): (&String, &Value)| {
            let of = |field: &str| scheme.get(field).and_then(Value::as_str).unwrap_or("?");
            match of("type") {
                "http" => format!("`{name}`: {} credentials in `Authorization`", of("scheme")),
                "apiKey" => format!("`{name}`: a key in the {} `{}`", of("in"), of("name")),
                other => format!("`{name}`: {other}"),
            }
        };
        schemes.into_iter().flatten().map(told).collect()
    }

    /// Every operation, in the order of paths and methods.
    pub(crate) fn operations(&self, prefix: Option<&str>) -> Result<Vec<Found<'_>>, String> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let mut found = Vec::new();
        for (path, item) in paths.into_iter().flatten() {
            if !path.starts_with(prefix.unwrap_or_default()) {
                continue;
            }
            let item = self.resolve(item)?;
            let shared = item.get("parameters").and_then(Value::as_array);
            for method in METHODS {
                let Some(body) = item.get(method).and_then(Value::as_object) else {
                    continue;
                };
                let method = method.to_ascii_uppercase();
                found.push(Found {
                    label: format!("`{method} {}`", path.escape_debug()),
                    method,
                    path,
                    body,
                    shared: shared.map_or(&[], Vec::as_slice),
                });
            }
        }
        Ok(found)
    }

    /// What a value stands for: itself, or the place in this document that its `$ref` names.
    pub(crate) fn resolve<'a>(&'a self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..REFERENCES_MAX {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Ok(value);
            };
            let shown = reference.escape_debug();
            let Some(place) = reference.strip_prefix('#') else {
                return Err(format!(
                    "`{shown}` is in another document; join them into one first"
                ));
            };
            value = self
                .root
                .pointer(place)
                .ok_or_else(|| format!("`{shown}` leads nowhere"))?;
        }
        Err("a reference leads in circles".to_owned())
    }
}

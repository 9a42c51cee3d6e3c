//! The store's URL: what is taken from it, and what of it may be shown.

use std::str::FromStr;

use operators_sql::postgres::is_this_machine;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Connections one store opens at most, the one that listens excepted. A batch is one statement, so
/// few carry much; a server with the default limit of 100 serves a dozen processes.
const CONNECTIONS_MAX: usize = 8;

/// What the server's client library understands, and we pass on.
const PASSED_ON: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Where the server is, and how to reach it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: PgConnectOptions,
    /// The store's name in messages, without user or password.
    pub(super) name: String,
    pub(super) connections_max: usize,
    /// Tests run servers that lose acknowledged writes with the machine, because they are faster.
    pub(super) allows_unsafe_fsync: bool,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The options hold the password.
        f.debug_struct("Address")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?…`; the problem in words, without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut connections_max = CONNECTIONS_MAX;
        let mut allows_unsafe_fsync = false;
        let mut has_sslmode = std::env::var_os("PGSSLMODE").is_some();
        let mut passed_on = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                "connections" => {
                    let number = value.parse().ok().filter(|number| *number >= 2);
                    connections_max =
                        number.ok_or("`connections` in its URL is not a number of 2 or more")?;
                }
                "allow_unsafe_fsync" if value == "for-tests" => allows_unsafe_fsync = true,
                _ if PASSED_ON.contains(&name) || name.starts_with("options[") => {
                    has_sslmode |= name == "sslmode";
                    passed_on.push(part);
                }
                _ => return Err(format!("`{name}` in its URL is not known")),
            }
        }
        let url = format!("{place}?{}", passed_on.join("&"));
        let mut options = PgConnectOptions::from_str(&url)
            .map_err(|_| "its URL is not `postgres://user:password@host:port/database`")?
            // A statement carries its arguments; none is prepared, none is logged.
            .statement_cache_capacity(0)
            .disable_statement_logging()
            // Not every pooler lets it through, and no number of ours is a float.
            .extra_float_digits(None);
        if !has_sslmode && !is_this_machine(&options) {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        let host = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => options.get_host().to_owned(),
        };
        let database = options.get_database().unwrap_or("").to_owned();
        let name = format!("postgres store `{host}:{}/{database}`", options.get_port());
        Ok(Self {
            options,
            name,
            connections_max,
            allows_unsafe_fsync,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_and_its_errors_show_no_password() {
        let address = Address::parse("postgres://ada:s3cret@db.example:6000/shop").expect("a URL");
        assert_eq!(address.name, "postgres store `db.example:6000/shop`");
        assert!(!format!("{address:?}").contains("s3cret"));
        for url in [
            "postgres://ada:s3cret@db.example:notaport/shop",
            "postgres://ada:s3cret@db.example/shop?speed=ludicrous",
            "postgres://ada:s3cret@db.example/shop?connections=1",
            "postgres://ada:s3cret@db.example/shop?allow_unsafe_fsync=yes",
            "postgres://ada:s3cret@db.example/shop?sslmode=s3cret",
        ] {
            let problem = Address::parse(url).expect_err("refused");
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn another_machine_must_show_who_it_is_unless_told_otherwise() {
        let mode = |url: &str| Address::parse(url).expect("a URL").options.get_ssl_mode();
        let is_full = |url: &str| matches!(mode(url), PgSslMode::VerifyFull);
        assert!(is_full("postgres://u@db.example/shop"));
        assert!(!is_full("postgres://u@db.example/shop?sslmode=disable"));
        assert!(!is_full("postgres://u@127.0.0.1/shop"));
        assert!(!is_full("postgres://u@localhost/shop"));
    }
}

//! Reaching a table: the client, the store's dates, and what is checked before anything is trusted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{ConfigBag, Credentials, Intercept, Region, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use operators_kernel::StoreError;

use super::fields::{Fields, number};
use super::item::Address;
use super::notes::Unpaused;
use super::observer::{Observer, REQUEST_MAX};
use super::place::Place;
use super::request::Table;
use super::{DynamoStore, Shared, table};
use crate::dynamodb::trail::Trail;
use crate::dynamodb::turns::Turns;

/// The layout of items that this version writes: 1 had no texts in pieces, and is read as it is.
const LAYOUT: u32 = 2;

const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The region said when there is an endpoint and nobody says which; emulators do not mind.
const REGION_OF_EMULATORS: &str = "us-east-1";

impl DynamoStore {
    /// Connects to `dynamodb:TABLE?region=…&endpoint=…`.
    ///
    /// Region and credentials come from the ordinary places (environment, profile, instance) unless
    /// the address says otherwise; with an `endpoint` and no credentials, made-up ones are sent.
    /// Refuses a table that is not there, not ours, of a newer version, or whose regions overwrite
    /// each other, and says which. Never makes a table: that is [`create_table`](Self::create_table).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let table = reach(url).await?;
        let (client, name) = (&table.client, &table.name);
        let found = table
            .send(|| client.describe_table().table_name(name).send())
            .await?;
        if let Some(problem) = found.table().and_then(table::judge) {
            return Err(table.unusable(problem));
        }
        let table_id = found.table().and_then(|found| found.table_id());
        let table_id = table_id.map(str::to_owned);
        table.acked.table_id.get_or_init(|| table_id);
        let layout = check_layout(&table).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                table,
                trail: Trail::default(),
                unpaused: Unpaused::default(),
                turns: Turns::default(),
                lost: false.into(),
                claims: 0.into(),
                is_older: (layout < LAYOUT).into(),
            }),
        })
    }

    /// Makes the table of that address, paid per request, and waits until it can be used. One that
    /// is there already is left as it is.
    pub async fn create_table(url: &str) -> Result<(), StoreError> {
        let table = reach(url).await?;
        let made = table::create(&table.client, &table.name).await;
        made.map_err(|problem| table.unusable(problem))
    }
}

async fn reach(url: &str) -> Result<Table, StoreError> {
    let place = Place::parse(url).map_err(|problem| StoreError::Unusable {
        store: "the dynamodb store".to_owned(),
        problem,
    })?;
    let observer = Arc::new(Observer::new());
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = &place.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &place.endpoint {
        loader = loader.endpoint_url(endpoint);
        if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
            let nobody = Credentials::new("operators", "operators", None, None, "made up");
            loader = loader.credentials_provider(nobody);
        }
        if place.region.is_none() && std::env::var_os("AWS_REGION").is_none() {
            loader = loader.region(Region::new(REGION_OF_EMULATORS));
        }
    }
    let config = loader.load().await;
    let table = Table {
        name: place.table.clone(),
        place: place.describe(),
        client: Client::from_conf(
            aws_sdk_dynamodb::config::Builder::from(&config)
                // Sent again by `request`, which knows what may be.
                .retry_config(RetryConfig::disabled())
                .timeout_config(
                    TimeoutConfig::builder()
                        .connect_timeout(CONNECT_MAX)
                        .operation_attempt_timeout(REQUEST_MAX)
                        .build(),
                )
                .interceptor(Dates(Arc::clone(&observer)))
                .build(),
        ),
        observer,
        acked: Arc::default(),
    };
    if config.region().is_none() {
        return Err(
            table.unusable("no region is known; add `?region=…` to its address, or set AWS_REGION")
        );
    }
    Ok(table)
}

/// Refuses what a newer version wrote; the first to come says which layout it is.
async fn check_layout(table: &Table) -> Result<u32, StoreError> {
    let Some(found) = table.get(&Address::of("table", &[])).await? else {
        say_layout(table).await?;
        return Ok(LAYOUT);
    };
    let layout: u32 = Fields::of(&found, "the table's own item")
        .number("layout")
        .map_err(|problem| table.unusable(problem))?;
    if layout > LAYOUT {
        return Err(table.unusable(format!(
            "it has layout {layout} and this version knows up to {LAYOUT}; use a newer version"
        )));
    }
    Ok(layout)
}

/// Says which layout the table has from now on; two that do so at once write the same.
async fn say_layout(table: &Table) -> Result<(), StoreError> {
    let mut item = Address::of("table", &[]).item();
    item.insert("layout".to_owned(), number(LAYOUT));
    table
        .send(|| {
            let request = table.client.put_item().table_name(&table.name);
            request.set_item(Some(item.clone())).send()
        })
        .await?;
    Ok(())
}

impl Shared {
    /// Whoever is about to write says so to versions that could not read it. Not whoever connects:
    /// that may be somebody who only looks.
    pub(super) async fn raise_layout(&self) -> Result<(), StoreError> {
        if self.is_older.load(Ordering::Relaxed) {
            // Looked at again: a newer version may have been here meanwhile.
            if check_layout(&self.table).await? < LAYOUT {
                say_layout(&self.table).await?;
            }
            self.is_older.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Notes the date of every answer of the store, and refuses what is none.
#[derive(Debug)]
struct Dates(Arc<Observer>);

impl Intercept for Dates {
    fn name(&self) -> &'static str {
        "Dates"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let (status, headers) = (context.response().status(), context.response().headers());
        // What answers in the store's place (a proxy, a portal) has a clock of its own, and its 200
        // says nothing about a write.
        let kind = headers.get("content-type").unwrap_or("nothing");
        if !kind.contains("json") {
            let place = headers.get("location");
            let place = place.map_or_else(String::new, |place| format!(" to {place}"));
            let status = status.as_u16();
            return Err(format!(
                "what answers there is not DynamoDB (HTTP {status}{place}, {kind}); is a proxy or a \
                 login page in between?"
            )
            .into());
        }
        let date = headers.get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        if let Some(date) = date {
            self.0.dated(date.secs());
        }
        Ok(())
    }
}

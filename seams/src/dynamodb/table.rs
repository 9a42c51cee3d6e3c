//! The table itself: how it is made, and which tables are refused.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
    MultiRegionConsistency, Projection, ProjectionType, ScalarAttributeType, TableDescription,
    TableStatus,
};

use super::item::{BY_SESSION, INTENT_OF, PK, SK};

/// How long to wait for a new table: AWS takes seconds.
const CREATE_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);
const CREATE_LOOKS_MAX: u32 = 240;

/// Makes the table, or finds it made; the problem in words otherwise.
pub(super) async fn create(client: &Client, table: &str) -> Result<(), String> {
    let made = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(text(PK)?)
        .attribute_definitions(text(SK)?)
        .attribute_definitions(text(INTENT_OF)?)
        .key_schema(part(PK, KeyType::Hash)?)
        .key_schema(part(SK, KeyType::Range)?)
        .global_secondary_indexes(
            GlobalSecondaryIndex::builder()
                .index_name(BY_SESSION)
                .key_schema(part(INTENT_OF, KeyType::Hash)?)
                .projection(
                    Projection::builder()
                        .projection_type(ProjectionType::KeysOnly)
                        .build(),
                )
                .build()
                .map_err(|error| error.to_string())?,
        )
        .send()
        .await;
    if let Err(error) = made
        && error.code() != Some("ResourceInUseException")
    {
        return Err(DisplayErrorContext(error).to_string());
    }
    for _ in 0..CREATE_LOOKS_MAX {
        let found = client.describe_table().table_name(table).send().await;
        let found = found.map_err(|error| DisplayErrorContext(error).to_string())?;
        if found.table().and_then(TableDescription::table_status) == Some(&TableStatus::Active) {
            return Ok(());
        }
        tokio::time::sleep(CREATE_PAUSE).await;
    }
    Err("the table was made but does not become active".to_owned())
}

fn text(name: &str) -> Result<AttributeDefinition, String> {
    AttributeDefinition::builder()
        .attribute_name(name)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(|error| error.to_string())
}

fn part(name: &str, kind: KeyType) -> Result<KeySchemaElement, String> {
    KeySchemaElement::builder()
        .attribute_name(name)
        .key_type(kind)
        .build()
        .map_err(|error| error.to_string())
}

/// What stands against using a table as it is described; nothing if it is sound.
pub(super) fn judge(found: &TableDescription) -> Option<String> {
    let is_text = |name: &str| {
        let defined = found.attribute_definitions();
        defined.iter().any(|attribute| {
            attribute.attribute_name() == name
                && attribute.attribute_type() == &ScalarAttributeType::S
        })
    };
    let schema = |keys: &[KeySchemaElement]| -> Vec<String> {
        keys.iter()
            .map(|key| format!("{} {}", key.attribute_name(), key.key_type().as_str()))
            .collect()
    };
    let keys = schema(found.key_schema());
    if keys != [format!("{PK} HASH"), format!("{SK} RANGE")] || !is_text(PK) || !is_text(SK) {
        return Some(format!(
            "its key is ({}), not (pk HASH, sk RANGE) of strings: it is not a table of ours; \
             make another with `operators doctor --create`",
            keys.join(", ")
        ));
    }
    let index = found
        .global_secondary_indexes()
        .iter()
        .find(|index| index.index_name() == Some(BY_SESSION));
    if index.is_none_or(|index| schema(index.key_schema()) != [format!("{INTENT_OF} HASH")]) {
        return Some(format!(
            "its index `{BY_SESSION}` on `{INTENT_OF}` is missing; add it, or make another table \
             with `operators doctor --create`"
        ));
    }
    if let Some(problem) = in_several_regions(found) {
        return Some(problem.to_owned());
    }
    match found.table_status() {
        Some(TableStatus::Active | TableStatus::Updating) | None => None,
        Some(other) => Some(format!("it is {}", other.as_str().to_lowercase())),
    }
}

/// What stands against a global table, of either kind.
fn in_several_regions(found: &TableDescription) -> Option<&'static str> {
    if found.multi_region_consistency() == Some(&MultiRegionConsistency::Strong) {
        // Every claim and every settlement is a transaction.
        return Some(
            "it is a global table with multi-region strong consistency, where DynamoDB runs no \
             transactions, so nothing could be claimed; use a table of one region",
        );
    }
    if !found.replicas().is_empty() {
        return Some(
            "it is a global table with multi-region eventual consistency, whose regions overwrite \
             each other (last writer wins), so two regions could both claim one key; use a table of \
             one region",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::{GlobalSecondaryIndexDescription, ReplicaDescription};

    use super::*;

    fn ours() -> aws_sdk_dynamodb::types::builders::TableDescriptionBuilder {
        TableDescription::builder()
            .attribute_definitions(text(PK).expect("text"))
            .attribute_definitions(text(SK).expect("text"))
            .key_schema(part(PK, KeyType::Hash).expect("part"))
            .key_schema(part(SK, KeyType::Range).expect("part"))
            .global_secondary_indexes(
                GlobalSecondaryIndexDescription::builder()
                    .index_name(BY_SESSION)
                    .key_schema(part(INTENT_OF, KeyType::Hash).expect("part"))
                    .build(),
            )
            .table_status(TableStatus::Active)
    }

    #[test]
    fn a_table_of_ours_in_one_region_is_taken() {
        assert_eq!(judge(&ours().build()), None);
    }

    /// One with strong consistency was taken, and every claim would have failed there.
    #[test]
    fn a_global_table_is_refused_and_told_which_kind_it_is() {
        let replica = || {
            ReplicaDescription::builder()
                .region_name("eu-west-1")
                .build()
        };
        let unsaid = ours().replicas(replica());
        let eventual = ours()
            .replicas(replica())
            .multi_region_consistency(MultiRegionConsistency::Eventual);
        for table in [unsaid, eventual] {
            let refused = judge(&table.build()).expect("refused");
            assert!(refused.contains("eventual consistency"), "{refused}");
            assert!(refused.contains("last writer wins"), "{refused}");
            assert!(refused.contains("a table of one region"), "{refused}");
        }
        let strong = || ours().multi_region_consistency(MultiRegionConsistency::Strong);
        // Its witness, or a replica that is being made, need not be among the replicas.
        for table in [strong().replicas(replica()), strong()] {
            let refused = judge(&table.build()).expect("refused");
            assert!(refused.contains("strong consistency"), "{refused}");
            assert!(refused.contains("no transactions"), "{refused}");
            assert!(refused.contains("a table of one region"), "{refused}");
        }
    }

    #[test]
    fn a_table_of_somebody_else_is_refused() {
        let other = TableDescription::builder()
            .attribute_definitions(text("id").expect("text"))
            .key_schema(part("id", KeyType::Hash).expect("part"))
            .build();
        assert!(judge(&other).expect("refused").contains("id HASH"));
        let without_index = ours().set_global_secondary_indexes(None).build();
        assert!(
            judge(&without_index)
                .expect("refused")
                .contains("by_session")
        );
        let leaving = ours().table_status(TableStatus::Deleting).build();
        assert_eq!(judge(&leaving).as_deref(), Some("it is deleting"));
    }
}

//! What a role may do with the table, for `doctor`: each request is made once, and writes nothing.
//!
//! A write is asked for on a condition that no item ever meets. The service looks at permissions
//! first, so one that is refused for its condition is permitted.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{ConditionCheck, KeysAndAttributes, TransactWriteItem};
use operators_kernel::StoreError;

use super::fields::text;
use super::item::{Address, BY_SESSION, INTENT_OF, PK};
use super::request::Table;

const ALL: &str = "every command";
const RUNS: &str = "runs and answers to doubts";
const READS: &str = "`run`, `receipts` and `doubts`";
const AUDITS: &str = "`receipts verify` and `receipts prune`";

impl Table {
    /// What the role may not do, and who needs it, in words.
    pub(super) async fn missing_permissions(&self) -> Result<Vec<String>, StoreError> {
        let (client, name) = (&self.client, &self.name);
        let place = Address::of("table", &[]);
        let doubt = Address::of("doubts", &["doctor"]);
        let never = format!("attribute_exists({PK}) AND attribute_not_exists({PK})");
        let built = |error: aws_sdk_dynamodb::error::BuildError| self.unusable(error.to_string());
        let batch = KeysAndAttributes::builder().keys(place.item()).build();
        let batch = batch.map_err(built)?;
        let check = ConditionCheck::builder().table_name(name);
        let check = check.set_key(Some(place.item()));
        let check = check.condition_expression(&never).build().map_err(built)?;
        let check = TransactWriteItem::builder().condition_check(check).build();

        let get = client.get_item().table_name(name);
        let get = get.set_key(Some(place.item())).send();
        let batch = client.batch_get_item().request_items(name, batch).send();
        let query = client.query().table_name(name).limit(1);
        let query = query.key_condition_expression(format!("{PK} = :pk"));
        let query = query.expression_attribute_values(":pk", text(&place.pk));
        let index = client.query().table_name(name).index_name(BY_SESSION);
        let index = index.key_condition_expression(format!("{INTENT_OF} = :none"));
        let index = index.expression_attribute_values(":none", text("doctor"));
        let scan = client.scan().table_name(name).limit(1).send();
        let put = client.put_item().table_name(name);
        let put = put
            .set_item(Some(place.item()))
            .condition_expression(&never);
        let update = client.update_item().table_name(name);
        let update = update.set_key(Some(place.item()));
        let update = update.update_expression("REMOVE doctor");
        let update = update.condition_expression(&never);
        let check = client.transact_write_items().transact_items(check);
        let delete = client.delete_item().table_name(name);
        let delete = delete.set_key(Some(doubt.item()));
        let delete = delete.condition_expression(&never);

        let index_name = format!("dynamodb:Query` on `index/{BY_SESSION}");
        let refused = [
            ("dynamodb:GetItem", ALL, refusal(get.await)),
            ("dynamodb:BatchGetItem", READS, refusal(batch.await)),
            ("dynamodb:Query", READS, refusal(query.send().await)),
            (&*index_name, RUNS, refusal(index.limit(1).send().await)),
            ("dynamodb:Scan", AUDITS, refusal(scan.await)),
            ("dynamodb:PutItem", RUNS, refusal(put.send().await)),
            ("dynamodb:UpdateItem", RUNS, refusal(update.send().await)),
            (
                "dynamodb:ConditionCheckItem",
                RUNS,
                refusal(check.send().await),
            ),
            ("dynamodb:DeleteItem", RUNS, refusal(delete.send().await)),
        ];
        let told = refused.into_iter().filter_map(|(permission, needs, said)| {
            let said = said?;
            Some(format!(
                "its role lacks `{permission}`, which {needs} need ({said}); \
                 docs/guides/dynamodb.md has all that a role needs"
            ))
        });
        Ok(told.collect())
    }
}

/// What the service said, if it refused for want of a permission.
fn refusal<T, E>(answer: Result<T, SdkError<E>>) -> Option<String>
where
    E: ProvideErrorMetadata,
{
    let error = answer.err()?;
    let is_denied = error.code() == Some("AccessDeniedException");
    is_denied.then(|| error.message().unwrap_or("access denied").to_owned())
}

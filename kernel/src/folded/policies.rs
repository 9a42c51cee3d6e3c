//! The policies that receipts cite, by number: there are few, and each is cited by millions.

use std::sync::OnceLock;

use crate::packed::Reader;
use crate::packed::bytes::{self, Read};
use crate::shared::Shared;
use crate::trust::PolicyRef;

/// How many policies have a number: more than one process has, few enough to be looked through. Any
/// further one is written out.
const NUMBERED_MAX: usize = 16;

/// Those that were cited so far, for as long as the process lives. No lock: each place is filled
/// once, and to cite a policy counts no holder of it.
static NUMBERED: [OnceLock<Shared<PolicyRef>>; NUMBERED_MAX] =
    [const { OnceLock::new() }; NUMBERED_MAX];

// What a citation begins with; a number is that much higher.
const NONE: u64 = 0;
const WRITTEN_OUT: u64 = 1;
const NUMBER: u64 = 2;

pub(super) fn write(to: &mut Vec<u8>, policy: Option<&Shared<PolicyRef>>) {
    let Some(policy) = policy else {
        bytes::unsigned(to, NONE);
        return;
    };
    if let Some(number) = number(policy) {
        bytes::unsigned(to, NUMBER + number);
        return;
    }
    bytes::unsigned(to, WRITTEN_OUT);
    bytes::text(to, &policy.digest);
    bytes::text(to, &policy.name);
    bytes::unsigned(to, policy.version);
}

pub(super) fn read(reader: &Reader<'_>) -> Read<Option<Shared<PolicyRef>>> {
    let policy = match reader.unsigned()? {
        NONE => return Some(None),
        WRITTEN_OUT => Shared::from(PolicyRef {
            digest: reader.text()?.to_owned(),
            name: reader.text()?.to_owned(),
            version: reader.unsigned()?,
        }),
        number => {
            let place = usize::try_from(number - NUMBER).ok()?;
            NUMBERED.get(place)?.get()?.clone()
        }
    };
    Some(Some(policy))
}

fn number(policy: &Shared<PolicyRef>) -> Option<u64> {
    (0..).zip(&NUMBERED).find_map(|(number, place)| {
        let numbered = place.get_or_init(|| policy.clone());
        let is_it = numbered.is_same(policy) || numbered == policy;
        is_it.then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_cited_by_number_or_written_out_and_read_alike() {
        let policy = |version| {
            Shared::from(PolicyRef {
                digest: format!("sha256:{version}"),
                name: "holds".to_owned(),
                version,
            })
        };
        let mut to = Vec::new();
        // So many that not all have a number.
        let policies: Vec<_> = (0..2 * 16).map(policy).collect();
        for policy in &policies {
            write(&mut to, Some(policy));
        }
        write(&mut to, None);
        let reader = Reader::new(&to);
        for policy in policies {
            assert_eq!(read(&reader), Some(Some(policy)));
        }
        assert_eq!((read(&reader), reader.byte()), (Some(None), None));
    }
}

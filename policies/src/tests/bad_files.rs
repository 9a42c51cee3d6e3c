//! Every bad state of a rule file's text is an error that says what, where and what to do.

use std::path::Path;

use crate::{Policy, PolicyError, RULE_FILE_BYTES_MAX};

pub(super) const GOOD: &str = r#"policy = "ship-risk"
version = 3
applies_to = ["ship-risk"]

[[rule]]
name = "small holds run alone"
connector = "shop"
tool = "orders.hold"
decision = "ALLOW"
max_value = 500
"#;

/// `GOOD` with one line replaced; the error must name the place and the problem.
#[track_caller]
fn refused(line: &str, instead: &str, place: (usize, usize), problem: &str) {
    assert!(GOOD.contains(line), "{line}");
    refused_text(&GOOD.replace(line, instead), place, problem);
}

#[track_caller]
fn refused_text(text: &str, place: (usize, usize), problem: &str) {
    let error = Policy::parse(Path::new("p.toml"), text.as_bytes()).expect_err(text);
    let message = error.to_string();
    assert!(message.contains(problem), "{message}");
    assert_eq!(error.place(), Some(place), "{message}");
    well_said(&error);
}

#[track_caller]
pub(super) fn well_said(error: &PolicyError) {
    let message = error.to_string();
    assert!(
        message.starts_with(&*error.file().to_string_lossy()),
        "{message}"
    );
    assert!(message.ends_with(error.remedy()), "{message}");
    assert!(!error.remedy().is_empty());
    assert!(!message.contains(char::is_control), "{message:?}");
    for type_name in ["i64", "u64", "f64", "i128", "String", "struct", "RawRule"] {
        assert!(!message.contains(type_name), "{message}");
    }
}

#[test]
fn the_good_file_loads_with_its_digest() {
    let policy = Policy::parse(
        Path::new("p.toml"),
        b"policy='p'\nversion=1\n[[rule]]\nname='r'\ndecision='BLOCK'\n",
    )
    .expect("good");
    assert_eq!(policy.reference().name, "p");
    assert_eq!(
        policy.reference().digest,
        "sha256:ecdea2be4e1a8895ae9de9a81fc20197e238f8e6a61c670fd9dddfeb847fb916"
    );
    let policy = Policy::parse(Path::new("p.toml"), GOOD.as_bytes()).expect("good");
    assert_eq!(policy.reference().version, 3);
    assert_eq!(policy.rules().len(), 1);
    assert_eq!(policy.rules()[0].line(), 5);
}

#[test]
fn a_way_to_raise_that_nobody_knows_is_refused() {
    refused(
        "max_value = 500",
        "alert = \"page\"",
        (10, 9),
        "`page` is no way to raise an ALERT",
    );
}

#[test]
fn a_limit_that_makes_no_sense_is_told_so() {
    for (limit, column, problem) in [
        (
            "max = 0, per = '1h', by = 'entity'",
            17,
            "`max` is not a whole number from 1 to 5000",
        ),
        (
            "max = 2.5, per = '1h', by = 'entity'",
            17,
            "`max` is not a whole number",
        ),
        (
            "max = '25', per = '1h', by = 'entity'",
            17,
            "`max` is not a whole number",
        ),
        (
            "max = 1, per = 'hourly', by = 'entity'",
            26,
            "`per` is not a duration",
        ),
        (
            "max = 1, per = '0s', by = 'entity'",
            26,
            "`per` is not from 1s to",
        ),
        (
            "max = 1, per = '9000years', by = 'entity'",
            26,
            "`per` is not from 1s to",
        ),
        (
            "max = 1, per = '1h', by = 'customer'",
            37,
            "nothing is counted by `customer`",
        ),
        (
            "max = 1, per = '1h', by = 'Entity'",
            37,
            "nothing is counted by `Entity`",
        ),
        (
            "max = 1, per = '1h', by = 'tool', of = 1",
            9,
            "unknown field `of`",
        ),
        ("max = 1, per = '1h'", 9, "missing field `by`"),
    ] {
        let line = format!("limit = {{ {limit} }}");
        let error = Policy::parse(
            Path::new("p.toml"),
            GOOD.replace("max_value = 500", &line).as_bytes(),
        )
        .expect_err(limit);
        assert!(error.to_string().contains(problem), "{error}");
        let place = error.place().expect("a place");
        assert_eq!(place.0, 10, "{error}");
        assert!(place.1 >= column || problem.contains("field"), "{error}");
        well_said(&error);
    }
}

#[test]
fn an_unknown_field_is_refused() {
    refused(
        "max_value = 500",
        "max_values = 500",
        (10, 1),
        "unknown field `max_values`",
    );
    refused(
        "max_value = 500",
        "Max_value = 500",
        (10, 1),
        "unknown field `Max_value`",
    );
    refused(
        "version = 3",
        "version = 3\nalert = 'approve'",
        (3, 1),
        "unknown field `alert`",
    );
    refused("[[rule]]", "[[rules]]", (5, 3), "unknown field `rules`");
    refused(
        "max_value = 500",
        "\"\\u001b\" = 1",
        (10, 1),
        "unknown field `\\u{1b}`",
    );
}

#[test]
fn a_missing_field_is_refused() {
    refused(
        "policy = \"ship-risk\"",
        "",
        (1, 1),
        "missing field `policy`",
    );
    refused("version = 3", "", (1, 1), "missing field `version`");
    refused(
        "name = \"small holds run alone\"",
        "",
        (5, 1),
        "missing field `name`",
    );
    refused(
        "decision = \"ALLOW\"",
        "",
        (5, 1),
        "missing field `decision`",
    );
}

#[test]
fn a_decision_is_one_of_three_exact_words() {
    for word in [
        "allow",
        "Allow",
        "ALLOW ",
        "PERMIT",
        "",
        "DEDUP",
        "ALL\u{41e}W",
        "ALLOW\u{200b}",
    ] {
        let line = format!("decision = \"{word}\"");
        refused(
            "decision = \"ALLOW\"",
            &line,
            (9, 12),
            "is not a decision; write `ALLOW`",
        );
    }
    refused(
        "decision = \"ALLOW\"",
        "decision = true",
        (9, 12),
        "invalid type",
    );
    refused(
        "decision = \"ALLOW\"",
        "decision = [\"ALLOW\"]",
        (9, 12),
        "invalid type",
    );
    refused(
        "decision = \"ALLOW\"",
        "decision = { ALLOW = {} }",
        (9, 12),
        "invalid type",
    );
}

#[test]
fn a_version_counts_from_one() {
    for number in ["0", "-1", "1.5", "\"1\"", "true", "nan", "[1]"] {
        let line = format!("version = {number}");
        refused(
            "version = 3",
            &line,
            (2, 11),
            "`version` is not a whole number from 1 up",
        );
    }
    refused(
        "version = 3",
        "version = 99999999999999999999",
        (2, 11),
        "integer `99999999999999999999`, expected",
    );
}

#[test]
fn a_name_must_be_seen_as_it_is() {
    let too_long = "x".repeat(513);
    for (name, problem) in [
        ("", "is empty"),
        ("  ", "is empty"),
        (" a", "has a space"),
        ("a\\n", "has a space"),
        ("a\\u0000b", "has an invisible character (U+0000)"),
        ("a\\u001b[2Jb", "has an invisible character (U+001B)"),
        ("a\\u202eb", "has an invisible character (U+202E)"),
        ("a\\u200bb", "has an invisible character (U+200B)"),
        ("a\\u2028b", "has an invisible character (U+2028)"),
        (too_long.as_str(), "is longer than 512 bytes"),
    ] {
        let policy = format!("policy = \"{name}\"");
        refused(
            "policy = \"ship-risk\"",
            &policy,
            (1, 10),
            &format!("the policy's name {problem}"),
        );
        let rule = format!("name = \"{name}\"");
        let problem = format!("the rule's name {problem}");
        refused("name = \"small holds run alone\"", &rule, (6, 8), &problem);
    }
}

#[test]
fn two_rules_of_one_name_are_refused() {
    let second = "[[rule]]\nname = \"small holds run alone\"\ndecision = \"BLOCK\"\n";
    let problem = "rule `small holds run alone` is there already, on line 5";
    refused_text(&format!("{GOOD}{second}"), (12, 8), problem);
}

#[test]
fn names_and_patterns_that_fit_nothing_are_refused() {
    for tool in [
        "Orders.hold",
        "ord*",
        "orders.hold.",
        "\u{43e}rders.hold",
        "orders.hold\u{200b}",
        "",
    ] {
        let line = format!("tool = \"{tool}\"");
        refused("tool = \"orders.hold\"", &line, (8, 8), "tool `");
    }
    for connector in ["Shop", "*", "sh*", "shop ", "", "sh\u{43e}p"] {
        let line = format!("connector = \"{connector}\"");
        refused("connector = \"shop\"", &line, (7, 13), "connector `");
    }
    for operator in ["Ship-risk", "*", ""] {
        let line = format!("applies_to = [\"a\", \"{operator}\"]");
        refused("applies_to = [\"ship-risk\"]", &line, (3, 20), "operator `");
    }
    refused(
        "applies_to = [\"ship-risk\"]",
        "applies_to = []",
        (3, 14),
        "`applies_to` is empty",
    );
    refused(
        "applies_to = [\"ship-risk\"]",
        "applies_to = \"a\"",
        (3, 14),
        "invalid type",
    );
}

#[test]
fn a_ceiling_is_a_finite_number() {
    for (number, problem) in [
        ("\"500\"", "is not a number"),
        ("true", "is not a number"),
        ("[500]", "is not a number"),
        ("2026-01-01", "is not a number"),
        ("nan", "is not finite"),
        ("inf", "is not finite"),
        ("-inf", "is not finite"),
        ("9007199254740995.0", "is too large to be exact"),
    ] {
        let line = format!("max_value = {number}");
        refused(
            "max_value = 500",
            &line,
            (10, 13),
            &format!("`max_value` {problem}"),
        );
    }
    for number in ["1e999", "99999999999999999999"] {
        let line = format!("max_value = {number}");
        refused("max_value = 500", &line, (10, 13), "");
    }
}

#[test]
fn a_policy_without_rules_is_refused() {
    let head = "policy = \"p\"\nversion = 1\n";
    refused_text(head, (1, 1), "the policy has no rules");
    refused_text(
        &format!("{head}rule = []"),
        (1, 1),
        "the policy has no rules",
    );
    refused_text("# nothing yet\n", (1, 1), "missing field `policy`");
}

#[test]
fn a_rule_is_a_table_of_named_fields() {
    for rule in [
        "\"r\"",
        "5",
        "[\"r\", \"shop\", \"orders.hold\", \"ALLOW\"]",
    ] {
        let text = format!("policy = \"p\"\nversion = 1\nrule = [{rule}]\n");
        refused_text(&text, (3, 9), "expected the fields of a rule");
    }
}

#[test]
fn broken_toml_is_refused_where_it_breaks() {
    refused("version = 3", "version 3", (2, 9), "");
    refused(
        "version = 3",
        "version = 3\nversion = 4",
        (3, 1),
        "duplicate key",
    );
    refused(
        "max_value = 500",
        "max_value = 500\nmax_value = 900",
        (11, 1),
        "duplicate key",
    );
    refused("decision = \"ALLOW\"", "decision = \"ALLOW", (9, 18), "");
    refused("[[rule]]", "[rule]", (5, 1), "invalid type");
}

#[test]
fn nesting_does_not_break_the_reader() {
    let deep = "[".repeat(RULE_FILE_BYTES_MAX - 64);
    let text = format!("policy = \"p\"\nversion = {deep}");
    assert!(Policy::parse(Path::new("p.toml"), text.as_bytes()).is_err());
    let dotted = "a.".repeat(100_000);
    let text = format!("policy = \"p\"\nversion = 1\n{dotted}a = 1\n");
    assert!(Policy::parse(Path::new("p.toml"), text.as_bytes()).is_err());
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_where_they_are() {
    let bytes = [b"policy = \"p\"\n# caf".as_slice(), &[0xe9], b"\n"].concat();
    let error = Policy::parse(Path::new("p.toml"), &bytes).expect_err("latin-1");
    assert_eq!(error.place(), Some((2, 6)), "{error}");
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    well_said(&error);
}

#[test]
fn every_problem_of_a_file_is_told() {
    let text = "policy = ''\nversion = 0\n[[rule]]\nname = 'r'\ndecision = 'allow'\n\
                [[rule]]\nname = 'r'\ndecision = 'ALLOW'\nif = 'vlaue > 1'\n\
                [[rule]]\nname = 's'\ndecision = 'ALLOW'\n";
    let parsed = Policy::parse_whole(Path::new("p.toml"), text.as_bytes(), &|_, _| None);
    let problems = parsed.expect_err("many");
    let places: Vec<_> = problems
        .iter()
        .map(|one| one.place().expect("a place"))
        .collect();
    assert_eq!(places, [(1, 10), (2, 11), (5, 12), (7, 8), (9, 7)]);
    problems.iter().for_each(well_said);
}

#[test]
fn every_problem_of_a_file_s_shape_is_told() {
    let text = "policy = 1\nversion = 1\nalert = 'x'\napplies_to = ['a', 2]\n\
                [[rule]]\nname = 'r'\ndecison = 'ALLOW'\nif = true\n\
                limit = { max = 1, per = 1, of = 2 }\n[[rule]]\nname = 's'\n";
    let parsed = Policy::parse_whole(Path::new("p.toml"), text.as_bytes(), &|_, _| None);
    let problems = parsed.expect_err("many");
    let told = problems.iter().map(|one| {
        let (line, column) = one.place().expect("a place");
        let problem = one.problem().split(", expected").next();
        format!("{line}:{column} {}", problem.expect("a problem"))
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            "1:10 invalid type: integer",
            "3:1 unknown field `alert`",
            "4:20 invalid type: integer",
            "5:1 missing field `decision`",
            "7:1 unknown field `decison`",
            "8:6 invalid type: boolean",
            "9:9 missing field `by`",
            "9:26 invalid type: integer",
            "9:29 unknown field `of`",
            "10:1 missing field `decision`",
        ]
    );
    problems.iter().for_each(well_said);
}

#[test]
fn every_problem_of_a_rule_is_told() {
    let text = "policy = 'p'\nversion = 1\n[[rule]]\nname = ''\ndecision = 'allow'\n\
                tool = 'ord*'\nif = 'vlaue > 1'\nmax_value = nan\nalert = 'page'\n";
    let parsed = Policy::parse_whole(Path::new("p.toml"), text.as_bytes(), &|_, _| None);
    let problems = parsed.expect_err("many");
    let lines = problems.iter().map(|one| one.place().expect("a place").0);
    assert_eq!(lines.collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
}

//! The second verifier, `docs/verify.py`, against the kernel's own: same logs, same answers.

use std::io::Write as _;
use std::process::{Command, Stdio};

use operators_kernel::log::{
    Frontier, LogHash, prove_consistency, prove_inclusion, verify_consistency, verify_inclusion,
};
use serde_json::{Value, json};

/// A small generator: the same numbers for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (sides.max(1) as u64)).expect("small")
    }

    fn leaf(&mut self) -> LogHash {
        LogHash::of_leaf(&self.roll(usize::MAX).to_be_bytes())
    }
}

/// Python, or a word about why there is none.
fn python() -> Option<Command> {
    let found = Command::new("python3").arg("--version").output();
    if found.is_ok_and(|version| version.status.success()) {
        return Some(Command::new("python3"));
    }
    assert!(std::env::var_os("CI").is_none(), "there is no python3");
    println!("skipped: there is no python3");
    None
}

fn root_of(leaves: &[LogHash]) -> LogHash {
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.push(*leaf);
    }
    frontier.root()
}

/// A question about a random log, and the kernel's answer.
fn question(dice: &mut Dice, leaves: &[LogHash]) -> (Value, Value) {
    let (size, root) = (leaves.len(), root_of(leaves));
    let mut path;
    if dice.roll(2) == 0 && size > 0 {
        let place = dice.roll(size);
        path = prove_inclusion(leaves, place).expect("a path");
        let leaf = spoilt(dice, leaves[place], &mut path);
        let holds = verify_inclusion(&leaf, place as u64, size as u64, &path, &root);
        let asked = json!({"leaf": leaf, "place": place, "n": size, "path": path, "root": root});
        return (asked, json!(holds));
    }
    let old_size = dice.roll(size + 1);
    let old = root_of(&leaves[..old_size]);
    path = prove_consistency(leaves, old_size).expect("a path");
    let old = spoilt(dice, old, &mut path);
    let (m, n) = (old_size as u64, size as u64);
    let holds = verify_consistency((m, &old), (n, &root), &path);
    let asked = json!({"m": m, "old": old, "n": n, "new": root, "path": path});
    (asked, json!(holds))
}

/// Every other time something about a proof is wrong.
fn spoilt(dice: &mut Dice, hash: LogHash, path: &mut Vec<LogHash>) -> LogHash {
    match dice.roll(8) {
        0 => return dice.leaf(),
        1 => drop(path.pop()),
        2 => path.push(dice.leaf()),
        3 if !path.is_empty() => {
            let place = dice.roll(path.len());
            path[place] = dice.leaf();
        }
        _ => {}
    }
    hash
}

/// By rules 11.1, 11.4: two programs that share nothing agree on 10,000 random logs.
#[test]
fn two_verifiers_agree_on_ten_thousand_random_logs() {
    let Some(mut python) = python() else { return };
    let seed = u64::from(std::process::id()) | 1 << 40;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..10_000 {
        let count = dice.roll(24);
        let leaves: Vec<LogHash> = (0..count).map(|_| dice.leaf()).collect();
        asked.push(json!({ "leaves": leaves }).to_string());
        expected.push(json!(root_of(&leaves)));
        let (question, answer) = question(&mut dice, &leaves);
        asked.push(question.to_string());
        expected.push(answer);
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verify.py");
    let mut child = python
        .args([script, "vectors"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let asked = asked.join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().expect("ends");
    writer.join().expect("no panic").expect("written");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), expected.len());
    let holding = expected
        .iter()
        .filter(|answer| **answer == json!(true))
        .count();
    let not = expected
        .iter()
        .filter(|answer| **answer == json!(false))
        .count();
    assert!(
        holding > 1_000 && not > 1_000,
        "{holding} hold, {not} do not"
    );
    for (number, (said, known)) in answers.iter().zip(&expected).enumerate() {
        assert_eq!(said, known, "answer {number} of seed {seed}");
    }
}

#[test]
fn the_second_verifier_is_short_and_needs_nothing() {
    let text = include_str!("../../docs/verify.py");
    assert!(text.lines().count() <= 90, "{}", text.lines().count());
    let imports: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("import "))
        .collect();
    assert_eq!(imports, ["import base64, functools, hashlib, json, sys"]);
}

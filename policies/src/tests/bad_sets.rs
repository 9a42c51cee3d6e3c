//! Every file that cannot be taken, and every file that cannot stand beside another, refuses the
//! whole set.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::bad_files::{GOOD, well_said};
use crate::{RULE_FILE_BYTES_MAX, RuleSet};

#[track_caller]
fn refused_file(file: &Path, problem: &str) {
    let error = RuleSet::load(&[file.to_owned()], BTreeMap::new()).expect_err(problem);
    assert!(error.to_string().contains(problem), "{error}");
    assert_eq!((error.file(), error.place()), (file, None));
    well_said(&error);
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("writes");
        path
    };
    refused_file(&folder.path().join("none.toml"), "cannot be read: ");
    refused_file(folder.path(), "not a regular file");
    refused_file(Path::new("/dev/null"), "not a regular file");
    refused_file(&file("empty.toml", b""), "the file is empty");
    refused_file(&file("blank.toml", b" \n\t\n"), "the file is empty");
    let mut large = GOOD.as_bytes().to_vec();
    large.resize(RULE_FILE_BYTES_MAX, b'\n');
    let path = file("large.toml", &large);
    assert!(RuleSet::load(&[path], BTreeMap::new()).is_ok());
    large.push(b'\n');
    refused_file(&file("larger.toml", &large), "larger than 1048576 bytes");
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_unopened() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    refused_file(&pipe, "not a regular file");
}

#[test]
fn one_bad_file_refuses_the_whole_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("a.toml");
    let bad = folder.path().join("b.toml");
    fs::write(&good, GOOD).expect("writes");
    fs::write(&bad, GOOD.replace("ALLOW", "allow")).expect("writes");
    assert!(RuleSet::load(std::slice::from_ref(&good), BTreeMap::new()).is_ok());
    let error = RuleSet::load(&[good, bad.clone()], BTreeMap::new()).expect_err("bad");
    assert_eq!(error.file(), bad);
}

#[test]
fn two_policies_of_one_name_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("a.toml"), folder.path().join("b.toml"));
    fs::write(&first, GOOD).expect("writes");
    fs::write(&second, format!("\n{GOOD}")).expect("writes");
    let error = RuleSet::load(&[first, second.clone()], BTreeMap::new()).expect_err("same name");
    assert_eq!(
        (error.file(), error.place()),
        (second.as_path(), Some((2, 10)))
    );
    assert!(
        error.to_string().contains("policy `ship-risk` is in `"),
        "{error}"
    );
    well_said(&error);
}

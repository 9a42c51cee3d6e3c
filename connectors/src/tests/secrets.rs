//! Where secrets come from, and what is said when they cannot be had: never the secret.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use operators_kernel::{Secret, SecretStore as _, TenantId};

use crate::{ProjectSecrets, SecretConfig};

const TEXT: &str = "canary-0815-canary";

fn secrets(toml: &str, dir: &Path) -> Result<ProjectSecrets, String> {
    let configs: BTreeMap<String, SecretConfig> =
        toml::from_str(toml).map_err(|error| error.to_string())?;
    ProjectSecrets::build(&configs, dir).map_err(|error| error.to_string())
}

async fn read(toml: &str, dir: &Path) -> Result<Secret, String> {
    let secrets = secrets(toml, dir).expect("loads");
    assert!(!format!("{secrets:?}").contains("canary"));
    let tenant = TenantId::parse("acme").expect("tenant");
    let found = secrets.secret(&tenant, "token").await;
    found.map_err(|error| format!("{error} {error:?}"))
}

fn keep(dir: &Path, bytes: &[u8], mode: u32) {
    let path = dir.join("token");
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
}

#[tokio::test]
async fn a_file_is_read_anew_without_its_line_end() {
    let folder = TempDir::new().expect("a folder");
    let toml = "token = { file = \"token\" }";
    for (bytes, wanted) in [
        (format!("{TEXT}\n"), TEXT.to_owned()),
        (format!("{TEXT}\r\n"), TEXT.to_owned()),
        (TEXT.to_owned(), TEXT.to_owned()),
        (format!(" {TEXT}\n\n"), format!(" {TEXT}\n")),
    ] {
        for mode in [0o600, 0o400] {
            drop(fs::remove_file(folder.path().join("token")));
            keep(folder.path(), bytes.as_bytes(), mode);
            let found = read(toml, folder.path()).await;
            assert_eq!(found, Ok(Secret::new(wanted.clone())));
        }
    }
}

#[tokio::test]
async fn a_file_that_others_may_use_is_refused_with_the_remedy() {
    let folder = TempDir::new().expect("a folder");
    for mode in [0o604, 0o640, 0o620, 0o602, 0o777] {
        keep(folder.path(), TEXT.as_bytes(), mode);
        let error = read("token = { file = \"token\" }", folder.path()).await;
        let error = error.expect_err("refused");
        let wanted = format!("(mode {mode:03o}); run `chmod 600 ");
        assert!(error.contains(&wanted), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_holds_no_secret_is_told_apart() {
    let folder = TempDir::new().expect("a folder");
    let toml = "token = { file = \"token\" }";
    let missing = read(toml, folder.path()).await.expect_err("missing");
    assert!(
        missing.contains("the secret `token` cannot be used: the file `"),
        "{missing}"
    );
    let large = [TEXT.as_bytes(), &vec![b'x'; 64 * 1024]].concat();
    for (bytes, problem) in [
        (&b""[..], "holds nothing"),
        (b"\n", "holds nothing"),
        (b"canary\xff\xfe", "holds no UTF-8 text"),
        (&large, "holds more than 65536 bytes"),
    ] {
        keep(folder.path(), bytes, 0o600);
        let error = read(toml, folder.path()).await.expect_err(problem);
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
    let not_a_file = read("token = { file = \".\" }", folder.path()).await;
    assert!(
        not_a_file
            .expect_err("a folder")
            .contains("is not a regular file")
    );
}

#[tokio::test]
async fn a_program_is_run_once_for_all_who_ask() {
    let folder = TempDir::new().expect("a folder");
    let script = format!("echo asked >> runs; echo {TEXT}; echo {TEXT} >&2");
    let toml = format!("token = {{ command = [\"sh\", \"-c\", \"{script}\"] }}");
    let secrets = secrets(&toml, folder.path()).expect("loads");
    let tenant = TenantId::parse("acme").expect("tenant");
    for _ in 0..3 {
        let found = secrets.secret(&tenant, "token").await;
        assert_eq!(found, Ok(Secret::new(TEXT)));
    }
    let runs = fs::read_to_string(folder.path().join("runs")).expect("it ran");
    assert_eq!(runs, "asked\n");
}

#[tokio::test]
async fn a_program_that_fails_is_named_and_not_quoted() {
    let folder = TempDir::new().expect("a folder");
    for (argv, problem) in [
        (
            format!("[\"sh\", \"-c\", \"echo {TEXT}; echo {TEXT} >&2; exit 3\"]"),
            "`sh` ended with exit code 3; run it yourself to see why",
        ),
        (
            format!("[\"sh\", \"-c\", \"echo {TEXT}; kill -9 $$\"]"),
            "`sh` was ended by a signal",
        ),
        (
            "[\"sh\", \"-c\", \"true\"]".to_owned(),
            "`sh` holds nothing",
        ),
        (
            "[\"surely-no-such-program\"]".to_owned(),
            "`surely-no-such-program` does not start",
        ),
    ] {
        let toml = format!("token = {{ command = {argv} }}");
        let error = read(&toml, folder.path()).await.expect_err(problem);
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}

/// The deadline itself, shortened: the program and what it started are ended, and its answer is
/// not waited for.
#[tokio::test]
async fn a_program_that_does_not_end_is_given_up() {
    let folder = TempDir::new().expect("a folder");
    let argv = "token = { command = [\"sh\", \"-c\", \"echo canary; sleep 600\"] }";
    let secrets = secrets(argv, folder.path()).expect("loads");
    let secrets = secrets.with_deadline(Duration::from_millis(200));
    let tenant = TenantId::parse("acme").expect("a tenant");
    let error = secrets.secret(&tenant, "token").await.expect_err("late");
    let error = error.to_string();
    assert!(
        error.contains("did not end in time and was killed"),
        "{error}"
    );
    assert!(!error.contains("canary"), "{error}");
}

#[tokio::test]
async fn what_is_not_listed_comes_from_the_environment() {
    let folder = TempDir::new().expect("a folder");
    let error = read("other = { env = \"OTHER\" }", folder.path())
        .await
        .expect_err("not set");
    assert!(
        error.contains("set the environment variable `OPERATORS_SECRET_TOKEN`"),
        "{error}"
    );
    let error = read("token = { env = \"SURELY_NOT_SET\" }", folder.path()).await;
    let error = error.expect_err("not set");
    assert!(
        error.contains("set the environment variable `SURELY_NOT_SET`"),
        "{error}"
    );
    let path = read("token = { env = \"PATH\" }", folder.path())
        .await
        .expect("set");
    assert_eq!(path.reveal(), std::env::var("PATH").expect("set"));
}

#[test]
fn an_entry_that_cannot_be_meant_is_refused_when_it_loads() {
    for (toml, problem) in [
        ("token = {}", "secrets.\"token\": needs exactly one of"),
        (
            "token = { env = \"A\", file = \"b\" }",
            "needs exactly one of",
        ),
        (
            "token = { env = \"A-B\" }",
            "`env` is not a variable's name",
        ),
        ("token = { file = \"\" }", "`file` is empty"),
        ("token = { command = [] }", "`command` names no program"),
        (
            "\"a b\" = { env = \"A\" }",
            "secrets.\"a b\": a secret's name",
        ),
        ("token = { vault = \"x\" }", "unknown field `vault`"),
    ] {
        let error = secrets(toml, Path::new(".")).expect_err(toml);
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_projects_secret_variables_are_known() {
    let secrets = secrets("token = { env = \"SHOP_TOKEN\" }", Path::new(".")).expect("loads");
    assert!(secrets.is_secret_variable("SHOP_TOKEN"));
    assert!(secrets.is_secret_variable("OPERATORS_SECRET_ANYTHING"));
    assert!(!secrets.is_secret_variable("PATH"));
}

//! Credentials of every source and every way in: they reach the vendor and show nowhere.
//!
//! The vendor echoes whatever it gets, and the logs are at their loudest.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use tempfile::TempDir;

use crate::secrets::{IN_HEADER, looks_clean, propose_with, secretive};
use crate::support::{Project, Running};
use crate::vendor::{Answer, Request, Vendor};

/// A file with the credential, outside the project that is searched for it.
struct Kept(TempDir);

impl Kept {
    fn new() -> Self {
        let kept = Self(tempfile::tempdir().expect("a folder"));
        fs::write(kept.path(), IN_HEADER).expect("written");
        kept.allow(0o600);
        kept
    }

    fn path(&self) -> String {
        self.0.path().join("token").display().to_string()
    }

    fn allow(&self, mode: u32) {
        fs::set_permissions(self.path(), Permissions::from_mode(mode)).expect("set");
    }
}

/// A project with that `auth` and those `[secrets]`.
fn project_with(vendor: &Vendor, auth: &str, secrets: &str) -> Project {
    let config = vendor.config();
    let config = config.replace(
        "allow_private_addresses = true\n",
        &format!("allow_private_addresses = true\nauth = {auth}\n"),
    );
    let config = config.replace(
        "path = '/hold'\n",
        "path = '/hold'\nsecret_args = ['card.number']\n",
    );
    Project::with(&format!("{config}{secrets}"))
}

/// What `auth` makes of the credential on its way: in base64, and in a signature it does not show.
const IN_BASE64: &str = "YW5uOmNhbmFyeS1oZWFkZXItN2YzYTlj";

/// What a token server gives out.
const TOKEN: &str = "canary-token-91d27e";

#[test]
fn no_source_and_no_way_in_shows_a_credential() {
    let kept = Kept::new();
    let path = kept.path();
    let file = format!("[secrets]\nshop-token = {{ file = '{path}' }}\n");
    let program = format!(
        "[secrets]\nshop-token = {{ command = ['sh', '-c', 'cat {path}; cat {path} >&2'] }}\n"
    );
    let sources = [
        ("", "OPERATORS_SECRET_SHOP_TOKEN"),
        (
            "[secrets]\nshop-token = { env = 'SHOP_TOKEN' }\n",
            "SHOP_TOKEN",
        ),
        (&file, "UNUSED"),
        (&program, "UNUSED"),
    ];
    let ways = [
        "{ oauth2 = { token_url = 'VENDOR/token', client_id = 'ann', client_secret = 'secret:shop-token', client_auth = 'body' } }",
        "{ bearer = 'secret:shop-token' }",
        "{ basic = { user = 'ann', password = 'secret:shop-token' } }",
        "{ header = 'X-Api-Key', value = 'secret:shop-token' }",
        "{ aws_sigv4 = { region = 'eu', service = 's3', access_key = 'AK', secret_key = 'secret:shop-token', session_token = 'secret:shop-token' } }",
    ];
    for (nth, way) in ways.iter().enumerate() {
        for (turn, (secrets, variable)) in sources.into_iter().enumerate() {
            let status = [200, 422, 503][(nth + turn) % 3];
            let vendor = Vendor::start(move |request| {
                if request.body.contains("grant_type") {
                    Answer::Json(200, token())
                } else {
                    Answer::Json(status, echo_all(request))
                }
            });
            let auth = way.replace("VENDOR", &vendor.url());
            let project = project_with(&vendor, &auth, secrets);
            let plan = json!([secretive("SO-1")]);
            let ending = if status == 200 { 0 } else { 4 };
            let said = propose_with(&project, &plan, &[], variable).ended(ending);
            let seen = format!("{:?}", vendor.requests());
            let wanted = if nth == 2 { IN_BASE64 } else { IN_HEADER };
            assert!(seen.contains(wanted), "{auth} {secrets}: {seen}");
            for canary in [IN_BASE64, TOKEN] {
                assert!(!format!("{said:?}").contains(canary), "{auth}: {said:#?}");
            }
            looks_clean(&project, &[said]);
        }
    }
}

fn token() -> String {
    json!({ "access_token": TOKEN, "expires_in": 600 }).to_string()
}

/// Every header and the body, wherever they came in.
fn echo_all(request: &Request) -> String {
    let headers: Vec<String> = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    json!({ "id": request.header("authorization"), "message": headers.join(" "), "said": request.body })
        .to_string()
}

#[test]
fn a_planner_does_not_see_the_variables_that_hold_secrets() {
    let vendor = Vendor::always(Answer::well());
    let planner = "[operators.spy]\ncommand = ['sh', '-c', 'test -z \"$SHOP_TOKEN$OPERATORS_SECRET_OTHER\" && echo []']\n";
    let secrets = "[secrets]\nshop-token = { env = 'SHOP_TOKEN' }\n";
    let project = Project::with(&format!("{}{planner}{secrets}", vendor.config()));
    let mut command = project.command(&["run", "spy", "--once", "--json"]);
    command
        .env("SHOP_TOKEN", IN_HEADER)
        .env("OPERATORS_SECRET_OTHER", IN_HEADER);
    Running::start(&mut command, None).end().ended(0);
}

#[test]
fn a_secret_file_that_others_may_read_is_refused_with_the_remedy() {
    let vendor = Vendor::always(Answer::well());
    let kept = Kept::new();
    kept.allow(0o644);
    let secrets = format!("[secrets]\nshop-token = {{ file = '{}' }}\n", kept.path());
    let project = project_with(&vendor, "{ bearer = 'secret:shop-token' }", &secrets);
    let said = propose_with(&project, &json!([secretive("SO-1")]), &[], "UNUSED").ended(4);
    assert!(said.stdout.contains("chmod 600"), "{said:#?}");
    assert_eq!(vendor.requests().len(), 0);
    looks_clean(&project, &[said]);
}

#[test]
fn a_bad_entry_is_refused_at_its_line() {
    let vendor = Vendor::always(Answer::well());
    let config = format!(
        "{}[secrets]\nshop-token = {{ env = 'A', file = 'b' }}\n",
        vendor.config()
    );
    let project = Project::with(&config);
    let said = project.plan(&json!([])).ended(1);
    assert!(
        said.stderr
            .contains("needs exactly one of `env`, `file` and `command`"),
        "{said:#?}"
    );
}

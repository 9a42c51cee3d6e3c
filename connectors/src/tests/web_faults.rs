//! An MCP server over HTTP that refuses, breaks off, forgets its session or answers oddly: what is
//! kept of it is in our words, and says what is so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use operators_kernel::{ConnectorError, Health, InvokeOutcome, SendPermit};

use super::departures::asked_at_most;
use super::servers::{HOLD, held};
use super::vendor::{Reply, Vendor, answer};
use super::{CANARY, FixedSecrets, applied, build_in, call, configs, connector, invoke, name};
use super::{not_applied, unknown};
use crate::{Registry, accept_mcp};

const RESULT: &str = r#"{"content":[{"type":"text","text":"held"}]}"#;

/// A server with sessions `s-0`, `s-1` and so on, which answers a `tools/call` as told.
fn server(on_call: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Arc<Vendor> {
    let sessions = AtomicUsize::new(0);
    Arc::new(Vendor::answering(move |_, request| {
        let asked = Asked::of(request);
        let ok = |result: &str| Reply::Close(answer("200 OK", "application/json", result));
        match asked.method.as_str() {
            "GET" if asked.request.contains("last-event-id") => on_call(&asked),
            "GET" => Reply::Close(answer("405 Method Not Allowed", "text/plain", "")),
            "DELETE" => Reply::Close(answer("204 No Content", "text/plain", "")),
            "initialize" => {
                let session = sessions.fetch_add(1, Ordering::SeqCst);
                let greeting = asked.result(
                    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}"#,
                );
                let head = format!("application/json\r\nmcp-session-id: s-{session}");
                Reply::Close(answer("200 OK", &head, &greeting))
            }
            "notifications/initialized" => {
                Reply::Close(answer("202 Accepted", "application/json", ""))
            }
            "tools/list" => ok(&asked.result(&format!("{{\"tools\":[{HOLD}]}}"))),
            "tools/call" => on_call(&asked),
            other => panic!("nobody asks for {other}"),
        }
    }))
}

/// One request, as the server read it.
struct Asked {
    request: String,
    method: String,
    id: Value,
}

impl Asked {
    fn of(request: &str) -> Self {
        let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let message: Value = serde_json::from_str(body).unwrap_or_default();
        let verb = request.split(' ').next().unwrap_or_default();
        Self {
            request: request.to_ascii_lowercase(),
            method: message["method"].as_str().unwrap_or(verb).to_owned(),
            id: message["id"].clone(),
        }
    }

    /// The answer to it.
    fn result(&self, result: &str) -> String {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}",
            self.id
        )
    }

    fn is_of(&self, session: &str) -> bool {
        self.request
            .contains(&format!("mcp-session-id: {session}\r\n"))
    }
}

fn json_reply(status: &str, body: &str) -> Reply {
    Reply::Close(answer(status, "application/json", body))
}

fn asked_for(vendor: &Vendor, method: &str) -> usize {
    let requests = vendor.requests();
    let wanted = |request: &&String| Asked::of(request).method == method;
    requests.iter().filter(wanted).count()
}

/// A project with one server, and a folder for what is accepted of it.
struct Shop {
    folder: TempDir,
    config: String,
}

impl Shop {
    fn at(vendor: &Vendor) -> Self {
        Self::with(
            &format!("http://{}/mcp", vendor.address),
            "allow_private_addresses = true",
        )
    }

    fn with(url: &str, more: &str) -> Self {
        Self {
            folder: TempDir::new().expect("a folder"),
            config: format!(
                "[connectors.shop]\nkind = 'mcp'\nurl = '{url}'\n{more}\n\
                 headers = {{ Authorization = 'secret:token' }}\n[connectors.shop.tools.hold]\n"
            ),
        }
    }

    fn registry(&self) -> Registry {
        build_in(&self.config, self.folder.path()).expect("config")
    }

    async fn invoke(&self) -> InvokeOutcome {
        invoke(&self.registry(), &held()).await
    }

    /// What `operators connectors test` and `operators connectors accept` say.
    async fn looked_at(&self) -> [String; 2] {
        let tenant = held().tenant;
        let health = connector(&self.registry(), "hold").check(&tenant).await;
        let Health::Ill(error) = health else {
            panic!("{health:?}")
        };
        let configs = configs(&self.config).expect("config");
        let config = configs.get(&name("shop")).expect("the shop");
        let secrets = Arc::new(FixedSecrets);
        let shop = name("shop");
        let accepted = accept_mcp(&shop, config, self.folder.path(), secrets, &tenant).await;
        [error.message, accepted.expect_err("it does not let us in")]
    }
}

/// No type's name, no library's words, no credential.
#[track_caller]
fn is_in_our_words(told: &str) {
    for word in [
        "::",
        "Transport",
        "Worker",
        "Client error",
        "rmcp",
        "canary-4711",
    ] {
        assert!(!told.contains(word), "`{word}` in: {told}");
    }
}

#[tokio::test]
async fn a_fault_is_told_with_its_place_its_status_and_its_first_line() {
    type Last = fn() -> Reply;
    let cases: [(Last, &[&str]); 7] = [
        (
            || {
                Reply::Close(answer(
                    "403 Forbidden",
                    "text/plain",
                    "not for you\nand more",
                ))
            },
            &["was not taken", "answered 403 Forbidden: `not for you`"],
        ),
        (
            || {
                Reply::Close(answer(
                    "401 Unauthorized",
                    "text/plain",
                    &format!("no {CANARY}"),
                ))
            },
            &["was not taken", "answered 401 Unauthorized: `no …`"],
        ),
        (
            || {
                json_reply(
                    "400 Bad Request",
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no such session"}}"#,
                )
            },
            &[
                "was not taken",
                "answered 400 Bad Request: `no such session`",
            ],
        ),
        (
            || Reply::Close(answer("502 Bad Gateway", "text/html", "<h1>proxy</h1>")),
            &[
                "got no result",
                "answered 502 Bad Gateway: `<h1>proxy</h1>`",
            ],
        ),
        (
            || Reply::Close(answer("200 OK", "text/html", "<h1>log in</h1>")),
            &["got no result", "answered 200 OK", "`text/html`"],
        ),
        (
            || json_reply("200 OK", "{\"jsonrpc\": "),
            &["got no result", "cannot be read"],
        ),
        (|| Reply::Close(Vec::new()), &["got no result", "no answer"]),
    ];
    for (last, wanted) in cases {
        let vendor = server(move |_| last());
        let told = match Shop::at(&vendor).invoke().await {
            InvokeOutcome::NotApplied(error) | InvokeOutcome::Unknown(error) => error.message,
            InvokeOutcome::Applied(effect) => panic!("{effect:?}"),
        };
        is_in_our_words(&told);
        assert!(
            told.contains(&format!("http://{}", vendor.address)),
            "{told}"
        );
        for words in wanted {
            assert!(told.contains(words), "`{words}` is not in: {told}");
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_told_with_its_status() {
    for status in ["401 Unauthorized", "503 Service Unavailable"] {
        let vendor = Vendor::always(Reply::Close(answer(
            status,
            "text/plain",
            "no: canary-4711-canary",
        )));
        let shop = Shop::at(&vendor);
        let mut told = shop.looked_at().await.to_vec();
        told.push(not_applied(shop.invoke().await));
        for told in told {
            is_in_our_words(&told);
            assert!(
                told.contains(&format!("http://{} answered {status}", vendor.address)),
                "{told}"
            );
        }
    }
    // The second message of the greeting is refused, and not the first.
    let vendor = Vendor::answering(|_, request| {
        match Asked::of(request) {
        asked if asked.method == "initialize" => json_reply("200 OK", &asked.result(
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"w","version":"1"}}"#,
        )),
        _ => Reply::Close(answer("403 Forbidden", "text/plain", "")),
    }
    });
    for told in Shop::at(&vendor).looked_at().await {
        is_in_our_words(&told);
        assert!(told.contains("answered 403 Forbidden"), "{told}");
    }
}

#[tokio::test]
async fn what_the_guard_of_addresses_refused_is_told_as_such() {
    let shop = Shop::with("http://localhost:9/mcp", "");
    let mut told = shop.looked_at().await.to_vec();
    told.push(not_applied(shop.invoke().await));
    for told in told {
        is_in_our_words(&told);
        assert!(told.contains("`localhost` is at "), "{told}");
        assert!(
            told.contains("set `allow_private_addresses = true` if that is meant"),
            "{told}"
        );
    }
    let shop = Shop::with(
        "http://127.0.0.1:1/secret-path/mcp",
        "allow_private_addresses = true",
    );
    let told = not_applied(shop.invoke().await);
    is_in_our_words(&told);
    assert!(
        told.contains("no connection to http://127.0.0.1:1: "),
        "{told}"
    );
    assert!(!told.contains("secret-path"), "{told}");
}

#[tokio::test]
async fn refused_is_said_of_what_did_not_happen_alone() {
    let error = |code: i32| {
        server(move |asked| {
            let id = &asked.id;
            json_reply(
                "200 OK",
                &format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"half done\"}}}}"
                ),
            )
        })
    };
    let told = not_applied(Shop::at(&error(-32602)).invoke().await);
    assert!(told.contains("was refused: `half done`"), "{told}");
    let told = unknown(Shop::at(&error(-32603)).invoke().await);
    assert!(!told.contains("refused"), "{told}");
    assert!(told.contains("error -32603: `half done`"), "{told}");
}

#[tokio::test]
async fn an_answer_that_broke_off_has_a_place() {
    let vendor = server(|_| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        Reply::Close(format!("{head}: thinking\n\n").into_bytes())
    });
    let told = unknown(Shop::at(&vendor).invoke().await);
    is_in_our_words(&told);
    assert!(
        told.contains(&format!("http://{}", vendor.address)),
        "{told}"
    );
}

/// A 404 to a request of a session means that the server did not run it.
#[tokio::test]
async fn a_session_that_the_server_forgot_is_greeted_again() {
    let vendor = server(|asked| {
        if asked.is_of("s-0") {
            return Reply::Close(answer("404 Not Found", "text/plain", "no session"));
        }
        json_reply("200 OK", &asked.result(RESULT))
    });
    let shop = Shop::at(&vendor);
    let registry = shop.registry();
    assert_eq!(applied(invoke(&registry, &held()).await).0, json!("held"));
    let counted =
        |vendor: &Vendor| ["initialize", "tools/call"].map(|method| asked_for(vendor, method));
    assert_eq!(counted(&vendor), [2, 2]);
    applied(invoke(&registry, &held()).await);
    assert_eq!(counted(&vendor), [2, 3]);
}

#[tokio::test]
async fn a_server_that_forgets_every_session_is_asked_twice_a_call() {
    let vendor = server(|_| Reply::Close(answer("404 Not Found", "text/plain", "no session")));
    let shop = Shop::at(&vendor);
    let registry = shop.registry();
    for calls in [2, 4] {
        let told = not_applied(invoke(&registry, &held()).await);
        assert!(
            told.contains("answered 404 Not Found: `no session`"),
            "{told}"
        );
        assert_eq!(asked_for(&vendor, "tools/call"), calls);
        assert_eq!(asked_for(&vendor, "initialize"), calls);
    }
}

/// A credential that was replaced, or a session that is refused in other words.
#[tokio::test]
async fn a_connection_that_was_refused_is_not_used_again() {
    for status in ["400 Bad Request", "401 Unauthorized", "403 Forbidden"] {
        let vendor = server(move |asked| {
            if asked.is_of("s-0") {
                return Reply::Close(answer(status, "text/plain", "no"));
            }
            json_reply("200 OK", &asked.result(RESULT))
        });
        let shop = Shop::at(&vendor);
        let registry = shop.registry();
        not_applied(invoke(&registry, &held()).await);
        assert_eq!(asked_for(&vendor, "tools/call"), 1, "{status}");
        applied(invoke(&registry, &held()).await);
    }
}

#[tokio::test]
async fn a_result_is_a_result_whatever_its_status_and_the_form_of_its_id() {
    let forms: [fn(&Asked) -> Reply; 5] = [
        |asked| json_reply("404 Not Found", &asked.result(RESULT)),
        |asked| json_reply("500 Internal Server Error", &asked.result(RESULT)),
        |asked| {
            let text = asked.result(RESULT).replace(
                &format!("\"id\":{}", asked.id),
                &format!("\"id\":\"{}\"", asked.id),
            );
            json_reply("200 OK", &text)
        },
        |asked| {
            let text = asked.result(RESULT).replace(
                &format!("\"id\":{}", asked.id),
                &format!("\"id\":{}.0", asked.id),
            );
            json_reply("200 OK", &text)
        },
        |asked| {
            let text = asked.result(RESULT).replace(
                &format!("\"id\":{}", asked.id),
                &format!("\"id\":\"{}\"", asked.id),
            );
            let event = format!("data: {text}\n\n");
            Reply::Close(answer("200 OK", "text/event-stream", &event))
        },
    ];
    for (n, form) in forms.into_iter().enumerate() {
        let vendor = server(form);
        let outcome = Shop::at(&vendor).invoke().await;
        assert!(
            matches!(outcome, InvokeOutcome::Applied(_)),
            "{n}: {outcome:?}"
        );
        assert_eq!(asked_for(&vendor, "tools/call"), 1);
    }
}

#[tokio::test]
async fn a_result_that_cannot_be_ours_is_no_failure() {
    let forms: [fn(&Asked) -> Reply; 5] = [
        |asked| {
            json_reply(
                "404 Not Found",
                &asked.result(RESULT).replace("\"id\":", "\"id\":1"),
            )
        },
        |asked| {
            json_reply(
                "200 OK",
                &asked.result(RESULT).replace("\"id\":", "\"id\":1"),
            )
        },
        |_| {
            json_reply(
                "404 Not Found",
                &format!("{{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{RESULT}}}"),
            )
        },
        |asked| {
            let both = asked.result(RESULT).replace(
                "\"result\"",
                "\"error\":{\"code\":-32602,\"message\":\"no\"},\"result\"",
            );
            json_reply("400 Bad Request", &both)
        },
        |asked| {
            let event = format!("data: {}\n\n", asked.result(RESULT));
            Reply::Close(answer("404 Not Found", "text/event-stream", &event))
        },
    ];
    for (n, form) in forms.into_iter().enumerate() {
        let vendor = server(form);
        let outcome = Shop::at(&vendor).invoke().await;
        assert!(
            matches!(outcome, InvokeOutcome::Unknown(_)),
            "{n}: {outcome:?}"
        );
        assert_eq!(asked_for(&vendor, "tools/call"), 1);
    }
}

/// Rule 4.1: a 404 whose body is no JSON as a whole, but may tell of a result, does not mean that
/// nothing happened, and the call is not sent again.
#[tokio::test]
async fn a_result_that_cannot_be_read_is_no_failure_either() {
    let events = |asked: &Asked| format!("event: message\ndata: {}\n\n", asked.result(RESULT));
    let of_status = |media: &str, body: String| Reply::Close(answer("404 Not Found", media, &body));
    let vendors = [
        server(move |asked| {
            of_status(
                "application/json",
                format!("\u{feff}{}x", asked.result(RESULT)),
            )
        }),
        server(move |asked| of_status("text/plain", events(asked))),
        server(move |asked| {
            let whole = asked.result(RESULT);
            of_status("application/json", whole[..whole.len() - 9].to_owned())
        }),
        server(move |asked| {
            let one = asked.result(RESULT);
            of_status("application/json", format!("{one}\n{one}"))
        }),
        server(move |asked| {
            let wrapped = json!({"statusCode": 200, "body": asked.result(RESULT)});
            of_status("application/json", wrapped.to_string())
        }),
        server(move |_| {
            of_status(
                "application/json\r\ncontent-encoding: gzip",
                "H4sI".to_owned(),
            )
        }),
    ];
    for (n, vendor) in vendors.into_iter().enumerate() {
        let outcome = Shop::at(&vendor).invoke().await;
        assert!(
            matches!(outcome, InvokeOutcome::Unknown(_)),
            "{n}: {outcome:?}"
        );
        assert_eq!(asked_for(&vendor, "tools/call"), 1, "{n}");
    }
}

/// Rule 5.5: a server that is greeted again has heard the secrets of the call.
#[tokio::test]
async fn what_a_server_says_as_it_is_greeted_again_holds_no_half_of_a_secret() {
    let secret = "hunter22/hunter22+hunter22";
    let vendor = Vendor::answering(move |n, request| {
        let asked = Asked::of(request);
        match asked.method.as_str() {
            "initialize" if n == 0 => {
                let greeting = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}"#;
                let head = "application/json\r\nmcp-session-id: s-0";
                Reply::Close(answer("200 OK", head, &asked.result(greeting)))
            }
            "initialize" => {
                let message = format!("{}{secret}", "a".repeat(185));
                let error = json!({"code": -32603, "message": message});
                let error = json!({"jsonrpc": "2.0", "id": asked.id, "error": error});
                json_reply("200 OK", &error.to_string())
            }
            "notifications/initialized" => json_reply("202 Accepted", ""),
            "tools/list" => json_reply("200 OK", &asked.result(&format!("{{\"tools\":[{HOLD}]}}"))),
            "tools/call" => json_reply("404 Not Found", ""),
            _ => json_reply("405 Method Not Allowed", ""),
        }
    });
    let mut asked = call("hold", json!({"order": "SO-1", "password": secret}));
    asked.deadline = Duration::from_secs(8);
    let told = not_applied(invoke(&Shop::at(&vendor).registry(), &asked).await);
    assert!(
        told.contains("did not greet us") && !told.contains("hunter22"),
        "{told}"
    );
}

/// A stream whose events have ids is read on from where it broke off. That asks for the rest of an
/// answer, and sends nothing a second time.
#[tokio::test]
async fn a_stream_that_broke_off_is_read_on_where_its_events_have_ids() {
    let vendor = server(|asked| {
        if asked.method == "tools/call" {
            // Cut off: more was announced.
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\n";
            return Reply::Close(format!("{head}id: e-1\ndata: \n\n").into_bytes());
        }
        assert!(
            asked.request.contains("last-event-id: e-1"),
            "{}",
            asked.request
        );
        let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{RESULT}}}\n\n");
        Reply::Close(answer("200 OK", "text/event-stream", &event))
    });
    let (result, _) = applied(Shop::at(&vendor).invoke().await);
    assert_eq!(result, json!("held"));
    assert_eq!(asked_for(&vendor, "tools/call"), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_off_again_and_again_is_not_asked_for_without_a_pause() {
    let vendor = server(|_| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\n";
        Reply::Close(format!("{head}id: e-1\ndata: \n\n").into_bytes())
    });
    let shop = Shop::at(&vendor);
    let (registry, call) = (shop.registry(), held());
    let waited = tokio::time::timeout(Duration::from_secs(2), invoke(&registry, &call)).await;
    assert!(waited.is_err(), "{waited:?}");
    let asked = asked_for(&vendor, "GET");
    assert!((2..=12).contains(&asked), "asked {asked} times");
}

/// By rule 4.12: what is asked first is not enough. A process may be stopped while it connects, so
/// it is asked again with the connection made.
#[tokio::test]
async fn a_call_that_may_not_leave_after_connecting_does_not() {
    let vendor = server(|asked| json_reply("200 OK", &asked.result(RESULT)));
    let shop = Shop::at(&vendor);
    let mut late = held();
    late.permit = asked_at_most(1);
    let told = not_applied(invoke(&shop.registry(), &late).await);
    assert!(
        told.contains("nothing was sent: the test says so"),
        "{told}"
    );
    assert_eq!(asked_for(&vendor, "tools/list"), 1);
    assert_eq!(asked_for(&vendor, "tools/call"), 0);
}

/// By rule 4.12, wherever the time went: into the list of tools, or into another session.
#[tokio::test]
async fn a_call_whose_permit_ended_before_it_left_is_not_sent() {
    for (method, times, calls) in [("tools/list", 1, 0), ("initialize", 2, 1)] {
        let vendor = server(|_| Reply::Close(answer("404 Not Found", "text/plain", "")));
        let shop = Shop::at(&vendor);
        let seen = Arc::clone(&vendor);
        let mut late = held();
        late.permit = SendPermit::asking(move || match asked_for(&seen, method) {
            n if n < times => Ok(()),
            _ => Err(ConnectorError::new("nothing was sent: the test says so")),
        });
        let told = not_applied(invoke(&shop.registry(), &late).await);
        assert!(
            told.contains("nothing was sent: the test says so"),
            "{told}"
        );
        assert_eq!(asked_for(&vendor, "tools/call"), calls, "{method}");
    }
}

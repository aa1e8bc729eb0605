use std::fmt::Write;

use super::*;

const SMALLEST: &str = "\
apiVersion: streamstage.io/v1alpha1
kind: StreamStage
metadata: {name: mail}
spec:
  redis: {addresses: [\"redis:6379\"]}
  source: {stream: orders, consumerGroup: mail}
  delivery: {visibilityTimeout: 30s}
  handler: {type: HTTP, http: {port: 8080}}
  template: {spec: {containers: [{name: handler, image: shop/mail}]}}
";

const A_DURATION: &str = "must be a duration such as `30s`, `500ms` or `1h30m`: whole numbers, each with its unit (h, m, s or ms)";

/// What is said of a text.
fn judged(text: &str) -> String {
    match parse(text) {
        Ok(_) => "nothing".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// What is said of the smallest manifest with `old` replaced by `new`.
fn said(old: &str, new: &str) -> String {
    assert!(SMALLEST.contains(old), "{old}");
    judged(&SMALLEST.replace(old, new))
}

#[test]
fn the_smallest_manifest_gets_every_default() {
    let stage = parse(SMALLEST).unwrap();
    assert_eq!((stage.namespace.as_str(), stage.replicas), ("default", 1));
    assert_eq!(stage.keys().retry.as_str(), "{orders}:mail:retry");
    assert_eq!(stage.delivery.concurrency, 4);
}

#[test]
fn other_documents_and_fields_of_a_cluster_are_passed_over() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n";
    assert_eq!(
        judged(&format!(
            "---\n# nothing\n---\n{service}---\n{SMALLEST}---\n"
        )),
        "nothing"
    );
    let read_back = "{name: mail, namespace: shop, uid: 1-2, managedFields: [], labels: {a: b}}";
    assert_eq!(said("{name: mail}", read_back), "nothing");
    assert_eq!(said("spec:\n", "status: {replicas: 1}\nspec:\n"), "nothing");
    assert_eq!(said("spec:\n", "spec:\n  output:\n  retry: ~\n"), "nothing");
}

#[test]
fn a_manifest_in_json_is_read_too() {
    let value: Value = serde_saphyr::from_str(SMALLEST).unwrap();
    assert_eq!(judged(&value.to_string()), "nothing");
}

#[test]
fn durations_have_one_form_and_one_error() {
    for (written, shown) in [
        ("30", "30"),
        ("-1s", "-1s"),
        ("PT30S", "PT30S"),
        ("0.5s", "0.5s"),
        ("1d", "1d"),
        ("''", "\"\""),
        ("true", "true"),
        ("[30s]", "a list"),
    ] {
        let expected = format!("spec.delivery.visibilityTimeout: {shown}: {A_DURATION}");
        assert_eq!(said("30s", written), expected);
    }
}

#[test]
fn a_bad_field_is_named_with_its_value_and_the_remedy() {
    for (old, new, expected) in [
        ("visibilityTimeout: 30s", "visibiltyTimeout: 30s", "\
spec.delivery.visibiltyTimeout: 30s: there is no such field: did you mean `visibilityTimeout`?
spec.delivery.visibilityTimeout: absent: must be set: how long a worker may be silent before another takes over its entries; 2s to 24h, no default"),
        ("spec:\n", "spec:\n  maxAttempts: 3\n", "spec.maxAttempts: 3: there is no such field: did you mean `spec.retry.maxAttempts`?"),
        ("spec:\n", "spec:\n  scaling: {mode: Auto}\n", "spec.scaling: a map: there is no such field: remove it; `spec` has `deadLetter`, `delivery`, `drain`, `engine`, `handler`, `idempotency`, `output`, `redis`, `replicas`, `retry`, `source`, `suspend`, `template`"),
        ("{name: mail}", "{name: mail, label: {}}", "metadata.label: a map: there is no such field: did you mean `metadata.labels`?"),
        ("{name: mail}", "{}", "metadata.name: absent: must be set: it names the stage"),
        ("{name: mail}", "{name: 7}", "metadata.name: 7: must be a text: put it in quotes"),
        ("{name: mail}", "{name: Mail_1}", "metadata.name: Mail_1: must be lower case letters, digits, `-` and `.`, with a letter or digit at each end"),
        ("spec:\n", "replicas: 3\nspec:\n", "replicas: 3: there is no such field: remove it"),
        ("spec:\n", "spec:\n  replicas: 1001\n", "spec.replicas: 1001: must be between 0 and 1000"),
        ("spec:\n", "spec:\n  replicas: '3'\n", "spec.replicas: 3: must be a whole number: write it without quotes"),
        ("spec:\n", "spec:\n  replicas: 1.5\n", "spec.replicas: 1.5: must be a whole number"),
        ("spec:\n", "spec:\n  replicas: 99999999999\n", "spec.replicas: 99999999999: must be between 0 and 1000"),
        ("spec:\n", "spec:\n  suspend: 'yes'\n", "spec.suspend: yes: must be `true` or `false`"),
        ("spec:\n", "spec:\n  retry: []\n", "spec.retry: a list: must be a map of fields"),
        ("spec:\n", "spec:\n  output: {stream: orders}\n", "spec.output.stream: orders: must be different from `source.stream`: the stage would read its own outputs"),
        ("type: HTTP", "type: http", "spec.handler.type: http: must be `HTTP` or `Exec`"),
        ("type: HTTP", "type: Exec", "spec.handler: Exec: must hold the block of its `type` and no other: `http` for HTTP, `exec` for Exec"),
        ("port: 8080", "port: 0", "spec.handler.http.port: 0: must be between 1 and 65535"),
        ("port: 8080", "", "spec.handler.http.port: absent: must be set: the port it listens on; 1 to 65535, no default"),
        ("stream: orders", "stream: 007", "spec.source.stream: 7.0: must be a text: put it in quotes"),
        ("stream: orders", "stream: 'a}'", "spec.source.stream: a}: may hold a `}` only to close a hash tag that is not empty, as in `{tag}name`"),
        ("stream: orders", "stream: ''", "spec.source.stream: \"\": may not be empty: the stream to read"),
        ("stream: orders", "stream: orders, startFrom: 1700000000000", "spec.source.startFrom: 1700000000000: must be a text: put it in quotes"),
        ("stream: orders", "stream: orders, startFrom: start", "spec.source.startFrom: start: must be `Beginning`, `End` or an entry id such as `1700000000000-0`"),
        ("[\"redis:6379\"]", "[]", "spec.redis.addresses: 0 items: must hold at least 1 of them"),
        ("  source: {stream: orders, consumerGroup: mail}\n", "", "spec.source: absent: must be set: the stream and the consumer group to read"),
        ("spec:\n", "spec:\n  idempotency: {ledger: Off}\n", "spec.idempotency.ledger: false: must be `AtCommit` or `Off`: put it in quotes (\"Off\"), YAML reads it as false"),
        ("spec:\n", "spec:\n  idempotency: {ledger: true}\n", "spec.idempotency.ledger: true: must be `AtCommit` or `Off`"),
        ("[\"redis:6379\"]", "redis:6379", "spec.redis.addresses: redis:6379: must be a list: begin each item with `- `"),
        ("redis:6379", "redis://:hunter2@redis:6379", "spec.redis.addresses: (not shown)@redis:6379: must be written as host:port, such as `redis-master.shop.svc:6379`"),
        ("addresses:", "auth: {}, addresses:", "spec.redis.auth.passwordSecretRef: absent: must be set: the password"),
        ("addresses:", "auth: {password: hunter2, passwordSecretRef: {name: a, key: b}}, addresses:", "spec.redis.auth.password: (not shown): there is no such field: remove it; `spec.redis.auth` has `passwordSecretRef`, `usernameSecretRef`"),
        ("[{name: handler, image: shop/mail}]", "[]", "spec.template.spec.containers: a list: must list at least one container: the handler's, named `handler` or standing first"),
        ("[{name: handler, image: shop/mail}]", "[{image: shop/mail}]", "spec.template.spec.containers[0].name: null: must be a text that names the container"),
        (", image: shop/mail", "", "spec.template.spec.containers[0].image: null: must be a text that names the container's image"),
        ("spec:\n", "spec:\n  engine: {resources: {limits: {memory: 128MB}}}\n", "spec.engine.resources.limits[memory]: 128MB: must be a quantity such as `500m`, `2` or `128Mi`: a number, and perhaps a unit (n, u, m, k, M, G, T, P, E, or Ki to Ei)"),
        ("spec:\n", "spec:\n  engine: {resources: {requests: {cpu: 0.5}}}\n", "spec.engine.resources.requests[cpu]: 0.5: must be a whole number, or a text in quotes"),
        ("spec:\n", "spec:\n  engine: {resources: {requests: {cpu: -1}}}\n", "spec.engine.resources.requests[cpu]: -1: must be between 0 and 2147483647"),
        ("{spec: {c", "{metadata: {labels: {team: 'a b'}}, spec: {c", "spec.template.metadata.labels[team]: a b: must be letters, digits, `-`, `_` and `.`, with a letter or digit at each end"),
        ("{spec: {c", "{metadata: {labels: {a b: c}}, spec: {c", "spec.template.metadata.labels: a b: must be at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end, and before it at most a domain and `/`"),
        ("{spec: {c", "{metadata: {annotations: {Shop/x: c d}}, spec: {c", "spec.template.metadata.annotations: Shop/x: must be at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at each end, and before it at most a domain and `/`"),
        ("/v1alpha1", "/v1", "apiVersion: streamstage.io/v1: must be `streamstage.io/v1alpha1`"),
        ("kind: StreamStage", "kind: Streamstage", "kind: Streamstage: must be `StreamStage`"),
        ("apiVersion: streamstage.io/v1alpha1\n", "", "apiVersion: absent: must be `streamstage.io/v1alpha1`"),
    ] {
        assert_eq!(said(old, new), expected, "{new}");
    }
}

#[test]
fn an_exec_stage_may_not_bring_a_command_of_its_own() {
    let exec = SMALLEST.replace(
        "{type: HTTP, http: {port: 8080}}",
        "{type: Exec, exec: {command: [cat]}}",
    );
    let with =
        |containers: &str| judged(&exec.replace("{name: handler, image: shop/mail}", containers));
    assert_eq!(with("{name: a, image: i}"), "nothing");
    assert_eq!(
        with("{name: a, image: i, command: [x]}, {name: handler, image: i}"),
        "nothing"
    );
    let refused = "may not be set on the handler's container of an Exec stage: the engine starts there, and runs `handler.exec.command`";
    assert_eq!(
        with("{name: a, image: i, command: [x]}"),
        format!("spec.template.spec.containers[0].command: a list: {refused}")
    );
    assert_eq!(
        with("{name: a, image: i}, {name: handler, image: i, args: [x]}"),
        format!("spec.template.spec.containers[1].args: a list: {refused}")
    );
    assert_eq!(
        said("image: shop/mail", "image: i, command: [x]"),
        "nothing"
    );
}

#[test]
fn everything_wrong_is_told_at_once() {
    let manifest = SMALLEST
        .replace("30s", "1s")
        .replace("8080", "9300")
        .replace("orders", "''");
    assert_eq!(judged(&manifest), "\
spec.source.stream: \"\": may not be empty: the stream to read
spec.delivery.visibilityTimeout: 1s: must be between 2s and 24h
spec.handler.http.port: 9300: may not be 9300, the engine's own port in the pod: let the handler listen on another");
}

#[test]
fn a_manifest_holds_one_stage() {
    let wanted = "the manifest must hold one document with `kind: StreamStage` and `apiVersion: streamstage.io/v1alpha1`";
    assert_eq!(judged(""), format!("kind: absent: {wanted}"));
    assert_eq!(judged("---\n---\n"), format!("kind: absent: {wanted}"));
    assert_eq!(
        judged("hello"),
        format!("kind: a document without a kind: {wanted}")
    );
    let others = "kind: Service\n---\nkind: Deployment\n";
    assert_eq!(
        judged(others),
        format!("kind: Service, Deployment: {wanted}")
    );
    let second = SMALLEST.replace("mail}", "bills}");
    let expected = "metadata.name: mail, bills: the manifest must hold one StreamStage only: keep each in a file of its own";
    assert_eq!(judged(&format!("{SMALLEST}---\n{second}")), expected);
}

#[test]
fn what_is_not_yaml_is_named_with_its_place() {
    for (old, new, expected) in [
        (
            "{visibilityTimeout: 30s",
            "{visibilityTimeout: 30s, visibilityTimeout: 40s",
            "line 7, column 38: visibilityTimeout: the field is given twice: remove one of them",
        ),
        (
            "spec:\n",
            "spec:\n\tx: 1\n",
            "line 5, column 2: not readable as YAML: tabs disallowed within this context (block indentation): correct it there",
        ),
        (
            "orders",
            "*a",
            "line 6, column 20: not readable as YAML: alias references unknown anchor: correct it there",
        ),
        (
            "orders",
            "{{ .Values.stream }}",
            "line 6, column 21: not readable as YAML: expected string scalar: correct it there",
        ),
    ] {
        assert_eq!(said(old, new), expected, "{new}");
    }
}

#[test]
fn a_file_that_is_no_text_is_called_so() {
    for (text, odd) in [
        ("\u{7f}ELF\u{2}\u{1}", "U+007F in line 1"),
        ("a: b\n\0", "U+0000 in line 2"),
    ] {
        let expected = format!(
            "manifest: {odd}: must be a text without control characters: is it the right file?"
        );
        assert_eq!(judged(text), expected);
    }
    assert_eq!(judged(&SMALLEST.replace('\n', "\r\n")), "nothing");
}

#[test]
fn a_bomb_of_aliases_and_a_huge_file_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{items}]").unwrap();
    }
    assert_eq!(
        judged(&bomb),
        "line 6, column 20: the file holds more than is read, counting what its aliases repeat: shorten it"
    );
    let huge = format!("# {}\n{SMALLEST}", "x".repeat(MAX_BYTES));
    assert!(judged(&huge).ends_with("must be at most 1048576 bytes: keep one stage in the file"));
}
